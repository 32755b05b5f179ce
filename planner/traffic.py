"""What the matrix products of a rank compute and move in a pass: FLOPs, and bytes read from and written to its memory.

Each tensor goes through once a pass, whole, in its stored format; a look-up table gives a row for each position; of the
routed experts those go through that some token chose. Attention is taken to be fused: a cache entry is read once by a
layer however many products name it, at the positions that the rule allows some query to see, so that sparse attention
reads less than it keeps. Bytes follow the key-value heads, FLOPs the query heads. Left out are the activations between
products and element-wise work, which have no share of their own here (`seconds_per_layer` stands for them).

What is offloaded comes over the host link each time that it is read, an equal share of every tensor or cache entry, and
is then read from the device's memory like the rest (as FlexGen's and Accelerate's copies are).

The numbers of a load may be words; tensors and layouts are ints.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from planner.accounts import position_bytes
from planner.arithmetic import Value, maximum, minimum
from planner.bill import CacheEntry, Operation, Part, Pass, Product, Tensor
from planner.contract import Architecture
from planner.parallel import Rank
from planner.plan import Plan
from planner.rules import Causal
from planner.storage import Scheme, formats, weight_format

Members = tuple[tuple[Any, Any], ...]
Amounts = tuple[Any, Any]
"""Bytes, and those of them that no choice of experts and no cache of the device goes below."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a plan says of how a decoder is stored and read: all that the work of a rank in a batch depends on.

    `formats` are pairs of a format in which something is stored and the one in which the device multiplies it; the
    offloaded shares are those that come over a link to the host.
    """

    model: Architecture
    weights: str
    kv: str
    dcp: int
    dispatches: bool
    formats: tuple[tuple[str, str], ...]
    offloaded_weights: Any
    offloaded_cache: Any

    @classmethod
    def of(cls, plan: Plan) -> Stored:
        """The figures of a plan."""
        held, formats = plan.holders, tuple((basis, plan.device.compute_format(basis)) for basis in compute_bases(plan))
        shares = (held.offloaded_weights, held.offloaded_cache) if over_host(plan) else (0, 0)
        return cls(plan.model, plan.weights, plan.kv, plan.layout.dcp, plan.layout.dispatches, formats, *shares)


def over_host(plan: Plan) -> bool:
    """Whether something comes over a link to the host's memory: with unified memory it is the device's own."""
    held = plan.holders
    return bool(held.offloaded_weights or held.offloaded_cache) and not plan.device.unified_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Sequences that go through a rank together: `passes` passes in a row, each of `new` positions of each sequence.

    `members` are (sequences, positions that are cached before the first pass) of the replica, `mixer_members` of the
    group of ranks whose mixers work on sequences of their own. All amounts are totals over sequences and passes; they
    are exact, since pairs are additive over passes (``f(past + new) - f(past)``), but for products on all cached
    positions, which are taken at the middle pass.
    """

    members: Members
    mixer_members: Members
    new: Any = 1
    emitted: Any = 1
    passes: Any = 1
    attention: str = "causal"

    def of(self, part: Part) -> Members:
        """The sequences that a part sees."""
        return self.mixer_members if part.path.endswith(".mixer") else self.members

    def tokens(self, members: Members) -> Value:
        """New positions of all sequences in one pass."""
        return self.new * sum(sequences for sequences, _ in members)

    def units(self, entry: Product | Operation, members: Members) -> Value:
        """Units of an entry's domain."""
        return sum(sequences * self._units(entry, past) for sequences, past in members)

    def _units(self, entry: Product | Operation, past: Value) -> Value:
        if entry.domain == "pass":
            return self.passes
        if entry.domain == "cached" or (entry.domain == "pairs" and self.attention == "square"):
            run = Pass(past=self._middle(past), new=self.new, attention=self.attention)
            return self.passes * run.units(entry)
        return Pass(past=past, new=self.passes * self.new, emitted=self.passes * self.emitted).units(entry)

    def read(self, product: Product, entry: CacheEntry, members: Members) -> Value:
        """Positions of an entry that a product reads: at most one for each pair, and no more than are at hand."""
        total: Value = 0
        for sequences, past in members:
            middle = self._middle(past)
            if product.domain == "pairs":
                seen = product.rule.pairs(past, self.passes * self.new)
                positions = minimum(seen, self.passes * product.rule.at_hand(middle, self.new))
            else:
                positions = self.passes * entry.rule.at_hand(middle, self.new)
            total = total + sequences * positions
        return total

    def written(self, rule: Causal, members: Members) -> Value:
        """Positions of an entry that are written: the new ones that its rule keeps; a state once a pass."""
        each: Value = 1
        if rule.growth is not None:
            each = rule.growth * (self.new if rule.limit is None else minimum(self.new, rule.limit))
        return self.passes * each * sum(sequences for sequences, _ in members)

    def earlier(self, product: Product, entry: CacheEntry, members: Members) -> Value:
        """Positions of an entry that a product reads and that the pass itself does not compute."""
        new = 1 if entry.rule.growth is None else entry.rule.growth * self.new
        computed = self.passes * new * sum(sequences for sequences, _ in members)
        return maximum(self.read(product, entry, members) - computed, 0)

    def _middle(self, past: Value) -> Value:
        """Positions cached before the middle pass."""
        return past + self.new * maximum(self.passes - 1, 0) / 2


