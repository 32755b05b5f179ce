"""The folds: what a decoder's parts store, multiply and cache in all, or by role, component or product.

Sums over the lists of `planner.bill`, in the arithmetic that these are in: ints, NumPy columns or symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from planner.bill import CacheEntry, Part, Pass, Tensor


@dataclass(slots=True)
class Totals:
    """Sums by key, in the order in which the keys appear."""

    by: dict[str, Any] = field(default_factory=dict)

    def add(self, key: str, amount: Any) -> None:
        self.by[key] = self.by[key] + amount if key in self.by else amount

    def answer(self, split: bool) -> Any:
        """The dict, or the sum of its values."""
        return self.by if split else sum(self.by.values())


def tensors(parts: Sequence[Part], modules: Sequence[str] = ("body",)) -> Iterator[tuple[Part, Any, Tensor]]:
    """Every stored tensor with its part and how often it is stored; a shared one comes once."""
    seen = set()
    for part in parts:
        if part.module in modules:
            for tensor in part.bill.tensors:
                if not tensor.shared:
                    yield part, part.count, tensor
                elif tensor.id not in seen:
                    seen.add(tensor.id)
                    yield part, 1, tensor


def parameters(
    parts: Sequence[Part],
    *,
    active: bool = False,
    lookups: bool = True,
    buffers: bool = True,
    by: Literal["role", "component"] | None = None,
    modules: Sequence[str] = ("body",),
) -> Any:
    """Stored parameters; with `active`, those that one token uses (routed ones x k/E, everything else whole).

    Router buffers that checkpoints store are counted unless `buffers` is false; tables that are only looked up are left
    out unless `lookups`.
    """
    totals = Totals()
    for _, count, tensor in tensors(parts, modules):
        if (buffers or tensor.counts == "parameter") and (lookups or tensor.access != "rows"):
            totals.add(getattr(tensor, by) if by else "", count * (tensor.active if active else tensor.size))
    return totals.answer(by is not None)


def flops(
    parts: Sequence[Part],
    run: Pass,
    *,
    batch: Any = 1,
    by: Literal["component", "product"] | None = None,
    modules: Sequence[str] = ("body",),
) -> Any:
    """FLOPs of a pass: 2 for each multiply-add of every matrix product, for `batch` equal sequences."""
    totals = Totals()
    for part in parts:
        if part.module in modules:
            for product in part.bill.products:
                if run.runs(product):
                    key = {"component": product.component, "product": f"{part.path}.{product.id}"}.get(by or "", "")
                    totals.add(key, 2 * batch * part.count * product.macs * run.units(product))
    return totals.answer(by is not None)


def cache(parts: Sequence[Part], modules: Sequence[str] = ("body",)) -> Iterator[tuple[Any, CacheEntry]]:
    """Every cache entry with the number of layers that keep one."""
    for part in parts:
        if part.module in modules:
            yield from ((part.count, entry) for entry in part.bill.cache)


def cache_total(
    parts: Sequence[Part],
    lengths: Iterable[Any],
    size: Callable[[CacheEntry, Any], Any],
    *,
    between_passes: bool = False,
) -> Any:
    """Sum over layers and sequences of ``size(entry, positions)``: bytes, or elements.

    A window keeps min(S, w) positions during a pass and min(S, w-1) between passes.
    """
    total = 0
    for length in lengths:
        for count, entry in cache(parts):
            positions = entry.rule.held(length) if between_passes else entry.rule.kept(length)
            total = total + count * size(entry, positions)
    return total
