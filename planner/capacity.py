"""Inverse questions of memory: the longest context, the most sequences, the fewest accelerators, the widest format.

All are answered on the true staircase of `planner.ladder`, with its windows, strides and shares rounded up: the ladder
is recorded once with the wanted figure as a word and evaluated in whole numbers, never in floats. What a ladder needs
grows with context and sequences, so a bisection finds the exact step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from planner.arithmetic import evaluate, word
from planner.ladder import needed, room_bytes
from planner.parallel import Layout, legal_layouts
from planner.plan import Plan
from planner.spec import LARGEST

FORMATS = ("bf16", "fp8", "awq-g128")
"""Weight formats that serving engines load, from wide to narrow."""


def headroom_bytes(plan: Plan) -> Any:
    """Bytes left on the fullest rank beside what is reserved; negative where the plan does not fit."""
    return room_bytes(plan) - max(needed(plan))


def longest_context(plan: Plan) -> int | None:
    """The longest context that fits at the plan's number of sequences, up to what the contract states.

    0 where not even one position fits; None where memory never ends it and the contract states no maximum. Ragged
    lengths count as that many equal sequences.

    >>> from planner.plan import make_plan
    >>> plan = make_plan("llama-3.1-8b", accelerator="rtx-4090", sequences=4, engine="none")
    >>> longest = longest_context(plan)
    >>> headroom_bytes(plan.changed(context=longest)) >= 0 > headroom_bytes(plan.changed(context=longest + 1))
    True
    """
    stated = maximum_positions(plan)
    return memory_context(plan) if stated is None else _longest(plan, stated, bounded=True)


def memory_context(plan: Plan) -> int | None:
    """The longest context that memory alone allows, whatever the contract states; None where memory never ends it."""
    return _longest(plan, LARGEST, bounded=False)


def _longest(plan: Plan, most: int, *, bounded: bool) -> int | None:
    equal = plan.changed(lengths=None, isl=None, osl=None, sequences=plan.sequences, context=None)
    room, needs = room_bytes(plan), needs_by(equal, "context")
    return _largest(lambda n: room - needs(n), max(1, plan.holders.shared_prefix), most, bounded)


def most_sequences(plan: Plan, needs: Callable[[int], int] | None = None) -> int | None:
    """The most sequences of the plan's context that fit; of ragged lengths, how many of them in the order given.

    `needs` is what `needs_by` gives for sequences, where the same plan is asked about on many devices.

    >>> from planner.plan import make_plan
    >>> plan = make_plan("llama-3.1-8b", accelerator="rtx-4090", lengths=(30_000, 9_000, 1_000), engine="none")
    >>> most_sequences(plan), most_sequences(plan.changed(lengths=None, context=10_000))
    (3, 7)
    """
    lengths = plan.workload.lengths
    if lengths is None:
        room, needs = room_bytes(plan), needs or needs_by(plan, "sequences")
        return _largest(lambda n: room - needs(n), 1, LARGEST, False)
    return _largest(lambda n: headroom_bytes(plan.changed(lengths=lengths[:n])), 1, len(lengths), True)


def fewest_accelerators(plan: Plan, *, most: int = 64) -> Layout | None:
    """The layout of the fewest accelerators, up to `most`, on which the plan fits; None where there is none.

    Within one scale-up domain or machine a layout divides tensors or experts; beyond it they are filled whole, and
    further ones are pipeline stages or replicas. Of several layouts the one that leaves most memory is taken.

    >>> from planner.plan import make_plan
    >>> plan = make_plan("llama-3.1-70b", accelerator="h100-sxm", context=131_072)
    >>> fewest_accelerators(plan).accelerators
    4
    """
    domain = plan.device.group_size
    for count in range(1, most + 1):
        if count > domain and count % domain:
            continue
        left = {layout: headroom_bytes(replace(plan, layout=layout)) for layout in _layouts(plan, count)}
        best = max(left, key=lambda layout: left[layout], default=None)
        if best is not None and left[best] >= 0:
            return best
    return None


def smallest_format(plan: Plan, *, formats: Sequence[str] | None = None) -> str | None:
    """The weight format with which the plan fits and the least is given up: of those that fit, the one of most bytes.

    None where none of them fits. Without `formats` the plan's own is tried, and what of `FORMATS` is narrower.

    >>> from planner.plan import make_plan
    >>> smallest_format(make_plan("llama-3.1-70b", accelerator="h100-sxm"))
    'fp8'
    """
    own = headroom_bytes(plan)
    left = {name: headroom_bytes(plan.changed(weights=name)) for name in formats or FORMATS}
    if formats is None:
        left = {plan.weights: own} | {name: bytes for name, bytes in left.items() if bytes > own}
    return min((name for name in left if left[name] >= 0), key=lambda name: left[name], default=None)


def maximum_positions(plan: Plan) -> int | None:
    """Positions beyond which the contract states nothing: those of a learned table, or the stated maximum."""
    return plan.model.embedding.learned_positions or plan.model.max_positions


def needs_by(plan: Plan, name: str) -> Callable[[int], int]:
    """Bytes that the fullest rank needs, as a function of one of the plan's figures that remembers its answers."""
    ladders = needed(plan.changed(**{name: word(name)}))
    return functools.cache(lambda n: max(evaluate(total, {name: n}) for total in ladders))


def _largest(left: Callable[[int], Any], low: int, high: int, bounded: bool) -> int | None:
    """The largest n from low to high that leaves no bytes missing, 0 if none does; None if high does and is no bound.

    What is needed grows by steps along a nearly straight line: the search looks where that line crosses, and halves.
    """
    left = functools.cache(left)
    if high < low or left(low) < 0:
        return 0
    if left(high) >= 0:
        return high if bounded else None
    while high - low > 1:
        crossing = low + int(left(low) * (high - low) // (left(low) - left(high)))
        for n in (crossing, crossing + 1, (low + high) // 2):
            if low < n < high:
                low, high = (n, high) if left(n) >= 0 else (low, n)
    return low


def _layouts(plan: Plan, count: int) -> Iterator[Layout]:
    domain = plan.device.group_size
    for layout, broken in legal_layouts(plan.model, count):
        if not broken and layout.tp <= domain and (layout.pp == 1 or count > domain):
            yield layout
