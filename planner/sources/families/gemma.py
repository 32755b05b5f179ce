"""Gemma: scaled embeddings, tied, norms stored as γ - 1; from 2 on sandwich norms and local layers."""

from __future__ import annotations

import math
from typing import Any

from planner.components.position import Rope
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read

WINDOWED, GLOBAL = "sliding_attention", "full_attention"


@family("gemma")
def gemma(c: Config) -> Architecture:
    """Gemma 1: pre-norm; the tanh form of GELU, whatever hidden_act says: the released weights were trained with it."""
    causal_only(c)
    norm = read.rms_norm(c, unit_offset=True)
    if not c.has("hidden_activation") and read.activation(c, "hidden_act", default="gelu_pytorch_tanh") == "gelu":
        c.note(
            f"{c.source}: hidden_act = 'gelu' is read as its tanh form, which the released weights were trained with"
        )
        act = "gelu_tanh"
    else:
        act = activation(c)
    mixer = read.attention(c, head_dim=read.head_dim(c, default=256), **read.biases("qkvo", c.flag("attention_bias")))
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c, activation=act), norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True, embedding=scaled(c))


@family("gemma2")
def gemma2(c: Config) -> Architecture:
    """Gemma 2: every other layer local, soft-capped scores and logits."""
    caps = {
        key: _stated_or(c, key, cap)
        for key, cap in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0))
    }
    types = read.kinds(c, read.local_every(c, 2))
    fields = {"position": read.rope(c, read.head_dim(c, default=256))}
    return _sandwich(c, types, {WINDOWED: fields, GLOBAL: fields}, caps)


@family("gemma3_text")
def gemma3(c: Config) -> Architecture:
    """Gemma 3: five local layers, then a global one; local ones keep the unscaled base; queries and keys are normed."""
    caps = {key: _stated_or(c, key, None) for key in ("attn_logit_softcapping", "final_logit_softcapping")}
    every = c.count("sliding_window_pattern", "_sliding_window_pattern", default=6)
    types = read.kinds(c, read.local_every(c, every))
    width = read.head_dim(c, default=256)
    local = local_rope(c, width)
    shared = {"qk_norm": read.rms_norm(c, unit_offset=True)}
    turned = read.rope(c, width, layer_type=GLOBAL, base=1_000_000.0)
    return _sandwich(c, types, {WINDOWED: {**shared, "position": local}, GLOBAL: {**shared, "position": turned}}, caps)


def local_rope(c: Config, width: int) -> Rope:
    """The rotation of local layers: a base of their own, and no scaling unless a table of theirs says so."""
    base = c.positive("rope_local_base_freq", default=10_000.0)
    return read.rope(c, width, layer_type=WINDOWED, base=base) if c.has("rope_parameters") else Rope(base=base)


def _sandwich(c: Config, types: list[str], per_kind: dict[str, dict[str, Any]], caps: dict[str, Any]) -> Architecture:
    """Local and global layers with norms on both sides of each branch (Gemma 2 and 3)."""
    causal_only(c)
    norm = read.rms_norm(c, unit_offset=True)
    act = activation(c)
    ff = read.feed_forward(c, activation=act)
    windows = read.windows(c, types, read.window(c, default=4096))
    fields = {
        "head_dim": read.head_dim(c, default=256),
        "scale": c.positive("query_pre_attn_scalar", default=256.0) ** -0.5,
        "soft_cap": caps["attn_logit_softcapping"],
        **read.biases("qkvo", c.flag("attention_bias")),
    }

    layers = read.by_type(types, read.windowed(c, windows, per_kind, **fields), ff, residual="sandwich", norm=norm)
    output = {"soft_cap": caps["final_logit_softcapping"]}
    return read.decoder(c, layers, norm, tied=True, embedding=scaled(c), output=output)


def activation(c: Config) -> Any:
    """hidden_activation goes before hidden_act, which older files keep beside it with another value."""
    name = "hidden_activation" if c.has("hidden_activation") else "hidden_act"
    c.ignore("hidden_act")
    return read.activation(c, name, default="gelu_pytorch_tanh")


def scaled(c: Config) -> dict[str, Any]:
    """The input side: token embeddings times the root of the width."""
    return {"scale": math.sqrt(read.d_model(c))}


def _stated_or(c: Config, key: str, default: float | None) -> float | None:
    """A positive number; null switches it off, an absent key leaves the family's own."""
    value: float | None = c.positive(key, default=None if c.stated(key) else default)
    return value


def causal_only(c: Config) -> None:
    """Refuse encoders; tick off what only concerns images and the framework's cache."""
    if c.raw("use_bidirectional_attention") not in (None, False, "vision"):
        raise c.refuse("use_bidirectional_attention makes an encoder of it, and this planner counts decoders")
    c.ignore("num_image_tokens", "sliding_window_size")