@dataclass(frozen=True, slots=True)
class Work:
    """What a product does in all layers that have it. `product` is None for tensors that no product reads.

    `format` is what the device multiplies in; `least_bytes` are those that no choice of experts, no reuse of shared
    tensors and no reading past the device's memory goes below. `host_bytes` come over the host link; the least are
    without those that the pass computes, for what is written goes the other way.
    """

    part: str
    product: str | None
    component: str
    format: str
    flops: Any
    bytes: Any
    least_bytes: Any
    host_bytes: Any
    least_host_bytes: Any


def work(plan: Plan, rank: Rank, batch: Batch, mla: str) -> tuple[Work, ...]:
    """The work of a rank; `mla` is the form of latent attention. Tensors belong to the first product that reads them.

    >>> from planner.parallel import ranks
    >>> from planner.plan import make_plan
    >>> plan = make_plan("llama-3.1-8b", accelerator="h100-sxm")
    >>> step = Batch(members=((1, 2048),), mixer_members=((1, 2048),))
    >>> sum(w.bytes for w in work(plan, *ranks(plan.model, plan.layout), step, "absorbed"))
    15278555136
    """
    return _work(Stored.of(plan), rank, batch, mla)


@functools.lru_cache(maxsize=1024)
def _work(stored: Stored, rank: Rank, batch: Batch, mla: str) -> tuple[Work, ...]:
    """The same on all devices that multiply alike, of which a search tries many."""
    return tuple(_Traffic(stored, rank, batch).work(mla))


