"""The cells of an .xlsx file, read strictly and with the standard library: values, and the names of cells.

An .xlsx file is a zip archive of XML (ECMA-376, part 1, section 18). Of a formula only its value is read.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from dataclasses import dataclass, field
from functools import cached_property
from posixpath import join, normpath
from typing import Any
from xml.etree import ElementTree

from planner.errors import InputError

MOST_BYTES = 400_000_000  # unpacked: hundreds of models; what is larger was made to harm
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_PLACE = re.compile(r"'?(?P<sheet>[^!]*?)'?!\$?(?P<column>[A-Z]{1,3})\$?(?P<row>\d{1,7})")


@dataclass
class Cells:
    """The cells of a file. Raises `InputError`, when they are asked for, where it is none or is damaged."""

    path: str
    _sheets: dict[str, dict[str, Any]] = field(default_factory=dict)

    @cached_property
    def names(self) -> dict[str, tuple[str, str]]:
        """Name -> (sheet, cell such as B7) of every named cell."""
        found = {}
        for entry in self._xml("xl/workbook.xml").iter(f"{_MAIN}definedName"):
            match = _PLACE.fullmatch(entry.text or "")
            if match:
                found[entry.get("name", "")] = (match["sheet"].replace("''", "'"), match["column"] + match["row"])
        return found

    def value(self, sheet: str, cell: str) -> Any:
        """A number, a text, a bool, or None for a blank cell. Raises `InputError` for a cell that holds an error."""
        return self._of(sheet).get(cell)

    def below(self, sheet: str, cell: str) -> list[str]:
        """The texts from a cell downwards, up to the last row that has one in that column."""
        column, row = re.sub(r"\d", "", cell), int(re.sub(r"\D", "", cell))
        texts = {int(key.removeprefix(column)): value for key, value in self._of(sheet).items() if _is_in(key, column)}
        return [str(texts.get(at) or "") for at in range(row, max(texts, default=0) + 1)]

    def _of(self, sheet: str) -> dict[str, Any]:
        if sheet not in self._sheets:
            file = self._files.get(sheet)
            if file is None:
                raise InputError(f"{self.path}: has no sheet {sheet!r}")
            self._sheets[sheet] = {cell.get("r", ""): self._value(cell) for cell in self._xml(file).iter(f"{_MAIN}c")}
        return self._sheets[sheet]

    @cached_property
    def _files(self) -> dict[str, str]:
        targets = {entry.get("Id"): entry.get("Target", "") for entry in self._xml("xl/_rels/workbook.xml.rels")}
        sheets = self._xml("xl/workbook.xml").iter(f"{_MAIN}sheet")
        found = {entry.get("name", ""): targets.get(entry.get(_RELATION), "") for entry in sheets}
        return {name: normpath(join("xl", target)).removeprefix("/") for name, target in found.items()}

    @cached_property
    def _shared(self) -> list[str]:
        if "xl/sharedStrings.xml" not in self._archive.namelist():
            return []
        return [_text(entry) for entry in self._xml("xl/sharedStrings.xml").iter(f"{_MAIN}si")]

    def _value(self, cell: ElementTree.Element) -> Any:
        kind, written = cell.get("t", "n"), cell.findtext(f"{_MAIN}v")
        try:
            match kind:
                case "inlineStr":
                    return _text(cell)
                case _ if not written:
                    return None
                case "s":
                    return self._shared[int(written)]
                case "n":
                    return float(written)
                case "b":
                    return written == "1"
                case _:
                    return written
        except (ValueError, IndexError):
            raise self._damaged(f"cell {cell.get('r')} holds {written!r:.40}") from None

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        try:
            archive = zipfile.ZipFile(self.path)
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        except (zipfile.BadZipFile, ValueError):
            raise InputError(f"{self.path}: is no .xlsx workbook") from None
        if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
            raise InputError(f"{self.path}: unpacks to more than {MOST_BYTES:,} bytes; the planner writes no such file")
        return archive

    def _xml(self, name: str) -> ElementTree.Element:
        try:
            text = self._archive.read(name)
            if b"<!DOCTYPE" in text:
                raise self._damaged(f"{name} declares a document type")
            return ElementTree.fromstring(text)
        except KeyError:
            raise self._damaged(f"{name} is missing") from None
        except (ElementTree.ParseError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise self._damaged(f"{name}: {error}") from None

    def _damaged(self, what: str) -> InputError:
        return InputError(f"{self.path}: is damaged: {what}")


def _text(entry: ElementTree.Element) -> str:
    """The text of a string, without the reading aids that Japanese texts have."""
    hints = {id(t) for hint in entry.iter(f"{_MAIN}rPh") for t in hint.iter(f"{_MAIN}t")}
    text = "".join(t.text or "" for t in entry.iter(f"{_MAIN}t") if id(t) not in hints)
    return re.sub(r"_x([0-9A-Fa-f]{4})_", lambda code: chr(int(code[1], 16)), text)


def _is_in(key: str, column: str) -> bool:
    return key.startswith(column) and key.removeprefix(column).isdigit()
