"""Gemma 2 and 3: sandwich norms stored as γ - 1, scaled embeddings, local layers between global ones."""

from __future__ import annotations

import math
from typing import Any

from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read


def _gemma(c: Config, default: list[str], local: dict[str, Any], shared: dict[str, Any], tied: bool = True) -> Architecture:
    norm = read.rms_norm(c, unit_offset=True)
    ff = read.feed_forward(c, activation=read.activation(c, "hidden_activation", "hidden_act", default="gelu_pytorch_tanh"))
    window = c.whole("sliding_window", default=4096)
    fields = {
        "head_dim": c.whole("head_dim", default=256),
        "scale": c.number("query_pre_attn_scalar", default=256.0) ** -0.5,
        "soft_cap": c.number("attn_logit_softcapping", default=None),
        **read.biases("qkvo", c.flag("attention_bias")),
        **shared,
    }
    mixers = {
        "sliding_attention": read.attention(c, window=window, **{**fields, **local}),
        "full_attention": read.attention(c, **fields),
    }
    labels = {"sliding_attention": "local", "full_attention": "global"}
    layers = [
        Layer(count=1, label=labels[kind], mixer=mixers[kind], feed_forward=ff, residual="sandwich", norm=norm)
        for kind in read.kinds(c, default)
    ]
    return read.decoder(
        c,
        layers,
        norm,
        tied=tied,
        embedding={"scale": math.sqrt(read.d_model(c))},
        output={"soft_cap": c.number("final_logit_softcapping", default=None)},
    )


@family("gemma2")
def gemma2(c: Config) -> Architecture:
    """Gemma 2: every other layer local, soft-capped scores and logits (the file omits neither, older copies do)."""
    for key, cap in (("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0)):
        c.table.setdefault(key, cap)
    kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(read.n_layers(c))]
    return _gemma(c, kinds, {}, {})


@family("gemma3_text")
def gemma3(c: Config) -> Architecture:
    """Gemma 3: five local layers, then a global one; local layers keep the unscaled base."""
    every = c.whole("sliding_window_pattern", "_sliding_window_pattern", default=6)
    kinds = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(read.n_layers(c))]
    width = c.whole("head_dim", default=256)
    table = c.table_of("rope_parameters") or {}
    local_base = c.number("rope_local_base_freq", default=10_000.0)
    local = read.rope(c, width, layer_type="sliding_attention", base=local_base, scaled="sliding_attention" in table)
    if "sliding_attention" not in table:
        local = type(local)(base=local_base)
    position = read.rope(c, width, layer_type="full_attention", base=1_000_000.0)
    c.table.setdefault("head_dim", 256)
    return _gemma(c, kinds, {"position": local}, {"position": position, "qk_norm": read.rms_norm(c, unit_offset=True)})
