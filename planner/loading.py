"""Strict reading of a contract from TOML or from tables, and writing it back: nothing guessed, nothing dropped."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import types
import typing
from collections.abc import Iterator
from typing import Any

from planner.contract import Architecture
from planner.errors import ContractError, InputError, suggest
from planner.spec import Spec, field_types, leaf, leaves, shown

MAX_DEPTH = 40
MAX_BYTES = 4_000_000
LINE = 100  # characters in a line of TOML that we write


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The tables of a TOML text. Raises `InputError` with the place where the text breaks off."""
    if len(text) > MAX_BYTES:
        raise InputError(f"{source}: {len(text):,} characters are more than a contract has (at most {MAX_BYTES:,})")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{source}: not valid TOML: {error}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{source}: not valid TOML: nested too deeply, or a number too long") from None


def from_table(table: dict[str, Any], source: str) -> Architecture:
    """An Architecture from plain tables. Raises `ContractError` with file, path, value and rule."""
    try:
        return typing.cast(Architecture, build(Architecture, table))
    except ContractError as error:
        raise error.within(source) from None


def build(cls: type[Spec], table: Any, path: str = "") -> Spec:
    """A part from a table of its fields; a base takes the leaf that ``kind`` names."""
    if not isinstance(table, dict):
        raise ContractError(f"{shown(table)} stands where a table of {cls.__name__.lower()} is expected", path)
    if path.count(".") > MAX_DEPTH:
        raise ContractError("nested too deeply", path)
    try:
        if leaves(cls):
            cls, table = leaf(cls, table.get("kind")), {k: v for k, v in table.items() if k != "kind"}
        elif cls.kind and table.get("kind") == cls.kind:
            table = {k: v for k, v in table.items() if k != "kind"}
        hints = field_types(cls)
        for key in table:
            if key not in hints:
                raise ContractError(f"{key}: unknown key{suggest(key, hints)}")
        for field in dataclasses.fields(cls):
            if field.name not in table and default(field) is dataclasses.MISSING:
                raise ContractError(f"{field.name} is missing")
    except ContractError as error:
        raise error.under(path) if path else error from None
    values = {key: convert(hints[key], value, f"{path}.{key}" if path else key) for key, value in table.items()}
    try:
        return cls(**values)
    except ContractError as error:
        raise error.under(path) if path else error from None


def convert(hint: Any, value: Any, path: str) -> Any:
    """Tables become parts and lists become tuples where the annotation says so; anything else stays as it is."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        return None if value is None else convert(options[0], value, path)
    if origin is tuple and isinstance(value, (list, tuple)):
        element = typing.get_args(hint)[0]
        return tuple(convert(element, item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        element = typing.get_args(hint)[1]
        return {key: convert(element, item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(hint, type) and issubclass(hint, Spec) and not isinstance(value, Spec):
        return build(hint, value, path)
    return value


def to_table(part: Spec) -> dict[str, Any]:
    """A part as plain tables: kind first, fields that have their default left out."""
    table: dict[str, Any] = {"kind": part.kind} if part.kind else {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if value is not None and value != default(field):
            table[field.name] = _plain(value)
    return table


def default(field: dataclasses.Field[Any]) -> Any:
    """The value of a field that is left out, or `dataclasses.MISSING` where it must not be."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return to_table(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def to_toml(architecture: Architecture) -> str:
    """The contract as TOML text; `from_table(parse_toml(text, source), source)` gives the same contract back."""
    return write_toml(to_table(architecture))


def write_toml(table: dict[str, Any]) -> str:
    """Tables as TOML for people: a table of few plain values stands in one line, any other under a heading of its own.

    >>> print(write_toml({"name": "x", "layers": [{"count": 32, "norm": {"kind": "rms", "eps": 1e-05}}]}))
    name = "x"
    <BLANKLINE>
    [[layers]]
    count = 32
    norm = { kind = "rms", eps = 1e-05 }
    <BLANKLINE>
    """
    return "\n".join(_section(table, "")).lstrip("\n") + "\n"


def _section(table: dict[str, Any], path: str, *, listed: bool = False) -> Iterator[str]:
    headed = {key: value for key, value in table.items() if not _fits(key, value)}
    if path and (listed or len(headed) < len(table)):
        yield from ("", f"[[{path}]]" if listed else f"[{path}]")
    yield from (f"{_key(key)} = {_inline(value)}" for key, value in table.items() if key not in headed)
    for key, value in headed.items():
        place = f"{path}.{_key(key)}" if path else _key(key)
        for entry in value if isinstance(value, list) else [value]:
            yield from _section(entry, place, listed=isinstance(value, list))


def _fits(key: str, value: Any) -> bool:
    """Whether a value is written behind its key."""
    if isinstance(value, list):
        return not any(isinstance(item, dict) for item in value)
    if isinstance(value, dict):
        plain = not any(isinstance(item, dict) for item in value.values())
        return plain and len(f"{_key(key)} = {_inline(value)}") <= LINE
    return True


def _inline(value: Any) -> str:
    """A value as TOML writes it; whole numbers from five digits on in groups of three."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_inline(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return _list([_inline(item) for item in value])
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:_}" if isinstance(value, (int, float)) and abs(value) >= 10_000 else str(value)


def _list(items: list[str]) -> str:
    if sum(len(item) + 2 for item in items) <= LINE:
        return f"[{', '.join(items)}]"
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + len(item) > LINE:
            lines.append("")
        lines[-1] += f" {item},"
    return "\n".join(["[", *(f"   {line}" for line in lines), "]"])


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _inline(key)
