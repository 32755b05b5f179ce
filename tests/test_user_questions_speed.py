"""What users of other planners asked about speed and FLOPs, each answered by one call, or by a quotient of two."""

import json
from pathlib import Path

import pytest

import planner

DATA = Path(__file__).parent / "data" / "user_questions_speed.jsonl"


def core_flops(model, **load):
    return planner.flops(planner.load(model), by="component", **load)["attention_core"]


def key_value_bytes(model):
    found = planner.estimate(model, accelerator="h200", tp=1, isl=4000, osl=2).products
    return found[(found.phase == "decode") & (found.component == "attention_core")].bytes.sum()


def llama_2_70b(n_kv_heads):
    return planner.edit(planner.load("llama-2-70b"), {"layers[*].mixer.n_kv_heads": n_kv_heads})


def on_a100(sequences, isl, osl):
    return planner.estimate(
        "llama-7b", accelerator="a100-80gb-sxm", weights="fp16", sequences=sequences, isl=isl, osl=osl
    )


ANSWERS = {
    "uq008": lambda: key_value_bytes(llama_2_70b(64)) / key_value_bytes(llama_2_70b(8)),
    "uq133": lambda: core_flops("llama-7b", new=16384) / (32 * 4 * 16384**2 * 32 * 128),
    "uq134": lambda: (
        189 * core_flops("llama-7b", new=16384, attention="square") / core_flops("llama-7b", new=16384) / 312
    ),
    "uq136": lambda: core_flops("llama-7b", past=4096 - 512, new=512) / (32 * 4 * 32 * 128),
    "uq138": lambda: (
        (planner.flops(planner.load("gpt2"), new=1) - core_flops("gpt2", new=1))
        / (12 * (4 * 768**2 + 8 * 768**2) + 50257 * 768)
    ),
    "uq139": lambda: (core_flops("llama-3.3-70b", past=5000) - core_flops("llama-3.3-70b", past=4999)) / 80,
    "uq140": lambda: planner.flops(planner.load("llama-7b"), new=100, by="component")["ffn_dense"] / 100 / 32,
    "uq141": lambda: on_a100(256, 128, 128).output_tok_s,
    "uq141b": lambda: on_a100(32, 128, 2048).output_tok_s,
    "uq141c": lambda: on_a100(32, 2048, 128).output_tok_s,
    "uq141d": lambda: on_a100(16, 2048, 2048).output_tok_s,
}
# Not here: uq137 (rates over prefix lengths that the question does not give), uq069, uq075 and uq148 (no figure that a
# plan has), and the questions about memory and cost, which have files of their own.

QUESTIONS = {row["id"]: row for row in map(json.loads, DATA.read_text().splitlines())}


@pytest.mark.parametrize("id", sorted(QUESTIONS | ANSWERS))
def test_what_users_asked(id):
    asked = QUESTIONS[id]
    assert ANSWERS[id]() == pytest.approx(asked["value"], rel=asked["rel_tol"])


@pytest.mark.parametrize(("sequences", "isl", "osl", "measured"), [
    (256, 128, 128, 5353), (32, 128, 2048, 1518), (32, 2048, 128, 547), (16, 2048, 2048, 613),
])  # fmt: skip
def test_no_measurement_beats_the_floor(sequences, isl, osl, measured):
    """The program that the question compares with is above it, which is how a floor is told from a guess."""
    assert measured < on_a100(sequences, isl, osl).floor.output_tok_s
