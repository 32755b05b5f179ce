"""Widgets <-> plan: on what the chosen decoder runs, under which load, and which of it is only assumed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from planner.app import controls, state, words
from planner.app.state import CHOICES, DEFAULTS, Decoder
from planner.assumptions import Assumption, assumptions
from planner.errors import InputError, PlannerError
from planner.plan import Plan, make_plan
from planner.plan_fields import parse_field
from planner.units import show

LABELS = {
    "count": "Accelerators",
    "tp": "TP",
    "pp": "PP",
    "dp": "DP",
    "ep": "EP",
    "attention_dp": "Attention DP",
    "isl": "Input tokens",
    "osl": "Output tokens",
    "memory_fraction": "Memory fraction",
    "reserve_bytes": "Reserve",
    "prefill_tokens": "Tokens of a pass",
    "compute_fraction": "Compute fraction",
    "fp8_compute_fraction": "Compute fraction, fp8",
    "fp4_compute_fraction": "Compute fraction, fp4",
    "bandwidth_fraction": "Bandwidth fraction",
    "link_fraction": "Link fraction",
    "collective_latency_s": "Latency of a collective",
    "seconds_per_layer": "Fixed time of a layer",
    "purchase_usd": "Purchase, USD",
    "amortisation_years": "Years of use",
    "usd_per_kwh": "USD per kWh",
    "pue": "Power of the site per watt",
    "as_of": "As of",
}
"""Word -> its name on the page, for what is typed in."""

HELP = {
    "count": "How many there are. Left empty, as many as the layout has, or 1.",
    "tp": "Tensor parallelism: so many accelerators hold a share of every layer.",
    "pp": "Pipeline parallelism: the layers are dealt out over so many stages.",
    "dp": "Data parallelism: so many replicas, whole copies of the decoder, share the sequences.",
    "ep": "Expert parallelism: so many accelerators have whole routed experts, each its share of them.",
    "attention_dp": "Data-parallel attention: TP in so many groups, each with the caches of its own sequences.",
}
"""Word -> what it means, where no assumption says so."""


def asked() -> tuple[Decoder, Plan] | None:
    """The decoder and the plan that a page's widgets ask about; None where they make none, as the page then says."""
    decoder = _load()
    plan = None if decoder is None else _plan_of(decoder)
    if decoder is None or plan is None:
        return None
    st.caption(_load_in_words(plan))
    return decoder, plan


def _load() -> Decoder | None:
    """The widgets of decoder, hardware, layout and request; the decoder, None where its contract does not hold."""
    token = controls.which_decoder("Decoder")
    with st.container(horizontal=True, gap="small"):
        choice("accelerator", "Accelerator", 220)
        text("count", width=166, placeholder="1, or the layout's")
        for word in words.LAYOUT:
            text(word, width=140 if word == "attention_dp" else 76, placeholder="auto")
    with st.container(horizontal=True, gap="small"):
        text("isl", width=150, placeholder="fill the context")
        text("osl", width=170)
        share("cached", "Cached share of the input", 240)
        choice("engine", "Engine", 170)
    return next((each for each in state.shown_decoders() if each.token == token), None)


def _plan_of(decoder: Decoder) -> Plan | None:
    """The plan of decoder, hardware, layout and request; what is wrong with it is said here, and the answer is None."""
    context, sequences = state.number("context"), state.number("batch")
    if context is None or sequences is None:
        return None
    try:
        said = said_in(("accelerator", "count", "engine", "isl", "osl", *words.LAYOUT))
        plan = make_plan(decoder.architecture, context=context, sequences=sequences, **state.formats_asked(), **said)
        cached = plan.isl * int(st.session_state["cached"]) // 100
        return plan.changed(cached_prefix=cached) if cached else plan
    except PlannerError as error:
        state.problem_box(state.plain(str(error)))
        return None


