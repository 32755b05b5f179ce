"""The scenarios of a sweep: a grid of axes, axes side by side, or a table of cases.

A numeric axis is an array of numbers. Any other (models, formats, texts, switches) is a list of choices and an array of
codes into it, so that rows with the same choices form a group. All arrays broadcast to one block of rows: a grid of
twenty thousand contexts and fifty batches holds twenty thousand and fifty numbers until its figures are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from planner.contract import Architecture
from planner.errors import UsageError

MOST = 10**8  # rows of a grid: about 10 GB of figures
INNER = 32
"""Rows that the inner side of a grid has at least where it can: NumPy's loops over fewer cost more than they save."""

Check = tuple[Any, str, Callable[[Any], Mapping[str, str]]]  # rows that hold, sentence, place -> what it shows there


@dataclass(frozen=True, slots=True)
class Group:
    """The rows that share their choices: `shape` = [outer, inner], `numbers` by axis as arrays that broadcast to it."""

    rows: slice
    shape: tuple[int, int]
    choices: dict[str, Any]
    numbers: dict[str, Any]

    def room(self, column: Any) -> Any:
        """Its part of a column, to be read and written as [outer, inner]."""
        return column[self.rows].reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Cases:
    """A block of [choices, outer, inner] rows, and the axes, in the `order` in which they were given.

    `numbers` are arrays that broadcast to the block; `choices` are (values, codes), the codes such arrays too. The rows
    of a group stand together; where they were not given so, `back` is the place of each row that was given.
    """

    shape: tuple[int, int, int]
    numbers: dict[str, Any]
    choices: dict[str, tuple[list[Any], Any]]
    order: tuple[str, ...]
    back: Any = None

    @classmethod
    def grid(cls, axes: Mapping[str, Sequence[Any]]) -> Cases:
        """All combinations. Choices vary slowest, so that the rows of one group stand together."""
        if (rows := math.prod(map(len, axes.values()))) > MOST:
            raise UsageError(f"{rows:,} scenarios are more than a table holds (at most {MOST:,}); sweep them in parts")
        chosen = {name: len(values) for name, values in axes.items() if not is_numeric(values)}
        outer = {name: len(values) for name, values in axes.items() if is_numeric(values)}
        inner: dict[str, int] = {}
        while outer and math.prod(inner.values()) < INNER:
            name, size = outer.popitem()
            inner = {name: size, **inner}
        choices = {name: (list(axes[name]), codes[:, None, None]) for name, codes in _combinations(chosen).items()}
        numbers = {
            **{name: _numbers(name, axes[name])[at][None, :, None] for name, at in _combinations(outer).items()},
            **{name: _numbers(name, axes[name])[at][None, None] for name, at in _combinations(inner).items()},
        }
        n_choices, n_outer, n_inner = (math.prod(side.values()) for side in (chosen, outer, inner))
        return cls((n_choices, n_outer, n_inner), numbers, choices, tuple(axes))

    @classmethod
    def zipped(cls, axes: Mapping[str, Sequence[Any]]) -> Cases:
        """The first values of all axes, the second, and so on; an axis of one value keeps it."""
        lengths = {len(values) for values in axes.values() if len(values) != 1}
        if len(lengths) > 1:
            raise UsageError(f"axes of {' and '.join(map(str, sorted(lengths)))} values cannot be zipped")
        numbers = {name: _numbers(name, values)[None, None] for name, values in axes.items() if is_numeric(values)}
        choices = {n: (list(axes[n]), np.arange(len(axes[n]))[None, None]) for n in axes if n not in numbers}
        return cls((1, 1, lengths.pop() if lengths else 1), numbers, choices, tuple(axes)).together()

    @classmethod
    def of_frame(cls, frame: pd.DataFrame) -> Cases:
        """The rows of a table, a column for each axis; an empty cell of a choice is None."""
        numbers, choices = {}, {}
        if not frame.columns.is_unique:
            raise UsageError(f"column {frame.columns[frame.columns.duplicated()][0]} stands twice")
        for name, column in frame.items():
            if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
                plain = column.to_numpy(float, na_value=math.nan) if column.hasnans else column.to_numpy()
                numbers[str(name)] = _numbers(str(name), plain)[None, None]
            else:
                try:
                    codes, values = pd.factorize(column, use_na_sentinel=False)
                except TypeError:
                    raise UsageError(f"column {name} holds something that is neither number, text nor switch") from None
                choices[str(name)] = ([None if pd.isna(value) else value for value in values], codes[None, None])
        return cls((1, 1, len(frame)), numbers, choices, tuple(map(str, frame.columns))).together()

    def together(self) -> Cases:
        """The same rows in the order of their groups."""
        codes = self._codes()[0, 0]
        if (codes[1:] >= codes[:-1]).all():
            return self
        order = np.argsort(codes.astype(_codes(codes.max() + 1)), kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))

        def moved(array: Any) -> Any:
            return array[..., order] if array.shape[2] != 1 else array

        numbers = {name: moved(values) for name, values in self.numbers.items()}
        choices = {name: (values, moved(codes)) for name, (values, codes) in self.choices.items()}
        return replace(self, numbers=numbers, choices=choices, back=back)

    def as_given(self, column: Any) -> Any:
        """A column with its rows in the order in which they were given."""
        return column if self.back is None else column[..., self.back]

    @property
    def rows(self) -> int:
        """How many scenarios there are."""
        return math.prod(self.shape)

    def _codes(self) -> Any:
        """A code for each combination of choices, as an array that broadcasts to the block."""
        codes = np.zeros((1, 1, 1), np.int64)
        for values, code in self.choices.values():
            combined = codes * len(values) + code
            codes = pd.factorize(combined.reshape(-1))[0].reshape(combined.shape)
        return codes

    def groups(self) -> Iterator[Group]:
        """The rows of each combination of choices that occurs."""
        codes = self._codes()
        each = math.prod(self.shape) // max(codes.size, 1)
        ends = np.cumsum(np.bincount(codes.reshape(-1)))
        for first, end in zip((0, *ends), ends, strict=False):
            chosen = {
                name: values[code.flat[first if code.size != 1 else 0]] for name, (values, code) in self.choices.items()
            }
            part, shape = slice(None), self.shape[1:]
            if codes.shape[2] != 1:
                part, shape = slice(first, end), (1, end - first)
            numbers = {name: v[0][:, part] if v.shape[2] != 1 else v[0] for name, v in self.numbers.items()}
            yield Group(slice(first * each, end * each), shape, chosen, numbers)

    def columns(self) -> dict[str, Any]:
        """The axes as columns of a frame."""
        columns = {}
        for name in self.order:
            if name in self.numbers:
                columns[name] = self.as_given(np.broadcast_to(self.numbers[name], self.shape).reshape(-1))
            else:
                values, codes = self.choices[name]
                columns[name] = categorical(values, self.as_given(np.broadcast_to(codes, self.shape)).reshape(-1))
        return columns


