"""Edits by path, in which words they are refused, and what differs between two contracts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner import PlannerError
from planner.editing import flatten

GQA = "gqa-8: layers[0].mixer"


def edited(name, *texts):
    """As the command line edits."""
    return planner.edit(planner.load(name), dict(text.split("=", 1) for text in texts))


@pytest.mark.parametrize(
    ("name", "texts", "changed"),
    [
        ("gqa-8", ["layers[0].mixer.n_kv_heads=4"], {"layers[0].mixer.n_kv_heads": (8, 4)}),
        ("gqa-8", ["layers[*].mixer.n_kv_heads=4"], {"layers[0].mixer.n_kv_heads": (8, 4)}),
        ("gqa-8", ["n_kv_heads=4"], {"layers[0].mixer.n_kv_heads": (8, 4)}),
        ("gqa-8", ["n_layers=80"], {"layers[0].count": (32, 80)}),
        ("gqa-8", ["vocab_size=128k"], {"vocab_size": (32_000, 128_000)}),
        ("gqa-8", ["vocab_size=128Ki"], {"vocab_size": (32_000, 131_072)}),
        ("gqa-8", ["output.tied=True"], {"output.tied": (False, True)}),
        ("gqa-8", ["stated_parameters=none"], {"stated_parameters": (7_000_000_000, None)}),
        ("gqa-8", ["eps=1e-6"], {"layers[0].norm.eps": (1e-5, 1e-6), "final_norm.eps": (1e-5, 1e-6)}),
        ("gqa-8", ["name=a = b"], {"name": ("gqa-8", "a = b")}),
        ("gqa-8", ["residual=parallel"], {"layers[0].residual": ("pre", "parallel")}),
        # several edits are checked together, so their order does not matter
        (
            "gqa-8",
            ["n_heads=36", "n_kv_heads=12"],
            {"layers[0].mixer.n_heads": (32, 36), "layers[0].mixer.n_kv_heads": (8, 12)},
        ),
        (
            "gemma-2-9b",
            ["layers[0].count=12", "layers[1].count=12"],
            {"layers[0].count": (21, 12), "layers[1].count": (21, 12)},
        ),
        # a star passes over layers without the field; a whole part is replaced by a table
        (
            "deepseek-v3",
            ["layers[*].feed_forward.top_k=4"],
            {"layers[1].feed_forward.top_k": (8, 4)},
        ),
        (
            "mqa",
            ["layers[0].feed_forward={ kind = 'feed_forward', d_ff = 5, gated = false }"],
            {"layers[0].feed_forward.d_ff": (11_008, 5), "layers[0].feed_forward.gated": (True, False)},
        ),
    ],
)
def test_what_an_edit_changes(name, texts, changed):
    assert planner.diff(planner.load(name), edited(name, *texts)) == changed


def test_the_original_stays_as_it_is():
    before = planner.load("gqa-8")
    planner.edit(before, n_kv_heads=4)
    assert before.layers[0].mixer.n_kv_heads == 8


def test_no_edit_changes_nothing():
    for name in ("llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "phi-4-mini"):
        assert planner.edit(planner.load(name)) == planner.load(name)


def test_values_that_are_no_text():
    model = planner.edit(planner.load("gqa-8"), {"output.tied": True, "layers[0].mixer.position": None}, n_kv_heads=2)
    assert (model.output.tied, model.layers[0].mixer.position, model.layers[0].mixer.n_kv_heads) == (True, None, 2)
    columns = planner.edit(model, n_kv_heads=np.array([1.0, 2.0]))
    assert columns.layers[0].mixer.n_kv_heads.tolist() == [1.0, 2.0]


REFUSED = [
    ("n_kv_heads=3", f"{GQA}: n_kv_heads = 3 does not divide n_heads = 32"),
    ("n_kv_heads=2.5", f"{GQA}: n_kv_heads = 2.5 is not a whole number from 1 to 10^15"),
    ("n_kv_heads=abc", f"{GQA}: n_kv_heads = 'abc' is not a whole number from 1 to 10^15"),
    ("n_kv_heads=nan", f"{GQA}: n_kv_heads = nan is not a whole number from 1 to 10^15"),
    ("n_kv_heads=-1", f"{GQA}: n_kv_heads = -1 is not a whole number from 1 to 10^15"),
    ("n_kv_heads=", f"{GQA}: n_kv_heads = '' is not a whole number from 1 to 10^15"),
    ("vocab_size=1e999", "gqa-8: vocab_size = inf is not a whole number from 1 to 10^15"),
    ("vocab_size=3\nx = 4", "gqa-8: vocab_size = '3\\nx = 4' is not a whole number from 1 to 10^15"),
    ("output.tied=yes", "gqa-8: output: tied = 'yes' is not true or false"),
    ("layers=[]", "gqa-8: layers is empty; a decoder has at least one layer"),
    ("layers[0]=5", "gqa-8: layers[0]: '5' stands where a table of layer is expected"),
    ("n_kv_headz=4", "gqa-8: n_kv_headz: unknown field; did you mean 'n_kv_heads'?"),
    ("layers[0].mixer.n_kv_headz=4", f"{GQA}: n_kv_headz: unknown key; did you mean 'n_kv_heads'?"),
    ("layers[*].mixer.n_kv_headz=4", "gqa-8: layers[*].mixer.n_kv_headz: no layer has it"),
    (
        "layers[0].mixer.kind=mla",
        "gqa-8: kind is not changed alone; set the whole part: layers[0].mixer={ kind = ... }",
    ),
    ("position.base=5e5", "gqa-8: position: unknown key; did you mean 'max_positions'?"),
    ("layers[9].mixer=4", "gqa-8: layers: has no entry 9; it has 1"),
    ("d_model[0]=3", "gqa-8: d_model: has no entry 0; it has 0"),
    ("d_model[*]=3", "gqa-8: d_model is 4096 and no list"),
    ("name.x=3", "gqa-8: name: is 'gqa-8' and has no field 'x'"),
    ("embedding.norm.eps=3", "gqa-8: embedding.norm: is left out and has no field 'eps'"),
    ("=3", "'' is not a path such as layers[0].mixer.n_kv_heads"),
    ("layers[-1].count=3", "'layers[-1].count' is not a path such as layers[0].mixer.n_kv_heads"),
    ("layers[0]..count=3", "'layers[0]..count' is not a path such as layers[0].mixer.n_kv_heads"),
    (f"layers[{'9' * 5000}]=3", f"'layers[{'9' * 53}' is not a path such as layers[0].mixer.n_kv_heads"),
    (f"{'x' * 10**6}=3", f"gqa-8: {'x' * 60}: unknown field"),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED, ids=[text[:40] for text, _ in REFUSED])
def test_refused_with_model_path_value_and_rule(text, sentence):
    with pytest.raises(PlannerError) as error:
        edited("gqa-8", text)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "gemma-2-9b",
            "window=128",
            "window is ambiguous in gemma-2-9b; write one of layers[0].mixer.window, layers[1].mixer.window",
        ),
        (
            "gemma-2-9b",
            "n_layers=48",
            "n_layers is ambiguous in gemma-2-9b; write one of layers[0].count, layers[1].count",
        ),
        (
            "gemma-2-9b",
            "layers[0].count=20",
            "gemma-2-9b: pattern gives 21 local, 20 global, but the counts are 20 local, 21 global",
        ),
    ],
)
def test_refused_for_what_the_model_is(name, text, sentence):
    with pytest.raises(PlannerError) as error:
        edited(name, text)
    assert str(error.value) == sentence


def test_a_part_cannot_be_replaced_and_edited_inside_at_once():
    sentence = r"^gqa-8: layers\[0\]\.mixer\.position\.base: stands in a part that another of these edits replaces$"
    with pytest.raises(PlannerError, match=sentence):
        edited("gqa-8", "layers[0].mixer.position=none", "layers[0].mixer.position.base=3")


PATHS = [path for path, _ in flatten(planner.load("deepseek-v3"))]
NUMBERS = (st.integers() | st.floats()).map(str)
VALUES = st.text(max_size=12) | NUMBERS | st.sampled_from(["none", "[]", "{}", "1e999"])


@given(st.sampled_from([*PATHS, "n_heads", "layers[*].mixer.n_heads"]) | st.text(max_size=30), VALUES)
def test_any_edit_is_made_or_refused(path, value):
    model, sentence = planner.load("deepseek-v3"), ""
    try:
        assert isinstance(planner.edit(model, {path: value}), planner.Architecture)
    except PlannerError as error:
        sentence = str(error)
    assert "\n" not in sentence


def test_diff_names_kinds_and_fields_that_only_one_has():
    differing = planner.diff(planner.load("gqa-8"), planner.load("mla"))
    assert differing["layers[0].mixer.kind"] == ("dense_attention", "latent_attention")
    assert differing["layers[0].mixer.n_kv_heads"] == (8, None)
    assert differing["layers[0].mixer.kv_lora_rank"] == (None, 512)
    assert planner.diff(planner.load("mla"), planner.load("mla")) == {}


def test_every_path_that_diff_shows_can_be_edited():
    for name in ("gqa-8", "mla", "gemma-3-27b", "deepseek-v3"):
        model = planner.load(name)
        paths = {path: value for path, value in flatten(model) if not path.endswith(".kind")}
        assert planner.edit(model, paths) == model
