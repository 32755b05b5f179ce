"""What the families share: the usual keys of attention, feed-forward, experts and rotary embedding."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from planner.components import position
from planner.components.dense_attention import DenseAttention
from planner.components.embedding import Embedding, Output
from planner.components.feed_forward import FeedForward
from planner.components.mixture import Mixture
from planner.components.norm import LayerNorm, Norm, RMSNorm
from planner.components.position import Rope, RopeScaling
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config
from planner.spec import shown

ACTIVATIONS = {
    "relu": "relu",
    "relu2": "relu2",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "gelu_quick",
    "silu": "silu",
    "swish": "silu",
    "swiglu": "silu",
}


def activation(c: Config, *names: str, default: Any = None) -> Any:
    """The activation's name as the contract writes it."""
    name = c.text(*(names or ("hidden_act", "hidden_activation")), default=default)
    if name not in ACTIVATIONS:
        raise c.refuse(f"{names[0] if names else 'hidden_act'} = {shown(name)} is none of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def rms_norm(c: Config, default: float = 1e-6, **fields: Any) -> RMSNorm:
    return RMSNorm(eps=c.number("rms_norm_eps", "norm_eps", default=default), **fields)


def layer_norm(c: Config, *names: str, default: float = 1e-5, **fields: Any) -> LayerNorm:
    return LayerNorm(eps=c.number(*(names or ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon")), default=default), **fields)


def n_layers(c: Config) -> int:
    count: int = c.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    return count


def d_model(c: Config) -> int:
    width: int = c.whole("hidden_size", "n_embd", "d_model")
    return width


def n_heads(c: Config) -> int:
    count: int = c.whole("num_attention_heads", "n_head", "n_heads")
    if count < 1:
        raise c.refuse(f"num_attention_heads = {count} is not at least 1")
    return count


def head_dim(c: Config) -> int:
    """The head width that the file states, else width over heads, which then has to come out whole."""
    stated = c.whole("head_dim", default=None)
    if stated is not None:
        return int(stated)
    width, heads = d_model(c), n_heads(c)
    if width % heads:
        raise c.refuse(f"num_attention_heads = {heads} does not divide hidden_size = {width}, and head_dim is missing")
    return width // heads


def rope_scaling(c: Config, table: dict[str, Any]) -> RopeScaling | None:
    """The scaling rule of a rope_scaling or rope_parameters table."""
    kind = table.get("rope_type", table.get("type", "default"))
    inner = Config({"model_type": c.model_type, **table}, f"{c.source}: rope_scaling")
    if kind in ("default", "mrope", None):
        return None
    original = {"original_positions": inner.whole("original_max_position_embeddings", default=None) or max_positions(c)}
    factor: dict[str, Any] = {"factor": inner.number("factor", default=None)}
    match kind:
        case "linear":
            return position.Linear(**factor)
        case "dynamic":
            return position.Dynamic(**factor, **original)
        case "llama3":
            low, high = inner.number("low_freq_factor"), inner.number("high_freq_factor")
            return position.Llama3(**factor, **original, low_freq_factor=low, high_freq_factor=high)
        case "yarn":
            return position.Yarn(
                **factor,
                **original,
                beta_fast=inner.number("beta_fast", default=32.0),
                beta_slow=inner.number("beta_slow", default=1.0),
                mscale=inner.number("mscale", default=None),
                mscale_all_dim=inner.number("mscale_all_dim", default=None),
                attention_factor=inner.number("attention_factor", default=None),
                truncate=inner.flag("truncate", default=True),
            )
        case "longrope" | "su":
            before = inner.whole("original_max_position_embeddings", default=None) or c.whole(
                "original_max_position_embeddings", default=max_positions(c)
            )
            return position.LongRope(
                factor=factor["factor"] or max_positions(c) / before,
                original_positions=before,
                short_factors=tuple(inner.raw("short_factor", default=())),
                long_factors=tuple(inner.raw("long_factor", default=())),
                attention_factor=inner.number("attention_factor", default=None),
            )
    raise c.refuse(f"rope_scaling: rope_type = {shown(kind)} is none of default, linear, dynamic, yarn, llama3, longrope")


def rope(
    c: Config,
    width: int,
    *,
    layer_type: str | None = None,
    base: float = 10_000.0,
    partial: float = 1.0,
    interleaved: bool = False,
    scaled: bool = True,
) -> Rope:
    """Rotary embedding from rope_theta, rope_scaling and partial_rotary_factor, or from rope_parameters, whole or by layer type."""
    table = c.table_of("rope_parameters") or {}
    if layer_type in table:
        table = table[layer_type]
    old = c.table_of("rope_scaling") or {}
    theta = c.number("rope_theta", "rotary_emb_base", default=table.get("rope_theta", old.get("rope_theta", base)))
    share = c.number("partial_rotary_factor", "rotary_pct", "rope_pct", default=table.get("partial_rotary_factor", partial))
    turned = int(width * share)
    return Rope(
        base=float(theta),
        width=None if turned == width else turned,
        interleaved=interleaved,
        scaling=rope_scaling(c, table or old) if scaled else None,
    )


def attention(c: Config, **fields: Any) -> DenseAttention:
    """Dense attention from the usual keys; `fields` replace or add."""
    width = fields.pop("head_dim", None) or head_dim(c)
    heads = fields.pop("n_heads", None) or n_heads(c)
    kv_heads = fields.pop("n_kv_heads", None) or c.whole("num_key_value_heads", default=heads)
    if "position" not in fields:
        fields["position"] = rope(c, width)
    return DenseAttention(n_heads=heads, n_kv_heads=kv_heads, head_dim=width, **fields)


def biases(which: str, on: bool) -> dict[str, bool]:
    """``biases("qkv", True)`` -> q_bias, k_bias and v_bias."""
    return {f"{name}_bias": on for name in which}


def feed_forward(c: Config, **fields: Any) -> FeedForward:
    """Dense feed-forward from the usual keys."""
    fields.setdefault("activation", activation(c, default="silu"))
    width = fields.pop("d_ff", None) or c.whole("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    return FeedForward(d_ff=width, **fields)


def mixture(c: Config, **fields: Any) -> Mixture:
    """Mixture of experts from the usual keys; its shared experts are `n_shared_experts` of an expert's width."""
    fields.setdefault("activation", activation(c, default="silu"))
    width = fields.pop("d_ff", None) or c.whole("moe_intermediate_size", "intermediate_size")
    n_experts = c.whole("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    top_k = c.whole("num_experts_per_tok", "moe_top_k", "moe_k", "experts_per_token", "num_experts_per_token")
    shared = c.whole("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts", default=0)
    fields.setdefault("d_ff_shared", shared * width)
    return Mixture(n_experts=n_experts, top_k=top_k, d_ff=width, **fields)


def max_positions(c: Config) -> int | None:
    value = c.whole("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", default=None)
    return value or None


def kinds(c: Config, default: Sequence[str]) -> list[str]:
    """layer_types as the file states them, else the family's own pattern."""
    stated = c.list("layer_types", of=str)
    if stated is not None and len(stated) != n_layers(c):
        raise c.refuse(f"layer_types has {len(stated)} entries for {n_layers(c)} layers")
    return list(stated if stated is not None else default)


def grouped(layers: Iterable[Layer]) -> dict[str, Any]:
    """Single layers in order -> the groups and, where equal layers do not stand together, the pattern."""
    order = list(layers)
    groups: list[Layer] = []
    index: list[int] = []
    for layer in order:
        if layer not in groups:
            groups.append(layer)
        index.append(groups.index(layer))
    sized = [dataclasses.replace(group, count=index.count(i)) for i, group in enumerate(groups)]
    if index == sorted(index):
        return {"layers": tuple(sized)}
    period = next(p for p in range(1, len(index) + 1) if all(x == index[i % p] for i, x in enumerate(index)))
    names = _labels(groups)
    labelled = tuple(dataclasses.replace(group, label=name) for group, name in zip(sized, names, strict=True))
    return {"layers": labelled, "pattern": tuple(names[i] for i in index[:period])}


def _labels(groups: Sequence[Layer]) -> list[str]:
    """The label each layer came with, numbered where two came with the same."""
    names: list[str] = []
    for i, group in enumerate(groups):
        name = group.label or f"kind{i}"
        taken = sum(1 for other in groups[:i] if (other.label or "") == group.label)
        names.append(f"{name}{taken + 1}" if taken else name)
    return names


def decoder(c: Config, layers: Iterable[Layer], final_norm: Norm | None, *, tied: bool = False, **fields: Any) -> Architecture:
    """The whole contract from its layers and the usual keys of both ends."""
    output: dict[str, Any] = {"tied": c.flag("tie_word_embeddings", "tie_embedding", default=tied), **fields.pop("output", {})}
    embedding = fields.pop("embedding", {})
    if fields.get("documents") is None:
        fields.pop("documents", None)
    dtype = c.text("torch_dtype", "dtype", default="bfloat16")
    return Architecture(
        name=c.model_type,
        vocab_size=c.whole("vocab_size"),
        d_model=d_model(c),
        embedding=Embedding(**embedding),
        **grouped(layers),
        final_norm=final_norm,
        output=Output(**output),
        max_positions=max_positions(c),
        weights={"float32": "fp32", "float16": "fp16"}.get(dtype.removeprefix("torch."), "bf16"),
        **fields,
    )


def each(c: Config, layer: Layer) -> list[Layer]:
    """The same layer all the way up."""
    return [layer] * n_layers(c)
