"""Variants of a decoder at an equal budget: another attention, norm, feed-forward or position, all else matched.

A budget is matched by one knob. Parameters and FLOPs by the width of the feed-forward, rounded to a multiple, or by
depth; cache bytes by the number of key heads, the latent's width, the window, or the batch. What is left over is the
mismatch. Equal parameters are not equal quality, and not equal run time: what else changes stands beside.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from planner import accounts
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.norm import LayerNorm, Norm, RMSNorm
from planner.components.position import Alibi, Position, Rope
from planner.contract import Architecture, Layer
from planner.errors import ContractError, UsageError, suggest

Budget = Literal["params", "flops", "cache"]

CAVEAT = "equal parameters, FLOPs or cache bytes are not equal quality, and not equal run time"

GATED = {"swiglu": "silu", "geglu": "gelu_tanh", "reglu": "relu"}
PLAIN = {"gelu": "gelu_tanh", "relu": "relu", "relu2": "relu2", "silu": "silu"}
PLACES = ("pre", "post", "sandwich", "reordered", "parallel")


@dataclasses.dataclass(frozen=True, slots=True)
class Variant:
    """A contract whose budget is matched, how, what it came to, and what one step of the knob changes."""

    name: str
    architecture: Architecture
    matched_by: str
    spent: Any
    target: Any
    step: Any
    batch: int

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
    by: Literal["d_ff", "layers"] = "d_ff",
    context: int = 4096,
    batch: int = 1,
    multiple: int | None = None,
) -> Iterator[Variant]:
    """Yield the variants of a contract, each with its budget matched to the contract's own.

    Widths are rounded to a `multiple` (None: 64, less where a feed-forward is narrower than 4096).

    Raises `UsageError` for an option that is not known or that no knob can match.

    >>> import planner
    >>> mqa, = variants(planner.load("gqa-8"), "mixer", ["mqa"])
    >>> mqa.matched_by, f"{mqa.mismatch:.2%}"
    ('d_ff 11008 → 11584', '-0.14%')
    """
    if vary not in AXES:
        raise UsageError(f"vary = {vary!r} is none of {', '.join(AXES)}{suggest(vary, AXES)}")
    if match not in ("params", "flops", "cache"):
        raise UsageError(f"match = {match!r} is none of params, flops, cache")
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
        changed = dataclasses.replace(AXES[vary](model, option), name=f"{model.name} {name}")
        if match == "cache":
            yield _matched_cache(name, changed, option, spent, target, batch)
            continue
        if by == "layers":
            found = _nearest(name, _depths(changed, model), spent, target, f"layers {model.n_layers}")
        else:
            finest = min([4096, *_widths(changed)]) // 64
            found = _matched_width(name, changed, spent, target, multiple or max(finest, 1))
        yield dataclasses.replace(found, batch=batch)


def _matched_width(
    name: str, changed: Architecture, spent: Callable[[Architecture], Any], target: Any, multiple: int
) -> Variant:
    """Every feed-forward wider or narrower by the same share, which the budget is linear in."""
    now, slope = spent(changed), spent(_wider(changed, 2, 1)) - spent(changed)
    share = 1 + (target - now) / slope if slope else 1
    widths = _widths(changed)
    if not widths or share <= 0:
        raise UsageError(f"{name}: no width of the feed-forward brings the budget to {target:,}; match another one")
    tries = {}
    for rounded in (_wider(changed, share, multiple, up=False), _wider(changed, share, multiple, up=True)):
        tries["/".join(map(str, _widths(rounded)))] = rounded
    return _nearest(name, tries, spent, target, f"d_ff {'/'.join(map(str, widths))}")


def _nearest(
    name: str, tries: Mapping[str, Architecture], spent: Callable[[Architecture], Any], target: Any, before: str
) -> Variant:
    by_distance = sorted(tries, key=lambda setting: abs(spent(tries[setting]) - target))
    best, *others = ((setting, spent(tries[setting])) for setting in by_distance[:2])
    step = abs(others[0][1] - best[1]) if others else 0
    return Variant(name, tries[best[0]], f"{before} → {best[0]}", best[1], target, step, 1)


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

    return _layers(model, change)


def _depths(changed: Architecture, model: Architecture) -> dict[str, Architecture]:
    """The contract at every depth up to twice its own."""
    if len(changed.layers) != 1:
        raise UsageError(f"{model.name} has {len(changed.layers)} kinds of layer; its depth is no single number")
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
    """The latent's width for MLA, the window where there is one, key heads for plain ``gqa``, else the batch."""
    knobs = {"mla": "kv_lora_rank", "window": "window", "gqa": "n_kv_heads"}
    knob = knobs.get(option.partition("-")[0])
    if knob is None or (knob == "n_kv_heads" and option != "gqa"):
        each = spent(changed) // batch
        held = target // each
        if not held:
            raise UsageError(f"{name}: one sequence takes {each:,} B of cache, more than the {target:,} B to match")
        return Variant(name, changed, f"batch {batch} → {held}", each * held, target, each, held)
    tries = {str(n): each for n, each in _settings(changed, knob)}
    if not tries:
        raise UsageError(f"{name}: no layer has {knob}")
    return dataclasses.replace(_nearest(name, tries, spent, target, knob), batch=batch)


