"""Where time goes: every product under the roofs of its device, and a phase's seconds beside its floor."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

import pandas as pd
import plotly.graph_objects as go

from planner.curves import GROUPS
from planner.figures.bars import Bar, waterfall
from planner.figures.drawing import NEUTRAL, STYLES, Drawing, Row
from planner.units import show

PHASES = {"prefill": STYLES[0], "decode": STYLES[1]}
TAGS = 3  # products of a phase that are named, those that take longest
SIZES = (7, 24)  # pixels of a product that takes no time, and of one that takes the whole phase

SPENT = {
    "compute": (STYLES[0][0], ""),
    "bandwidth": (STYLES[1][0], "/"),
    "host link": (STYLES[3][0], "+"),
    "link": (STYLES[3][0], "x"),
    "fixed time": (NEUTRAL, "."),
    "overlap": (STYLES[4][0], "-"),
    "waiting": (STYLES[4][0], "+"),
}
"""What a phase's seconds are spent on -> how its bar looks."""

TOTAL, FLOOR = (STYLES[5][0], ""), (STYLES[2][0], ".")


def roofline(products: pd.DataFrame, roofs: pd.DataFrame, *, binary: bool = True) -> go.Figure:
    """Every product of both phases as a point, FLOPs for each byte against FLOP/s, under the roofs of its device.

    `products` and `roofs` are those of `planner.speed.Estimate`. A point's size is its share of the phase's time; the
    solid roof is the data sheet's, the dashed one what is assumed to be reached, and at a ridge both limits bind. What
    computes nothing, or moves nothing of its own, has no place under a roof.
    """
    points = [
        {**row, "intensity": row["flops"] / row["bytes"], "rate": row["flops"] / row["seconds"]}
        for row in products.to_dict("records")
        if row["flops"] > 0 and row["bytes"] > 0
    ]
    drawn = roofs.sort_values("peak_ridge").to_dict("records")
    intensities = [row["intensity"] for row in points] + [roof["peak_ridge"] for roof in drawn]
    low, high = min(intensities) / 3, max(intensities) * 3
    drawing = Drawing("Roofline", "FLOPs for each byte moved", "FLOP/s of one rank", True, True, right=24, legend=True)
    drawing.axis("x", [low, high], "1")
    least = min(*(row["rate"] for row in points), *(roof["reached_bytes_per_s"] * low for roof in drawn))
    drawing.axis("y", [least, 2 * max(roof["peak_flops_per_s"] for roof in drawn)], "FLOP/s")
    for number, roof in enumerate(drawn):
        _roof(drawing, roof, low, high, "right" if number else "left")
    tags, said = [], []
    totals = products.groupby("phase")["seconds"].sum()
    for phase, style in PHASES.items():
        part = sorted((row for row in points if row["phase"] == phase), key=lambda row: -row["seconds"])
        _products(drawing, phase, part, totals[phase], binary)
        named: dict[str, Row] = {}  # of each part of the work the product that takes longest
        for row in part:
            named.setdefault(GROUPS[row["component"]], row)
        tags += [(row["intensity"], row["rate"], style[0], name) for name, row in list(named.items())[:TAGS]]
        binds = Counter(row["binding"] for row in part)
        said.append(f"{phase}: {', '.join(f'{name} {n}' for name, n in binds.most_common())}")
    drawing.tags(tags, below=True)
    peaks = ", ".join(f"{roof['format']} {show(roof['peak_flops_per_s'], 'FLOP/s')}" for roof in drawn)
    return drawing.done(f"Products under the roofs of {peaks}. How many each limit binds: {'; '.join(said)}.")


def _roof(drawing: Drawing, roof: Row, low: float, high: float, side: str) -> None:
    for kind, dash in (("peak", "solid"), ("reached", "dash")):
        flops, slope, ridge = (roof[f"{kind}_{name}"] for name in ("flops_per_s", "bytes_per_s", "ridge"))
        name = f"{roof['format']} {'data sheet' if kind == 'peak' else 'reached'}"
        x, y = [low, ridge, high], [slope * low, flops, flops]
        trace = drawing.curve(name, x, y, [show(rate, "FLOP/s") for rate in y], (NEUTRAL, dash, "circle"))
        trace |= {"mode": "lines", "showlegend": False, "hovertemplate": "%{fullData.name}<br>%{text}<extra></extra>"}
    drawing.upright(roof["peak_ridge"], f"{roof['format']} ridge {roof['peak_ridge']:,.0f}", NEUTRAL, side)


def _products(drawing: Drawing, phase: str, part: Sequence[Row], total: float, binary: bool) -> None:
    texts = [
        f"{html.escape(row['product'])}<br>{show(row['flops'], 'FLOP')}, {show(row['bytes'], 'B', binary=binary)}, "
        f"{show(row['seconds'], 's')}<br>{row['intensity']:,.1f} FLOP/B, {show(row['rate'], 'FLOP/s')}"
        f"<br>{row['binding']} binds"
        for row in part
    ]
    colour, _, symbol = PHASES[phase]
    x, y = ([row[name] for row in part] for name in ("intensity", "rate"))
    trace = drawing.curve(phase, x, y, texts, PHASES[phase])
    least, most = SIZES
    sizes = [least + (most - least) * (seconds / total) ** 0.5 for seconds in (row["seconds"] for row in part)]
    trace |= {
        "mode": "markers",
        "marker": {
            "symbol": symbol,
            "size": sizes,
            "color": colour,
            "opacity": 0.75,
            "line": {"color": "#ffffff", "width": 1},
        },
        "hovertemplate": "%{fullData.name}<br>%{text}<extra></extra>",
    }


def seconds_spent(spent: Mapping[str, float], floor_s: float, title: str) -> go.Figure:
    """The seconds of a phase by what they are spent on (the words of `SPENT`), one after another, over its floor.

    What is negative, the overlap of stages, goes back by so much.
    """
    known = {what: seconds for what, seconds in spent.items() if seconds}
    starts = accumulate(known.values(), initial=0.0)
    bars = [
        Bar(what, min(start, start + seconds), abs(seconds), show(seconds, "s"), SPENT[what])
        for (what, seconds), start in zip(known.items(), starts, strict=False)
    ]
    total = sum(known.values())
    said = ", ".join(f"{bar.name} {bar.text}" for bar in bars)
    bars.append(Bar("estimate", 0, total, f"<b>{show(total, 's')}</b>", TOTAL))
    bars.append(Bar("floor", 0, floor_s, f"<b>{show(floor_s, 's')}</b>", FLOOR))
    alt = f"{title}: estimate {show(total, 's')} ({said}), floor {show(floor_s, 's')}."
    return waterfall(title, "seconds", "s", bars, alt)
