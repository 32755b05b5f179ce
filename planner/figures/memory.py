"""The memory of one rank as a waterfall: what it holds, what is kept back, what is free."""

from __future__ import annotations

from itertools import accumulate

import pandas as pd
import plotly.graph_objects as go

from planner.figures.bars import Bar, waterfall
from planner.figures.drawing import NEUTRAL, STYLES
from planner.units import show

LOOKS = {
    "needed": (STYLES[0][0], ""),
    "reserved": (NEUTRAL, "/"),
    "free": (STYLES[2][0], "."),
    "missing": (STYLES[4][0], "x"),
}


def memory_waterfall(frame: pd.DataFrame, usable_bytes: int, *, binary: bool = True) -> go.Figure:
    """The terms of one rank, one after another, up to its usable memory; what is left is free, what exceeds it missing.

    `frame` are the rows of one rank as `planner.memory.Fit.to_frame` has them: term, bytes, kind.
    """
    terms = list(zip(frame["term"], map(int, frame["bytes"]), frame["kind"], strict=True))
    starts = [0, *accumulate(size for _, size, _ in terms)]
    left = usable_bytes - starts[-1]
    rest = "free" if left >= 0 else "missing"
    bars = [
        Bar(term, start, size, show(size, "B", binary=binary), LOOKS[kind], kind)
        for (term, size, kind), start in zip(terms, starts[:-1], strict=True)
    ]
    amount = show(abs(left), "B", binary=binary)
    bars.append(Bar(rest, min(starts[-1], usable_bytes), abs(left), f"<b>{amount}</b>", LOOKS[rest]))
    usable = show(usable_bytes, "B", binary=binary)
    said = ", ".join(f"{bar.name} {bar.text}" for bar in bars[:-1])
    alt = f"Memory of one rank with {usable} usable: {said}, {rest} {amount}."
    x = f"dashed: {usable} usable"
    return waterfall("Memory of one rank", x, "B", bars, alt, binary=binary, limit=usable_bytes)
