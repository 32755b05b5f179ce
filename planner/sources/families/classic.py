"""LayerNorm decoders of the first generations: GPT-2, OPT, BLOOM, Falcon."""

from __future__ import annotations

from planner.components.position import Alibi
from planner.contract import Architecture, Layer
from planner.errors import ContractError
from planner.sources.config_json import Config, family
from planner.sources.families import common as read


@family("gpt2")
def gpt2(c: Config) -> Architecture:
    """GPT-2: learned positions, biases everywhere, tied."""
    norm = read.layer_norm(c)
    width = c.whole("n_inner", default=None) or 4 * read.d_model(c)
    ff = read.feed_forward(
        c, d_ff=width, gated=False, bias=True, activation=read.activation(c, "activation_function", default="gelu_new")
    )
    mixer = read.attention(c, position=None, **read.biases("qkvo", True))
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    return read.decoder(
        c, read.each(c, layer), norm, tied=True, embedding={"learned_positions": c.whole("n_positions", default=1024)}
    )


@family("opt")
def opt(c: Config) -> Architecture:
    """OPT: learned positions that begin at row 2; OPT-350M is post-norm with a narrower embedding."""
    norm = read.layer_norm(c)
    bias = c.flag("enable_bias", default=True)
    ff = read.feed_forward(c, gated=False, bias=bias, activation=read.activation(c, "activation_function", default="relu"))
    mixer = read.attention(c, position=None, **read.biases("qkvo", bias))
    pre = c.flag("do_layer_norm_before", default=True)
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, residual="pre" if pre else "post", norm=norm)
    narrow = c.whole("word_embed_proj_dim", default=read.d_model(c))
    return read.decoder(
        c,
        read.each(c, layer),
        norm if pre and not c.flag("_remove_final_layer_norm") else None,
        tied=True,
        embedding={
            "learned_positions": c.whole("max_position_embeddings"),
            "position_offset": 2,
            "width": narrow if narrow != read.d_model(c) else None,
        },
    )


@family("bloom")
def bloom(c: Config) -> Architecture:
    """BLOOM: ALiBi, a norm behind the embedding, biases everywhere, tied."""
    norm = read.layer_norm(c)
    c.ignore("attention_softmax_in_fp32", "apply_residual_connection_post_layernorm", "hidden_act")
    if c.flag("apply_residual_connection_post_layernorm"):
        raise ContractError("apply_residual_connection_post_layernorm = true is a residual order that is not built")
    ff = read.feed_forward(
        c, d_ff=c.whole("n_inner", default=None) or 4 * read.d_model(c), gated=False, bias=True, activation="gelu_tanh"
    )
    mixer = read.attention(c, position=Alibi(), **read.biases("qkvo", True))
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True, embedding={"norm": norm})


@family("falcon")
def falcon(c: Config) -> Architecture:
    """Falcon: one KV head (7B, 11B as stated), grouped ones (40B, 180B), parallel branches, RoPE or ALiBi."""
    norm = read.layer_norm(c)
    new, parallel = c.flag("new_decoder_architecture"), c.flag("parallel_attn", default=True)
    heads = read.n_heads(c)
    multi_query, stated = c.flag("multi_query", default=True), c.whole("num_kv_heads", "n_head_kv", default=None)
    kv_heads = (stated or heads) if new else (1 if multi_query else heads)
    norms = c.whole("num_ln_in_parallel_attn", default=None) or (2 if new else 1)
    bias = c.flag("bias")
    position = Alibi() if c.flag("alibi") else read.rope(c, read.head_dim(c))
    ff = read.feed_forward(
        c,
        d_ff=c.whole("ffn_hidden_size", default=None) or 4 * read.d_model(c),
        gated=False,
        bias=bias,
        activation=read.activation(c, "activation", default="gelu"),
    )
    mixer = read.attention(c, n_kv_heads=kv_heads, position=position, **read.biases("qkvo", bias))
    order = ("parallel" if norms == 1 else "parallel_two_norms") if parallel or new else "pre"
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, residual=order, norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True)
