"""The bill of a decoder: what it stores, multiplies, caches and otherwise does; and a pass over it.

A component declares a `Bill` in generic arithmetic (ints, NumPy columns or symbols). A decoder is a tuple of `Part`s,
each a bill with its place and the number of layers that have it. Everything the planner says is a fold over parts, see
`planner.folds`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from planner.errors import UsageError
from planner.rules import CAUSAL, Causal, Packed, Prefix

Access = Literal["whole", "rows", "routed"]
Shard = Literal["replicated", "column", "row", "vocabulary", "heads", "kv_heads"]
"""What tensor-parallel ranks divide: outputs (`column`), outputs by whole heads (`heads`; `kv_heads`, of which ranks
hold copies where they are more), inputs (`row`, behind which they sum), entries (`vocabulary`), or nothing.
"""
Domain = Literal["new", "emitted", "cached", "entries", "pass", "pairs"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array that a checkpoint stores.

    `role` says what it is (a bias is a bias wherever it stands), `component` what it belongs to. `copies` equal arrays
    stand under one id (experts), of which one token uses `used`. A shared tensor has one id for the whole decoder and
    is stored once however many layers use it.
    """

    id: str
    shape: tuple[Any, ...]
    role: str
    component: str
    copies: Any = 1
    used: Any = None
    access: Access = "whole"
    counts: Literal["parameter", "buffer"] = "parameter"
    shard: Shard = "replicated"
    shared: bool = False

    @property
    def each(self) -> Any:
        """Elements of one copy."""
        n = 1
        for side in self.shape:
            n = n * side
        return n

    @property
    def size(self) -> Any:
        """Elements of all copies."""
        return self.each * self.copies

    @property
    def active(self) -> Any:
        """Elements that one token uses: `used` of the copies."""
        return self.each * (self.copies if self.used is None else self.used)


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product: multiply-adds for each unit of its domain.

    Domains: ``new`` positions, ``emitted`` positions (those whose logits are computed), ``cached`` positions (all that
    are at hand in the pass), ``entries`` (those that its rule adds to the cache in the pass), once a ``pass``, or the
    query-key ``pairs`` of its rule. `reads` names the tensors and cache entries of the same part, or with a leading
    slash of another one. A product with a `form` belongs to that way of computing latent attention only.
    """

    id: str
    macs: Any
    domain: Domain
    component: str
    reads: tuple[str, ...] = ()
    rule: Causal = CAUSAL
    form: str | None = None
    shard: Shard = "replicated"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """What a layer keeps between passes: `heads` x `width` elements for each position that its rule keeps.

    `format` fixes the element format whatever cache format is chosen (a float32 state); ``model`` is that of the
    activations, which engines keep for states when they quantise the attention cache.
    """

    id: str
    heads: Any
    width: Any
    rule: Causal = CAUSAL
    format: str | None = None
    shard: Shard = "replicated"

    @property
    def elements(self) -> Any:
        """Elements of one position."""
        return self.heads * self.width

    def stored_in(self, kv: str, activations: str) -> str:
        """Its element format where the attention cache has the format `kv` and the model computes in `activations`."""
        return {None: kv, "model": activations}.get(self.format) or str(self.format)


@dataclass(frozen=True, slots=True)
class Operation:
    """Element-wise or scan work that is no matrix product: counted in elements, reported on its own."""

    id: str
    elements: Any
    domain: Domain
    rule: Causal = CAUSAL
    shard: Shard = "replicated"


Entry = Tensor | Product | CacheEntry | Operation


@dataclass(frozen=True, slots=True)
class Bill:
    """The four lists of a component."""

    tensors: tuple[Tensor, ...] = ()
    products: tuple[Product, ...] = ()
    cache: tuple[CacheEntry, ...] = ()
    operations: tuple[Operation, ...] = ()

    @classmethod
    def of(cls, *items: Bill | Entry | None) -> Bill:
        """A bill of entries and of other bills, in that order; None is left out."""
        lists: dict[type, list[Any]] = {Tensor: [], Product: [], CacheEntry: [], Operation: []}
        for item in items:
            if isinstance(item, Bill):
                for kind, entries in zip(
                    lists, (item.tensors, item.products, item.cache, item.operations), strict=True
                ):
                    lists[kind] += entries
            elif item is not None:
                lists[type(item)].append(item)
        return cls(*map(tuple, lists.values()))

    def under(self, prefix: str) -> Bill:
        """The same bill with every id below a prefix: two mixers side by side, a shared expert."""

        def place(id: str) -> str:
            return id if id[:1] == "/" else f"{prefix}.{id}"

        def moved(entries: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(replace(entry, id=place(entry.id)) for entry in entries)

        products = (replace(p, reads=tuple(map(place, p.reads))) for p in self.products)
        return Bill(moved(self.tensors), moved(products), moved(self.cache), moved(self.operations))

    def shared(self, block: str) -> Bill:
        """The same bill with its tensors stored once for all layers that use the block of that name.

        Products run and caches are kept at each use.
        """
        own = {t.id: f"/{block}/{t.id}" for t in self.tensors}
        once = tuple(replace(t, id=own[t.id], shared=True) for t in self.tensors)
        products = tuple(replace(p, reads=tuple(own.get(r, r) for r in p.reads)) for p in self.products)
        return replace(self, tensors=once, products=products)


@dataclass(frozen=True, slots=True)
class Part:
    """A bill, where it stands in the contract, how many layers have it, and which module it belongs to."""

    path: str
    count: Any
    bill: Bill
    module: str = "body"


def linear(
    id: str,
    n_in: Any,
    n_out: Any,
    component: str,
    *,
    bias: bool = False,
    copies: Any = 1,
    used: Any = None,
    domain: Domain = "new",
    shard: Shard = "replicated",
    bias_role: str = "biases",
    form: str | None = None,
) -> Bill:
    """A matrix [n_out, n_in], its bias [n_out] and its product: what almost every line of a decoder is."""
    access: Access = "whole" if used is None else "routed"
    weight = Tensor(f"{id}.weight", (n_out, n_in), component, component, copies, used, access, shard=shard)
    offset = Tensor(f"{id}.bias", (n_out,), bias_role, component, copies, used, access, shard=shard) if bias else None
    macs = n_in * n_out * (copies if used is None else used)
    return Bill.of(weight, offset, Product(id, macs, domain, component, (weight.id,), form=form, shard=shard))


def check_number(name: str, value: Any, things: str) -> None:
    """Refuse with `UsageError` what is no number of things, 0 or more; columns, words and symbols pass."""
    if isinstance(value, (bool, str)) or value is None or (isinstance(value, (int, float)) and not value >= 0):
        raise UsageError(f"{name} = {value!r:.60} is not a number of {things}, 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward pass of one sequence: `past` positions are cached, `new` are processed, `emitted` give logits.

    `attention` is ``causal`` (the pairs that the rule allows) or ``square`` (what a dense kernel computes); `mla` is
    the form of latent attention: ``expanded`` (heads cached or just computed), ``absorbed`` (on the latent) or
    ``reexpanded`` (latent cached, up-projected for all cached positions in every pass). A bidirectional `prefix` and
    packed `documents` (their lengths) change the pairs. T decode steps after P positions are ``Pass(past=P, new=T,
    emitted=T)`` in FLOPs; bytes moved are summed step by step.
    """

    past: Any = 0
    new: Any = 1
    emitted: Any = 1
    attention: str = "causal"
    mla: str = "expanded"
    prefix: Any = None
    documents: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        choices = {"attention": ("causal", "square"), "mla": ("expanded", "absorbed", "reexpanded")}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UsageError(f"{name} = {getattr(self, name)!r:.80} is none of {', '.join(known)}")
        for name in ("past", "new", "emitted"):
            check_number(name, getattr(self, name), "positions")
        if self.documents and self.prefix is not None:
            raise UsageError("a pass has either a bidirectional prefix or packed documents, not both")

    @classmethod
    def prefill(cls, length: Any, **conventions: Any) -> Pass:
        """The pass that reads a prompt and emits the first token: the S² law."""
        return cls(past=0, new=length, emitted=1, **conventions)

    @classmethod
    def decode(cls, past: Any, steps: Any = 1, **conventions: Any) -> Pass:
        """That many steps after `past` cached positions: the TP + T² law. Latent attention works on the latent."""
        return cls(past=past, new=steps, emitted=steps, **{"mla": "absorbed", **conventions})

    def rule(self, rule: Causal) -> Causal:
        """The rule of a layer under this pass's prefix or documents."""
        if self.documents:
            return Packed(self.documents, rule)
        if self.prefix is not None:
            if rule != CAUSAL:
                raise UsageError("a bidirectional prefix is defined for plain causal layers only")
            return Prefix(self.prefix)
        return rule

    def units(self, entry: Product | Operation) -> Any:
        """How many units of its domain an entry has in this pass."""
        match entry.domain:
            case "new":
                return self.new
            case "emitted":
                return self.emitted
            case "cached":
                return entry.rule.at_hand(self.past, self.new)
            case "entries":
                return entry.rule.kept(self.past + self.new) - entry.rule.kept(self.past)
            case "pass":
                return 1
            case "pairs" if self.attention == "causal":
                return self.rule(entry.rule).pairs(self.past, self.new)
            case "pairs":
                return entry.rule.square(self.past, self.new)

    def runs(self, product: Product) -> bool:
        """Whether a product belongs to the chosen form of latent attention."""
        return product.form is None or product.form == self.mla
