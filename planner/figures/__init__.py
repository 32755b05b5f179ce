"""Frames as Plotly figures, a module for each subject; nothing here knows where a figure is shown."""

from planner.figures.comparing import cache_by_layer, cache_over_context, flops_over_context
from planner.figures.cost import break_even, pareto
from planner.figures.drawing import to_html
from planner.figures.memory import memory_waterfall
from planner.figures.speed import roofline, seconds_spent

__all__ = [
    "break_even",
    "cache_by_layer",
    "cache_over_context",
    "flops_over_context",
    "memory_waterfall",
    "pareto",
    "roofline",
    "seconds_spent",
    "to_html",
]
