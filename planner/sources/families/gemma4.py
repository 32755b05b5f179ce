"""Gemma 4: wider global heads, experts beside the dense branch, layer embeddings, upper layers without a cache."""

from __future__ import annotations

from typing import Any

from planner.components.base import PositionWise
from planner.components.dense_and_mixture import DenseAndMixture
from planner.components.dense_attention import DenseAttention
from planner.components.layer_embedding import LayerEmbedding, LayerInput
from planner.components.norm import RMSNorm
from planner.components.position import Rope
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.gemma import GLOBAL, WINDOWED, activation, causal_only, scaled
from planner.spec import shown

Kind = tuple[str, bool]  # layer type, and whether it reads the keys and values of the last such layer before it


@family("gemma4_text", "gemma4_unified_text")
def gemma4(c: Config) -> Architecture:
    """Gemma 4's text part: sandwich norms, unscaled scores, normed values, a stored scalar on each layer's output."""
    causal_only(c)
    norm, count = read.rms_norm(c), read.n_layers(c)
    types = read.kinds(c, read.local_every(c, 6))
    if types[-1] != GLOBAL:
        c.note(f"{c.source}: the last layer is global, whatever layer_types says of it")
        types[-1] = GLOBAL
    unified = c.model_type == "gemma4_unified_text"  # without layer embeddings
    windows = read.windows(c, types, read.window(c, default=1024 if unified else 512))
    own = count - c.whole("num_kv_shared_layers", default=0)
    if own < 1 or set(types[:own]) != set(types):
        raise c.refuse(f"num_kv_shared_layers leaves {own} of {count} layers; each type needs keys of its own")
    doubled = c.flag("use_double_wide_mlp")
    row = c.whole("hidden_size_per_layer_input", default=0 if unified else 256)
    act = activation(c)
    extras = (LayerInput(width=row, activation=act, norm=norm),) if row else ()

    def build(kind: Kind) -> Layer:
        reader = kind[1]
        return Layer(
            count=1,
            label=read.LABELS[kind[0]] + ("_reader" if reader else ""),
            mixer=_mixer(c, norm, types, windows[kind[0]], read.LABELS[kind[0]] if reader else None),
            feed_forward=_feed_forward(c, norm, act, wide=doubled and reader),
            residual="sandwich",
            norm=norm,
            output_scale=True,
            extras=extras,
        )

    size = c.count("vocab_size_per_layer_input", default=262_144)
    table = LayerEmbedding(vocab_size=size, width=row, norm=norm) if row else None
    return read.decoder(
        c,
        read.stack([(kind, i >= own) for i, kind in enumerate(types)], build),
        norm,
        tied=True,
        embedding={**scaled(c), "layers": table},
        output={"soft_cap": c.positive("final_logit_softcapping", default=None)},
    )


def _mixer(c: Config, norm: RMSNorm, types: list[str], window: int | None, source: str | None) -> DenseAttention:
    """Local attention, or global with heads of another width; its values may be its keys before norm and rotation."""
    fields: dict[str, Any] = {
        "scale": 1.0,
        "qk_norm": norm,
        "v_norm": RMSNorm(eps=norm.eps, weight=False),
        "kv_source": source,
        **read.biases("qkvo", c.flag("attention_bias")),
    }
    width = read.head_dim(c, default=256)
    alone, (wide, of_globals) = c.flag("attention_k_eq_v"), _of_globals(c, width, types)
    if window is not None:
        return read.attention(c, head_dim=width, window=window, position=_rope(c, width, WINDOWED), **fields)
    heads = of_globals if alone else None
    return read.attention(c, head_dim=wide, n_kv_heads=heads, position=_rope(c, wide, GLOBAL), v_from_k=alone, **fields)


def _of_globals(c: Config, width: int, types: list[str]) -> tuple[int, int | None]:
    """Head width and own KV heads of global layers; newer files have both in per_layer_config, under each index."""
    wide = c.count("global_head_dim", default=width if c.stated("global_head_dim") else 512)
    heads: int | None = c.count("num_global_key_value_heads", default=None)
    layers = c.table_of("per_layer_config")
    if not layers:
        return (width, None) if c.stated("per_layer_config") else (wide, heads)
    first, *others = layers.values()
    at = sorted(int(key) for key in layers if key.isascii() and key.isdigit() and len(key) < 6)
    if at != [i for i, kind in enumerate(types) if kind == GLOBAL] or any(other != first for other in others):
        raise c.refuse("per_layer_config has other layers than the global ones, or different ones")
    if not isinstance(first, dict) or set(first) - {"head_dim", "num_key_value_heads"}:
        raise c.refuse(f"per_layer_config: {shown(first)} has more than head_dim and num_key_value_heads")
    own = Config({"model_type": c.model_type, **first}, f"{c.source}: per_layer_config")
    return own.count("head_dim", default=width), own.count("num_key_value_heads", default=None)


def _rope(c: Config, width: int, kind: str) -> Rope:
    """The two tables of rope_parameters; without them the class's own."""
    table: dict[str, Any] = {"rope_theta": 10_000.0}
    if kind == GLOBAL:
        table = {"rope_theta": 1_000_000.0, "rope_type": "proportional", "partial_rotary_factor": 0.25}
    return read.rope(c, width, layer_type=kind, default=table)


def _feed_forward(c: Config, norm: RMSNorm, act: Any, *, wide: bool) -> PositionWise:
    """The dense branch, twice as wide in readers if the file says so, and experts beside it if it enables them."""
    dense = read.feed_forward(c, activation=act, d_ff=(2 if wide else 1) * c.count("intermediate_size"))
    if not c.flag("enable_moe_block"):
        c.ignore("moe_intermediate_size", "num_experts", "top_k_experts")
        return dense
    experts = read.mixture(
        c,
        d_ff=c.count("moe_intermediate_size"),
        top_k=c.count("top_k_experts"),
        activation=act,
        router_norm=norm,
        router_scale=read.d_model(c) ** -0.5,
        expert_scale=True,
    )
    return DenseAndMixture(dense=dense, mixture=experts, norm=norm)
