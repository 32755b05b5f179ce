"""The sheet Formulas: every named formula of the textbook, as text, in LaTeX and for a cell."""

from __future__ import annotations

from planner.formula import formulas
from planner.notation import plain
from planner.workbook.book import A3, Book
from planner.workbook.contents import Contents

HEADS = ("name", "meaning", "formula", "unit", "holds for", "source", "in a cell", "LaTeX")
WIDTHS = (32, 44, 44, 9, 30, 40, 44, 50)


def write(book: Book, made: Contents) -> None:
    """Write the sheet."""
    sheet = book.sheet("Formulas", WIDTHS, paper=A3)
    sheet.text(0, 0, "Formulas", "title")
    sheet.text(
        1, 0, "Closed forms of decoders of equal layers; the figures of real ones are sums over their bill.", "subtitle"
    )
    sheet.heads(3, HEADS)
    for row, (name, entry) in enumerate(formulas.items(), 4):
        sheet.text(row, 0, name, "strong")
        sheet.text(row, 1, entry.summary, "wrap")
        sheet.text(row, 2, f"{plain(entry.letter)} = {plain(entry.latex)}", "wrap")
        sheet.text(row, 3, "" if entry.unit == "1" else entry.unit, "unit")
        sheet.text(row, 4, entry.validity, "note")
        sheet.text(row, 5, entry.citation, "note")
        sheet.text(row, 6, entry.excel, "code")
        sheet.text(row, 7, entry.latex, "code")
    sheet.made.freeze_panes(4, 1)
    sheet.made.repeat_rows(3)
