"""Variants of a decoder at an equal budget: another attention, norm, feed-forward or position, all else matched.

A budget is matched by one knob. Parameters and FLOPs by the width of the feed-forward, rounded to a multiple, or by
depth; cache bytes by the number of key heads, the latent's width, the window, or the batch. What is left over is the
mismatch. Equal parameters are not equal quality, and not equal run time: what else changes stands beside.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from planner import accounts
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.mixture import Mixture
from planner.contract import Architecture, Layer
from planner.errors import ContractError, UsageError, suggest
from planner.variations import AXES, Impossible, in_layers

Budget = Literal["params", "flops", "cache"]

CAVEAT = "equal parameters, FLOPs or cache bytes are not equal quality, and not equal run time"

TUNED = {
    "gqa": "key heads need their number, such as gqa-8",
    "window": "a window needs its width, such as window-4096",
}
"""Mixers without their number, which only the cache's budget can give."""

CACHE_STEP, MOST_CACHE_STEPS = 16, 2**20
"""A latent's width and a window are matched in multiples of the step."""


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """A contract whose budget is matched, how, what it came to, and what one step of the knob changes.

    `dropped` are fields of the contract's mixers that the variant's kind of mixer does not have.
    """

    name: str
    architecture: Architecture
    matched_by: str
    spent: Any
    target: Any
    step: Any
    batch: int
    dropped: tuple[str, ...] = ()

    @property
    def mismatch(self) -> float:
        """What it spends beyond the target, as a share of it."""
        return float(self.spent / self.target - 1)


def variants(
    model: Architecture,
    vary: str,
    options: Sequence[str],
    *,
    match: Budget = "params",
    by: Literal["d_ff", "layers"] | None = None,
    context: int = 4096,
    batch: int = 1,
    multiple: int | None = None,
) -> Iterator[Variant]:
    """Yield the variants of a contract, each with its budget matched to the contract's own.

    Parameters and FLOPs are matched `by` d_ff (None) or layers. Widths are rounded to a `multiple` (None: 64, less
    where a feed-forward is narrower than 4096).

    Raises `UsageError` for an option that is not known, `Impossible` for one that this contract cannot have or that no
    knob can match.

    >>> import planner
    >>> mqa, = variants(planner.load("gqa-8"), "mixer", ["mqa"])
    >>> mqa.matched_by, f"{mqa.mismatch:.2%}"
    ('d_ff 11008 → 11584', '-0.14%')
    """
    _refuse_unknown(vary, match, by)
    if multiple is not None and multiple < 1:
        raise UsageError(f"multiple = {multiple} is less than 1")
    model = dataclasses.replace(model, stated_parameters=None)

    def spent(candidate: Architecture) -> Any:
        if match == "params":
            return accounts.parameters(candidate)
        if match == "flops":
            return accounts.flops(candidate, new=context, logits="all")
        return accounts.cache_bytes(candidate, context, batch=batch)

    target = spent(model)
    for option in options:
        name = f"{vary}={option}"
        if option in TUNED and match != "cache":
            raise UsageError(f"{name}: {TUNED[option]}, unless cache is matched")
        try:
            changed = dataclasses.replace(AXES[vary](model, option), name=f"{model.name} {name}")
        except ContractError as error:
            raise Impossible(f"{name}: {error}") from None
        if match == "cache":
            found = _matched_cache(name, changed, option, spent, target, batch)
        elif by == "layers":
            found = _nearest(name, _depths(changed, model), spent, target, f"layers {model.n_layers}", batch)
        else:
            finest = min([4096, *_widths(changed)]) // 64
            found = _matched_width(name, changed, spent, target, multiple or max(finest, 1), batch)
        yield dataclasses.replace(found, dropped=_dropped(model, changed))


def _refuse_unknown(vary: str, match: str, by: str | None) -> None:
    if vary not in AXES:
        raise UsageError(f"vary = {vary!r} is none of {', '.join(AXES)}{suggest(vary, AXES)}")
    if match not in ("params", "flops", "cache"):
        raise UsageError(f"match = {match!r} is none of params, flops, cache")
    if by not in (None, "d_ff", "layers"):
        raise UsageError(f"by = {by!r} is none of d_ff, layers")
    if by is not None and match == "cache":
        raise UsageError(f"by = {by!r} matches parameters or FLOPs; what matches the cache depends on the variant")


def _dropped(model: Architecture, changed: Architecture) -> tuple[str, ...]:
    """Fields of a mixer that say something and that the kind of mixer in its place does not have."""
    found = set()
    for before, after in zip(model.layers, changed.layers, strict=True):
        if before.mixer is not None and type(before.mixer) is not type(after.mixer):
            fields = {f.name: f.default for f in dataclasses.fields(before.mixer) if not hasattr(after.mixer, f.name)}
            optional = {name: default for name, default in fields.items() if default is not dataclasses.MISSING}
            found |= {name for name, default in optional.items() if getattr(before.mixer, name) != default}
    return tuple(sorted(found))


