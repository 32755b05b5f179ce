"""Which layout would be better: all of one accelerator or several, ranked, each rejected one with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from planner import catalogue, figures, sizing
from planner.app import money, show, words
from planner.app.state import Decoder
from planner.figures.cost import layout_of
from planner.plan import Plan
from planner.units import show as shown

SHOWN = 10  # layouts of the ranked table that are seen at once
MOST_REJECTED = 60  # and of those that are rejected; the download has all


def draw(decoder: Decoder, plan: Plan, drawn: dict[str, go.Figure]) -> pd.DataFrame:
    """Draw the part; the whole ranking."""
    st.subheader("Layouts, ranked")
    choices = [name for name in catalogue.names() if name != plan.device.name]
    others = dict.fromkeys(name for name in st.session_state["others"].split(",") if name in choices)
    st.session_state["beside"] = list(others)[: words.MOST_OTHERS]

    def choose() -> None:
        st.session_state["others"] = ",".join(st.session_state["beside"])

    label = f"Beside {plan.device.name}, try (at most {words.MOST_OTHERS})"
    st.multiselect(label, choices, key="beside", max_selections=words.MOST_OTHERS, on_change=choose)
    tried = (plan.device.name, *st.session_state["beside"])
    frame = _ranked(plan, _said(decoder, plan), tried)
    rows = frame.to_dict("records")
    carried, rejected = ([row for row in rows if bool(row["reason"]) is out] for out in (False, True))
    if not carried:
        st.info("None of these layouts can be ranked; the table below says why.", icon=":material/info:")
    else:
        many = "1 sequence needs" if plan.sequences == 1 else f"{plan.sequences:,} sequences need"
        st.markdown(f"Each is as many replicas as {many}; the cheapest per token first.")
        _table(carried[:SHOWN], plan)
        if len(carried) > SHOWN:
            with st.expander(f"{len(carried) - SHOWN} more that carry the load"):
                _table(carried[SHOWN:], plan, "more layouts")
        ranked = frame.head(len(carried))
        drawn["pareto"] = figures.pareto(ranked, sizing.undominated(ranked).tolist())
        st.markdown("**Speed against price**")
        show.figure(drawn["pareto"], "pareto")
        st.caption(
            "Right is faster for a user, down is cheaper. Joined, with their ranks: no other layout is both; pale: "
            "another is."
        )
    if rejected:
        with st.expander(f"{len(rejected)} rejected, each with its reason", expanded=not carried):
            reasons = [[layout_of(row), row["reason"]] for row in rejected[:MOST_REJECTED]]
            show.table("rejected layouts", ["layout", "reason"], reasons, text=2)
            if len(rejected) > MOST_REJECTED:
                st.caption(f"{len(rejected) - MOST_REJECTED} more stand in the table that can be downloaded.")
    return frame


@st.cache_data(max_entries=32, show_spinner="Trying every layout …")
def _ranked(_plan: Plan, said: tuple[str, ...], accelerators: tuple[str, ...]) -> pd.DataFrame:
    """The ranking of a plan, whose place in the cache is what was said in words."""
    return sizing.size(_plan, accelerators=accelerators)


def _said(decoder: Decoder, plan: Plan) -> tuple[str, ...]:
    """All that a ranking depends on beside the accelerators: the layout is what it finds."""
    parts = (plan.weights, plan.kv, plan.engine, plan.workload, plan.prices, sorted(plan.overrides.items()))
    return decoder.token, st.session_state["derive"], *map(repr, parts)


def _table(layouts: Sequence[Mapping[str, Any]], plan: Plan, caption: str = "ranked layouts") -> None:
    own = (plan.device.name, *(getattr(plan.layout, name) for name in words.LAYOUT))
    rows, marked = [], []
    for number, row in enumerate(layouts):
        here = own == (row["accelerator"], *(row[name] for name in words.LAYOUT))
        marked += [number] if here else []
        rows.append(
            [
                f"{row['rank']}. {layout_of(row)}\n{row['verdict']}{'; the plan above' if here else ''}",
                money.usd(row["usd_per_mtok_blended"]),
                money.usd(row["fleet_usd_per_hour"], "USD/h"),
                shown(row["ttft_s"], "s"),
                f"{row['output_tok_s_per_user']:,.1f}",
                f"{row['output_tok_s']:,.0f}",
                "any" if pd.isna(row["most_sequences"]) else f"{row['most_sequences']:,.0f}",
            ]
        )
    headings = ["layout", "a million tokens", "fleet", "first token", "token/s of a user", "token/s in all"]
    show.table(caption, [*headings, "sequences of a replica"], rows, marked=marked)
