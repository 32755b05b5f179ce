"""Mixtures of experts that are no llama with experts: gpt-oss, GLM-4.5, DeepSeek with its latent attention."""

from __future__ import annotations

from planner.components.latent_attention import LatentAttention
from planner.components.norm import RMSNorm
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read


@family("gpt_oss")
def gpt_oss(c: Config) -> Architecture:
    """gpt-oss: every other layer local, sinks, biases everywhere, clipped SwiGLU experts."""
    norm = read.rms_norm(c, default=1e-5)
    c.ignore("hidden_act")
    ff = read.mixture(
        c,
        bias=True,
        router_bias=True,
        activation="swiglu_oai",
        clip=c.number("swiglu_limit", default=7.0),
        scoring="softmax_of_chosen",
    )
    fields = {"sinks": True, **read.biases("qkvo", c.flag("attention_bias", default=True))}
    window = c.whole("sliding_window", default=128)
    mixers = {"sliding_attention": read.attention(c, window=window, **fields), "full_attention": read.attention(c, **fields)}
    labels = {"sliding_attention": "local", "full_attention": "global"}
    default = ["full_attention" if i % 2 else "sliding_attention" for i in range(read.n_layers(c))]
    layers = [
        Layer(count=1, label=labels[kind], mixer=mixers[kind], feed_forward=ff, norm=norm) for kind in read.kinds(c, default)
    ]
    return read.decoder(c, layers, norm)


@family("glm4_moe")
def glm4_moe(c: Config) -> Architecture:
    """GLM-4.5: q, k, v biases, half-rotary heads, sigmoid routing with a correction bias, first layers dense."""
    norm = read.rms_norm(c, default=1e-5)
    mixer = read.attention(
        c,
        position=read.rope(c, read.head_dim(c), partial=0.5),
        qk_norm=norm if c.flag("use_qk_norm") else None,
        **read.biases("qkv", c.flag("attention_bias")),
    )
    c.ignore("num_nextn_predict_layers")
    return read.decoder(c, first_dense(c, mixer, deepseek_mixture(c), norm), norm)


@family("deepseek_v2", "deepseek_v3", "kimi_k2")
def deepseek(c: Config) -> Architecture:
    """DeepSeek-V2, V3 and Kimi K2: latent attention, first layers dense, shared experts, group-limited routing."""
    norm = read.rms_norm(c)
    c.ignore("num_key_value_heads", "head_dim", "num_nextn_predict_layers", "rope_interleave")
    mixer = LatentAttention(
        n_heads=read.n_heads(c),
        kv_lora_rank=c.whole("kv_lora_rank"),
        q_lora_rank=c.whole("q_lora_rank", default=None),
        nope_head_dim=c.whole("qk_nope_head_dim"),
        rope_head_dim=c.whole("qk_rope_head_dim"),
        v_head_dim=c.whole("v_head_dim"),
        latent_norm=RMSNorm(eps=1e-6),
        position=read.rope(c, c.whole("qk_rope_head_dim"), interleaved=True),
        bias=c.flag("attention_bias"),
    )
    return read.decoder(c, first_dense(c, mixer, deepseek_mixture(c), norm), norm)


def deepseek_mixture(c: Config):  # type: ignore[no-untyped-def]
    """DeepSeekMoE: V2 scores by softmax, V3 by sigmoid with a correction bias stored as a buffer."""
    third = c.model_type != "deepseek_v2"
    method = c.text("topk_method", default="noaux_tc" if third else "greedy")
    groups = c.whole("n_group", default=None) if method != "greedy" else None
    c.ignore("n_group", "topk_group", "moe_layer_freq")
    return read.mixture(
        c,
        d_ff=c.whole("moe_intermediate_size"),
        scoring=c.text("scoring_func", default="sigmoid" if third else "softmax"),
        correction_bias="buffer" if third else None,
        normalised=c.flag("norm_topk_prob", default=third),
        routed_scale=c.number("routed_scaling_factor", default=1.0),
        n_groups=groups,
        top_k_groups=c.whole("topk_group", default=None) if groups else None,
    )


def first_dense(c: Config, mixer, experts, norm) -> list[Layer]:  # type: ignore[no-untyped-def]
    """The first layers with a dense feed-forward, all others with experts."""
    first = c.whole("first_k_dense_replace", default=0)
    dense = read.feed_forward(c)
    count = read.n_layers(c)
    return [Layer(count=1, mixer=mixer, feed_forward=dense if i < first else experts, norm=norm) for i in range(count)]
