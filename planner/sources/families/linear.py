"""Attention between cheaper mixers: delta nets, lightning attention, short convolutions, gated recurrences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from planner.components.base import Mixer, PositionWise
from planner.components.gated_recurrence import GatedRecurrence
from planner.components.linear_attention import GatedDeltaNet, KimiDeltaAttention, LightningAttention
from planner.components.mixture import Mixture
from planner.components.norm import RMSNorm
from planner.components.position import Rope
from planner.components.short_convolution import ShortConvolution
from planner.contract import Architecture, Layer, MultiToken
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.sparse import deepseek_mixture, latent_attention, routed_layers

LINEAR, FULL, CONVOLUTION = "linear_attention", "full_attention", "conv"
LABELS = {LINEAR: "linear", FULL: "global", CONVOLUTION: "convolution"}


@family("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
def qwen3_next(c: Config) -> Architecture:
    """Qwen3-Next and Qwen3.5: three gated delta nets, then attention whose output is gated; norms stored as γ - 1."""
    norm, width, count = read.rms_norm(c, unit_offset=True), read.head_dim(c, default=256), read.n_layers(c)
    c.fixed("attn_output_gate", to=True)
    c.fixed("use_sliding_window", to=False)
    c.ignore("mamba_ssm_dtype", "sliding_window", "max_window_layers")
    attention = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, partial=0.25),
        qk_norm=norm,
        output_gate=True,
        **read.biases("qkvo", c.flag("attention_bias")),
    )
    mixers: dict[str, Mixer] = {FULL: attention, LINEAR: _delta_net(c)}
    dense, experts = _qwen_branches(c)
    every = c.count("full_attention_interval", default=4)
    types = read.kinds(c, [FULL if (i + 1) % every == 0 else LINEAR for i in range(count)], known=(LINEAR, FULL))
    step, dense_ones = c.count("decoder_sparse_step", default=1), set(c.list("mlp_only_layers") or ())
    routed = [experts is not None and i not in dense_ones and (i + 1) % step == 0 for i in range(count)]

    if dense is None and not all(routed):
        raise c.refuse("intermediate_size is missing, and some layers have no experts")
    layers = read.by_kind(types, mixers, routed, dense, experts, labels=LABELS, norm=norm)
    return read.decoder(c, layers, norm, mtp=_qwen_mtp(c, attention, experts or dense, norm))


def _delta_net(c: Config) -> GatedDeltaNet:
    return GatedDeltaNet(
        n_key_heads=read.size(c, "linear_num_key_heads", default=16),
        n_value_heads=read.size(c, "linear_num_value_heads", default=32),
        key_head_dim=read.size(c, "linear_key_head_dim", default=128),
        value_head_dim=read.size(c, "linear_value_head_dim", default=128),
        conv_kernel=read.size(c, "linear_conv_kernel_dim", default=4),
        norm=read.rms_norm(c),
    )


def _qwen_branches(c: Config) -> tuple[PositionWise | None, Mixture | None]:
    """The dense feed-forward, where there is one, and the experts with their gated shared one."""
    dense = read.feed_forward(c) if c.has("intermediate_size") else None
    if c.model_type == "qwen3_5_text":
        return dense or read.feed_forward(c), None
    experts = read.mixture(
        c,
        d_ff=c.count("moe_intermediate_size"),
        d_ff_shared=c.count("shared_expert_intermediate_size"),
        shared_gate=True,
        normalised=c.flag("norm_topk_prob", default=True),
    )
    return dense, experts


def _qwen_mtp(c: Config, mixer: Mixer, ff: PositionWise | None, norm: RMSNorm) -> MultiToken | None:
    """Qwen3.5 states its modules; Qwen3-Next's checkpoint has one, without a word in its config."""
    count = c.whole("mtp_num_hidden_layers", default=1 if c.model_type == "qwen3_next" else 0)
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    own = c.flag("mtp_use_dedicated_embeddings")
    return MultiToken(count=count, layer=layer, own_tables=own) if count else None


@family("kimi_linear")
def kimi_linear(c: Config) -> Architecture:
    """Kimi Linear: three of Kimi's delta attentions, then latent attention that turns nothing; DeepSeek-V3's experts.

    Kimi K3's text part has the same model_type and other layers, which are refused.
    """
    c.fixed("mla_use_nope", "use_grouped_topk", to=True)
    c.fixed("mla_use_output_gate", "latent_moe_use_norm", to=False)
    c.fixed("attn_res_block_size", "routed_expert_hidden_size", to=None)
    norm, inner = read.rms_norm(c, default=1e-5), c.inner("linear_attn_config")
    mixers: dict[str, Mixer] = {
        FULL: dataclasses.replace(latent_attention(c), position=None),
        LINEAR: _kimi_delta(c, inner, norm),
    }
    types = read.kinds(c, _kimi_types(c, inner), known=(LINEAR, FULL))
    dense, experts = read.feed_forward(c), deepseek_mixture(c)
    layers = read.by_kind(types, mixers, routed_layers(c, 1), dense, experts, labels=LABELS, norm=norm)
    read.without_multi_token(c)
    length = c.count("model_max_length", "max_position_embeddings", default=None)
    return dataclasses.replace(read.decoder(c, layers, norm), max_positions=length)


