"""The cache as real arrays: what every layer keeps of one sequence between passes.

An entry of the bill becomes one array [rows, heads, width]. It grows with the sequence up to its rule's limit, from
where it is a ring: position p lies in row p % limit, and the bytes stay what they are. A state is an array of one row.
"""

from __future__ import annotations

import math

import numpy as np

from planner.bill import CacheEntry
from planner.components.arrays import Array
from planner.contract import Architecture
from planner.errors import UsageError
from planner.rules import Constant, Strided
from planner.witness.places import placed

DTYPES = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}


class Store:
    """The rows of one entry."""

    def __init__(self, entry: CacheEntry, dtype: type) -> None:
        self.entry = entry
        self.rows: Array = np.zeros((0, entry.heads, entry.width), dtype)
        self.at_hand = self.rows
        """Rows held from before and those of this pass, in order: memory of the pass, not of the cache."""

    def extend(self, new: Array, past: int) -> Array:
        """Take in the rows that a pass after `past` positions adds, and return what is at hand."""
        self.at_hand = np.concatenate([self._held(past), new.astype(self.rows.dtype)])
        first = self._count(past)
        rows, limit = first + len(new), self.entry.rule.limit
        grown = (rows if limit is None else min(rows, limit)) - len(self.rows)
        self.rows = np.concatenate([self.rows, np.zeros((max(grown, 0), *self.rows.shape[1:]), self.rows.dtype)])
        kept = np.arange(max(rows - len(self.rows), first), rows)  # of a long pass, only the last rows fit
        self.rows[kept % len(self.rows)] = self.at_hand[len(self.at_hand) - len(kept) :]
        return self.at_hand

    def _held(self, past: int) -> Array:
        """The rows that a later pass may read, the oldest first."""
        end = self._count(past)
        count = min(self.entry.rule.held(past), end)
        return self.rows[np.arange(end - count, end) % max(len(self.rows), 1)]

    def _count(self, length: int) -> int:
        """Rows that a sequence of that length has produced, evicted ones included."""
        rule = self.entry.rule
        return int(rule.kept(length)) if isinstance(rule, Strided) else length

    @property
    def state(self) -> Array:
        """[heads, width], zeros at first."""
        return self.rows[0] if len(self.rows) else np.zeros(self.rows.shape[1:], self.rows.dtype)

    def keep(self, value: Array) -> None:
        """Replace the state."""
        self.rows = value.astype(self.rows.dtype).reshape(1, *self.rows.shape[1:])


class Cache:
    """Everything that a decoder keeps of one sequence."""

    def __init__(self, model: Architecture, kv: str = "fp32", activations: str = "fp32") -> None:
        self.length = 0
        self.stores = {
            f"{place}.{entry.id}": Store(entry, _kept(entry, kv, activations))
            for place, part in placed(model)
            for entry in part.bill.cache
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(store.rows.nbytes for store in self.stores.values())

    def rewind(self, length: int) -> None:
        """Forget the positions from `length` on, such as drafted tokens that were refused.

        Raises `UsageError` where a ring or a state has already lost what came before them.
        """
        for key, store in self.stores.items():
            rule, lost = store.entry.rule, self.length - length
            if lost and (isinstance(rule, Constant) or self.length > (math.inf if rule.limit is None else rule.limit)):
                raise UsageError(f"{key} keeps no copy of what position {length} saw; read the sequence again")
            store.rows = store.rows[: store._count(length)]
        self.length = length


def _kept(entry: CacheEntry, kv: str, activations: str) -> type:
    """The dtype of an entry. A format that is fixed keeps at least what the activations hold: float64 stays float64."""
    dtype = _dtype(entry.stored_in(kv, activations))
    return dtype if entry.format is None else max(dtype, _dtype(activations), key=lambda each: np.dtype(each).itemsize)


def _dtype(format: str) -> type:
    if format not in DTYPES:
        raise UsageError(f"the witness keeps a cache in {', '.join(DTYPES)}, not in {format}")
    return DTYPES[format]
