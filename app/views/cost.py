"""What a deployment costs by token class, against an API, at what volume it pays, at prices that can be edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from planner import figures, pricing
from planner.app import money, plans, show, state, words
from planner.app.state import CHOICES, DEFAULTS
from planner.cost import ApiCost, Cost, against_api, cost
from planner.errors import InputError, PlannerError
from planner.memory import fit
from planner.plan import Plan
from planner.plan_fields import parse_field
from planner.speed import Estimate, estimate

NEAREST = "llama-3.1-8b"  # the API model that is held against a decoder without an API price of its own
FIGURES = tuple(name for name in money.LABELS if name != "usd_per_mtok_cached_input")
BEYOND = 2.5  # the chart goes to so many times the fleet's capacity
BELOW = 50  # and begins at so small a part of it

COLUMNS = {
    "price of": st.column_config.TextColumn("price of", width=122),
    "USD": st.column_config.NumberColumn("USD", format="%.6g", width=76),
    "as of": st.column_config.TextColumn("as of", width=84),
    "from": st.column_config.TextColumn("from", width=76),
}
"""Columns of the price table, as wide as a telephone has room for."""


def draw() -> None:
    """Draw the page."""
    st.title("Cost")
    asked = plans.asked()
    if asked is None:
        return
    _, plan = asked
    _pay(plan)
    model = _api(plan)
    priced = state.attempt(plans.priced, plan)
    _prices(priced or plan, model)
    if priced is None:
        return
    times = state.attempt(_times, priced)
    answer = None if times is None else state.attempt(cost, times.plan)
    if times is None or answer is None:
        return
    api = state.attempt(_against, answer, model)
    answer = replace(answer, api=api)
    _classes(answer)
    drawn = {"months": _months(answer)}
    st.subheader("Figure by figure")
    cached = ("usd_per_mtok_cached_input",)
    money.metrics(answer, times, (*FIGURES[:1], *cached, *FIGURES[1:]))
    plans.assumed_badge(answer.assumed)
    show.downloads(answer.to_frame(), "cost", drawn, answer.plan)


def _times(plan: Plan) -> Estimate:
    held = plans.held(plan)
    if not fit(held).fits:
        told = "The plan does not fit; it would cost this if it did. The Size page says what would help."
        st.warning(told, icon=":material/warning:")
    return estimate(plans.timed(held))


def _pay(plan: Plan) -> None:
    """How an hour is paid for, and how much of it is used."""
    sellers = pricing.prices(accelerator=plan.device.name)["provider"]
    with st.container(horizontal=True, gap="small"):
        texts = {"rent": "rented", "own": "bought"}
        st.segmented_control(
            "Accelerators are", CHOICES["pay"], key="pay", format_func=texts.__getitem__, required=True,
            persist_state="session",
        )  # fmt: skip
        if st.session_state["pay"] == "own":
            for word in words.OWNING:
                plans.text(word, width=270 if word == "pue" else 190, plan=plan)
        else:
            plans.choice("basis", "Basis", 170)
            _one_of("provider", "Rent from", sellers, "lowest price", 240)
            plans.text("as_of", width=150, placeholder="the newest")
        plans.share("utilisation", "Utilisation", 260)


def _api(plan: Plan) -> str:
    """Choose the API's model and provider; the model."""
    known = plan.model.name in CHOICES["api"]
    own, said = (plan.model.name, "the same") if known else (NEAREST, "in its place")
    with st.container(horizontal=True, gap="small"):
        mark = " · assumed" if st.session_state["api"] == DEFAULTS["api"] else ""
        st.selectbox(
            f"API model{mark}", CHOICES["api"], key="api", width=300, persist_state="session",
            format_func=lambda name: f"{own} ({said})" if name == words.AUTO else name, on_change=_forget_api,
        )  # fmt: skip
        model = own if st.session_state["api"] == words.AUTO else st.session_state["api"]
        _one_of("api_provider", "API from", pricing.api_prices(model=model)["provider"], "the cheapest", 240)
    if not known and st.session_state["api"] == words.AUTO:
        st.caption(state.plain(f"No API price of {plan.model.name} is known; {NEAREST} stands in its place."))
    return str(model)


def _forget_api() -> None:
    """Another model has other prices and providers."""
    for word in ("api_provider", *words.API.values()):
        st.session_state[word] = DEFAULTS[word]


def _one_of(word: str, label: str, names: Any, any_of_them: str, width: int) -> None:
    """A word that is one of names that depend on the rest of the page."""
    options = [words.ANY, *sorted(set(names))]
    if st.session_state[word] not in options:
        state.problem_box(state.plain(f"{label}: {st.session_state[word]} has no such price; any other is taken."))
        st.session_state[word] = words.ANY
    mark = " · assumed" if st.session_state[word] == words.ANY else ""
    st.selectbox(
        label + mark, options, key=word, width=width, persist_state="session",
        format_func=lambda name: any_of_them if name == words.ANY else name,
    )  # fmt: skip


def _against(answer: Cost, model: str) -> ApiCost:
    provider = st.session_state["api_provider"]
    given = {kind: parse_price(word) for kind, word in words.API.items() if st.session_state[word]}
    return against_api(answer.plan, answer.figures, model, None if provider == words.ANY else provider, given)


def parse_price(word: str) -> float:
    """A price of a million tokens that the user typed in."""
    return float(parse_field("usd_per_hour", st.session_state[word], word))


