"""What it costs: a fleet's month against an API's, and layouts by speed for a user against the price of a token."""

from __future__ import annotations

import html
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from planner.figures.drawing import NEUTRAL, STYLES, Drawing, Row, Style, styles
from planner.units import show

DOMINATED = 0.45  # opacity of a layout that another beats
SPEED, PRICE = "output_tok_s_per_user", "usd_per_mtok_blended"
ROOM = 1.2  # beyond the outermost layouts, for their ranks


def break_even(
    frame: pd.DataFrame, capacity: float, crossing: float | None, api: str, *, log: bool = True
) -> go.Figure:
    """USD a month over requests a month: the fleet, which grows by replicas, the API, and where it becomes dearer.

    `frame` is `planner.cost.Cost.over_requests`; `capacity` the requests that the planned fleet serves, `crossing`
    where its month costs what the API charges, None where it never does, `api` the API's name.
    """
    drawing = Drawing("Fleet against API", "requests a month", "USD a month", log, log, right=72)
    drawing.axis("x", frame["requests"], "1")
    lines = [("fleet", frame["fleet_usd"], STYLES[0])]
    if frame["api_usd"].notna().all():
        lines.append(("API", frame["api_usd"], STYLES[1]))
    drawing.axis("y", [usd for _, values, _ in lines for usd in values], "1")
    for name, values, style in lines:
        texts = [f"{n:,.0f} requests<br>{usd:,.2f} USD" for n, usd in zip(frame["requests"], values, strict=True)]
        trace = drawing.curve(name, frame["requests"], values, texts, style)
        trace |= {"mode": "lines", "hovertemplate": "%{fullData.name}<br>%{text}<extra></extra>"}
    drawing.upright(capacity, f"capacity {show(capacity, '1').replace(' ', '')}", NEUTRAL)
    if crossing is not None:
        usd = float(frame["fleet_usd"].iloc[0])
        drawing.rings([(crossing, usd, STYLES[1][0], f"the month at {api} costs what the fleet does")])
        drawing.traces[-1]["text"] = [f"{crossing:,.0f} requests"]
    drawing.end_labels([(values, name, style[0]) for name, values, style in lines])
    where = "never" if crossing is None else f"from {crossing:,.0f} requests a month"
    return drawing.done(
        f"Monthly cost over requests. The fleet serves {capacity:,.0f} and is cheaper than {api} {where}."
    )


def pareto(frame: pd.DataFrame, undominated: Sequence[bool]) -> go.Figure:
    """Every layout that carries the load: tokens a second of each user against the price of a million tokens.

    `frame` is `planner.sizing.size`, `undominated` says which rows no other beats; those have their ranks beside
    them and are joined, the others are pale.
    """
    known = frame.assign(best=list(undominated)).dropna(subset=[SPEED, PRICE])
    names = list(dict.fromkeys(known["accelerator"]))
    drawing = Drawing(
        "Speed against price", "tokens a second of each user", "USD for a million tokens", True, True, right=24,
        legend=len(names) > 1,
    )  # fmt: skip
    for axis, name in (("x", SPEED), ("y", PRICE)):
        drawing.axis(axis, [known[name].min() / ROOM, known[name].max() * ROOM], "1")
    rows = known.to_dict("records")
    front = sorted((row for row in rows if row["best"]), key=lambda row: row[SPEED])
    x, y = ([row[name] for row in front] for name in (SPEED, PRICE))
    line = drawing.curve("best", x, y, [], (NEUTRAL, "dot", "circle"))
    line |= {"mode": "lines", "hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
    tags = []
    for name, style in zip(names, styles(names), strict=True):
        for best in (False, True):
            part = [row for row in rows if row["accelerator"] == name and row["best"] == best]
            _layouts(drawing, name, part, style, best)
            if best:
                tags += [(row[SPEED], row[PRICE], style[0], f"{row['rank']}") for row in part]
    drawing.tags(tags)
    said = "; ".join(f"{layout_of(row)} {row[SPEED]:,.1f} token/s at {row[PRICE]:,.4g} USD" for row in front)
    return drawing.done(f"Layouts that no other beats: {said or 'none'}.")


def _layouts(drawing: Drawing, name: str, part: Sequence[Row], style: Style, best: bool) -> None:
    """The layouts of one accelerator that no other beats, or the pale ones that another does."""
    texts = [
        f"{html.escape(layout_of(row))}<br>{row[SPEED]:,.1f} token/s of a user"
        f"<br>{row[PRICE]:,.4g} USD per million tokens{'' if best else '<br>another is better'}"
        for row in part
    ]
    x, y = ([row[name] for row in part] or [None] for name in (SPEED, PRICE))
    trace = drawing.curve(name, x, y, texts, style)
    trace |= {
        "mode": "markers",
        "marker": {
            "symbol": style[2],
            "color": style[0],
            "size": 12 if best else 8,
            "opacity": 1 if best else DOMINATED,
        },
        "hovertemplate": "%{fullData.name}<br>%{text}<extra></extra>",
        "showlegend": best,
    }


def layout_of(row: Row) -> str:
    """A row of `size` in a few words: how many of which accelerator, and what divides the work among them.

    >>> layout_of({"accelerator": "l4", "count": 16, "tp": 8, "pp": 1, "dp": 2, "attention_dp": 1, "ep": 8})
    '16 x l4, tp8 dp2 ep8'
    """
    kinds = {"tp": "tp", "pp": "pp", "dp": "dp", "attention_dp": "adp", "ep": "ep"}
    parts = [f"{short}{row[name]}" for name, short in kinds.items() if row[name] > 1]
    return ", ".join(filter(None, (f"{row['count']} x {row['accelerator']}", " ".join(parts))))
