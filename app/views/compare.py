"""Decoders side by side: the cache against the weights, the work, the layers, and every figure with its reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from planner import figures
from planner.app import controls, show, state
from planner.app.state import Decoder
from planner.curves import cache_by_layer, contexts, crossings, flops_by_group
from planner.figures.comparing import crossing
from planner.scenarios import compare, sweep
from planner.summary import UNITS, Load
from planner.workings import workings

METRICS = {
    "parameters": "Parameters",
    "active_parameters": "Active parameters",
    "weight_bytes": "Weights",
    "cache_bytes_per_token": "Cache of one token",
    "cache_fixed_bytes": "Cache, fixed",
    "cache_bytes": "Cache of the batch",
    "crossover_tokens": "Cache = weights at",
    "prefill_flops": "Prefill",
    "decode_flops": "Decode step",
}
"""Figure of `compare` -> its name on the page."""


@dataclass(frozen=True, slots=True)
class View:
    """What the controls say: decoders, load (None where what was typed is no number), axes and bytes."""

    decoders: list[Decoder]
    edited: str
    context: int | None
    batch: int | None
    formats: dict[str, str]
    log: bool
    binary: bool

    @property
    def base(self) -> int:
        """The place of the baseline among the decoders that hold; the first if it is none of them."""
        token = st.session_state["decoders"][min(st.session_state["base"], len(st.session_state["decoders"]) - 1)]
        return next((place for place, each in enumerate(self.decoders) if each.token == token), 0)

    @property
    def models(self) -> list[Any]:
        return [each.architecture for each in self.decoders]


def draw() -> None:
    """Draw the page."""
    st.title("Compare decoders")
    edited = controls.editor()
    view = View(
        state.shown_decoders(),
        edited,
        state.number("context"),
        state.number("batch"),
        state.formats_asked(),
        st.session_state["scale"] == "log",
        st.session_state["bytes"] == "GiB",
    )
    drawn: dict[str, go.Figure] = {}
    frame = None
    if view.decoders and view.batch is not None:
        low, high = state.number("from"), state.number("to")
        if low is not None and high is not None:
            state.attempt(_cache, view, drawn, low, high)
        frame = state.attempt(_table, view)
        state.attempt(_metrics, view)
        if low is not None and high is not None:
            state.attempt(_work, view, drawn, low, high)
        state.attempt(_layers, view, drawn)
    if frame is not None:
        show.downloads(frame, "compare", drawn, view.models)


def _cache(view: View, drawn: dict[str, go.Figure], low: int, high: int) -> None:
    st.subheader("Cache over context")
    frame = sweep(view.models, context=contexts(low, high), batch=view.batch, **view.formats)
    lasts = frame.drop_duplicates("name", keep="last").to_dict("records")
    for row in lasts:
        if row["reason"]:
            st.warning(f"{state.plain(row['name'])}: {state.plain(row['reason'])}", icon=":material/warning:")
    drawn["cache"] = figures.cache_over_context(frame, log=view.log, binary=view.binary)
    st.caption("A ring marks the context at which the cache of the batch takes as many bytes as the weights.")
    picked = show.figure(drawn["cache"], "cache", reads=True)
    firsts = frame.drop_duplicates("name").to_dict("records")
    st.markdown("  \n".join(f"**{state.plain(row['name'])}** · {crossing(row)}" for row in firsts))
    points = picked.selection.points if picked else []
    if points:
        _reading(view, round(points[0]["x"]))
    else:
        st.caption("Click a point to read every decoder there.")


def _reading(view: View, context: int) -> None:
    read = compare(view.models, context=context, batch=view.batch, **view.formats).to_dict("records")
    names = ("cache_bytes", "prefill_flops", "decode_flops")
    rows = [[row["name"], *(show.amount(row[name], UNITS[name], view.binary) for name in names)] for row in read]
    st.markdown(f"**At {context:,} tokens**")
    show.table(f"figures at {context:,} tokens", ["decoder", "cache", "prefill", "decode step"], rows)


def _table(view: View) -> pd.DataFrame | None:
    if view.context is None:
        return None
    frame = compare(view.models, context=view.context, batch=view.batch, **view.formats)
    records = frame.to_dict("records")
    base = records[view.base]
    st.subheader(f"All figures at {view.context:,} tokens")
    st.caption(f"Small print: how many times the figure of {state.plain(base['name'])}.")
    shown = [name for name in METRICS if name != "cache_fixed_bytes" or (frame[name].fillna(0) > 0).any()]
    ratios = {name: [_ratio(row[name], base[name]) for row in records] for name in shown}
    rows = []
    for number, row in enumerate(records):
        small = "; ".join(filter(None, ("baseline" if row is base else "", *_remarks(row))))
        cells = [_cell(row, name, math.nan if row is base else ratios[name][number], view.binary) for name in shown]
        rows.append([f"{row['name']}\n{small}", *cells])
    show.table("all figures", ["decoder", *(METRICS[name] for name in shown)], rows)
    marks = ", ".join(f"{word} = {text}" for word, text in state.assumed().items())
    st.caption(f":blue-badge[assumed] {state.plain(marks)}")
    return frame.assign(**{f"{name}_ratio": values for name, values in ratios.items()})


def _ratio(value: Any, base: Any) -> float:
    """How many times the baseline's figure it is; NaN where one of them is unknown, or the baseline's is 0."""
    return math.nan if pd.isna(value) or pd.isna(base) or not base else value / base


def _cell(row: Mapping[str, Any], name: str, ratio: float, binary: bool) -> str:
    """A figure, and below it how many times the baseline's it is."""
    text = show.amount(row[name], UNITS[name], binary)
    return text if math.isnan(ratio) else f"{text}\n× {ratio:.4g}"


