"""Pre-norm RMSNorm decoders with rotary grouped-query attention and a gated feed-forward: llama and its neighbours."""

from __future__ import annotations

from typing import Any

from planner.components.dense_attention import DenseAttention
from planner.components.norm import Norm, RMSNorm
from planner.components.position import Alibi, Position, Temperature
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.class_values import MINISTRAL3_ROPE


def plain(
    c: Config, norm: Norm, *, mixer: dict[str, Any], ff: dict[str, Any] | None = None, **ends: Any
) -> Architecture:
    """Equal pre-norm layers of attention and feed-forward."""
    layer = Layer(count=1, mixer=read.attention(c, **mixer), feed_forward=read.feed_forward(c, **(ff or {})), norm=norm)
    return read.decoder(c, read.each(c, layer), norm, **ends)


@family("llama", "internlm", "iquestcoder")
def llama(c: Config) -> Architecture:
    """Llama 1 to 3.3, Yi, SmolLM and many more; InternLM writes `bias` for the four attention biases."""
    c.fixed("rope_interleaved", to=False)
    c.ignore("is_llama_config", "rotary")
    bias = read.biases("qkvo", c.flag("attention_bias", "bias", default=c.model_type == "internlm"))
    return plain(c, read.rms_norm(c), mixer=bias, ff={"bias": c.flag("mlp_bias")})


@family("arcee")
def arcee(c: Config) -> Architecture:
    """AFM: llama with a squared ReLU between two matrices."""
    act = read.activation(c, default="relu2")
    ff = {"gated": False, "activation": act, "bias": c.flag("mlp_bias")}
    return plain(c, read.rms_norm(c, default=1e-5), mixer=read.biases("qkvo", c.flag("attention_bias")), ff=ff)


@family("jais2")
def jais2(c: Config) -> Architecture:
    """Jais 2: LayerNorm, biases, a squared ReLU between two matrices."""
    act = read.activation(c, default="relu2")
    ff = {"gated": False, "activation": act, "bias": c.flag("mlp_bias", default=True)}
    mixer = read.biases("qkvo", c.flag("attention_bias", default=True))
    return plain(c, read.layer_norm(c), mixer=mixer, ff=ff)


@family("seed_oss")
def seed_oss(c: Config) -> Architecture:
    """Seed-OSS: biases on q, k, v, a switch of its own for the output's."""
    bias = {
        **read.biases("qkv", c.flag("attention_bias", default=True)),
        "o_bias": c.flag("attention_out_bias"),
        "head_dim": read.head_dim(c, default=128),
    }
    return plain(c, read.rms_norm(c), mixer=bias, ff={"bias": c.flag("mlp_bias")})


@family("helium")
def helium(c: Config) -> Architecture:
    """Helium: llama that turns neighbours."""
    width = read.equal_heads(c, default=128)
    position = read.rope(c, width, base=100_000.0, interleaved=True)
    mixer = {"head_dim": width, "position": position, **read.biases("qkv", c.flag("attention_bias"))}
    return plain(c, read.rms_norm(c, default=1e-8), mixer=mixer, ff={"bias": c.flag("mlp_bias")})


@family("ernie4_5")
def ernie(c: Config) -> Architecture:
    """ERNIE 4.5: llama that turns neighbours, tied."""
    width, bias = read.head_dim(c, default=128), c.flag("use_bias")
    position = read.rope(c, width, base=500_000.0, interleaved=True)
    mixer = {"head_dim": width, "position": position, **read.biases("qkvo", bias)}
    return plain(c, read.rms_norm(c, default=1e-5), mixer=mixer, ff={"bias": bias}, tied=True)


@family("exaone")
def exaone(c: Config) -> Architecture:
    """EXAONE 3: llama under names of its own."""
    norm = read.rms_norm(c) if c.has("rms_norm_eps") else RMSNorm(eps=c.positive("layer_norm_epsilon", default=1e-5))
    position = read.rope(c, read.head_dim(c), base=500_000.0)
    mixer = {"position": position, **read.biases("qkvo", c.flag("attention_bias"))}
    act = read.activation(c, "activation_function", "hidden_act", default="silu")
    return plain(c, norm, mixer=mixer, ff={"activation": act, "bias": c.flag("mlp_bias")})


@family("internlm2")
def internlm2(c: Config) -> Architecture:
    """InternLM 2 and 2.5: llama with one fused projection."""
    return plain(c, read.rms_norm(c), mixer=read.biases("qkvo", c.flag("bias", default=True)))


@family("internlm3")
def internlm3(c: Config) -> Architecture:
    """InternLM 3: switches of their own for q, k, v and for the rest."""
    bias = c.flag("bias")
    c.fixed("attention_bias", "mlp_bias", to=False)
    mixer = {"head_dim": read.head_dim(c, default=128), **read.biases("qkv", c.flag("qkv_bias")), "o_bias": bias}
    return plain(c, read.rms_norm(c, default=1e-5), mixer=mixer, ff={"bias": bias})


@family("baichuan")
def baichuan(c: Config) -> Architecture:
    """Baichuan: llama; the 13B has ALiBi, the second generation (by its vocabulary) unit rows in the output matrix."""
    position: Position = read.rope(c, read.equal_heads(c)) if read.d_model(c) == 4096 else Alibi()
    output = {"unit_rows": c.count("vocab_size") == 125_696}
    c.ignore("z_loss_weight")
    return plain(c, read.rms_norm(c), mixer={"position": position}, output=output)


