"""Dense decoders that leave llama's pattern in a point or two: multipliers, norm order, no positions, activations."""

from __future__ import annotations

import math
from typing import Any

from planner.components.dense_attention import DenseAttention
from planner.components.latent_attention import LatentAttention
from planner.components.norm import LayerNorm, RMSNorm
from planner.components.position import Rope
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.llama_like import plain
from planner.spec import shown

LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@family("granite")
def granite(c: Config) -> Architecture:
    """Granite 3: multipliers on embedding, scores, residual branches and logits."""
    ff = read.feed_forward(c, bias=c.flag("mlp_bias"))
    return granite_decoder(c, ff)


def granite_decoder(c: Config, ff: Any) -> Architecture:
    """A decoder with Granite's four multipliers; the logits are divided by theirs."""
    norm = read.rms_norm(c)
    bias = read.biases("qkvo", c.flag("attention_bias"))
    mixer = read.attention(c, scale=c.positive("attention_multiplier", default=1.0), **bias)
    scale = c.positive("residual_multiplier", default=1.0)
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm, residual_scale=scale)
    return read.decoder(
        c,
        read.each(c, layer),
        norm,
        embedding={"scale": c.positive("embedding_multiplier", default=1.0)},
        output={"scale": 1 / c.positive("logits_scaling", default=1.0)},
    )


@family("minicpm")
def minicpm(c: Config) -> Architecture:
    """MiniCPM: llama with multipliers on embedding, residual branches and logits, tied."""
    c.fixed("num_experts", to=0)
    mixer = read.attention(c, **read.biases("qkvo", c.flag("attention_bias")))
    return _minicpm(c, mixer, tied=True)


@family("minicpm3")
def minicpm3(c: Config) -> Architecture:
    """MiniCPM3: the multipliers of MiniCPM around latent attention that turns halves."""
    c.ignore("num_key_value_heads", "head_dim", "qk_head_dim")
    c.fixed("mlp_bias", to=False)
    width: int = c.count("qk_rope_head_dim")
    mixer = LatentAttention(
        n_heads=read.n_heads(c),
        kv_lora_rank=c.count("kv_lora_rank"),
        q_lora_rank=read.q_lora_rank(c),
        nope_head_dim=c.count("qk_nope_head_dim"),
        rope_head_dim=width,
        v_head_dim=c.count("v_head_dim", default=read.d_model(c) // read.n_heads(c)),
        latent_norm=RMSNorm(eps=1e-6),
        position=read.rope(c, width),
        bias=c.flag("attention_bias"),
    )
    return _minicpm(c, mixer, tied=True)


def _minicpm(c: Config, mixer: DenseAttention | LatentAttention, *, tied: bool) -> Architecture:
    norm = read.rms_norm(c, default=1e-6 if c.model_type == "minicpm" else 1e-5)
    c.ignore("mup_denominator")
    scale = c.positive("scale_depth") / math.sqrt(read.n_layers(c))
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c), norm=norm, residual_scale=scale)
    return read.decoder(
        c,
        read.each(c, layer),
        norm,
        tied=tied,
        embedding={"scale": c.positive("scale_emb")},
        output={"scale": c.positive("dim_model_base") / read.d_model(c)},
    )


@family("smollm3")
def smollm3(c: Config) -> Architecture:
    """SmolLM3: llama; every fourth layer knows no positions, and is windowed when `use_sliding_window`."""
    norm = read.rms_norm(c)
    turns = read.turning(c)
    width, ff = read.head_dim(c), read.feed_forward(c, bias=c.flag("mlp_bias"))
    window = read.window(c) if c.flag("use_sliding_window") else None
    c.ignore("sliding_window", "max_window_layers")
    local = "sliding_attention" if window else "full_attention"
    types = read.kinds(c, ["full_attention" if turn else local for turn in turns])
    windows = read.windows(c, types, window)
    position = read.rope(c, width, base=2_000_000.0)
    bias = read.biases("qkvo", c.flag("attention_bias"))

    def build(kind: tuple[str, bool]) -> Layer:
        mixer = read.attention(
            c, head_dim=width, window=windows[kind[0]], position=position if kind[1] else None, **bias
        )
        return Layer(count=1, label="rope" if kind[1] else "nope", mixer=mixer, feed_forward=ff, norm=norm)

    layers = read.stack(list(zip(types, turns, strict=True)), build)
    return read.decoder(c, layers, norm, tied=True)


@family("cwm")
def cwm(c: Config) -> Architecture:
    """Code World Model: llama 3 with three local layers behind each global one."""
    width = read.head_dim(c, default=128)
    position = read.rope(c, width, base=1_000_000.0, default={"rope_theta": 1_000_000.0, "factor": 16.0, **LLAMA3})
    types = read.kinds(c, read.local_every(c, 4, globals_at=0))
    c.fixed("attention_bias", "mlp_bias", to=False)
    return _local_and_global(c, types, 8192, {"head_dim": width, "position": position}, eps=1e-5)


