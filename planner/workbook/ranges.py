"""What may stand in a yellow cell: as data validation, and as the formula that finds what came in all the same.

A spreadsheet program validates what is typed. A cell can be cleared or pasted over too, and then a formula over it
would give an error or, worse, a figure; so figures are shown only where the cells that they follow from are in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.assumptions import assumption_bounds
from planner.plan_parts import PRICE_BOUNDS
from planner.spec import LARGEST


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high` that a cell may hold; `rule` says what they are."""

    low: float
    high: float
    rule: str
    whole: bool = False
    blank: bool = False

    def validation(self) -> dict[str, Any]:
        """What data validation allows."""
        kind = "integer" if self.whole else "decimal"
        bounds = {"criteria": "between", "minimum": self.low, "maximum": float(self.high)}
        return {"validate": kind, **bounds, "error_title": "Not allowed", "error_message": self.rule}

    def broken(self, cell: str) -> str:
        """The formula that says whether a cell holds anything else."""
        wrong = f"{cell}<{self.low:.15G},{cell}>{self.high:.15G}" + (f",{cell}<>INT({cell})" if self.whole else "")
        found = f"IF(ISNUMBER({cell}),OR({wrong}),TRUE)"
        return f'IF({cell}="",FALSE,{found})' if self.blank else found


def whole(low: int = 1) -> Range:
    """The whole numbers of a load or a contract."""
    return Range(low, LARGEST, f"a whole number from {low} to 10^15", whole=True)


def price(name: str) -> Range:
    """The prices of `planner.plan_parts.Prices`; the rent of an hour may be left out."""
    low, high = PRICE_BOUNDS[name]
    rule = f"a number from {low:.6f}".rstrip("0") + f" to {high:,.0f}"
    return Range(low, high, rule, blank=name == "usd_per_hour")


def assumed(name: str) -> Range:
    """What may be said in the place of an assumption."""
    return Range(*assumption_bounds(name))


def choice(area: str) -> dict[str, Any]:
    """Data validation: one of the texts in an area."""
    return {"validate": "list", "source": f"={area}", "error_message": "choose one of the list"}
