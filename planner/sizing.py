"""Sizing: every legal layout over the catalogue that can carry a load, ranked by what it costs.

A replica is tried at each size up to a limit; as many replicas are taken as the load needs. What cannot carry the load
stays in the table with its reason: the rule of the layout that it breaks, the memory that is missing, the peak or the
link that nobody publishes, the price that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from planner import catalogue, cost
from planner.arithmetic import ceil_div
from planner.capacity import most_sequences, needs_by
from planner.contract import Architecture
from planner.errors import InputError, PlannerError, UsageError
from planner.memory import fit
from planner.parallel import Layout, legal_layouts
from planner.phases import estimated
from planner.plan import Plan, as_plan
from planner.spec import shown
from planner.timing import FRACTIONS
from planner.units import show

REPLICA_SIZES = (1, 2, 4, 8, 16)
"""Accelerators of a replica that are tried: what machines and pairs of machines have."""

LAYOUT_FIELDS = ("tp", "pp", "dp", "attention_dp", "ep")

RESTS_ON = tuple(
    dict.fromkeys(
        [
            *"engine weights kv context memory_fraction reserve_bytes prefill_tokens".split(),
            *cost.RESTS_ON,
            *("compute_fraction", *FRACTIONS.values()),
        ]
    )
)
"""Figures of a plan that a ranking uses and that have a default."""

UNITS = {
    "headroom_bytes": "B",
    "most_sequences": "1",
    "ttft_s": "s",
    "tpot_s": "s",
    "output_tok_s": "token/s",
    "output_tok_s_per_user": "token/s",
    "output_tok_s_per_accelerator": "token/s",
    "fleet_usd_per_hour": "USD/h",
    "usd_per_mtok_input": "USD",
    "usd_per_mtok_output": "USD",
    "usd_per_mtok_blended": "USD",
}


def size(
    model: Any,
    *,
    accelerators: Iterable[str] | None = None,
    replica_sizes: Iterable[int] = REPLICA_SIZES,
    **keywords: Any,
) -> pd.DataFrame:
    """A row for each accelerator and legal layout, the cheapest per token first, the rejected ones last.

    `model` is what `load` takes, or a `Plan`; keywords are those of a plan, except its layout and count. Without
    `accelerators` all those are tried whose price is known on the plan's basis. Columns: rank, accelerator, count, the
    layout, verdict, headroom, times, rates, cost, and `reason` where there is no rank.

    >>> best = size("llama-3.1-8b", accelerators=["h100-sxm", "l40s"], context=8192, sequences=64).iloc[0]
    >>> best["accelerator"], int(best["count"]), best["verdict"]
    ('h100-sxm', 2, 'fits')
    """
    for name in (*LAYOUT_FIELDS, "count", "accelerator"):
        if name in keywords:
            raise UsageError(f"{name} is what sizing finds; leave it out, or ask fit and estimate")
    plan = as_plan(model, **keywords)
    sizes = list(replica_sizes) if isinstance(replica_sizes, Iterable) else [replica_sizes]
    if not sizes or not all(type(size) is int and size >= 1 for size in sizes):
        raise UsageError(f"replica_sizes = {shown(sizes)} are no numbers of accelerators, 1 or more")
    named = [accelerators] if isinstance(accelerators, str) else accelerators
    rows = sorted(_rows(plan.model, list(_priced(plan, named)), sorted(set(sizes))), key=_merit)
    for rank, row in enumerate(rows, start=1):
        row["rank"] = rank if not row["reason"] else None
    frame = pd.DataFrame(rows, columns=["rank", "accelerator", "count", *LAYOUT_FIELDS, "verdict", *UNITS, "reason"])
    frame["rank"] = frame["rank"].astype("Int64")
    frame.attrs["units"] = dict(UNITS)
    return frame


def assumed(plan: Plan) -> dict[str, Any]:
    """What a ranking rests on and the plan's user did not say; one of context and request follows from the other."""
    said = plan.workload
    follows = {"context"} if said.isl is not None else {"isl"} if said.context is not None else set()
    if said.lengths is not None:
        follows = {"context", "isl", "sequences"}
    return plan.assumed(*(name for name in RESTS_ON if name not in follows))


