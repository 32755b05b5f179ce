"""The splits that charts are drawn from add up to the figures of `compare`, and crossings to the textbook's."""

import pytest

import planner
from planner.curves import cache_by_layer, contexts, crossings, flops_by_group
from planner.errors import UsageError

MODELS = ("mha", "mla", "mixtral-8x7b", "gemma-3-12b", "jamba-v0.1", "deepseek-v3.2", "mamba-130m", "gpt2")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_parts_of_the_work_add_up(name, phase):
    model = planner.load(name)
    frame = flops_by_group(model, phase, [1000], batch=3)
    expected = planner.compare([model], context=1000, batch=3)[f"{phase}_flops"][0]
    assert frame.drop(columns="context").sum(axis=1).tolist() == [expected]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kv", ["bf16", "fp8"])
def test_the_layers_add_up(name, kv):
    model = planner.load(name)
    frame = cache_by_layer([model], 1000, kv)
    assert len(frame) == model.n_layers
    expected = planner.compare([model], context=1000, kv=kv)["cache_bytes_per_token"][0]
    assert frame["cache_bytes_per_token"].sum() == expected


def test_layers_stand_in_the_order_of_the_pattern():
    frame = cache_by_layer([planner.load("gemma-3-12b")], 100_000)
    assert frame["label"].tolist()[:7] == ["local"] * 5 + ["global", "local"]
    assert frame.loc[frame["label"] == "local", "cache_bytes_per_token"].unique().tolist() == [0]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "mha", "gqa-8", "llama-3.1-70b"])
def test_crossings_are_those_of_the_textbook(name):
    model = planner.load(name)
    mixer, width = model.layers[0].mixer, model.d_model
    given = (width, mixer.n_heads, mixer.n_kv_heads, mixer.head_dim)
    prefill = planner.formulas["core_equals_projections_prefill"](*given)
    decode = planner.formulas["core_equals_projections_decode"](*given)
    assert crossings(model, "prefill")["context"][0] == prefill
    assert crossings(model, "decode")["context"][0] == decode - 1  # the new position sees itself too


def test_a_crossing_is_the_first_length():
    model = planner.load("deepseek-v3")
    for phase in ("prefill", "decode"):
        for row in crossings(model, phase).itertuples():
            other = {"projection": ["projection"], "feed-forward": ["feed-forward"]}
            parts = other.get(row.over, ["projection", "feed-forward", "head"])
            frame = flops_by_group(model, phase, [row.context - 1, row.context])
            reached = frame["attention"] >= frame[parts].sum(axis=1)
            assert reached.tolist() == [False, True]
            assert frame["attention"][1] == row.flops


def test_what_never_happens_has_no_row():
    assert crossings(planner.load("mamba-130m"), "decode").empty
    windowed = planner.edit(planner.load("mha"), {"layers[0].mixer.window": 128})
    assert crossings(windowed, "decode").empty


def test_a_learned_table_ends_the_curve():
    frame = flops_by_group(planner.load("gpt2"), "prefill", [1024, 1025])
    assert frame["attention"].isna().tolist() == [False, True]


@pytest.mark.parametrize(("low", "high"), [(0, 10), (10, 10), (20, 10)])
def test_a_range_that_is_none_is_refused(low, high):
    with pytest.raises(UsageError, match="the context runs from"):
        contexts(low, high)


def test_contexts_hold_both_ends():
    assert contexts(7, 10) == [7, 8, 9, 10]
    assert contexts(1, 10**15)[-1] == 10**15
