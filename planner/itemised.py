"""The itemised bill: a row for each tensor, matrix product, cache entry or element-wise operation of a decoder, and for
what a pass needs for its own time.

The columns are those of the lists in `planner.bill`; the sums over them are in `planner.accounts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from planner import folds, temporary
from planner.accounts import check_split, emitted, mla_form, position_bytes
from planner.bill import Part, Pass, check_number
from planner.contract import as_architecture
from planner.errors import UsageError
from planner.storage import cache_format, find

if TYPE_CHECKING:
    from pandas import DataFrame

LISTS = ("tensors", "products", "cache", "operations", "temporary")


def itemise(
    model: Any,
    *,
    of: str = "tensors",
    past: Any = 0,
    new: Any = 1,
    attention: str = "causal",
    logits: Any = "last",
    mla: str = "auto",
    kv: str | None = None,
    on_chip_bytes: Any = None,
    modules: Sequence[str] = ("body",),
) -> DataFrame:
    """One of the lists of a decoder, a row for each entry, layers of one kind together.

    ``tensors``: what a checkpoint stores. ``products`` (FLOPs) and ``operations`` (elements of work that is no matrix
    product, which no total of FLOPs includes): a pass of `new` positions after `past` cached ones, in the conventions
    of `planner.flops`. ``cache``: what one sequence of past + new positions keeps, in the format `kv` (None: the
    contract's own). ``temporary``: bytes of the scores that a naive kernel writes out, of what attention in tiles keeps
    instead, of the traffic of both (of tiles, where it is said how large `on_chip_bytes` are), and of the logits.
    Raises `UsageError` for another list.

    >>> products = itemise("llama-3.1-8b", of="products", new=2048).set_index("path")["flops"]
    >>> int(products["layers[0].mixer.scores"]), int(products.sum())
    (550024249344, 29688401494016)
    """
    import pandas

    check_split("of", of, *LISTS)
    for name, value in (("past", past), ("new", new)):
        check_number(name, value, "positions")
    if on_chip_bytes is not None and (of != "temporary" or not on_chip_bytes > 0):
        raise UsageError(f"on_chip_bytes = {on_chip_bytes!r:.60} is not a size above 0 for of = temporary")
    architecture = as_architecture(model)
    parts = [part for part in architecture.parts() if part.module in modules]
    if of == "tensors":
        rows = _tensors(parts, modules)
    elif of == "cache":
        chosen = architecture.kv if kv is None else kv
        cache_format(chosen)
        rows = _cache(parts, past + new, chosen, architecture.activations)
    else:
        run = Pass(past=past, new=new, emitted=emitted(logits, new), attention=attention, mla=mla_form(mla, past))
        match of:
            case "products":
                rows = _products(parts, run)
            case "operations":
                rows = _operations(parts, run)
            case _:
                rows = _temporary(parts, run, find(architecture.activations).bits // 8, on_chip_bytes)
    return pandas.DataFrame(rows)


def _tensors(parts: Sequence[Part], modules: Sequence[str]) -> Iterator[dict[str, Any]]:
    for part, count, tensor in folds.tensors(parts, modules):
        yield {
            "path": tensor.id.lstrip("/") if tensor.shared else f"{part.path}.{tensor.id}".lstrip("."),
            "role": tensor.role,
            "component": tensor.component,
            "shape": tensor.shape,
            "copies": count * tensor.copies,
            "parameters": count * tensor.size,
        }


def _products(parts: Sequence[Part], run: Pass) -> Iterator[dict[str, Any]]:
    for part in parts:
        for product in filter(run.runs, part.bill.products):
            units = run.units(product)
            yield {
                "path": f"{part.path}.{product.id}",
                "component": product.component,
                "layers": part.count,
                "per": product.domain,
                "units": units,
                "multiply_adds_per_unit": product.macs,
                "flops": 2 * part.count * product.macs * units,
            }


def _operations(parts: Sequence[Part], run: Pass) -> Iterator[dict[str, Any]]:
    for part in parts:
        for operation in part.bill.operations:
            units = run.units(operation)
            yield {
                "path": f"{part.path}.{operation.id}".lstrip("."),
                "layers": part.count,
                "per": operation.domain,
                "units": units,
                "elements_per_unit": operation.elements,
                "elements": part.count * operation.elements * units,
            }


def _temporary(parts: Sequence[Part], run: Pass, elem_bytes: int, on_chip_bytes: Any) -> Iterator[dict[str, Any]]:
    float32 = find("fp32").bits // 8
    largest, all_layers = "at once, in the layer where they are largest", "read and written, in all layers"
    yield {"path": "scores", "what": largest, "bytes": temporary.score_bytes(parts, run, elem_bytes)}
    yield {"path": "tiled statistics", "what": largest, "bytes": temporary.statistics_bytes(parts, run, float32)}
    yield {"path": "traffic with scores", "what": all_layers, "bytes": temporary.naive_traffic(parts, run, elem_bytes)}
    if on_chip_bytes is not None:
        tiled = temporary.tiled_traffic(parts, run, on_chip_bytes, elem_bytes)
        yield {"path": "traffic in tiles", "what": all_layers, "bytes": tiled}
    logits = temporary.logits_bytes(parts, run, float32)
    yield {"path": "logits", "what": "at once, in float32", "bytes": logits}


def _cache(parts: Sequence[Part], length: Any, kv: str, activations: str) -> Iterator[dict[str, Any]]:
    for part in parts:
        for entry in part.bill.cache:
            positions, each = entry.rule.kept(length), position_bytes(entry, kv, activations)
            yield {
                "path": f"{part.path}.{entry.id}",
                "layers": part.count,
                "heads": entry.heads,
                "width": entry.width,
                "format": entry.stored_in(kv, activations),
                "positions": positions,
                "bytes_per_position": each,
                "bytes": part.count * positions * each,
            }
