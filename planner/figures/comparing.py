"""Decoders compared: the cache along the context, the work along the context, the cache layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from planner.figures.drawing import NEUTRAL, STYLES, Drawing, plain, styles
from planner.units import show


def cache_over_context(frame: pd.DataFrame, *, log: bool = True, binary: bool = True) -> go.Figure:
    """The cache of each model along the context, the weights as a line, and where they meet, labelled in tokens.

    `frame` is a sweep over ``context``: name, context, cache_bytes, weight_bytes, crossover_tokens, crossover_note.
    `log`: both axes logarithmic; `binary`: bytes in KiB, MiB, GiB.
    """
    models = _models(frame)
    drawing = Drawing("Cache over context", "context of each sequence, tokens", "cache of the batch", log, log)
    weights = {name: float(part["weight_bytes"].iloc[0]) for name, part in models.items()}
    drawing.tokens_axis(frame["context"])
    drawing.bytes_axis([*frame["cache_bytes"], *weights.values()], binary)
    ends, marks = [], []
    for (name, part), style in zip(models.items(), styles(models), strict=True):
        texts = [show(value, "B", binary=binary) for value in part["cache_bytes"]]
        drawing.curve(name, part["context"], part["cache_bytes"], texts, style)
        ends.append((part["cache_bytes"], name, style[0]))
        tokens = float(part["crossover_tokens"].iloc[0])
        if part["context"].min() <= tokens <= part["context"].max():
            marks.append((tokens, weights[name], style[0], f"{name}: cache = weights"))
    _weight_levels(drawing, weights, binary)
    drawing.rings(marks)
    drawing.end_labels(ends)
    said = "; ".join(f"{name}: {crossing(part.iloc[0])}" for name, part in models.items())
    return drawing.done(f"Cache of each decoder along the context, with its weights. {said}.")


def flops_over_context(frame: pd.DataFrame, crossings: pd.DataFrame, title: str, *, log: bool = True) -> go.Figure:
    """The work of one phase along the context, a line for each part of it, marked where attention overtakes others.

    `frame` has a column ``context`` and one for each part (`planner.curves.flops_by_group`), `crossings` the columns
    over, context and flops (`planner.curves.crossings`).
    """
    parts = [name for name in frame.columns if name != "context" and (frame[name] > 0).any()]
    drawing = Drawing(title, "context, tokens", "FLOPs", log, log)
    drawing.tokens_axis(frame["context"])
    drawing.flops_axis(frame[parts].to_numpy().ravel())
    part_styles = dict(zip(parts, styles(parts), strict=True))
    for name, style in part_styles.items():
        drawing.curve(name, frame["context"], frame[name], [show(value, "FLOP") for value in frame[name]], style)
    inside = crossings[crossings["context"].between(frame["context"].min(), frame["context"].max())]
    colour = part_styles.get("attention", STYLES[0])[0]
    drawing.rings([(x, y, colour, f"attention overtakes {over}") for over, x, y in inside.itertuples(index=False)])
    drawing.end_labels([(frame[name], name, style[0]) for name, style in part_styles.items()])
    said = ", ".join(f"{over} at {x:,.0f} tokens" for over, x, _ in crossings.itertuples(index=False))
    return drawing.done(f"{title} along the context by part. Attention overtakes {said or 'nothing'}.")


def cache_by_layer(frame: pd.DataFrame, *, log: bool = False, binary: bool = True) -> go.Figure:
    """Bytes that one token adds to each layer's cache: steps, a line for each model (`planner.curves.cache_by_layer`).

    Layers that add nothing, whose window is full or whose state is fixed, lie at 0, and are left out where `log`.
    """
    models = _models(frame)
    drawing = Drawing("Cache bytes per token and layer", "layer, counted from 0", "added by one token", False, log)
    drawing.bytes_axis(frame["cache_bytes_per_token"], binary)
    ends, said = [], []
    for (name, part), style in zip(models.items(), styles(models), strict=True):
        sizes = part["cache_bytes_per_token"].astype(float)
        texts = [
            f"{show(size, 'B', binary=binary)} {plain(label)}" for size, label in zip(sizes, part["label"], strict=True)
        ]
        drawn = sizes.where((sizes > 0) | (not log))
        trace = drawing.curve(name, part["layer"], drawn, texts, style)
        trace["line"] |= {"shape": "hvh", "dash": "solid", "width": 1}  # dashes of so many corners are no steps
        trace["marker"]["size"] = 5
        trace["hovertemplate"] = "%{fullData.name}<br>layer %{x}<br>%{text}<extra></extra>"
        ends.append((drawn, name, style[0]))
        distinct = sizes.value_counts(sort=False).items()
        said.append(f"{name}: " + ", ".join(f"{n} layers of {size:,.0f} B" for size, n in distinct))
    drawing.end_labels(ends)
    return drawing.done(f"{drawing.title}. {'; '.join(said)}.")


def crossing(row: Any) -> str:
    """Where a row's cache reaches the weights, in words."""
    tokens = float(row["crossover_tokens"])
    if math.isnan(tokens):
        return str(row["crossover_note"]) or "no crossover"
    return f"cache = weights at {tokens:,.0f} tokens"


def _models(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {str(name): part for name, part in frame.groupby("name", sort=False, observed=True)}


def _weight_levels(drawing: Drawing, weights: Mapping[str, float], binary: bool) -> None:
    """A line for all models whose weights are equal; that of one model alone has the model's colour."""
    sizes: dict[float, list[str]] = {}
    for name, size in weights.items():
        sizes.setdefault(size, []).append(name)
    colours = {name: style[0] for name, style in zip(weights, styles(weights), strict=True)}
    shifts = drawing.apart(list(sizes))
    for (size, names), shift in zip(sizes.items(), shifts, strict=True):
        whose = "" if len(sizes) == 1 else plain(", ".join(names), 16) + " "
        colour, dash = (colours[names[0]], "dot") if len(names) == 1 and len(sizes) > 1 else (NEUTRAL, "solid")
        drawing.level(size, f"{whose}weights {show(size, 'B', binary=binary)}", colour, dash, shift)
