"""How families put layers on one another: layer types and windows, single layers in order, groups and their pattern."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from planner.components.base import Mixer, PositionWise
from planner.contract import Layer
from planner.sources.config_table import Config
from planner.spec import shown

MOST_LAYERS = 10_000

# Layer types of configs, and the labels that a contract gives them.
LABELS = {
    "full_attention": "global",
    "sliding_attention": "local",
    "chunked_attention": "local",
    "linear_attention": "linear",
}

Kind = TypeVar("Kind", bound=Hashable)


def n_layers(c: Config) -> int:
    """Layers of all kinds together."""
    count: int = c.count("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if count > MOST_LAYERS:
        raise c.refuse(f"num_hidden_layers = {count} is more than {MOST_LAYERS:,}, which no model comes near")
    return count


def kinds(c: Config, default: Sequence[str], *, known: Iterable[str] = LABELS) -> list[str]:
    """layer_types as the file states them, else the family's own pattern."""
    stated = c.list("layer_types", of=str)
    if stated is None:
        return list(default)
    if len(stated) != n_layers(c):
        raise c.refuse(f"layer_types has {len(stated)} entries for {n_layers(c)} layers")
    for kind in dict.fromkeys(stated):
        if kind not in known:
            raise c.refuse(f"layer_types: {shown(kind)} is none of {', '.join(known)}")
    return stated


def local_every(c: Config, every: int, *, globals_at: int = -1) -> list[str]:
    """Local layers, and a global one once in `every` layers: the last of them, or the one at `globals_at`."""
    place = globals_at % every
    return ["full_attention" if i % every == place else "sliding_attention" for i in range(n_layers(c))]


def turning(c: Config) -> list[bool]:
    """Which layers turn: those with a 1 in no_rope_layers, or all but the last of each `no_rope_layer_interval`."""
    every, count = c.count("no_rope_layer_interval", default=4), n_layers(c)
    turns = c.list("no_rope_layers") or [int((i + 1) % every != 0) for i in range(count)]
    if len(turns) != count:
        raise c.refuse(f"no_rope_layers has {len(turns)} entries for {count} layers")
    return [turn != 0 for turn in turns]


def windows(c: Config, types: Sequence[str], width: int | None) -> dict[str, int | None]:
    """The window of each layer type that there is; a sliding one without a width is refused."""
    for kind in types:
        if kind not in ("full_attention", "sliding_attention"):
            raise c.refuse(f"layer_types: {shown(kind)} is not built for {c.model_type}")
    if width is None and "sliding_attention" in types:
        raise c.refuse("layer_types has sliding_attention, but sliding_window is missing")
    return {kind: width if kind == "sliding_attention" else None for kind in dict.fromkeys(types)}


def stack(types: Sequence[Kind], build: Callable[[Kind], Layer]) -> list[Layer]:
    """A layer for each type in order; equal types share one."""
    built = {kind: build(kind) for kind in dict.fromkeys(types)}
    return [built[kind] for kind in types]


def by_kind(
    types: Sequence[str],
    mixers: Mapping[str, Mixer],
    routed: Sequence[bool],
    dense: PositionWise | None,
    experts: PositionWise | None,
    *,
    labels: Mapping[str, str] = LABELS,
    **fields: Any,
) -> list[Layer]:
    """Layers whose mixer goes by their type and whose feed-forward is dense or routed; `fields` are those of all."""

    def build(kind: tuple[str, bool]) -> Layer:
        ff = experts if kind[1] else dense
        return Layer(count=1, label=labels[kind[0]], mixer=mixers[kind[0]], feed_forward=ff, **fields)

    return stack(list(zip(types, routed, strict=True)), build)


def by_type(
    types: Sequence[str], mixers: Mapping[str, Mixer], feed_forward: PositionWise, **fields: Any
) -> list[Layer]:
    """Layers whose mixer goes by their type, with one feed-forward for all."""
    return by_kind(types, mixers, [False] * len(types), feed_forward, None, **fields)


def each(c: Config, layer: Layer) -> list[Layer]:
    """The same layer all the way up."""
    return [layer] * n_layers(c)


def grouped(layers: Sequence[Layer]) -> dict[str, Any]:
    """Single layers in order -> the groups and, where equal layers do not stand together, the pattern."""
    distinct = {id(layer): layer for layer in layers}
    place: dict[Layer, int] = {}
    numbers = {key: place.setdefault(layer, len(place)) for key, layer in distinct.items()}
    groups, order = list(place), [numbers[id(layer)] for layer in layers]
    in_turn = order != sorted(order)
    names = _labels(groups)
    labels = [name if in_turn or group.label is not None else None for name, group in zip(names, groups, strict=True)]
    counts = Counter(order)
    sized = tuple(
        dataclasses.replace(group, label=label, count=counts[i])
        for i, (group, label) in enumerate(zip(groups, labels, strict=True))
    )
    return {"layers": sized, "pattern": tuple(names[i] for i in order[: _period(order)]) if in_turn else None}


def _period(order: Sequence[int]) -> int:
    """After how many entries a list repeats itself (Knuth, Morris and Pratt's failure function)."""
    border = [0] * len(order)
    k = 0
    for i in range(1, len(order)):
        while k and order[i] != order[k]:
            k = border[k - 1]
        k += order[i] == order[k]
        border[i] = k
    return len(order) - border[-1]


def _labels(groups: Sequence[Layer]) -> list[str]:
    """The label each layer came with, numbered where two came with the same."""
    names: list[str] = []
    taken: Counter[str | None] = Counter()
    for i, group in enumerate(groups):
        name, before = group.label or f"kind{i}", taken[group.label] if group.label else 0
        names.append(f"{name}{before + 1}" if before else name)
        taken[group.label] += 1
    return names
