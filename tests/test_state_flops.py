"""FLOPs of decoders with states and convolutions against a framework's own counter: what is equal, what the rest is.

The rows of `flops_of_states.jsonl.gz` were counted by torch's FlopCounterMode (transformers 5.24, meta, attention
``square``); `own` is what it counts in the mixers themselves, outside their projections. All else is equal to the last
FLOP. Inside, our convention is the recurrence as it runs position by position: one multiply-add for each element of the
state to update it, one to read it out, and one more for the delta rule. That program

* also computes the positions of a convolution's padding: kernel - 1 more in a prefill, one more in a step;
* counts what it writes as a matrix product, and no element-wise work: of Mamba's two parts the readout, in a step of
  the delta rule neither, in a step of lightning attention both;
* in a prefill of Mamba-2, the delta rule and lightning attention works on chunks: other work for the same result.
"""

import gzip
import json
from pathlib import Path

import pytest

from planner import bill, folds
from planner.sources.config_json import read_config

DATA = Path(__file__).parent / "data"


def lines(name):
    return [json.loads(line) for line in gzip.decompress((DATA / name).read_bytes()).splitlines()]


CONFIGS = {row["name"]: {"model_type": row["model_type"], **row["config"]} for row in lines("params.jsonl.gz")}
RUNS = lines("flops_of_states.jsonl.gz")

DELTA = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}
MAMBA2 = {"mamba2", "bamba", "falcon_h1", "nemotron_h", "zamba2"}
CHUNKED = MAMBA2 | DELTA | {"minimax"}

# The module there that holds both kinds of mixer, so that its own part has the softmax attention's core in it.
MIXED = {"nemotron_h", "minimax"}


def counted(run):
    """Our FLOPs by the last word of a product's id."""
    past, new = (256, 1) if run["run"] == "decode" else (0, run["seq"])
    emitted = 1 if run["run"] == "decode" or run["logits"] == "last" else new
    it = bill.Pass(past=past, new=new, emitted=emitted, attention="square")
    parts = read_config(CONFIGS[run["name"]], run["name"]).architecture.parts()
    words: dict[str, int] = {}
    for name, flops in folds.flops(parts, it, batch=run["batch"], by="product").items():
        word = name.split(".")[-1]
        words[word] = words.get(word, 0) + flops
    return words


def inside(run, words):
    """Our products that stand in the mixers themselves there; Mamba's step width is multiplied out by hand."""
    names = ["conv", "dt", "state_recall", "state_update", "state_readout"]
    names += ["scores", "values"] if model_type(run) in MIXED else []
    return {name: words[name] for name in names if name in words}


def model_type(run):
    return CONFIGS[run["name"]]["model_type"]


def label(run):
    return "-".join(str(run[key]) for key in ("name", "run", "batch", "seq", "logits") if key in run)


def kernel(run):
    config = CONFIGS[run["name"]]
    return 3 if model_type(run).startswith("lfm2") else config.get("conv_kernel", 4)


@pytest.mark.parametrize("run", RUNS, ids=label)
def test_all_outside_the_mixers_is_equal(run):
    words = counted(run)
    assert run["total"] - run["own"] == sum(words.values()) - sum(inside(run, words).values())


@pytest.mark.parametrize("run", [run for run in RUNS if run["run"] == "decode"], ids=label)
def test_a_step_is_equal_but_for_padding_and_element_wise_updates(run):
    mine = inside(run, counted(run))
    if model_type(run) in DELTA:
        mine = {"conv": mine["conv"]}
    elif model_type(run) != "minimax":
        mine.pop("state_update", None)
    assert run["own"] == sum(mine.values()) + mine.get("conv", 0)


SEQUENTIAL = [run for run in RUNS if run["run"] != "decode" and model_type(run) not in CHUNKED]


@pytest.mark.parametrize("run", SEQUENTIAL, ids=label)
def test_a_prefill_without_chunks_is_equal_but_for_padding_and_updates(run):
    mine = inside(run, counted(run))
    mine.pop("state_update", None)
    padding = mine["conv"] * (kernel(run) - 1) // run["seq"]
    assert run["own"] == sum(mine.values()) + padding


def test_every_family_with_a_state_is_here():
    assert {model_type(run) for run in RUNS} >= CHUNKED | {
        "mamba",
        "falcon_mamba",
        "jamba",
        "recurrent_gemma",
        "lfm2_moe",
    }
