"""What one rank holds, term by term: the ladder from stored weights up to what an engine keeps for itself.

*Needed* terms are counted from the contract, the load and the layout; *reserved* ones are what an engine withholds from
the device. Weights and cache stay; logits and working memory live for one pass, and the largest pass is counted. Bytes
are those of the tensors: blocks and other roundings of an engine are not part of the ladder.

All arithmetic is generic: context, sequences and assumptions may be ints (and bytes are exact ints), words or columns.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from planner import accounts, folds
from planner.arithmetic import ceil_div, floor_div, maximum, minimum
from planner.bill import Part
from planner.contract import Architecture
from planner.errors import UsageError
from planner.parallel import Rank, ranks
from planner.plan import Plan
from planner.rules import Causal
from planner.sources import load
from planner.storage import cache_format, weight_format
from planner.textbook.memory_traffic import logits_bytes


@dataclass(frozen=True, slots=True)
class Term:
    """A kind of rung: whether it is needed or reserved, its formula in words, and figures that may be assumed."""

    kind: Literal["needed", "reserved"]
    formula: str
    rests_on: tuple[str, ...] = ()


TERMS = {
    "weights": Term("needed", "the rank's share of every tensor, stored in the weight format with its scales"),
    "mtp layers": Term("needed", "tensors and cache of the multi-token-prediction layers", ("context", "sequences")),
    "draft model": Term("needed", "tensors and cache of the draft model on the same ranks", ("context", "sequences")),
    "adapters": Term("needed", "adapters x rank x (rows + columns) of every matrix of the layers, in 16 bits"),
    "other": Term("needed", "what the plan says that something else holds"),
    "kv cache": Term(
        "needed",
        "positions that each layer keeps x stored bytes of a position, for the sequences of the rank",
        ("context", "sequences"),
    ),
    "logits": Term("needed", "sequences x vocabulary x bytes of a logit, gathered", ("sequences", "logits_elem_bytes")),
    "working memory": Term("needed", "new positions of a pass x widest branch of a layer", ("prefill_tokens",)),
    "reserve": Term("reserved", "reserve_bytes", ("reserve_bytes",)),
    "outside the fraction": Term("reserved", "(1 - memory_fraction) x usable memory", ("memory_fraction",)),
}
"""Every term by name, in the order in which a ladder shows them."""


def rank_terms(plan: Plan, rank: Rank) -> dict[str, Any]:
    """Needed term -> bytes of one rank; terms that the plan does not have are left out.

    >>> from planner.plan import make_plan
    >>> plan = make_plan("deepseek-v3", tp=8, context=1000, sequences=2)
    >>> rank_terms(plan, *ranks(plan.model, plan.layout))["kv cache"]  # a latent is whole on each of the eight
    140544000
    """
    holders, last = plan.holders, rank.stage == plan.layout.pp - 1
    terms = {"weights": _left(_weights(plan, rank), holders.offloaded_weights)}
    if holders.mtp and last and plan.model.mtp is not None:
        module = ("mtp",)
        stored = accounts.stored_bytes(rank.parts, weight_format(plan.weights), module)
        terms["mtp layers"] = stored + _cache(plan, rank, plan.model, module)
    if holders.draft is not None and last:
        terms["draft model"] = _draft(plan, holders.draft)
    if holders.adapters:
        width = cache_format(plan.model.activations).bytes_per_position(1, 1)
        terms["adapters"] = holders.adapters * holders.adapter_rank * width * _sides(rank.parts)
    if holders.other_bytes:
        terms["other"] = holders.other_bytes
    terms["kv cache"] = _left(_cache(plan, rank, plan.model), holders.offloaded_cache)
    if last:
        terms["logits"] = logits_bytes(_emitted(plan), 1, plan.model.vocab_size, plan.assume("logits_elem_bytes"))
    terms["working memory"] = _working(plan, rank)
    return terms


def reserved_terms(plan: Plan) -> dict[str, Any]:
    """Reserved term -> bytes of one device. Raises `UsageError` where the plan names no accelerator."""
    outside = plan.device.memory_bytes - budget_bytes(plan)
    return {"reserve": plan.assume("reserve_bytes"), "outside the fraction": outside}


def budget_bytes(plan: Plan) -> Any:
    """Usable memory x memory_fraction in whole bytes: what the engine plans with."""
    return floor_div(plan.device.memory_bytes * _exact(plan.assume("memory_fraction")), 1)


def needed(plan: Plan) -> list[Any]:
    """The bytes that each rank needs, those of stages that are alike once."""
    differing = {id(rank.parts): rank for rank in ranks(plan.model, plan.layout)}
    return [sum(rank_terms(plan, rank).values()) for rank in differing.values()]


def room_bytes(plan: Plan) -> Any:
    """Bytes of a device that the needed terms may fill."""
    return plan.device.memory_bytes - sum(reserved_terms(plan).values())


def groups(plan: Plan) -> list[list[int]]:
    """The ragged lengths of each group of ranks."""
    return plan.dealt(plan.layout.sequence_groups)


def worst_group(plan: Plan, rank: Rank) -> int:
    """The place of the group of ragged lengths whose cache is the largest on a rank."""
    sizes = [_cache_of(plan, rank, plan.model, Counter(group)) for group in groups(plan)]
    return sizes.index(max(sizes))


def _weights(plan: Plan, rank: Rank) -> Any:
    """A contract that states its parameter count: that many elements, in equal shares."""
    model, layout = plan.model, plan.layout
    if model.stated_parameters is None:
        return _stored_bytes(rank, plan.weights)
    share = ceil_div(model.stated_parameters, layout.tp * layout.pp)
    return accounts.weight_bytes(replace(model, stated_parameters=share), plan.weights)


@functools.lru_cache(maxsize=1024)
def _stored_bytes(rank: Rank, weights: str) -> Any:
    """The same whatever the load and the device, of which a search tries many."""
    return accounts.stored_bytes(rank.parts, weight_format(weights))


def _draft(plan: Plan, name: str) -> Any:
    """Weights, in the draft's own format, and cache of a draft model that is divided like the target's last stage."""
    draft = load(name)
    try:
        (rank,) = ranks(draft, replace(plan.layout, pp=1, stage_layers=None))
    except UsageError as error:
        raise UsageError(f"draft = {name}: {error}") from None
    return accounts.stored_bytes(rank.parts, weight_format(draft.weights)) + _cache(plan, rank, draft)


def _sides(parts: Sequence[Part]) -> Any:
    """Rows + columns of every matrix of the layers, as PEFT's ``all-linear`` has adapters beside each of them."""
    return sum(
        count * tensor.copies * sum(tensor.shape)
        for part, count, tensor in folds.tensors(parts)
        if part.path.startswith("layers[") and len(tensor.shape) == 2 and tensor.access != "rows"
    )


