"""Floors against hand calculation and other people's figures, identities of floor and estimate, and what is shown."""

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.catalogue import accelerator
from planner.errors import InputError, UsageError
from planner.phases import timings
from planner.plan import make_plan
from planner.speed import UNITS, estimate
from planner.timing import compute_fraction

ONE_H100 = {"accelerator": "h100-sxm", "isl": 2048, "osl": 2}


@pytest.mark.parametrize(
    ("conventions", "prefill_ms"),
    [({}, 30.0), ({"attention": "square"}, 31.1), ({"attention": "square", "logits": "all"}, 33.3)],
)
def test_the_floor_of_the_case_that_everybody_has(conventions, prefill_ms):
    """Llama-3.1-8B in bf16 on one H100, 2,048 tokens. The last one is a second program's speed-of-light."""
    floor = estimate("llama-3.1-8b", **ONE_H100, **conventions).floor
    assert round(1e3 * floor.ttft_s, 1) == prefill_ms
    assert round(1e3 * floor.tpot_s, 2) == 4.56


def test_the_estimate_adds_up_from_its_fractions():
    answer = estimate("llama-3.1-8b", **ONE_H100)
    flops = planner.flops(planner.load("llama-3.1-8b"), new=2048)
    head = 2 * 128256 * 4096  # bound by its bytes: one position
    compute = (flops - head) / (0.7 * 989.4e12)
    assert answer.ttft_s == pytest.approx(compute + head / (0.92 * 3.35e12) + 32 * 65e-6, rel=2e-4)
    moved = answer.products.query("phase == 'decode'").bytes.sum()
    assert answer.tpot_s == pytest.approx(moved / (0.92 * 3.35e12) + 32 * 65e-6, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("llama-3.1-8b", {"count": 1, "sequences": 64}),
        ("llama-3.1-70b", {"count": 8, "sequences": 64}),
        ("llama-3.1-405b", {"tp": 8, "pp": 2, "weights": "fp8", "sequences": 100}),
        ("qwen3-235b-a22b", {"count": 8, "ep": 8, "tp": 8}),
        ("deepseek-v3", {"count": 8, "weights": "fp8-block128", "sequences": 256}),
        ("deepseek-v3", {"tp": 8, "attention_dp": 8, "ep": 8, "chunk": 1000, "cached_prefix": 7}),
        ("gpt-oss-120b", {"weights": "mxfp4", "sequences": 9}),
        ("gemma-3-27b", {"chunk": 512, "kv": "fp8"}),
        ("mixtral-8x7b", {"tp": 2, "dp": 4, "sequences": 40}),
        ("falcon-h1-7b", {"isl": 10}),
        ("llama-4-scout", {"tp": 8, "lengths": (9000, 12, 12, 500), "isl": None}),
    ],
)
def test_real_plans_have_a_floor_below_their_estimate_and_a_table_that_adds_up(name, keywords):
    answer = estimate(name, **{"accelerator": "h200", "isl": 3000, "osl": 100, **keywords})
    assert 0 < answer.floor.ttft_s <= answer.ttft_s < 60
    assert 0 < answer.floor.tpot_s <= answer.tpot_s < 1
    assert 0 < answer.mfu_prefill < 1
    assert 0 < answer.mbu_decode < 1
    products, collectives = answer.products, answer.collectives
    for phase, seconds in (("prefill", answer.ttft_s), ("decode", answer.tpot_s)):
        spent = answer.shares(phase)
        listed = products[products.phase == phase].seconds.sum()
        assert listed == pytest.approx(spent["compute"] + spent["bandwidth"])
        assert collectives[collectives.phase == phase].seconds.sum() == pytest.approx(spent["link"])
        groups = min(answer.plan.layout.pp, answer.sequences)
        if phase == "prefill" or groups == 1:
            assert sum(spent.values()) == pytest.approx(seconds)
    text = f"{answer}{answer._repr_html_()}{answer.explain()}"
    assert name in text
    assert "estimate" in text
    for twin in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):  # noqa: S301
        assert repr(twin) == repr(answer)
    assert answer.to_frame().figure.tolist() == list(UNITS)


MODELS = ["llama-3.1-8b", "gemma-3-12b", "mixtral-8x7b", "deepseek-v3"]