def said_in(names: Iterable[str]) -> dict[str, Any]:
    """Field of a plan -> its value, for those words that are not empty. Raises `InputError` for what is none."""
    texts = {name: st.session_state[name].strip() for name in names}
    return {name: parse_field(name, text, LABELS.get(name, "")) for name, text in texts.items() if text}


def held(plan: Plan) -> Plan:
    """The plan with what the session says of memory. Raises `PlannerError` for what is none."""
    return plan.changed(**said_in(words.MEMORY))


def timed(plan: Plan) -> Plan:
    """The plan with the session's fractions and fixed times. Raises `PlannerError` for what is none."""
    return plan.changed(**said_in(words.TIMES))


def priced(plan: Plan) -> Plan:
    """The plan with the prices of the session. Raises `PlannerError` for what is none."""
    said: dict[str, Any] = {}
    if st.session_state["utilisation"] != DEFAULTS["utilisation"]:
        said["utilisation"] = int(st.session_state["utilisation"]) / 100
    if st.session_state["pay"] == "own":
        if not st.session_state["purchase_usd"].strip():
            raise InputError("Purchase: state what an accelerator costs to buy, or take a rented one")
        return plan.changed(**said, **said_in(words.OWNING))
    said |= {word: st.session_state[word] for word in ("basis", "provider") if st.session_state[word] != DEFAULTS[word]}
    return plan.changed(**said, **said_in(("usd_per_hour", "as_of")))


def _load_in_words(plan: Plan) -> str:
    """What memory and time are planned for."""
    cached = plan.workload.cached_prefix
    beside = f", {cached:,} of them cached," if cached else ""
    many = "1 sequence" if plan.sequences == 1 else f"{plan.sequences:,} sequences"
    return (
        f"Memory for {many} of {plan.context:,} tokens (Context and Batch, in the sidebar); "
        f"time for requests of {plan.isl:,} tokens in{beside} and {plan.osl:,} out."
    )


def assumed() -> dict[str, Any]:
    """The session's words that nobody said."""
    own = {"accelerator": "accelerator", "context": "context", "batch": "sequences"}
    return {name: DEFAULTS[word] for word, name in own.items() if st.session_state[word] == DEFAULTS[word]}


def assumed_badge(found: Mapping[str, Any]) -> None:
    """What an answer rests on and nobody said; tokens in are said where the context is."""
    marks = ", ".join(f"{name} = {_shown(value)}" for name, value in found.items() if name != "isl")
    if marks:
        st.caption(f":blue-badge[assumed] {state.plain(marks)}")


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def text(word: str, *, width: int, placeholder: str = "", plan: Plan | None = None) -> None:
    """A word that is typed in; an assumption shows the value that holds while it is empty."""
    known = assumptions().get(word)
    about = HELP.get(word)
    if known is not None:
        placeholder = _default(known, plan)
        about = state.plain(f"{known.meaning}. Source: {known.source}.", 900)
    taken = (known is not None or word == "count") and st.session_state[word] == DEFAULTS[word]
    st.text_input(
        LABELS[word] + (" · assumed" if taken else ""),
        key=word,
        width=width,
        max_chars=40,
        placeholder=placeholder,
        help=about,
        persist_state="session",
    )


def _default(known: Assumption, plan: Plan | None) -> str:
    """The value that an assumption has while nobody says another."""
    engine = st.session_state["engine"]
    value = known.at(engine, plan is not None and plan.moe)
    if known.unit in ("B", "s"):
        return show(value, known.unit, binary=known.unit == "B").replace(" ", "")
    return str(value)


def choice(word: str, label: str, width: int) -> None:
    """A word that is one of a few."""
    mark = " · assumed" if st.session_state[word] == DEFAULTS[word] else ""
    st.selectbox(label + mark, CHOICES[word], key=word, width=width, persist_state="session")


def share(word: str, label: str, width: int) -> None:
    """A word that is a number of per cent."""
    mark = " · assumed" if st.session_state[word] == DEFAULTS[word] else ""
    st.select_slider(
        label + mark, CHOICES[word], key=word, format_func="{} %".format, width=width, persist_state="session"
    )
