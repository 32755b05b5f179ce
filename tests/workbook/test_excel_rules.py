"""What Excel is known to refuse or to mark, looked for in the file itself.

Sources: Microsoft, "Excel specifications and limits" (lengths, levels, arguments), "Names in formulas" (what a name may
be), "Using structured references with Excel tables" (signs in column names), "Issue: An _xlfn. prefix is displayed in
front of a formula" (functions that are newer than 2007), [MS-OI29500] 2.1.1085 (characters of a formula); ISO/IEC
29500-1, 18.17.2 (formulas), 18.5.1 (tables), 18.3.1.32 (data validation).
"""

import math
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

import planner
from planner.plan import make_plan
from planner.workbook import write_workbook

pytestmark = pytest.mark.usefixtures("few_spare_rows")

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
FUNCTIONS = set("AND IF IFERROR INDEX INT ISNUMBER MATCH MAX MIN N OR SUBSTITUTE SUM SUMIFS TEXT".split())
"""All of them are in Excel 2007, so none is written with the prefix _xlfn."""
TEXT = re.compile(r'"(?:[^"]|"")*"')
CELL = re.compile(r"[A-Za-z]{1,3}\d{1,7}|[RrCc]|[Rr]\d*[Cc]\d*|[Rr]\d+|[Cc]\d+", re.ASCII)
NAME = re.compile(r"[A-Za-z_\\][\w.\\]*", re.ASCII)
PLAIN_COLUMN = re.compile(r"[\w ]+")
COLUMN = re.compile(r"\b[A-Z]\w*\[([^\[\]]+)\]")

BOOKS = {
    "dense": lambda: make_plan("llama-3.1-70b", accelerator="h100-sxm", count=8, context=32_768, sequences=16),
    "experts": lambda: make_plan("deepseek-v3", accelerator="h200-sxm", count=16, weights="fp8", sequences=64),
    "mixed": lambda: make_plan("llama-3.1-8b", accelerator="h100-sxm", weights="awq-g128+lm_head=int8-channel"),
    "variants": lambda: [make_plan("mha", accelerator="h100-sxm"), "mqa", "mla", "jamba-v0.1", "gemma-3-12b"],
    "names": lambda: [
        planner.edit(planner.load("gpt2"), name=name, title=f"{name}!")
        for name in ("R1C1", "r", "A1", "true", "=1+1", "x" * 300, 'say "no"', "[#All]", "it's", "1", "a\tb")
    ],
}


class File:
    """The parts of an .xlsx file."""

    def __init__(self, path: Path) -> None:
        archive = zipfile.ZipFile(path)
        self.parts = {n: ElementTree.fromstring(archive.read(n)) for n in archive.namelist() if n.endswith(".xml")}
        self.sheets = [part for name, part in self.parts.items() if name.startswith("xl/worksheets/sheet")]
        self.tables = [part for name, part in self.parts.items() if name.startswith("xl/tables/")]
        self.names = [e for e in self.parts["xl/workbook.xml"].iter(f"{MAIN}definedName")]
        self.texts = ["".join(e.itertext()) for e in self.parts["xl/sharedStrings.xml"].iter(f"{MAIN}si")]
        formulas = [e.text or "" for sheet in self.sheets for e in sheet.iter(f"{MAIN}f")]
        columns = [e.text or "" for table in self.tables for e in table.iter(f"{MAIN}calculatedColumnFormula")]
        self.formulas = sorted({*formulas, *columns})


@pytest.fixture(scope="module", params=BOOKS)
def file(request, tmp_path_factory) -> File:
    path = tmp_path_factory.mktemp("rules") / "book.xlsx"
    write_workbook(BOOKS[request.param](), path)
    return File(path)


def depth(text: str) -> int:
    """Levels of brackets."""
    level = deepest = 0
    for sign in text:
        level += (sign == "(") - (sign == ")")
        deepest = max(deepest, level)
    return deepest


def arguments(text: str) -> int:
    """Most arguments between one pair of brackets."""
    counts, most = [1], 1
    for sign in text:
        if sign == "(":
            counts.append(1)
        elif sign == ")":
            most = max(most, counts.pop())
        elif sign == ",":
            counts[-1] += 1
    return most