def near(device="h200", **figures):
    known = accelerator(device)
    return replace(known, **{name: getattr(known, name) * factor for name, factor in figures.items()}, facts={})


@given(
    name=st.sampled_from(MODELS),
    isl=st.integers(1, 20_000),
    osl=st.integers(1, 3000),
    sequences=st.integers(1, 600),
    tp=st.sampled_from([1, 4]),
    chunk=st.sampled_from([None, 512, 5000]),
    fractions=st.tuples(*3 * [st.floats(0.05, 1)]),
    shares=st.tuples(*2 * [st.sampled_from([0.0, 0.01, 0.5, 1.0])]),
)
@settings(max_examples=40)
def test_no_estimate_is_below_its_floor(name, isl, osl, sequences, tp, chunk, fractions, shares):
    names = ("compute_fraction", "bandwidth_fraction", "link_fraction")
    said = dict(zip(names, fractions, strict=True)) | {"seconds_per_layer": 0, "collective_latency_s": 0}
    said |= dict(zip(("offloaded_weights", "offloaded_cache"), shares, strict=True))
    plan = make_plan(
        name, accelerator="h200", tp=tp, isl=isl, osl=osl, sequences=sequences, chunk=chunk, weights="fp8", **said
    )
    floor, answer = timings(plan)
    for figure in ("ttft_s", "prefill_s", "burst_ttft_s", "tpot_s", "cycle_s"):
        assert getattr(floor, figure) <= getattr(answer, figure) * (1 + 1e-12)
    assert floor.output_tok_s >= answer.output_tok_s * (1 - 1e-12)


@given(
    name=st.sampled_from(MODELS),
    isl=st.integers(1, 20_000),
    sequences=st.integers(1, 300),
    faster=st.floats(1, 1.5),
    longer=st.integers(0, 5000),
    share=st.sampled_from([0.0, 0.01, 0.5]),
)
@settings(max_examples=25)
def test_faster_devices_take_no_longer_and_longer_contexts_no_less(name, isl, sequences, faster, longer, share):
    held = {"offloaded_weights": share, "offloaded_cache": share}

    def at(device, isl, **more):
        said = {"tp": 2, "isl": isl, "osl": 20, "sequences": sequences}
        return timings(make_plan(name, accelerator=device, **said, **held | more))

    slack = 1 + 1e-12  # products of floats
    for one, other in zip(at(near(), isl), at(near(bandwidth_bytes_per_s=faster), isl), strict=True):
        assert other.ttft_s <= one.ttft_s * slack
        assert other.tpot_s <= one.tpot_s * slack
    for one, other in zip(at(near(), isl), at(near(host_bytes_per_s=faster), isl), strict=True):
        assert other.ttft_s <= one.ttft_s * slack
        assert other.tpot_s <= one.tpot_s * slack
    for figure in ("ttft_s", "tpot_s"):
        less = at(near(), isl, offloaded_weights=share / 2, offloaded_cache=share / 2)[1]
        assert getattr(less, figure) <= getattr(at(near(), isl)[1], figure) * slack
    peaks = {format: faster * peak for format, peak in near().peak_flops.items()}
    for one, other in zip(at(near(), isl), at(replace(near(), peak_flops=peaks), isl), strict=True):
        assert other.ttft_s <= one.ttft_s * slack
        assert other.tpot_s <= one.tpot_s * slack
    for one, other in zip(at(near(), isl), at(near(), isl + longer), strict=True):
        assert one.ttft_s <= other.ttft_s * slack
        assert one.tpot_s <= other.tpot_s * slack


@pytest.mark.parametrize("name", MODELS)
def test_replicas_do_not_change_a_request(name):
    alone = estimate(name, accelerator="h200", tp=4, isl=3000, osl=50, sequences=10)
    eight = estimate(name, accelerator="h200", tp=4, dp=8, isl=3000, osl=50, sequences=80)
    for figure in ("ttft_s", "tpot_s", "request_s", "output_tok_s_per_accelerator"):
        assert getattr(alone, figure) == getattr(eight, figure)
    assert eight.output_tok_s == pytest.approx(8 * alone.output_tok_s)


