"""Changing a contract by path, and saying what differs between two.

A path is written as the contract nests: ``layers[0].mixer.n_kv_heads``, ``layers[*].mixer.window``, ``output.tied``.
The bare name of a field will do where it is unambiguous: where it stands once, or everywhere with the same value.
"""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast

from planner.contract import Architecture, as_architecture
from planner.errors import ContractError, InputError, UsageError, suggest
from planner.loading import build
from planner.spec import Spec, field_names, field_types, parts_of, shown
from planner.units import parse_count

_STEP = re.compile(r"([A-Za-z_]\w*)(?:\[(\d{1,6}|\*)\])?", re.ASCII)
Step = tuple[str, int | Literal["*"] | None]


def flatten(part: Spec, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, value) of every field that holds no part, and (path.kind, kind) of every part that has one."""
    if part.kind:
        yield f"{path}.kind", part.kind
    for place, value in _fields(part, path):
        inner = list(parts_of(value, place))
        for piece, where in inner:
            yield from flatten(piece, where)
        if not inner:
            yield place, value


def diff(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """Path -> (value in a, value in b) of every field that differs; None where one of them has no such field."""
    left, right = dict(flatten(as_architecture(a))), dict(flatten(as_architecture(b)))
    return {
        path: (left.get(path), right.get(path))
        for path in dict.fromkeys([*left, *right])
        if left.get(path) != right.get(path)
    }


def edit(architecture: Any, changes: Mapping[str, Any] | None = None, **fields: Any) -> Architecture:
    """The contract with fields replaced by path, checked when all are in; a text is read as TOML, or as "128k".

    >>> import planner
    >>> planner.parameters(planner.edit("gqa-8", n_kv_heads=4, stated_parameters=None))
    5798891520
    """
    own = as_architecture(architecture)
    changes = {**(changes or {}), **fields}
    if not changes:
        return own
    tables = _tables(own)
    try:
        for path, value in changes.items():
            for place in resolve(own, path):
                _set(tables, own, place, value)
        return cast(Architecture, build(Architecture, tables))
    except ContractError as error:
        raise error.within(own.name) from None


def resolve(architecture: Architecture, path: str) -> tuple[str, ...]:
    """The paths that a written path means: itself, one for each layer under ``[*]``, or those of a bare name."""
    steps = parse(path)
    if len(steps) == 1 and steps[0][1] is None and path not in field_names(Architecture):
        return _bare(architecture, path)
    places = [""]
    for name, index in steps:
        places = [f"{place}.{name}" if place else name for place in places]
        if index == "*":
            places = [f"{place}[{i}]" for place in places for i in range(_length(architecture, place))]
        elif index is not None:
            places = [f"{place}[{index}]" for place in places]
    if "[*]" in path:  # a star passes over layers that have no such field
        places = [place for place in places if _has(architecture, place)]
        if not places:
            raise ContractError(f"{path}: no layer has it", source=architecture.name)
    return tuple(places)


def parse(path: str) -> tuple[Step, ...]:
    """The steps of a path: (field, index or None). Raises `InputError` for anything that is not a path."""
    steps: list[Step] = []
    for text in path.split("."):
        match = _STEP.fullmatch(text)
        if not match:
            raise InputError(f"{path[:60]!r} is not a path such as layers[0].mixer.n_kv_heads")
        name, index = match.groups()
        steps.append((name, "*" if index == "*" else int(index) if index else None))
    return tuple(steps)


def _bare(architecture: Architecture, name: str) -> tuple[str, ...]:
    """The places of a field that is named without its path; `n_layers` are the counts of all layers."""
    every = list(_every_field(architecture))
    wanted = "count" if name == "n_layers" else name
    found = {place: value for place, value in every if place.rpartition(".")[2] == wanted}
    if not found:
        known = {place.rpartition(".")[2] for place, _ in every}
        raise ContractError(f"{name[:60]}: unknown field{suggest(name[:60], known)}", source=architecture.name)
    if name == "n_layers":
        found = {place: value for place, value in found.items() if place.startswith("layers")}
    if len(found) > 1 and (name == "n_layers" or any(value != next(iter(found.values())) for value in found.values())):
        raise UsageError(f"{name} is ambiguous in {architecture.name}; write one of {', '.join(found)}")
    return tuple(found)


def _fields(part: Spec, path: str) -> Iterator[tuple[str, Any]]:
    for name in field_names(type(part)):
        yield f"{path}.{name}" if path else name, getattr(part, name)


def _every_field(part: Spec, path: str = "") -> Iterator[tuple[str, Any]]:
    for place, value in _fields(part, path):
        yield place, value
        for piece, where in parts_of(value, place):
            yield from _every_field(piece, where)


def _has(architecture: Architecture, place: str) -> bool:
    try:
        _at(architecture, parse(place))
    except ContractError:
        return False
    return True


def _length(architecture: Architecture, place: str) -> int:
    value = _at(architecture, parse(place))
    if not isinstance(value, tuple):
        raise ContractError(f"{place} is {shown(value)} and no list", source=architecture.name)
    return len(value)


def _at(part: Any, steps: tuple[Step, ...]) -> Any:
    """What stands at a path. Raises `ContractError` if there is nothing."""
    path = ""
    for name, index in steps:
        if not isinstance(part, Spec):
            raise ContractError(f"is {'left out' if part is None else shown(part)} and has no field {name!r}", path)
        if name == "kind":
            raise ContractError(f"kind is not changed alone; set the whole part: {path}={{ kind = ... }}")
        if name not in field_names(type(part)):
            raise ContractError(f"{name}: unknown key{suggest(name, field_names(type(part)))}", path)
        part, path = getattr(part, name), f"{path}.{name}" if path else name
        if index is not None:
            size = len(part) if isinstance(part, tuple) else 0
            if not isinstance(index, int) or index >= size:
                raise ContractError(f"has no entry {index}; it has {size}", path)
            part, path = part[index], f"{path}[{index}]"
    return part


def _tables(value: Any) -> Any:
    """A part and all in it as tables that can be changed, defaults included."""
    if isinstance(value, Spec):
        table = {"kind": value.kind} if value.kind else {}
        return table | {name: _tables(getattr(value, name)) for name in field_names(type(value))}
    return [_tables(item) for item in value] if isinstance(value, tuple) else value


def _set(tables: Any, architecture: Architecture, place: str, value: Any) -> None:
    steps = parse(place)
    _at(architecture, steps)
    *above, (name, index) = steps
    part = _at(architecture, tuple(above))
    try:
        for field, at in above:
            tables = tables[field] if at is None else tables[field][at]
        if index is None:
            tables[name] = read(field_types(type(part))[name], value)
        else:
            tables[name][index] = value
    except (KeyError, IndexError, TypeError):
        raise ContractError("stands in a part that another of these edits replaces", place) from None


def read(hint: Any, value: Any) -> Any:
    """A value for a field of that type; a text that the field does not take as it is, is read."""
    if not isinstance(value, str) or _takes_text(hint):
        return value
    if value.strip().lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[value.strip().lower()]
    try:
        table = tomllib.loads(f"value = {value}")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        try:
            return parse_count(value)
        except InputError:
            return value
    return table["value"] if len(table) == 1 else value


def _takes_text(hint: Any) -> bool:
    options = typing.get_args(hint) if typing.get_origin(hint) is not Literal else (str,)
    return hint is str or any(option is str or typing.get_origin(option) is Literal for option in options)
