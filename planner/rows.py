"""Flat rows for spreadsheets and tables: every figure of a plan under one name each, for one plan or for a frame.

`plan_row` answers one plan in exact ints where figures are whole; `plan_frame` answers a table of cases by the same
formulas, recorded once for each combination of choices (model, accelerator, layout, formats) and compiled to columns.

A frame is an edge where people write, so a cell may be a text such as ``32Ki``, read as the command line reads it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from planner import accounts, cost
from planner.arithmetic import maximum, word
from planner.assumptions import assumption_rule, assumptions
from planner.cases import Cases, Check, Group, Texts, refuse
from planner.columns import compile_columns
from planner.errors import PlannerError, UsageError
from planner.ladder import rank_terms, reserved_terms
from planner.memory import verdicts
from planner.parallel import ranks
from planner.phases import timings
from planner.plan import (
    Plan,
    Rule,
    as_plan,
    fields_of_a_plan,
    load_rules,
    make_plan,
    position_notes,
    request_rules,
)
from planner.plan_fields import read_cell
from planner.plan_parts import Prices
from planner.spec import ShownRow, field_names, violations
from planner.summary import beyond

TIMES = (
    "ttft_s tpot_s request_s requests_per_s output_tok_s_per_user output_tok_s_per_accelerator output_tok_s total_tok_s"
).split()
FLOORS = ("ttft_s", "tpot_s")
PRICES = (
    "usd_per_accelerator_hour fleet_usd_per_month usd_per_request usd_per_mtok_input usd_per_mtok_output "
    "usd_per_mtok_blended"
).split()

UNITS = {
    "parameters": "1",
    "active_parameters": "1",
    "weights_bytes": "B",
    "kv_cache_bytes": "B",
    "needed_bytes": "B",
    "usable_bytes": "B",
    "headroom_bytes": "B",
    "ttft_s": "s",
    "tpot_s": "s",
    "request_s": "s",
    "requests_per_s": "1/s",
    "output_tok_s_per_user": "token/s",
    "output_tok_s_per_accelerator": "token/s",
    "output_tok_s": "token/s",
    "total_tok_s": "token/s",
    "floor_ttft_s": "s",
    "floor_tpot_s": "s",
    **{name: cost.UNITS[name] for name in PRICES},
}
"""Every figure of a row with its unit. Bytes are those of one rank, the one that holds the most."""

REMARKS = ("verdict", "warning", "reason")
"""What a row says besides."""

TIMED = {*TIMES, *(f"floor_{name}" for name in FLOORS), *PRICES}
"""Figures of a request, which a context without room for one leaves out."""

EXACT = {"memory_fraction"}  # a share of a size in whole bytes, which a float may miss by one
VARIED = {
    *("context", "sequences", "isl", "osl", "cached_prefix"),
    *(name for name in field_names(Prices) if "usd" in name or "years" in name),
    *assumptions(),
} - EXACT
"""Fields of a plan that may differ from row to row of a frame at no cost; of all others each value is a group."""


def plan_row(model: Any, **keywords: Any) -> dict[str, Any]:
    """One plan as a flat dict: what it says, every figure of `UNITS`, `verdict`, `warning` and `reason`.

    `model` is what `load` takes, or a `Plan`; keywords are those of a plan. A figure that nothing is known for is None,
    and `reason` says why (no accelerator, no room for a request, a price or a link that nobody publishes). Raises
    `UsageError` or `InputError` for a plan that cannot be.

    >>> row = plan_row(model="llama-3.1-8b", accelerator="h100-sxm", context=32768, sequences=8)
    >>> row["kv_cache_bytes"], row["verdict"], round(row["tpot_s"], 3)
    (34359738368, 'fits', 0.018)
    """
    plan = as_plan(model, **keywords)
    list(position_notes(plan))  # refuses a load that cannot be
    found, reason = _figures(plan)
    return {
        **_said(plan),
        **{name: found.get(name) for name in UNITS},
        "verdict": _verdict(found),
        "warning": next((text for held, text in beyond(plan.longest, plan.model.max_positions) if held), ""),
        "reason": reason,
    }


def plan_frame(cases: pd.DataFrame) -> pd.DataFrame:
    """The table of cases with a column for each figure of `UNITS`, and `verdict`, `warning` and `reason`.

    One row is one plan. Columns named like a plan's fields (`model` is needed) say it, an empty cell says nothing;
    other columns stay as they are, and so does the index. A text stands for the number that the command line reads in
    it. A row that cannot be keeps its place, its figures NaN and its `reason` filled. Raises `UsageError` for what is
    no such table.

    >>> cases = pd.DataFrame({"model": ["llama-3.1-8b", "mha"], "context": ["1Ki", "-1"], "team": ["a", "b"]})
    >>> plan_frame(cases.assign(accelerator="h100-sxm"))[["team", "kv_cache_bytes", "verdict"]].values.tolist()
    [['a', 134217728.0, 'fits'], ['b', nan, '']]
    """
    _check_columns(cases)
    table = _grouped(cases[[name for name in cases.columns if name in fields_of_a_plan()]])
    block = np.empty((len(UNITS), table.rows))
    figures = dict(zip(UNITS, block, strict=True))
    texts = {name: Texts(table.rows) for name in REMARKS}
    for group in table.groups():
        try:
            _fill(group, figures, texts)
        except PlannerError as error:
            texts["reason"].put(group, np.ones(group.shape, bool), [str(error)])
            block[:, group.rows] = math.nan
    answers = pd.DataFrame(table.as_given(block).T, columns=list(UNITS), index=cases.index, copy=False)
    answers = answers.assign(**{name: text.column(table) for name, text in texts.items()})
    frame = pd.concat([cases, answers], axis=1)
    frame.attrs = {**cases.attrs, "units": {**cases.attrs.get("units", {}), **UNITS}}
    return frame


def _check_columns(cases: Any) -> None:
    if not isinstance(cases, pd.DataFrame):
        raise UsageError(f"plan_frame takes a table of cases, a pandas DataFrame, and not a {type(cases).__name__}")
    names = cases.columns.tolist()
    if "model" not in names:
        raise UsageError("the table has no column 'model'")
    for name in names:
        if name in UNITS or name in REMARKS:
            raise UsageError(f"the table has a column {name!r} already, which is one of the answers; rename it")
        if name in fields_of_a_plan() and names.count(name) > 1:
            raise UsageError(f"the table has {names.count(name)} columns {name!r}; keep one")


def _grouped(said: pd.DataFrame) -> Cases:
    """Fields that vary freely as numbers; all others, and whether a number is there, as choices.

    A cell that cannot be read is a choice, too: the error that says so.
    """
    numbers, choices = {}, {}
    for name, column in said.items():
        if name in VARIED:
            values, codes, states = _numbers(str(name), column)
            numbers[str(name)] = values[None, None]
        else:
            codes, cells = _distinct(column)
            states = [_read(str(name), cell) for cell in cells]
        same = len(codes) > 0 and (codes == codes[0]).all()
        choices[str(name)] = (states, (codes[:1] if same else codes)[None, None])
    return Cases((1, 1, len(said)), numbers, choices, tuple(map(str, said.columns))).together()


def _numbers(name: str, column: Any) -> tuple[Any, Any, list[Any]]:
    """A column as floats; a code for each row; and what codes mean: a number stands there, or none, or an error."""
    states: list[Any] = [True, False]
    if pd.api.types.is_any_real_numeric_dtype(column):
        values = column.to_numpy(float, na_value=math.nan)
        codes = np.isnan(values).astype(np.int64)
    else:
        where, cells = _distinct(column)
        read = [_read(name, cell) for cell in cells]
        bad = [error for error in read if isinstance(error, PlannerError)]
        states += bad
        place = {id(error): code for code, error in enumerate(bad, start=2)}
        values = np.array([value if isinstance(value, (int, float)) else math.nan for value in read], float)[where]
        codes = np.array([place.get(id(value), value is None) for value in read], np.int64)[where]
    if name == "cached_prefix":  # 0 is as good as nothing, and not the same formula
        codes = np.where(values == 0, 1, codes)
    return values, codes, states


def _distinct(column: Any) -> tuple[Any, list[Any]]:
    """(codes, distinct cells) of a column of anything; what cannot be hashed is told apart by what it is."""
    try:
        codes, cells = pd.factorize(column, use_na_sentinel=False)
        return codes, list(cells)
    except TypeError:
        cells = column.tolist()
        codes, _ = pd.factorize(np.array([id(cell) for cell in cells]))
        return codes, [cells[place] for place in np.unique(codes, return_index=True)[1]]


def _read(name: str, cell: Any) -> Any:
    """A cell as a plan takes it, None where it is empty, or the error where it cannot be read."""
    if pd.isna(cell) is True or (isinstance(cell, str) and not cell.strip()):
        return None
    try:
        return read_cell(name, cell)
    except PlannerError as error:
        return error


def _fill(group: Group, figures: dict[str, Any], texts: Mapping[str, Texts]) -> None:
    """Compute the rows of one combination of choices."""
    for choice in group.choices.values():
        if isinstance(choice, PlannerError):
            raise choice
    if group.choices["model"] is None:
        raise UsageError("model is missing; name a preset or a file")
    given = {name: values for name, values in group.numbers.items() if group.choices[name]}
    chosen = {name: value for name, value in group.choices.items() if name not in group.numbers}
    plan = make_plan(**chosen, **{name: word(name) for name in given})
    found, reason = _figures(plan)
    trees = {name: tree for name, tree in found.items() if tree is not None}
    room = {name: group.room(column) for name, column in figures.items()}
    values = compile_columns(trees).grid(given, group.shape, out={name: room[name] for name in trees})

    rows = _with_columns(plan, given)
    everywhere = np.ones(group.shape, bool)
    if reason:
        texts["reason"].put(group, everywhere, [reason])
    untimed = np.zeros((1, 1), bool)
    if plan.accelerator is not None:
        untimed = refuse(group, _checks(request_rules(rows)), texts["reason"])
    bad = refuse(group, _broken(rows, given), texts["reason"])
    for name, there in room.items():
        answer = values.get(name, math.nan)
        if answer is not there:
            there[...] = answer
        without = bad | untimed if name in TIMED else bad
        if without.any():
            np.copyto(there, math.nan, where=without)

    good = np.broadcast_to(~bad, group.shape)
    for where, text in beyond(np.asarray(rows.longest), plan.model.max_positions):
        texts["warning"].put(group, where & good, [text])
    if "usable_bytes" not in found:
        texts["verdict"].put(group, good, ["unknown"])
        return
    for where, text in verdicts(values["headroom_bytes"], found["usable_bytes"]):
        texts["verdict"].put(group, where & good, [text])
        good = good & ~np.asarray(where)


def _with_columns(plan: Plan, given: Mapping[str, Any]) -> Plan:
    """The plan with columns in the place of the words."""
    parts = {}
    for name in ("workload", "prices"):
        part = getattr(plan, name)
        mine = {field: column for field, column in given.items() if field in field_names(type(part))}
        parts[name] = dataclasses.replace(part, **mine)
    overrides = {name: given.get(name, value) for name, value in plan.overrides.items()}
    return dataclasses.replace(plan, **parts, overrides=overrides)


def _broken(rows: Plan, given: Mapping[str, Any]) -> Iterator[Check]:
    """Every rule about the numbers that vary."""
    for part in (rows.workload, rows.prices):
        for held, _, sentence, of in violations(part):
            yield np.atleast_2d(held), sentence, functools.partial(_row_of, of)
    for name in rows.overrides.keys() & given.keys():
        held, rule = assumption_rule(name, given[name])
        yield held, f"{name} = {{{name}:.15g}} is not {rule}", functools.partial(_at, {name: given[name]})
    yield from _checks(load_rules(rows))


def _checks(rules: Iterable[Rule]) -> Iterator[Check]:
    for held, sentence, shows in rules:
        yield np.atleast_2d(held), sentence, functools.partial(_at, shows)


def _row_of(part: Any, place: tuple[int, ...]) -> Mapping[str, str]:
    return ShownRow(part, place)


def _at(shows: Mapping[str, Any], place: tuple[int, ...]) -> Mapping[str, Any]:
    """What a sentence shows of one row."""
    return {name: value[place] if isinstance(value, np.ndarray) else value for name, value in shows.items()}


def _figures(plan: Plan) -> tuple[dict[str, Any], str]:
    """Figure -> value in generic arithmetic, and why some are absent."""
    found: dict[str, Any] = {
        "parameters": accounts.parameters(plan.model),
        "active_parameters": accounts.parameters(plan.model, active=True),
    }
    terms = [rank_terms(plan, rank) for rank in ranks(plan.model, plan.layout)]
    found["weights_bytes"] = functools.reduce(maximum, [each["weights"] for each in terms])
    found["kv_cache_bytes"] = functools.reduce(maximum, [each["kv cache"] for each in terms])
    found["needed_bytes"] = functools.reduce(maximum, [sum(each.values()) for each in terms])
    if plan.accelerator is None:
        return found, "the plan names no accelerator"
    found["usable_bytes"] = plan.device.memory_bytes
    found["headroom_bytes"] = plan.device.memory_bytes - sum(reserved_terms(plan).values()) - found["needed_bytes"]
    try:
        floor, timing = timings(plan)
        found |= {name: getattr(timing, name) for name in TIMES}
        found |= {f"floor_{name}": getattr(floor, name) for name in FLOORS}
        priced = cost.figures(plan, timing, cost.hour_price_of(plan).usd)
        found |= {name: priced[name] for name in PRICES}
    except PlannerError as error:
        return found, str(error)
    return found, ""


def _verdict(found: Mapping[str, Any]) -> str:
    if "usable_bytes" not in found:
        return "unknown"
    return next(verdict for held, verdict in verdicts(found["headroom_bytes"], found["usable_bytes"]) if held)


def _said(plan: Plan) -> dict[str, Any]:
    """What a row says of its plan before the figures; of ragged lengths the longest and the mean."""
    layout, lengths = plan.layout, plan.workload.lengths
    request = all(held for held, *_ in request_rules(plan))
    return {
        "model": plan.model.name,
        "accelerator": None if plan.accelerator is None else plan.accelerator.name,
        "count": layout.accelerators,
        **{name: getattr(layout, name) for name in ("tp", "pp", "dp")},
        **{name: getattr(plan, name) for name in ("weights", "kv")},
        "context": plan.longest,
        "sequences": plan.sequences,
        "isl": sum(lengths) / len(lengths) if lengths else plan.isl if request else None,
        "osl": plan.osl,
    }