@family("olmo2", "olmo3")
def olmo2(c: Config) -> Architecture:
    """OLMo 2 and 3: norms on the branches' outputs, QK-norm over all heads; OLMo 3 stretches only global layers."""
    norm = read.rms_norm(c, default=1e-5)
    width = read.head_dim(c)
    types = ["full_attention"] * read.n_layers(c)
    if c.model_type == "olmo3":
        types = read.kinds(c, read.local_every(c, 4))
    fields = {
        "head_dim": width,
        "qk_norm": norm,
        "qk_norm_over": "whole",
        **read.biases("qkvo", c.flag("attention_bias")),
    }
    per_kind = {
        kind: {"position": read.rope(c, width, layer_type=kind, scaled=kind == "full_attention")} for kind in set(types)
    }
    return _local_and_global(c, types, 4096, fields, per_kind, eps=1e-5, residual="reordered")


@family("exaone4", "exaone4_5_text")
def exaone4(c: Config) -> Architecture:
    """EXAONE 4: norms on the branches' outputs, QK-norm per head; with a window, global layers know no positions."""
    norm, ff = read.rms_norm(c, default=1e-5), read.feed_forward(c)
    c.fixed("reorder_and_qk_norm", to=True)
    types, mixers = exaone_mixers(c, norm)
    if c.model_type == "exaone4_5_text":
        c.ignore("_num_mtp_layers", "mtp_loss_scaling_factor", "mtp_share_layers")
        read.without_multi_token(c)
    return read.decoder(c, read.by_type(types, mixers, ff, residual="reordered", norm=norm), norm)


def exaone_mixers(c: Config, norm: RMSNorm) -> tuple[list[str], dict[str, DenseAttention]]:
    """The layer types of EXAONE 4 and K-EXAONE, and the attention of each."""
    width, window = read.head_dim(c), read.window(c, default=4096)
    types = read.kinds(c, _exaone_pattern(c) if window else ["full_attention"] * read.n_layers(c))
    c.ignore("sliding_window_pattern")
    turned = read.rope(c, width)
    per_kind: dict[str, dict[str, Any]] = {
        "full_attention": {"position": None if window else turned},
        "sliding_attention": {"position": turned},
    }
    return types, read.windowed(c, read.windows(c, types, window), per_kind, head_dim=width, qk_norm=norm)


def _exaone_pattern(c: Config) -> list[str]:
    """sliding_window_pattern = "LLLG", or how many layers its last one, the global, ends; the top layer is global."""
    count, stated = read.n_layers(c), c.raw("sliding_window_pattern", default=4)
    if isinstance(stated, str):
        if not stated or set(stated) - set("LG"):
            raise c.refuse(f"sliding_window_pattern = {shown(stated)} is not made of L and G")
        types = ["full_attention" if stated[i % len(stated)] == "G" else "sliding_attention" for i in range(count)]
        return [*types[:-1], "full_attention"]
    return read.local_every(c, c.count("sliding_window_pattern", default=4))


def _local_and_global(
    c: Config,
    types: list[str],
    window: int,
    fields: dict[str, Any],
    per_kind: dict[str, dict[str, Any]] | None = None,
    *,
    eps: float,
    residual: Any = "pre",
) -> Architecture:
    """Windowed and global layers by their types, RMSNorm and a gated feed-forward in each."""
    norm, ff = read.rms_norm(c, default=eps), read.feed_forward(c)
    c.ignore("sliding_window_pattern")
    mixers = read.windowed(c, read.windows(c, types, read.window(c, default=window)), per_kind, **fields)
    return read.decoder(c, read.by_type(types, mixers, ff, residual=residual, norm=norm), norm)


@family("olmo")
def olmo(c: Config) -> Architecture:
    """OLMo 1: LayerNorm without learned vectors, clipped q, k, v."""
    norm = LayerNorm(eps=1e-5, weight=False, bias=False)
    bias = read.biases("qkvo", c.flag("attention_bias"))
    return plain(c, norm, mixer={"qkv_clip": c.positive("clip_qkv", default=None), **bias})


@family("glm", "glm4", "glm4v_text")
def glm(c: Config) -> Architecture:
    """GLM-4: neighbours turn in half of each head, biases on q, k, v; GLM-4-0414 and 4.1V norm outputs too."""
    vision = c.model_type == "glm4v_text"
    norm = read.rms_norm(c, default=1e-5 if vision else 1.5625e-07)
    width = read.head_dim(c, default=None if vision else 128)
    position = read.rope(c, width, partial=0.5, interleaved=True)
    bias = read.biases("qkv", c.flag("attention_bias", default=True))
    mixer = read.attention(c, head_dim=width, position=position, **bias)
    order: Any = "pre" if c.model_type == "glm" else "sandwich"
    layer = Layer(count=1, mixer=mixer, feed_forward=read.feed_forward(c), residual=order, norm=norm)
    return read.decoder(c, read.each(c, layer), norm)


