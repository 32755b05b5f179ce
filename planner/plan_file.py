r"""Plan files: a plan as TOML, read strictly and written back.

A file holds the keywords of `make_plan`, flat or in tables named like the parts of a plan; `model` is the name of a
preset or of a file, or the tables of a whole contract, and `accelerator` likewise. Bare numbers are in base units;
texts may have prefixes.

>>> plan = parse_plan('model = "llama-3.1-8b"\nkv = "fp8"\n[workload]\nisl = 2048\nosl = 256', "chat.toml")
>>> print(plan_to_toml(plan))
model = "llama-3.1-8b"
kv = "fp8"
workload = { isl = 2048, osl = 256 }
<BLANKLINE>
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner import catalogue
from planner.assumptions import assumptions
from planner.errors import InputError, PlannerError, UnknownName, suggest
from planner.loading import from_table, parse_toml, to_table, write_toml
from planner.plan import Plan, fields_of_a_plan, make_plan
from planner.plan_fields import parse_field
from planner.plan_parts import PARTS
from planner.sources import presets
from planner.spec import field_names, shown

ASSUMPTIONS = "assumptions"


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """A plan from a TOML file. Raises `InputError` with the file, the field and the rule."""
    place = os.fspath(path)
    try:
        text = Path(path).read_text("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{place}: not text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_plan(text, place)


def parse_plan(text: str, place: str) -> Plan:
    """A plan from a TOML text. Raises `InputError` with the place, the field and the rule."""
    said: dict[str, Any] = {}
    try:
        for name, value in _fields(parse_toml(text, place)):
            if name in said:
                raise InputError(f"{name} is said twice, as {shown(said[name])} and as {shown(value)}; keep one")
            said[name] = value
        if "model" not in said:
            raise InputError("model is missing; name a preset or a file, or give its contract as tables")
        if isinstance(said["model"], dict):
            said["model"] = from_table(said["model"], f"{place}: model")
        if isinstance(said.get("accelerator"), dict):
            said["accelerator"] = catalogue.from_table(said["accelerator"], f"{place}: accelerator")
        return make_plan(**{name: _value(name, value) for name, value in said.items()})
    except PlannerError as error:
        raise InputError(str(error) if str(error).startswith(place) else f"{place}: {error}") from None


def _fields(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every field of a file with its value, whether it stands flat or in the table of its part."""
    parts = {name: field_names(cls) for name, cls in PARTS.items()} | {ASSUMPTIONS: tuple(assumptions())}
    for key, value in table.items():
        if key not in parts:
            if key not in fields_of_a_plan():
                raise UnknownName("field of a plan", key, (*fields_of_a_plan(), *parts))
            yield key, value
            continue
        if not isinstance(value, dict):
            raise InputError(f"{key} = {shown(value)} is no table; write [{key}] and its fields below it")
        for name in value:
            if name not in parts[key]:
                home = next((f"; it stands in [{part}]" for part, names in parts.items() if name in names), None)
                raise InputError(f"[{key}] has no field {name!r:.60}{home or suggest(name, parts[key])}")
        yield from value.items()


def _value(name: str, value: Any) -> Any:
    """A value of a file as a plan takes it: a text such as ``32Ki`` or ``2GiB`` is read as on the command line."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    return parse_field(name, value) if isinstance(value, str) else value


def plan_to_toml(plan: Plan) -> str:
    """A plan as TOML text, with what its user said and no more; `parse_plan` gives an equal plan back."""
    model = plan.model
    known = presets.find(model.name)
    preset = known is not None and presets.load_preset(known).architecture == model
    table: dict[str, Any] = {"model": known if preset else to_table(model)}
    if (device := plan.accelerator) is not None:
        listed = catalogue.find(device.name)
        same = listed is not None and catalogue.accelerator(listed) == device
        table["accelerator"] = listed if same else catalogue.to_table(device)
    table |= {name: getattr(plan, name) for name in ("weights", "kv", "engine") if name in plan.given}
    for name, cls in PARTS.items():
        part = getattr(plan, name)
        said = {key: getattr(part, key) for key in field_names(cls)}
        said = {key: list(v) if isinstance(v, tuple) else v for key, v in said.items() if v is not None}
        table[name] = {key: value for key, value in said.items() if value != getattr(cls(), key)}
    table[ASSUMPTIONS] = {name: plan.overrides[name] for name in assumptions() if name in plan.overrides}
    return write_toml({key: value for key, value in table.items() if value != {}})