def test_one_rank_is_the_decoder_itself():
    model, past = planner.load("llama-3.1-8b"), 2048
    step = estimate(model, **ONE_H100).products.query("phase == 'decode'")
    weights = planner.weight_bytes(model) - 2 * 128256 * 4096 + 2 * 4096  # a row of the embedding
    assert step.bytes.sum() == weights + planner.cache_bytes(model, past + 1) + planner.cache_bytes(model, 1)
    assert step.flops.sum() == planner.flops(model, past=past)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-12b", "mixtral-8x7b", "deepseek-v3"])
def test_the_mean_step_is_the_mean_of_the_steps(name):
    said = {"accelerator": "h200", "tp": 4, "sequences": 50}
    mean = estimate(name, isl=900, osl=201, **said)
    steps = [estimate(name, isl=900 + i, osl=2, **said).tpot_s for i in range(200)]
    assert mean.tpot_s == pytest.approx(sum(steps) / 200, rel=1e-9)


def test_chunks_take_as_long_as_passes_one_after_another():
    said = {"accelerator": "h100-sxm", "osl": 2}
    chunked = estimate("llama-3.1-8b", isl=5000, chunk=2048, **said).ttft_s
    head = 2 * 128256 * 4096 / (0.92 * 3.35e12)  # the first two passes give no logits
    parts = [estimate("llama-3.1-8b", isl=end, cached_prefix=past, **said).ttft_s for past, end in
             ((0, 2048), (2048, 4096), (4096, 5000))]  # fmt: skip
    assert chunked == pytest.approx(sum(parts) - 2 * head, rel=1e-6)
    assert chunked > estimate("llama-3.1-8b", isl=5000, **said).ttft_s


def test_a_cached_prefix_saves_its_products_and_is_still_read():
    said = {"accelerator": "h100-sxm", "isl": 8192, "osl": 2}
    warm = estimate("llama-3.1-8b", cached_prefix=8000, **said).products.query("phase == 'prefill'")
    model = planner.load("llama-3.1-8b")
    assert warm.flops.sum() == planner.flops(model, past=8000, new=192)
    assert warm[warm.component == "attention_core"].bytes.sum() == 131072 * (8192 + 192)


def test_latent_attention_takes_the_faster_form_where_something_is_cached():
    said = {"accelerator": "h200", "tp": 8, "isl": 20_000, "osl": 2, "cached_prefix": 10_000}
    found = {mla: estimate("deepseek-v3", mla=mla, **said).ttft_s for mla in ("auto", "absorbed", "reexpanded")}
    assert found["auto"] == min(found["absorbed"], found["reexpanded"]) == found["reexpanded"]
    short = {mla: estimate("deepseek-v3", mla=mla, **said | {"cached_prefix": 19_990}).ttft_s for mla in found}
    assert short["auto"] == short["absorbed"] < short["reexpanded"]


def test_a_pipeline_takes_all_stages_for_a_token_and_shares_the_sequences_out():
    said = {"accelerator": "h100-sxm", "isl": 1000, "osl": 100, "seconds_per_layer": 0, "collective_latency_s": 0}
    alone = estimate("llama-3.1-8b", sequences=1, **said)
    piped = estimate("llama-3.1-8b", sequences=1, pp=4, **said)
    assert piped.tpot_s == pytest.approx(alone.tpot_s, rel=1e-3)  # the sends between stages apart
    assert piped.prefill_s == pytest.approx(piped.ttft_s / 4, rel=0.05)
    busy = estimate("llama-3.1-8b", sequences=400, pp=4, **said)
    quarter = estimate("llama-3.1-8b", sequences=100, **said)
    assert quarter.tpot_s <= busy.tpot_s < 1.15 * quarter.tpot_s  # the slowest stage has the output matrix
    by_stage = busy.products.query("phase == 'decode'").groupby("rank").seconds.sum()
    assert busy.tpot_s == pytest.approx(4 * by_stage.max(), rel=1e-2)  # which the others wait for


