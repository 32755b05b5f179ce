"""Strict reading of a contract from TOML or from plain tables, and writing it back: nothing guessed, nothing dropped."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from typing import Any

from planner.contract import Architecture
from planner.errors import ContractError, InputError, suggest
from planner.spec import Spec, field_types, leaf, leaves, shown

MAX_DEPTH = 40
MAX_BYTES = 4_000_000


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
            if field.name not in table and field.default is dataclasses.MISSING:
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
    if isinstance(hint, type) and issubclass(hint, Spec) and not isinstance(value, Spec):
        return build(hint, value, path)
    return value


def to_table(part: Spec) -> dict[str, Any]:
    """A part as plain tables: kind first, fields that have their default left out."""
    table: dict[str, Any] = {"kind": part.kind} if part.kind else {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if value is not None and value != field.default:
            table[field.name] = _plain(value)
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return to_table(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def to_toml(architecture: Architecture) -> str:
    """The contract as TOML text; `from_table(parse_toml(text))` gives the same contract back."""
    import tomli_w

    return tomli_w.dumps(to_table(architecture))