def _cache(plan: Plan, rank: Rank, model: Architecture, modules: tuple[str, ...] = ("body",)) -> Any:
    """Cache bytes of the sequences of a rank: of the worst group, where lengths are ragged."""
    if plan.workload.lengths is not None:
        return max(_cache_of(plan, rank, model, Counter(group), modules) for group in groups(plan))
    each = largest_share(plan.sequences, plan.layout.sequence_groups)
    return _cache_of(plan, rank, model, {plan.context: each}, modules)


def _cache_of(plan: Plan, rank: Rank, model: Architecture, load: Any, modules: tuple[str, ...] = ("body",)) -> Any:
    """Cache bytes of so many sequences of each length; the positions of a shared prefix lie there once.

    Decode-context ranks share out the positions of entries that grow with the sequence, rounded up.
    """
    prefix, total = plan.holders.shared_prefix, 0
    for rule, bytes_per_position in _kept(rank, plan.kv, model.activations, modules):
        ways = plan.layout.dcp if rule.unbounded else 1
        positions = largest_share(rule.kept(prefix), ways) if prefix else 0
        for length, sequences in load.items():
            positions = positions + plan.holders.beams * sequences * largest_share(_own(rule, length, prefix), ways)
        total = total + positions * bytes_per_position
    return total


@functools.lru_cache(maxsize=1024)
def _kept(rank: Rank, kv: str, activations: str, modules: tuple[str, ...]) -> list[tuple[Causal, Any]]:
    """(rule, bytes of a position in all layers) of every cache entry."""
    return [
        (entry.rule, count * accounts.position_bytes(entry, kv, activations))
        for count, entry in folds.cache(rank.parts, modules)
    ]