def _remarks(row: Mapping[str, Any]) -> tuple[str, ...]:
    stated = "parameters as stated" if row["weights_basis"] == "stated" else ""
    crossed = f"crossover {row['crossover_note']}" if row["crossover_note"] else ""
    return stated, crossed, row["warning"], row["reason"]


def _metrics(view: View) -> None:
    chosen = next((each for each in view.decoders if each.token == view.edited), None)
    if chosen is None or view.context is None:
        return
    st.subheader(f"{state.plain(chosen.label)}, figure by figure")
    load = Load(context=view.context, batch=view.batch, **view.formats)
    names = [name for name in METRICS if name != "cache_fixed_bytes"]
    with st.container(horizontal=True, gap="small"):
        for name, found in workings(chosen.architecture, load, names).items():
            with st.container(border=True, width=170):
                st.metric(METRICS[name], show.amount(found.value, found.unit, view.binary))
                with st.popover("How", key=f"how {name}"):
                    show.how(found, view.binary)


def _work(view: View, drawn: dict[str, go.Figure], low: int, high: int) -> None:
    chosen = next((each for each in view.decoders if each.token == view.edited), None)
    if chosen is None:
        return
    st.subheader(f"Work of {state.plain(chosen.label)} over context")
    for column, phase, title in zip(st.columns(2), ("prefill", "decode"), ("Prefill", "One decode step"), strict=True):
        with column:
            found = crossings(chosen.architecture, phase, batch=view.batch)
            frame = flops_by_group(chosen.architecture, phase, contexts(low, high), batch=view.batch)
            drawn[phase] = figures.flops_over_context(frame, found, title, log=view.log)
            st.markdown(f"**{title}**")
            show.figure(drawn[phase], phase)
            marks = [f"{row['over']} from {row['context']:,}" for _, row in found.iterrows()]
            st.caption(f"Attention overtakes {'; '.join(marks) or 'nothing'}{' tokens' if marks else ''}.")


def _layers(view: View, drawn: dict[str, go.Figure]) -> None:
    if view.context is None:
        return
    st.subheader("Cache bytes per token and layer")
    frame = cache_by_layer(view.models, view.context, view.formats.get("kv"))
    drawn["layers"] = figures.cache_by_layer(frame, binary=view.binary)
    show.figure(drawn["layers"], "layers")
    st.caption(f"What one token more adds at {view.context:,} tokens: a full window and a fixed state add nothing.")
