"""Tables of scenarios: `compare` decoders at one load, exactly; `sweep` them over axes, a million rows at a time.

A sweep groups its rows by everything that is not a number (model, formats, texts). Within a group the decoder's bill is
built once, with words in the place of the fields that are swept, folded to formulas and compiled to columns; everything
that does not vary is a number by then.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd

from planner.arithmetic import is_symbolic, word
from planner.cases import Cases, Check, Group, Texts, as_axis, refuse
from planner.columns import compile_columns
from planner.contract import Architecture
from planner.editing import edit
from planner.errors import PlannerError, UsageError, suggest
from planner.sources import load
from planner.spec import ShownRow, shown, violations
from planner.summary import UNITS, Crossover, Load, beyond, crossover, summary

COMPARISON_SET = ("mha", "gqa-8", "mqa", "mla")
TOO_LONG = "{value} positions exceed the {learned} learned ones"
LOAD_AXES = tuple(field.name for field in fields(Load))
COLUMNS = (
    "name parameters active_parameters weights_basis weight_bytes cache_bytes_per_token cache_fixed_bytes cache_bytes "
    "crossover_tokens crossover_note prefill_flops decode_flops cache_ratio warning reason"
).split()
TEXTS = ("weights_basis", "crossover_note", "warning", "reason")


def compare(models: Iterable[Any] = COMPARISON_SET, *, derive: bool = False, **load_fields: Any) -> pd.DataFrame:
    """One row for each model at one load (`Load`: context, batch, weights, kv, attention, logits, mla), in exact ints.

    `cache_ratio` is the first row's cache over this one's. `derive` counts the parameters of contracts that state
    theirs. A context beyond a learned position table gives no figures for that model, and a `reason`.

    >>> compare(["mha", "mla"])[["name", "cache_bytes_per_token", "cache_bytes"]].to_dict("records")[1]
    {'name': 'mla', 'cache_bytes_per_token': 36864, 'cache_bytes': 4718592000}
    """
    asked = _load(load_fields)
    rows = []
    for model in _models(models):
        architecture = replace(model, stated_parameters=None) if derive else model
        rows.append({"name": architecture.name, "weights_basis": _basis(architecture), **_row(architecture, asked)})
    base = rows[0].get("cache_bytes")
    for row in rows:
        if base is not None and row.get("cache_bytes"):
            row["cache_ratio"] = base / row["cache_bytes"]
    absent = dict.fromkeys(TEXTS, "")
    return _frame({name: _column([row.get(name, absent.get(name)) for row in rows]) for name in COLUMNS})


def _column(values: list[Any]) -> Any:
    """Exact values as a column: whole numbers stay whole where some are absent."""
    present = [value for value in values if value is not None]
    if len(present) == len(values):
        return values
    if present and all(isinstance(value, int) for value in present):
        return pd.array(values, dtype="Int64") if all(abs(v) < 2**63 for v in present) else np.array(values, object)
    return [math.nan if value is None else value for value in values]


def _row(architecture: Architecture, asked: Load) -> dict[str, Any]:
    """One model's figures in ints."""
    length, learned, stated = asked.resident, architecture.embedding.learned_positions, architecture.max_positions
    if learned is not None and length > learned:
        figures = summary(architecture, Load(context=learned, weights=asked.weights))
        known = {name: figures[name] for name in ("parameters", "active_parameters", "weight_bytes")}
        return {**known, "reason": TOO_LONG.format(value=length, learned=learned)}
    figures = summary(architecture, asked)
    found = crossover(architecture, asked, figures["weight_bytes"])
    absent = _said(found.absent(figures["weight_bytes"] / asked.batch))
    return {
        **figures,
        "crossover_tokens": math.nan if absent else float(found.tokens),
        "crossover_note": absent or _said(beyond(found.tokens, stated)),
        "warning": _said(beyond(length, stated)),
    }


def _said(remarks: Iterable[tuple[Any, str]]) -> str:
    return next((text for held, text in remarks if held), "")


def sweep(
    models: Any = COMPARISON_SET, *, how: str = "grid", cases: pd.DataFrame | None = None, **axes: Any
) -> pd.DataFrame:
    """A row for each scenario, a column for each axis and figure, units in ``attrs["units"]``.

    Axes are the fields of `Load` (context, batch, isl and osl, weights, kv ...) and any contract field by its path,
    each with one value or a list: all combinations (`how` = ``grid``) or side by side (``zip``). `cases` is a table
    whose rows are the scenarios, with a column ``model`` where it has several. Figures are float64. A row that breaks
    a rule keeps its place, its figures NaN and its `reason` filled; an axis or format that suits no row is refused.

    >>> frame = sweep("gqa-8", context=[1000, 2000], n_kv_heads=[8, 3])
    >>> frame[["context", "n_kv_heads", "cache_bytes", "reason"]].values.tolist()[1:3]
    [[1000, 3, nan, 'layers[0].mixer: n_kv_heads = 3 does not divide n_heads = 32'], [2000, 8, 262144000.0, '']]
    """
    scenarios = _cases(models, how, cases, axes)
    texts = {name: Texts(scenarios.rows) for name in TEXTS}
    figures: dict[str, Any] = {}
    refused: list[tuple[Any, PlannerError]] = []
    for group in scenarios.groups():
        try:
            _fill(group, figures, texts, scenarios.rows)
        except PlannerError as error:
            texts["reason"].put(group, True, [str(error)])
            refused.append((group.rows, error))
    if refused and not figures:
        raise refused[0][1]
    for rows, _ in refused:
        for column in figures.values():
            column[rows] = math.nan
    figures = {name: scenarios.as_given(column) for name, column in figures.items()}
    frame = _frame({**scenarios.columns(), **figures, **{name: t.column(scenarios) for name, t in texts.items()}})
    frame.attrs["axes"] = list(scenarios.order)
    return frame


