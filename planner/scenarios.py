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
from typing import Any

import numpy as np
import pandas as pd

from planner.arithmetic import is_symbolic, plain, word
from planner.cases import Cases, Texts, as_axis
from planner.columns import compile_columns
from planner.contract import Architecture
from planner.editing import edit
from planner.errors import PlannerError, UsageError, suggest
from planner.sources import load
from planner.spec import ShownRow, violations
from planner.summary import NEVER, NONE, UNITS, Load, beyond, crossover, summary

COMPARISON_SET = ("mha", "gqa-8", "mqa", "mla")
LOAD_AXES = tuple(field.name for field in fields(Load))
COLUMNS = (
    "name parameters active_parameters weights_basis weight_bytes cache_bytes_per_token cache_fixed_bytes cache_bytes "
    "crossover_tokens crossover_note prefill_flops decode_flops cache_ratio warning reason"
).split()


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
    return _frame({name: _column([row.get(name) for row in rows]) for name in COLUMNS})


def _column(values: list[Any]) -> Any:
    """Exact values as a column: whole numbers stay whole where some are absent; an absent text is empty."""
    present = [value for value in values if value is not None]
    if len(present) == len(values):
        return values
    if present and all(isinstance(value, int) for value in present):
        return pd.array(values, dtype="Int64") if all(abs(v) < 2**63 for v in present) else np.array(values, object)
    if any(isinstance(value, float) for value in present):
        return [math.nan if value is None else value for value in values]
    return ["" if value is None else value for value in values]


def _row(architecture: Architecture, asked: Load) -> dict[str, Any]:
    """One model's figures in ints."""
    length, learned, stated = asked.resident, architecture.embedding.learned_positions, architecture.max_positions
    if learned is not None and length > learned:
        figures = summary(architecture, Load(context=learned, weights=asked.weights))
        known = {name: figures[name] for name in ("parameters", "active_parameters", "weight_bytes")}
        return {**known, "reason": f"{length} positions exceed the {learned} learned ones"}
    figures = summary(architecture, asked)
    found = crossover(architecture, asked, figures["weight_bytes"])
    tokens = math.nan if found.tokens is None else float(found.tokens)
    if found.limit is not None and found.limit < figures["weight_bytes"] / asked.batch:
        tokens, note = math.nan, NEVER
    elif not tokens > 0:
        tokens, note = math.nan, NONE
    else:
        note = beyond(stated) if stated is not None and tokens > stated else ""
    warning = beyond(stated) if stated is not None and length > stated else ""
    return {**figures, "crossover_tokens": tokens, "crossover_note": note, "warning": warning}


def sweep(
    models: Any = COMPARISON_SET, *, how: str = "grid", cases: pd.DataFrame | None = None, **axes: Any
) -> pd.DataFrame:
    """A row for each scenario, a column for each axis and figure, units in ``attrs["units"]``.

    Axes are the fields of `Load` (context, batch, isl and osl, weights, kv ...) and any contract field by its path,
    each with one value or a list: all combinations (`how` = ``grid``) or side by side (``zip``). `cases` is a table
    whose rows are the scenarios, with a column ``model`` where it has several. Figures are float64. A row that breaks
    a rule keeps its place, its figures NaN and its `reason` filled.

    >>> frame = sweep("gqa-8", context=[1000, 2000], n_kv_heads=[8, 3])
    >>> frame[["context", "n_kv_heads", "cache_bytes", "reason"]].values.tolist()[1:3]
    [[1000, 3, nan, 'layers[0].mixer: n_kv_heads = 3 does not divide n_heads = 32'], [2000, 8, 262144000.0, '']]
    """
    scenarios = _cases(models, how, cases, axes)
    texts = {name: Texts(scenarios.rows) for name in ("weights_basis", "crossover_note", "warning", "reason")}
    figures: dict[str, Any] = {}
    for rows, chosen in scenarios.groups():
        columns = {name: values[rows] for name, values in scenarios.numbers.items()}
        try:
            values = _group(chosen, columns, rows, texts)
        except PlannerError as error:
            texts["reason"].put(rows, str(error))
            continue
        if isinstance(rows, slice) and rows == slice(0, scenarios.rows):
            figures = values
            break
        for name, column in values.items():
            figures.setdefault(name, np.full(scenarios.rows, math.nan))[rows] = column
    frame = _frame({**scenarios.columns(), **figures, **{name: text.column() for name, text in texts.items()}})
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
    if by_model:
        for name in (a, b):
            if name not in set(frame["name"]):
                raise UsageError(f"{name!r} is neither a column nor a model of the frame{suggest(name, frame['name'])}")
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
        if axes:
            raise UsageError(f"{next(iter(axes))}: with a table of cases, an axis is a column of that table")
        table = Cases.of_frame(cases.rename(columns={"model": "name"}))
        values, codes = table.choices.get("name", (models, np.zeros(table.rows, int)))
        chosen = _models(values)
        if "name" not in table.choices and len(chosen) != 1:
            raise UsageError("a table of cases for several models needs a column 'model'")
        order = tuple(dict.fromkeys(("name", *table.order)))
        return replace(table, choices={**table.choices, "name": (chosen, codes)}, order=order)
    given = {"name": _models(models), **{name: as_axis(values) for name, values in axes.items()}}
    for name, values in given.items():
        if len(values) == 0:
            raise UsageError(f"{name}: an axis needs at least one value")
    if how not in ("grid", "zip"):
        raise UsageError(f"how = {how!r} is none of grid, zip")
    return Cases.grid(given) if how == "grid" else Cases.zipped(given)


