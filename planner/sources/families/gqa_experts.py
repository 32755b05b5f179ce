"""Grouped-query attention over DeepSeek-V3's experts: GLM-4.5 and its kin, Ling, Hy3, Trinity, Laguna, dots, MiMo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.components.dense_attention import DenseAttention
from planner.components.position import Rope
from planner.contract import Architecture
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.sparse import deepseek_mixture, first_dense, routed_layers
from planner.sources.families.variants import exaone_mixers


@family("glm4_moe", "glm4v_moe_text", "sarvam_moe", "solar_open")
def glm4_moe(c: Config) -> Architecture:
    """GLM-4.5: half of each head turned, an MTP module with tables of its own; Sarvam and Solar Open turn all of it."""
    sarvam, solar = c.model_type == "sarvam_moe", c.model_type == "solar_open"
    norm, width = read.rms_norm(c, default=1e-6 if sarvam else 1e-5), read.head_dim(c)
    base = 8_000_000.0 if sarvam else 1_000_000.0 if solar else 10_000.0
    bias = c.flag("attention_bias", "use_qkv_bias", default=c.model_type == "glm4v_moe_text")
    mixer = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, base=base, partial=1.0 if sarvam or solar else 0.5),
        qk_norm=norm if c.flag("use_qk_norm", default=sarvam) else None,
        **read.biases("qkv", bias),
    )
    layers = first_dense(c, mixer, deepseek_mixture(c), norm, default=0 if solar else 1)
    return read.decoder(c, layers, norm, mtp=read.multi_token(c, layers[-1], own_tables=True))


@family("bailing_moe", "bailing_moe_v2")
def ling(c: Config) -> Architecture:
    """Ling and Ring: softmax routing at first; from 2.0 on a QK-norm, half of each head turned, sigmoid scores."""
    c.fixed("use_bias", "norm_head", "norm_softmax", to=False)
    c.fixed("use_rmsnorm", to=True)
    c.ignore("output_dropout", "router_dtype")
    norm, width = read.rms_norm(c), read.head_dim(c)
    mixer = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, partial=c.count("rotary_dim", default=width) / width),
        qk_norm=norm if c.flag("use_qk_norm") else None,
        **read.biases("qkv", c.flag("use_qkv_bias")),
    )
    scoring = c.text("score_function", default="softmax")
    bias: Any = "buffer" if c.flag("moe_router_enable_expert_bias") else None
    experts = deepseek_mixture(c, scoring=scoring, correction_bias=bias)
    c.fixed("moe_shared_expert_intermediate_size", to=experts.d_ff)
    layers = first_dense(c, mixer, experts, norm, default=0)
    return read.decoder(c, layers, norm, mtp=read.multi_token(c, layers[-1]))


@family("hy_v3")
def hy3(c: Config) -> Architecture:
    """Hy3: a QK-norm per head, one shared expert, the first layer dense."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c, default=128)
    c.fixed("mlp_bias", to=False)
    c.ignore("enable_moe_fp32_combine")
    mixer = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, base=11_158_840.0),
        qk_norm=norm,
        **read.biases("qkvo", c.flag("attention_bias")),
    )
    read.without_multi_token(c)
    return read.decoder(c, first_dense(c, mixer, deepseek_mixture(c), norm, default=1), norm)


@family("exaone_moe")
def exaone_moe(c: Config) -> Architecture:
    """K-EXAONE: the attention of EXAONE 4 behind the norm, experts after the first layer."""
    norm = read.rms_norm(c, default=1e-5)
    types, mixers = exaone_mixers(c, norm)
    read.without_multi_token(c)
    layers = read.by_kind(types, mixers, routed_layers(c, 1), read.feed_forward(c), deepseek_mixture(c), norm=norm)
    return read.decoder(c, layers, norm)


