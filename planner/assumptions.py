"""What a plan takes for granted where its user does not say: a value, its meaning and its source, by name.

The values are data (`presets/assumptions.toml`); every answer shows those that it rests on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from planner.arithmetic import is_column
from planner.units import LARGEST

LEAST = 1e-9
"""What is smaller divides like 0: times and prices would be infinite."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """A default that stands until the user says something else."""

    name: str
    value: Any
    unit: str
    meaning: str
    source: str
    engines: Mapping[str, Any] = field(default_factory=dict)
    moe: Any = None

    def at(self, engine: str, moe: bool) -> Any:
        """The value for an engine, and for a decoder with routed experts or without."""
        if engine in self.engines:
            return self.engines[engine]
        return self.moe if moe and self.moe is not None else self.value


@cache
def assumptions() -> dict[str, Assumption]:
    """Every assumption by name."""
    table = tomllib.loads(files("planner.presets").joinpath("assumptions.toml").read_text("utf-8"))
    return {name: Assumption(name=name, **entry) for name, entry in table.items()}


def assumption_bounds(name: str) -> tuple[float, float, str]:
    """The least and the greatest value of an assumption, and what it must be, in words."""
    if name.endswith("_fraction") or name == "utilisation":
        return LEAST, 1, "a share above 0 and up to 1"
    if assumptions()[name].unit in ("B", "s", "token"):
        return 0, LARGEST, "a number from 0 to 10^30"
    return LEAST, LARGEST, "a number above 0 and up to 10^30"


def assumption_rule(name: str, value: Any) -> tuple[Any, str]:
    """Where the value of an assumption, a number or a column, may stand, and what it must be."""
    number = is_column(value) or (isinstance(value, (int, float)) and not isinstance(value, bool))
    low, high, rule = assumption_bounds(name)
    return number and (value >= low) & (value <= high), rule
