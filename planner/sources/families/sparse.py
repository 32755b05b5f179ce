"""DeepSeek's line of experts: latent attention or not, first layers dense, sigmoid scores with a correction."""

from __future__ import annotations

import math
from typing import Any

from planner.components.base import Mixer
from planner.components.dense_attention import DenseAttention
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.norm import Norm, RMSNorm
from planner.components.position import Rope, Yarn
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.class_values import GROUPS, ROUTED_SCALE


@family("deepseek", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite")
def deepseek(c: Config) -> Architecture:
    """DeepSeekMoE to V3, Kimi K2, GLM-4.7-Flash: latent attention, shared experts, groups, an MTP module from V3 on."""
    norm = read.rms_norm(c, default=1e-5 if c.model_type == "glm4_moe_lite" else 1e-6)
    first = {"deepseek": 0, "deepseek_v2": 0, "glm4_moe_lite": 1}.get(c.model_type, 3)
    layers = first_dense(c, _deepseek_mixer(c), deepseek_mixture(c), norm, default=first)
    return read.decoder(c, layers, norm, mtp=read.multi_token(c, layers[-1], own_tables=True))


def _deepseek_mixer(c: Config) -> Mixer:
    """Latent attention, or llama's: in the first generation, and in small vision models, which say `use_mla`: false."""
    c.ignore("lm_head", "rm_head")
    if c.flag("use_mla", default=c.model_type != "deepseek"):
        return latent_attention(c)
    c.ignore("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return read.attention(c, **read.biases("qkvo", c.flag("attention_bias")))


def latent_attention(c: Config) -> LatentAttention:
    """MLA as DeepSeek writes it: neighbours turn; YaRN's sharpening stands in the score scale."""
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    c.fixed("mlp_bias", to=False)
    width, plain = c.count("qk_rope_head_dim"), c.count("qk_nope_head_dim")
    position = read.rope(c, width, interleaved=c.flag("rope_interleave", default=True))
    sharp = yarn_sharpening(position)
    return LatentAttention(
        n_heads=read.n_heads(c),
        kv_lora_rank=c.count("kv_lora_rank"),
        q_lora_rank=read.q_lora_rank(c),
        nope_head_dim=plain,
        rope_head_dim=width,
        v_head_dim=c.count("v_head_dim"),
        latent_norm=RMSNorm(eps=1e-6),
        position=position,
        bias=c.flag("attention_bias"),
        scale=None if sharp == 1.0 else (plain + width) ** -0.5 * sharp,
    )


def yarn_sharpening(position: Rope) -> float:
    """What DeepSeek multiplies the score scale with under YaRN: (0.1 mscale_all_dim ln(factor) + 1)², else 1."""
    rule = position.scaling
    if not isinstance(rule, Yarn) or not rule.mscale_all_dim or rule.factor <= 1:
        return 1.0
    grown = 0.1 * rule.mscale_all_dim * math.log(rule.factor) + 1.0
    return grown * grown


def deepseek_mixture(c: Config) -> Mixture:
    """DeepSeekMoE: up to V2 by softmax, all later ones by sigmoid with a correction bias stored as a buffer."""
    early = c.model_type in ("deepseek", "deepseek_v2")
    c.ignore("ep_size")
    method = c.text("topk_method", default="greedy" if early else "noaux_tc")
    if method not in ("greedy", "group_limited_greedy", "noaux_tc"):
        raise c.refuse(f"topk_method = {method!r:.60} is none of greedy, group_limited_greedy, noaux_tc")
    of_class = GROUPS.get(c.model_type, (None, None))
    groups, kept = (c.count(key, default=n) for key, n in zip(("n_group", "topk_group"), of_class, strict=True))
    limited = groups is not None and method != "greedy"
    normalised = c.flag("norm_topk_prob", default=not early and c.model_type != "dots1")
    scale = c.positive("routed_scaling_factor", default=ROUTED_SCALE.get(c.model_type, 1.0))
    scoring = c.text("scoring_func", default="softmax" if early else "sigmoid")
    if scoring not in ("softmax", "sigmoid"):
        raise c.refuse(f"scoring_func = {scoring!r:.60} is neither softmax nor sigmoid")
    corrected = not early or method == "noaux_tc"  # DeepSeek-VL2 is a deepseek_v2 that routes as V3 does
    fields: dict[str, Any] = {
        "d_ff": c.count("moe_intermediate_size"),
        "scoring": scoring,
        "correction_bias": "buffer" if corrected else None,
        "normalised": normalised,
        "routed_scale": scale if corrected or not normalised else 1.0,
        "n_groups": groups if limited else None,
        "top_k_groups": kept if limited else None,
        "group_score": "best_two" if corrected else "best",
    }
    return read.mixture(c, **fields)


def first_dense(c: Config, mixer: Mixer, experts: Mixture, norm: Norm, *, default: int) -> list[Layer]:
    """The layers below the experts' with a dense feed-forward, all others with experts."""
    dense = read.feed_forward(c)

    def build(routed: bool) -> Layer:
        return Layer(count=1, mixer=mixer, feed_forward=experts if routed else dense, norm=norm)

    return read.stack(routed_layers(c, default), build)


def routed_layers(c: Config, default: int) -> list[bool]:
    """Which layers have experts: by mlp_layer_types, or all after the first, or once in moe_layer_freq."""
    first, every = c.whole("first_k_dense_replace", default=default), c.count("moe_layer_freq", default=1)
    named, count = c.list("mlp_layer_types", of=str), read.n_layers(c)
    if named is None:
        return [i >= first and i % every == 0 for i in range(count)]
    if len(named) != count:
        raise c.refuse(f"mlp_layer_types has {len(named)} entries for {count} layers")
    return [kind != "dense" for kind in named]


@family("glm4_moe", "glm4v_moe_text")
def glm4_moe(c: Config) -> Architecture:
    """GLM-4.5: biases on q, k, v, half of each head turned, an MTP module with tables of its own."""
    norm = read.rms_norm(c, default=1e-5)
    width = read.head_dim(c)
    mixer = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, partial=0.5),
        qk_norm=norm if c.flag("use_qk_norm") else None,
        **read.biases("qkv", c.flag("attention_bias", default=c.model_type == "glm4v_moe_text")),
    )
    layers = first_dense(c, mixer, deepseek_mixture(c), norm, default=1)
    return read.decoder(c, layers, norm, mtp=read.multi_token(c, layers[-1], own_tables=True))