def _prices(plan: Plan, model: str) -> None:
    """The dated prices of the page, to be edited in place; an edited one stands in the link."""
    st.subheader("Prices")
    rows = [*_hour_row(plan), *_api_rows(plan, model)]
    frame = pd.DataFrame(rows, columns=["word", "price of", "USD", "as of", "from"])
    key = f"prices {[st.session_state[word] for word in frame['word']]} {model} {plan.device.name}"

    def change() -> None:
        st.session_state.update(edited(st.session_state[key]["edited_rows"], list(frame["word"])))

    st.data_editor(
        frame.drop(columns="word"),
        key=key,
        on_change=change,
        disabled=["price of", "as of", "from"],
        hide_index=True,
        height="content",
        column_config=COLUMNS,
        alt="Prices of an accelerator-hour and of a million API tokens with date and source; the prices can be edited",
    )
    st.caption("A price is edited in its cell; an emptied one goes back to the list.")


def edited(rows: Mapping[Any, Mapping[str, Any]], names: Sequence[str]) -> dict[str, str]:
    """Word -> its text after an edit of the table's rows, whose words are `names`; an emptied cell says nothing."""
    cells = {names[int(row)]: cells["USD"] for row, cells in rows.items() if "USD" in cells}
    return {word: "" if usd is None else f"{usd:.10g}" for word, usd in cells.items()}


def _hour_row(plan: Plan) -> list[list[Any]]:
    if st.session_state["pay"] == "own":
        return []
    name = "accelerator-hour"
    said = plan.prices
    if said.usd_per_hour is not None:
        return [["usd_per_hour", name, float(said.usd_per_hour), "now", "you"]]
    try:
        found = pricing.hour_price(plan.device.name, said.as_of, said.basis, said.provider)
    except InputError:
        return [["usd_per_hour", name, None, "", "not known"]]
    return [["usd_per_hour", name, found.usd_per_hour, found.date.isoformat(), found.provider]]


def _api_rows(plan: Plan, model: str) -> list[list[Any]]:
    provider = st.session_state["api_provider"]
    try:
        listed = against_api(
            plan, dict.fromkeys(("fleet_usd_per_month", "requests_per_month"), 1.0), model,
            None if provider == words.ANY else provider,
        )  # fmt: skip
    except PlannerError:
        return []
    rows = []
    for kind, word in words.API.items():
        name = f"Mtok {kind.replace('_', ' ')}"
        if st.session_state[word]:
            rows.append([word, name, _number(st.session_state[word]), "now", "you"])
        else:
            own = listed.usd_per_mtok.get(kind)
            usd = listed.usd_per_mtok["input"] if own is None else own
            rows.append([word, name, usd, listed.date, listed.provider if own else "as input"])
    return rows


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _classes(answer: Cost) -> None:
    """Self-host against API for each class of tokens, and for a request."""
    st.subheader("Self-host against API")
    used, api = answer.plan.assume("utilisation"), answer.api
    rows = []
    for kind in ("input", "cached_input", "output"):
        own = answer.figures[f"usd_per_mtok_{kind}"]
        rate = None if api is None else api.usd_per_mtok.get(kind, api.usd_per_mtok["input"])
        if own is not None:
            rows.append(_row(f"million {kind.replace('_', ' ')} tokens", own, used, rate))
    rows.append(_row("one request", answer.usd_per_request, used, None if api is None else api.usd_per_request))
    name = "API" if api is None else f"{api.model} at {api.provider}"
    show.table(
        "self-host against API", ["price of", "self-host, used", f"self-host, {used:.0%} utilised", name, "ratio"], rows
    )
    st.caption(
        "Used: as if the replica worked at the planned load in every paid hour. Ratio: utilised self-host / API."
    )


def _row(name: str, own: float | None, used: float, api: float | None) -> list[str]:
    idle = None if own is None else own / used
    ratio = "n/a" if idle is None or not api else f"{idle / api:,.2f}"
    return [name, money.usd(own), money.usd(idle), money.usd(api), ratio]


def _months(answer: Cost) -> go.Figure:
    """The chart of a month's cost over its requests, with the sentence that it shows."""
    st.subheader("Break-even")
    api, capacity = answer.api, answer.requests_per_month
    crossing = api.break_even_requests_per_month if api is not None and api.reachable else None
    low = min(capacity, crossing or capacity) / BELOW
    name = "an API" if api is None else f"{api.model} at {api.provider}"
    drawn = figures.break_even(
        answer.over_requests(low, BEYOND * capacity), capacity, crossing, name, log=st.session_state["scale"] == "log"
    )
    if api is not None:
        volume = f"{api.break_even_requests_per_month:,.0f} requests a month"
        held = (
            f"is cheaper from {volume}" if api.reachable else f"would be cheaper from {volume}, more than it can serve"
        )
        fleet = (
            f"The fleet costs {money.usd(answer.fleet_usd_per_month)} a month and can serve {capacity:,.0f} requests"
        )
        charged = f"{name} charges {money.usd(api.usd_per_request)} for each ({api.date})"
        st.markdown(state.plain(f"{fleet}; {charged}. The fleet {held}.", 900))
    show.figure(drawn, "months")
    st.caption("Beyond its capacity the fleet grows by whole replicas.")
    return drawn
