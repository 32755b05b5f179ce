"""Attention and feed-forward side by side on one residual stream: GPT-J, GPT-NeoX, Falcon, Phi, StableLM, Command R."""

from __future__ import annotations

from typing import Any

from planner.components.position import Alibi, Rope
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read


@family("gptj", "codegen")
def gptj(c: Config) -> Architecture:
    """GPT-J and CodeGen: one norm for both branches, neighbours turned, no attention bias, a bias on the logits."""
    c.fixed("scale_attn_weights", to=True)
    c.ignore("n_ctx", "rotary")
    norm = read.layer_norm(c)
    act = read.activation(c, "activation_function", default="gelu_new")
    ff = read.feed_forward(c, d_ff=read.four_times(c, "n_inner"), gated=False, bias=True, activation=act)
    width = read.equal_heads(c)
    turned = c.count("rotary_dim", default=width if c.stated("rotary_dim") else 64)
    position = Rope(base=10_000.0, width=turned if turned != width else None, interleaved=True)
    layer = Layer(
        count=1,
        mixer=read.attention(c, head_dim=width, position=position),
        feed_forward=ff,
        residual="parallel",
        norm=norm,
    )
    return read.decoder(c, read.each(c, layer), norm, tied=False, output={"bias": True})


@family("gpt_neox")
def gpt_neox(c: Config) -> Architecture:
    """GPT-NeoX and Pythia: each branch behind its own norm, a quarter of each head turned."""
    norm = read.layer_norm(c)
    ff = read.feed_forward(c, gated=False, bias=True, activation=read.activation(c, "hidden_act", default="gelu"))
    width = read.equal_heads(c)
    position = read.rope(c, width, partial=0.25)
    bias = read.biases("qkvo", c.flag("attention_bias", default=True))
    mixer = read.attention(c, head_dim=width, n_kv_heads=read.n_heads(c), position=position, **bias)
    order: Any = "parallel_two_norms" if c.flag("use_parallel_residual", default=True) else "pre"
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, residual=order, norm=norm)
    return read.decoder(c, read.each(c, layer), norm)


@family("falcon", "RefinedWeb", "RefinedWebModel")
def falcon(c: Config) -> Architecture:
    """Falcon: one KV head (7B), grouped ones (11B, 40B, 180B), parallel branches, RoPE or ALiBi."""
    c.fixed("apply_residual_connection_post_layernorm", to=False)
    c.ignore("ff_factor")
    norm = read.layer_norm(c)
    new = c.flag("new_decoder_architecture", default=c.model_type == "RefinedWeb")
    parallel = c.flag("parallel_attn", default=True)
    heads, stated = read.n_heads(c), c.count("num_kv_heads", "n_head_kv", default=None)
    multi_query = c.flag("multi_query", default=True)
    kv_heads = (stated or heads) if new else (1 if multi_query else heads)
    norms = c.count("num_ln_in_parallel_attn", default=2 if new else 1)
    bias = c.flag("bias")
    width = read.equal_heads(c)
    alibi = c.flag("alibi")
    c.ignore("rope_parameters")
    position = Alibi(scaled_with_scores=True, precision="bf16") if alibi else read.rope(c, width)
    ff = read.feed_forward(
        c,
        d_ff=read.four_times(c, "ffn_hidden_size"),
        gated=False,
        bias=bias,
        activation=read.activation(c, "activation", default="gelu"),
    )
    mixer = read.attention(c, head_dim=width, n_kv_heads=kv_heads, position=position, **read.biases("qkvo", bias))
    order: Any = ("parallel" if norms == 1 else "parallel_two_norms") if parallel or new else "pre"
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, residual=order, norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True)


@family("phi")
def phi(c: Config) -> Architecture:
    """Phi-1 to Phi-2: one norm for both branches, half of each head turned, biases everywhere, the logits included."""
    norm = read.layer_norm(c, "layer_norm_eps")
    act = read.activation(c, "hidden_act", default="gelu_new")
    width = read.equal_heads(c)
    mixer = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, partial=0.5),
        qk_norm=norm if c.flag("qk_layernorm") else None,
        **read.biases("qkvo", True),
    )
    ff = read.feed_forward(c, gated=False, bias=True, activation=act)
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, residual="parallel", norm=norm)
    return read.decoder(c, read.each(c, layer), norm, output={"bias": True})


@family("stablelm", "stablelm_epoch")
def stablelm(c: Config) -> Architecture:
    """StableLM: LayerNorm, a quarter of each head turned; StableLM 2 12B is parallel, with a norm for each head."""
    norm = read.layer_norm(c)
    width = read.equal_heads(c)
    mixer = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, partial=0.25),
        qk_norm=read.layer_norm(c, bias=False) if c.flag("qk_layernorm") else None,
        qk_norm_over="heads",
        **read.biases("qkv", c.flag("use_qkv_bias")),
    )
    order: Any = "parallel" if c.flag("use_parallel_residual") else "pre"
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c), residual=order, norm=norm)
    return read.decoder(c, read.each(c, layer), norm)


@family("cohere")
def cohere(c: Config) -> Architecture:
    """Command R: both branches behind one LayerNorm without bias, neighbours turned, tied, logits scaled."""
    norm = read.layer_norm(c, "layer_norm_eps", bias=False)
    width = read.head_dim(c)
    mixer = read.attention(
        c,
        head_dim=width,
        position=read.rope(c, width, base=500_000.0, interleaved=True),
        qk_norm=norm if c.flag("use_qk_norm") else None,
        qk_norm_over="heads",
        **read.biases("qkvo", c.flag("attention_bias")),
    )
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c), residual="parallel", norm=norm)
    return read.decoder(c, read.each(c, layer), norm, tied=True, output=_logit_scale(c))


@family("cohere2")
def cohere2(c: Config) -> Architecture:
    """Command R7B and A: three local layers that turn, then a global one that knows no positions."""
    c.fixed("use_qk_norm", to=False)
    c.ignore("cache_implementation", "layer_switch", "order_of_interleaved_layers", "position_embedding_type")
    c.ignore("use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding")
    every = c.count("sliding_window_pattern", "_sliding_window_pattern", default=4)
    types = read.kinds(c, read.local_every(c, every))
    windows = read.windows(c, types, read.window(c, default=4096))
    norm = read.layer_norm(c, "layer_norm_eps", bias=False)
    width, ff = read.head_dim(c), read.feed_forward(c)
    positions = {"sliding_attention": {"position": read.rope(c, width, interleaved=True)}}
    bias = read.biases("qkvo", c.flag("attention_bias"))
    mixers = read.windowed(c, windows, {"full_attention": {"position": None}, **positions}, head_dim=width, **bias)
    layers = read.by_type(types, mixers, ff, residual="parallel", norm=norm)
    return read.decoder(c, layers, norm, tied=True, output=_logit_scale(c))


def _logit_scale(c: Config) -> dict[str, Any]:
    return {"scale": c.positive("logit_scale", default=0.0625)}
