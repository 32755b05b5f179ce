"""How a figure came about: the named formula that gives exactly this figure, or the addends that it is the sum of.

A formula is shown only where its value is the figure itself. Whatever a contract has that the textbook's uniform
decoder has not (biases, mixed layers, scales of a format) makes them differ, and then the bill is shown as it adds up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner import accounts, folds
from planner.bill import CacheEntry, Part
from planner.contract import Architecture
from planner.errors import InputError, UsageError
from planner.formula import Explanation, formulas
from planner.spec import Spec, field_names
from planner.storage import StorageFormat, cache_format, weight_format
from planner.summary import UNITS, CacheCurve, Load, crossover, summary

NAMED = {
    "parameters": ("dense_parameters", "mixture_parameters"),
    "active_parameters": ("active_parameters", "dense_parameters"),
    "weight_bytes": ("weight_bytes",),
    "cache_bytes_per_token": ("kv_payload_per_token", "mla_payload_per_token"),
    "cache_bytes": ("kv_payload", "mla_payload", "kv_payload_windowed"),
    "crossover_tokens": ("cache_equals_weights_context",),
}
"""Figure -> the formulas that may give it, the nearest first."""


@dataclass(frozen=True, slots=True)
class Working:
    """A figure with its unit; the formula that gives it, explained, or else the addends (what -> how much)."""

    figure: str
    value: Any
    unit: str
    explanation: Explanation | None
    addends: Mapping[str, Any]


def workings(model: Architecture, load: Load, names: Iterable[str] = tuple(NAMED)) -> dict[str, Working]:
    """How figures of `compare` came about, each under its name; the load is resident, not a request.

    >>> import planner
    >>> found = workings(planner.load("mha"), Load(context=1000), ["crossover_tokens", "decode_flops"])
    >>> found["crossover_tokens"].explanation.formula.name, round(found["crossover_tokens"].value)
    ('cache_equals_weights_context', 26703)
    >>> found["decode_flops"].addends["attention_core"]
    524812288
    """
    figures = summary(model, load)
    found = crossover(model, load, figures["weight_bytes"])
    absent = any(held for held, _ in found.absent(figures["weight_bytes"] / load.batch))
    figures["crossover_tokens"] = math.nan if absent else found.tokens
    values = _words(model, load, figures)
    return {name: _working(model, name, load, figures[name], values) for name in names}


def _working(model: Architecture, figure: str, load: Load, value: Any, values: Mapping[str, Any]) -> Working:
    mixers = [layer.mixer for layer in model.layers]
    alike = all(mixer == mixers[0] for mixer in mixers) or not figure.startswith("cache")
    for name in NAMED.get(figure, ()) if alike else ():
        explanation = _explained(name, values)
        if explanation is not None and explanation.value == value:
            return Working(figure, value, UNITS[figure], explanation, {})
    return Working(figure, value, UNITS[figure], None, _addends(model, figure, load))


def _explained(name: str, values: Mapping[str, Any]) -> Explanation | None:
    """A formula with its numbers, if all of them are known and it has a value."""
    try:
        return formulas[name].explain(values)
    except (UsageError, InputError):
        return None


def words(model: Architecture, load: Load) -> dict[str, Any]:
    """Word of the vocabulary -> its value, for those words of which this contract and load have one value.

    >>> import planner
    >>> known = words(planner.load("gemma-3-12b"), Load())
    >>> known["n_kv_heads"], "window" in known
    (8, False)
    """
    return _words(model, load, summary(model, load))


def _words(model: Architecture, load: Load, figures: Mapping[str, Any]) -> dict[str, Any]:
    stated = model.stated_parameters
    routed = accounts.parameters(model, by="component").get("experts_routed")
    known = {
        "n_layers": model.n_layers,
        "d_model": model.d_model,
        "vocab_size": model.vocab_size,
        **_shared(model),
        "parameters": figures["parameters"] if stated is None else stated,
        "active_parameters": figures["active_parameters"],
        "routed_parameters": routed,
        "batch": load.batch,
        "context": load.context,
        "resident_tokens": load.batch * load.context,
        "past": load.context,
        "new": 1,
        "emitted": 1,
        "kv_elem_bytes": _plain_bytes(cache_format(model.kv if load.kv is None else load.kv)),
        "weight_elem_bytes": _plain_bytes(weight_format(model.weights if load.weights is None else load.weights).rest),
        "elem_bytes": _plain_bytes(cache_format(model.activations)),
        "weight_bytes": figures["weight_bytes"],
        "kv_bytes_per_token": figures["cache_bytes_per_token"],
    }
    return {name: value for name, value in known.items() if value is not None}


def _shared(model: Architecture) -> dict[str, Any]:
    """The fields of mixers and feed-forwards that every layer has with the same value."""
    found: dict[str, list[Any]] = {}
    for layer in model.layers:
        for branch in (layer.mixer, layer.feed_forward):
            if isinstance(branch, Spec):
                for name in field_names(type(branch)):
                    found.setdefault(name, []).append(getattr(branch, name))
    every = {name: v for name, v in found.items() if len(v) == len(model.layers) and all(x == v[0] for x in v)}
    values = {name: v[0] for name, v in every.items() if type(v[0]) is int}
    if "head_dim" in values and every.get("v_head_dim") == [None] * len(model.layers):
        values["v_head_dim"] = values["head_dim"]
    if "index_head_dim" in values:
        values["index_dim"] = values["index_head_dim"]
    return values


def _plain_bytes(stored: StorageFormat) -> Any:
    """Bytes of an element of a format that stores nothing beside its elements."""
    if not stored.plain:
        return None
    size = Fraction(stored.bits) / 8
    return int(size) if size.denominator == 1 else float(size)


def _addends(model: Architecture, figure: str, load: Load) -> dict[str, Any]:
    """What a figure is the sum of: by component, or by kind of layer for the cache."""
    conventions: dict[str, Any] = {"batch": load.batch, "attention": load.attention, "logits": load.logits}
    match figure:
        case "parameters" | "active_parameters":
            return dict(accounts.parameters(model, active=figure == "active_parameters", by="component"))
        case "weight_bytes":
            return _weights(model, load)
        case "cache_bytes_per_token":
            return {place: CacheCurve.of(model, load.kv, parts).slope(load.context) for place, parts in _kinds(model)}
        case "cache_bytes":
            return {place: load.batch * _cached(model, parts, load) for place, parts in _kinds(model)}
        case "prefill_flops":
            return dict(accounts.flops(model, 0, load.context, mla=load.mla, by="component", **conventions))
        case "decode_flops":
            return dict(accounts.flops(model, load.context, 1, mla=load.mla, by="component", **conventions))
    return {}


def _weights(model: Architecture, load: Load) -> dict[str, Any]:
    if model.stated_parameters is not None:
        return {"parameters as stated": accounts.weight_bytes(model, load.weights)}
    scheme = weight_format(model.weights if load.weights is None else load.weights)
    totals = folds.Totals()
    for _, count, tensor in folds.tensors(model.parts()):
        totals.add(tensor.component, count * scheme.stored_bytes(tensor.role, tensor.shape, tensor.copies))
    return totals.by


def _kinds(model: Architecture) -> Iterator[tuple[str, list[Part]]]:
    """The parts of each kind of layer that keeps a cache, under the words that name it."""
    for index, layer in enumerate(model.layers):
        parts = list(layer.parts(f"layers[{index}]", model.d_model))
        if any(part.bill.cache for part in parts):
            yield f"{layer.count} layers {layer.label or f'[{index}]'}", parts


def _cached(model: Architecture, parts: list[Part], load: Load) -> Any:
    chosen = model.kv if load.kv is None else load.kv

    def size(entry: CacheEntry, positions: Any) -> Any:
        return positions * accounts.position_bytes(entry, chosen, model.activations)

    return folds.cache_total(parts, [load.context], size)
