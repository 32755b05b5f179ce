"""What an ablation may vary: one word, such as ``gqa-8`` or ``swiglu``, changes a contract wherever it can."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.norm import LayerNorm, Norm, RMSNorm
from planner.components.position import Alibi, Position, Rope
from planner.contract import Architecture, Layer
from planner.errors import ContractError, UsageError

GATED = {"swiglu": "silu", "geglu": "gelu_tanh", "reglu": "relu"}
PLAIN = {"gelu": "gelu_tanh", "relu": "relu", "relu2": "relu2", "silu": "silu"}
PLACES = ("pre", "post", "sandwich", "reordered", "parallel")


class Impossible(UsageError):
    """A variant that a contract cannot have, or whose budget no knob can match."""


def in_layers(model: Architecture, change: Callable[[Layer], Layer]) -> Architecture:
    """The contract with every layer changed."""
    return dataclasses.replace(model, layers=tuple(map(change, model.layers)))


def _mixer(model: Architecture, option: str) -> Architecture:
    """``mha``, ``gqa-8``, ``mqa``, ``mla`` or ``window-4096``, wherever there is softmax attention.

    ``gqa`` and ``window`` keep what the contract has until the cache's budget says how many.
    """
    match = re.fullmatch(r"(mha|mqa|mla|gqa|window)|(gqa|window)-([1-9]\d{0,8})", option, re.ASCII)
    if match is None:
        raise UsageError(f"mixer = {option!r} is none of mha, gqa-8, mqa, mla, window-4096")
    kind, number = match[1] or match[2], int(match[3] or 0)
    if not any(isinstance(layer.mixer, (DenseAttention, LatentAttention)) for layer in model.layers):
        raise Impossible(f"{model.name} has no softmax attention to vary")

    def change(layer: Layer) -> Layer:
        mixer = layer.mixer
        if not isinstance(mixer, (DenseAttention, LatentAttention)):
            return layer
        if kind == "mla":
            return dataclasses.replace(layer, mixer=_latent(mixer, layer.norm))
        dense = _dense(mixer)
        if kind == "window":
            width = number or dense.window or 1
            return dataclasses.replace(layer, mixer=dataclasses.replace(dense, window=width))
        kv_heads = {"mha": dense.n_heads, "mqa": 1}.get(kind, number or dense.n_kv_heads)
        return dataclasses.replace(layer, mixer=dataclasses.replace(dense, n_kv_heads=kv_heads))

    return in_layers(model, change)


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
        return in_layers(model, lambda layer: dataclasses.replace(layer, residual=option))  # type: ignore[arg-type]

    def change(norm: Norm) -> Norm:
        match option:
            case "rms":
                return RMSNorm(eps=norm.eps)
            case "layer" | "layer-nobias":
                return LayerNorm(eps=norm.eps, bias=option == "layer")
        raise UsageError(f"norm = {option!r} is none of rms, layer, layer-nobias, {', '.join(PLACES)}")

    final = None if model.final_norm is None else change(model.final_norm)
    changed = in_layers(model, lambda layer: dataclasses.replace(layer, norm=change(layer.norm)))
    return dataclasses.replace(changed, final_norm=final)


def _ffn(model: Architecture, option: str) -> Architecture:
    """``swiglu``, ``geglu``, ``reglu`` with a gate, ``gelu``, ``relu``, ``relu2``, ``silu`` without (Shazeer 2020)."""
    if option not in GATED and option not in PLAIN:
        raise UsageError(f"ffn = {option!r} is none of {', '.join([*GATED, *PLAIN])}")
    if not any(isinstance(layer.feed_forward, (FeedForward, Mixture)) for layer in model.layers):
        raise Impossible(f"{model.name} has no feed-forward to vary")
    fields = {"gated": option in GATED, "activation": {**PLAIN, **GATED}[option]}

    def change(layer: Layer) -> Layer:
        branch = layer.feed_forward
        if not isinstance(branch, (FeedForward, Mixture)):
            return layer
        return dataclasses.replace(layer, feed_forward=dataclasses.replace(branch, **fields))  # type: ignore[arg-type]

    return in_layers(model, change)


def _position(model: Architecture, option: str) -> Architecture:
    """``rope``, ``alibi``, ``learned`` or ``none``."""
    kinds: dict[str, Position | None] = {"rope": Rope(base=10_000.0), "alibi": Alibi(), "learned": None, "none": None}
    if option not in kinds:
        raise UsageError(f"position = {option!r} is none of {', '.join(kinds)}")
    if not any(isinstance(layer.mixer, DenseAttention) for layer in model.layers):
        raise Impossible(f"{model.name} has no dense attention, whose position may vary")
    if option == "learned" and model.max_positions is None:
        raise Impossible(f"{model.name} states no longest sequence for a table; set max_positions")

    def change(layer: Layer) -> Layer:
        if not isinstance(layer.mixer, DenseAttention):
            return layer
        keeps = option == "rope" and isinstance(layer.mixer.position, Rope)
        position = layer.mixer.position if keeps else kinds[option]
        return dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, position=position))

    rows = model.max_positions if option == "learned" else None
    embedding = dataclasses.replace(model.embedding, learned_positions=rows, position_offset=0, sinusoidal=False)
    return dataclasses.replace(in_layers(model, change), embedding=embedding)


AXES: dict[str, Callable[[Architecture, str], Architecture]] = {
    "mixer": _mixer,
    "norm": _norm,
    "ffn": _ffn,
    "position": _position,
}
"""What may be varied -> the function that changes a contract."""