def _group(
    chosen: Mapping[str, Any], columns: Mapping[str, Any], rows: Any, texts: Mapping[str, Texts]
) -> dict[str, Any]:
    """Every figure of the rows with one combination of choices; what is to be said of them goes to `texts`."""
    edits = {name: value for name, value in chosen.items() if name not in ("name", *LOAD_AXES)}
    architecture = edit(chosen["name"], edits)
    words = {name: word(f"axis{i}") for i, name in enumerate(columns)}
    paths = [name for name in columns if name not in LOAD_AXES]
    symbolic = edit(architecture, {path: words[path] for path in paths})
    asked = _load({name: value for name, value in {**chosen, **words}.items() if name in LOAD_AXES})

    trees = summary(symbolic, asked)
    found = crossover(symbolic, asked, trees["weight_bytes"])
    trees["crossover_tokens"] = math.nan if found.tokens is None else found.tokens
    beside = {"target": trees["weight_bytes"] / asked.batch, "resident": asked.resident}
    if found.limit is not None:
        beside["limit"] = found.limit
    n_rows = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
    values = compile_columns({**trees, **beside})(
        {f"axis{i}": column for i, column in enumerate(columns.values())}, n_rows
    )

    texts["weights_basis"].put(rows, _basis(architecture))
    _annotate(architecture, values, rows, texts)
    bad = np.zeros(n_rows, bool)
    for held, sentence, fields_at in _checks(architecture, columns, paths, values):
        broken = np.flatnonzero(~np.broadcast_to(held, bad.shape) & ~bad)
        texts["reason"].put_each(rows, broken, [sentence.format_map(fields_at(int(i))) for i in broken])
        bad[broken] = True
    if bad.any():
        for column in values.values():
            column[bad] = math.nan
    return {name: values[name] for name in trees}


def _annotate(architecture: Architecture, values: Mapping[str, Any], rows: Any, texts: Mapping[str, Texts]) -> None:
    tokens, stated = values["crossover_tokens"], architecture.max_positions
    never = values["limit"] < values["target"] if "limit" in values else np.isnan(tokens)
    none = ~never & ~(tokens > 0)
    texts["crossover_note"].put(rows, NEVER, never)
    texts["crossover_note"].put(rows, NONE, none)
    if stated is not None:
        texts["crossover_note"].put(rows, beyond(stated), ~never & ~none & (tokens > stated))
        texts["warning"].put(rows, beyond(stated), values["resident"] > stated)
    tokens[never | none] = math.nan


def _checks(
    architecture: Architecture, columns: Mapping[str, Any], paths: Sequence[str], values: Mapping[str, Any]
) -> Iterator[tuple[Any, str, Callable[[int], Mapping[str, str]]]]:
    """(rows that hold, sentence, row -> what the sentence shows) of every rule about swept numbers."""
    for name, column in columns.items():
        if name in LOAD_AXES:
            held = column >= 1
            if column.dtype.kind == "f":
                held &= column % 1 == 0
            yield held, f"{name} = {{value}} is not a whole number of at least 1", _showing(value=column)
    if paths:
        swept = edit(architecture, {path: np.asarray(columns[path], float) for path in paths})
        for held, path, sentence, part in violations(swept):
            yield held, f"{path}: {sentence}" if path else sentence, functools.partial(ShownRow, part)
    learned = architecture.embedding.learned_positions
    if isinstance(learned, int):
        resident = values["resident"]
        yield resident <= learned, f"{{value}} positions exceed the {learned} learned ones", _showing(value=resident)


def _showing(**columns: Any) -> Callable[[int], Mapping[str, str]]:
    return lambda row: {name: f"{column[row]:.15g}" for name, column in columns.items()}


def _models(models: Any) -> list[Architecture]:
    """Names, paths, config tables or contracts, one or many, as contracts."""
    chosen = [load(model) for model in ([models] if isinstance(models, (str, Mapping, Architecture)) else models)]
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
    for name in ("context", "batch", "isl", "osl"):
        value = plain(asked.get(name, 1))
        if not is_symbolic(value) and (type(value) is not int or value < 1):
            raise UsageError(f"{name} = {value!r} is not a whole number of at least 1")
    return Load(**asked)


def _basis(architecture: Architecture) -> str:
    return "counted" if architecture.stated_parameters is None else "stated"


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame(columns, copy=False)
    frame.attrs["units"] = {name: UNITS[name] for name in frame.columns if name in UNITS}
    return frame
