"""Gemma 3n: alternating updates, low-rank residuals, embeddings for each layer, and upper layers without a cache."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from planner.components.dense_attention import DenseAttention
from planner.components.layer_embedding import LayerEmbedding, LayerInput
from planner.components.norm import RMSNorm
from planner.components.streams import AltUp, LowRankResidual
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.gemma import GLOBAL, WINDOWED, activation, local_rope

Kind = tuple[str, bool, int, float]  # layer type, whether it reads another layer's cache, feed-forward width, sparsity


@family("gemma3n_text")
def gemma3n(c: Config) -> Architecture:
    """Gemma 3n's text part: the last layers read keys and values of the last layer of their type before them."""
    norm, count = read.rms_norm(c), read.n_layers(c)
    types = read.kinds(c, read.local_every(c, 5), known=(WINDOWED, GLOBAL))
    shared = c.whole("num_kv_shared_layers", default=15)
    if shared >= count:
        raise c.refuse(f"num_kv_shared_layers = {shared} leaves none of {count} layers with keys and values")
    reads = [i >= count - shared for i in range(count)]
    widths = _for_each(c, "intermediate_size", count, int)
    sparse = _for_each(c, "activation_sparsity_pattern", count, float)
    if not c.has("activation_sparsity_pattern"):
        sparse = [0.95 if i < 10 < count else 0.0 for i in range(count)]
    kinds = [(types[i], reads[i], int(widths[i]), float(sparse[i])) for i in range(count)]
    labels = _labels(kinds)
    sources = {t: labels[[k for k in kinds if k[0] == t and not k[1]][-1]] for t in set(types[: count - shared])}
    act = activation(c)
    row = read.size(c, "hidden_size_per_layer_input", default=256)
    extras = (
        LowRankResidual(rank=read.size(c, "laurel_rank", default=64), norm=norm),
        LayerInput(width=row, activation=act, norm=norm),
    )

    def build(kind: Kind) -> Layer:
        return Layer(
            count=1,
            label=labels[kind],
            mixer=_mixer(c, kind, norm, sources),
            feed_forward=read.feed_forward(c, d_ff=kind[2], activation=act, sparsity=kind[3] or None),
            residual="sandwich",
            norm=norm,
            extras=extras,
        )

    table = LayerEmbedding(vocab_size=read.size(c, "vocab_size_per_layer_input", default=262_144), width=row, norm=norm)
    c.fixed("altup_active_idx", to=0)
    c.fixed("altup_correct_scale", to=True)
    c.ignore("altup_coef_clip", "altup_lr_multiplier", "query_pre_attn_scalar")
    architecture = read.decoder(
        c,
        read.stack(kinds, build),
        norm,
        tied=True,
        embedding={"scale": math.sqrt(read.d_model(c)), "layers": table},
        output={"soft_cap": c.positive("final_logit_softcapping", default=30.0)},
        streams=AltUp(n_streams=read.size(c, "altup_num_inputs", default=4), norm=norm),
    )
    return architecture


def _for_each(c: Config, name: str, count: int, of: type) -> list[Any]:
    """A number for every layer, or one for all; widths have to be there."""
    if isinstance(c.raw(name), list):
        values = c.list(name, of=of) or []
    else:
        values = [c.count(name) if of is int else c.number(name, default=0.0)] * count
    if len(values) != count:
        raise c.refuse(f"{name} has {len(values)} entries for {count} layers")
    return values


def _labels(kinds: list[Kind]) -> dict[Kind, str]:
    """``local`` or ``global``, with ``reader`` behind it where there is no cache; numbered where layers differ."""
    alike: dict[str, list[Kind]] = {}
    for kind in dict.fromkeys(kinds):
        alike.setdefault(read.LABELS[kind[0]] + ("_reader" if kind[1] else ""), []).append(kind)
    return {
        kind: f"{name}{i}" if len(same) > 1 else name for name, same in alike.items() for i, kind in enumerate(same, 1)
    }


def _mixer(c: Config, kind: Kind, norm: RMSNorm, sources: dict[str, str]) -> DenseAttention:
    """Attention without score scale, values normed without weights; a reader has neither keys nor values of its own."""
    local = kind[0] == WINDOWED
    width = read.head_dim(c, default=256)
    position = read.rope(c, width, layer_type=kind[0], base=1_000_000.0) if not local else local_rope(c, width)
    if kind[1] and kind[0] not in sources:
        raise c.refuse(f"num_kv_shared_layers leaves no {kind[0]} layer with keys and values to read")
    return read.attention(
        c,
        head_dim=width,
        window=read.size(c, "sliding_window", default=512) if local else None,
        position=position,
        qk_norm=norm,
        v_norm=dataclasses.replace(norm, weight=False),
        kv_source=sources[kind[0]] if kind[1] else None,
        scale=1.0,
        **read.biases("qkvo", c.flag("attention_bias")),
    )
