"""A pass over one sequence, as the forwards see it: `components.base.Run` with real weights, cache and meter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from planner.bill import Pass
from planner.components.arrays import Array
from planner.errors import UsageError
from planner.rules import Causal, Packed, Strided
from planner.witness.cache import Cache
from planner.witness.meter import Meter
from planner.witness.places import key

SMALL = 4096
"""Elements up to which a plain loop is sooner done than a matrix product is set up."""


@dataclass(slots=True)
class Context:
    """What all parts of a decoder share in one pass."""

    step: Pass
    tokens: Array
    positions: Array
    begins: Array
    offset: int
    reach: int
    weights: Mapping[str, Array]
    cache: Cache
    meter: Meter
    block: int | None = None
    n_layers: int = 0
    notes: dict[str, Array] = field(default_factory=dict)
    last_place: dict[str, str] = field(default_factory=dict)
    """Label of a kind of layer -> the place of the last one that has run."""


def context(
    step: Pass,
    tokens: Array,
    weights: Mapping[str, Array],
    cache: Cache,
    meter: Meter,
    offset: int = 0,
    block: int | None = None,
    n_layers: int = 0,
    reach: int | None = None,
) -> Context:
    """The context of a pass; positions count from `offset`, and in every document anew.

    Raises `UsageError` where documents, a prefix or the reach do not cover the pass.
    """
    index = np.arange(step.past, step.past + step.new)  # [S]
    if step.documents and sum(step.documents) < step.past + step.new:
        raise UsageError(f"documents = {step.documents} are fewer positions than {step.past} past + {step.new} new")
    if step.prefix is not None and 0 < step.past < step.prefix:
        raise UsageError(f"prefix = {step.prefix} is cut at {step.past}; a prefix is read in one pass")
    place = index - Packed(step.documents).start(index)  # [S] in its document
    end = int(place.max()) + offset + 1
    if reach is not None and reach < end:
        raise UsageError(f"reach = {reach} ends before the pass, which goes on to {end}")
    far = end if reach is None else reach
    return Context(step, tokens, place + offset, place == 0, offset, far, weights, cache, meter, block, n_layers)


@dataclass(frozen=True, slots=True)
class PartRun:
    """A `Run`: `path` is the part's in the bill, `place` that of this very layer (`places.placed`).

    `prefix` stands before its ids; `once` is the block whose tensors are stored once, `index` an expert, `terms` what
    `plus` adds.
    """

    context: Context
    path: str = ""
    place: str = ""
    number: int = -1
    prefix: str = ""
    once: str | None = None
    index: int | None = None
    terms: Mapping[str, Array] = field(default_factory=dict)

    @property
    def step(self) -> Pass:
        return self.context.step

    @property
    def tokens(self) -> Array:
        return self.context.tokens

    @property
    def positions(self) -> Array:
        return self.context.positions

    @property
    def reach(self) -> int:
        return self.context.reach

    @property
    def begins(self) -> Array:
        return self.context.begins

    @property
    def block(self) -> int | None:
        return self.context.block

    @property
    def n_layers(self) -> int:
        return self.context.n_layers

    @property
    def notes(self) -> dict[str, Array]:
        return self.context.notes

    def layer(self, number: int, index: int, label: str | None) -> PartRun:
        """The run of one layer of the decoder."""
        place = f"layers.{number}"
        if label is not None:
            self.context.last_place[label] = place
        return replace(self, path=f"layers[{index}]", place=place, number=number)

    def part(self, name: str) -> PartRun:
        """The run of a part below this one."""
        return replace(self, path=f"{self.path}.{name}".lstrip("."), place=f"{self.place}.{name}".lstrip("."))

    def under(self, prefix: str) -> PartRun:
        return replace(self, prefix=f"{self.prefix}{prefix}.")

    def shared(self, block: str) -> PartRun:
        return replace(self, once=f"{block}/")

    def plus(self, terms: Mapping[str, Array]) -> PartRun:
        return replace(self, terms={f"{self.prefix}{id}": term for id, term in terms.items()})

    def copy(self, index: int) -> PartRun:
        return replace(self, index=index)

    def name(self, id: str) -> str:
        """The name of a tensor in the decoder's weights."""
        if self.once is not None and not id.startswith("/"):
            return f"{self.once}{self.prefix}{id}"
        return key(self.place, id if id.startswith("/") else self.prefix + id)

    def weight(self, id: str) -> Array:
        name = self.name(id)
        array = self.context.weights[name]
        if self.index is not None:
            name, array = f"{name}[{self.index}]", array[self.index]
        self.context.meter.weights[name] = array.nbytes
        return array

    def rows(self, id: str, indices: Array) -> Array:
        name = self.name(id)
        table = self.context.weights[name]
        if indices.size and (indices.min() < 0 or indices.max() >= len(table)):
            raise UsageError(f"{name} has {len(table)} rows, and row {int(indices.max())} is asked for")
        for row in np.unique(indices):
            self.context.meter.weights[f"{name}[{row}]"] = table[row].nbytes
        return table[indices]

    def linear(self, id: str, x: Array) -> Array:
        weight = self.weight(f"{id}.weight")  # [n_out, n_in]
        flat = x.reshape(-1, x.shape[-1])
        out = self.product(id, "si,oi->so", flat, weight).reshape(*x.shape[:-1], len(weight))
        if self.name(f"{id}.bias") in self.context.weights:
            out = out + self.weight(f"{id}.bias")
        term = self.terms.get(f"{self.prefix}{id}")
        return out if term is None else out + term

    def product(self, id: str, subscripts: str, a: Array, b: Array, *, mask: Array | None = None) -> Array:
        self.context.meter.multiplied(f"{self.path}.{self.prefix}{id}", subscripts, a, b, mask)
        return np.asarray(np.einsum(subscripts, a, b, optimize=max(a.size, b.size) > SMALL))

    def extend(self, id: str, rows: Array) -> Array:
        store = self.context.cache.stores[self._cached(id)]
        at_hand = store.extend(rows, self.step.past)
        self.context.meter.cache_written[id] += rows.size * store.rows.itemsize
        self.context.meter.cache_read[id] += at_hand.nbytes
        return at_hand.astype(rows.dtype)

    def at_hand(self, id: str) -> Array:
        at_hand = self.context.cache.stores[self._cached(id)].at_hand
        self.context.meter.cache_read[id] += at_hand.nbytes
        return at_hand

    def state(self, id: str) -> Array:
        value = self.context.cache.stores[self._cached(id)].state
        self.context.meter.cache_read[id] += value.nbytes
        return value

    def keep(self, id: str, value: Array) -> None:
        self.context.meter.cache_written[id] += value.nbytes
        self.context.cache.stores[self._cached(id)].keep(value)

    def _cached(self, id: str) -> str:
        if not id.startswith("/"):
            return f"{self.place}.{self.prefix}{id}"
        label, _, rest = id[1:].partition(".")
        return f"{self.context.last_place[label]}.{rest}"

    def mask(self, rule: Causal) -> Array:
        if isinstance(rule, Strided) and self.step.documents:
            raise UsageError("packed documents are not defined for entries that span several positions")
        queries = np.arange(self.step.past, self.step.past + self.step.new)[:, None]  # [S, 1]
        return np.asarray(self.step.rule(rule).sees(queries, self._keys(rule)))

    def key_positions(self, rule: Causal) -> Array:
        keys = self._keys(rule) * (rule.stride if isinstance(rule, Strided) else 1)
        return np.asarray(keys - Packed(self.step.documents).start(keys) + self.context.offset)

    def _keys(self, rule: Causal) -> Array:
        """[T] the indices of what is at hand; of compressed entries, their own."""
        at_hand = int(rule.at_hand(self.step.past, self.step.new))
        end = at_hand if isinstance(rule, Strided) else self.step.past + self.step.new
        return np.arange(end - at_hand, end)
