"""A frame as a sheet of its own: units in comments at the heads, numbers in the formats of their units."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any

from planner.errors import UsageError
from planner.workbook.book import number_format, writing

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_ROWS, MOST_COLUMNS, LONGEST_TEXT = 1_048_576, 16_384, 32_767  # of a sheet, and of a cell
NARROW, WIDE, LOOKED_AT = 9, 44, 200
"""Characters of the narrowest and the widest column, and rows whose texts decide."""
PAGE = 180
"""Characters that are still read where they stand on one printed page side by side."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet program take a text for a formula, as soon as somebody types into its cell."""


def write_frame(frame: DataFrame, path: str | os.PathLike[str], name: str) -> None:
    """Write a frame to an .xlsx file with one sheet of that name.

    A head's comment says the unit that ``attrs["units"]`` has for it. A cell that holds no finite number stays blank.
    Raises `UsageError` for more than a sheet holds, and where the file cannot be written.
    """
    rows, columns = frame.shape
    if rows >= MOST_ROWS or columns > MOST_COLUMNS:
        raise UsageError(f"{path}: {rows:,} rows of {columns:,} cells are more than a sheet holds; write .csv instead")
    units, heads = frame.attrs.get("units", {}), [str(head) for head in frame.columns]
    cells = [frame.iloc[:, place].tolist() for place in range(columns)]
    with writing(path, constant_memory=True) as book:
        widths = [_width(head, islice(column, LOOKED_AT)) for head, column in zip(heads, cells, strict=True)]
        sheet = book.sheet(name, widths, protect=False).made
        sheet.freeze_panes(1, 0)
        sheet.autofilter(0, 0, rows, max(columns - 1, 0))
        sheet.repeat_rows(0)
        sheet.fit_to_pages(math.ceil(sum(widths) / PAGE), 0)
        text, kept = book.style("text", indent=1), book.style("text", indent=1, quote_prefix=True)
        for place, head in enumerate(heads):
            numeric = any(isinstance(value, (int, float)) for value in islice(cells[place], LOOKED_AT))
            sheet.write_string(0, place, head, book.style("head_right") if numeric else book.style("head", indent=1))
            if units.get(head, "1") != "1":
                sheet.write_comment(0, place, f"in {units[head]}", {"x_scale": 0.6, "y_scale": 0.3})
        for row, values in enumerate(zip(*cells, strict=True), start=1):
            for place, value in enumerate(values):
                if isinstance(value, bool):
                    sheet.write_boolean(row, place, value, text)
                elif isinstance(value, (int, float)):
                    if math.isfinite(value):
                        shown = number_format(units.get(heads[place], ""), value)
                        sheet.write_number(row, place, value, book.style("figure", shown))
                elif said := _text(value):
                    sheet.write_string(row, place, said, kept if said.startswith(FORMULA_STARTS) else text)


def _text(value: Any) -> str:
    """A cell as a text; what is absent, in pandas' several ways, is none."""
    absent = value is None or type(value).__name__ in ("NAType", "NaTType")
    return "" if absent else str(value)[:LONGEST_TEXT]


def _width(head: str, values: Iterable[Any]) -> float:
    texts = (value for value in values if isinstance(value, str))
    return min(max(NARROW, len(head) + 3, *(len(text) + 1 for text in texts)), WIDE)
