r"""Plan files: a plan as TOML, read strictly and written back.

A file holds the keywords of `make_plan`, flat or in tables named like the parts of a plan; `model` is the name of a
preset or of a file, or the tables of a whole contract.

>>> plan = parse_plan('model = "llama-3.1-8b"\nkv = "fp8"\n[workload]\nisl = 2048\nosl = 256', "chat.toml")
>>> print(plan_to_toml(plan))
model = "llama-3.1-8b"
kv = "fp8"
workload = { isl = 2048, osl = 256 }
<BLANKLINE>
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from planner.assumptions import assumptions
from planner.errors import InputError, PlannerError
from planner.loading import from_table, parse_toml, to_table, write_toml
from planner.plan import PARTS, Plan, make_plan
from planner.sources import presets
from planner.spec import field_names

ASSUMPTIONS = "assumptions"


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """A plan from a TOML file. Raises `InputError` with the file, the field and the rule."""
    place = os.fspath(path)
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_plan(text, place)


def parse_plan(text: str, place: str) -> Plan:
    """A plan from a TOML text. Raises `InputError` with the place, the field and the rule."""
    said: dict[str, Any] = {}
    for key, value in parse_toml(text, place).items():
        nested = isinstance(value, dict) and key in (*PARTS, ASSUMPTIONS)
        said |= value if nested else {key: value}
    if "model" not in said:
        raise InputError(f"{place}: model is missing; name a preset or a file, or give its contract as tables")
    try:
        if isinstance(said["model"], dict):
            said["model"] = from_table(said["model"], f"{place}: model")
        return make_plan(**{name: tuple(v) if isinstance(v, list) else v for name, v in said.items()})
    except PlannerError as error:
        raise InputError(str(error) if str(error).startswith(place) else f"{place}: {error}") from None


def plan_to_toml(plan: Plan) -> str:
    """A plan as TOML text, with what its user said and no more; `parse_plan` gives an equal plan back."""
    model = plan.model
    known = presets.find(model.name)
    preset = known is not None and presets.load_preset(known).architecture == model
    table: dict[str, Any] = {"model": known if preset else to_table(model)}
    if plan.accelerator is not None:
        table["accelerator"] = plan.accelerator.name
    table |= {name: getattr(plan, name) for name in ("weights", "kv", "engine") if name in plan.given}
    for name, cls in PARTS.items():
        part = getattr(plan, name)
        said = {key: getattr(part, key) for key in field_names(cls)}
        said = {key: list(v) if isinstance(v, tuple) else v for key, v in said.items() if v is not None}
        table[name] = {key: value for key, value in said.items() if value != getattr(cls(), key)}
    table[ASSUMPTIONS] = {name: plan.overrides[name] for name in assumptions() if name in plan.overrides}
    return write_toml({key: value for key, value in table.items() if value != {}})