def _settings(model: Architecture, knob: str) -> Iterator[tuple[int, Architecture]]:
    """The contract with every value that a knob may take in all layers that have it."""
    mixers = [layer.mixer for layer in model.layers if getattr(layer.mixer, knob, None) is not None]
    if knob == "n_kv_heads":
        heads = math.gcd(*(getattr(mixer, "n_heads", 1) for mixer in mixers))
        values = [n for n in range(1, heads + 1) if heads % n == 0]
    else:
        values = list(range(16, 16_385, 16))
    for value in values:
        yield value, _layers(model, functools.partial(_with_mixer, field=knob, value=value))


def _with_mixer(layer: Layer, *, field: str, value: Any) -> Layer:
    if getattr(layer.mixer, field, None) is None:
        return layer
    return dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, **{field: value}))  # type: ignore[type-var]


def _layers(model: Architecture, change: Callable[[Layer], Layer]) -> Architecture:
    return dataclasses.replace(model, layers=tuple(map(change, model.layers)))


def _mixer(model: Architecture, option: str) -> Architecture:
    """``mha``, ``gqa-8``, ``gqa``, ``mqa``, ``mla`` or ``window-4096``, wherever there is softmax attention."""
    match = re.fullmatch(r"(mha|mqa|mla|gqa)|(gqa|window)-([1-9]\d*)", option)
    if match is None:
        raise UsageError(f"mixer = {option!r} is none of mha, gqa-8, mqa, mla, window-4096")
    kind, number = match[1] or match[2], int(match[3] or 0)
    if not any(isinstance(layer.mixer, (DenseAttention, LatentAttention)) for layer in model.layers):
        raise UsageError(f"{model.name} has no softmax attention to vary")

    def change(layer: Layer) -> Layer:
        mixer = layer.mixer
        if not isinstance(mixer, (DenseAttention, LatentAttention)):
            return layer
        if kind == "mla":
            return dataclasses.replace(layer, mixer=_latent(mixer, layer.norm))
        dense = _dense(mixer)
        if kind == "window":
            return dataclasses.replace(layer, mixer=dataclasses.replace(dense, window=number))
        kv_heads = {"mha": dense.n_heads, "mqa": 1}.get(kind, number or dense.n_kv_heads)
        return dataclasses.replace(layer, mixer=dataclasses.replace(dense, n_kv_heads=kv_heads))

    return _layers(model, change)


