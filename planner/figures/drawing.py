"""What all figures share: styles of lines, labels that do not meet, axes with ticks in the units that people read.

A line is told apart by its colour, its dashes, its marker and the label at its end, so that no reader depends on the
colour; the colours are of middle lightness and stand on a white page as on a dark one, whose own colour is a halo
around every label that lies on lines. `layout.meta` holds the title and a sentence for those who cannot see the figure.
Names are text and nothing else, whatever they contain.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from planner.units import show

Row = Mapping[Any, Any]
"""Of a frame: name of a column -> value."""

Style = tuple[str, str, str]
STYLES: tuple[Style, ...] = (
    ("#3b7dd8", "solid", "circle"),
    ("#d17a00", "dash", "square"),
    ("#16915f", "dot", "diamond"),
    ("#a45ec4", "dashdot", "x"),
    ("#d0506a", "longdash", "triangle-up"),
    ("#0e93a8", "longdashdot", "triangle-down"),
    ("#8f8a00", "solid", "star"),
    ("#7a7f87", "dash", "hexagon"),
)
"""Colour, dashes and marker of the first line, the second, and so on."""

NEUTRAL = "#7a7f87"
HEIGHT = 440
MARGIN = {"l": 68, "r": 104, "t": 32, "b": 48}
LEGEND = 28  # pixels of a legend below the plot
LINE_HEIGHT = 15  # pixels between two labels, one above the other
LETTER = 6  # pixels of a character of a label
PILL = (8, 19)  # pixels of a character of a crossing's label, and of its height
LOW = 80  # pixels above the foot of the plot, below which there is no room for such labels
NARROWEST = 182  # pixels of the plot on a telephone, for which labels are kept apart
END = 8  # pixels between the plot and the names of its lines
LONGEST_NAME = 22
FEWEST = 3  # ticks of an axis from which its scale can be read
HALO = ",".join(["0 0 2px Canvas"] * 6)
"""Shadow of a label in the colour of the page, dense enough to hide a line."""


@dataclass(slots=True)
class Drawing:
    """A figure in the making, in plain tables.

    Plotly does not check them, which would take nine tenths of the time; the tests of the app have them checked.
    """

    title: str
    x: str
    y: str
    log: bool
    y_log: bool
    height: int = HEIGHT
    right: int = MARGIN["r"]
    legend: bool = False
    more: dict[str, Any] = field(default_factory=dict)
    traces: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    shapes: list[dict[str, Any]] = field(default_factory=list)
    axes: dict[str, dict[str, Any]] = field(default_factory=dict)
    taken: list[tuple[float, float, float]] = field(default_factory=list)  # labels: left, right, middle, in pixels

    def tokens_axis(self, values: Iterable[float]) -> None:
        """The x axis as positions: 10k and 1M, as they are typed in."""
        self._axis("x", values, self.log, 10, 1000, lambda tick: show(tick, "1").replace(" ", ""))

    def bytes_axis(self, values: Iterable[float], binary: bool) -> None:
        """The y axis as bytes, its ticks at round numbers of KiB, MiB, GiB or of kB, MB, GB."""
        base, kilo = (16, 1024) if binary else (10, 1000)
        self._axis("y", values, self.y_log, base, kilo, lambda tick: show(tick, "B", binary=binary))

    def flops_axis(self, values: Iterable[float]) -> None:
        """The y axis as FLOPs."""
        self._axis("y", values, self.y_log, 10, 1000, lambda tick: show(tick, "FLOP"))

    def axis(self, name: str, values: Iterable[float], unit: str, *, binary: bool = False) -> None:
        """The axis ``x`` or ``y`` of any unit; that of counts, and of what its title names, has bare prefixes."""
        base, kilo = (16, 1024) if binary else (10, 1000)
        bare = unit == "1"
        self._axis(
            name,
            values,
            self.log if name == "x" else self.y_log,
            base,
            kilo,
            lambda tick: show(tick, unit, binary=binary).replace(" ", "" if bare else " "),
        )

    def curve(
        self, name: str, x: Iterable[float], y: Iterable[float], texts: Sequence[str], style: Style
    ) -> dict[str, Any]:
        """Add a line with a marker at each point; `texts` are the values as a reader sees them."""
        colour, dash, symbol = style
        trace: dict[str, Any] = {
            "type": "scatter",
            "name": plain(name),
            "x": list(x),
            "y": [None if value != value else value for value in y],
            "text": list(texts),
            "mode": "lines+markers",
            "line": {"color": colour, "dash": dash, "width": 2},
            "marker": {"symbol": symbol, "size": 6, "color": colour},
            "selected": {"marker": {"size": 11}},
            "unselected": {"marker": {"opacity": 1}},
            "hovertemplate": "%{fullData.name}<br>%{x:,} tokens<br>%{text}<extra></extra>",
        }
        self.traces.append(trace)
        return trace

    def level(self, y: float, text: str, colour: str, dash: str, shift: float) -> None:
        """Add a line across the whole plot, its name above it at the left."""
        line = {"color": colour, "width": 1.5, "dash": dash}
        self.shapes.append({"type": "line", "xref": "x domain", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line})
        self._note(text, "x domain", 0, y, colour, xanchor="left", xshift=4, yanchor="bottom", yshift=shift)
        self.taken.append((4, 4 + LETTER * len(text), self._pixels(y) + shift + LINE_HEIGHT / 2))

    def rings(self, marks: Sequence[tuple[float, float, str, str]]) -> None:
        """A ring at each (x, y, colour, words), with x as its label below it, farther where that would hide another.

        At the right end, where the lines have their names, the label lies on the left of its ring; at the foot, where
        the axis has its own, above it. Labels lie above the threads of those on their right, which pass behind them.
        """
        before = len(self.notes)
        for x, y, colour, words in sorted(marks):
            text, at = f"{x:,.0f}", math.log10(x) if self.log else x
            left, width, anchor, ax = self._across(at), PILL[0] * len(text) + 8, "left", 4
            if left + width > NARROWEST + END:
                left, anchor, ax = left - width, "right", -4
            side = 1 if self._pixels(y) > LOW else -1
            down = self._clear(left, left + width, y, itertools.count(18 * side, PILL[1] * side))
            ring = {"symbol": "circle-open", "size": 13, "color": colour, "line": {"width": 2.5}}
            self.curve(words, [x], [y], [f"{text} tokens"], (colour, "solid", "circle-open")).update(
                name=plain(words, 80),
                mode="markers",
                marker=ring,
                hovertemplate="%{fullData.name}<br>%{text}<extra></extra>",
            )
            self._note(f"<b>{text}</b>", "x", at, y, "#ffffff", xanchor=anchor, yanchor="middle", ax=ax, ay=down)
            self.notes[-1]["font"]["shadow"] = "none"
            thread = {"showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": colour, "standoff": 7}
            self.notes[-1] |= {"bgcolor": _darker(colour), "borderpad": 2, **thread}
        self.notes[before:] = reversed(self.notes[before:])

    def tags(self, marks: Sequence[tuple[float, float, str, str]], *, below: bool = False) -> None:
        """Words beside each (x, y, colour, words), where they hide no others; on its left at the right end.

        `below`: none lies above its point, where a roof is.
        """
        for x, y, colour, words in sorted(marks):
            at, width = math.log10(x) if self.log else x, PILL[0] * len(words)
            left = self._across(at) + 8
            anchor, shift = "left", 8
            if left + width > NARROWEST:
                left, anchor, shift = left - width - 16, "right", -8
            far = itertools.count(12, PILL[1])
            down = self._clear(left, left + width, y, far if below else (step for n in far for step in (n, -n)))
            self._note(plain(words), "x", at, y, colour, xanchor=anchor, xshift=shift, yanchor="middle", yshift=-down)

    def upright(self, x: float, words: str, colour: str, side: str = "left", dash: str = "dot") -> None:
        """Add a line up the whole plot at x, its name on that side of its foot, above those of other such lines."""
        above = LINE_HEIGHT * sum(shape.get("yref") == "y domain" for shape in self.shapes)
        line = {"color": colour, "width": 1.5, "dash": dash}
        self.shapes.append({"type": "line", "yref": "y domain", "y0": 0, "y1": 1, "x0": x, "x1": x, "line": line})
        at = math.log10(x) if self.log else x
        anchor, shift = ("right", -4) if side == "left" else ("left", 4)
        self._note(words, "x", at, 0, colour, xanchor=anchor, xshift=shift, yanchor="bottom", yshift=3 + above)
        self.notes[-1] |= {"yref": "y domain", "y": 0}

    def end_labels(self, lines: Iterable[tuple[Iterable[float], str, str]]) -> None:
        """The name of each line (values, name, colour) at its right end, moved apart where lines end close together."""
        known = [([float(y) for y in values if y == y], name, colour) for values, name, colour in lines]
        ends = [(values[-1], name, colour) for values, name, colour in known if values]
        for (y, name, colour), shift in zip(ends, self.apart([y for y, _, _ in ends]), strict=True):
            self._note(
                plain(name, 15), "x domain", 1, y, colour, xanchor="left", xshift=END, yanchor="middle", yshift=shift
            )

    def apart(self, heights: Sequence[float]) -> list[float]:
        """How far each label moves up from its height on the y axis, in pixels, so that none lies on another.

        Where they would leave the plot, whose top is the name of the axis, they move down.
        """
        places = [self._pixels(y) for y in heights]
        moved, order = list(places), sorted(range(len(places)), key=places.__getitem__)
        for lower, upper in itertools.pairwise(order):
            moved[upper] = max(moved[upper], moved[lower] + LINE_HEIGHT)
        ceiling = self._rise - LINE_HEIGHT / 2
        for place in reversed(order):
            moved[place] = min(moved[place], ceiling)
            ceiling = moved[place] - LINE_HEIGHT
        return [new - old for new, old in zip(moved, places, strict=True)]

    def done(self, alt: str) -> go.Figure:
        """The figure, with the sentence for those who cannot see it."""
        axis = {"fixedrange": True, "ticks": "outside", "zeroline": False}
        layout = {
            "height": self.height + (LEGEND if self.legend else 0),
            "margin": {**MARGIN, "r": self.right, "b": MARGIN["b"] + (LEGEND if self.legend else 0)},
            "showlegend": self.legend,
            "legend": {
                "orientation": "h",
                "x": 0.5,
                "xanchor": "center",
                "y": 0,
                "yref": "container",
                "yanchor": "bottom",
            },
            "hovermode": "closest",
            "dragmode": False,
            "clickmode": "event+select",
            "meta": {"title": self.title, "alt": alt},
            "xaxis": {"title": {"text": self.x}, **axis, **self.axes.get("x", {})},
            "yaxis": {**axis, **self.axes.get("y", {})},
            "annotations": [*self.notes, self._above(self.y)],
            "shapes": self.shapes,
            **self.more,
        }
        return go.Figure({"data": self.traces, "layout": layout}, _validate=False)

    def _above(self, text: str) -> dict[str, Any]:
        """The name of the y axis, over it and level, where it takes no width."""
        place = {
            "xref": "paper",
            "yref": "paper",
            "x": 0,
            "y": 1,
            "xanchor": "left",
            "yanchor": "bottom",
            "xshift": -56,
        }
        return {"text": text, "showarrow": False, "yshift": 8, "font": {"size": 13}, **place}

    def _note(self, text: str, xref: str, x: float, y: float, colour: str, **place: Any) -> None:
        font = {"color": colour, "size": 12, "shadow": HALO}
        note = {"text": text, "xref": xref, "x": x, "y": self._height(y), "showarrow": False, "font": font}
        self.notes.append({**note, **place})

    def _pixels(self, y: float) -> float:
        """The height of a value above the foot of the plot."""
        low, high = self.axes["y"]["range"]
        return float((self._height(y) - low) / (high - low) * self._rise)

    @property
    def _rise(self) -> int:
        """The height of the plot."""
        return self.height - MARGIN["t"] - MARGIN["b"]

    def _across(self, at: float) -> float:
        """How far right a place on the x axis is on a telephone, in pixels."""
        low, high = self.axes["x"]["range"]
        return float((at - low) / (high - low) * NARROWEST)

    def _clear(self, left: float, right: float, y: float, steps: Iterable[int]) -> int:
        """The first of some steps below y at which a label hides none of those `taken`, which it joins."""
        height = self._pixels(y)
        down = next(
            step
            for step in steps
            if all(right < a or b < left or abs(height - step - c) >= PILL[1] for a, b, c in self.taken)
        )
        self.taken.append((left, right, height - down))
        return down

    def _height(self, y: float) -> float:
        """Where a value lies on the y axis, whose places Plotly counts in powers of ten if it is logarithmic."""
        return math.log10(y) if self.y_log and y > 0 else y

    def _axis(self, name: str, values: Iterable[float], log: bool, base: int, kilo: int, text: Any) -> None:
        known = [float(value) for value in values if value > 0] or [1.0, 10.0]
        low, high = min(known), max(known)
        ticks = _powers(low, high, base) if log else _steps(high, kilo)
        pad = 0.03 * math.log10(high / low) or 0.1
        span = [math.log10(low) - pad, math.log10(high) + pad] if log else [0, high * 1.06]
        texts = [text(tick) for tick in ticks]
        self.axes[name] = {"type": "log" if log else "linear", "range": span, "tickvals": ticks, "ticktext": texts}


def plain(name: str, longest: int = LONGEST_NAME) -> str:
    """A name as a figure shows it: short, printable, and text even where it looks like markup.

    >>> plain("<b>bold</b>"), plain("a-model-with-quite-a-long-name")
    ('&lt;b&gt;bold&lt;/b&gt;', 'a-model-with-quite-a-…')
    """
    text = "".join(c if c.isprintable() else "?" for c in name)
    return html.escape(text if len(text) <= longest else text[: longest - 1] + "…", quote=False)


def _darker(colour: str) -> str:
    """A colour on which white letters read well."""
    return "#" + "".join(f"{int(colour[i : i + 2], 16) * 3 // 4:02x}" for i in (1, 3, 5))


def styles(names: Iterable[str]) -> list[Style]:
    """A style for each name."""
    return [style for _, style in zip(names, itertools.cycle(STYLES), strict=False)]


def to_html(figure: go.Figure) -> str:
    """The figure as one white page that needs nothing else: Plotly is inside it; its letters are wide."""
    room = {"t": 72, "r": figure.layout.margin.r + 24}
    page = go.Figure(figure).update_layout(title=figure.layout.meta["title"], margin=room, template="plotly_white")
    return str(page.to_html(include_plotlyjs=True, full_html=True, config={"displaylogo": False}))


def _powers(low: float, high: float, base: int) -> list[float]:
    """Powers of a base within a range, fewer where there are many, parts of them or round steps where few."""
    if low == high:
        return [low]
    first, last = math.ceil(math.log(low, base) - 1e-9), math.floor(math.log(high, base) + 1e-9)
    if last > first:
        stride = math.ceil((last - first + 1) / 8)
        return [float(base) ** power for power in range(first, last + 1, stride)]
    parts = (1, 2, 5) if base == 10 else (1, 2, 4, 8)
    candidates = (part * float(base) ** power for power in range(first - 1, last + 1) for part in parts)
    if len(ticks := [tick for tick in candidates if low <= tick <= high]) >= FEWEST:
        return ticks
    steps = (_round_step((high - low) / pieces, base) for pieces in (4, 6))
    choices = (
        [step * n for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)] for step in steps
    )
    return next(ticks for ticks in choices if len(ticks) >= FEWEST)


def _steps(high: float, kilo: int) -> list[float]:
    """About five round numbers from 0 up, round in the prefix that suits the greatest."""
    prefix = float(kilo) ** max(0, math.floor(math.log(high, kilo)))
    step = _round_step(high / prefix / 5, 10)
    return [index * step * prefix for index in range(int(high / prefix / step) + 1)]


def _round_step(rough: float, base: int) -> float:
    """A round number, not below a rough one."""
    power = float(base) ** math.floor(math.log(rough, base))
    return next(n * power for n in ((1, 2, 2.5, 5, 10) if base == 10 else (1, 2, 4, 8, 16)) if n * power >= rough)
