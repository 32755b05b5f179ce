"""What the families share: the usual keys of attention, feed-forward, experts and both ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from planner.components.dense_attention import DenseAttention
from planner.components.embedding import Embedding, Output
from planner.components.feed_forward import FeedForward
from planner.components.mixture import Mixture
from planner.components.norm import LayerNorm, Norm, RMSNorm
from planner.contract import Architecture, Layer, MultiToken
from planner.sources.config_table import Config
from planner.sources.families.class_values import GROUPED, SHARED_EXPERTS
from planner.sources.families.layering import (
    LABELS,
    MOST_LAYERS,
    by_kind,
    by_type,
    each,
    grouped,
    kinds,
    local_every,
    n_layers,
    stack,
    turning,
    windows,
)
from planner.sources.families.rotary import max_positions, rope, rope_table
from planner.spec import shown

__all__ = [
    "LABELS",
    "MOST_LAYERS",
    "by_kind",
    "by_type",
    "each",
    "kinds",
    "local_every",
    "max_positions",
    "n_layers",
    "rope",
    "rope_table",
    "stack",
    "turning",
    "windows",
]

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
    "xielu": "xielu",
}

WEIGHTS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float8_e4m3fn": "fp8",
}


def size(c: Config, *names: str, default: int) -> int:
    """A size that the family's files nearly always state; where one does not, the class's own is taken and said."""
    if not c.has(*names):
        c.assume(names[0], default)
    count: int = c.count(*names)
    return count


def activation(c: Config, *names: str, default: Any = None) -> Any:
    """The activation's name as the contract writes it."""
    names = names or ("hidden_act", "hidden_activation")
    name = c.text(*names, default=default)
    if name not in ACTIVATIONS:
        raise c.refuse(f"{names[0]} = {shown(name)} is none of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def rms_norm(c: Config, default: float = 1e-6, **fields: Any) -> RMSNorm:
    """RMSNorm with the file's epsilon."""
    return RMSNorm(eps=c.positive("rms_norm_eps", "norm_eps", "layernorm_epsilon", default=default), **fields)


def layer_norm(c: Config, *names: str, default: float = 1e-5, **fields: Any) -> LayerNorm:
    """LayerNorm with the file's epsilon."""
    names = names or ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps")
    return LayerNorm(eps=c.positive(*names, default=default), **fields)


def d_model(c: Config) -> int:
    """The width of the residual stream."""
    width: int = c.count("hidden_size", "n_embd", "n_embed", "d_model")
    return width


def n_heads(c: Config) -> int:
    """Query heads."""
    count: int = c.count("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
    return count


def head_dim(c: Config, default: int | None = None) -> int:
    """The head width that the file states, else the family's own; with neither, or null, width over heads, if whole."""
    stated: int | None = c.count("head_dim", default=None if c.stated("head_dim") else default)
    if stated is not None:
        return stated
    width, heads = d_model(c), n_heads(c)
    if width % heads:
        raise c.refuse(f"num_attention_heads = {heads} does not divide hidden_size = {width}, and head_dim is missing")
    return width // heads


def equal_heads(c: Config, default: int | None = None) -> int:
    """The head width of a family whose heads share the model's width out: another one is refused."""
    width, heads, stated = d_model(c), n_heads(c), head_dim(c, default)
    if stated * heads != width:
        rule = f"hidden_size = {width}, as {c.model_type} has it"
        raise c.refuse(f"head_dim = {stated} times num_attention_heads = {heads} is not {rule}")
    return stated


def kv_heads(c: Config) -> int:
    """Key and value heads: null, or no word where the family does not always group them, is one for each query head."""
    names = ("num_key_value_heads", "n_head_kv", "num_kv_heads")
    grouped = c.model_type in GROUPED and not c.stated(names[0])
    count: int = c.count(*names) if grouped else c.count(*names, default=n_heads(c))
    return count


def attention(c: Config, **fields: Any) -> DenseAttention:
    """Dense attention from the usual keys; `fields` replace or add."""
    width = fields.pop("head_dim", None) or head_dim(c)
    heads = fields.pop("n_heads", None) or n_heads(c)
    n_kv_heads = fields.pop("n_kv_heads", None) or kv_heads(c)
    if "position" not in fields:
        fields["position"] = rope(c, width)
    return DenseAttention(n_heads=heads, n_kv_heads=n_kv_heads, head_dim=width, **fields)


def windowed(
    c: Config,
    windows: Mapping[str, int | None],
    per_kind: Mapping[str, dict[str, Any]] | None = None,
    /,
    **fields: Any,
) -> dict[str, DenseAttention]:
    """The attention of each layer type, with its window; `per_kind` has what else differs between them."""
    return {
        kind: attention(c, window=width, **fields, **(per_kind or {}).get(kind, {})) for kind, width in windows.items()
    }


def q_lora_rank(c: Config) -> int | None:
    """The width of the query's latent; null says that there is none, so that the key may not be absent."""
    if not c.stated("q_lora_rank"):
        raise c.refuse("q_lora_rank is missing; null says that queries have no latent")
    rank: int | None = c.count("q_lora_rank", default=None)
    return rank


def biases(which: str, on: bool) -> dict[str, bool]:
    """``biases("qkv", True)`` -> q_bias, k_bias and v_bias."""
    return {f"{name}_bias": on for name in which}


def four_times(c: Config, *names: str) -> int:
    """The inner width of a feed-forward that is four times the model's where the file has none."""
    width: int = c.count(*names, default=4 * d_model(c))
    return width


def window(c: Config, default: int | None = None) -> int | None:
    """sliding_window: null or 0 is no window; without the key, the family's own."""
    width: int | None = c.whole("sliding_window", default=None if c.stated("sliding_window") else default)
    return width or None


def feed_forward(c: Config, **fields: Any) -> FeedForward:
    """Dense feed-forward from the usual keys."""
    if "activation" not in fields:
        fields["activation"] = activation(c, default="silu")
    width = fields.pop("d_ff", None) or c.count("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    return FeedForward(d_ff=width, **fields)


def mixture(c: Config, **fields: Any) -> Mixture:
    """Mixture of experts from the usual keys; its shared experts are `n_shared_experts` of an expert's width."""
    if "activation" not in fields:
        fields["activation"] = activation(c, default="silu")
    width = fields.pop("d_ff", None) or c.count("moe_intermediate_size", "intermediate_size")
    n_experts = c.count("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
    top_k = fields.pop("top_k", None) or c.count(
        "num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "experts_per_token"
    )
    if "d_ff_shared" not in fields:
        names = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
        fields["d_ff_shared"] = width * shared_experts(c, *names)
    return Mixture(n_experts=n_experts, top_k=top_k, d_ff=width, **fields)


def shared_experts(c: Config, *names: str) -> int:
    """How many shared experts: null is none; without the key, the family's own, and it is said."""
    if not any(c.stated(name) for name in names) and c.model_type in SHARED_EXPERTS:
        c.assume(names[0], SHARED_EXPERTS[c.model_type])
    count: int = c.whole(*names, default=0)
    return count


def per_layer(c: Config, name: str) -> int | None:
    """A whole number that some files write once for each layer; the numbers have to be equal."""
    if not isinstance(c.raw(name), list):
        count: int | None = c.whole(name, default=None)
        return count
    values = c.list(name) or []
    if len(set(values)) != 1 or len(values) != n_layers(c):
        raise c.refuse(f"{name} = {shown(values)} is not one number, equal for all {n_layers(c)} layers")
    return int(values[0])


def multi_token(c: Config, layer: Layer, *, own_tables: bool = False) -> MultiToken | None:
    """The multi-token-prediction modules behind the decoder, as many as the file states."""
    count = c.whole("num_nextn_predict_layers", "num_mtp_layers", default=0)
    return (
        MultiToken(count=count, layer=dataclasses.replace(layer, label=None), own_tables=own_tables) if count else None
    )


def without_multi_token(c: Config) -> None:
    """Say that modules for multi-token prediction are left out, where the file states any."""
    if c.whole("num_nextn_predict_layers", "num_mtp_layers", default=0):
        c.note(f"{c.source}: modules for multi-token prediction are left out; they are not built for {c.model_type}")


def decoder(
    c: Config, layers: Sequence[Layer], final_norm: Norm | None, *, tied: bool = False, **fields: Any
) -> Architecture:
    """The whole contract from its layers and the usual keys of both ends."""
    output: dict[str, Any] = {
        "tied": c.flag("tie_word_embeddings", "tie_embedding", default=tied),
        **fields.pop("output", {}),
    }
    return Architecture(
        name=c.model_type,
        vocab_size=c.count("vocab_size"),
        d_model=d_model(c),
        embedding=Embedding(**fields.pop("embedding", {})),
        **grouped(layers),
        final_norm=final_norm,
        output=Output(**output),
        max_positions=max_positions(c),
        weights=weights(c),
        **fields,
    )


def weights(c: Config) -> str:
    """The checkpoint's format by torch_dtype; it says nothing of the cache."""
    dtype = c.text("dtype", "torch_dtype", default=None)
    if dtype is None:
        return "bf16"
    known = WEIGHTS.get(dtype.removeprefix("torch."))
    if known is None:
        c.note(f"{c.source}: torch_dtype = {shown(dtype)} is no format of weights; taken as bf16")
    return known or "bf16"