def _dense(mixer: DenseAttention | LatentAttention) -> DenseAttention:
    if isinstance(mixer, DenseAttention):
        return mixer
    width = mixer.nope_head_dim
    return DenseAttention(n_heads=mixer.n_heads, n_kv_heads=mixer.n_heads, head_dim=width, position=mixer.position)


def _latent(mixer: DenseAttention | LatentAttention, norm: Norm) -> LatentAttention:
    """Latent attention for the same heads: a latent of four heads, a rotary key of half a head (DeepSeek-V2, 2.1.3)."""
    if isinstance(mixer, LatentAttention):
        return mixer
    if mixer.window is not None or mixer.chunk is not None or mixer.kv_source is not None:
        raise ContractError("latent attention has no window, no chunk and no other layer's keys")
    width, position = mixer.head_dim, mixer.position
    return LatentAttention(
        n_heads=mixer.n_heads,
        kv_lora_rank=4 * width,
        nope_head_dim=width,
        rope_head_dim=max(width // 4 * 2, 2),
        v_head_dim=width,
        latent_norm=norm,
        position=dataclasses.replace(position, width=None, scaling=None) if isinstance(position, Rope) else None,
    )


def _norm(model: Architecture, option: str) -> Architecture:
    """``rms``, ``layer``, ``layer-nobias``, or the place of the norms, such as ``sandwich``."""
    if option in PLACES:
        return _layers(model, lambda layer: dataclasses.replace(layer, residual=option))  # type: ignore[arg-type]

    def change(norm: Norm) -> Norm:
        match option:
            case "rms":
                return RMSNorm(eps=norm.eps)
            case "layer" | "layer-nobias":
                return LayerNorm(eps=norm.eps, bias=option == "layer")
        raise UsageError(f"norm = {option!r} is none of rms, layer, layer-nobias, {', '.join(PLACES)}")

    final = None if model.final_norm is None else change(model.final_norm)
    changed = _layers(model, lambda layer: dataclasses.replace(layer, norm=change(layer.norm)))
    return dataclasses.replace(changed, final_norm=final)


def _ffn(model: Architecture, option: str) -> Architecture:
    """``swiglu``, ``geglu``, ``reglu`` with a gate, ``gelu``, ``relu``, ``relu2``, ``silu`` without (Shazeer 2020)."""
    if option not in GATED and option not in PLAIN:
        raise UsageError(f"ffn = {option!r} is none of {', '.join([*GATED, *PLAIN])}")
    fields = {"gated": option in GATED, "activation": {**PLAIN, **GATED}[option]}

    def change(layer: Layer) -> Layer:
        branch = layer.feed_forward
        if not isinstance(branch, (FeedForward, Mixture)):
            return layer
        return dataclasses.replace(layer, feed_forward=dataclasses.replace(branch, **fields))  # type: ignore[arg-type]

    return _layers(model, change)


def _position(model: Architecture, option: str) -> Architecture:
    """``rope``, ``alibi``, ``learned`` or ``none``."""
    kinds: dict[str, Position | None] = {"rope": Rope(base=10_000.0), "alibi": Alibi(), "learned": None, "none": None}
    if option not in kinds:
        raise UsageError(f"position = {option!r} is none of {', '.join(kinds)}")

    def change(layer: Layer) -> Layer:
        if not isinstance(layer.mixer, DenseAttention):
            return layer
        keeps = option == "rope" and isinstance(layer.mixer.position, Rope)
        position = layer.mixer.position if keeps else kinds[option]
        return dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, position=position))

    rows = (model.max_positions or 2048) if option == "learned" else None
    embedding = dataclasses.replace(model.embedding, learned_positions=rows, position_offset=0, sinusoidal=False)
    return dataclasses.replace(_layers(model, change), embedding=embedding)


AXES: dict[str, Callable[[Architecture, str], Architecture]] = {
    "mixer": _mixer,
    "norm": _norm,
    "ffn": _ffn,
    "position": _position,
}
"""What may be varied -> the function that changes a contract."""