@family("afmoe")
def afmoe(c: Config) -> Architecture:
    """Trinity: gated attention; local layers turn, global ones know no positions; norms around each branch."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c, default=128)
    c.ignore("load_balance_coeff", "num_expert_groups", "num_limited_groups", "use_grouped_mm")
    types = read.kinds(c, read.local_every(c, c.count("global_attn_every_n_layers", default=4)))
    windows = read.windows(c, types, read.window(c, default=1024))
    bias = read.biases("qkvo", c.flag("attention_bias"))
    per_kind: dict[str, Any] = {
        "full_attention": {"position": None},
        "sliding_attention": {"position": read.rope(c, width)},
    }
    mixers = read.windowed(c, windows, per_kind, head_dim=width, qk_norm=norm, output_gate=True, **bias)
    experts = deepseek_mixture(c, correction_bias="parameter")
    routed, dense = routed_layers(c, 1), read.feed_forward(c)
    layers = read.by_kind(types, mixers, routed, dense, experts, norm=norm, residual="sandwich")
    embedding = {"scale": read.d_model(c) ** 0.5} if c.flag("mup_enabled") else {}
    return read.decoder(c, layers, norm, embedding=embedding)


@family("laguna")
def laguna(c: Config) -> Architecture:
    """Laguna: a softplus gate on the heads' output; local layers, where there are any, have more heads than global."""
    norm, width = read.rms_norm(c), read.head_dim(c, default=128)
    c.fixed("moe_apply_router_weight_on_input", "use_bidirectional_attention", "qkv_bias", to=False)
    c.fixed("norm_topk_prob", to=True)
    c.fixed("decoder_sparse_step", to=1)
    gating = {"True": "head", "per-head": "head", "per-element": "element"}.get(str(c.raw("gating", default=True)))
    if gating is None or set(c.list("gating_types", of=str) or ()) - {f"per_{gating}"}:
        raise c.refuse("gating and gating_types do not say per-head or per-element for all layers alike")
    if c.number("moe_router_logit_softcapping", default=0.0):
        raise c.refuse("moe_router_logit_softcapping is not built, only 0")
    types = read.kinds(c, ["full_attention"] * read.n_layers(c))
    windows = read.windows(c, types, read.window(c, default=512))
    bias = read.biases("qkvo", c.flag("attention_bias"))
    per_kind = {kind: _laguna_kind(c, kind, heads, width) for kind, heads in _laguna_heads(c, types).items()}
    gate = {"head_gate": "softplus", "head_gate_over": gating}
    mixers = read.windowed(c, windows, per_kind, head_dim=width, qk_norm=norm, **gate, **bias)
    routed = routed_layers(c, 1)
    dense_ones = [i for i, on in enumerate(routed) if not on]
    if c.list("mlp_only_layers") not in (None, dense_ones):
        raise c.refuse("mlp_only_layers contradicts the other keys that say which layers have experts")
    shared = c.count("shared_expert_intermediate_size")
    experts = deepseek_mixture(c, d_ff_shared=shared, correction_bias="parameter")
    return read.decoder(c, read.by_kind(types, mixers, routed, read.feed_forward(c), experts, norm=norm), norm)


def _laguna_heads(c: Config, types: Sequence[str]) -> dict[str, int]:
    """Query heads of each layer type, which the file states for each layer."""
    heads = c.list("num_attention_heads_per_layer") or [read.n_heads(c)] * len(types)
    if len(heads) != len(types):
        raise c.refuse(f"num_attention_heads_per_layer has {len(heads)} entries for {len(types)} layers")
    pairs = sorted(set(zip(types, heads, strict=True)))
    if len(pairs) != len(set(types)):
        raise c.refuse("num_attention_heads_per_layer has two numbers for one layer type, which is not built")
    return dict(pairs)


def _laguna_kind(c: Config, kind: str, heads: int, width: int) -> dict[str, Any]:
    """Heads and rotation of one layer type: half of each head in global layers, all of it in local ones."""
    local = kind == "sliding_attention"
    base, share = (10_000.0, 1.0) if local else (500_000.0, 0.5)
    c.inner("rope_parameters").ignore("original_max_position_embeddings", "full_attention", "sliding_attention")
    return {"n_heads": heads, "position": read.rope(c, width, layer_type=kind, base=base, partial=share)}


@family("dots1")
def dots1(c: Config) -> Architecture:
    """dots.llm1: dense attention with a QK-norm per head, experts as DeepSeek-V3 has them."""
    norm = read.rms_norm(c)
    c.fixed("moe_layer_freq", to=1)
    window, above = read.window(c, default=4096), c.whole("max_window_layers", default=62)
    local = "sliding_attention" if window else "full_attention"
    types = read.kinds(c, [local if i >= above else "full_attention" for i in range(read.n_layers(c))])
    bias = read.biases("qkvo", c.flag("attention_bias"))
    mixers = read.windowed(c, read.windows(c, types, window), qk_norm=norm, **bias)
    layers = read.by_kind(types, mixers, routed_layers(c, 0), read.feed_forward(c), deepseek_mixture(c), norm=norm)
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
    return read.decoder(c, read.by_kind(types, mixers, routed, dense, experts, norm=norm), norm)


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
