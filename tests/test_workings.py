"""Every figure is what its formula gives, or the sum of its addends."""

import math

import pytest

import planner
from planner.summary import Load
from planner.workings import words, workings

MODELS = ("mha", "mla", "mixtral-8x7b", "gemma-3-12b", "jamba-v0.1", "deepseek-v3.2", "bloom-560m", "qwen3-30b-a3b")
FIGURES = (
    "parameters active_parameters weight_bytes cache_bytes_per_token cache_bytes prefill_flops decode_flops".split()
)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("formats", [{}, {"weights": "awq-g128", "kv": "fp8"}])
def test_every_figure_is_accounted_for(name, formats):
    model = planner.load(name)
    row = planner.compare([model], context=5000, batch=2, **formats).iloc[0]
    for figure, found in workings(model, Load(context=5000, batch=2, **formats), FIGURES).items():
        assert found.value == row[figure]
        accounted = found.explanation.value if found.explanation else sum(found.addends.values())
        assert accounted == row[figure], figure


def test_formulas_are_named_where_they_hold():
    found = workings(planner.load("llama-3.1-8b"), Load(context=1000))
    names = {figure: each.explanation and each.explanation.formula.name for figure, each in found.items()}
    assert names == {
        "parameters": "dense_parameters",
        "active_parameters": "dense_parameters",
        "weight_bytes": "weight_bytes",
        "cache_bytes_per_token": "kv_payload_per_token",
        "cache_bytes": "kv_payload",
        "crossover_tokens": "cache_equals_weights_context",
    }


def test_a_formula_of_equal_layers_is_not_named_for_mixed_ones():
    found = workings(planner.load("gemma-3-12b"), Load(context=500))  # below the window all layers keep the same
    assert found["cache_bytes"].explanation is None
    assert list(found["cache_bytes"].addends) == ["40 layers local", "8 layers global"]


def test_a_full_window_has_its_own_formula():
    model = planner.edit(planner.load("mha"), {"layers[0].mixer.window": 100})
    found = workings(model, Load(context=1000))["cache_bytes"]
    assert found.explanation.formula.name == "kv_payload_windowed"
    assert found.explanation.values["window"] == 100


def test_a_crossover_that_never_comes_is_none():
    found = workings(planner.load("mistral-7b-v0.1"), Load(context=1000), ["crossover_tokens"])["crossover_tokens"]
    assert math.isnan(found.value)
    assert found.explanation is None


def test_words_are_left_out_where_there_is_no_one_value():
    known = words(planner.load("gemma-3-12b"), Load())
    assert known["n_kv_heads"] == 8
    assert "window" not in known
