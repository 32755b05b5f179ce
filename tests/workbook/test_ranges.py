"""The formula that checks a yellow cell refuses what Python refuses; an independent evaluator computes it."""

import formulas as outside
import pytest

from planner.errors import PlannerError
from planner.plan import make_plan
from planner.workbook.live_plan import live_plan

VALUES = (-1, 0, 1e-12, 0.5, 1, 1.5, 7, 90, 2e6, 1e9, 1e15, 1e16, 1e31)
PLAN = {"accelerator": "h100-sxm", "isl": 100, "osl": 7, "sequences": 3, "purchase_usd": 9000.0, "usd_per_kwh": 0.2}


@pytest.fixture(scope="module")
def plan():
    return make_plan("llama-3.1-8b", amortisation_years=4.0, **PLAN)


def test_what_a_cell_may_hold_is_what_a_plan_takes(plan):
    inputs = live_plan(plan).inputs
    assert {"sequences", "isl", "usd_per_hour", "purchase_usd", "memory_fraction", "utilisation"} <= {
        entry.name for entry in inputs
    }
    for entry in inputs:
        broken = outside.Parser().ast(f"={entry.allowed.broken('cell')}")[1].compile()
        for value in VALUES:
            number = int(value) if value == int(value) else value
            try:
                plan.changed(**{entry.name: number})
                taken = True
            except PlannerError:
                taken = False
            assert bool(broken(value)) != taken, (entry.name, value)
        assert broken("abc")


def test_only_the_rent_of_an_hour_may_be_blank(plan):
    assert [entry.name for entry in live_plan(plan).inputs if entry.allowed.blank] == ["usd_per_hour"]


def test_typing_is_held_to_the_same_bounds(plan):
    for entry in live_plan(plan).inputs:
        rule = entry.allowed.validation()
        assert (rule["minimum"], rule["maximum"]) == (entry.allowed.low, float(entry.allowed.high))
        assert rule["validate"] == ("integer" if entry.name in ("sequences", "isl", "osl") else "decimal")
