"""The file itself: cells with a value, cells with a live formula and the value that it has now, names and styles.

Styles are few and mean something: yellow is for you to change, everything else is locked (without a password).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xlsxwriter
from xlsxwriter.utility import xl_rowcol_to_cell

from planner.arithmetic import Value, evaluate
from planner.errors import UsageError
from planner.notation import excel
from planner.workbook.ranges import Range

# No text becomes a formula, a link or a number by what it looks like.
OPTIONS = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
INK, GREY, RULE, HEAD, YELLOW, RED = "#1F2933", "#6B7780", "#C9D1D9", "#E8EDF2", "#FFF6CC", "#B42318"
LEFT, RIGHT = {"align": "left", "indent": 1}, {"align": "right", "indent": 1}
WRONG = {"font_color": "#FFFFFF", "bg_color": RED}
_BASE = {"font_name": "Arial", "font_size": 10, "font_color": INK, "valign": "top"}
STYLES: dict[str, dict[str, Any]] = {
    "title": {"font_size": 16, "bold": True},
    "section": {"font_size": 12, "bold": True, "bottom": 1, "bottom_color": RULE},
    "head": {"bold": True, "bg_color": HEAD, "bottom": 1, "bottom_color": RULE},
    "text": {},
    "strong": {"bold": True},
    "head_left": {"bold": True, "bg_color": HEAD, "bottom": 1, "bottom_color": RULE, **LEFT},
    "head_right": {"bold": True, "bg_color": HEAD, "bottom": 1, "bottom_color": RULE, **RIGHT},
    "wrap": {"text_wrap": True, **LEFT},
    "note": {"font_color": GREY, "text_wrap": True, **LEFT},
    "unit": {"font_color": GREY, **LEFT},
    "subtitle": {"font_color": GREY},
    "number": {"font_color": GREY, "align": "left"},
    "unit_right": {"font_color": GREY, **RIGHT},
    "link": {"font_color": "#1D5F9E", "underline": 1},
    "verdict": {"bold": True, **RIGHT},
    "indented": LEFT,
    "section_check": {"font_color": "#FFFFFF", "bottom": 1, "bottom_color": RULE, **LEFT},
    "line": {"font_name": "Courier New", "font_size": 9},
    "code": {"font_name": "Courier New", "font_size": 9, "text_wrap": True, **LEFT},
    "input": {"bg_color": YELLOW, "border": 1, "border_color": RULE, "locked": False, **RIGHT},
    "choice": {"bg_color": YELLOW, "border": 1, "border_color": RULE, "locked": False, **LEFT},
    "wrong": {**WRONG, **RIGHT},
    "figure": RIGHT,
    "total": {**RIGHT, "bold": True, "top": 1, "top_color": RULE},
    "total_number": {"align": "left", "font_color": GREY, "top": 1, "top_color": RULE},
    "total_text": {"bold": True, "top": 1, "top_color": RULE, **LEFT},
}
BAD = {"font_color": RED, "bold": True}
MARKS: dict[str, dict[str, Any]] = {"does not fit": BAD, "tight": {"font_color": "#9A5B00"}}
"""How verdicts look that ask for attention."""
OK = "ok"
"""What a check says of yellow cells that hold what they may; of others it says what is wrong with the first."""
A3, A4 = 8, 9
LINE, PER_WIDTH, HIGHEST = 12.75, 1.2, 409
"""Points of a line, characters of an average text that a unit of column width holds, and points of the highest row."""
GIB = 2**30
NUMBER = "#,##0"
FORMATS = {
    "GiB": "#,##0.00",
    "token": NUMBER,
    "s": "#,##0.000000",
    "1/s": "#,##0.0000",
    "token/s": "#,##0.0",
    "USD": "[>=100]#,##0.00;#,##0.0000",
    "USD/h": "#,##0.0000",
    "USD/kWh": "#,##0.0000",
    "TFLOP/s": "#,##0.0",
    "FLOP/B": "#,##0.0",
    "year": "#,##0.##",
    "crossover": '#,##0.0;"never";"never"',  # a context or a batch below 0 is none
}
"""How numbers of a unit are shown; all others as whole numbers in groups of three, and shares with their decimals."""


def number_format(unit: str, value: Any = 0) -> str:
    """The number format of a unit; a value that is no whole number, and has none of its own, keeps some decimals."""
    whole = not isinstance(value, (int, float)) or value == math.floor(value) or abs(value) >= 1e6
    return FORMATS.get(unit, NUMBER if whole else "#,##0.00####")


@dataclass
class Book:
    """A workbook that is being written.

    `values` are those of the named cells, `names` the cells by name, `lists` the areas of texts to choose from.
    """

    file: Any
    values: dict[str, Value] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    lists: dict[str, str] = field(default_factory=dict)
    _styles: dict[Any, Any] = field(default_factory=dict)
    _sheets: list[Sheet] = field(default_factory=list)

    def style(self, name: str, num_format: str | None = None, **more: Any) -> Any:
        """A style of `STYLES`, with a number format."""
        key = (name, num_format, *more.items())
        if key not in self._styles:
            extra = {"num_format": num_format} if num_format else {}
            self._styles[key] = self.file.add_format({**_BASE, **STYLES[name], **extra, **more})
        return self._styles[key]

    def sheet(self, name: str, widths: Sequence[float], *, protect: bool = True, paper: int = A4) -> Sheet:
        """A new sheet, printed in landscape, one page wide."""
        made = self.file.add_worksheet(name)
        made.hide_gridlines(2)
        made.set_landscape()
        made.set_paper(paper)
        made.fit_to_pages(1, 0)
        made.set_margins(left=0.4, right=0.4, top=0.5, bottom=0.6)
        made.set_footer("&L&8&A&R&8page &P of &N")
        for column, width in enumerate(widths):
            made.set_column(column, column, width, self.style("text"))
        if protect:
            made.protect("", {"format_columns": True, "format_rows": True, "autofilter": True, "sort": True})
        self._sheets.append(Sheet(self, made, name, tuple(widths)))
        return self._sheets[-1]

    def close(self) -> None:
        """Make rows as high as their wrapped texts, and write the file."""
        for sheet in self._sheets:
            sheet.set_heights()
        self.file.close()

    def define(self, word: str, sheet: str, row: int, column: int, value: Value) -> None:
        """Give a cell a name by which formulas know it."""
        self.file.define_name(word, f"='{sheet}'!{xl_rowcol_to_cell(row, column, True, True)}")
        self.names[word] = word
        self.values[word] = value

    def cell_of(self, word: str) -> str:
        """The reference of a named cell or of a step."""
        return self.names[word]


@dataclass
class Sheet:
    """A sheet that is being written."""

    book: Book
    made: Any
    name: str
    widths: tuple[float, ...]
    _lines: dict[int, int] = field(default_factory=dict)

    def text(self, row: int, column: int, value: str, style: str = "text") -> None:
        """A text that stays a text."""
        if style == "title":
            self.made.set_row(row, 24)
        if STYLES[style].get("text_wrap") and column < len(self.widths):
            self._lines[row] = max(self._lines.get(row, 1), math.ceil(len(value) / (self.widths[column] * PER_WIDTH)))
        self.made.write_string(row, column, value, self.book.style(style))

    def number(self, row: int, column: int, value: Any, unit: str = "1", style: str = "figure") -> None:
        """A number; one that is not known leaves the cell blank."""
        shown = self.book.style(style, number_format(unit, value))
        if value is None or value != value:
            self.made.write_blank(row, column, None, shown)
        else:
            self.made.write_number(row, column, value, shown)

    def formula(
        self, row: int, column: int, text: str, value: Any, unit: str = "1", style: str = "figure", check: str = ""
    ) -> None:
        """A formula, without its leading ``=``, and the value that it has now; both only while `check` says `OK`."""
        if check:
            text, value = f'IF({check}="{OK}",{text},"")', value if self.book.values[check] == OK else ""
        if len(text) > 8000:
            raise UsageError(f"{self.name}: a formula of {len(text):,} characters does not fit a cell")
        shown = self.book.style(style, number_format(unit, value))
        self.made.write_formula(row, column, f"={text}", shown, cached(value))

    def live(self, row: int, column: int, tree: Value, unit: str = "1", *, check: str) -> Value:
        """The formula of a recorded figure over named cells; returns its value."""
        value = evaluate(tree, self.book.values)
        self.formula(row, column, excel(tree, self.book.cell_of), value, unit, check=check)
        return value

    def input(self, row: int, column: int, value: Any, unit: str = "1", allowed: Range | None = None) -> None:
        """A yellow cell to change, which turns red where it holds what is not allowed."""
        if isinstance(value, str):
            self.text(row, column, value, "choice")
        else:
            self.number(row, column, value, unit, "input")
        if allowed:
            self.made.data_validation(row, column, row, column, allowed.validation())
            broken = allowed.broken(xl_rowcol_to_cell(row, column))
            self.mark(row, row, column, broken, WRONG)

    def mark_verdicts(self, first: int, last: int, column: int) -> None:
        """Colour the verdicts of some rows as `MARKS` says, whatever they become."""
        for text, look in MARKS.items():
            self.mark(first, last, column, f'{xl_rowcol_to_cell(first, column)}="{text}"', look)

    def mark(self, first: int, last: int, column: int, when: str, look: dict[str, Any]) -> None:
        """Colour the cells for which a formula, written for the first of them, is true."""
        condition = {"type": "formula", "criteria": f"={when}", "format": self.book.file.add_format(look)}
        self.made.conditional_format(first, column, last, column, condition)

    def set_heights(self) -> None:
        """Rows of several lines, since not every program measures them when it opens a file."""
        for row, lines in self._lines.items():
            if lines > 1:
                self.made.set_row(row, min(LINE * lines + 3, HIGHEST))

    def heads(self, row: int, heads: Sequence[str], *, right: Collection[str] = ()) -> None:
        """A row of column heads; those of numbers stand to the right."""
        for place, head in enumerate(heads):
            self.text(row, place, head, "head_right" if head in right else "head_left" if place else "head")

    def section(self, row: int, title: str, columns: int, column: int = 0) -> None:
        """The title of a section, with a rule below it."""
        for place in range(column, column + columns):
            self.text(row, place, title if place == column else "", "section")

    def table(
        self,
        row: int,
        column: int,
        name: str,
        heads: Sequence[str],
        rows: int,
        left: Collection[str] = (),
        first: str = "head",
        **options: Any,
    ) -> None:
        """An Excel table over cells that are written before or after; heads are those of numbers, but for `left`.

        `first` is the style of the first.
        """
        area = (row, column, row + max(rows, 1), column + len(heads) - 1)
        columns = [
            {"header": head, "header_format": self.book.style("head_left" if head in left else "head_right")}
            for head in heads
        ]
        columns[0]["header_format"] = self.book.style(first)
        for head, formula in options.pop("formulas", {}).items():
            columns[list(heads).index(head)]["formula"] = formula
        settings = {"name": name, "columns": columns, "style": "Table Style Light 1", "banded_rows": False}
        self.made.add_table(*area, {"autofilter": False, **settings, **options})


def cached(value: Any) -> Any:
    """A value as a file keeps it beside a formula."""
    return value if isinstance(value, (str, int)) else float(value)


def column_of(table: str, name: str) -> str:
    """A column of a table; Excel wants names with signs in them, such as ``awq-g128``, in brackets of their own."""
    return f"{table}[{name}]" if name.isidentifier() else f"{table}[[{name}]]"


@contextmanager
def writing(path: Any, **options: Any) -> Iterator[Book]:
    """A book that is closed when all is written; `options` are XlsxWriter's.

    Raises `UsageError` for a name that no spreadsheet program opens, and where the file cannot be made.
    """
    if Path(path).suffix.lower() != ".xlsx":
        raise UsageError(f"{path}: a workbook's name ends in .xlsx")
    try:
        Path(path).touch()  # before the work, and before XlsxWriter opens files of its own
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
    book = Book(xlsxwriter.Workbook(str(path), OPTIONS | options))
    yield book
    try:
        book.close()
    except (OSError, xlsxwriter.exceptions.XlsxWriterException) as error:
        raise UsageError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
