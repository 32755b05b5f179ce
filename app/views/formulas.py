"""What is calculated and from what: a formula with the decoder's numbers in it, the crossovers, the block equations."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import streamlit as st

from planner.app import controls, show, state
from planner.app.state import CHOICES, Decoder
from planner.curves import flops_by_group
from planner.equations import equations
from planner.errors import PlannerError
from planner.figures.comparing import crossing
from planner.formula import Formula, formulas
from planner.quantities import Quantity
from planner.scenarios import compare
from planner.summary import Load
from planner.units import RULES, SPELLINGS, parse_quantity
from planner.workings import words, workings

CROSSOVERS = "planner.textbook.crossovers"
CORE = "core_equals_"
OVER = {"projections": ["projection"], "layer": ["projection", "feed-forward"]}
"""What the attention core overtakes, in the name of a formula -> the parts of `planner.curves` that it means."""


def draw() -> None:
    """Draw the page."""
    st.title("Formulas")
    token = controls.which_decoder("Decoder")
    decoder = next((each for each in state.shown_decoders() if each.token == token), None)
    context, batch = state.number("context"), state.number("batch")
    if decoder is None or context is None or batch is None:
        _formula({})
    else:
        said = {"context": context, "batch": batch, **state.formats_asked()}
        load = Load(**said)
        values, even = words(decoder.architecture, load), _grows_evenly(decoder, load)
        if not even:
            del values["kv_bytes_per_token"]  # it is another one at another context
        _formula(values)
        st.subheader(f"Crossovers of {state.plain(decoder.label)}, solved")
        if not even:
            _true_crossover(decoder, said)
        _crossovers(decoder, values)
    if decoder is not None:
        _equations(decoder)


def _grows_evenly(decoder: Decoder, load: Load) -> bool:
    """Whether the closed form of the cache's crossover is the true one: no layer has a window or a state of its own."""
    return workings(decoder.architecture, load, ["crossover_tokens"])["crossover_tokens"].explanation is not None


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
    for name, formula in formulas.items():
        if formula.function.__module__ == CROSSOVERS and all(word in values for word in formula.words):
            _crossover(decoder, name, formula, values)


def _true_crossover(decoder: Decoder, said: dict[str, Any]) -> None:
    """Where the cache reaches the weights on its true curve."""
    row = compare([decoder.architecture], **said).to_dict("records")[0]
    st.markdown(f"**{crossing(row)}**")
    st.caption("Its cache does not grow evenly with every position, so this is solved on its true curve.")


def _crossover(decoder: Decoder, name: str, formula: Formula, values: dict[str, Any]) -> None:
    try:
        explanation = formula.explain(values)
    except PlannerError as error:
        state.problem_box(state.plain(str(error)))
        return
    if name.startswith(CORE) and not _overtakes(decoder, name.removeprefix(CORE), explanation.value):
        return
    unit = {"1": "", "token": " tokens"}.get(formula.unit, f" {formula.unit}")
    never = "" if explanation.value > 0 else " (it does not happen)"
    st.markdown(f"**{show.amount(explanation.value, 'token', False)}{unit}**{never} · {state.plain(formula.summary)}")
    st.markdown(_inline(f"{formula.latex} = {explanation.line}"))
    if formula.validity:
        st.caption(state.plain(f"Holds for: {formula.validity}."))


def _overtakes(decoder: Decoder, which: str, tokens: float) -> bool:
    """Whether the counts of this decoder, whatever its windows and experts, cross within two tokens of the solution."""
    parts, _, phase = which.partition("_")
    work = flops_by_group(decoder.architecture, phase, [max(1, round(tokens) - 2), round(tokens) + 2])
    more = work["attention"] - work[OVER[parts]].sum(axis=1)
    return bool(more[0] <= 0 <= more[1])


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
