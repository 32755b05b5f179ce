"""Tables that charts are drawn from: a decoder's work by what does it, and the cache layer by layer.

The cache along the context is a plain `sweep`; what stands here are the two splits that no sweep has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from planner import accounts, folds
from planner.bill import Part, Pass
from planner.contract import Architecture
from planner.errors import UsageError
from planner.summary import CacheCurve

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = get_args(Phase)

GROUPS = {
    "attention": "projection",
    "attention_core": "attention",
    "ffn_dense": "feed-forward",
    "experts_routed": "feed-forward",
    "experts_shared": "feed-forward",
    "router": "feed-forward",
    "lm_head": "head",
    "recurrence": "state",
    "ssm_conv_mixer": "state",
    "other": "other",
}
"""Component of a matrix product -> the part of the work that it is shown as."""

OVER = ("projection", "feed-forward", "everything else")
"""What attention's work is held against."""

FARTHEST = 10**9
"""Positions up to which it is looked for where one part of the work overtakes another."""


def contexts(low: int, high: int, points: int = 31) -> list[int]:
    """Whole numbers from `low` to `high`, both included, evenly spaced on a logarithmic scale.

    >>> contexts(1000, 1_000_000, 4)
    [1000, 10000, 100000, 1000000]
    """
    if not 1 <= low < high:
        raise UsageError(f"the context runs from {low:,} to {high:,}; it begins at 1 or more and ends above that")
    inner = np.geomspace(low, high, points)[1:-1]
    return sorted({low, high, *(round(float(x)) for x in inner)})


def flops_by_group(model: Architecture, phase: Phase, lengths: Sequence[int], **conventions: Any) -> pd.DataFrame:
    """FLOPs of one phase along the context: projection, attention, feed-forward, head, and what else there is.

    A prefill reads a prompt of that length; a decode step follows that many cached positions. `conventions` are those
    of `flops`: batch, attention, logits, mla. A row for each context, a float64 column for each part; NaN where the
    context is beyond a learned position table.

    >>> import planner
    >>> flops_by_group(planner.load("gqa-8"), "decode", [1000])["attention"].tolist()
    [524812288.0]
    """
    context = np.asarray(lengths, float)
    learned = model.embedding.learned_positions
    column = context if learned is None else np.where(context <= learned, context, np.nan)
    groups = {name: work + 0 * column for name, work in _grouped(model.parts(), phase, column, conventions).items()}
    frame = pd.DataFrame({"context": context, **groups})
    frame.attrs["units"] = {"context": "token", **dict.fromkeys(groups, "FLOP")}
    return frame


def crossings(model: Architecture, phase: Phase, **conventions: Any) -> pd.DataFrame:
    """Where attention overtakes projection, feed-forward and everything else: a row for each that it does overtake.

    `context` is the first whole length at which its work is at least the other's, `flops` its work there, bisected on
    the exact counts up to a billion positions. A step after 5,119 cached positions sees 5,120, its own too.

    >>> import planner
    >>> m = planner.load("llama-3.1-8b")
    >>> crossings(m, "prefill")["context"].tolist(), crossings(m, "decode")["context"].tolist()
    ([10239, 43007, 53248], [5119, 21503, 28627])
    """
    parts, rows = model.parts(), []
    grid = np.geomspace(1, model.embedding.learned_positions or FARTHEST, 500)
    swept = _grouped(parts, phase, grid, conventions)
    for over in OVER:
        reached = np.flatnonzero(swept["attention"] >= np.maximum(_other(swept, over), 1) + 0 * grid)
        if len(reached):
            near = grid[max(reached[0] - 2, 0)], grid[min(reached[0] + 1, len(grid) - 1)]
            found = _first(parts, phase, over, int(near[0]), int(near[1]), conventions)
            work = _grouped(parts, phase, found, conventions)["attention"]
            rows.append({"over": over, "context": found, "flops": work})
    return pd.DataFrame(rows, columns=["over", "context", "flops"])


def _first(parts: Sequence[Part], phase: Phase, over: str, low: int, high: int, conventions: Any) -> int:
    """The first length from `low` to `high` at which attention's work reaches another part's, on the exact counts."""
    while high - low > 1:
        middle = (low + high) // 2
        groups = _grouped(parts, phase, middle, conventions)
        low, high = (low, middle) if groups["attention"] >= _other(groups, over) else (middle, high)
    return high


def _other(groups: dict[str, Any], over: str) -> Any:
    """The work that attention's is held against."""
    return (
        sum(work for name, work in groups.items() if name != "attention") if over == "everything else" else groups[over]
    )


def cache_by_layer(models: Sequence[Architecture], context: int, kv: str | None = None) -> pd.DataFrame:
    """The cache of every layer of each model: a row for each layer, from the first to the last.

    `cache_bytes_per_token` is what one position more adds at that context, as in `compare`, whose figure is the sum;
    `label` is what the contract calls that kind of layer.

    >>> import planner
    >>> cache_by_layer([planner.load("gqa-8")], 1000)["cache_bytes_per_token"].tolist() == [4096] * 32
    True
    """
    rows = []
    for model in models:
        each = [_slope(model, index, context, kv) for index in range(len(model.layers))]
        rows += [
            {
                "name": model.name,
                "layer": number,
                "label": model.layers[index].label or "",
                "cache_bytes_per_token": each[index],
            }
            for number, index in enumerate(model.indices())
        ]
    frame = pd.DataFrame(rows)
    frame.attrs["units"] = {"cache_bytes_per_token": "B"}
    return frame


def _slope(model: Architecture, index: int, context: int, kv: str | None) -> Any:
    """Bytes that one position more adds to one layer of a kind."""
    layer = dataclasses.replace(model.layers[index], count=1)
    return CacheCurve.of(model, kv, tuple(layer.parts(f"layers[{index}]", model.d_model))).slope(context)


def _grouped(parts: Sequence[Part], phase: Phase, length: Any, conventions: Any) -> dict[str, Any]:
    """Part of the work -> FLOPs of one pass over a decoder."""
    past, new = (0, length) if phase == "prefill" else (length, 1)
    asked = {"batch": 1, "attention": "causal", "logits": "last", "mla": "auto", **conventions}
    emitted, mla = accounts.emitted(asked["logits"], new), accounts.mla_form(asked["mla"], past)
    run = Pass(past=past, new=new, emitted=emitted, attention=asked["attention"], mla=mla)
    totals: dict[str, Any] = dict.fromkeys(("projection", "attention", "feed-forward", "head"), 0)
    for component, work in folds.flops(parts, run, batch=asked["batch"], by="component").items():
        group = GROUPS[component]
        totals[group] = totals.get(group, 0) + work
    return totals
