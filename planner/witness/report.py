"""What `planner verify` says: a list of checks, each with what was measured and what was expected."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.components.arrays import Array

if TYPE_CHECKING:
    from pandas import DataFrame

TOLERANCE = 1e-4
"""Largest difference between two ways of computing the same logits in float32, as a share of the largest logit."""

SAME = 1e-9
"""The same in float64: what is left comes from the order of sums."""

MOST_SHOWN = 60
"""Characters of a scaled value that a report shows."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist. `passed` is None where a check does not apply, and `measured` then says why."""

    name: str
    passed: bool | None
    measured: Any
    expected: Any = None

    def __str__(self) -> str:
        mark = {True: "pass", False: "FAIL", None: "  – "}[self.passed]
        expected = "" if self.passed is None else f"  (expected {shown(self.expected)})"
        return f"{mark}  {self.name}: {shown(self.measured)}{expected}"


@dataclass(slots=True)
class Report:
    """What `verify` found, and what it scaled down: path -> (before, after)."""

    name: str
    checks: list[Check] = field(default_factory=list)
    scaled: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)

    @property
    def failed(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.passed is False]

    def to_frame(self) -> DataFrame:
        """A row for each check."""
        import pandas

        rows = [(check.name, check.passed, shown(check.measured), shown(check.expected)) for check in self.checks]
        return pandas.DataFrame(rows, columns=["check", "passed", "measured", "expected"])

    def _repr_html_(self) -> str:
        rows = self.to_frame().astype({"passed": object})
        rows["passed"] = ["–" if check.passed is None else "pass" if check.passed else "FAIL" for check in self.checks]
        scaled = [f"<p>scaled: {html.escape(f'{p} = {old} → {new}')}</p>" for p, (old, new) in self.scaled.items()]
        return f"<h4>{html.escape(self.name)}</h4>{rows.to_html(index=False)}{''.join(scaled)}"

    def __str__(self) -> str:
        scaled = [f"scaled: {path} = {_short(old)} → {_short(new)}" for path, (old, new) in self.scaled.items()]
        return "\n".join([self.name, *map(str, self.checks), *scaled])


def shown(value: Any) -> str:
    """A figure in short: counts with their separators, differences with two digits."""
    if isinstance(value, float):
        return f"{value:.1e}"
    return (
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else "" if value is None else str(value)
    )


def _short(value: Any) -> str:
    """A value on one line; of a long list, its beginning."""
    text = str(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def difference(a: Array, b: Array) -> float:
    """The largest difference, as a share of the largest magnitude of b; infinite where something is not finite."""
    largest = float(np.max(np.abs(a - b), initial=0) / max(float(np.max(np.abs(b), initial=0)), 1e-30))
    return largest if np.isfinite(largest) else float("inf")


def close(name: str, measured: Array, expected: Array, tolerance: float = SAME) -> Check:
    """A check that two arrays of logits are the same."""
    found = difference(measured, expected)
    return Check(name, found <= tolerance, found, f"at most {tolerance:.0e}")


def exact(name: str, measured: Any, expected: Any) -> Check:
    """A check that two figures are the same to the last digit."""
    return Check(name, measured == expected, measured, expected)


def not_applicable(name: str, reason: str) -> Check:
    """A line that says why a check has nothing to look at."""
    return Check(name, None, reason)
