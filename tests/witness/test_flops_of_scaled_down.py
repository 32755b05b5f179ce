"""Metered FLOPs against a framework's own counter on small configs, to the last FLOP.

The rows of `flops_scaled_down.jsonl.gz` were counted by torch's FlopCounterMode (transformers 5.24, eager, on the CPU
and on meta). In our words its convention is attention ``square``, MLA ``reexpanded``, logits ``all``. Where it counts
something else, the reason has a name here, and the difference is computed from it.
"""

from dataclasses import replace

import numpy as np
import pytest

from planner import folds
from planner.bill import Pass
from planner.components.dense_attention import DenseAttention
from planner.components.mixture import Mixture
from planner.sources.config_json import read_config
from planner.witness import Meter, Witness, random_weights
from planner.witness.places import stored
from tests.witness.builders import jsonl

ROWS = jsonl("flops_scaled_down.jsonl.gz")
STATES = {row["key"] for row in ROWS if any("own" in run for run in row["runs"])}
RUNS = [(row, run) for row in ROWS for run in row["runs"] if row["key"] not in STATES]


def label(value):
    if "key" in value:
        return value["key"]
    return f"{value['run']}-{value['batch']}x{value['new']}" + ("-grouped" if "experts" in value else "")


# The row's config leaves out what the class then sets by itself.
ALSO = {"mimo_v2_flash": {"swa_num_key_value_heads": 2}}


def contract(row):
    return read_config({**row["config"], **ALSO.get(row["key"], {})}, row["key"]).architecture


def metered(model, run):
    """FLOPs by product of the passes that the row was counted on."""
    witness, meter = Witness(model, random_weights(model)), Meter()
    for row in range(run["batch"]):
        tokens = np.random.default_rng(row).integers(0, model.vocab_size, run["past"] + run["new"])
        cache = witness.cache()
        if run["past"]:
            witness.forward(tokens[: run["past"]], cache, emitted=0)
        witness.forward(tokens[run["past"] :], cache, mla="reexpanded", meter=meter)
    return meter.flops("square")


def formula(model, run):
    step = Pass(past=run["past"], new=run["new"], emitted=run["new"], attention="square", mla="reexpanded")
    return {key: n for key, n in folds.flops(model.parts(), step, batch=run["batch"], by="product").items() if n}


def all_layers(model, change):
    return replace(model, layers=tuple(map(change, model.layers)))


def without_windows(layer):
    if not isinstance(layer.mixer, DenseAttention):
        return layer
    return replace(layer, mixer=replace(layer.mixer, window=None))


def with_all_experts(layer):
    if not isinstance(layer.feed_forward, Mixture):
        return layer
    return replace(layer, feed_forward=replace(layer.feed_forward, top_k=layer.feed_forward.n_experts))


# What that program does instead: it keeps the whole cache of GPT-Neo's local layers, and sends every token to every
# expert of Llama 4 (the scores of all but one are zero).
INSTEAD = {"gpt_neo": without_windows, "llama4_text": with_all_experts}


@pytest.mark.parametrize(("row", "run"), RUNS, ids=label)
def test_flops_are_exact(row, run):
    model = contract(row)
    assert row["params"] == sum(t.size for t in stored(model).values() if t.counts == "parameter")
    found = metered(model, run)
    assert found == formula(model, run)
    expected = sum(formula(all_layers(model, INSTEAD.get(row["key"], lambda layer: layer)), run).values())
    if run.get("experts") == "grouped_mm":  # that operator counts 0
        expected -= sum(flops for name, flops in found.items() if ".experts." in name)
    assert run["total"] == expected


# Decoders with states: inside their mixers that program works on chunks and counts no element-wise product, as
# `test_state_flops` says. All else is equal to the last FLOP.
INSIDE = {"conv", "dt", "state_recall", "state_update", "state_readout"}
STATE_RUNS = [(row, run) for row in ROWS for run in row["runs"] if "own" in run]


@pytest.mark.parametrize(("row", "run"), STATE_RUNS, ids=label)
def test_all_outside_the_mixers_of_states_is_equal(row, run):
    inside = INSIDE | ({"scores", "values"} if row["key"] in ("minimax", "nemotron_h") else set())
    by = formula(contract(row), run)
    expected = sum(flops for name, flops in by.items() if name.rpartition(".")[2] not in inside)
    if run.get("experts") == "grouped_mm":
        expected -= sum(flops for name, flops in by.items() if ".experts." in name)
    assert run["total"] - run["own"] == expected
