"""The scenarios of a sweep as columns: a grid of axes, axes side by side, or a table of cases.

A numeric axis is a column of numbers. Any other (models, formats, texts, switches) is a list of choices and a column of
codes into it, so that rows with the same choices form a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from planner.contract import Architecture
from planner.errors import UsageError

Rows = Any  # a slice, or an array of row numbers


@dataclass(frozen=True, slots=True)
class Cases:
    """`rows` scenarios: `numbers` by axis, `choices` by axis as (values, codes), `order` as the axes were given."""

    rows: int
    numbers: dict[str, Any]
    choices: dict[str, tuple[list[Any], Any]]
    order: tuple[str, ...]

    @classmethod
    def grid(cls, axes: Mapping[str, Sequence[Any]]) -> Cases:
        """All combinations. Choices vary slowest, so that the rows of one group stand together."""
        rows = inner = math.prod(map(len, axes.values()))
        numbers, choices = {}, {}
        for name in sorted(axes, key=lambda name: is_numeric(axes[name])):
            values, size = axes[name], len(axes[name])
            inner //= size
            numeric = is_numeric(values)
            column = np.tile(np.repeat(values if numeric else np.arange(size), inner), rows // (inner * size))
            if numeric:
                numbers[name] = column
            else:
                choices[name] = (list(values), column)
        return cls(rows, numbers, choices, tuple(axes))

    @classmethod
    def zipped(cls, axes: Mapping[str, Sequence[Any]]) -> Cases:
        """The first values of all axes, the second, and so on; an axis of one value keeps it."""
        lengths = {len(values) for values in axes.values() if len(values) != 1}
        if len(lengths) > 1:
            raise UsageError(f"axes of {' and '.join(map(str, sorted(lengths)))} values cannot be zipped")
        rows = lengths.pop() if lengths else 1
        places = {name: np.resize(np.arange(len(values)), rows) for name, values in axes.items()}
        numeric = {name: values for name, values in axes.items() if is_numeric(values)}
        numbers = {name: np.asarray(values)[places[name]] for name, values in numeric.items()}
        choices = {name: (list(axes[name]), places[name]) for name in axes if name not in numeric}
        return cls(rows, numbers, choices, tuple(axes))

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> Cases:
        """The rows of a table, a column for each axis; an empty cell of a choice is None."""
        numbers, choices = {}, {}
        for name, column in frame.items():
            if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
                numbers[str(name)] = column.to_numpy()
            else:
                codes, values = pd.factorize(column, use_na_sentinel=False)
                choices[str(name)] = ([None if pd.isna(value) else value for value in values], codes)
        return cls(len(frame), numbers, choices, tuple(map(str, frame.columns)))

    def groups(self) -> Iterator[tuple[Rows, dict[str, Any]]]:
        """(rows, axis -> value) of each combination of choices that occurs."""
        sizes = [len(values) for values, _ in self.choices.values()]
        if math.prod(sizes) == 1:
            yield slice(0, self.rows), {name: values[0] for name, (values, _) in self.choices.items()}
            return
        codes = np.ravel_multi_index([codes for _, codes in self.choices.values()], sizes)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=math.prod(sizes)))
        for combination, start, end in zip(product(*map(range, sizes)), (0, *ends), ends, strict=False):
            if end > start:
                rows = order[start:end]
                first, last = int(rows[0]), int(rows[-1])
                names = zip(self.choices.items(), combination, strict=True)
                chosen = {name: values[i] for (name, (values, _)), i in names}
                yield (slice(first, last + 1) if last - first + 1 == len(rows) else rows), chosen

    def columns(self) -> dict[str, Any]:
        """The axes as columns of a frame."""
        return {
            name: self.numbers[name] if name in self.numbers else categorical(*self.choices[name])
            for name in self.order
        }


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether an axis holds numbers and nothing else."""
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "iuf"
    return all(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) for v in values)


def as_axis(values: Any) -> Any:
    """One value or many, as a list, or as the array they are."""
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        return [values]
    return values if isinstance(values, np.ndarray) else list(values)


def categorical(values: Sequence[Any], codes: Any) -> Any:
    """Choices as a column; a model shows its name, None an empty cell."""
    texts = [value.name if isinstance(value, Architecture) else value for value in values]
    distinct = list(dict.fromkeys(text for text in texts if text is not None))
    where = np.array([distinct.index(text) if text is not None else -1 for text in texts])
    return pd.Categorical.from_codes(where[codes], pd.Index(distinct, dtype=object))


class Texts:
    """A column of few distinct texts over many rows, empty at first."""

    def __init__(self, rows: int) -> None:
        self.codes = np.zeros(rows, np.int32)
        self.known = {"": 0}

    def put(self, rows: Rows, text: str, where: Any = None) -> None:
        """Set a text on rows, or on those of them where a mask holds."""
        if where is None:
            self.codes[rows] = self.known.setdefault(text, len(self.known))
        elif where.any():
            self.put_each(rows, np.flatnonzero(where), [text])

    def put_each(self, rows: Rows, places: Any, texts: Sequence[str]) -> None:
        """Set texts, one for each place among rows, or one for all of them."""
        part = self.codes[rows]
        part[places] = [self.known.setdefault(text, len(self.known)) for text in texts]
        self.codes[rows] = part

    def column(self) -> Any:
        return pd.Categorical.from_codes(self.codes, pd.Index(list(self.known), dtype=object))
