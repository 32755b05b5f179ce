"""What the readers of checkpoint headers share: bytes that can be had in parts, a stored tensor, JSON with bounds.

A header comes from a file that somebody else made, so nothing in it is believed: every length is compared with what is
there before anything of that length is asked for, and what does not add up is refused with one sentence.
"""

from __future__ import annotations

import gc
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.spec import shown
from planner.storage import StorageFormat

MAX_HEADER_BYTES = 64_000_000
"""Several times the largest published header or index; the safetensors library reads up to 100 MB."""
MAX_WIDE_BYTES = 16_000_000
"""The same for text that is not ASCII, of which Python may need four bytes for each character."""
MAX_TENSORS = 250_000
"""Tensors of one file, well above the largest published shards; the bound of memory and time."""
MAX_RANK = 16
MAX_SIDE = 2**63 - 1

_SEPARATORS_PER_TENSOR = 16


@dataclass(frozen=True, slots=True)
class ByteRanges:
    """A file of `size` bytes, read in parts; `place` is what messages call it.

    ``open_range(offset, length)`` gives that many bytes: of a local file, or of a range request.
    """

    place: str
    size: int
    open_range: Callable[[int, int], bytes]

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes from `offset`. Raises `InputError` where the file ends before."""
        if offset + length > self.size:
            raise self.refuse(f"cut off: bytes {offset:,} to {offset + length:,} are needed of {self.size:,}")
        data = self.open_range(offset, length)
        if len(data) != length:
            raise self.refuse(f"{len(data):,} bytes came where {length:,} from {offset:,} were asked for")
        return data

    def refuse(self, rule: str) -> InputError:
        """The error that says what is wrong with this file."""
        return InputError(f"{self.place}: {rule}")


class StoredTensor(NamedTuple):
    """A tensor as a file holds it: shape in the order of NumPy, the file's own word for its type, where it lies."""

    name: str
    shape: tuple[int, ...]
    format: StorageFormat
    dtype: str
    offset: int
    stored_bytes: int


def place_of(path: Path) -> str:
    """A path as a message shows it, whatever characters are in it."""
    return str(path) if str(path).isprintable() else ascii(str(path))


def local_file(path: Path) -> ByteRanges:
    """A file on this machine. Raises `InputError` if it cannot be read or is no regular file."""
    place = place_of(path)

    def open_range(offset: int, length: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(length)
        except OSError as error:
            raise InputError(f"{place}: cannot be read: {error.strerror}") from None

    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{place}: not a file")
    return ByteRanges(place, status.st_size, open_range)


def parse_json(data: bytes, place: str) -> dict[str, Any]:
    """The JSON object of a header or an index; every object's keys are different.

    What the objects would take in memory is bounded before the text is parsed, by counting what separates them.

    >>> parse_json(b'{"a": 1, "a": 2}', "index.json")
    Traceback (most recent call last):
    planner.errors.InputError: index.json: the key 'a' is there twice
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise InputError(f"{place}: the key {shown(twice)} is there twice")
        return table

    def constant(word: str) -> Any:
        raise InputError(f"{place}: {word} is not a number of JSON")

    if len(data) > MAX_WIDE_BYTES and not data.isascii():
        raise InputError(f"{place}: {len(data):,} bytes that are not ASCII; at most {MAX_WIDE_BYTES:,} are read")
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_TENSORS * _SEPARATORS_PER_TENSOR:
        raise InputError(f"{place}: more entries than {MAX_TENSORS:,} tensors need; such a header is refused")
    try:
        table = json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant)
    except UnicodeDecodeError:
        raise InputError(f"{place}: not UTF-8") from None
    except RecursionError:
        raise InputError(f"{place}: nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{place}: not valid JSON: {error!s:.120}") from None
    if not isinstance(table, dict):
        raise InputError(f"{place}: {shown(table)} stands where a JSON object is expected")
    return table


@contextmanager
def uncollected() -> Iterator[None]:
    """Read without Python's search for cycles: of so many small objects it frees none, and doubles the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def printable(name: str, place: str) -> str:
    """A tensor's name, refused if it would garble a terminal or cannot be written as UTF-8."""
    if not name.isprintable():
        raise InputError(f"{place}: the tensor name {shown(name)} is not printable text")
    return name
