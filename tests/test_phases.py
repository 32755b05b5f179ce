"""Chunks in a pipeline against the schedule itself, walked through; a table of plans against each of its rows."""

from dataclasses import replace

import numpy as np
import pytest

from planner import flops, load
from planner.arithmetic import evaluate, word
from planner.columns import compile_columns
from planner.phases import runs, timings
from planner.plan import make_plan
from planner.speed import estimate
from planner.timing import Rates

LAYOUTS = [
    ("llama-3.1-70b", {"accelerator": "h100-sxm", "pp": 8}),
    ("llama-3.1-70b", {"accelerator": "h100-sxm", "tp": 4, "pp": 2}),
    ("llama-3.1-8b", {"accelerator": "h100-sxm", "pp": 2, "stage_layers": (20, 12)}),
    ("llama-3.1-8b", {"accelerator": "h100-sxm", "pp": 3, "stage_layers": (6, 20, 6)}),
    ("gemma-3-12b", {"accelerator": "h100-sxm", "pp": 5}),
    ("deepseek-v3", {"accelerator": "h200", "tp": 8, "pp": 4}),
]


def scheduled(name, isl, chunk, time, **said):
    """A stage takes a chunk as soon as it has done with the one before and the stage before it has done with this one.

    Each chunk is a prompt of its own behind a cached prefix; all but the last give no logits.
    """
    done = [0.0] * said["pp"]
    for past in range(0, isl, chunk):
        end = min(past + chunk, isl)
        stages = runs(make_plan(name, isl=end, cached_prefix=past, osl=2, **said)).prefill
        at = 0.0
        for stage, ((_, choices),) in enumerate(stages):
            silent = (replace(run, batch=replace(run.batch, emitted=int(end == isl))) for run in choices)
            at = done[stage] = max(at, done[stage]) + min(map(time, silent))
    return done[-1]


@pytest.mark.parametrize(("name", "said"), LAYOUTS)
@pytest.mark.parametrize(("isl", "chunk"), [(8192, 2048), (8200, 2048), (2049, 2048), (20_000, 1024), (1000, 2048)])
def test_chunks_follow_one_another_through_the_stages(name, said, isl, chunk):
    floor, answer = timings(make_plan(name, isl=isl, chunk=chunk, osl=2, **said))
    assert answer.ttft_s == pytest.approx(scheduled(name, isl, chunk, lambda run: run.seconds, **said), rel=0.04)
    assert floor.ttft_s <= 1.005 * scheduled(name, isl, chunk, lambda run: run.floor_s, **said)
    assert floor.ttft_s <= answer.ttft_s


@pytest.mark.parametrize(
    ("name", "weights", "device", "cards", "tok_s"),
    [
        ("llama-3-8b", "fp16", "rtx-3090", 4, 5713),
        ("llama-3-8b", "fp16", "rtx-3090", 6, 5953),
        ("llama-3-70b", "q4_k_m", "rtx-3090", 6, 739),
        ("llama-3-70b", "fp16", "rtx-4090", 8, 1890),
    ],
)
def test_layers_split_over_cards_read_a_prompt_as_measured(name, weights, device, cards, tok_s):
    """1,024 tokens in two batches of 512 by llama.cpp: XiongjieDai/GPU-Benchmarks-on-LLM-Inference, README.md."""
    split = {"accelerator": device, "pp": cards, "engine": "llama.cpp", "weights": weights}
    floor, answer = timings(make_plan(name, isl=1024, osl=2, chunk=512, **split))
    assert floor.ttft_s < 1024 / tok_s
    assert answer.ttft_s == pytest.approx(1024 / tok_s, rel=0.35)


def test_equal_chunks_on_equal_stages_take_as_many_times_as_there_are_chunks_and_stages_less_one():
    """Without what differs between stages, 8 chunks on 4 of them take 8 + 4 - 1 times (GPipe, section 2.3)."""
    said = {"accelerator": "h100-sxm", "isl": 8 * 16, "osl": 2, "pp": 4, "collective_latency_s": 0}
    fixed = make_plan("llama-3.1-8b", chunk=16, seconds_per_layer=1.0, **said)  # a second for each of 8 layers
    assert timings(fixed)[1].ttft_s == pytest.approx((8 + 4 - 1) * 8, rel=0.01)
    assert timings(fixed.changed(chunk=None))[1].ttft_s == pytest.approx(4 * 8, rel=0.01)


def test_the_table_of_a_pipelined_prompt_adds_up():
    said = {"accelerator": "h100-sxm", "pp": 4, "isl": 8192, "osl": 2, "chunk": 1024}
    answer = estimate("llama-3.1-8b", **said)
    shares = answer.shares("prefill")
    assert shares["overlap"] < 0
    assert sum(shares.values()) == pytest.approx(answer.ttft_s)
    assert estimate("llama-3.1-8b", **said | {"pp": 1, "tp": 4}).shares("prefill")["overlap"] == 0
    assert answer.prefill_s < answer.ttft_s < 4 * answer.prefill_s


