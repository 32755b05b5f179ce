"""Blocks of positions for which a compressed entry stands, cut from what a pass has at hand."""

from __future__ import annotations

from planner.components.arrays import Array, np
from planner.components.base import Run
from planner.rules import Strided


def new_entries(rule: Strided, run: Run) -> Array:
    """[E] the numbers of the entries whose block is complete with this pass."""
    past, new = run.step.past, run.step.new
    return np.arange(rule.kept(past), rule.kept(past + new))


def completed_blocks(at_hand: Array, rule: Strided, run: Run, *, before: int = 0) -> Array:
    """The blocks of those entries, or what lies `before` positions earlier: [T, ...] -> [E, block, ...].

    `at_hand` ends with the last position of the pass. What would lie before the first position is its first row again.
    """
    first = run.step.past + run.step.new - len(at_hand)
    starts = new_entries(rule, run) * rule.stride - first - before  # [E]
    return at_hand[np.maximum(starts[:, None] + np.arange(rule.block), 0)]
