"""What the ranks of a layout exchange in a pass: sums behind divided matrices, merges of shared-out attention, sends.

A sum stands behind every matrix whose rows are divided (Megatron-LM: Shoeybi et al. 2019, section 3). What each rank
sends of it, and how long that takes, is in `planner.timing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from planner.arithmetic import minimum
from planner.bill import Part
from planner.contract import Architecture

if TYPE_CHECKING:
    from planner.parallel import Layout

Kind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]


@dataclass(frozen=True, slots=True)
class Collective:
    """What ranks exchange in a pass: `elements` for each unit of `domain`, `count` times a pass, among `ranks`.

    `path` is that of the part whose sequences they are of; what stages send each other belongs to none. One with a
    `form` belongs to that way of computing latent attention only, an `own` one is among the ranks of a group and of
    its sequences.
    """

    path: str
    id: str
    kind: Kind
    ranks: int
    elements: Any
    domain: Literal["new", "emitted"]
    count: int
    form: str | None = None
    own: bool = False


def collectives(model: Architecture, layout: Layout, stage: int, parts: Sequence[Part]) -> Iterator[Collective]:
    """What the ranks of a stage with these parts exchange.

    What routed experts give is added to what shared ones give before the sum. With `attention_dp` alone a gather before
    the feed-forward and a scatter behind it move what the sum would; where tokens are dispatched, each goes to the
    ranks of its experts and comes back.
    """
    for part in (part for part in parts if part.module == "body"):
        ways, own = layout.group_of(part.path), layout.dispatches or part.path.endswith(".mixer")
        if ways > 1:
            yield from _sums(part, ways, own)
        if layout.dispatches:
            yield from _dispatches(part, layout)
        if layout.dcp > 1:
            yield from _merges(part, layout.dcp)
        if part.path == "embedding" and stage == 0 and ways > 1:
            yield Collective(part.path, "sum", "all_reduce", ways, model.d_model, "new", 1, own=own)
        if part.path == "output" and ways > 1:
            yield Collective(part.path, "gather", "all_gather", ways, model.vocab_size, "emitted", 1, own=own)
    if stage < layout.pp - 1:
        yield Collective("", "send", "send", 2, model.d_model, "new", 1)


def _sums(part: Part, ways: int, own: bool) -> Iterator[Collective]:
    rows = [product for product in part.bill.products if product.shard == "row"]
    outputs = {tensor.id: tensor.shape[0] for tensor in part.bill.tensors}
    joined = any(product.component == "experts_shared" for product in rows)
    for product in rows:
        if not (joined and product.component == "experts_routed"):
            width = outputs[product.reads[0]]
            yield Collective(part.path, f"{product.id}.sum", "all_reduce", ways, width, "new", part.count, own=own)


def _dispatches(part: Part, layout: Layout) -> Iterator[Collective]:
    """Tokens on their way to the experts and back: one copy for each of them, and no more than one for each rank."""
    for product in part.bill.products:
        if product.component == "experts_routed" and product.shard == "row":
            tensor = next(tensor for tensor in part.bill.tensors if tensor.id == product.reads[0])
            elements = minimum(1, tensor.used) * tensor.shape[0]
            for id in ("dispatch", "combine"):
                yield Collective(part.path, id, "all_to_all", layout.tp, elements, "new", part.count)


def _merges(part: Part, dcp: int) -> Iterator[Collective]:
    """Attention on positions that ranks share out: queries of all are gathered, partial outputs summed and scattered.

    A query is as wide as its scores take multiply-adds for each pair, an output as the values do. Latent attention
    exchanges where it works on the latent; a prompt whose heads are expanded is at hand on every rank.
    """
    for product in part.bill.products:
        cores = product.domain == "pairs" and product.shard == "heads" and product.form in (None, "absorbed")
        if cores and product.rule.unbounded:
            kind: Kind = "reduce_scatter" if product.id.endswith("values") else "all_gather"
            elements = dcp * product.macs
            yield Collective(part.path, product.id, kind, dcp, elements, "new", part.count, product.form, own=True)
