"""Decoders whose attention reads a choice: DeepSeek-V3.2 and GLM-5 (DSA), DeepSeek-V4 (compressed entries)."""

from __future__ import annotations

import dataclasses
from typing import Any

from planner.components.compressed_attention import CompressedAttention
from planner.components.mixture import Mixture
from planner.components.norm import LayerNorm, RMSNorm
from planner.components.position import Rope, Yarn
from planner.components.sparse_attention import SparseLatentAttention
from planner.components.streams import HyperConnections
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.rotary import layered, rope_scaling
from planner.sources.families.sparse import deepseek_mixture, latent_attention, routed_layers
from planner.spec import shown

WINDOW, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
LABELS = {WINDOW: "local", SPARSE: "sparse", HEAVY: "heavy"}


@family("deepseek_v32", "glm_moe_dsa")
def deepseek_sparse(c: Config) -> Architecture:
    """DeepSeek-V3.2 and GLM-5: DeepSeek-V3 behind a lightning indexer, which some layers share."""
    norm, count = read.rms_norm(c), read.n_layers(c)
    latent = latent_attention(c)
    dense_part = {field.name: getattr(latent, field.name) for field in dataclasses.fields(latent)}
    glm = c.model_type == "glm_moe_dsa"
    mixer = SparseLatentAttention(
        **dense_part,
        index_heads=read.size(c, "index_n_heads", default=32 if glm else 64),
        index_head_dim=read.size(c, "index_head_dim", default=128),
        index_top_k=read.size(c, "index_topk", default=2048),
        index_norm=LayerNorm(eps=1e-6),
        index_interleaved=c.flag("indexer_rope_interleave", default=glm),
    )
    mixers = {True: mixer, False: dataclasses.replace(mixer, own_index=False)}
    own = _own_index(c, count)
    dense, experts, routed = read.feed_forward(c), deepseek_mixture(c), routed_layers(c, 3)
    c.ignore("layer_types")

    def build(kind: tuple[bool, bool]) -> Layer:
        return Layer(count=1, mixer=mixers[kind[0]], feed_forward=experts if kind[1] else dense, norm=norm)

    layers = read.stack(list(zip(own, routed, strict=True)), build)
    mtp = read.multi_token(c, dataclasses.replace(layers[-1], mixer=mixer), own_tables=True)
    return read.decoder(c, layers, norm, mtp=mtp)


def _own_index(c: Config, count: int) -> list[bool]:
    """Which layers have an indexer of their own: by indexer_types, by a pattern of F and S, or one in a number."""
    named = c.raw("indexer_types", "index_topk_pattern")
    every, first = c.count("index_topk_freq", default=1), c.whole("index_skip_topk_offset", default=2)
    if named is None:
        return [max(i - first + 1, 0) % every == 0 for i in range(count)]
    words = {"F": True, "S": False, "full": True, "shared": False}
    if not isinstance(named, (list, str)) or len(named) != count or any(str(kind) not in words for kind in named):
        raise c.refuse(f"indexer_types = {shown(named)} is not full or shared for each of {count} layers")
    return [words[kind] for kind in named]


@family("deepseek_v4")
def deepseek_v4(c: Config) -> Architecture:
    """DeepSeek-V4: four residual streams, compressed attention, first layers routed by a table of token ids."""
    norm, count = read.rms_norm(c), read.n_layers(c)
    c.fixed("num_key_value_heads", "n_shared_experts", to=1)
    for name in ("attention_bias", "mlp_bias"):
        c.fixed(name, to=False)
    c.ignore("expert_dtype", "topk_method", "head_dim", "compress_rope_theta")
    c.ignore("compress_rope_parameters", "qk_nope_head_dim", "rope_interleave")  # what the other keys say already
    read.without_multi_token(c)
    mixers = {kind: _v4_mixer(c, kind, norm) for kind in LABELS}
    types = _v4_types(c, count)
    hashed = c.list("mlp_layer_types", of=str)
    table = c.whole("num_hash_layers", default=3)
    by_table = [kind == "hash_moe" for kind in hashed] if hashed else [i < table for i in range(count)]
    if len(by_table) != count:
        raise c.refuse(f"mlp_layer_types has {len(by_table)} entries for {count} layers")
    experts = {on: _v4_experts(c, on) for on in (True, False)}

    def build(kind: tuple[str, bool]) -> Layer:
        return Layer(count=1, label=LABELS[kind[0]], mixer=mixers[kind[0]], feed_forward=experts[kind[1]], norm=norm)

    layers = read.stack(list(zip(types, by_table, strict=True)), build)
    streams = HyperConnections(
        n_streams=read.size(c, "hc_mult", default=4),
        sinkhorn_steps=c.count("hc_sinkhorn_iters", default=20),
        eps=c.positive("hc_eps", default=1e-6),
        norm=dataclasses.replace(norm, weight=False),
    )
    return read.decoder(c, layers, norm, streams=streams)


