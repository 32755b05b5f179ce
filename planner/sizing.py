"""Sizing: every legal layout over the catalogue that can carry a load, ranked by what it costs.

A replica is tried at each size up to a limit; as many replicas are taken as the load needs. What cannot carry the load
stays in the table with its reason: the rule of the layout that it breaks, the memory that is missing, the peak or the
link that nobody publishes, the price that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

import pandas as pd

from planner import catalogue, cost
from planner.arithmetic import ceil_div
from planner.capacity import most_sequences
from planner.device import Accelerator
from planner.errors import InputError, PlannerError, UsageError
from planner.memory import fit
from planner.parallel import Layout, legal_layouts
from planner.phases import timings
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
    ('l40s', 3, 'tight')
    """
    for name in (*LAYOUT_FIELDS, "count", "accelerator"):
        if name in keywords:
            raise UsageError(f"{name} is what sizing finds; leave it out, or ask fit and estimate")
    plan = as_plan(model, **keywords)
    sizes = list(replica_sizes) if isinstance(replica_sizes, Iterable) else [replica_sizes]
    if not sizes or not all(type(size) is int and size >= 1 for size in sizes):
        raise UsageError(f"replica_sizes = {shown(sizes)} are no numbers of accelerators, 1 or more")
    named = [accelerators] if isinstance(accelerators, str) else accelerators
    rows = [row for device in _devices(plan, named) for row in _rows(plan, device, sorted(set(sizes)))]
    rows.sort(key=_merit)
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


def _devices(plan: Plan, names: Iterable[str] | None) -> Iterator[Accelerator]:
    if names is not None:
        yield from (plan.changed(accelerator=name).device for name in names)
        return
    for name in catalogue.names():
        device = catalogue.accelerator(name)
        try:
            cost.hour_price_of(plan.changed(accelerator=device))
        except InputError:
            continue  # nothing could rank it
        yield device


def _rows(plan: Plan, device: Accelerator, sizes: Iterable[int]) -> Iterator[dict[str, Any]]:
    for replica in sizes:
        for layout, broken in legal_layouts(plan.model, replica):
            if layout.dp == 1 and layout.tp <= device.group_size:
                shape = {name: getattr(layout, name) for name in LAYOUT_FIELDS}
                row = {"accelerator": device.name, "count": replica, **shape, "reason": broken}
                yield row | ({} if broken else _carried(plan, device, layout))


def _carried(plan: Plan, device: Accelerator, layout: Layout) -> dict[str, Any]:
    """The figures of as many replicas as the load needs, or the reason why no number of them carries it."""
    found: dict[str, Any] = {}
    try:
        one = plan.changed(accelerator=device, **{f.name: getattr(layout, f.name) for f in fields(layout)})
        most = most_sequences(one)
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
        return found | _speed_and_cost(answer.plan)
    except PlannerError as error:
        return found | {"reason": str(error)}


def _speed_and_cost(plan: Plan) -> dict[str, Any]:
    timing = timings(plan)[1]
    money = cost.figures(plan, timing)
    return {name: getattr(timing, name, money.get(name)) for name in UNITS if name in money or hasattr(timing, name)}


def _merit(row: dict[str, Any]) -> tuple[bool, float, int]:
    return bool(row["reason"]), row.get("usd_per_mtok_blended", math.inf), row["count"]


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
