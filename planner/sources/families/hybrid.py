"""Hybrids of attention and state spaces: in turn, side by side, or around a block that many layers share."""

from __future__ import annotations

import dataclasses
from typing import Any

from planner.components.dense_attention import DenseAttention
from planner.components.norm import RMSNorm
from planner.components.shared_block import SharedBlock
from planner.components.side_by_side import SideBySide
from planner.components.state_space import Mamba
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.state_space import WITHOUT_INFLUENCE, hybrid_mamba2, mamba2_mixer, step_rank
from planner.spec import shown

STATE, ATTENTION = "linear_attention", "full_attention"


@family("jamba")
def jamba(c: Config) -> Architecture:
    """Jamba: attention once in a period, without positions; Mamba with norms on step width, B and C."""
    norm, width = read.rms_norm(c), read.d_model(c)
    mixers = {
        True: read.attention(c, position=None, window=read.window(c)),
        False: Mamba(
            d_inner=c.count("mamba_expand", default=2) * width,
            d_state=read.size(c, "mamba_d_state", default=16),
            conv_kernel=read.size(c, "mamba_d_conv", default=4),
            dt_rank=step_rank(c, "mamba_dt_rank", width),
            conv_bias=c.flag("mamba_conv_bias", default=True),
            bias=c.flag("mamba_proj_bias"),
            inner_norm=norm,
        ),
    }
    c.ignore("mamba_inner_layernorms", "calc_logits_for_entire_prompt", *WITHOUT_INFLUENCE)
    every, first = read.size(c, "attn_layer_period", default=8), c.whole("attn_layer_offset", default=4)
    step, start = c.count("expert_layer_period", default=2), c.whole("expert_layer_offset", default=1)
    dense = read.feed_forward(c)
    routed = read.size(c, "num_experts", default=16) > 1
    experts = read.mixture(c, d_ff=c.count("intermediate_size"), normalised=False) if routed else dense
    c.ignore("num_experts_per_tok")

    def build(kind: tuple[bool, bool]) -> Layer:
        ff = experts if kind[1] else dense
        return Layer(count=1, label="global" if kind[0] else "state", mixer=mixers[kind[0]], feed_forward=ff, norm=norm)

    kinds = [(i % every == first, i % step == start) for i in range(read.n_layers(c))]
    return read.decoder(c, read.stack(kinds, build), norm)


