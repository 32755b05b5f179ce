"""The formulas page: every formula with the decoder's numbers in it, the crossovers solved, the block equations."""

import re

import pytest

import planner
from planner.equations import equations
from tests.app.pages import enter, opened, run, sentences, widget


def test_the_crossover_is_solved_with_the_numbers_in_it():
    app = opened(page="Formulas")
    assert any(r"\frac{14{,}000{,}000{,}000}{1 \cdot 524{,}288} = 26{,}702.88" in each.value for each in app.latex)
    text = "\n".join(each.value for each in app.markdown)
    assert "| $W$ | bytes of all weights | 14,000,000,000 B |" in text
    assert "**26,703 tokens** · Context of each sequence" in text
    assert any("Efficiently Scaling Transformer Inference" in each.value for each in app.caption)


def test_an_edit_moves_the_solved_crossover():
    app = opened(page="Formulas", m='mha{"layers[0].mixer.n_kv_heads":8}')
    assert any("**106,812 tokens**" in each.value for each in app.markdown)


@pytest.mark.parametrize(
    ("decoder", "solved"),
    [
        ("gemma-3-27b", "cache = weights at 654,083 tokens"),  # most of its layers have a window
        ("jamba-v0.1", "cache = weights at 6,294,197 tokens"),  # most have a state
        ("mistral-7b-v0.1", "never: the cache stops growing before it reaches the weights"),
        ("falcon-mamba-7b", "never: the cache stops growing before it reaches the weights"),
    ],
)
def test_an_uneven_cache_is_solved_on_its_true_curve(decoder, solved):
    app = opened(page="Formulas", m=decoder, context="1k")
    assert sentences(app) == []
    assert [each.value for each in app.markdown if each.value.startswith("**")] == [f"**{solved}**"]


def test_a_closed_form_is_shown_only_where_the_counts_cross():
    app = opened(page="Formulas", m="mixtral-8x7b")  # its feed-forwards are experts, of which a token takes two
    claims = [each.value for each in app.markdown if "attention core" in each.value]
    assert [claim.partition(" ")[0] for claim in claims] == ["**5,120", "**10,239"]
    assert all("projections" in claim for claim in claims)


def test_every_formula_can_be_chosen():
    app = opened(page="Formulas", m="llama-3.1-8b")
    for name, formula in planner.formulas.items():
        widget(app.selectbox, "Formula").set_value(name)
        run(app)
        assert sentences(app) == []
        assert any(formula.latex in each.value for each in app.latex), name


def test_a_word_that_the_decoder_does_not_say_is_typed_in():
    app = opened(page="Formulas", formula="ridge_batch", m="llama-3.1-8b")
    for word, text in (("flops per s, FLOP/s", "989TFLOP/s"), ("memory bytes per s, B/s", "3.35TB/s")):
        next(each for each in app.text_input if each.label.endswith(word)).set_value(text)
    run(app)
    found = planner.formulas["ridge_batch"](989e12, 3.35e12, 2)
    assert any(each.value.rstrip("$\n ").endswith(f"= {found:.2f}") for each in app.latex)
    next(each for each in app.text_input if each.label.endswith("B/s")).set_value("__import__('os')")
    run(app)
    assert "is not a number" in sentences(app)[0]


def test_block_equations_are_all_there():
    app = opened(page="Formulas", m="gemma-3-12b")
    text = "\n".join(each.value for each in app.markdown)
    for line in equations(planner.load("gemma-3-12b")):
        assert line.latex in text


def test_a_dollar_sign_in_a_label_does_not_end_the_formula():
    app = opened(page="Formulas", m='mha{"layers[0].label":"$![x](http://example.org/x.png)$"}')
    inline = [line for each in app.markdown for line in each.value.split("\n\n") if "example" in line]
    assert inline
    assert all(re.fullmatch(r"\$[^$]*\$", line) for line in inline)


def test_the_chosen_formula_is_in_the_link():
    app = opened(page="Formulas")
    enter(app, app.selectbox, "Formula", "kv_payload")
    assert dict(app.query_params) == {"page": "Formulas", "formula": "kv_payload"}