def _own(rule: Causal, length: Any, prefix: Any) -> Any:
    """Positions that a sequence keeps for itself behind a shared prefix.

    A window keeps its last positions, so those behind the prefix come first; a state is each sequence's own.
    """
    kept = rule.kept(length)
    if not prefix or rule.growth is None:
        return kept
    return kept - rule.kept(prefix) if rule.limit is None else minimum(kept, length - prefix)


def _emitted(plan: Plan) -> Any:
    """Positions whose logits a replica computes in one step: one for each of its sequences."""
    layout = plan.layout
    if plan.workload.lengths is None:
        return plan.holders.beams * largest_share(plan.sequences, layout.dp)
    counts, each = [len(group) for group in groups(plan)], layout.attention_dp
    return plan.holders.beams * max(sum(counts[at : at + each]) for at in range(0, len(counts), each))


def _working(plan: Plan, rank: Rank) -> Any:
    """Activations of the widest branch of a layer, for the new positions of the largest pass.

    The rule: all outputs of the branch's matrices on the rank are alive at once (of routed experts, those that a token
    uses), beside the residual stream and its normed copy. That is the list of activations of one layer in Korthikanti
    et al. 2022, section 4, without what a backward pass keeps and with the scores left to a tiled kernel: more than a
    lean kernel needs, and less than what a profiling run with spare buffers reports.
    """
    tokens = plan.assume("prefill_tokens")
    if plan.workload.chunk is not None:
        tokens = maximum(tokens, plan.workload.chunk)
    widest: Any = 0
    for path, outputs, routed in _branches(rank):
        grouped = plan.layout.dispatches or path.endswith(".mixer")
        own = largest_share(tokens, plan.layout.attention_dp) if grouped else tokens
        widest = maximum(widest, own * (outputs + 2 * plan.model.d_model) + tokens * routed)
    return widest * cache_format(plan.model.activations).bytes_per_position(1, 1)


@functools.lru_cache(maxsize=1024)
def _branches(rank: Rank) -> list[tuple[str, int, int]]:
    """The parts of layers with the outputs that their matrices give for one position, those of routed experts apart."""
    found = []
    for part in rank.parts:
        if part.path.startswith("layers["):
            matrices = (t for t in part.bill.tensors if len(t.shape) == 2 and t.access != "rows")
            outputs = {True: 0, False: 0}
            for t in matrices:
                outputs[t.access == "routed"] += t.shape[0] * (t.copies if t.used is None else t.used)
            found.append((part.path, ceil_div(outputs[False], 1), ceil_div(outputs[True], 1)))
    return found


def largest_share(count: Any, ways: int) -> Any:
    """The largest of so many whole shares."""
    return count if ways == 1 else ceil_div(count, ways)


def _left(amount: Any, share: Any) -> Any:
    """What remains on the device of an amount of which a share lies elsewhere."""
    return amount if isinstance(share, float) and share == 0 else ceil_div(amount * (1 - _exact(share)), 1)


def _exact(share: Any) -> Any:
    """A share as it was written: 0.9 is nine tenths and not the float beside it."""
    return Fraction(str(share)) if isinstance(share, float) else share