@family("bamba")
def bamba(c: Config) -> Architecture:
    """Bamba: Mamba-2 with attention at stated layers, half of each head turned."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c)
    position = read.rope(c, width, partial=c.count("attn_rotary_emb", default=width // 2) / width)
    bias = read.biases("qkvo", c.flag("attention_bias"))
    mixers = {
        ATTENTION: read.attention(c, head_dim=width, position=position, **bias),
        STATE: hybrid_mamba2(c, norm=norm),
    }
    ff = read.feed_forward(c, bias=c.flag("mlp_bias"))
    c.ignore("z_loss_coefficient")
    chosen = c.list("attn_layer_indices") or []
    types = [ATTENTION if i in chosen else STATE for i in range(read.n_layers(c))]
    layers = read.stack(_types(c, types), lambda kind: _layer(kind, mixers[kind], feed_forward=ff, norm=norm))
    return read.decoder(c, layers, norm)


@family("granitemoehybrid")
def granite_hybrid(c: Config) -> Architecture:
    """Granite 4: Mamba-2 and attention, mostly without positions; experts and a shared one, or that one alone."""
    norm, width = read.rms_norm(c), read.head_dim(c)
    turned = c.text("position_embedding_type", default="nope") == "rope"
    position = read.rope(c, width) if turned else None
    scale = c.positive("attention_multiplier", default=1.0)
    bias = read.biases("qkvo", c.flag("attention_bias"))
    c.ignore("rope_theta", "rope_scaling", "rope_parameters", "normalization_function", "init_method")
    mixers = {
        ATTENTION: read.attention(c, head_dim=width, position=position, scale=scale, **bias),
        STATE: hybrid_mamba2(c, norm=norm),
    }
    shared, ff = read.size(c, "shared_intermediate_size", default=1024), None
    if c.whole("num_local_experts"):
        width = c.count("intermediate_size")
        ff = read.mixture(c, d_ff=width, d_ff_shared=shared, scoring="softmax_of_chosen")
    else:
        c.ignore("intermediate_size", "num_experts_per_tok")
    dense = read.feed_forward(c, d_ff=shared)
    fields = {"norm": norm, "residual_scale": c.positive("residual_multiplier", default=1.0)}
    layers = read.stack(
        _types(c, [STATE] * read.n_layers(c)),
        lambda kind: _layer(kind, mixers[kind], feed_forward=ff or dense, **fields),
    )
    return read.decoder(
        c,
        layers,
        norm,
        embedding={"scale": c.positive("embedding_multiplier", default=1.0)},
        output={"scale": 1.0 / c.positive("logits_scaling", default=1.0)},
    )


def _types(c: Config, default: list[str]) -> list[str]:
    """layer_types or layers_block_type in the two words of this module."""
    words = {"mamba": STATE, "attention": ATTENTION, STATE: STATE, ATTENTION: ATTENTION}
    stated = c.list("layer_types", "layers_block_type", of=str)
    if stated is None:
        return default
    if len(stated) != read.n_layers(c):
        raise c.refuse(f"layer_types has {len(stated)} entries for {read.n_layers(c)} layers")
    for kind in stated:
        if kind not in words:
            raise c.refuse(f"layer_types: {shown(kind)} is none of {', '.join(words)}")
    return [words[kind] for kind in stated]


def _layer(kind: str, mixer: Any, **fields: Any) -> Layer:
    return Layer(count=1, label="global" if kind == ATTENTION else "state", mixer=mixer, **fields)


@family("nemotron_h")
def nemotron_h(c: Config) -> Architecture:
    """Nemotron-H and Nemotron 3: one branch a layer by a pattern of letters; attention without positions; relu²."""
    norm = RMSNorm(eps=c.positive("layer_norm_epsilon", "norm_eps", "rms_norm_eps", default=1e-5))
    pattern = _nemotron_pattern(c)
    activation = read.activation(c, "mlp_hidden_act", default="relu2")
    bias, dense = c.flag("mlp_bias"), {"gated": False, "activation": activation}
    c.fixed("sliding_window", to=None)
    c.ignore("rope_theta", "rope_scaling", "partial_rotary_factor", "expand", "mamba_expand", "time_step_rank")
    c.ignore("mamba_ssm_cache_dtype", "moe_shared_expert_overlap", "mamba_proj_bias", *WITHOUT_INFLUENCE)
    c.fixed("mamba_hidden_act", to="silu")
    read.without_multi_token(c)
    c.ignore("mtp_layers_block_type", "mtp_hybrid_override_pattern", *NEMOTRON_EXPERTS)

    def build(kind: str) -> Layer:
        if kind == "M":
            return Layer(count=1, label="state", mixer=_nemotron_state(c, norm), norm=norm)
        if kind == "*":
            width = c.count("head_dim", "attention_head_dim", default=128)
            on = read.biases("qkvo", c.flag("attention_bias"))
            return Layer(
                count=1, label="global", mixer=read.attention(c, head_dim=width, position=None, **on), norm=norm
            )
        ff = read.feed_forward(c, bias=bias, **dense) if kind == "-" else _nemotron_mixture(c, bias, dense)
        return Layer(count=1, label="dense" if kind == "-" else "experts", feed_forward=ff, norm=norm)

    layers = read.stack(list(pattern), build)
    c.ignore("intermediate_size", "moe_intermediate_size", "head_dim", "attention_head_dim", "attention_bias")
    return read.decoder(c, layers, norm)


NEMOTRON_EXPERTS = """
    moe_latent_size moe_shared_expert_intermediate_size n_group n_routed_experts n_shared_experts norm_topk_prob
    num_experts_per_tok routed_scaling_factor topk_group
    """.split()


def _nemotron_pattern(c: Config) -> str:
    """hybrid_override_pattern, or layer types by name, as letters: M state, * attention, - dense, E experts."""
    letters = {"mamba": "M", STATE: "M", "attention": "*", ATTENTION: "*", "mlp": "-", "moe": "E"}
    named = "".join(letters.get(kind, "?") for kind in c.list("layers_block_type", "layer_types", of=str) or ())
    pattern: str = c.text("hybrid_override_pattern", default=named)
    if named not in ("", pattern):
        raise c.refuse(f"layers_block_type contradicts hybrid_override_pattern = {shown(pattern)}")
    if not pattern:
        raise c.refuse("hybrid_override_pattern is missing, and so is layers_block_type")
    if set(pattern) - set("M*-E"):
        raise c.refuse(f"hybrid_override_pattern = {shown(pattern)} is not made of M, *, - and E")
    if len(pattern) > read.MOST_LAYERS:
        raise c.refuse(f"hybrid_override_pattern has more than {read.MOST_LAYERS:,} letters, which no model comes near")
    if len(pattern) != c.count("num_hidden_layers", default=len(pattern)):
        raise c.refuse(f"hybrid_override_pattern has {len(pattern)} letters for {read.n_layers(c)} layers")
    return pattern


def _nemotron_state(c: Config, norm: RMSNorm) -> Any:
    return mamba2_mixer(
        c,
        norm=norm,
        norm_by_group=True,
        n_heads=read.size(c, "mamba_num_heads", default=128),
        head_dim=read.size(c, "mamba_head_dim", default=64),
        d_state=read.size(c, "ssm_state_size", default=128),
        n_groups=read.size(c, "n_groups", "mamba_n_groups", default=8),
        conv_kernel=read.size(c, "conv_kernel", "mamba_d_conv", default=4),
        conv_bias=c.flag("use_conv_bias", "mamba_conv_bias", default=True),
        bias=c.flag("use_bias"),
    )


def _nemotron_mixture(c: Config, bias: bool, fields: dict[str, Any]) -> Any:
    shared = c.count("moe_shared_expert_intermediate_size") * min(c.whole("n_shared_experts", default=1), 1)
    return read.mixture(
        c,
        d_ff=c.count("moe_intermediate_size"),
        d_ff_shared=shared,
        bias=bias,
        scoring="sigmoid",
        correction_bias="buffer",
        normalised=c.flag("norm_topk_prob", default=True),
        routed_scale=c.positive("routed_scaling_factor", default=1.0),
        n_groups=c.count("n_group", default=1),
        top_k_groups=c.count("topk_group", default=1),
        d_latent=c.count("moe_latent_size", default=None),
        **fields,
    )


@family("falcon_h1")
def falcon_h1(c: Config) -> Architecture:
    """Falcon-H1: attention and Mamba-2 side by side in every layer, with multipliers on everything."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c)
    times = {name: c.positive(f"{name}_multiplier", default=1.0) for name in MULTIPLIERS}
    lists = {name: c.list(f"{name}_multipliers", of=float) for name in ("mlp", "ssm")}
    attention = read.attention(
        c, head_dim=width, scale=width**-0.5 * times["key"], **read.biases("qkvo", c.flag("attention_bias"))
    )
    before = c.flag("mamba_norm_before_gate", default=True)
    gated = {"norm_by_group": True, "norm_before_gate": before} if c.flag("mamba_rms_norm") else {}
    scales = tuple(map(float, lists["ssm"])) if lists["ssm"] else None
    state = hybrid_mamba2(c, norm=norm if gated else None, scales=scales, **gated)
    if c.flag("projectors_bias") != state.bias:
        raise c.refuse("mamba_proj_bias and projectors_bias differ, which is not built for falcon_h1")
    c.ignore("mamba_use_mlp", "attn_layer_indices", "mlp_expansion_factor")
    for name, length in (("mlp", 2), ("ssm", 5)):
        if len(lists[name] or range(length)) != length:
            raise c.refuse(f"{name}_multipliers has not {length} entries")
    gate, down = map(float, lists["mlp"] or (1.0, 1.0))
    mixer = SideBySide(
        mixers=(attention, state),
        input_scales=(times["attention_in"], times["ssm_in"]),
        output_scales=(times["attention_out"], times["ssm_out"]),
    )
    ff = read.feed_forward(c, bias=c.flag("mlp_bias"), gate_scale=gate, output_scale=down)
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    embedding, output = {"scale": times["embedding"]}, {"scale": times["lm_head"]}
    return read.decoder(c, read.each(c, layer), norm, embedding=embedding, output=output)