def _kimi_delta(c: Config, inner: Config, norm: RMSNorm) -> KimiDeltaAttention:
    """Sizes stand in a table of their own, or beside the others where the file was written anew."""
    inner.fixed("use_full_rank_gate", to=False)
    inner.fixed("gate_lower_bound", to=None)

    def size(name: str, beside: str, default: int) -> int:
        return inner.count(name, default=None) or read.size(c, beside, default=default)

    return KimiDeltaAttention(
        n_heads=size("num_heads", "linear_num_heads", 32),
        head_dim=size("head_dim", "linear_head_dim", 128),
        conv_kernel=size("short_conv_kernel_size", "linear_conv_kernel_dim", 4),
        norm=norm,
    )


def _kimi_types(c: Config, inner: Config) -> list[str]:
    """The layers of each kind by number, from 1; without them, the class's own: latent attention from the fifth on."""
    count, full, linear = read.n_layers(c), inner.list("full_attn_layers"), inner.list("kda_layers")
    if full is None or linear is None:
        return [FULL if i and i % 4 == 0 else LINEAR for i in range(count)]
    if sorted(full + linear) != list(range(1, count + 1)):
        raise inner.refuse(f"full_attn_layers and kda_layers do not name each of the {count} layers once")
    return [FULL if i + 1 in full else LINEAR for i in range(count)]


@family("minimax", "minimax_text_01", "minimax_m1")
def minimax(c: Config) -> Architecture:
    """MiniMax-01: seven layers of lightning attention, then softmax attention; each norm's output is the residual."""
    norm, width, count = read.rms_norm(c, default=1e-5), read.head_dim(c), read.n_layers(c)
    mixers: dict[str, Mixer] = {
        FULL: read.attention(c, head_dim=width, position=_minimax_rope(c, width)),
        LINEAR: LightningAttention(n_heads=read.n_heads(c), head_dim=width, norm=norm),
    }
    c.ignore("block_size", "router_jitter_noise", "shared_moe_mode")
    c.fixed("sliding_window", to=None)
    c.fixed("postnorm", to=True)
    c.fixed("shared_intermediate_size", to=0)
    old = c.list("attn_type_list")
    if old is not None and len(old) != count:
        raise c.refuse(f"attn_type_list has {len(old)} entries for {count} layers")
    default = [FULL if kind else LINEAR for kind in old] if old else [LINEAR if i % 2 else FULL for i in range(count)]
    types = read.kinds(c, default, known=(LINEAR, FULL))
    stream = {kind: _minimax_scale(c, kind, "alpha") for kind in (FULL, LINEAR)}
    branch = {kind: _minimax_scale(c, kind, "beta") for kind in (FULL, LINEAR)}
    experts = read.mixture(c)

    def build(kind: str) -> Layer:
        return Layer(
            count=1,
            label=LABELS[kind],
            mixer=mixers[kind],
            feed_forward=experts,
            residual="normed",
            norm=norm,
            residual_scale=branch[kind],
            stream_scale=stream[kind],
        )

    return read.decoder(c, read.stack(types, build), norm)


def _minimax_rope(c: Config, width: int) -> Rope:
    """Rotation of the first `rotary_dim` elements where the file states that."""
    turned = c.count("rotary_dim", default=width)
    return read.rope(c, width, base=1_000_000.0, partial=turned / width)


def _minimax_scale(c: Config, kind: str, letter: str) -> float:
    """What multiplies residual (alpha) or branch (beta): one number for a layer's two branches, as released."""
    name = "full_attn" if kind == FULL else "linear_attn"
    old = f"layernorm_{'full' if kind == FULL else 'linear'}_attention_{letter}"
    of_mixer = c.positive(f"{name}_{letter}_factor", old, default=1.0)
    of_experts = c.positive(f"mlp_{letter}_factor", f"layernorm_mlp_{letter}", default=1.0)
    if of_mixer != of_experts:
        raise c.refuse(f"mlp_{letter}_factor = {of_experts:.10g} is not that of attention, {of_mixer:.10g}: not built")
    return float(of_mixer)