@pytest.mark.parametrize(
    ("said", "together"),
    [
        ({}, 8),  # 8 x 1,000 of 8,192 tokens
        ({"prefill_tokens": 2500}, 2),
        ({"prefill_tokens": 0}, 1),
        ({"chunk": 3000}, 3),
        ({"chunk": 1000}, 1),
        ({"isl": 1500, "cached_prefix": 1400}, 24),  # all of a replica
        ({"isl": 9000}, 1),
        ({"isl": 9000, "tp": 4, "attention_dp": 4}, 4),  # a prompt for each group of mixers
        ({"isl": None, "sequences": None, "lengths": (1000,) * 24 + (9000,) * 24, "dp": 1}, 2 / (1 / 8 + 1)),
    ],
)
def test_a_pass_reads_as_many_prompts_as_it_has_room_for(said, together):
    said = {"isl": 1000, "osl": 2, "sequences": 48, "dp": 2} | said
    plan = make_plan("llama-3.1-8b", accelerator="h100-sxm", seconds_per_layer=1.0, **said)
    answer = timings(plan)[1]
    assert answer.ttft_s == pytest.approx(32, rel=0.02)
    assert answer.prefill_s == pytest.approx(32 / together, rel=0.02)
    assert answer.burst_ttft_s == pytest.approx(answer.sequences * 32 / together, rel=0.02)


def test_prompts_that_are_read_together_share_the_traffic_and_add_their_arithmetic():
    said = {"accelerator": "h100-sxm", "isl": 64, "osl": 2, "collective_latency_s": 0, "seconds_per_layer": 0}
    one, two = (timings(make_plan("llama-3.1-8b", sequences=n, **said))[1] for n in (1, 2))
    assert one.prefill_s == one.ttft_s == two.ttft_s
    assert 2 * two.prefill_s == pytest.approx(one.ttft_s, rel=0.02)  # 128 tokens are below the ridge
    many = timings(make_plan("llama-3.1-8b", sequences=128, **said))[1]
    assert many.prefill_s == pytest.approx(flops(load("llama-3.1-8b"), new=64) / (0.7 * 989.4e12), rel=0.01)


def test_ragged_prompts_are_pipelined_each_on_its_own():
    said = {"accelerator": "h100-sxm", "pp": 4, "osl": 2, "chunk": 1024}
    ragged = timings(make_plan("llama-3.1-8b", lengths=(8192, 2000, 2000), **said))[1]
    long, short = (timings(make_plan("llama-3.1-8b", isl=n, **said))[1].ttft_s for n in (8192, 2000))
    assert ragged.ttft_s == pytest.approx((long + 2 * short) / 3)


def test_words_say_the_same():
    plan = make_plan("llama-3.1-8b", accelerator="h100-sxm", pp=4, chunk=1024, osl=20)
    recorded = timings(plan.changed(isl=word("isl")))
    for isl in (500, 1024, 1025, 9000):
        for tree, stated in zip(recorded, timings(plan.changed(isl=isl)), strict=True):
            assert float(evaluate(tree.ttft_s, {"isl": isl})) == pytest.approx(stated.ttft_s, rel=1e-12)


WORDS = {"isl": (1, 20_000), "osl": (1, 1500), "sequences": (1, 500)}


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("llama-3.1-8b", {"tp": 2, "dp": 3}),
        ("gemma-3-12b", {"chunk": 700}),
        ("deepseek-v3", {"tp": 8, "attention_dp": 8, "ep": 8}),
        ("mixtral-8x7b", {"pp": 3}),
        ("mixtral-8x7b", {"pp": 3, "chunk": 700}),
        ("gemma-3-12b", {"tp": 2, "offloaded_weights": 0.1, "offloaded_cache": 0.4}),
        ("llama-3.1-8b", {"tp": 2, "accelerator": "mi300x"}),
    ],
)
def test_a_table_of_plans_is_each_of_them(name, keywords):
    base = make_plan(name, **{"accelerator": "h200"} | keywords)
    fractions = {"compute_fraction": (0.2, 1), "bandwidth_fraction": (0.2, 1)}
    plan = base.changed(**{name: word(name) for name in (*WORDS, *fractions)})
    peak = replace(
        Rates.peak(plan),
        s_per_byte=1 / word("memory_bytes_per_s"),
        s_per_flop=dict.fromkeys(base.device.peak_flops, 1 / word("flops_per_s")),
    )

    def figures(found):
        floor, answer = found
        wanted = ("ttft_s", "tpot_s", "output_tok_s", "decode_s")
        return {f"{side}.{w}": getattr(t, w) for side, t in (("floor", floor), ("estimate", answer)) for w in wanted}

    random, rows = np.random.default_rng(7), 6
    frame = {name: random.integers(low, high, rows) for name, (low, high) in WORDS.items()}
    frame |= {name: random.uniform(low, high, rows) for name, (low, high) in fractions.items()}
    frame |= {"memory_bytes_per_s": random.uniform(1e12, 8e12, rows), "flops_per_s": random.uniform(1e14, 3e15, rows)}
    columns = compile_columns(figures(timings(plan, peak)))(frame)
    for row in range(rows):
        values = {name: column[row].item() for name, column in frame.items()}
        s_per_byte, s_per_flop = 1 / values.pop("memory_bytes_per_s"), 1 / values.pop("flops_per_s")
        one = base.changed(**values)
        rates = replace(
            Rates.peak(one), s_per_byte=s_per_byte, s_per_flop=dict.fromkeys(base.device.peak_flops, s_per_flop)
        )
        for figure, value in figures(timings(one, rates)).items():
            assert columns[figure][row] == pytest.approx(value, rel=1e-9), (figure, values)