MULTIPLIERS = ("embedding", "lm_head", "key", "attention_in", "attention_out", "ssm_in", "ssm_out")


@family("zamba2")
def zamba2(c: Config) -> Architecture:
    """Zamba2: Mamba-2 layers, some behind one of `num_mem_blocks` shared blocks, which take turns."""
    norm, width, heads = read.rms_norm(c, default=1e-5), read.d_model(c), read.size(c, "n_mamba_heads", default=8)
    inner = c.count("mamba_expand", default=2) * width
    c.ignore("mamba_headdim", "kv_channels", "num_query_groups", "hybrid_layer_ids")
    c.fixed("attention_hidden_size", to=2 * width)
    c.ignore("rope_theta")  # without use_mem_rope nothing turns
    mixer = mamba2_mixer(
        c,
        norm=norm,
        norm_by_group=True,
        n_heads=heads,
        head_dim=c.count("mamba_headdim", default=inner // heads),
        d_state=read.size(c, "mamba_d_state", default=64),
        n_groups=read.size(c, "mamba_ngroups", default=1),
        conv_kernel=read.size(c, "mamba_d_conv", default=4),
        conv_bias=c.flag("use_conv_bias", default=True),
        bias=c.flag("add_bias_linear"),
        d_inner=inner,
    )
    default = "m" + "mmmmmh" * 7 + "mmmmh" + "mmmh" + "mm"
    names = c.list("layers_block_type", "layer_types", of=str) or [{"m": "mamba", "h": "hybrid"}[k] for k in default]
    names = ["mamba" if name == STATE else name for name in names]
    if len(names) != read.n_layers(c) or set(names) - {"mamba", "hybrid"}:
        raise c.refuse(f"layers_block_type is not mamba or hybrid for each of {read.n_layers(c)} layers")
    plain = Layer(count=1, label="state", mixer=mixer, norm=norm)
    n_blocks = min(c.count("num_mem_blocks", default=1), max(names.count("hybrid"), 1))
    blocks = [
        dataclasses.replace(plain, label=f"block{i}", extras=(_zamba2_block(c, norm, f"block{i}"),))
        for i in range(n_blocks)
    ]
    layers, uses = [], 0
    for name in names:
        layers.append(blocks[uses % len(blocks)] if name == "hybrid" else plain)
        uses += name == "hybrid"
    return read.decoder(c, layers, norm, tied=True)


def _zamba2_block(c: Config, norm: RMSNorm, name: str) -> SharedBlock:
    """One shared block: heads are 2 d_model / n_heads wide, scores scaled by half of that."""
    heads = read.n_heads(c)
    width = c.count("attention_head_dim", default=2 * read.d_model(c) // heads)
    if width < 4:
        raise c.refuse(f"num_attention_heads = {heads} leaves heads of {width} elements")
    base = 10_000.0
    if c.flag("use_long_context"):
        base *= 8 ** (width / (width - 2))
    attention: DenseAttention = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, base=base) if c.flag("use_mem_rope") else None,
        scale=(width / 2) ** -0.5,
        **read.biases("qkvo", False),
    )
    d_ff = read.four_times(c, "intermediate_size", "ffn_hidden_size")
    bias = c.flag("add_bias_linear")
    ff = read.feed_forward(c, d_ff=d_ff, bias=bias, activation=read.activation(c, default="gelu"))
    on_ff, on_attention = c.flag("use_shared_mlp_adapter", default=True), c.flag("use_shared_attention_adapter")
    rank = c.count("adapter_rank", "lora_rank", default=128)
    return SharedBlock(
        block=name,
        attention=attention,
        feed_forward=ff,
        norm=norm,
        adapter_rank=rank if on_ff or on_attention else None,
        adapts_feed_forward=on_ff,
        adapts_attention=on_attention,
    )
