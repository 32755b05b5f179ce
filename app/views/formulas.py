"""What is calculated and from what: a formula with the decoder's numbers in it, the crossovers, the block equations."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import streamlit as st

from planner.app import controls, show, state
from planner.app.state import CHOICES, Decoder
from planner.equations import equations
from planner.errors import PlannerError
from planner.formula import Formula, formulas
from planner.quantities import Quantity
from planner.summary import Load
from planner.units import RULES, SPELLINGS, parse_quantity
from planner.workings import words

CROSSOVERS = "planner.textbook.crossovers"


def draw() -> None:
    """Draw the page."""
    st.title("Formulas")
    token = controls.which_decoder("edit", "Decoder")
    decoder = next((each for each in state.shown_decoders() if each.token == token), None)
    context, batch = state.number("context"), state.number("batch")
    values: dict[str, Any] = {}
    if decoder is not None and context is not None and batch is not None:
        values = words(decoder.architecture, Load(context=context, batch=batch, **state.formats_asked()))
    _formula(values)
    if decoder is not None:
        if values:
            _crossovers(decoder, values)
        _equations(decoder)


def _formula(values: dict[str, Any]) -> None:
    st.subheader("One figure")
    st.selectbox("Formula", CHOICES["formula"], key="formula", format_func=_title, persist_state="session")
    formula = formulas[st.session_state["formula"]]
    missing = [q for q in formula.quantities if q.word not in values]
    typed = _typed(missing)
    st.latex(f"{formula.letter} = {formula.latex}")
    if len(typed) < len(missing):
        for quantity in missing:
            st.markdown(f"${quantity.letter}$ · {quantity.meaning}")
        st.caption(state.plain(f"Source: {formula.citation}."))
        return
    try:
        found = formula.explain({**values, **typed})
    except PlannerError as error:
        state.problem_box(state.plain(str(error)))
        return
    show.explanation(found, heading=False)
    st.caption("The same for a spreadsheet, over cells named like the words:")
    st.code(formula.excel, language=None, wrap_lines=True)


def _title(name: str) -> str:
    return f"{name.replace('_', ' ')} · {formulas[name].summary}"


def _typed(missing: list[Quantity]) -> dict[str, Any]:
    """What the user typed for the words that the decoder and its load give no value."""
    if not missing:
        return {}
    st.caption("This decoder and its load do not say these, or say several; type them in.")
    typed: dict[str, Any] = {}
    with st.container(horizontal=True, gap="small"):
        for quantity in missing:
            unit = quantity.unit if quantity.unit in SPELLINGS else "1"
            shown = "" if quantity.unit == "1" else f", {quantity.unit}"
            label = f"${quantity.letter}$ {quantity.word.replace('_', ' ')}{shown}"
            text = st.text_input(label, key=f"word {quantity.word}", max_chars=40, width=220, help=RULES[unit])
            if not text:
                continue
            try:
                value = parse_quantity(text, unit, quantity.word)
            except PlannerError as error:
                state.problem_box(state.plain(str(error)))
                continue
            typed[quantity.word] = int(value) if value.is_integer() else value
    return typed


def _crossovers(decoder: Decoder, values: dict[str, Any]) -> None:
    st.subheader(f"Crossovers of {state.plain(decoder.label)}, solved")
    found = 0
    for formula in formulas.values():
        if formula.function.__module__ != CROSSOVERS or not all(word in values for word in formula.words):
            continue
        found += 1
        _crossover(formula, values)
    if not found:
        st.caption("Its layers are not all alike, and none of the closed forms holds for it.")


def _crossover(formula: Formula, values: dict[str, Any]) -> None:
    try:
        explanation = formula.explain(values)
    except PlannerError as error:
        state.problem_box(state.plain(str(error)))
        return
    unit = {"1": "", "token": " tokens"}.get(formula.unit, f" {formula.unit}")
    never = "" if explanation.value > 0 else " (it does not happen)"
    st.markdown(f"**{show.amount(explanation.value, 'token', False)}{unit}**{never} · {state.plain(formula.summary)}")
    st.markdown(_inline(f"{formula.latex} = {explanation.line}"))
    if formula.validity:
        st.caption(state.plain(f"Holds for: {formula.validity}."))


def _inline(latex: str) -> str:
    """LaTeX in a line of text, where it breaks on a narrow screen; a dollar sign in a name does not end it."""
    return rf"$\displaystyle {latex.replace('$', 'textdollar{}')}$"


def _equations(decoder: Decoder) -> None:
    st.subheader(f"Block equations of {state.plain(decoder.label)}")
    written = equations(decoder.architecture)
    for number, (place, lines) in enumerate(groupby(written, lambda line: line.label.partition(".")[0])):
        with st.expander(state.plain(place), expanded=number < 4):
            for label, each in groupby(lines, lambda line: line.label):
                st.caption(state.plain(label))
                st.markdown("\n\n".join(_inline(line.latex) for line in each))
    with st.expander("The same as LaTeX source"):
        st.code("\n".join(line.latex for line in written), language="latex", wrap_lines=True)