def _matched_width(
    name: str,
    changed: Architecture,
    spent: Callable[[Architecture], Any],
    target: Any,
    multiple: int,
    batch: int,
) -> Variant:
    """Every feed-forward wider or narrower by the same share, which the budget is linear in."""
    now, slope = spent(changed), spent(_wider(changed, 2, 1)) - spent(changed)
    share = 1 + (target - now) / slope if slope else 1
    widths = _widths(changed)
    if not widths or share <= 0:
        raise Impossible(f"{name}: no width of the feed-forward brings the budget to {target:,}; match another one")
    tries = {}
    for rounded in (_wider(changed, share, multiple, up=False), _wider(changed, share, multiple, up=True)):
        tries["/".join(map(str, _widths(rounded)))] = rounded
    return _nearest(name, tries, spent, target, f"d_ff {'/'.join(map(str, widths))}", batch)


def _nearest(
    name: str,
    tries: Mapping[str, Architecture],
    spent: Callable[[Architecture], Any],
    target: Any,
    before: str,
    batch: int,
) -> Variant:
    by_distance = sorted(tries, key=lambda setting: abs(spent(tries[setting]) - target))
    best, *others = ((setting, spent(tries[setting])) for setting in by_distance[:2])
    step = abs(others[0][1] - best[1]) if others else 0
    return Variant(name, tries[best[0]], f"{before} → {best[0]}", best[1], target, step, batch)


def _widths(model: Architecture) -> list[int]:
    """The different widths of feed-forwards and experts."""
    branches = (layer.feed_forward for layer in model.layers)
    return list(dict.fromkeys(b.d_ff for b in branches if isinstance(b, (FeedForward, Mixture))))


def _wider(model: Architecture, share: float, multiple: int, *, up: bool = True) -> Architecture:
    def width(old: int) -> int:
        steps = old * share / multiple
        return max(int(-(-steps // 1)) if up else int(steps), 1) * multiple

    def change(layer: Layer) -> Layer:
        branch = layer.feed_forward
        if not isinstance(branch, (FeedForward, Mixture)):
            return layer
        return dataclasses.replace(layer, feed_forward=dataclasses.replace(branch, d_ff=width(branch.d_ff)))

    return in_layers(model, change)


def _depths(changed: Architecture, model: Architecture) -> dict[str, Architecture]:
    """The contract at every depth up to twice its own."""
    if len(changed.layers) != 1:
        raise Impossible(f"{model.name} has {len(changed.layers)} kinds of layer; its depth is no single number")
    (layer,) = changed.layers
    depths = range(1, 2 * model.n_layers + 1)
    return {str(n): dataclasses.replace(changed, layers=(dataclasses.replace(layer, count=n),)) for n in depths}


def _matched_cache(
    name: str,
    changed: Architecture,
    option: str,
    spent: Callable[[Architecture], Any],
    target: Any,
    batch: int,
) -> Variant:
    """The latent's width for MLA, the window or key heads where no number is asked for, else the batch."""
    knob = {"mla": "kv_lora_rank", "window": "window", "gqa": "n_kv_heads"}.get(option)
    if knob is None:
        each = spent(changed) // batch
        held = target // each if each else batch
        if not held:
            raise Impossible(f"{name}: one sequence takes {each:,} B of cache, more than the {target:,} B to match")
        return Variant(name, changed, f"batch {batch} → {held}", each * held, target, each, held)
    values = _key_heads(changed) if knob == "n_kv_heads" else _around(changed, knob, spent, target)
    return _nearest(name, {str(n): _with(changed, knob, n) for n in values}, spent, target, knob, batch)


def _key_heads(model: Architecture) -> list[int]:
    """How many key heads divide the query heads of all layers."""
    heads = math.gcd(*(layer.mixer.n_heads for layer in model.layers if isinstance(layer.mixer, DenseAttention)))
    return [n for n in range(1, heads + 1) if heads % n == 0]


def _around(model: Architecture, knob: str, spent: Callable[[Architecture], Any], target: Any) -> list[int]:
    """The two multiples of a step between which the cache, which grows with the knob, reaches the target."""

    def cache(steps: int) -> Any:
        return spent(_with(model, knob, steps * CACHE_STEP))

    enough = 1
    while cache(enough) < target and enough < MOST_CACHE_STEPS:
        enough *= 2
    steps = bisect.bisect_left(range(enough), target, lo=1, key=cache)
    return [n * CACHE_STEP for n in (steps - 1, steps) if n]


def _with(model: Architecture, knob: str, value: int) -> Architecture:
    return in_layers(model, functools.partial(_with_mixer, field=knob, value=value))


def _with_mixer(layer: Layer, *, field: str, value: Any) -> Layer:
    if getattr(layer.mixer, field, None) is None:
        return layer
    return dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, **{field: value}))  # type: ignore[type-var]
