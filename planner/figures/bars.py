"""Bars one after another: what a whole is made of, each part with its name before it and its amount behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from planner.figures.drawing import MARGIN, NEUTRAL, Drawing

BAR = 34  # pixels of a bar with its gap
AROUND = 90  # pixels above and below all bars
TICKS = 4  # for which a telephone has room
LEFT, RIGHT = 96, 84  # pixels for the longest line of a name, and for an amount

Look = tuple[str, str]
"""Colour and pattern of a bar; the words beside it say the same."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One part, from where it begins; `text` is its amount as a reader sees it, `kind` what it is beside its name."""

    name: str
    start: float
    size: float
    text: str
    look: Look
    kind: str = ""


def waterfall(
    title: str,
    x: str,
    unit: str,
    bars: Sequence[Bar],
    alt: str,
    *,
    binary: bool = False,
    limit: float | None = None,
) -> go.Figure:
    """Level bars from top to bottom in the order given; `x` names their axis in `unit`, a dashed line marks a limit."""
    drawing = Drawing(title, x, "", False, False, BAR * len(bars) + AROUND, RIGHT)
    drawing.more = {"margin": {**MARGIN, "l": LEFT, "r": RIGHT}, "bargap": 0.3, "barmode": "overlay"}
    drawing.axis("x", [bar.start + bar.size for bar in bars], unit, binary=binary)
    ticks = {name: values[:: 1 + len(values) // TICKS] for name, values in drawing.axes["x"].items() if "tick" in name}
    drawing.axes["x"] |= {**ticks, "tickangle": 0}
    drawing.axes["y"] = {"type": "category", "autorange": "reversed", "ticks": ""}
    for bar in bars:
        name = _two_lines(bar.name)
        drawing.traces.append(_trace(name, bar))
        place = {"xref": "x domain", "x": 1, "xanchor": "left", "xshift": 6, "y": name, "yanchor": "middle"}
        drawing.notes.append({"text": bar.text, "showarrow": False, **place})
    if limit is not None:
        line = {"color": NEUTRAL, "width": 1.5, "dash": "dash"}
        place = {"yref": "y domain", "y0": 0, "y1": 1, "x0": limit, "x1": limit}
        drawing.shapes.append({"type": "line", "line": line, **place})
    return drawing.done(alt)


def _trace(name: str, bar: Bar) -> dict[str, Any]:
    colour, pattern = bar.look
    return {
        "type": "bar",
        "orientation": "h",
        "name": bar.name,
        "y": [name],
        "x": [bar.size],
        "base": [bar.start],
        "text": [bar.text],
        "textposition": "none",
        "marker": {"color": colour, "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": "#ffffff"}},
        "hovertemplate": f"%{{fullData.name}}{f' ({bar.kind})' if bar.kind else ''}<br>%{{text}}<extra></extra>",
    }


def _two_lines(name: str) -> str:
    """A name of several words, broken after the first."""
    return name.replace(" ", "<br>", 1) if len(name) > 12 else name
