"""LayerNorm decoders with learned, sinusoidal or ALiBi positions: GPT-2 and its kin, OPT, BLOOM, MPT, XGLM, BioGPT."""

from __future__ import annotations

import math
from typing import Any

from planner.components.norm import LayerNorm
from planner.components.position import Alibi
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.spec import shown


def _plain_scores(c: Config) -> None:
    """Refuse the switches that change the score scale, tick off those that change its precision only."""
    c.fixed("scale_attn_weights", to=True)
    c.ignore("attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "reorder_and_upcast_attn", "n_ctx")
    c.ignore("predict_special_tokens", "n_special")


@family("gpt2")
def gpt2(c: Config) -> Architecture:
    """GPT-2: learned positions, biases everywhere, tied."""
    return _gpt2(c, activation="gelu_new")


@family("gpt_bigcode")
def gpt_bigcode(c: Config) -> Architecture:
    """SantaCoder, StarCoder: GPT-2 with one key and value head."""
    heads = 1 if c.flag("multi_query", default=True) else read.n_heads(c)
    c.fixed("num_key_value_heads", to=heads)
    c.ignore(
        "attention_softmax_in_fp32",
        "inference_runner",
        "pad_key_length",
        "validate_runner_input",
        "pre_allocate_kv_cache",
        "max_batch_size",
    )
    return _gpt2(c, activation="gelu_pytorch_tanh", n_kv_heads=heads)


def _gpt2(c: Config, activation: str, **attention: Any) -> Architecture:
    """What both have in common; `activation` is the class's own."""
    _plain_scores(c)
    norm = read.layer_norm(c)
    act = read.activation(c, "activation_function", default=activation)
    ff = read.feed_forward(c, d_ff=read.four_times(c, "n_inner"), gated=False, bias=True, activation=act)
    width, by_layer = read.equal_heads(c), c.flag("scale_attn_by_inverse_layer_idx")
    fields = {"head_dim": width, "position": None, **read.biases("qkvo", True), **attention}

    def build(place: int) -> Layer:
        scale = width**-0.5 / place if by_layer else None
        return Layer(count=1, mixer=read.attention(c, scale=scale, **fields), feed_forward=ff, norm=norm)

    layers = read.stack([place + 1 if by_layer else 1 for place in range(read.n_layers(c))], build)
    positions = {"learned_positions": c.count("n_positions", "max_position_embeddings")}
    return read.decoder(c, layers, norm, tied=True, embedding=positions)


@family("gpt_neo")
def gpt_neo(c: Config) -> Architecture:
    """GPT-Neo: global and local layers in turn, unscaled scores, no bias on q, k, v."""
    _plain_scores(c)
    norm = read.layer_norm(c)
    act = read.activation(c, "activation_function", default="gelu_new")
    ff = read.feed_forward(c, d_ff=read.four_times(c, "intermediate_size"), gated=False, bias=True, activation=act)
    fields = {"head_dim": read.equal_heads(c), "position": None, "scale": 1.0, "o_bias": True}
    windows = {"global": None, "local": c.count("window_size", default=256)}

    def build(kind: str) -> Layer:
        mixer = read.attention(c, window=windows[kind], **fields)
        return Layer(count=1, label=kind, mixer=mixer, feed_forward=ff, norm=norm)

    positions = {"learned_positions": c.count("max_position_embeddings")}
    return read.decoder(c, read.stack(_neo_kinds(c), build), norm, tied=True, embedding=positions)


def _neo_kinds(c: Config) -> list[str]:
    """attention_types = [[["global", "local"], 12]]: runs of kinds, and how often each comes; or in full."""
    found: list[Any] = c.list("attention_layers", of=str) or []
    runs = c.list("attention_types", of=list) or []
    expanded: list[Any] = []
    for run in runs:
        match run:
            case [list(kinds), int(times)] if 0 <= times * len(kinds) <= read.MOST_LAYERS:
                expanded += kinds * times
            case _:
                raise c.refuse(f"attention_types: {shown(run)} is not a list of kinds and how often it comes")
    if found and runs and found != expanded:
        raise c.refuse("attention_types contradicts attention_layers")
    kinds = found or expanded
    if len(kinds) != read.n_layers(c) or any(kind not in ("global", "local") for kind in kinds):
        raise c.refuse(f"attention_types gives {len(kinds)} layers for {read.n_layers(c)}, each global or local")
    return kinds


@family("opt")
def opt(c: Config) -> Architecture:
    """OPT: learned positions that begin at row 2; OPT-350M is post-norm with a narrower embedding."""
    affine = c.flag("layer_norm_elementwise_affine", default=True)
    c.ignore("activation_dropout")
    norm = LayerNorm(eps=1e-5, weight=affine, bias=affine)
    bias = c.flag("enable_bias", default=True)
    ff = read.feed_forward(
        c, gated=False, bias=bias, activation=read.activation(c, "activation_function", default="relu")
    )
    mixer = read.attention(c, head_dim=read.equal_heads(c), position=None, **read.biases("qkvo", bias))
    pre, bare = c.flag("do_layer_norm_before", default=True), c.flag("_remove_final_layer_norm")
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, residual="pre" if pre else "post", norm=norm)
    narrow = c.count("word_embed_proj_dim", default=read.d_model(c))
    return read.decoder(
        c,
        read.each(c, layer),
        norm if pre and not bare else None,
        tied=True,
        embedding={
            "learned_positions": c.count("max_position_embeddings"),
            "position_offset": 2,
            "width": narrow if narrow != read.d_model(c) else None,
        },
    )


