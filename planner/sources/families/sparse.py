"""Latent attention and DeepSeek's experts: first layers dense, from V3 on sigmoid scores with a correction."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from planner.components.base import Mixer
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.norm import Norm, RMSNorm
from planner.components.position import Rope, Yarn
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.class_values import GROUPS, ROUTED_SCALE
from planner.spec import shown


@family("deepseek", "deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "mistral4", "sarvam_mla")
def deepseek(c: Config) -> Architecture:
    """DeepSeekMoE to V3, Kimi K2 and others: latent attention, shared experts, groups, an MTP module from V3 on."""
    norm = read.rms_norm(c, default=1e-5 if c.model_type == "glm4_moe_lite" else 1e-6)
    first = {"deepseek": 0, "deepseek_v2": 0, "glm4_moe_lite": 1, "mistral4": 0, "sarvam_mla": 1}.get(c.model_type, 3)
    layers = first_dense(c, _deepseek_mixer(c), deepseek_mixture(c), norm, default=first)
    return read.decoder(c, layers, norm, mtp=read.multi_token(c, layers[-1], own_tables=True))


@family("youtu")
def youtu(c: Config) -> Architecture:
    """Youtu-LLM: latent attention and one dense feed-forward, tied."""
    norm = read.rms_norm(c)
    layer = Layer(count=1, mixer=latent_attention(c), feed_forward=read.feed_forward(c), norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True)


def _deepseek_mixer(c: Config) -> Mixer:
    """Latent attention, or llama's: in the first generation, and in small vision models, which say `use_mla`: false."""
    c.ignore("lm_head", "rm_head")
    if c.flag("use_mla", default=c.model_type != "deepseek"):
        return latent_attention(c)
    c.ignore("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return read.attention(c, **read.biases("qkvo", c.flag("attention_bias")))


def latent_attention(c: Config) -> LatentAttention:
    """MLA as DeepSeek writes it: neighbours turn; YaRN's sharpening stands in the score scale."""
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim", "q_head_dim")
    c.fixed("mlp_bias", to=False)
    width, plain = c.count("qk_rope_head_dim"), c.count("qk_nope_head_dim")
    interleaved = c.flag("rope_interleave", default=True)
    if c.model_type == "mistral4":
        position = _mistral4_rope(c, width, plain, interleaved)
    else:
        position = read.rope(c, width, interleaved=interleaved)
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


def _mistral4_rope(c: Config, width: int, plain: int, interleaved: bool) -> Rope:
    """The file states which share of a whole head turns; how queries grow with their position is left out."""
    position = read.rope(c, plain + width, partial=width / (plain + width), interleaved=interleaved)
    if position.width != width:
        raise c.refuse(f"partial_rotary_factor does not turn the {width} elements of qk_rope_head_dim")
    table = read.rope_table(c)
    table.ignore("max_position_embeddings")
    if table.number("llama_4_scaling_beta", default=0.0):
        c.note(f"{c.source}: llama_4_scaling_beta acts beyond the original length only, and is left out")
    return dataclasses.replace(position, width=None)


def yarn_sharpening(position: Rope) -> float:
    """What DeepSeek multiplies the score scale with under YaRN: (0.1 mscale_all_dim ln(factor) + 1)², else 1."""
    rule = position.scaling
    if not isinstance(rule, Yarn) or not rule.mscale_all_dim or rule.factor <= 1:
        return 1.0
    grown = 0.1 * rule.mscale_all_dim * math.log(rule.factor) + 1.0
    return grown * grown


def deepseek_mixture(c: Config, **fields: Any) -> Mixture:
    """DeepSeekMoE: up to V2 by softmax, all later ones by sigmoid with a correction bias stored as a buffer.

    `fields` replace or add.
    """
    early = c.model_type in ("deepseek", "deepseek_v2", "mistral4")
    c.ignore("ep_size")
    if c.model_type == "mistral4":
        c.fixed("n_group", "topk_group", to=1)
    method = c.text("topk_method", default="greedy" if early else "noaux_tc")
    if method not in ("greedy", "group_limited_greedy", "noaux_tc"):
        raise c.refuse(f"topk_method = {shown(method)} is none of greedy, group_limited_greedy, noaux_tc")
    of_class = GROUPS.get(c.model_type, (None, None))
    groups = c.count("n_group", "num_expert_group", default=of_class[0])
    kept = c.count("topk_group", default=of_class[1])
    limited = groups is not None and method != "greedy"
    norms = ("norm_topk_prob", "route_norm", "moe_renormalize")
    normalised = c.flag(*norms, default=c.model_type not in ("deepseek", "deepseek_v2", "dots1"))
    scale = c.positive(*_SCALE, default=ROUTED_SCALE.get(c.model_type, 1.0))
    scorings = ("scoring_func", "score_function", "score_func", "moe_router_activation_func")
    scoring = c.text(*scorings, default="softmax" if early else "sigmoid")
    if scoring not in ("softmax", "sigmoid"):
        raise c.refuse(f"scoring_func = {shown(scoring)} is neither softmax nor sigmoid")
    corrected = not early or method == "noaux_tc"  # DeepSeek-VL2 is a deepseek_v2 that routes as V3 does
    usual: dict[str, Any] = {
        "d_ff": c.count("moe_intermediate_size"),
        "scoring": scoring,
        "correction_bias": "buffer" if corrected else None,
        "normalised": normalised,
        "routed_scale": scale if corrected or not normalised or c.model_type == "mistral4" else 1.0,
        "n_groups": groups if limited else None,
        "top_k_groups": kept if limited else None,
        "group_score": "best_two" if corrected else "best",
    }
    return read.mixture(c, **usual | fields)


_SCALE = ("routed_scaling_factor", "router_scaling_factor", "route_scale", "moe_routed_scaling_factor")


def first_dense(c: Config, mixer: Mixer, experts: Mixture, norm: Norm, *, default: int) -> list[Layer]:
    """The layers below the experts' with a dense feed-forward, all others with experts."""
    routed = routed_layers(c, default)
    c.ignore("intermediate_size")
    dense = None if all(routed) else read.feed_forward(c)

    def build(on: bool) -> Layer:
        return Layer(count=1, mixer=mixer, feed_forward=experts if on else dense, norm=norm)

    return read.stack(routed, build)


def routed_layers(c: Config, default: int) -> list[bool]:
    """Which layers have experts: by mlp_layer_types, or all after the first, or once in moe_layer_freq."""
    names = ("first_k_dense_replace", "first_last_k_dense_replace", "num_dense_layers")
    first, every = c.whole(*names, default=default), c.count("moe_layer_freq", default=1)
    named, count = c.list("mlp_layer_types", of=str), read.n_layers(c)
    switches = c.list("is_moe_layer", of=bool)
    if named is not None and len(named) != count:
        raise c.refuse(f"mlp_layer_types has {len(named)} entries for {count} layers")
    routed = [i >= first and i % every == 0 for i in range(count)]
    if named is not None:
        routed = [kind != "dense" for kind in named]
    if switches not in (None, routed):
        raise c.refuse("is_moe_layer contradicts the other keys that say which layers have experts")
    return routed