def _v4_types(c: Config, count: int) -> list[str]:
    """layer_types, or compress_ratios (0: window alone, 4: sparse, 128: heavy), which go on into the MTP modules."""
    ratios = c.list("compress_ratios")
    default = [HEAVY] * min(count, 2) + [SPARSE if i % 2 else HEAVY for i in range(max(count - 2, 0))]
    if ratios is not None:
        by_ratio = {0: WINDOW, _rate(c, SPARSE): SPARSE, _rate(c, HEAVY): HEAVY}
        if len(ratios) < count or set(ratios) - set(by_ratio):
            raise c.refuse(f"compress_ratios is not one of {', '.join(map(str, by_ratio))} for each of {count} layers")
        default = [by_ratio[ratio] for ratio in ratios[:count]]
    return read.kinds(c, default, known=LABELS)


def _rate(c: Config, kind: str) -> int:
    name, default = ("compress_rate_csa", 4) if kind == SPARSE else ("compress_rate_hca", 128)
    rate: int = c.inner("compress_rates").count(kind, default=c.count(name, default=default))
    return rate


def _v4_mixer(c: Config, kind: str, norm: RMSNorm) -> CompressedAttention:
    """One kind of layer; those with compressed entries turn by a base of their own, stretched by YaRN at scale 1."""
    width = read.size(c, "head_dim", default=512)
    turned = c.count("qk_rope_head_dim", default=int(width * c.positive("partial_rotary_factor", default=0.125)))
    position, stretched = _v4_ropes(c, turned)
    fields: dict[str, Any] = {}
    if kind != WINDOW:
        scaling = stretched.scaling
        if isinstance(scaling, Yarn):
            scaling = dataclasses.replace(scaling, attention_factor=scaling.attention_factor or 1.0)
        position = dataclasses.replace(stretched, scaling=scaling)
        fields = {"compress": _rate(c, kind), "overlap": kind == SPARSE}
    if kind == SPARSE:
        index = {"heads": "index_n_heads", "head_dim": "index_head_dim", "top_k": "index_topk"}
        defaults = {"heads": 64, "head_dim": 128, "top_k": 512}
        fields |= {f"index_{name}": c.count(key, default=defaults[name]) for name, key in index.items()}
    return CompressedAttention(
        n_heads=read.n_heads(c),
        head_dim=width,
        q_lora_rank=read.size(c, "q_lora_rank", default=1024),
        o_groups=read.size(c, "o_groups", default=8),
        o_lora_rank=read.size(c, "o_lora_rank", default=1024),
        window=read.size(c, "sliding_window", default=128),
        norm=norm,
        position=position,
        rope_head_dim=turned,
        **fields,
    )


def _v4_ropes(c: Config, turned: int) -> tuple[Rope, Rope]:
    """The rotation of the window and of compressed entries: rope_parameters has both, older files a base for each."""
    if not layered(c):
        stretched = read.rope(c, turned, interleaved=True)
        base = c.positive("compress_rope_theta", default=160_000.0)
        return Rope(base=stretched.base, interleaved=True), dataclasses.replace(stretched, base=base)
    c.ignore("rope_theta")
    plain, compressed = read.rope_table(c, "main"), read.rope_table(c, "compress")
    for table in (plain, compressed):
        table.ignore("partial_rotary_factor", "rope_type")  # the turned width is known
    base = plain.positive("rope_theta", default=10_000.0)
    stretched = Rope(
        base=compressed.positive("rope_theta", default=160_000.0),
        interleaved=True,
        scaling=rope_scaling(c, compressed, turned, 1.0),
    )
    return Rope(base=base, interleaved=True), stretched


def _v4_experts(c: Config, by_table: bool) -> Mixture:
    scorings = {"sqrtsoftplus": "sqrt_softplus", "sigmoid": "sigmoid", "softmax": "softmax"}
    scoring = c.text("scoring_func", default="sqrtsoftplus")
    if scoring not in scorings:
        raise c.refuse(f"scoring_func = {shown(scoring)} is none of {', '.join(scorings)}")
    return read.mixture(
        c,
        d_ff=c.count("moe_intermediate_size", "intermediate_size"),
        clip=c.positive("swiglu_limit", default=10.0),
        scoring=scorings[scoring],
        correction_bias=None if by_table else "buffer",
        hash_rows=c.count("vocab_size") if by_table else None,
        normalised=c.flag("norm_topk_prob", default=True),
        routed_scale=c.positive("routed_scaling_factor", default=1.5),
    )