class _Traffic:
    """The tensors and cache entries of a rank by their names, and which of them have gone through."""

    def __init__(self, stored: Stored, rank: Rank, batch: Batch) -> None:
        self.stored, self.model, self.batch = stored, stored.model, batch
        self.formats = dict(stored.formats)
        self.scheme = weight_format(stored.weights)
        self.parts = [part for part in rank.parts if part.module == "body"]
        self.tensors = {full_name(part, t.id): t for part in self.parts for t in part.bill.tensors}
        self.shared: set[str] = set()
        self.entries: dict[str, CacheEntry] = {}
        for part in self.parts:
            for entry in part.bill.cache:
                self.entries[full_name(part, entry.id)] = self.entries[_by_label(self.model, part, entry.id)] = entry

    def work(self, mla: str) -> Iterator[Work]:
        running = {part.path: [p for p in part.bill.products if p.form in (None, mla)] for part in self.parts}
        named = {full_name(part, id) for part in self.parts for p in running[part.path] for id in p.reads}
        for part in self.parts:
            seen: set[str] = set()
            for product in running[part.path]:
                names = [name for id in product.reads if (name := full_name(part, id)) not in seen]
                seen.update(names)
                bytes = self._moved(part, product, names)
                routed = product.component == "experts_routed"
                flops = 2 * part.count * product.macs * self.batch.units(product, self._seen(part, routed))
                format = self._format([full_name(part, id) for id in product.reads])
                yield Work(part.path, product.id, product.component, format, flops, *bytes)
            bytes = self._unnamed(part, named)
            if not (isinstance(bytes[0], int) and bytes[0] == 0):
                yield Work(part.path, None, "other", self._format([]), 0, *bytes)

    def _seen(self, part: Part, routed: bool) -> Members:
        """The sequences that a product sees: where tokens are dispatched, routed experts alone see those of all."""
        return self.batch.mixer_members if self.stored.dispatches and not routed else self.batch.of(part)

    def _moved(self, part: Part, product: Product, names: Sequence[str]) -> tuple[Any, Any, Any, Any]:
        """Bytes of what a product is the first of its part to read, and of the cache that it fills."""
        weights, cache = [], []
        passes = self.batch.passes
        if product.domain == "emitted":  # without logits the output matrix is not touched
            passes = passes * minimum(self.batch.emitted, 1)
        for name in names:
            if name in self.tensors:
                weights.append(self._tensor(part, self.tensors[name], passes))
            else:
                cache.append(self._cached(part, product, name))
        return self._bytes(weights, cache)

    def _unnamed(self, part: Part, named: set[str]) -> tuple[Any, Any, Any, Any]:
        """Bytes of tensors and cache entries that no product names: norms, biases, look-ups, inputs that wait."""
        weights, cache = [], []
        for tensor in part.bill.tensors:
            if full_name(part, tensor.id) not in named:
                weights.append(self._tensor(part, tensor, self.batch.passes))
        for entry in part.bill.cache:
            if not {full_name(part, entry.id), _by_label(self.model, part, entry.id)} & named:
                kept = self._cache_bytes(part, entry, self.batch.written(entry.rule, self.batch.of(part)))
                cache.append((kept, 0))
        return self._bytes(weights, cache)

    def _bytes(self, weights: list[Amounts], cache: list[Amounts]) -> tuple[Any, Any, Any, Any]:
        """`bytes`, `least_bytes`, `host_bytes` and `least_host_bytes`, as `Work` has them."""
        (expected, certain), (moved, earlier) = map(_total, (weights, cache))
        of_weights, of_cache = self.stored.offloaded_weights, self.stored.offloaded_cache
        return (
            expected + moved,
            (1 - of_weights) * certain + (1 - of_cache) * moved,
            of_weights * expected + of_cache * moved,
            of_weights * certain + of_cache * earlier,
        )

    def _tensor(self, part: Part, tensor: Tensor, passes: Value) -> Amounts:
        """A tensor in all layers of a part. One that many layers share is read by each, and at least once."""
        expected, certain = self._in_one_pass(tensor, self.batch.tokens(self._seen(part, tensor.access == "routed")))
        uses = part.count
        if tensor.shared:
            uses = 0 if tensor.id in self.shared else 1
            self.shared.add(tensor.id)
        return part.count * passes * expected, uses * passes * certain

    def _in_one_pass(self, tensor: Tensor, tokens: Value) -> Amounts:
        if tensor.access == "rows":
            rows = tokens * self.scheme.format_of(tensor.role, tensor.shape).stored_bytes(tensor.shape[1:])
            return rows, rows
        if tensor.access == "whole":
            whole = self.scheme.stored_bytes(tensor.role, tensor.shape, tensor.copies)
            return whole, whole
        each = self.scheme.stored_bytes(tensor.role, tensor.shape)
        return each * distinct_experts(tensor.copies, tensor.used, tokens), each * tensor.used

    def _cached(self, part: Part, product: Product, name: str) -> Amounts:
        """Bytes of a cache entry that a layer reads, and writes if it is its own; and those that were there before."""
        entry, members = self.entries[name], self.batch.of(part)
        positions = self.batch.read(product, entry, members)
        if name.startswith(f"/{part.path}."):
            positions = positions + self.batch.written(entry.rule, members)
        earlier = self.batch.earlier(product, entry, members) if self.stored.offloaded_cache else 0
        return self._cache_bytes(part, entry, positions), self._cache_bytes(part, entry, earlier)

    def _cache_bytes(self, part: Part, entry: CacheEntry, positions: Value) -> Value:
        """Bytes in all layers of a part, of which decode context parallelism gives each rank its share."""
        total = part.count * (positions * position_bytes(entry, self.stored.kv, self.model.activations))
        dcp = self.stored.dcp if entry.rule.unbounded else 1
        return total if dcp == 1 else total / dcp

    def _format(self, names: Sequence[str]) -> str:
        """What the device multiplies in: as the first tensor named is stored, or else the activations are."""
        tensors = [self.tensors[name] for name in names if name in self.tensors]
        return self.formats[compute_basis(self.scheme, tensors[0], self.model) if tensors else self.model.activations]