def test_formulas_are_within_the_limits_and_of_known_functions(file):
    assert len(file.formulas) > 100
    for text in file.formulas:
        bare = re.sub(r"\[[^\[\]]*\]", "", TEXT.sub("", text))
        assert len(text) <= 8192
        assert max(map(len, TEXT.findall(text)), default=0) <= 255 + 2
        assert depth(bare) <= 64
        assert arguments(bare) <= 255
        assert set(re.findall(r"([A-Z][A-Z0-9.]*)\(", bare)) <= FUNCTIONS
        assert not text.startswith("=")
        assert "_xlfn" not in text


def test_column_names_with_signs_have_brackets_of_their_own(file):
    for text in file.formulas:
        for column in COLUMN.findall(TEXT.sub("", text)):
            assert PLAIN_COLUMN.fullmatch(column), text


def test_formulas_name_only_tables_and_columns_that_there_are(file):
    columns = {t.get("displayName"): {c.get("name") for c in t.iter(f"{MAIN}tableColumn")} for t in file.tables}
    for text in file.formulas:
        for table, inside in re.findall(r"\b([A-Z]\w*)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]", TEXT.sub("", text)):
            named = re.findall(r"\[([^\[\]]*)\]", inside) or [inside]
            assert {name for name in named if not name.startswith("#")} <= columns[table], text


def test_names_are_ones_that_excel_takes(file):
    names = [entry.get("name", "") for entry in file.names if not entry.get("name", "").startswith("_xlnm.")]
    names += [table.get("displayName", "") for table in file.tables]
    assert len({name.casefold() for name in names}) == len(names)  # names of cells and of tables share one list
    for name in names:
        assert NAME.fullmatch(name), name
        assert not CELL.fullmatch(name), name
        assert name.casefold() not in ("true", "false")
        assert len(name) <= 255


def test_heads_of_tables_are_distinct_texts_that_stand_in_their_cells(file):
    for table in file.tables:
        heads = [column.get("name", "") for column in table.iter(f"{MAIN}tableColumn")]
        assert len({head.casefold() for head in heads}) == len(heads)
        assert all(head and head in file.texts for head in heads)
        assert not any(sign in head for head in heads for sign in "[]#'@\n\t")
        assert table.get("name") == table.get("displayName")
        assert table.find(f"{MAIN}autoFilter") is None or int(table.get("headerRowCount", "1")) == 1


def test_validations_are_within_the_limits(file):
    for sheet in file.sheets:
        for rule in sheet.iter(f"{MAIN}dataValidation"):
            formulas = [rule.findtext(f"{MAIN}formula{n}") or "" for n in (1, 2)]
            assert max(map(len, formulas)) <= 255
            assert not (rule.get("type") == "list" and formulas[0].startswith('"'))  # an area has no limit, a text has
            assert len(rule.get("error", "")) <= 255
            assert len(rule.get("errorTitle", "")) <= 32


def test_numbers_are_numbers(file):
    """Excel marks a text that is a number with a green corner; only what a user called a number may be one."""
    number = re.compile(r"[-+]?\d[\d,]*(\.\d*)?(e[-+]?\d+)?%?", re.ASCII)
    numeric = [text for text in file.texts if number.fullmatch(text.strip())]
    assert set(numeric) <= {"1"}
    for sheet in file.sheets:
        for cell in sheet.iter(f"{MAIN}c"):
            value = cell.findtext(f"{MAIN}v")
            if cell.get("t") in (None, "n") and value:  # an empty text beside a formula is written as no value
                assert math.isfinite(float(value))


def test_texts_rows_columns_and_sheets_are_within_the_limits(file):
    assert max(map(len, file.texts)) <= 32_767
    for sheet in file.sheets:
        assert all(float(row.get("ht", "0")) <= 409 for row in sheet.iter(f"{MAIN}row"))
        assert all(float(column.get("width", "0")) <= 255 for column in sheet.iter(f"{MAIN}col"))
    names = [entry.get("name", "") for entry in file.parts["xl/workbook.xml"].iter(f"{MAIN}sheet")]
    assert all(len(name) <= 31 and not set(name) & set("[]:*?/\\") for name in names)
    styles = file.parts["xl/styles.xml"]
    assert len(list(styles.iter(f"{MAIN}numFmt"))) <= 200
    assert len(list(styles.iter(f"{MAIN}xf"))) <= 65_490
