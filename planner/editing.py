"""Changing a contract by path, and saying what differs between two.

A path is written as the contract nests: ``layers[0].mixer.n_kv_heads``, ``layers[*].mixer.window``, ``output.tied``. The bare
name of a field will do where it is unambiguous: where it stands once, or stands everywhere with the same value.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from planner.contract import Architecture
from planner.errors import ContractError, InputError, UsageError, suggest
from planner.loading import convert
from planner.spec import Spec, field_names, field_types, parts_of
from planner.units import parse_count

_STEP = re.compile(r"([A-Za-z_]\w*)(?:\[(\d+|\*)\])?", re.ASCII)
Step = tuple[str, int | str | None]


def flatten(part: Spec, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every field that holds no part, and (path.kind, kind) of every part that has one."""
    if part.kind:
        yield f"{path}.kind", part.kind
    for name in field_names(type(part)):
        value, place = getattr(part, name), f"{path}.{name}" if path else name
        inner = list(parts_of(value, place))
        for piece, where in inner:
            yield from flatten(piece, where)
        if not inner:
            yield place, value


def diff(a: Architecture, b: Architecture) -> dict[str, tuple[Any, Any]]:
    """Path -> (value in a, value in b) of every field that differs; None where one of them has no such field."""
    left, right = dict(flatten(a)), dict(flatten(b))
    return {
        path: (left.get(path), right.get(path))
        for path in dict.fromkeys([*left, *right])
        if left.get(path) != right.get(path)
    }


def edit(architecture: Architecture, changes: Mapping[str, Any] | None = None, **fields: Any) -> Architecture:
    """The contract with fields replaced by path, each edit checked again; a text is read as TOML, or as "128k".

    >>> import planner
    >>> planner.parameters(planner.edit(planner.load("gqa-8"), n_kv_heads=4, stated_parameters=None))
    5798891520
    """
    for path, value in {**(changes or {}), **fields}.items():
        for place in resolve(architecture, path):
            try:
                architecture = typing.cast(Architecture, _replaced(architecture, parse(place), value))
            except ContractError as error:
                raise ContractError(error.rule, error.path, error.source or architecture.name) from None
    return architecture


def resolve(architecture: Architecture, path: str) -> tuple[str, ...]:
    """The paths that a written path means: itself, one for each layer under ``[*]``, or those of a bare name."""
    steps = parse(path)
    if len(steps) == 1 and steps[0][1] is None and path not in field_names(Architecture):
        return _bare(architecture, path)
    places = [""]
    for name, index in steps:
        places = [f"{place}.{name}" if place else name for place in places]
        if index == "*":
            places = [f"{p}[{i}]" for p in places for i in range(len(_at(architecture, parse(p))))]
        elif index is not None:
            places = [f"{p}[{index}]" for p in places]
    if "[*]" in path:  # a star passes over layers that have no such field
        places = [p for p in places if _has(architecture, parse(p))]
        if not places:
            raise ContractError(f"{path}: no layer has it", source=architecture.name)
    return tuple(places)


def _bare(architecture: Architecture, name: str) -> tuple[str, ...]:
    if name == "n_layers":
        name = "count"
    found = {p: v for p, v in _all_fields(architecture) if p.rpartition(".")[2] == name}
    if not found:
        known = {p.rpartition(".")[2] for p, _ in _all_fields(architecture)}
        raise ContractError(f"{name}: unknown field{suggest(name, known)}", source=architecture.name)
    if len(found) > 1 and (name == "count" or any(v != next(iter(found.values())) for v in found.values())):
        raise UsageError(f"{name} is ambiguous in {architecture.name}; write one of {', '.join(found)}")
    return tuple(found)


def _all_fields(part: Spec, path: str = "") -> Iterator[tuple[str, Any]]:
    for name in field_names(type(part)):
        value, place = getattr(part, name), f"{path}.{name}" if path else name
        yield place, value
        for piece, where in parts_of(value, place):
            yield from _all_fields(piece, where)


def parse(path: str) -> tuple[Step, ...]:
    """The steps of a path: (field, index or None). Raises `InputError` for anything that is not a path."""
    steps: list[Step] = []
    for text in path.split("."):
        match = _STEP.fullmatch(text)
        if not match:
            raise InputError(f"{path[:60]!r} is not a path such as layers[0].mixer.n_kv_heads")
        name, index = match.groups()
        steps.append((name, int(index) if index and index != "*" else index))
    return tuple(steps)


def _has(part: Any, steps: tuple[Step, ...]) -> bool:
    try:
        _at(part, steps)
    except ContractError:
        return False
    return True


def _at(part: Any, steps: tuple[Step, ...]) -> Any:
    for name, index in steps:
        if not isinstance(part, Spec) or name not in field_names(type(part)):
            known = field_names(type(part)) if isinstance(part, Spec) else ()
            raise ContractError(f"{name}: unknown key{suggest(name, known)}")
        part = getattr(part, name)
        if index is not None:
            if not isinstance(part, tuple) or not isinstance(index, int) or index >= len(part):
                size = len(part) if isinstance(part, tuple) else 0
                raise ContractError(f"{name}[{index}] does not exist; {name} has {size} entries")
            part = part[index]
    return part


def _replaced(part: Spec, steps: tuple[Step, ...], value: Any) -> Spec:
    (name, index), rest = steps[0], steps[1:]
    old = _at(part, (steps[0],))
    place = name if index is None else f"{name}[{index}]"
    try:
        if not rest:
            new = read(field_types(type(part))[name], value, place) if index is None else value
        elif isinstance(old, Spec):
            new = _replaced(old, rest, value)
        else:
            raise ContractError(f"is {old!r} and has no field {rest[0][0]!r}")
    except ContractError as error:
        raise error.under(place) if rest else error from None
    if index is not None:
        items = getattr(part, name)
        new = (*items[:index], new, *items[typing.cast(int, index) + 1 :])
    return dataclasses.replace(part, **{name: new})


def read(hint: Any, value: Any, place: str) -> Any:
    """A value for a field of that type; a text that the field does not take as it is, is read."""
    if isinstance(value, str) and not _takes_text(hint):
        if value.lower() == "none":
            return None
        try:
            value = tomllib.loads(f"value = {value}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError, ValueError):
            value = parse_count(value, place)
    return convert(hint, value, place)


def _takes_text(hint: Any) -> bool:
    options = typing.get_args(hint) if typing.get_origin(hint) is not typing.Literal else (str,)
    return hint is str or any(option is str or typing.get_origin(option) is typing.Literal for option in options)
