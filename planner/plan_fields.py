"""The fields of a plan as people write them in a cell or on a command line: 128k, 2GiB, 1k,2k,30k, true.

A field's type says how its text is read; what is written without a prefix means the same everywhere.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from planner.assumptions import assumptions
from planner.errors import InputError
from planner.plan_parts import PARTS
from planner.spec import field_types, shown
from planner.units import parse_bytes, parse_count, parse_quantity

Parse = Callable[[str, str], Any]

TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_field(name: str, text: str, place: str = "") -> Any:
    """The value of a field of a plan from its text. Raises `InputError` with the place, which is the name by default.

    >>> parse_field("context", "32Ki"), parse_field("lengths", "1k,2k"), parse_field("mtp", "TRUE")
    (32768, (1000, 2000), True)
    >>> parse_field("usd_per_hour", "2.50"), parse_field("reserve_bytes", "2GiB"), parse_field("kv", "fp8")
    (2.5, 2147483648, 'fp8')
    """
    return _parsers().get(name, _text)(text, place or name)


def read_cell(name: str, cell: Any) -> Any:
    """A cell of a table as a plan takes it: texts are parsed, a whole number that is held as a float is an int.

    A bare number of bytes is one, since the column's name says so. Raises `InputError` for a text that says no such
    value, and for a number where a name is asked for.
    """
    if isinstance(cell, str):
        text = cell.strip()
        return parse_field(name, f"{text}B" if text.isdecimal() and _parsers().get(name) is _size else text)
    if isinstance(cell, list):
        cell = tuple(cell)
    if hasattr(cell, "item"):  # a number of NumPy
        cell = cell.item()
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    reader = _parsers().get(name)
    if reader is None and isinstance(cell, (bool, int, float)):
        raise InputError(f"{name} = {shown(cell)} is not a text")
    if reader in (parse_count, _number, _seconds, _size) and (
        isinstance(cell, bool) or not isinstance(cell, (int, float))
    ):
        raise InputError(f"{name} = {shown(cell)} is not a number")
    return cell


@cache
def _parsers() -> dict[str, Parse]:
    """Field -> reader of its text; those that are texts themselves are left out."""
    hints = {name: hint for part in PARTS.values() for name, hint in field_types(part).items()}
    by_unit: dict[str, Parse] = {"B": _size, "s": _seconds}
    found = {name: by_unit.get(known.unit, _number) for name, known in assumptions().items()}
    found |= {name: parse for name, hint in hints.items() if (parse := _parser(name, hint))}
    return found | {"count": parse_count}


def _parser(name: str, hint: Any) -> Parse | None:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next((found for option in typing.get_args(hint) if (found := _parser(name, option))), None)
    if typing.get_origin(hint) is tuple:
        return _counts
    plain = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Annotated else hint
    return {bool: _truth, int: _size if name.endswith("_bytes") else parse_count, float: _number}.get(plain)


def _number(text: str, place: str) -> Any:
    """A share, a price, years: no count, so the remedy is none with a prefix."""
    try:
        value = parse_quantity(text, "1", place)
    except InputError as error:
        said = str(error).rpartition("; ")[0]
        raise InputError(f"{said}; write a number, plain or with a point: 12, 0.85") from None
    return int(value) if value.is_integer() else value


def _seconds(text: str, place: str) -> float:
    """A duration with its unit, or a bare number of seconds, since the field's name says so."""
    return parse_quantity(f"{text}s" if text[-1:].isdecimal() else text, "s", place)


def _size(text: str, place: str) -> int:
    return parse_bytes(text, place)


def _counts(text: str, place: str) -> tuple[int, ...]:
    return tuple(parse_count(part, place) for part in text.split(","))


def _truth(text: str, place: str) -> bool:
    if text.casefold() not in TRUTHS:
        raise InputError(f"{place}: {text!r:.60} is neither true nor false")
    return TRUTHS[text.casefold()]


def _text(text: str, place: str) -> str:
    return text
