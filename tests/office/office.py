"""A spreadsheet program without a window: it opens workbooks, computes every formula anew and saves them."""

import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import openpyxl

# An .xlsx file that another program wrote is computed anew only where the profile says "always" (0).
ALWAYS = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>{mode}</value></prop>
</item>
</oor:items>
"""

NAMESPACE = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
TABLE, OFFICE, TEXT = (NAMESPACE % part for part in ("table", "office", "text"))
CALC = "{urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0}"


class Office:
    """LibreOffice with a profile of its own; `mode` 0 computes always, 1 never."""

    def __init__(self, folder: Path, mode: int = 0) -> None:
        self.program = shutil.which("soffice")
        if self.program is None:
            raise RuntimeError("LibreOffice is not installed: apt-get install libreoffice-calc-nogui")
        self.profile = folder / f"profile{mode}"
        (self.profile / "user").mkdir(parents=True)
        (self.profile / "user" / "registrymodifications.xcu").write_text(ALWAYS.format(mode=mode))

    def convert(self, paths: list[Path], into: Path, to: str = "ods") -> list[Path]:
        command = [self.program, f"-env:UserInstallation=file://{self.profile}", "--headless"]
        command += ["--convert-to", to, "--outdir", str(into), *map(str, paths)]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        return [into / path.with_suffix(f".{to.partition(':')[0]}").name for path in paths]


def change(path: Path, into: Path, cells: dict[tuple[str, str] | str, object]) -> None:
    """Save a workbook with other values in cells, given by name or by (sheet, cell), and without any cached value."""
    book = openpyxl.load_workbook(path)
    for place, value in cells.items():
        sheet, cell = next(iter(book.defined_names[place].destinations)) if isinstance(place, str) else place
        book[sheet][cell.replace("$", "")] = value
    book.save(into)


def values(path: Path) -> dict[str, list[list[object]]]:
    """Sheet -> rows of values of an .ods file, which keeps every digit of a whole number (an .xlsx file keeps 15)."""
    root = ElementTree.fromstring(zipfile.ZipFile(path).read("content.xml"))
    return {table.get(f"{TABLE}name"): list(_rows(table)) for table in root.iter(f"{TABLE}table")}


def _rows(table: ElementTree.Element) -> Iterator[list[object]]:
    for row in table.iter(f"{TABLE}table-row"):
        cells: list[object] = []
        for cell in row:
            kind = cell.get(f"{CALC}value-type") or cell.get(f"{OFFICE}value-type")
            text = "\n".join("".join(line.itertext()) for line in cell.findall(f"{TEXT}p"))
            value = {None: None, "float": cell.get(f"{OFFICE}value")}.get(kind, text)
            number = None if value is None else float(value) if kind == "float" else value
            cells += [number] * min(int(cell.get(f"{TABLE}number-columns-repeated", "1")), 300)
        yield from [cells] * min(int(row.get(f"{TABLE}number-rows-repeated", "1")), 300)


def errors(sheets: dict[str, list[list[object]]]) -> list[tuple[str, int, object]]:
    """Every cell that holds an error."""
    return [
        (name, number, cell)
        for name, rows in sheets.items()
        for number, row in enumerate(rows, 1)
        for cell in row
        if isinstance(cell, str) and cell.startswith(("#", "Err:"))
    ]
