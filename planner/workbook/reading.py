"""Reading a workbook back: the plan that it was written from, with what its yellow cells hold now."""

from __future__ import annotations

import os
from typing import Any

from planner.editing import edit
from planner.errors import InputError, PlannerError
from planner.plan import Plan
from planner.plan_file import parse_plan
from planner.workbook.cells import Cells
from planner.workbook.live_plan import Input, live_plan
from planner.workbook.start import PLAN_FILE, SCHEMA, SCHEMA_NAME
from planner.workbook.subject import Field


def read(path: str | os.PathLike[str]) -> Plan:
    """The plan of a workbook. Raises `InputError` with the file, the cell and the rule."""
    place = os.fspath(path)
    cells = Cells(place)
    written = _stated_plan(cells)
    live = live_plan(written)
    changes: dict[str, Any] = {}
    for entry in live.inputs:
        value = _number(cells, entry)
        if value != entry.value:
            changes[entry.name] = value
    edits: dict[str, Any] = {}
    for field in live.subject.fields:
        value = _number(cells, field)
        if value != field.value:
            edits |= field.changes(value)
    if written.accelerator is not None:
        name = cells.value(*_named(cells, "accelerator"))
        if name != written.accelerator.name:
            changes["accelerator"] = str(name)
    if not changes and not edits:
        return written
    try:
        if edits:
            changes["model"] = edit(written.model, edits)
        return written.changed(**changes)
    except PlannerError as error:
        raise InputError(f"{place}: Inputs: {error}") from None


def _stated_plan(cells: Cells) -> Plan:
    """The plan as it was written, from the sheet Start."""
    if SCHEMA_NAME not in cells.names:
        raise InputError(f"{cells.path}: was not written by `planner workbook`, and only that can be read")
    version = cells.value(*cells.names[SCHEMA_NAME])
    shown = f"{version:g}" if isinstance(version, float) else str(version)
    if shown != str(SCHEMA):
        raise InputError(f"{cells.path}: schema_version = {shown:.20} is not {SCHEMA}, which this planner reads")
    sheet, first = _named(cells, PLAN_FILE)
    return parse_plan("\n".join(cells.below(sheet, first)), f"{cells.path}: {sheet}")


def _named(cells: Cells, name: str) -> tuple[str, str]:
    if name not in cells.names:
        raise InputError(f"{cells.path}: no cell is named {name} any more; write the workbook anew")
    return cells.names[name]


def _number(cells: Cells, entry: Input | Field) -> Any:
    """What stands in the cell of an input now: a number, or None in the one that may be blank."""
    sheet, cell = _named(cells, entry.name)
    value = cells.value(sheet, cell)
    if value in (None, "") and entry.name == "usd_per_hour":
        return None
    if isinstance(value, bool) or not isinstance(value, float):
        raise InputError(f"{cells.path}: {sheet}!{cell}: {entry.name} = {value!r:.40} is not a number")
    return int(value) if value.is_integer() else value
