"""The sheet Model: every tensor, product and cache entry of every decoder, as live formulas, with subtotals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.arithmetic import Value, evaluate
from planner.workbook.book import Book, Sheet, column_of
from planner.workbook.coefficients import position_bytes
from planner.workbook.contents import Contents
from planner.workbook.subject import TensorRow

TENSORS = "no model path role component elements copies parameters active_parameters".split()
PRODUCTS = "no model path component domain rule form slot multiply_adds".split()
CACHE = "no model path rule format heads width slot layers".split()
WIDTHS = (5, 22, 38, 16, 15, 15, 13, 26, 20)
FIRST_FORMAT = len(TENSORS)


def write(book: Book, made: Contents) -> None:
    """Write the sheet."""
    formats = max(len(made.weights), len(made.kv))
    sheet = book.sheet("Model", (*WIDTHS, *(20 for _ in range(formats))))
    sheet.made.set_column(FIRST_FORMAT + 1, FIRST_FORMAT + formats - 1, 20, None, {"level": 1, "hidden": True})
    sheet.text(0, 0, "Model: the itemised bill", "title")
    sheet.text(
        1,
        0,
        "Formulas over the contract on Inputs; further storage formats stand in hidden columns on the right.",
        "subtitle",
    )
    row = _subtotals(sheet, made, 3)
    row = _tensors(sheet, made, row + 1)
    row = _products(sheet, made, row + 1)
    row = _cache(sheet, made, row + 1)
    sheet.made.freeze_panes(3, 3)
    sheet.made.print_area(0, 0, row, FIRST_FORMAT)


def _subtotals(sheet: Sheet, made: Contents, row: int) -> int:
    columns = ("parameters", "active_parameters", made.weights[0])
    sheet.section(row, f"Parameters by role, and their bytes in {made.weights[0]}", FIRST_FORMAT + 1)
    sheet.heads(row + 1, ["no", "model", "role", "", "", "", "", *columns], right=columns)
    row += 2
    for number, one in enumerate(made.subjects, 1):
        rows = one.tensors
        roles = list(dict.fromkeys(entry.stated.role for entry in rows))
        for role in (*roles, "all"):
            style = "figure" if role != "all" else "total"
            sheet.number(row, 0, number, style="number" if role != "all" else "total_number")
            for place, text in enumerate((one.name, role, *[""] * 4), 1):
                sheet.text(row, place, text, "indented" if role != "all" else "total_text")
            for place, column in enumerate(columns, 7):
                trees = [_amount(entry, column) for entry in rows if role in ("all", entry.stated.role)]
                value = sum(evaluate(tree, one.values) for tree in trees)
                which = "" if role == "all" else f",Tensors[role],C{row + 1}"
                text = f"SUMIFS({column_of('Tensors', column)},Tensors[no],A{row + 1}{which})"
                sheet.formula(row, place, text, value, style=style, check=one.check)
            row += 1
    return row


def _amount(row: TensorRow, column: str) -> Value:
    match column:
        case "parameters":
            return row.count * row.live.size
        case "active_parameters":
            return row.count * row.live.active
    return row.bytes(column)


def _tensors(sheet: Sheet, made: Contents, row: int) -> int:
    sheet.section(row, "Tensors (bytes in storage formats from column J on)", FIRST_FORMAT + 1)
    heads = [*TENSORS, *made.weights]
    first = row + 1
    row = first + 1
    for number, one in enumerate(made.subjects, 1):
        for entry in one.tensors:
            _texts(sheet, row, (number, one.name, entry.path, entry.stated.role, entry.stated.component))
            trees = [entry.live.each, entry.count * entry.live.copies]
            trees += [_amount(entry, column) for column in heads[7:]]
            _trees(sheet, row, 5, trees, one.check)
            row += 1
    sheet.table(first, 0, "Tensors", heads, row - first - 1, TENSORS[:5])
    return row


def _products(sheet: Sheet, made: Contents, row: int) -> int:
    sheet.section(row, "Matrix products: multiply-adds for each unit of the domain, in all layers", FIRST_FORMAT + 1)
    first = row + 1
    row = first + 1
    for number, (one, condensed) in enumerate(zip(made.subjects, made.condensed, strict=True), 1):
        for entry in condensed.products:
            texts = (entry.path, entry.component, entry.domain, entry.rule, entry.form, entry.slot)
            _texts(sheet, row, (number, one.name, *texts))
            _trees(sheet, row, len(PRODUCTS) - 1, [entry.macs], one.check)
            row += 1
    sheet.table(first, 0, "Products", PRODUCTS, row - first - 1, PRODUCTS[:8])
    return row


def _cache(sheet: Sheet, made: Contents, row: int) -> int:
    sheet.section(row, "Cache: bytes of one position, in all layers that keep it, from column J on", FIRST_FORMAT + 1)
    first = row + 1
    row = first + 1
    for number, (one, condensed) in enumerate(zip(made.subjects, made.condensed, strict=True), 1):
        for entry in condensed.cache:
            chosen = {None: "as chosen", "model": "as activations"}.get(entry.entry.format, str(entry.entry.format))
            _texts(sheet, row, (number, one.name, entry.path, entry.rule, chosen))
            _trees(sheet, row, 5, [entry.entry.heads, entry.entry.width], one.check)
            sheet.text(row, 7, entry.slot, "unit")
            _trees(sheet, row, 8, [entry.count, *(position_bytes(one, entry, kv) for kv in made.kv)], one.check)
            row += 1
    sheet.table(first, 0, "Cache", [*CACHE, *made.kv], row - first - 1, [*CACHE[:5], "slot"])
    return row


def _texts(sheet: Sheet, row: int, texts: Sequence[Any]) -> None:
    sheet.number(row, 0, texts[0], style="number")
    for column, text in enumerate(texts[1:], 1):
        sheet.text(row, column, text, "indented")


def _trees(sheet: Sheet, row: int, column: int, trees: Sequence[Value], check: str) -> None:
    for place, tree in enumerate(trees, column):
        sheet.live(row, place, tree, check=check)