@family("apertus")
def apertus(c: Config) -> Architecture:
    """Apertus: QK-norm per head, two matrices around xIELU, whose scalars are learned."""
    c.fixed("qk_norm", to=True)
    c.fixed("post_norm", "mlp_bias", to=False)
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c)
    position = read.rope(c, width, base=12e6, default={"rope_theta": 12e6, "factor": 8.0, **LLAMA3})
    mixer = {"position": position, "qk_norm": norm, **read.biases("qkvo", c.flag("attention_bias"))}
    return plain(c, norm, mixer=mixer, ff={"gated": False, "activation": read.activation(c, default="xielu")})


@family("bitnet")
def bitnet(c: Config) -> Architecture:
    """BitNet b1.58: a norm before the output and before the down projection, squared ReLU with a gate."""
    norm = read.rms_norm(c, default=1e-5)
    mixer = {
        "position": read.rope(c, read.head_dim(c), base=500_000.0),
        "output_norm": norm,
        **read.biases("qkvo", c.flag("attention_bias")),
    }
    return plain(c, norm, mixer=mixer, ff={"activation": read.activation(c, default="relu2"), "inner_norm": norm})


@family("nemotron")
def nemotron(c: Config) -> Architecture:
    """Minitron and Nemotron-4: LayerNorm with weights stored as γ - 1, squared ReLU, half of each head turned."""
    norm = read.layer_norm(c, "norm_eps", unit_offset=True)
    width = read.head_dim(c)
    mixer = {
        "head_dim": width,
        "position": read.rope(c, width, partial=0.5),
        **read.biases("qkvo", c.flag("attention_bias")),
    }
    ff = {"gated": False, "activation": read.activation(c, default="relu2"), "bias": c.flag("mlp_bias")}
    return plain(c, norm, mixer=mixer, ff=ff)


@family("starcoder2")
def starcoder2(c: Config) -> Architecture:
    """StarCoder 2: LayerNorm, biases, two matrices, a window on every layer where the file states one, tied."""
    c.fixed("mlp_type", to="default")
    c.fixed("norm_type", to="layer_norm")
    c.fixed("scale_attn_weights", to=True)
    c.ignore(
        "activation_function", "attention_softmax_in_fp32", "layer_norm_epsilon", "scale_attention_softmax_in_fp32"
    )
    bias = c.flag("use_bias", default=True)
    mixer = {"window": read.window(c), "position": read.rope(c, read.head_dim(c)), **read.biases("qkvo", bias)}
    act = read.activation(c, "hidden_act", default="gelu_pytorch_tanh")
    ff = {"gated": False, "bias": bias, "activation": act}
    return plain(c, read.layer_norm(c, "norm_epsilon"), mixer=mixer, ff=ff, tied=True)


@family("persimmon")
def persimmon(c: Config) -> Architecture:
    """Persimmon: LayerNorm, biases, squared ReLU, a norm with bias for all query heads and one for all key heads."""
    norm, width = read.layer_norm(c, "layer_norm_eps"), read.equal_heads(c)
    mixer = {
        "head_dim": width,
        "position": read.rope(c, width, partial=0.5),
        "qk_norm": norm if c.flag("qk_layernorm", default=True) else None,
        **read.biases("qkvo", True),
    }
    ff = {"gated": False, "bias": True, "activation": read.activation(c, "hidden_act", default="relu2")}
    return plain(c, norm, mixer=mixer, ff=ff)


@family("hunyuan_v1_dense")
def hunyuan(c: Config) -> Architecture:
    """Hunyuan: llama with a QK-norm per head behind the rotation."""
    norm = read.rms_norm(c, default=1e-5)
    return plain(c, norm, mixer=hunyuan_mixer(c, norm))


def hunyuan_mixer(c: Config, norm: RMSNorm) -> dict[str, Any]:
    """The attention of both Hunyuan families; a rope table with `alpha` raises the base once and for all."""
    c.fixed("use_qk_norm", to=True)
    c.fixed("use_cla", to=False)
    c.ignore("cla_share_factor", "dense_list", "mlp_bias", "norm_type", "org_vocab_size", "pool_type")
    c.ignore("position_embedding_xdrope", "rotary_type", "use_rotary_pos_emb", "add_classification_head", "class_num")
    c.ignore(*(key for key in c.table if key.startswith(("im_", "text_")) or key.endswith("_id")))
    width = c.count("head_dim", "attention_head_dim", default=None) or read.head_dim(c)
    table = read.rope_table(c)
    alpha = table.positive("alpha", default=None)
    position: Rope = read.rope(c, width, scaled=alpha is None)
    if alpha is not None:
        if alpha > 1e6:
            raise table.refuse(f"alpha = {alpha:.10g} is more than 1,000,000, which no model comes near")
        table.ignore("beta_fast", "beta_slow", "factor", "mscale", "mscale_all_dim", "rope_type", "type")
        position = Rope(base=position.base * alpha ** (width / max(width - 2, 1)))
    return {
        "head_dim": width,
        "position": position,
        "qk_norm": norm,
        "qk_norm_after_position": True,
        **read.biases("qkvo", c.flag("attention_bias")),
    }
