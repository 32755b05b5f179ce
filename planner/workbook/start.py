"""The sheet Start: what the workbook is, how to use it, what is assumed, and the plan as a file."""

from __future__ import annotations

import datetime

from planner import __version__
from planner.assumptions import assumptions
from planner.errors import UsageError
from planner.memory import fit
from planner.plan import Plan
from planner.plan_file import plan_to_toml
from planner.workbook.book import Book
from planner.workbook.contents import Contents

SCHEMA = 1
SCHEMA_NAME, PLAN_FILE = "planner_schema_version", "planner_plan_file"
SHEETS = {
    "Inputs": "what can be changed (yellow), and the coefficients of every model",
    "Model": "every tensor, product and cache entry, with subtotals",
    "Hardware": "accelerators and dated prices, each with its source",
    "Results": "memory, FLOPs, time, cost and verdict of the plan",
    "Scenarios": "a table of scenarios, each on its own accelerators; blank rows at the end are ready",
    "Crossovers": "where one cost overtakes another, and cache against weights over context",
    "Formulas": "the named formulas, with source",
}
USE = (
    "Every figure follows from the yellow cells, without any macro. Other cells are locked, without a password.",
    "Figures are in base units (bytes, seconds, FLOP, USD); GiB stands beside where it helps.",
    "All formulas are printed from the ones that the program itself computes with.",
    "A program that does not compute shows the figures as they were when the file was written.",
)
LEGEND = (
    ("input", 1234, "a cell to change"),
    (
        "wrong",
        1234,
        "a cell to change that holds what it may not: figures that follow from it are blank until it is mended",
    ),
    ("figure", 1234, "computed by a live formula, or taken from a source"),
    ("unit_right", "GiB", "units, meanings and sources"),
)
"""Style of a cell, an example, and what it says."""


def write(book: Book, made: Contents) -> None:
    """Write the sheet."""
    plan = made.plan
    sheet = book.sheet("Start", (26, 24, 10, 96))
    sheet.text(0, 0, f"Capacity and cost of {', '.join(one.name for one in made.subjects[:3])}", "title")
    facts = ("planned model", "accelerators", "verdict", "planner", "written", "schema_version")
    for row, name in enumerate(facts, 2):
        sheet.text(row, 0, name, "subtitle")
    sheet.text(2, 1, plan.model.name)
    if plan.accelerator is None:
        sheet.text(3, 1, "none is named")
    else:
        count = f"{plan.layout.accelerators} x "
        sheet.formula(3, 1, f'"{count}"&accelerator', count + plan.accelerator.name, style="text")
    sheet.formula(4, 1, "verdict", _verdict(plan), style="strong")
    sheet.mark_verdicts(4, 4, 1)
    sheet.text(4, 3, "more on the sheet Results", "unit")
    sheet.text(5, 1, __version__)
    sheet.text(6, 1, datetime.date.today().isoformat())
    sheet.number(7, 1, SCHEMA, style="number")
    book.define(SCHEMA_NAME, "Start", 7, 1, SCHEMA)
    row = 9
    sheet.section(row, "How to use it", 4)
    for line in USE:
        row += 1
        sheet.text(row, 0, line)
    row += 1
    for style, example, meaning in LEGEND:
        row += 1
        if isinstance(example, str):
            sheet.text(row, 0, example, style)
        else:
            sheet.number(row, 0, example, style=style)
        sheet.text(row, 1, meaning)
    row += 2
    sheet.section(row, "Sheets", 4)
    for name, text in SHEETS.items():
        row += 1
        sheet.made.write_url(row, 0, f"internal:'{name}'!A1", book.style("link"), name)
        sheet.text(row, 1, text)
    row += 2
    sheet.section(row, "Assumed, because nobody said otherwise", 4)
    row += 1
    sheet.heads(row, ("assumption", "value", "unit", "meaning and source"), right=("value",))
    for entry in made.live.inputs:
        if entry.basis.startswith("assumed"):
            row += 1
            sheet.text(row, 0, entry.name)
            sheet.formula(row, 1, entry.name, entry.value, entry.unit)
            sheet.text(row, 2, "" if entry.unit == "1" else entry.unit, "unit")
            sheet.text(row, 3, f"{entry.meaning}; {assumptions()[entry.name].source}", "note")
    row += 2
    sheet.section(row, "The plan as a file", 4)
    sheet.text(row + 1, 0, "what `planner` was told; values changed on Inputs come on top", "subtitle")
    row += 2
    book.define(PLAN_FILE, "Start", row, 0, "")
    for line in plan_to_toml(plan).splitlines():
        sheet.text(row, 0, line, "line")
        row += 1
    sheet.made.print_area(0, 0, row, 3)


def _verdict(plan: Plan) -> str:
    """What Results will say."""
    try:
        return "unknown" if plan.accelerator is None else fit(plan).verdict
    except UsageError:  # a load that cannot be, of which Inputs says why
        return "unknown"
