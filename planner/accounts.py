"""The basic figures of a decoder: parameters, FLOPs of a pass, bytes of the weights and of the cache.

A `model` is what `planner.load` takes: a contract, or the name or place of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from planner import folds
from planner.bill import CacheEntry, Part, Pass, check_number
from planner.contract import as_architecture
from planner.errors import UsageError
from planner.storage import Scheme, cache_format, weight_format


def parameters(
    model: Any,
    *,
    active: bool = False,
    by: Literal["role", "component"] | None = None,
    lookups: bool = True,
    modules: Sequence[str] = ("body",),
) -> Any:
    """Parameters that a checkpoint stores, router buffers included, as published totals have them.

    `active`: those that one token uses, routed experts times k/E and everything else whole; without `lookups` the
    tables that are only looked up are left out. `by` splits the total: by role a bias is a bias, by component it
    belongs to its matrix. `modules` adds parts outside the body, such as multi-token prediction.

    >>> import planner
    >>> planner.parameters(planner.load("mixtral-8x7b")), planner.parameters(planner.load("mixtral-8x7b"), active=True)
    (46702792704, 12879925248)
    """
    check_split("by", by, "role", "component")
    return folds.parameters(as_architecture(model).parts(), active=active, by=by, lookups=lookups, modules=modules)


def flops(
    model: Any,
    past: Any = 0,
    new: Any = 1,
    *,
    batch: Any = 1,
    attention: str = "causal",
    logits: Any = "last",
    mla: str = "auto",
    by: Literal["component", "product"] | None = None,
) -> Any:
    """FLOPs of a pass of `new` positions after `past` cached ones, for `batch` equal sequences.

    `logits` are computed for the ``last`` position, for ``all`` new ones, or for a number of them. `mla` ``auto``:
    expanded where nothing is cached, else absorbed. T decode steps are ``flops(m, past=P, new=T, logits="all")``.

    >>> import planner
    >>> planner.flops(planner.load("llama-3.1-8b"), new=2048)
    29688401494016
    """
    run = Pass(past=past, new=new, emitted=emitted(logits, new), attention=attention, mla=mla_form(mla, past))
    check_number("batch", batch, "sequences")
    check_split("by", by, "component", "product")
    return folds.flops(as_architecture(model).parts(), run, batch=batch, by=by)


def check_split(name: str, value: str | None, *known: str) -> None:
    """Refuse with `UsageError` what is none of the known words; None splits nothing."""
    if value is not None and value not in known:
        raise UsageError(f"{name} = {value!r:.80} is none of {', '.join(known)}")


def emitted(logits: Any, new: Any) -> Any:
    """The number of positions whose logits are computed."""
    if isinstance(logits, str):
        if logits not in ("last", "all"):
            raise UsageError(f"logits = {logits!r:.80} is none of last, all, or a number of positions")
        return new if logits == "all" else 1
    if isinstance(logits, int) and isinstance(new, int) and logits > new:
        raise UsageError(f"logits = {logits} exceeds new = {new}; a pass emits at most its new positions")
    return logits


def mla_form(mla: str, past: Any) -> str:
    """The form of latent attention: ``auto`` is expanded where nothing is cached, else absorbed."""
    if mla != "auto":
        return mla
    return "expanded" if isinstance(past, int) and past == 0 else "absorbed"


def cache_bytes(
    model: Any,
    lengths: Any,
    *,
    kv: str | None = None,
    batch: Any = 1,
    between_passes: bool = False,
) -> Any:
    """Bytes that the cache of sequences of these lengths stores in a cache format (None: the contract's own).

    A window keeps min(S, w) positions during a pass, one fewer between passes. States have a format of their own.

    >>> import planner
    >>> planner.cache_bytes(planner.load("deepseek-v3"), 1), planner.cache_bytes(planner.load("mha"), [1000, 20])
    (70272, 534773760)
    """
    one = isinstance(lengths, str) or hasattr(lengths, "__array__") or not isinstance(lengths, Iterable)
    model, sequences = as_architecture(model), [lengths] if one else list(lengths)
    for length in sequences:
        check_number("lengths", length, "positions")
    check_number("batch", batch, "sequences")
    chosen = model.kv if kv is None else kv
    cache_format(chosen)  # a format that is not known is refused even where nothing is cached

    def size(entry: CacheEntry, positions: Any) -> Any:
        return positions * position_bytes(entry, chosen, model.activations)

    return batch * folds.cache_total(model.parts(), sequences, size, between_passes=between_passes)


def position_bytes(entry: CacheEntry, kv: str, activations: str) -> Any:
    """Bytes of one position of a cache entry, the attention cache being in `kv` and the model in `activations`."""
    return cache_format(entry.stored_in(kv, activations)).bytes_per_position(entry.heads, entry.width)


def weight_bytes(model: Any, weights: str | None = None, *, modules: Sequence[str] = ("body",)) -> Any:
    """Bytes that the weights store in a format (None: the contract's own), scales and zero points included.

    A contract that states its parameter count is taken at its word: that many elements in the format.

    >>> import planner
    >>> planner.weight_bytes(planner.load("llama-3.1-8b")), planner.weight_bytes(planner.load("mha"))
    (16060522496, 14000000000)
    """
    model = as_architecture(model)
    scheme = weight_format(model.weights if weights is None else weights)
    if model.stated_parameters is not None:
        return scheme.by_role.get("ffn_dense", scheme.rest).stored_bytes((model.stated_parameters,))
    return stored_bytes(model.parts(), scheme, modules)


def stored_bytes(parts: Sequence[Part], scheme: Scheme, modules: Sequence[str] = ("body",)) -> Any:
    """Bytes that the tensors of parts store in a scheme: of a whole decoder, or of one rank."""
    total = 0
    for _, count, tensor in folds.tensors(parts, modules):
        total = total + count * scheme.stored_bytes(tensor.role, tensor.shape, tensor.copies)
    return total