def _combinations(sizes: Mapping[str, int]) -> dict[str, Any]:
    """Axis -> which of its values each combination has; the last axis varies fastest."""
    return dict(zip(sizes, (places.reshape(-1) for places in np.indices(tuple(sizes.values()))), strict=True))


def is_numeric(values: Any) -> bool:
    """Whether an axis holds numbers and nothing else."""
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "iuf"
    return all(isinstance(v, (int, float, np.number)) and not isinstance(v, bool) for v in values)


def as_axis(values: Any) -> Any:
    """One value or many, as a list of Python's own, or as the array of numbers they are."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        values = [values]
    if isinstance(values, np.ndarray) and is_numeric(values):
        return values
    return [None if value is pd.NA else value.item() if isinstance(value, np.generic) else value for value in values]


def _numbers(name: str, values: Any) -> Any:
    """A numeric axis as an array of int64, or of float64 where it has fractions or has no place in 64 bits."""
    try:
        array = np.asarray(values)
        array = array.astype(np.int64 if np.can_cast(array.dtype, np.int64) else float, copy=False)
    except OverflowError:
        raise UsageError(f"{name}: an axis holds a number beyond all that are computed with") from None
    if array.ndim != 1:
        raise UsageError(f"{name}: an axis is one row of values, and this one has {array.ndim} dimensions")
    return array


def categorical(values: Sequence[Any], codes: Any) -> Any:
    """Choices as a column; a model shows its name, None an empty cell."""
    shown = [value.name if isinstance(value, Architecture) else value for value in values]
    known = {text: code for code, text in enumerate(dict.fromkeys(text for text in shown if text is not None))}
    where = np.array([-1 if text is None else known[text] for text in shown], _codes(len(known)))
    return _categorical(where[codes], known)


def _codes(n_texts: int) -> Any:
    """The type that pandas keeps the codes of so many texts in, so that they need no copy."""
    return np.int8 if n_texts < 2**7 else np.int16 if n_texts < 2**15 else np.int32


def _categorical(codes: Any, texts: Iterable[str]) -> Any:
    return pd.Categorical.from_codes(codes, pd.Index(list(texts), dtype=object), validate=False)


class Texts:
    """A column of few distinct texts over many rows, empty at first."""

    def __init__(self, rows: int) -> None:
        self.known = {"": 0}
        self.codes = np.zeros(rows, _codes(1))

    def put(self, group: Group, where: Any, texts: Sequence[str], unless: Any = False) -> None:
        """Set a text on the rows where a mask holds and `unless` does not, or a text for each place of the mask."""
        if not np.any(where):
            return
        codes = np.zeros(np.shape(where), np.int32)
        codes[where] = [self.known.setdefault(text, len(self.known)) for text in texts]
        self.codes = self.codes.astype(_codes(len(self.known)), copy=False)
        where = np.logical_and(where, np.logical_not(unless))
        np.copyto(group.room(self.codes), codes, where=np.all(where) or where, casting="same_kind")

    def column(self, cases: Cases) -> Any:
        return _categorical(cases.as_given(self.codes), self.known)


def refuse(group: Group, checks: Iterable[Check], reason: Texts) -> Any:
    """Give each row that breaks a rule the first of them as its reason; where such rows are."""
    bad = np.zeros((1, 1), bool)
    for held, sentence, fields_at in checks:
        if not held.all():
            said = [sentence.format_map(fields_at(tuple(place))) for place in np.argwhere(~held)]
            reason.put(group, ~held, said, unless=bad)
            bad = bad | ~held
    return bad
