"""`planner verify` on one preset of every structure; `tests/benchmarks` has all presets, and their time."""

import dataclasses
from math import prod
from typing import get_args

import numpy as np
import pytest

import planner
from planner.contract import Residual
from planner.sources import Checkpoint
from planner.sources.packing import Weight
from planner.sources.presets import names
from planner.spec import Spec, field_names, parts_of
from planner.witness import Witness, random_weights, scaled_down
from planner.witness.places import stored
from planner.witness.report import difference
from tests.witness.builders import attention, decoder, feed_forward, fixture, layer


def structure(part, path=""):
    """What a contract is made of: every kind, flag, choice and part that is left out, but no size."""
    yield path, type(part).__name__
    for name in field_names(type(part)):
        value = getattr(part, name)
        place = f"{path}.{name}"
        inner = list(parts_of(value, place))
        for piece, where in inner:
            yield from structure(piece, where)
        if not inner and (value is None or isinstance(value, (bool, str))) and name not in IGNORED:
            yield place, value


IGNORED = {
    "name",
    "title",
    "label",
    "weights",
    "kv",
    "trained_positions",
    "max_positions",
    "precision",
    "stated_parameters",
}


def one_of_each():
    """The first preset of every structure."""
    found = {}
    for name in names():
        found.setdefault(frozenset(structure(planner.load(name))), name)
    return sorted(found.values())


@pytest.mark.parametrize("name", one_of_each())
def test_a_preset_passes(name):
    report = planner.verify(planner.load(name))
    assert report.passed, report


def test_a_deep_decoder_does_not_make_the_last_digit_a_large_one():
    """Its 80 layers add their outputs to normed inputs; with outputs as large as those, 1e-12 became 1e-3."""
    model = scaled_down(planner.load("minimax-text-01"), every_layer=True).architecture
    weights = {name: array.astype(np.float64) for name, array in random_weights(model).items()}
    before = Witness(model, weights, np.float64).forward(range(12))
    table = weights["embedding.tokens.weight"]
    table *= 1 + 1e-12 * np.random.default_rng(0).standard_normal(table.shape)
    assert difference(Witness(model, weights, np.float64).forward(range(12)), before) < 1e-10


def test_at_full_depth():
    model = planner.load("gemma-2-2b")
    report = planner.verify(model, full=True)
    assert report.passed, report
    assert not [path for path in report.scaled if path.endswith("count")]


def test_a_report_says_what_it_scaled_and_shows_itself():
    report = planner.verify(planner.load("gqa-8"))
    assert report.scaled["layers[0].mixer.n_heads"] == (32, 8)
    assert report.scaled["layers[0].mixer.n_kv_heads"] == (8, 2)
    text = str(report)
    assert "pass  FLOPs of prefill: 870,592  (expected 870,592)" in text
    assert "scaled: layers[0].mixer.n_heads = 32 → 8" in text
    frame = report.to_frame()
    assert list(frame.columns) == ["check", "passed", "measured", "expected"]
    assert len(frame) == len(report.checks)


def header(shapes):
    weights = tuple(Weight(name, tuple(side), "fp32", 4 * prod(side)) for name, side in shapes.items())
    return Checkpoint("here", (), weights)


def test_a_checkpoints_header_is_held_to_the_contract():
    model, weights, *_ = fixture("qwen2_moe")
    shapes = {name: array.shape for name, array in weights.items()}
    report = planner.verify(model, checkpoint=header(shapes))
    assert report.passed
    (line,) = (check for check in report.checks if check.name == "parameters of the checkpoint")
    assert line.measured == line.expected == sum(map(prod, shapes.values()))
    gate = "model.layers.1.mlp.shared_expert_gate.weight"
    shapes[gate] = (2, 32)
    shapes["surprise"] = (3,)
    del shapes["model.norm.weight"]
    (check,) = planner.verify(model, checkpoint=header(shapes)).failed
    assert check.name == "parameters of the checkpoint"
    assert f"1 of another shape, such as {gate} [2, 32]" in check.measured
    assert "1 extra, such as surprise [3]" in check.measured
    assert "1 missing, such as " in check.measured


def test_what_the_reference_does_not_have_is_named():
    report = planner.verify(planner.load("deepseek-v4-flash"))
    (line,) = (check for check in report.checks if "not in the reference" in str(check.measured))
    assert (line.name, line.passed) == ("mixture as the reference", None)
    assert not [c for c in planner.verify(planner.load("jetmoe-8b")).checks if "not in the" in str(c.measured)]


@pytest.mark.parametrize("residual", get_args(Residual))
def test_every_residual_order_is_that_of_its_equations(residual):
    body = layer(attention(), residual=residual, residual_scale=2.0, stream_scale=0.5)
    report = planner.verify(decoder(body))
    assert report.passed, report
    assert ("logits as the reference", True) in [(check.name, check.passed) for check in report.checks]


def test_a_small_contract_is_not_scaled():
    model = decoder(layer(attention(window=3), feed_forward()), max_positions=40)
    assert scaled_down(model).architecture == model
    assert planner.verify(model).passed


@pytest.mark.parametrize("name", ["deepseek-v3", "gemma-3n-e2b", "llama-4-scout", "minicpm3-4b", "gpt-oss-20b"])
def test_scaling_keeps_the_structure(name):
    model = planner.load(name)
    small = scaled_down(model).architecture
    counts = dataclasses.replace(small, layers=model.layers, pattern=model.pattern)
    assert len(small.layers) == len(model.layers)
    for before, after in zip(model.layers, small.layers, strict=True):
        assert set(structure(before)) == set(structure(after))
        heads = [getattr(each.mixer, "n_heads", 0) // getattr(each.mixer, "n_kv_heads", 1) for each in (before, after)]
        assert heads[0] == heads[1] or not hasattr(before.mixer, "n_kv_heads")
    assert set(structure(counts)) == set(structure(dataclasses.replace(model, stated_parameters=None)))
    assert sum(t.size for t in stored(small).values()) < 1_000_000
    assert isinstance(small, Spec)