@family("bloom")
def bloom(c: Config) -> Architecture:
    """BLOOM: ALiBi, a norm behind the embedding, biases everywhere, tied."""
    norm = read.layer_norm(c)
    c.fixed("apply_residual_connection_post_layernorm", to=False)
    c.ignore("attention_softmax_in_fp32", "bias_dropout_fusion", "hidden_act", "masked_softmax_fusion", "offset_alibi")
    c.ignore("skip_bias_add", "skip_bias_add_qkv", "slow_but_exact")
    ff = read.feed_forward(c, d_ff=read.four_times(c, "n_inner"), gated=False, bias=True, activation="gelu_tanh")
    mixer = read.attention(c, head_dim=read.equal_heads(c), position=Alibi(), **read.biases("qkvo", True))
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True, embedding={"norm": norm})


@family("mpt")
def mpt(c: Config) -> Architecture:
    """MPT: ALiBi, LayerNorm without bias, no bias anywhere, tied."""
    c.fixed("no_bias", to=True)
    c.ignore(
        "embedding_fraction", "learned_pos_emb", "norm_type", "verbose", "init_config", "use_pad_tok_in_ffn", "fc_type"
    )
    norm = read.layer_norm(c, "layer_norm_epsilon", bias=False)
    inner = c.inner("attn_config")
    inner.ignore("attn_impl", "attn_uses_sequence_id")
    inner.fixed("attn_type", to="multihead_attention")
    inner.fixed("qk_ln", "prefix_lm", to=False)
    inner.fixed("alibi", to=True)
    mixer = read.attention(
        c,
        head_dim=read.equal_heads(c),
        position=Alibi(max_bias=inner.positive("alibi_bias_max", default=8.0)),
        scale=inner.positive("softmax_scale", default=None),
        qkv_clip=inner.positive("clip_qkv", default=None),
    )
    if c.positive("expansion_ratio", default=4.0) != 4.0:
        c.note(f"{c.source}: expansion_ratio is not 4, but the published class is four times as wide whatever it says")
    ff = read.feed_forward(c, d_ff=4 * read.d_model(c), gated=False, activation="gelu")
    scale = c.raw("logit_scale")
    scale = read.d_model(c) ** -0.5 if scale == "inv_sqrt_d_model" else c.positive("logit_scale", default=None)
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True, output={"scale": scale})


@family("xglm")
def xglm(c: Config) -> Architecture:
    """XGLM: sinusoidal positions from 2 on, scaled embeddings, biases everywhere, tied."""
    return _fairseq(c, "activation_function", {"sinusoidal": True})


@family("biogpt")
def biogpt(c: Config) -> Architecture:
    """BioGPT: learned positions that begin at row 2, scaled embeddings, biases everywhere, tied."""
    return _fairseq(c, "hidden_act", {"learned_positions": c.count("max_position_embeddings")})


def _fairseq(c: Config, act: str, positions: dict[str, Any]) -> Architecture:
    """What XGLM and BioGPT share; their norms keep 1e-5 whatever the file says."""
    c.ignore("activation_dropout", "layer_norm_eps")
    norm = LayerNorm(eps=1e-5)
    ff = read.feed_forward(c, gated=False, bias=True, activation=read.activation(c, act, default="gelu"))
    mixer = read.attention(c, head_dim=read.equal_heads(c), position=None, **read.biases("qkvo", True))
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    scale = math.sqrt(read.d_model(c)) if c.flag("scale_embedding", default=True) else None
    return read.decoder(
        c, read.each(c, layer), norm, tied=True, embedding={"scale": scale, "position_offset": 2, **positions}
    )