def crossovers(
    frame: pd.DataFrame, a: str, b: str, *, axis: str = "context", figure: str = "cache_bytes"
) -> pd.DataFrame:
    """Where two curves of a swept frame cross along an axis: two figures of each model, or one figure of two models.

    `a` and `b` are columns (``cache_bytes``, ``weight_bytes``) or names of models. One row for each crossing in each
    combination of the other axes, and one with NaN and a note where there is none. Between two swept values the curves
    are taken as straight, which figures linear between windows are.
    """
    by_model = not (a in frame.columns and b in frame.columns)
    models = list(frame["name"].unique()) if by_model and "name" in frame.columns else []
    for name in (a, b) if by_model else ():
        if name not in models:
            raise UsageError(f"{name!r} is neither a column nor a model of the frame{suggest(str(name), models)}")
    for name in (axis, figure) if by_model else (axis, a, b):
        if name not in frame.columns or not pd.api.types.is_numeric_dtype(frame[name]):
            raise UsageError(f"{name!r} is no column of numbers of the frame")
    swept = [name for name in frame.attrs.get("axes", ()) if name != axis and not (by_model and name == "name")]
    rows = []
    for key, part in frame.groupby(swept, observed=True, dropna=False) if swept else [((), frame)]:
        if by_model:
            sides = [part[part["name"] == name].set_index(axis)[figure] for name in (a, b)]
            left, right = sides[0].align(sides[1], join="inner")
        else:
            left, right = (part.set_index(axis)[name] for name in (a, b))
        order = np.argsort(left.index.to_numpy(float), kind="stable")
        at, gap = left.index.to_numpy(float)[order], (left - right).to_numpy(float)[order]
        found = _crossings(at, gap)
        place = dict(zip(swept, key if isinstance(key, tuple) else (key,), strict=True))
        rows += [{**place, axis: x, "note": ""} for x in found] or [
            {**place, axis: math.nan, "note": f"{a} and {b} do not cross between {at.min():g} and {at.max():g}"}
        ]
    return pd.DataFrame(rows)


def _crossings(at: Any, gap: Any) -> list[float]:
    exact = [float(x) for x, g in zip(at, gap, strict=True) if g == 0]
    turns = np.nonzero(gap[:-1] * gap[1:] < 0)[0]
    between = [float(at[i] - gap[i] * (at[i + 1] - at[i]) / (gap[i + 1] - gap[i])) for i in turns]
    return sorted(exact + between)


def _cases(models: Any, how: str, cases: pd.DataFrame | None, axes: Mapping[str, Any]) -> Cases:
    if cases is not None:
        if not isinstance(cases, pd.DataFrame):
            raise UsageError(f"cases = {shown(cases)} is no DataFrame")
        if axes:
            raise UsageError(f"{next(iter(axes))}: with a table of cases, an axis is a column of that table")
        table = Cases.of_frame(cases.rename(columns={"model": "name"}))
        values, codes = table.choices.get("name", (models, np.zeros((1, 1, 1), int)))
        chosen = _models(values)
        if "name" not in table.choices and len(chosen) != 1:
            raise UsageError("a table of cases for several models needs a column 'model'")
        order = tuple(dict.fromkeys(("name", *table.order)))
        return replace(table, choices={**table.choices, "name": (chosen, codes)}, order=order)
    if "name" in axes:
        raise UsageError("name is no axis; name the models before the axes")
    given = {"name": _models(models), **{name: as_axis(values) for name, values in axes.items()}}
    for name, values in given.items():
        if len(values) == 0:
            raise UsageError(f"{name}: an axis needs at least one value")
    if how not in ("grid", "zip"):
        raise UsageError(f"how = {how!r} is none of grid, zip")
    return Cases.grid(given) if how == "grid" else Cases.zipped(given)