@family("dots1")
def dots1(c: Config) -> Architecture:
    """dots.llm1: dense attention with a QK-norm per head, experts as DeepSeek-V3 has them."""
    norm, experts = read.rms_norm(c), deepseek_mixture(c)
    dense, first = read.feed_forward(c), c.whole("first_k_dense_replace", default=0)
    c.fixed("moe_layer_freq", to=1)
    window, above = read.window(c, default=4096), c.whole("max_window_layers", default=62)
    local = "sliding_attention" if window else "full_attention"
    types = read.kinds(c, [local if i >= above else "full_attention" for i in range(read.n_layers(c))])
    windows = read.windows(c, types, window)
    width = read.head_dim(c)
    bias = read.biases("qkvo", c.flag("attention_bias"))
    fields = {"head_dim": width, "position": read.rope(c, width), "qk_norm": norm, **bias}

    def build(kind: tuple[str, bool]) -> Layer:
        mixer = read.attention(c, window=windows[kind[0]], **fields)
        return Layer(
            count=1, label=read.LABELS[kind[0]], mixer=mixer, feed_forward=experts if kind[1] else dense, norm=norm
        )

    layers = read.stack([(kind, i >= first) for i, kind in enumerate(types)], build)
    return read.decoder(c, layers, norm)


@family("mimo_v2_flash")
def mimo(c: Config) -> Architecture:
    """MiMo-V2-Flash: local layers with sinks and heads of their own, values narrower than keys and scaled down."""
    norm, count = read.rms_norm(c, default=1e-5), read.n_layers(c)
    c.ignore("attention_chunk_size", "attention_projection_layout", "hybrid_block_size", "sliding_window_size")
    types, routed = _mimo_kinds(c, count)
    windows = read.windows(c, types, read.window(c, default=128))
    experts, dense = deepseek_mixture(c), read.feed_forward(c)
    mixers = {kind: _mimo_mixer(c, kind, windows[kind]) for kind in dict.fromkeys(types)}

    def build(kind: tuple[str, bool]) -> Layer:
        ff = experts if kind[1] else dense
        return Layer(count=1, label=read.LABELS[kind[0]], mixer=mixers[kind[0]], feed_forward=ff, norm=norm)

    return read.decoder(c, read.stack(list(zip(types, routed, strict=True)), build), norm)


def _mimo_kinds(c: Config, count: int) -> tuple[list[str], list[bool]]:
    """Layer types by hybrid_layer_pattern (1: local), experts by moe_layer_freq (1: routed), or by newer names."""
    local = c.list("hybrid_layer_pattern") or [int(i != 0 and (i + 1) % 6 != 0) for i in range(count)]
    sparse = c.list("moe_layer_freq") or [int(i != 0) for i in range(count)]
    named = c.list("mlp_layer_types", of=str)
    if named is not None:
        sparse = [int(name == "sparse") for name in named]
    for key, entries in (("hybrid_layer_pattern", local), ("moe_layer_freq", sparse)):
        if len(entries) != count:
            raise c.refuse(f"{key} has {len(entries)} entries for {count} layers")
    types = read.kinds(c, ["sliding_attention" if entry else "full_attention" for entry in local])
    return types, [entry != 0 for entry in sparse]


def _mimo_mixer(c: Config, kind: str, window: int | None) -> DenseAttention:
    """The attention of one kind: keys that begin with ``swa_`` belong to the local one."""
    local = window is not None
    width = read.head_dim(c, default=192)
    base = c.positive("swa_rope_theta", default=10_000.0) if local else 5_000_000.0
    position = read.rope(c, width, layer_type=kind, base=base, partial=0.334)
    fields: dict[str, Any] = {"head_dim": width, "v_head_dim": c.count("v_head_dim", default=128)}
    sinks = c.flag("add_full_attention_sink_bias")
    if local:
        sinks = c.flag("add_swa_attention_sink_bias", default=True)
        if not c.has("rope_parameters"):
            position = Rope(base=base, width=position.width)
        fields = {
            "n_heads": c.count("swa_num_attention_heads", default=read.n_heads(c)),
            "n_kv_heads": c.count("swa_num_key_value_heads", default=2 * read.kv_heads(c)),
            "head_dim": c.count("swa_head_dim", default=width),
            "v_head_dim": c.count("swa_v_head_dim", default=fields["v_head_dim"]),
        }
    scale = c.positive("attention_value_scale", default=None if c.stated("attention_value_scale") else 0.707)
    bias = read.biases("qkv", c.flag("attention_bias"))
    return read.attention(c, window=window, position=position, sinks=sinks, value_scale=scale, **fields, **bias)
