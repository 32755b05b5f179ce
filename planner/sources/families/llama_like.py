"""Pre-norm RMSNorm decoders with rotary grouped-query attention and a gated feed-forward, and what differs from that."""

from __future__ import annotations

from planner.components.norm import LayerNorm
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read


@family("llama", "internlm3_dense", "yi")
def llama(c: Config) -> Architecture:
    bias = c.flag("attention_bias")
    mixer = read.attention(c, **read.biases("qkvo", bias))
    ff = read.feed_forward(c, bias=c.flag("mlp_bias"))
    norm = read.rms_norm(c)
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)), norm)


@family("mistral", "ministral", "mixtral")
def mistral(c: Config) -> Architecture:
    window = c.whole("sliding_window", default=None)
    norm = read.rms_norm(c)
    if c.model_type == "mixtral":
        ff = read.mixture(c, normalised=True)
    else:
        ff = read.feed_forward(c)
    windowed = {"full_attention": None, "sliding_attention": window}
    layers = [
        Layer(count=1, label=LABELS[kind], mixer=read.attention(c, window=windowed[kind]), feed_forward=ff, norm=norm)
        for kind in read.kinds(c, ["sliding_attention" if window else "full_attention"] * read.n_layers(c))
    ]
    return read.decoder(c, layers, norm)


LABELS = {"full_attention": "global", "sliding_attention": "local", "chunked_attention": "local", "linear_attention": "linear"}


@family("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
def qwen(c: Config) -> Architecture:
    """Qwen: biases on q, k, v up to 2.5, QK-norm per head from 3 on; upper layers windowed when `use_sliding_window`."""
    third = c.model_type.startswith("qwen3")
    window = c.whole("sliding_window", default=None)
    first = c.whole("max_window_layers", default=read.n_layers(c))
    windowed = c.flag("use_sliding_window") and window is not None
    default = ["sliding_attention" if windowed and i >= first else "full_attention" for i in range(read.n_layers(c))]
    norm = read.rms_norm(c)
    if third:
        fields = {**read.biases("qkvo", c.flag("attention_bias")), "qk_norm": norm}
    else:
        fields = read.biases("qkv", c.flag("qkv_bias", default=True))
    sparse = c.model_type.endswith("moe")
    dense = read.feed_forward(c)
    step, dense_layers = c.whole("decoder_sparse_step", default=1), c.list("mlp_only_layers") or []
    if sparse:
        shared = c.whole("shared_expert_intermediate_size", default=0)
        experts = read.mixture(
            c,
            d_ff=c.whole("moe_intermediate_size"),
            d_ff_shared=shared,
            shared_gate=shared > 0,
            normalised=c.flag("norm_topk_prob"),
        )
    layers = []
    for i, kind in enumerate(read.kinds(c, default)):
        routed = sparse and i not in dense_layers and step > 0 and (i + 1) % step == 0
        mixer = read.attention(c, window=window if kind == "sliding_attention" else None, **fields)
        layers.append(
            Layer(count=1, label=LABELS.get(kind), mixer=mixer, feed_forward=experts if routed else dense, norm=norm)
        )
    return read.decoder(c, layers, norm)


@family("phi3")
def phi3(c: Config) -> Architecture:
    """Phi-3 and Phi-4: llama with fused projections, a window on every layer where the file states one."""
    norm = read.rms_norm(c, default=1e-5)
    mixer = read.attention(c, window=c.whole("sliding_window", default=None))
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c), norm=norm)
    return read.decoder(c, read.each(c, layer), norm)


@family("olmo2")
def olmo2(c: Config) -> Architecture:
    """OLMo 2: norms on the branches' outputs, QK-norm over all heads at once."""
    norm = read.rms_norm(c)
    mixer = read.attention(c, qk_norm=norm, qk_norm_over="whole", **read.biases("qkvo", c.flag("attention_bias")))
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c), residual="reordered", norm=norm)
    return read.decoder(c, read.each(c, layer), norm)


@family("cohere")
def cohere(c: Config) -> Architecture:
    """Command R: attention and feed-forward side by side behind one biasless LayerNorm, tied, logits scaled."""
    norm = LayerNorm(eps=c.number("layer_norm_eps", default=1e-5), bias=False)
    mixer = read.attention(
        c,
        position=read.rope(c, read.head_dim(c), interleaved=True),
        qk_norm=norm if c.flag("use_qk_norm") else None,
        qk_norm_over="heads",
        **read.biases("qkvo", c.flag("attention_bias")),
    )
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c), residual="parallel", norm=norm)
    scale = {"scale": c.number("logit_scale", default=0.0625)}
    return read.decoder(c, read.each(c, layer), norm, tied=True, output=scale)