def test_ragged_prompts_are_summed():
    said = {"accelerator": "h100-sxm", "osl": 2}
    ragged = estimate("llama-3.1-8b", lengths=(4000, 1000, 1000), **said)
    flops = [planner.flops(planner.load("llama-3.1-8b"), past=n) for n in (4000, 1000, 1000)]
    assert ragged.products.query("phase == 'decode'").flops.sum() == pytest.approx(sum(flops))
    long, short = (estimate("llama-3.1-8b", isl=n, **said) for n in (4000, 1000))
    assert ragged.ttft_s == pytest.approx((long.ttft_s + 2 * short.ttft_s) / 3)
    equal = estimate("llama-3.1-8b", lengths=(700, 700), **said)
    assert equal.tpot_s == estimate("llama-3.1-8b", isl=700, sequences=2, **said).tpot_s


def test_rates_follow_from_the_phases():
    answer = estimate("llama-3.1-8b", accelerator="h100-sxm", tp=2, dp=2, isl=1000, osl=101, sequences=20)
    assert (answer.sequences, answer.accelerators) == (10, 4)
    round_s = 10 * answer.prefill_s + 100 * answer.tpot_s
    assert answer.requests_per_s == pytest.approx(10 / round_s)
    assert answer.output_tok_s == pytest.approx(2 * 10 * 101 / round_s)
    assert answer.output_tok_s_per_accelerator == pytest.approx(answer.output_tok_s / 4)
    assert answer.input_tok_s == pytest.approx(answer.output_tok_s * 1000 / 101)
    assert answer.total_tok_s == pytest.approx(answer.output_tok_s + answer.input_tok_s)
    assert answer.output_tok_s_per_user == 1 / answer.tpot_s
    assert answer.burst_ttft_s == pytest.approx(10 * answer.prefill_s)
    assert answer.joules_per_output_token == pytest.approx(4 * 700 / answer.output_tok_s)


def test_rates_of_uneven_replicas_agree():
    """Nine sequences on eight replicas give 4.5 times what the busiest gives, and all eight are there for it."""
    answer = estimate("llama-3.1-8b", accelerator="h100-sxm", dp=8, isl=1000, osl=101, sequences=9)
    assert answer.output_tok_s == pytest.approx(4.5 * answer.output_tok_s_per_replica)
    assert answer.output_tok_s_per_accelerator == pytest.approx(answer.output_tok_s / 8)
    assert answer.joules_per_output_token == pytest.approx(8 * 700 / answer.output_tok_s)
    assert answer.notes == ()
    idle = estimate("llama-3.1-8b", accelerator="h100-sxm", dp=8, isl=1000, osl=101, sequences=3)
    assert idle.notes == ("5 of 8 replicas have no sequence",)


@pytest.mark.parametrize(
    ("name", "device", "tp", "weights", "sequences", "measured"),
    [
        ("gpt-j-6b", "h100-sxm", 1, "fp8-tensor", 1184, 34_955),
        ("llama-3.1-405b", "rtx-pro-6000-server", 8, "nvfp4", 2048, 4452),
    ],
)
def test_no_measurement_of_short_requests_beats_the_floor(name, device, tp, weights, sequences, measured):
    """128 tokens in and out, tok/s of NVIDIA/TensorRT-LLM, docs/source/performance/perf-overview.md: v0.10.0 and v1.

    The batch is not stated: the memory has room for so many. Weights read for each prompt would be in the way.
    """
    said = {"accelerator": device, "tp": tp, "weights": weights, "sequences": sequences}
    floor = estimate(name, isl=128, osl=128, kv="fp8", engine="tensorrt-llm", **said).floor
    assert measured < floor.output_tok_s < 2.1 * measured


def test_a_request_of_one_token_has_no_steps():
    answer = estimate("llama-3.1-8b", accelerator="h100-sxm", isl=2048, osl=1)
    assert answer.decode_s == 0
    assert answer.request_s == answer.ttft_s
    assert answer.tpot_s == estimate("llama-3.1-8b", **ONE_H100).tpot_s


def test_the_ridge_is_where_arithmetic_first_takes_as_long():
    said = {"accelerator": "h100-sxm", "isl": 10, "osl": 2}
    ridge = estimate("llama-3.1-8b", **said).ridge_batch

    def compute_over_memory(sequences):
        step = estimate("llama-3.1-8b", sequences=sequences, **said).products.query("phase == 'decode'")
        return step.compute_s.sum() / step.memory_s.sum()

    assert compute_over_memory(ridge - 1) < 1 <= compute_over_memory(ridge)
    by_hand = (0.7 * 989.4e12) / (0.92 * 3.35e12)  # FLOP for each byte, and 2 of each for a weight
    assert by_hand < ridge < 1.04 * by_hand  # ten cached positions of each sequence
    assert estimate("llama-3.1-8b", **said | {"isl": 8192}).ridge_batch is None  # a cache costs more than its products


