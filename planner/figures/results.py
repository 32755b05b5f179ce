"""The figure of each result: what `planner.plot`, and the `plot` method of a result, draw.

Results lie below the figures and do not import them: their methods ask the face, which knows where a figure is drawn.
"""

from __future__ import annotations

import functools
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from planner.cost import Cost
from planner.errors import UsageError
from planner.figures.comparing import cache_over_context
from planner.figures.cost import break_even, pareto
from planner.figures.memory import memory_waterfall
from planner.figures.speed import roofline, seconds_spent
from planner.memory import Fit
from planner.sizing import undominated
from planner.speed import Estimate

AROUND = 10
"""A month's cost is drawn from a tenth of the least volume that matters to ten times the largest."""


@functools.singledispatch
def plot(result: Any, **options: Any) -> go.Figure:
    """The Plotly figure of a result.

    `fit`: the ladder of the worst rank. `estimate`: every product under the roofs, or with `phase` (prefill or decode)
    the seconds of that phase over its floor. `cost`: a month over its requests, against the API where one was named.
    A frame of `size`: speed against price; of a `sweep` over context: the cache and the weights. `options` are those of
    the function in `planner.figures`. Raises `UsageError` for anything else.
    """
    raise UsageError(
        f"a {type(result).__name__} has no figure; fit, estimate, cost, size and a sweep over context have one"
    )


@plot.register
def _(result: Fit, **options: Any) -> go.Figure:
    if result.usable_bytes is None:
        raise UsageError("the plan names no accelerator, so there is no memory to fill; say accelerator = h100-sxm")
    frame = result.to_frame()
    return memory_waterfall(frame[frame["rank"] == result.rank], result.usable_bytes, **options)


@plot.register
def _(result: Estimate, phase: str | None = None, **options: Any) -> go.Figure:
    if phase is None:
        return roofline(result.products, result.roofs, **options)
    floors = {"prefill": result.floor.ttft_s, "decode": result.floor.tpot_s}
    if phase not in floors:
        raise UsageError(f"phase = {phase!r} is neither prefill nor decode")
    return seconds_spent(result.shares(phase), floors[phase], phase, **options)


@plot.register
def _(result: Cost, **options: Any) -> go.Figure:
    api, capacity = result.api, result.requests_per_month
    crossing = api.break_even_requests_per_month if api is not None and api.reachable else None
    least = min(capacity, capacity if crossing is None else crossing) / AROUND
    frame = result.over_requests(least, AROUND * capacity)
    name = "an API" if api is None else f"{api.model} at {api.provider}"
    return break_even(frame, capacity, crossing, name, **options)


@plot.register
def _(result: pd.DataFrame, **options: Any) -> go.Figure:
    if {"rank", "output_tok_s_per_user", "usd_per_mtok_blended"} <= set(result.columns):
        carried = result[result["rank"].notna()]
        if carried.empty:
            raise UsageError("no layout of the frame carries the load, so none can be drawn; its reason says why")
        return pareto(carried, undominated(carried).tolist(), **options)
    if {"name", "context", "cache_bytes", "weight_bytes"} <= set(result.columns):
        return cache_over_context(result, **options)
    raise UsageError("a frame is drawn if it comes from size, or from a sweep over context")