def _total(amounts: list[Amounts]) -> Amounts:
    return sum(all for all, _ in amounts), sum(least for _, least in amounts)


def distinct_experts(copies: Value, used: Value, tokens: Value) -> Value:
    """Experts that some of `tokens` tokens chose, where each chooses `used` of `copies` evenly: the expected number.

    >>> distinct_experts(256, 8, 1), distinct_experts(256, 8, 10**6)
    (8, 256.0)
    """
    return maximum(used, copies * (1.0 - (1.0 - used / copies) ** tokens))


def compute_basis(scheme: Scheme, tensor: Tensor, model: Architecture) -> str:
    """The format by which a device chooses how to multiply a tensor; a published average of formats is weight-only."""
    stored = scheme.format_of(tensor.role, tensor.shape).name
    return stored if stored in formats() else model.activations


def compute_bases(plan: Plan) -> tuple[str, ...]:
    """The formats by which a device chooses how to multiply the plan's tensors; the activations' own comes first."""
    return _bases(plan.model, plan.weights)


@functools.lru_cache(maxsize=256)
def _bases(model: Architecture, weights: str) -> tuple[str, ...]:
    tensors = (tensor for part in model.parts() for tensor in part.bill.tensors)
    found = [compute_basis(weight_format(weights), tensor, model) for tensor in tensors]
    for name in found:  # a rank's share of a row may be no whole blocks
        if (other := formats()[name].fallback) is not None and other not in found:
            found.append(other)
    return tuple(dict.fromkeys([model.activations, *found]))


def unpacked(plan: Plan, rank: Rank) -> dict[str, str]:
    """Stored format -> compute format, of the weights that the device unpacks to 16 bits to multiply them."""
    scheme, found = weight_format(plan.weights), {}
    for part in rank.parts:
        for tensor in part.bill.tensors:
            stored = scheme.format_of(tensor.role, tensor.shape).name
            computed = plan.device.compute_format(compute_basis(scheme, tensor, plan.model))
            if computed in ("bf16", "fp16") and stored not in ("bf16", "fp16", "fp32"):
                found[stored] = computed
    return found


def full_name(part: Part, id: str) -> str:
    """The name of an entry among all of a decoder, with a leading slash."""
    return id if id.startswith("/") else f"/{part.path}.{id}"


def _by_label(model: Architecture, part: Part, id: str) -> str:
    """The name by which other layers know a cache entry: their label in the place of their index."""
    if not part.path.startswith("layers["):
        return full_name(part, id)
    index, _, rest = part.path.removeprefix("layers[").partition("]")
    label = model.layers[int(index)].label
    return full_name(part, id) if label is None else f"/{label}{rest}.{id}"