@family("qwen")
def qwen1(c: Config) -> Architecture:
    """Qwen 1: biases on q, k, v only; intermediate_size is the width of gate and up together."""
    c.fixed("no_bias", "scale_attn_weights", to=True)
    c.ignore("bf16", "fp16", "fp32", "onnx_safe", "softmax_in_fp32")
    c.ignore("use_cache_kernel", "use_cache_quantization", "use_flash_attn")
    if c.flag("use_dynamic_ntk"):
        c.note(f"{c.source}: use_dynamic_ntk acts beyond the trained length only, and is left out")
    if c.flag("use_logn_attn"):
        c.note(f"{c.source}: use_logn_attn acts beyond the trained length only, and is left out")
    both = c.count("intermediate_size")
    if both % 2:
        raise c.refuse(f"intermediate_size = {both} is odd; it is the width of gate and up together")
    width = c.count("kv_channels", default=None) or read.equal_heads(c)
    norm = RMSNorm(eps=c.positive("layer_norm_epsilon", default=1e-6))
    return plain(c, norm, mixer={"head_dim": width, **read.biases("qkv", True)}, ff={"d_ff": both // 2})


@family("phi3", "phi3_v", "phi4mm", "phi4_multimodal")
def phi3(c: Config) -> Architecture:
    """Phi-3 and Phi-4: llama with fused projections, a window on every layer where the file states one."""
    c.fixed("attention_bias", "lm_head_bias", "mlp_bias", to=False)
    c.ignore("full_attn_mod", "interpolate_factor", "original_max_position_embeddings")
    if c.model_type != "phi3":
        parts = ("audio_processor", "embd_layer", "img_processor", "speech_lora", "vision_lora")
        c.note(f"{c.source}: image and audio encoders and their adapters are left out; only the language model is read")
        c.ignore(*parts)
    norm = read.rms_norm(c, default=1e-5)
    return plain(c, norm, mixer={"window": read.window(c), "head_dim": read.head_dim(c)})


@family("mistral", "ministral", "ministral3")
def mistral(c: Config) -> Architecture:
    """Mistral: a window on every layer unless null, or where layer_types has it; Ministral 3 stretches queries."""
    third = c.model_type == "ministral3"
    window = read.window(c, default=None if third else 4096)
    norm = read.rms_norm(c, default=1e-5 if third else 1e-6)
    types = read.kinds(c, ["sliding_attention" if window else "full_attention"] * read.n_layers(c))
    windows, ff = read.windows(c, types, window), read.feed_forward(c)
    width = read.head_dim(c, default=128 if third else None)
    position = read.rope(c, width, default=MINISTRAL3_ROPE if third else None)
    mixers = read.windowed(c, windows, head_dim=width, position=position, temperature=_temperature(c))
    return read.decoder(c, read.by_type(types, mixers, ff, norm=norm), norm)


def _temperature(c: Config) -> Temperature | None:
    """The growth of queries beyond the original length (Ministral 3)."""
    table = read.rope_table(c, default=MINISTRAL3_ROPE if c.model_type == "ministral3" else None)
    slope = table.number("llama_4_scaling_beta", default=0.0)
    if not slope:
        return None
    return Temperature(slope=slope, interval=table.count("original_max_position_embeddings"))


@family("qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text")
@family("qwen3", "qwen3_vl_text", "mimo")
def qwen(c: Config) -> Architecture:
    """Qwen: biases on q, k, v up to 2.5, QK-norm per head from 3 on; `use_sliding_window` windows the upper layers.

    MiMo-7B is the former with a module for multi-token prediction.
    """
    norm, ff = read.rms_norm(c), read.feed_forward(c)
    c.ignore("use_mrope", "rope_interleaved")  # the three axes of a multimodal position agree on text
    types, mixers = qwen_mixers(c, norm)
    layers = read.by_type(types, mixers, ff, norm=norm)
    return read.decoder(c, layers, norm, mtp=read.multi_token(c, layers[-1]))


def qwen_mixers(c: Config, norm: Norm) -> tuple[list[str], dict[str, DenseAttention]]:
    """The layer types of a Qwen, and the attention of each."""
    windowed = c.flag("use_sliding_window")
    window, first = read.window(c, default=4096), c.whole("max_window_layers", default=28)
    above = "sliding_attention" if windowed and window else "full_attention"
    types = read.kinds(c, [above if i >= first else "full_attention" for i in range(read.n_layers(c))])
    windows = read.windows(c, types, window if windowed else None)
    if c.model_type.startswith("qwen3"):
        width = read.head_dim(c, default=128 if c.model_type == "qwen3" else None)
        c.fixed("use_qk_norm", to=True)
        c.fixed("qkv_bias", to=False)
        bias = read.biases("qkvo", c.flag("attention_bias"))
        fields: dict[str, Any] = {"qk_norm": norm, **bias}
    else:
        width = read.head_dim(c)
        c.fixed("attention_bias", to=True)
        fields = read.biases("qkv", c.flag("qkv_bias", default=True))
    return types, read.windowed(c, windows, head_dim=width, **fields)