def _fill(group: Group, figures: dict[str, Any], texts: Mapping[str, Texts], n_rows: int) -> None:
    """Compute every figure of the rows with one combination of choices; what is to be said of them goes to `texts`."""
    edits = {name: value for name, value in group.choices.items() if name not in ("name", *LOAD_AXES)}
    architecture = edit(group.choices["name"], edits)
    words = {name: word(f"axis{i}") for i, name in enumerate(group.numbers)}
    paths = [name for name in words if name not in LOAD_AXES]
    symbolic = edit(architecture, {path: words[path] for path in paths})
    asked = _load({name: value for name, value in {**group.choices, **words}.items() if name in LOAD_AXES})

    trees = summary(symbolic, asked)
    found = crossover(symbolic, asked, trees["weight_bytes"])
    trees["crossover_tokens"] = found.tokens
    bounded = {} if found.limit is None else {"limit": found.limit, "target": trees["weight_bytes"] / asked.batch}
    if not figures:
        figures.update(zip(trees, np.empty((len(trees), n_rows)), strict=True))
    room = {name: group.room(figures[name]) for name in trees}
    values = compile_columns({**trees, **bounded}).grid(
        {f"axis{i}": column for i, column in enumerate(group.numbers.values())},
        group.shape,
        out=room,
    )

    loads = {name: group.numbers[name] for name in words if name in LOAD_AXES}
    resident = replace(asked, **{n: v.astype(float) if n in ("isl", "osl") else v for n, v in loads.items()}).resident
    _annotate(group, architecture, values, resident, texts)
    with np.errstate(invalid="ignore"):  # a row of infinities is refused
        bad = refuse(group, _checks(architecture, group.numbers, paths, np.atleast_2d(resident)), texts["reason"])
    for name in trees:
        figure = np.where(bad, math.nan, values[name]) if bad.any() else values[name]
        if figure is not room[name]:
            room[name][...] = figure


def _annotate(
    group: Group, architecture: Architecture, values: dict[str, Any], resident: Any, texts: Mapping[str, Texts]
) -> None:
    """Say what is to be said beside figures; a crossover that there is not becomes NaN."""
    tokens, stated = values["crossover_tokens"], architecture.max_positions
    absent = Crossover(tokens, values.get("limit")).absent(values.get("target"))
    texts["weights_basis"].put(group, True, [_basis(architecture)])
    for where, text in beyond(resident, stated):
        texts["warning"].put(group, where, [text])
    for where, text in (*beyond(tokens, stated), *reversed(absent)):
        texts["crossover_note"].put(group, where, [text])
    if any(np.any(where) for where, _ in absent):
        values["crossover_tokens"] = np.where(np.logical_or(*(where for where, _ in absent)), math.nan, tokens)


def _checks(
    architecture: Architecture, columns: Mapping[str, Any], paths: Sequence[str], resident: Any
) -> Iterator[Check]:
    """Every rule about swept numbers."""
    for name, column in columns.items():
        if name in LOAD_AXES:
            held = column >= 1
            if column.dtype.kind == "f":
                held &= column % 1 == 0
            yield held, f"{name} = {{value}} is not a whole number of at least 1", _showing(value=column)
    if paths:
        shape = np.broadcast_shapes(*(columns[path].shape for path in paths))
        swept = edit(architecture, {path: np.broadcast_to(np.asarray(columns[path], float), shape) for path in paths})
        for held, path, sentence, part in violations(swept):
            said = f"{path}: {sentence}" if path else sentence
            yield np.broadcast_to(held, shape), said, functools.partial(ShownRow, part)
    learned = architecture.embedding.learned_positions
    if isinstance(learned, int):
        yield resident <= learned, TOO_LONG.replace("{learned}", str(learned)), _showing(value=resident)


def _showing(**columns: Any) -> Callable[[Any], Mapping[str, str]]:
    return lambda row: {name: f"{column[row]:.15g}" for name, column in columns.items()}


def _models(models: Any) -> list[Architecture]:
    """Names, paths, config tables or contracts, one or many, as contracts."""
    chosen = [load(model) for model in as_axis(models)]
    if not chosen:
        raise UsageError("name at least one model")
    return chosen


def _load(asked: Mapping[str, Any]) -> Load:
    for name in asked:
        if name not in LOAD_AXES:
            raise UsageError(f"unknown option {name!r}{suggest(name, LOAD_AXES)}")
    if ("isl" in asked) != ("osl" in asked):
        raise UsageError("isl and osl belong together: tokens in and tokens out of one request")
    if "isl" in asked and "context" in asked:
        raise UsageError("give either context or isl and osl; a request leaves isl + osl - 1 positions in the cache")
    for name in ("weights", "kv", "attention", "mla"):
        if not isinstance(asked.get(name, ""), (str, type(None))):
            given = "a number" if is_symbolic(asked[name]) else shown(asked[name])
            raise UsageError(f"{name} is a text such as {getattr(Load(), name) or 'bf16'}, and not {given}")
    whole = {name: _whole(name, asked[name]) for name in ("context", "batch", "isl", "osl") if name in asked}
    return Load(**{**asked, **whole})


def _whole(name: str, value: Any) -> Any:
    if is_symbolic(value):
        return value
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1:
        return int(value)
    raise UsageError(f"{name} = {shown(value)} is not a whole number of at least 1")


def _basis(architecture: Architecture) -> str:
    return "counted" if architecture.stated_parameters is None else "stated"


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(columns, copy=False)
    frame.attrs["units"] = {name: UNITS[name] for name in frame.columns if name in UNITS}
    return frame
