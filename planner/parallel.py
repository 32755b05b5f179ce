"""Parallel layouts: what one rank stores, multiplies and keeps; `planner.collectives` says what ranks tell each other.

A replica is a pipeline of `pp` stages, each a group of `tp` ranks; there are `dp` replicas. A rank's share of a stage
is a bill like any other: every entry is divided on the side that its `shard` names, so all folds work on a rank as they
work on a decoder. The rules are those of Megatron-LM (Shoeybi et al. 2019, section 3), as serving engines keep them:
columns, then rows, then one all-reduce; key-value heads that are fewer than the ranks are replicated; a latent has no
heads and is whole on every rank.

B and C of a state-space mixer with fewer groups than ranks are replicated by engines; here they count as divided.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from planner.arithmetic import ceil_div, exact_div, is_symbolic
from planner.bill import Bill, CacheEntry, Operation, Part, Product, Tensor
from planner.collectives import Collective, collectives
from planner.contract import Architecture
from planner.errors import UsageError
from planner.spec import Count, Spec, spec


@spec
class Layout(Spec):
    """How a decoder lies on accelerators: `tp` x `pp` of them make a replica, and there are `dp` replicas.

    `attention_dp` groups inside the `tp` ranks each run the mixers of their own sequences (SGLang's DP attention;
    vLLM's data parallelism with expert parallelism is ``tp = attention_dp = ep`` here). `ep` ranks share the experts
    out whole, and what is left of `tp` divides each expert. With both, each group runs the whole decoder on its
    sequences but for the routed experts, to which tokens are sent (DeepSeek-AI 2024, DeepSeek-V3, section 3.4). `dcp`
    ranks that would hold the same key-value heads share the cached positions out instead (decode context parallelism).
    `stage_layers` says how many layers each stage has.
    """

    tp: Count = 1
    pp: Count = 1
    dp: Count = 1
    attention_dp: Count = 1
    ep: Count = 1
    dcp: Count = 1
    stage_layers: tuple[Count, ...] | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.tp % self.attention_dp == 0, "attention_dp = {attention_dp} does not divide tp = {tp}"
        yield self.tp % self.ep == 0, "ep = {ep} does not divide tp = {tp}, the ranks that share the experts"
        yield self.attention_tp % self.dcp == 0, "dcp = {dcp} does not divide tp / attention_dp = {attention_tp}"
        if self.stage_layers is not None:
            yield len(self.stage_layers) == self.pp, "stage_layers = {stage_layers} does not list pp = {pp} stages"

    @property
    def accelerators(self) -> int:
        """Accelerators of all replicas."""
        return self.tp * self.pp * self.dp

    @property
    def attention_tp(self) -> int:
        """Ranks that divide the heads of one mixer."""
        return self.tp // self.attention_dp

    @property
    def dispatches(self) -> bool:
        """Whether tokens stay with their group of ranks and are sent to the routed experts that they choose."""
        return self.attention_dp > 1 and self.ep > 1

    def group_of(self, path: str) -> int:
        """Ranks that divide what a part has, routed experts apart."""
        return self.attention_tp if self.dispatches or path.endswith(".mixer") else self.tp

    @property
    def sequence_groups(self) -> int:
        """Groups of ranks among which the sequences are shared out."""
        return self.dp * self.attention_dp

    def __str__(self) -> str:
        shown = [f"{name}{getattr(self, name)}" for name in ("tp", "pp", "dp")]
        shown += [f"{name}{getattr(self, name)}" for name in ("attention_dp", "ep", "dcp") if getattr(self, name) > 1]
        return " ".join(shown)


@dataclass(frozen=True, slots=True, eq=False)
class Rank:
    """One rank of a stage; all ranks of a stage have equal shares. Two are the same only if they are one object.

    `parts` is its bill, one and the same for stages between the first and the last that have equal layers. Its mixers
    see the sequences of one of the `sequence_groups`; every other part sees those of the whole replica.
    """

    stage: int
    layers: tuple[int, int]
    parts: tuple[Part, ...]
    collectives: tuple[Collective, ...]

    @property
    def name(self) -> str:
        """The stage in words, as answers name the rank that binds."""
        first, last = self.layers
        return f"stage {self.stage} (layers {first}-{last})"


def ranks(model: Architecture, layout: Layout) -> tuple[Rank, ...]:
    """One rank for each pipeline stage, of a contract that holds numbers.

    Raises `UsageError` with the rule that the layout breaks.

    >>> import planner
    >>> rank, = ranks(planner.load("qwen3-235b-a22b"), Layout(tp=8))
    >>> [entry.heads for part in rank.parts for entry in part.bill.cache]  # 4 key-value heads on 8 ranks
    [1, 1]
    """
    return _ranks(model, layout if layout.dp == 1 else replace(layout, dp=1))  # replicas are all alike


@functools.lru_cache(maxsize=1024)
def _ranks(model: Architecture, layout: Layout) -> tuple[Rank, ...]:
    if layout.ep > 1 and not has_experts(model):
        raise UsageError(f"ep = {layout.ep}: {model.name} has no routed experts to share out; take ep = 1")
    if layout.pp == 1 and layout.stage_layers is None:  # counts of layers may be words
        parts = tuple(_divided(part, layout) for part in model.parts())
        return (Rank(0, (0, model.n_layers - 1), parts, tuple(collectives(model, layout, 0, parts))),)
    sizes = stage_layers(model, layout)
    if layout.pp > 1 and any(getattr(layer.mixer, "kv_source", None) for layer in model.layers):
        raise UsageError(f"pp = {layout.pp}: layers that read another layer's cache stay on its stage; take pp = 1")
    indices, found, begin, between = list(model.indices()), [], 0, dict[Any, tuple[Part, ...]]()
    for stage, size in enumerate(sizes):
        kinds = Counter(indices[begin : begin + size])
        alike = frozenset(kinds.items()) if 0 < stage < layout.pp - 1 else stage
        parts = between.get(alike) or tuple(_divided(p, layout) for p in _of_stage(model, layout, stage, kinds))
        exchanged = tuple(collectives(model, layout, stage, parts))
        found.append(Rank(stage, (begin, begin + size - 1), parts, exchanged))
        between[alike], begin = parts, begin + size
    return tuple(found)


def stage_layers(model: Architecture, layout: Layout) -> tuple[int, ...]:
    """Layers of each stage: those stated, else equal shares, what is left over going to the stages before the last.

    That is vLLM's rule (vllm/distributed/utils.py, get_pp_indices): the last stage has the output matrix already.
    """
    if layout.stage_layers is not None:
        if sum(layout.stage_layers) != model.n_layers:
            raise UsageError(f"stage_layers has {sum(layout.stage_layers)} layers; {model.name} has {model.n_layers}")
        return layout.stage_layers
    if layout.pp > model.n_layers:
        raise UsageError(f"pp = {layout.pp} stages exceed the {model.n_layers} layers of {model.name}")
    each, left = divmod(model.n_layers, layout.pp)
    sizes = [each] * layout.pp
    for place in range(left):
        sizes[-2 - place] += 1  # left < pp, so the first stage is reached at most once
    return tuple(sizes)


@functools.lru_cache(maxsize=256)
def has_experts(model: Architecture) -> bool:
    """Whether a decoder has routed experts."""
    return any(tensor.access == "routed" for part in model.parts() for tensor in part.bill.tensors)


@functools.lru_cache(maxsize=256)
def legal_layouts(model: Architecture, accelerators: int) -> tuple[tuple[Layout, str], ...]:
    """Every layout of that many accelerators worth trying, with the rule that it breaks, or an empty text.

    Experts are kept whole on a rank or divided, and with whole experts the mixers may work on sequences of their own.
    """
    return tuple(_tried(model, accelerators))


def widest_layout(model: Architecture, accelerators: int, domain: int) -> Layout:
    """The legal layout of most tensor-parallel ranks in a domain or machine; the other accelerators replicate.

    >>> import planner
    >>> str(widest_layout(planner.load("llama-3.1-8b"), 24, 8))
    'tp8 pp1 dp3'
    """
    for tp in range(min(domain, accelerators), 1, -1):
        if accelerators % tp == 0:
            layout = Layout(tp=tp, dp=accelerators // tp)
            try:
                ranks(model, layout)
            except UsageError:
                continue
            return layout
    return Layout(dp=accelerators)


def _tried(model: Architecture, accelerators: int) -> Iterator[tuple[Layout, str]]:
    routed = has_experts(model)
    for tp in _divisors(accelerators):
        for pp in _divisors(accelerators // tp):
            dp = accelerators // tp // pp
            choices = [(1, 1)] if tp == 1 or not routed else [(1, 1), (1, tp), (tp, tp)]
            for attention_dp, ep in choices:
                layout = Layout(tp=tp, pp=pp, dp=dp, attention_dp=attention_dp, ep=ep)
                try:
                    ranks(model, layout)
                except UsageError as error:
                    yield layout, str(error)
                else:
                    yield layout, ""


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _of_stage(model: Architecture, layout: Layout, stage: int, kinds: Counter[int]) -> Iterator[Part]:
    """The undivided parts of a stage: embedding on the first, everything behind the layers on the last."""
    last = stage == layout.pp - 1
    for part in model.parts():
        if part.path.startswith("layers["):
            index = int(part.path[len("layers[") : part.path.index("]")])
            if kinds[index]:
                yield replace(part, count=part.count * kinds[index] // model.layers[index].count)
        elif part.path == "embedding":
            if stage == 0:
                yield part if last else _looked_up(part)
            elif last and model.output.tied:  # the output matrix is the table, which is far away
                yield replace(part, bill=Bill(tuple(t for t in part.bill.tensors if t.id == "tokens.weight")))
        elif last:
            yield part


def _looked_up(part: Part) -> Part:
    """The embedding without the output matrix beside it: a tied table, too, is only looked up there."""
    tables = (replace(t, access="rows") if t.id == "tokens.weight" else t for t in part.bill.tensors)
    return replace(part, bill=replace(part.bill, tensors=tuple(tables)))


def _divided(part: Part, layout: Layout) -> Part:
    bill, share = part.bill, _Share(part, layout)
    return replace(
        part,
        bill=Bill(
            tuple(map(share.tensor, bill.tensors)),
            tuple(map(share.product, bill.products)),
            tuple(map(share.entry, bill.cache)),
            tuple(map(share.operation, bill.operations)),
        ),
    )


class _Share:
    """One rank's share of the entries of a part."""

    def __init__(self, part: Part, layout: Layout) -> None:
        self.path, self.layout = part.path, layout
        self.group = layout.group_of(part.path)
        self.kv_ways = self._kv_ways(part.bill)
        for heads in self._heads(part.bill):
            self._exact(heads, self.group, "heads")

    def tensor(self, tensor: Tensor) -> Tensor:
        shape, copies = list(tensor.shape), tensor.copies
        group, used = self.group, tensor.used
        if tensor.access == "routed":
            copies, group = self._exact(copies, self.layout.ep, "experts"), self.layout.tp // self.layout.ep
            used = _part_of(used, self.layout.ep)  # on average; busy ranks have more
        match tensor.shard:
            case "column" | "heads":
                shape[0] = self._exact(shape[0], group, f"rows of {tensor.id}")
            case "kv_heads":
                shape[0] = self._exact(shape[0], self.kv_ways, f"rows of {tensor.id}")
            case "row" if len(shape) > 1:  # the bias of divided rows is added once and stored whole
                shape[-1] = self._exact(shape[-1], group, f"columns of {tensor.id}")
            case "vocabulary":
                shape[0] = ceil_div(shape[0], group)
        return replace(tensor, shape=tuple(shape), copies=copies, used=used)

    def product(self, product: Product) -> Product:
        ways = self.layout.tp if product.component == "experts_routed" else self._ways(product.shard)
        return replace(product, macs=_part_of(product.macs, ways))

    def operation(self, operation: Operation) -> Operation:
        return replace(operation, elements=_part_of(operation.elements, self._ways(operation.shard)))

    def entry(self, entry: CacheEntry) -> CacheEntry:
        return replace(entry, heads=self._exact(entry.heads, self._ways(entry.shard), f"heads of {entry.id}"))

    def _ways(self, shard: str) -> int:
        return {"replicated": 1, "kv_heads": self.kv_ways}.get(shard, self.group)

    def _kv_ways(self, bill: Bill) -> int:
        """Ranks among which the key-value heads are divided; each further rank holds a copy."""
        ways = self.group
        if ways == 1:
            return 1
        for heads in {entry.heads for entry in bill.cache if entry.shard == "kv_heads"}:
            if heads % self.group and self.group % heads:
                raise UsageError(
                    f"{self.path}: {heads} key-value heads neither divide nor are divided by {self.group} ranks"
                )
            ways = min(ways, heads)
        copies = self.group // ways if any(e.shard == "kv_heads" for e in bill.cache) else self.group
        if bill.cache and copies % self.layout.dcp:
            raise UsageError(
                f"{self.path}: dcp = {self.layout.dcp} does not divide the {copies} ranks that hold the same heads"
            )
        return ways

    def _heads(self, bill: Bill) -> set[Any]:
        """Heads that must be divisible: those of scores and of states."""
        scores = {operation.elements for operation in bill.operations if operation.shard == "heads"}
        return scores | {entry.heads for entry in bill.cache if entry.shard == "heads"}

    def _exact(self, count: Any, ways: int, what: str) -> Any:
        if is_symbolic(count):
            return count if ways == 1 else exact_div(count, ways)
        if count % ways:
            raise UsageError(f"{self.path}: {count:,} {what} cannot be divided over {ways} ranks; take a divisor")
        return count // ways


def _part_of(amount: Any, ways: int) -> Any:
    """An average share: whole where it divides, since counts stay ints."""
    if is_symbolic(amount):
        return amount if ways == 1 else amount / ways
    share = Fraction(amount, ways)
    return share.numerator if share.denominator == 1 else share