def test_what_binds_is_named():
    assert estimate("llama-3.1-8b", **ONE_H100).binding_prefill == "compute"
    assert estimate("llama-3.1-8b", **ONE_H100).binding_decode == "bandwidth"
    assert estimate("llama-3.2-1b", **ONE_H100, seconds_per_layer=1e-3).binding_decode == "fixed time"
    assert estimate("llama-3.1-8b", **ONE_H100, tp=8, collective_latency_s=1e-3).binding_decode == "link"


def test_holders_without_a_time_are_named():
    answer = estimate("deepseek-v3", accelerator="h200", tp=8, isl=100, osl=2, mtp=True, draft="llama-3.2-1b")
    assert "draft and mtp take memory in this plan, but no time is counted for them" in answer.notes


def test_what_is_not_known_is_said():
    with pytest.raises(InputError, match=r"l40s: network_bytes_per_s is not known, and 16 of them exchange"):
        estimate("llama-3.1-8b", accelerator="l40s", tp=8, pp=2)
    estimate("llama-3.1-8b", accelerator="l40s")
    with pytest.raises(UsageError, match="names no accelerator"):
        estimate("llama-3.1-8b")
    with pytest.raises(UsageError, match="positions exceed the 2,048 learned ones"):
        estimate("opt-125m", accelerator="h100-sxm", isl=2000, osl=100)
    assert "stated maximum" in " ".join(estimate("llama-3-8b", **ONE_H100 | {"isl": 9000}).notes)
    silent = replace(accelerator("h100-sxm"), power_w=None)
    assert estimate("llama-3.1-8b", **ONE_H100 | {"accelerator": silent}).joules_per_output_token is None


def test_weights_that_are_unpacked_are_noted():
    said = ONE_H100 | {"weights": "fp8"}
    assert estimate("llama-3.1-8b", **said).notes == ()
    answer = estimate("llama-3.1-8b", **said | {"accelerator": "a100-80gb-sxm"})
    assert answer.notes == ("a100-80gb-sxm unpacks fp8 weights and multiplies them in bf16",)
    assert answer.floor.ttft_s == pytest.approx(
        planner.flops(answer.plan.model, new=2048) / accelerator("a100-80gb-sxm").peak("bf16")
    )


def test_what_was_not_said_is_assumed():
    answer = estimate("llama-3.1-8b", **ONE_H100, bandwidth_fraction=0.8)
    assert answer.assumed["compute_fraction"] == 0.7
    assert "bandwidth_fraction" not in answer.assumed
    assert "osl" not in answer.assumed
    assert "0.7: share of the dense peak" in answer.explain()
    assert "isl" not in estimate("llama-3.1-8b", accelerator="h100-sxm", context=2048).assumed
    ragged = estimate("llama-3.1-8b", accelerator="h100-sxm", lengths=(2048, 100)).assumed
    assert "osl" in ragged
    assert not {"isl", "sequences"} & set(ragged)


def test_roofs_are_those_of_the_formats_that_are_multiplied():
    answer = estimate("llama-3.1-8b", accelerator="h100-sxm", weights="fp8", bandwidth_fraction=0.5, isl=64, osl=2)
    roofs = answer.roofs.set_index("format")
    assert roofs["peak_flops_per_s"].to_dict() == {"bf16": 989.4e12, "fp8": 1978.9e12}
    assert roofs["reached_bytes_per_s"].tolist() == [3.35e12 / 2] * 2
    assert roofs["peak_ridge"]["bf16"] == pytest.approx(989.4 / 3.35)
    reached = {format: answer.plan.assume(compute_fraction(format)) for format in roofs.index}
    for product in answer.products[answer.products["flops"] > 0].to_dict("records"):
        peak = roofs["peak_flops_per_s"][product["format"]]
        assert product["compute_s"] == pytest.approx(product["flops"] / (peak * reached[product["format"]]))
        assert roofs["reached_flops_per_s"][product["format"]] == peak * reached[product["format"]]
