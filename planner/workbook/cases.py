"""A frame of cases, such as `sweep` gives back: a decoder, a load and edits of its contract in each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.assumptions import assumptions
from planner.contract import Architecture
from planner.editing import edit, resolve
from planner.errors import InputError, UsageError
from planner.plan import Plan, fields_of_a_plan, make_plan
from planner.scenarios import LOAD_AXES
from planner.sources import load
from planner.summary import UNITS, Load, summary


@dataclass(frozen=True)
class Case:
    """A scenario: which decoder, in which formats, and its numbers by the word of their column."""

    model: str
    weights: str
    kv: str
    numbers: dict[str, int]


@dataclass(frozen=True)
class Asked:
    """What a frame asks: a plan of its first row, every decoder, and the cases with the words of their numbers."""

    plan: Plan
    models: list[Architecture]
    cases: list[Case]
    axes: tuple[str, ...]


def of_frame(frame: Any) -> Asked:
    """The cases of a frame: columns of a load, of a plan (alike in all rows) and of contract fields; others are labels.

    Raises `UsageError` for a frame that is none, and the error of a row that cannot be.
    """
    frame = frame.rename(columns={"sequences": "batch"}) if "batch" not in frame.columns else frame
    names = "name" if "name" in frame.columns else "model"
    if names not in frame.columns or not len(frame):
        raise UsageError("a frame of cases needs a column 'name' or 'model' and at least one row")
    rows = [{name: _plain(value) for name, value in row.items()} for row in frame.to_dict("records")]
    axes = ("isl", "osl", "batch") if "isl" in frame.columns else ("context", "batch")
    shared = [
        name for name in frame.columns if name in fields_of_a_plan() and name not in (*axes, names, "weights", "kv")
    ]
    said = {name: _alike(rows, name) for name in shared}
    edits = list(_edits(frame, load(str(rows[0][names])), {*LOAD_AXES, *shared, names}))
    default = Load()
    models: dict[str, Architecture] = {}
    cases = []
    for row in rows:
        changes = {axis: row[axis] for axis in edits}
        title = ", ".join([str(row[names]), *(f"{axis} = {value}" for axis, value in changes.items())])
        if title not in models:
            chosen = edit(load(str(row[names])), changes)
            models[title] = edit(chosen, {"name": title}) if changes else chosen
        model = models[title]
        numbers = {axis: _whole(row.get(axis, getattr(default, axis)), axis) for axis in axes}
        cases.append(Case(model.name, row.get("weights") or model.weights, row.get("kv") or model.kv, numbers))
    first = cases[0]
    said |= {("sequences" if name == "batch" else name): value for name, value in first.numbers.items()}
    if "context" in axes:  # a request that ends at a short context has few output tokens
        said.setdefault("osl", min(assumptions()["osl"].value, said["context"]))
    plan = make_plan(next(iter(models.values())), weights=first.weights, kv=first.kv, **said)
    _same_figures(rows[0], first, plan)
    return Asked(plan, list(models.values()), cases, axes)


def _edits(frame: Any, model: Architecture, known: set[str]) -> Iterator[str]:
    """Columns that are fields of the contract; figures that the frame holds already, and labels, are none."""
    for name in map(str, frame.columns):
        if name in known or name in UNITS:
            continue
        try:
            resolve(model, name)
        except InputError:
            continue
        yield name


def _alike(rows: list[dict[str, Any]], name: str) -> Any:
    values = [row[name] for row in rows]
    if any(value != values[0] for value in values):
        raise UsageError(f"{name} differs between rows; the rows of a workbook share it, so write one for each")
    return values[0]


def _same_figures(row: dict[str, Any], case: Case, plan: Plan) -> None:
    """A frame that does not say its load would be filled with another one; its figures tell."""
    given = row.get("cache_bytes")
    asked = Load(**case.numbers, weights=case.weights, kv=case.kv)  # type: ignore[arg-type]
    if given is not None and summary(plan.model, asked)["cache_bytes"] != given:
        raise UsageError("the frame does not say its whole load; give it columns such as context, batch, kv")


def _plain(value: Any) -> Any:
    """A cell of a frame as Python has it; what is absent is None."""
    plain = value.item() if hasattr(value, "item") else value
    return None if plain is None or type(plain).__name__ == "NAType" or plain != plain else plain


def _whole(value: Any, axis: str) -> int:
    if isinstance(value, (int, float)) and value >= 1 and value == int(value):
        return int(value)
    raise UsageError(f"{axis} = {value!r} is not a whole number of at least 1")