@family("lfm2", "lfm2_moe")
def lfm2(c: Config) -> Architecture:
    """LFM2: short convolutions and attention with a QK-norm; the 8B has experts after its first layers."""
    norm, width, count = read.rms_norm(c, default=1e-5), read.head_dim(c), read.n_layers(c)
    mixers: dict[str, Mixer] = {
        FULL: read.attention(c, head_dim=width, position=read.rope(c, width, base=1_000_000.0), qk_norm=norm),
        CONVOLUTION: ShortConvolution(conv_kernel=read.size(c, "conv_L_cache", default=3), bias=c.flag("conv_bias")),
    }
    chosen = c.list("full_attn_idxs")
    default = [FULL if chosen is None or i in chosen else CONVOLUTION for i in range(count)]
    types = read.kinds(c, default, known=(CONVOLUTION, FULL))
    c.ignore("block_dim", "conv_dim", "conv_dim_out", "block_mlp_init_scale", "block_out_init_scale", "block_norm_eps")
    c.ignore("block_use_swiglu", "block_use_xavier_init", "conv_use_xavier_init", "use_pos_enc")
    dense, first = read.feed_forward(c, d_ff=_lfm2_width(c)), count
    experts: Mixture | None = None
    if c.model_type == "lfm2_moe":
        first, experts = c.whole("num_dense_layers", default=2), _lfm2_experts(c)

    routed = [i >= first for i in range(count)]
    layers = read.by_kind(types, mixers, routed, dense, experts, labels=LABELS, norm=norm)
    return read.decoder(c, layers, norm, tied=True)


def _lfm2_width(c: Config) -> int:
    """The feed-forward's width; with `block_auto_adjust_ff_dim` two thirds of the stated, rounded up to a multiple."""
    width: int = c.count("block_ff_dim", "intermediate_size")
    multiple, factor = c.count("block_multiple_of", default=256), c.positive("block_ffn_dim_multiplier", default=1.0)
    if c.model_type == "lfm2" and c.flag("block_auto_adjust_ff_dim", default=True):
        width = int(factor * int(2 * width / 3))
        width = multiple * -(-width // multiple)
    return width


def _lfm2_experts(c: Config) -> Mixture:
    return read.mixture(
        c,
        d_ff=c.count("moe_intermediate_size"),
        scoring="sigmoid",
        correction_bias="buffer" if c.flag("use_expert_bias", default=True) else None,
        normalised=c.flag("norm_topk_prob", default=True),
        routed_scale=c.positive("routed_scaling_factor", default=1.0),
    )


@family("recurrent_gemma")
def recurrent_gemma(c: Config) -> Architecture:
    """RecurrentGemma: two gated recurrences, then local attention; half of the stated feed-forward width, biases."""
    norm, width = read.rms_norm(c, unit_offset=True), read.head_dim(c)
    attention = read.attention(
        c,
        head_dim=width,
        window=read.size(c, "attention_window_size", "sliding_window", default=2048),
        position=read.rope(c, width, partial=0.5),
        **read.biases("qkv", c.flag("attention_bias")),
        o_bias=True,
    )
    act = read.activation(c, "hidden_activation", "hidden_act", default="gelu_pytorch_tanh")
    state = GatedRecurrence(
        width=c.count("lru_width", default=read.d_model(c)),
        n_heads=read.n_heads(c),
        conv_kernel=read.size(c, "conv1d_width", default=4),
        activation=act,
    )
    doubled = c.count("intermediate_size")
    ff = read.feed_forward(c, d_ff=doubled // 2, bias=True, activation=act)
    kinds: dict[str, Callable[[], Layer]] = {
        "recurrent": lambda: Layer(count=1, label="recurrent", mixer=state, feed_forward=ff, norm=norm),
        "attention": lambda: Layer(count=1, label="local", mixer=attention, feed_forward=ff, norm=norm),
    }
    block = c.list("block_types", "_block_types", of=str) or ["recurrent", "recurrent", "attention"]
    if set(block) - set(kinds):
        raise c.refuse("block_types has another entry than recurrent and attention")
    c.ignore("w_init_variance_scale", "final_w_init_variance_scale")
    types = [block[i % len(block)] for i in range(read.n_layers(c))]
    ends: dict[str, Any] = {"output": {"soft_cap": c.positive("logits_soft_cap", default=30.0)}}
    if c.flag("embeddings_scale_by_sqrt_dim", default=True):
        ends["embedding"] = {"scale": math.sqrt(read.d_model(c))}
    return read.decoder(c, read.stack(types, lambda kind: kinds[kind]()), norm, tied=True, **ends)
