"""Questions that people asked in public, each answered by one documented call and held to the right answer.

`tests/data/user_questions.jsonl` has every question whose answer is a figure, with the thread that it comes from. Rows
with `left_out` say why they have no call here; figures that need an engine's own allocation belong there.
"""

import json
from pathlib import Path

import pytest

import planner
from planner import formulas, load
from planner.memory import fewest_accelerators
from planner.plan import make_plan
from planner.storage import find

GIB, GB = 2**30, 10**9

ROWS = [json.loads(line) for line in (Path(__file__).parent / "data/user_questions.jsonl").read_text().splitlines()]


def cache(model, lengths, **how):
    return planner.cache_bytes(load(model), lengths, **how)


def weights(model, format=None):
    return planner.weight_bytes(load(model), format)


def rank_bytes(term, model, **how):
    """Bytes of one term on the worst rank."""
    return next(rung.bytes for rung in planner.fit(model, **how).rungs if rung.term == term)


def fewest(model, **how):
    return fewest_accelerators(make_plan(model, **how)).accelerators


def kv_heads_ratio(model, many, few):
    """How much more cache a decoder keeps with so many key-value heads than with so few."""
    frame = planner.sweep(model, context=4096, n_kv_heads=[many, few])
    return frame["cache_bytes"][0] / frame["cache_bytes"][1]


def without_windows(model):
    return planner.edit(load(model), {"layers[0].mixer.window": None})


ANSWERS = {
    "uq002": lambda: cache("qwen2.5-7b", 3072) / GIB,
    "uq003": lambda: cache("qwen3-32b", 1),
    "uq007": lambda: kv_heads_ratio("llama-3-8b", 32, 8),
    "uq008": lambda: kv_heads_ratio("llama-2-70b", 64, 8),
    "uq009": lambda: cache("llama-3-70b", 32_768) / GIB,
    "uq011": lambda: cache("gemma-3-27b", 131_072) / GIB,
    "uq015": lambda: cache("deepseek-v3", 65_536) / GIB,
    "uq016": lambda: cache("deepseek-v3", 1) / load("deepseek-v3").n_layers / 2,
    "uq017": lambda: rank_bytes("kv cache", "deepseek-v3", tp=8) / rank_bytes("kv cache", "deepseek-v3", tp=1),
    "uq022": lambda: planner.fit("deepseek-r1", accelerator="h100-sxm", tp=8, pp=2, context=32_768).most_sequences,
    "uq024": lambda: rank_bytes("kv cache", "qwen3-32b") / rank_bytes("kv cache", "qwen3-32b", tp=4),
    "uq031": lambda: cache("llama-3.1-70b", 22_096) / GIB,
    "uq038": lambda: fewest("llama-3.1-70b", accelerator="h100-sxm", context=131_072),
    "uq040": lambda: 2 * rank_bytes("weights", "llama-3.1-70b", tp=8) / GIB,
    "uq042": lambda: weights("mistral-7b-v0.1", "awq-g128") / GB,
    "uq045": lambda: cache("llama-7b", 132_608),
    "uq052": lambda: weights("llama-3.1-70b") / GIB,
    "uq053": lambda: cache("falcon-7b", 1),
    "uq054": lambda: cache("llama-3-8b", 1),
    "uq059": lambda: cache("gpt-oss-120b", 1),
    "uq060": lambda: planner.cache_bytes(without_windows("gpt-oss-20b"), 8192, batch=32) / GIB,
    "uq069": lambda: cache("qwen3-0.6b", 4096) / cache("qwen3-0.6b", 4096, kv="fp8"),
    "uq074": lambda: cache("qwen2.5-7b", 262_144, kv="q8_0") / GIB,
    "uq084": lambda: 1 / find("int4").payload_bytes((4096, 4096)) * 4096 * 4096,
    "uq086": lambda: weights("llama-2-7b", "fp16") / GB,
    "uq090": lambda: formulas["logits_bytes"](32, 384, 32_000, 4) / GB,
    "uq091": lambda: weights("deepseek-r1", "bf16") / GB,
    "uq092": lambda: 8 * rank_bytes("weights", "deepseek-r1", tp=8) / GIB,
    "uq095": lambda: fewest("qwen3-235b-a22b", weights="fp8", accelerator="a100-80gb-sxm"),
    "uq096": lambda: weights("deepseek-r1", "q4_k_m") / GB,
    "uq101": lambda: cache("mistral-small-24b", 1),
    "uq104": lambda: rank_bytes("logits", "gemma-3-4b", sequences=1024) / GIB,
    "uq112": lambda: formulas["logits_bytes"](1, 131_072, 152_064, 4) / GIB,
    "uq113": lambda: formulas["logits_bytes"](1, 1, 262_144, 4),
    "uq132": lambda: cache("llama-3-70b", 8192) / GIB,
    "uq139": lambda: planner.flops(load("llama-3.3-70b"), by="component")["attention_core"] / 80,
    "uq158": lambda: cache("llama-3-70b", 1),
    "uq160": lambda: weights("llama-3-70b", "q4_k_m") / GB,
    "uq161": lambda: planner.weight_bytes(planner.edit(load("mha"), stated_parameters=70_000_000_000)) / GIB,
    "uq162": lambda: cache("gemma-3-27b", 131_072) / GIB,
}
"""Question -> the call that answers it, in the unit of the row."""


@pytest.mark.parametrize("row", [row for row in ROWS if row["id"] in ANSWERS], ids=lambda row: row["id"])
def test_the_right_answer(row):
    assert ANSWERS[row["id"]]() == pytest.approx(row["value"], rel=row["rel_tol"], abs=0)


def test_every_question_is_answered_or_has_a_reason():
    left_out = {row["id"] for row in ROWS if row.get("left_out")}
    assert left_out | ANSWERS.keys() == {row["id"] for row in ROWS}
    assert not left_out & ANSWERS.keys()


def test_more_of_the_same_questions():
    """The threads give further figures beside the one that was asked for."""
    assert [cache(m, s) / GIB for m, s in (("qwen3-0.6b", 40_960), ("deepseek-v3", 163_840), ("kimi-k2", 262_144))] == [
        pytest.approx(4.38, abs=0.005),
        pytest.approx(10.72, abs=0.005),
        pytest.approx(17.16, abs=0.005),
    ]
    assert cache("gpt-oss-20b", 8192, batch=32) / GIB == pytest.approx(6.09, abs=0.005)
    assert fewest("llama-3.1-405b", accelerator="h100-sxm", context=131_072) == 16
    answer = planner.fit("deepseek-r1", accelerator="h100-sxm", tp=8, pp=2, context=16_384)
    assert answer.most_sequences == pytest.approx(58, rel=0.1)
