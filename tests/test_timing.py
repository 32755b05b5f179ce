"""What goes over links: collectives among ranks, and what is read from the host's memory; against measured rates."""

from dataclasses import replace

import pytest

import planner
from planner.catalogue import accelerator
from planner.errors import InputError
from planner.speed import estimate

ONE_H100 = {"accelerator": "h100-sxm", "isl": 2048, "osl": 2}


def test_collectives_are_those_of_divided_rows():
    answer = estimate("llama-3.1-8b", **ONE_H100, tp=8)
    prefill = answer.collectives.query("phase == 'prefill'")
    sums = prefill[prefill.kind == "all_reduce"]
    assert sums.calls.sum() == 1 + 2 * 32
    each = 2 * 7 / 8 * 2048 * 4096 * 2
    assert sums.bytes.sum() == pytest.approx((1 + 2 * 32) * each)
    assert sums.seconds.sum() == pytest.approx((1 + 2 * 32) * (10e-6 + each / (0.8 * 450e9)))
    assert estimate("llama-3.1-8b", **ONE_H100).collectives.empty
    wide = estimate("llama-3.1-8b", **ONE_H100, tp=16 // 2, pp=2).collectives
    assert wide[wide.kind == "send"].seconds.iloc[0] == pytest.approx(10e-6 + 2048 * 4096 * 2 / (0.8 * 50e9))


@pytest.mark.parametrize(
    ("device", "layout", "rate"),
    [
        ("mi300x", {"tp": 2}, 64e9),
        ("mi300x", {"tp": 4}, 3 * 64e9),
        ("mi300x", {"tp": 8}, 448e9),
        ("mi300x", {"tp": 8, "attention_dp": 4}, 64e9),  # the mixers' sums are among two
        ("mi300x", {"tp": 2, "pp": 4}, 64e9),
        ("h100-sxm", {"tp": 2}, 450e9),  # behind a switch two have what eight have
    ],
)
def test_without_a_switch_a_collective_has_the_links_of_those_that_take_part(device, layout, rate):
    said = {"isl": 2048, "osl": 2, "link_fraction": 1, "collective_latency_s": 0}
    found = estimate("llama-3.1-8b", accelerator=device, **layout, **said).collectives
    some = found[found.collective.str.contains("mixer") if "attention_dp" in layout else found.bytes > 0]
    assert (some.bytes / some.seconds).to_numpy() == pytest.approx(rate)


def test_two_of_eight_reach_a_seventh_of_the_link_as_measured():
    """Bus bandwidth of all-reduce among two and eight MI300X: stas00/ml-engineering, network/README.md."""
    measured = {2: 47.7e9, 8: 312.9e9}
    for ranks, bus in measured.items():
        sums = estimate("llama-3.1-8b", **ONE_H100 | {"accelerator": "mi300x"}, tp=ranks, collective_latency_s=0)
        ours = (sums.collectives.bytes / sums.collectives.seconds).iloc[0]
        assert ours == pytest.approx(bus, rel=0.15)


DEEPSEEK = {"accelerator": "h800", "weights": "fp8-block128", "isl": 4096, "osl": 2}


@pytest.mark.parametrize(("ranks", "measured_s"), [(128, 369e-6), (256, 360e-6)])
def test_tokens_are_sent_to_the_experts_that_they_choose(ranks, measured_s):
    """128 tokens of each H800 come back from 8 of 256 experts in bf16: deepseek-ai/DeepEP, docs/legacy.md."""
    said = {"tp": ranks, "attention_dp": ranks, "ep": ranks, "sequences": 128 * ranks}
    found = estimate("deepseek-v3", **DEEPSEEK, **said).collectives
    combine = found[(found.phase == "decode") & found.collective.str.contains("combine")]
    assert combine.seconds.sum() / 58 == pytest.approx(measured_s, rel=0.05)
    assert set(found[found.phase == "decode"].kind) == {"all_to_all"}  # no group has more than one rank


def test_a_copy_for_each_machine_crosses_the_network():
    """4 machines of 8 H800, where 8 copies of a token would be sent; inside one machine each expert gets its own."""
    found = {
        n: estimate("deepseek-v3", **DEEPSEEK, tp=n, attention_dp=n, ep=n, sequences=n).collectives for n in (8, 32)
    }
    copies = {
        n: frame[frame.phase.eq("decode") & frame.collective.str.contains("dispatch")].bytes.sum() / (58 * 7168 * 2)
        for n, frame in found.items()
    }
    assert copies == {8: pytest.approx(8 * 7 / 8), 32: pytest.approx(4 * 31 / 32)}


def test_the_published_profile_of_deepseek_v3_lies_between_estimate_and_floor():
    """deepseek-ai/profile-data: prompts of 4,096, 16 Ki tokens of a pass on each of 32; 128 sequences on each of 128.

    Tokens a second of a device. Two batches of theirs hide each other's exchanges, which count in full here.
    """
    wide = {"tp": 32, "attention_dp": 32, "ep": 32, "sequences": 128, "prefill_tokens": 32 * 16_384}
    answer = estimate("deepseek-v3", **DEEPSEEK, **wide)
    assert 0.5 * 7839 < 4096 / answer.prefill_s / 32 < 7839 < 4096 / answer.floor.prefill_s / 32
    wide = {"tp": 128, "attention_dp": 128, "ep": 128, "sequences": 128 * 128}
    answer = estimate("deepseek-v3", **DEEPSEEK, **wide)
    assert 0.6 * 2324 < 128 / answer.tpot_s < 2324 < 128 / answer.floor.tpot_s


def test_cards_without_a_link_exchange_over_pcie():
    answer = estimate("llama-3.1-8b", accelerator="l40s", tp=4, isl=2048, osl=2)
    sums = answer.collectives[(answer.collectives.phase == "prefill") & (answer.collectives.kind == "all_reduce")]
    each = 2 * 3 / 4 * 2048 * 4096 * 2
    assert sums.seconds.sum() == pytest.approx((1 + 2 * 32) * (10e-6 + each / (0.8 * 31.508e9)))
    assert any("over PCIe" in note for note in answer.notes)
    assert not any("over PCIe" in note for note in estimate("llama-3.1-8b", **ONE_H100, tp=4).notes)
    with pytest.raises(InputError, match="network_bytes_per_s is not known"):  # its host link ends at its own host
        estimate("llama-3.1-8b", accelerator="gh200-96gb", tp=2)


def test_decode_context_ranks_exchange_in_decode_steps():
    """Of 61 layers, 16 sequences: queries [128, 512 + 64] are gathered and outputs [128, 512] scattered, in bf16."""
    said = {"accelerator": "h200", "tp": 8, "dcp": 8, "isl": 2048, "osl": 2, "sequences": 16}
    found = estimate("deepseek-v3", **said).collectives
    merges = found[found.collective.str.contains("mixer") & (found.kind != "all_reduce")]
    assert set(merges.phase) == {"decode"}  # a prompt is at hand on every rank
    moved = merges.groupby("kind").bytes.sum()
    assert moved["all_gather"] == pytest.approx(61 * 7 / 8 * 16 * 128 * (512 + 64) * 2)
    assert moved["reduce_scatter"] == pytest.approx(61 * 7 / 8 * 16 * 128 * 512 * 2)


OFFLOADED = {"accelerator": "h100-sxm", "isl": 2048, "osl": 2, "offloaded_weights": 0.5}


def test_offloaded_weights_are_read_over_the_host_link_once_a_pass():
    head, link_s = 2 * 128256 * 4096, 0.5 / 63.015e9
    weights = planner.weight_bytes(planner.load("llama-3.1-8b")) - head  # of the embedding rows are looked up
    answer = estimate("llama-3.1-8b", **OFFLOADED)
    assert answer.floor.tpot_s == pytest.approx(weights * link_s, rel=1e-4)
    assert answer.tpot_s == pytest.approx(weights * link_s / 0.8 + 32 * 75e-6, rel=0.02)
    assert answer.floor.ttft_s == pytest.approx((weights + 2 * 2048 * 4096) * link_s)  # longer than its arithmetic
    assert answer.binding_decode == "host link"
    chunked = estimate("llama-3.1-8b", **OFFLOADED, chunk=512).floor  # the head where logits are: in the last of four
    assert chunked.ttft_s == pytest.approx((4 * weights - 3 * head + 2 * 2048 * 4096) * link_s)
    batch = estimate("llama-3.1-8b", **OFFLOADED, sequences=64).floor
    assert batch.tpot_s == pytest.approx(answer.floor.tpot_s, rel=1e-4)  # one reading serves it
    assert any("read over the host link" in note for note in answer.notes)
    assert not any("no time is counted" in note for note in answer.notes)


def test_an_offloaded_cache_is_read_over_the_host_link_and_grows_with_the_context():
    said = ONE_H100 | {"offloaded_cache": 0.25}
    for isl in (2048, 20_000):
        floor = estimate("llama-3.1-8b", **said | {"isl": isl}, sequences=16).floor
        assert floor.tpot_s == pytest.approx(0.25 * 16 * isl * 131_072 / 63.015e9)
    chunked = estimate("llama-3.1-8b", **said | {"isl": 4096}, chunk=1024, compute_fraction=1)
    crossed = chunked.products.query("phase == 'prefill'").host_bytes.sum()
    assert crossed == pytest.approx(0.25 * 131_072 * (1024 + 2048 + 3072 + 4096 + 4096))  # read by each, and written


def test_two_memories_can_be_read_side_by_side_and_what_is_copied_is_read_again():
    said = {"accelerator": "gh200-96gb", "isl": 1, "osl": 2}
    here, partly = (estimate("llama-3.1-8b", **said, offloaded_weights=share) for share in (0.0, 0.05))
    assert partly.floor.tpot_s == pytest.approx(0.95 * here.floor.tpot_s, rel=1e-4)
    assert partly.tpot_s == here.tpot_s  # the link of 450 GB/s is done before the memory is


def test_opt_30b_with_a_quarter_of_its_weights_on_the_host_takes_what_was_measured():
    """Two Titan RTX with 43.0 GB of weights and 14.1 GB in the host's memory: 2.37 s for each token.

    huggingface/accelerate, benchmarks/big_model_inference/README.md; copies there wait for each other and are not
    pinned. Without an account of the link the same plan would promise 0.07 s.
    """
    titan = replace(
        accelerator("t4"),
        memory_bytes=24 * 2**30,
        marketing_memory_bytes=None,
        bandwidth_bytes_per_s=672e9,
        peak_flops={"bf16": 65e12, "fp16": 130.5e12, "fp32": 16.3e12},
        facts={},
    )
    said = {"accelerator": titan, "pp": 2, "isl": 32, "osl": 100, "offloaded_weights": 14.1 / 57.1}
    answer = estimate("opt-30b", **said)
    assert answer.floor.tpot_s == pytest.approx(14.1e9 / titan.host_bytes_per_s, rel=0.06)
    assert answer.floor.tpot_s < answer.tpot_s < 2.37 < 3 * answer.floor.tpot_s


def test_unified_memory_has_no_link_to_its_host_and_an_unknown_link_is_refused():
    here = estimate("llama-3.1-8b", accelerator="m3-max", isl=2048, osl=2)
    assert estimate("llama-3.1-8b", accelerator="m3-max", isl=2048, osl=2, offloaded_weights=0.5).tpot_s == here.tpot_s
    with pytest.raises(InputError, match=r"^tpu-v5p: host_bytes_per_s is not known, and what is offloaded comes over"):
        estimate("llama-3.1-8b", **OFFLOADED | {"accelerator": "tpu-v5p"})
