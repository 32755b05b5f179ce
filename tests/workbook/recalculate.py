"""A whole workbook computed in this process by the package `formulas`, which knows no tables and no names of cells.

So references to these are first written as plain cells. Nothing here knows what a formula of ours should give.
"""

import re
from pathlib import Path

import formulas
import openpyxl
from openpyxl.utils import get_column_letter, range_boundaries

TABLE = re.compile(r"(\w+)\[(?:\[#(This Row|Headers)\],)?\[?([^\[\]]+)\]?(?::\[([^\[\]]+)\])?\]")
NAME = re.compile(r"(?<![\w!$.'])([a-z][a-z0-9]*(?:_[a-z0-9]+)*)(?![\w!(\[])")


def recalculated(path: Path) -> dict[str, dict[str, object]]:
    """Sheet -> cell -> value, of every cell with a formula."""
    book = openpyxl.load_workbook(path)
    tables = {}
    for sheet in book:
        for table in sheet.tables.values():
            left, top, _, bottom = range_boundaries(table.ref)
            columns = {column.name: get_column_letter(left + at) for at, column in enumerate(table.tableColumns)}
            tables[table.name] = (sheet.title, top, bottom, columns)
        sheet._charts = []
    names = {name: next(iter(entry.destinations)) for name, entry in book.defined_names.items() if "!" in entry.value}
    cells = [(sheet, cell) for sheet in book for row in sheet.iter_rows() for cell in row if cell.data_type == "f"]
    for _, cell in cells:
        texts = re.split(r'("[^"]*")', cell.value)
        texts[::2] = [_plain(text, cell.row, tables, names) for text in texts[::2]]
        cell.value = "".join(texts)
    for sheet in book:
        for name in list(sheet.tables):
            del sheet.tables[name]
    for name in list(book.defined_names):
        del book.defined_names[name]
    target = path.with_name("plain.xlsx")
    book.save(target)
    computed = formulas.ExcelModel().loads(str(target)).finish().calculate()
    found: dict[str, dict[str, object]] = {}
    for sheet, cell in cells:
        value = computed[f"'[plain.xlsx]{sheet.title.upper()}'!{cell.coordinate}"].value[0, 0]
        found.setdefault(sheet.title, {})[cell.coordinate] = value
    return found


def _plain(text: str, row: int, tables: dict, names: dict) -> str:
    def cells(match: re.Match) -> str:
        sheet, top, bottom, columns = tables[match[1]]
        first, last = columns[match[3]], columns[match[4] or match[3]]
        low, high = {"This Row": (row, row), "Headers": (top, top), None: (top + 1, bottom)}[match[2]]
        return f"{sheet}!{first}{low}" if (first, low) == (last, high) else f"{sheet}!{first}{low}:{last}{high}"

    return NAME.sub(lambda m: "!".join(names[m[1]]) if m[1] in names else m[1], TABLE.sub(cells, text))