Hour = Any
"""USD of an accelerator's hour, or the error that says why it is not known."""


def _priced(plan: Plan, names: Iterable[str] | None) -> Iterator[tuple[Plan, Hour]]:
    """The plan on each of the accelerators; of the catalogue's those whose price is known, as nothing ranks others."""
    for name in catalogue.names() if names is None else names:
        there = plan.changed(accelerator=name)
        try:
            yield there, cost.hour_price_of(there).usd
        except PlannerError as error:
            if names is not None:
                yield there, error
            elif not isinstance(error, InputError):
                raise


def _rows(model: Architecture, priced: Sequence[tuple[Plan, Hour]], sizes: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Devices vary fastest: what a layout makes of the decoder is remembered from one to the next."""
    legal = [found for replica in sizes for found in legal_layouts(model, replica)]
    known: dict[Layout, Callable[[int], int]] = {}
    for layout, broken in legal:
        if layout.dp > 1:
            continue
        shape = {name: getattr(layout, name) for name in LAYOUT_FIELDS}
        for plan, hour in priced:
            if layout.tp <= plan.device.group_size:
                row = {"accelerator": plan.device.name, "count": layout.accelerators, **shape, "reason": broken}
                yield row | ({} if broken else _carried(plan, layout, hour, known))


def _carried(plan: Plan, layout: Layout, hour: Hour, known: dict[Layout, Callable[[int], int]]) -> dict[str, Any]:
    """The figures of as many replicas as the load needs, or the reason why no number of them carries it.

    `known` are the bytes that sequences need on a layout, whichever the device.
    """
    found: dict[str, Any] = {}
    try:
        one = plan.changed(**{f.name: getattr(layout, f.name) for f in fields(layout)})
        if layout not in known and plan.workload.lengths is None:
            known[layout] = needs_by(one, "sequences")
        most = most_sequences(one, known.get(layout))
        if most == 0:
            single = fit(one.changed(sequences=1, lengths=None, context=one.context))
            short = show(-(single.headroom_bytes or 0), "B", binary=True)
            reason = f"one sequence lacks {short}: {single.lever}"
            return {"verdict": single.verdict, "headroom_bytes": single.headroom_bytes, "reason": reason}
        replicas = 1 if most is None else ceil_div(plan.sequences, most)
        answer = fit(one.changed(dp=replicas))
        found = {
            "count": answer.plan.layout.accelerators,
            "dp": replicas,
            "verdict": answer.verdict,
            "headroom_bytes": answer.headroom_bytes,
            "most_sequences": most,
        }
        return found | _speed_and_cost(answer.plan, hour)
    except PlannerError as error:
        return found | {"reason": str(error)}


def _speed_and_cost(plan: Plan, hour: Hour) -> dict[str, Any]:
    timing = estimated(plan)
    if isinstance(hour, PlannerError):
        raise hour
    money = cost.figures(plan, timing, hour)
    return {name: getattr(timing, name, money.get(name)) for name in UNITS if name in money or hasattr(timing, name)}


def _merit(row: dict[str, Any]) -> tuple[bool, float, int, str]:
    return bool(row["reason"]), row.get("usd_per_mtok_blended", math.inf), row["count"], row["accelerator"]


def undominated(frame: pd.DataFrame) -> pd.Series:
    """Which rows of `size` no other row beats: none is faster for a user and costs no more, or is cheaper and as fast.

    Rows without a rate or a price are dominated.

    >>> rates, prices = [60.0, 40.0, 50.0], [2.0, 1.0, 3.0]
    >>> undominated(pd.DataFrame({"output_tok_s_per_user": rates, "usd_per_mtok_blended": prices})).tolist()
    [True, True, False]
    """
    known = frame.dropna(subset=["output_tok_s_per_user", "usd_per_mtok_blended"])
    fastest_first = known.sort_values(["output_tok_s_per_user", "usd_per_mtok_blended"], ascending=[False, True])
    price = fastest_first["usd_per_mtok_blended"]
    best = fastest_first.index[price < price.cummin().shift(fill_value=math.inf)]
    return pd.Series(frame.index.isin(best), index=frame.index)
