"""A GGUF file's metadata -> the keys of a config.json, so that one reader makes the contract of both.

The keys are those that llama.cpp's converters write (ggml-org/llama.cpp, gguf-py/gguf/constants.py and conversion/).
What they leave to the program, such as an architecture's activation, is taken from llama.cpp's own tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from planner.errors import InputError, UnknownName, suggest
from planner.sources.checkpoint import Checkpoint
from planner.spec import shown
from planner.storage import weight_format

_REQUIRED = object()


def gguf_config(checkpoint: Checkpoint) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config.json keys that a GGUF checkpoint amounts to, and notes on what such a file does not say.

    None stands, as null does there, for a key that the family has and this model does not use.

    Raises `InputError` for an architecture that is not read, naming it, and for metadata that is missing or of the
    wrong type.
    """
    name = checkpoint.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        near = suggest(name, ARCHITECTURES) if isinstance(name, str) else ""
        rule = f"general.architecture = {shown(name)} is none of {', '.join(ARCHITECTURES)}{near}"
        raise InputError(f"{checkpoint.place}: {rule}; describe the decoder in TOML instead")
    keys = _Metadata(checkpoint, name)
    config = {**_common(keys), **ARCHITECTURES[name](keys)}
    return config, tuple(keys.notes)


class _Metadata:
    """The metadata of one architecture, each key read as what it must be, and the names of the tensors."""

    def __init__(self, checkpoint: Checkpoint, architecture: str) -> None:
        self.metadata = checkpoint.metadata
        self.architecture = architecture
        self.place = checkpoint.place
        self.shapes = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
        self.notes: list[str] = []

    def whole(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self._value(key, default)
        if value is not default and (type(value) is not int or value < 0):
            raise self.refuse(f"{self.architecture}.{key} = {shown(value)} is not a whole number of at least 0")
        return value

    def number(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self._value(key, default)
        if value is default:
            return value
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.refuse(f"{self.architecture}.{key} = {shown(value)} is not a finite number")
        return float(f"{value:.7g}")  # what was rounded to a float32: 1e-05, not 9.999999747378752e-06

    def has(self, tensor: str) -> bool:
        """Whether a layer has a tensor that is called so."""
        return any(name.startswith("blk.") and name.endswith(f".{tensor}") for name in self.shapes)

    def width_over_heads(self) -> int:
        width, heads = self.whole("embedding_length"), self.whole("attention.head_count")
        if not width or not heads or width % heads:
            raise self.refuse(f"attention.head_count = {heads:,} does not divide embedding_length = {width:,}")
        return int(width // heads)

    def refuse(self, rule: str) -> InputError:
        return InputError(f"{self.place}: {rule}")

    def _value(self, key: str, default: Any) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}")
        if value is None:
            if default is _REQUIRED:
                raise self.refuse(f"the metadata key {self.architecture}.{key} is missing")
            return default
        if isinstance(value, list) and value:
            if value.count(value[0]) != len(value):
                raise self.refuse(
                    f"{self.architecture}.{key} = {shown(value)} differs between layers, which is not read"
                )
            return value[0]
        return value


def _common(keys: _Metadata) -> dict[str, Any]:
    """What every architecture states."""
    embedding = keys.shapes.get("token_embd.weight")
    if embedding is None or len(embedding) != 2:
        raise keys.refuse("token_embd.weight, whose rows are the vocabulary, is missing or no matrix")
    heads = keys.whole("attention.head_count")
    return {
        "vocab_size": embedding[0],
        "hidden_size": keys.whole("embedding_length"),
        "num_hidden_layers": keys.whole("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.whole("attention.head_count_kv", heads),
        "max_position_embeddings": keys.whole("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in keys.shapes,
        "head_dim": keys.whole("attention.key_length", None),
        "intermediate_size": keys.whole("feed_forward_length", None),
        "rope_scaling": _rope_scaling(keys),
    }


def _rope_scaling(keys: _Metadata) -> dict[str, Any] | None:
    kind = keys.metadata.get(f"{keys.architecture}.rope.scaling.type")
    if kind in ("linear", "yarn"):
        table = {
            "rope_type": kind,
            "factor": keys.number("rope.scaling.factor"),
            "original_max_position_embeddings": keys.whole("rope.scaling.original_context_length", None),
            "beta_fast": keys.number("rope.scaling.yarn_beta_fast", None),
            "beta_slow": keys.number("rope.scaling.yarn_beta_slow", None),
        }
        return {key: value for key, value in table.items() if value is not None}
    if {"rope_freqs.weight", "rope_factors_long.weight"} & keys.shapes.keys():
        keys.notes.append("RoPE is scaled by factors that the file stores as a tensor: their rule is not known")
    return None


def _llama(keys: _Metadata) -> dict[str, Any]:
    config = {
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": keys.has("attn_q.bias"),
        "mlp_bias": keys.has("ffn_up.bias"),
    }
    if keys.whole("expert_count", 0):
        return {
            "model_type": "mixtral",
            "hidden_act": "silu",
            "sliding_window": None,
            **_experts(keys, "num_local_experts"),
        }
    return config


def _experts(keys: _Metadata, count: str) -> dict[str, Any]:
    return {count: keys.whole("expert_count"), "num_experts_per_tok": keys.whole("expert_used_count")}


def _qwen2(keys: _Metadata) -> dict[str, Any]:
    return {"model_type": "qwen2", "hidden_act": "silu", "use_sliding_window": False}


def _qwen3(keys: _Metadata) -> dict[str, Any]:
    return {**_qwen2(keys), "model_type": "qwen3", "attention_bias": keys.has("attn_q.bias")}


def _qwen3moe(keys: _Metadata) -> dict[str, Any]:
    routed = {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    width = keys.whole("expert_feed_forward_length")
    experts = {"moe_intermediate_size": width, **_experts(keys, "num_experts"), **routed}
    dense = {} if keys.whole("feed_forward_length", 0) else {"intermediate_size": width}
    return {**_qwen3(keys), "model_type": "qwen3_moe", **dense, **experts}


def _gemma(keys: _Metadata, n_layers_27b: int) -> dict[str, Any]:
    """llama.cpp scales the scores of both 27B models by width over heads, of all others by the head width."""
    wide = keys.whole("block_count") == n_layers_27b
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": keys.width_over_heads() if wide else keys.whole("attention.key_length"),
    }


def _gemma2(keys: _Metadata) -> dict[str, Any]:
    return {
        "model_type": "gemma2",
        "sliding_window": keys.whole("attention.sliding_window"),
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0),
        **_gemma(keys, 46),
    }


def _gemma3(keys: _Metadata) -> dict[str, Any]:
    window = keys.whole("attention.sliding_window", None)
    every = 1 if window is None else keys.whole("attention.sliding_window_pattern", 6)
    return {
        "model_type": "gemma3_text",
        "sliding_window": window,
        "sliding_window_pattern": every,
        "rope_local_base_freq": keys.number("rope.freq_base_swa", 10_000.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", None),
        **_gemma(keys, 62),
    }


def _deepseek2(keys: _Metadata) -> dict[str, Any]:
    """DeepSeek-V2, V3, Kimi K2. Files from before llama.cpp cached the latent state the expanded head widths."""
    rope = keys.whole("rope.dimension_count")
    key_width = keys.whole("attention.key_length_mla", None) or keys.whole("attention.key_length")
    if key_width < rope:
        raise keys.refuse(f"a key of {key_width:,} is narrower than its rotary part of {rope:,}")
    third = keys.has("exp_probs_b.bias")
    groups, used = keys.whole("expert_group_count", None), keys.whole("expert_group_used_count", None)
    config = {
        "model_type": "deepseek_v3" if third else "deepseek_v2",
        "hidden_act": "silu",
        "num_key_value_heads": keys.whole("attention.head_count"),
        "head_dim": None,
        "q_lora_rank": keys.whole("attention.q_lora_rank", None),
        "kv_lora_rank": keys.whole("attention.kv_lora_rank"),
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key_width - rope,
        "v_head_dim": keys.whole("attention.value_length_mla", None) or keys.whole("attention.value_length"),
        "first_k_dense_replace": keys.whole("leading_dense_block_count", 0),
        "moe_intermediate_size": keys.whole("expert_feed_forward_length"),
        "n_shared_experts": keys.whole("expert_shared_count", 0),
        "routed_scaling_factor": keys.number("expert_weights_scale", 1.0),
        "norm_topk_prob": keys.metadata.get("deepseek2.expert_weights_norm") is True,
        "scoring_func": "sigmoid" if keys.whole("expert_gating_func", 1) == 2 else "softmax",
        "topk_method": "noaux_tc" if third else "group_limited_greedy" if (groups or 1) > 1 else "greedy",
        "n_group": groups,
        "topk_group": used,
        **_experts(keys, "n_routed_experts"),
    }
    scaling = _rope_scaling(keys)
    multiplier = keys.number("rope.scaling.yarn_log_multiplier", None)
    if scaling is not None and multiplier is not None:
        # The converter stores a tenth of mscale_all_dim; mscale equals it in every published config.
        config["rope_scaling"] = scaling | dict.fromkeys(("mscale", "mscale_all_dim"), round(10 * multiplier, 6))
    return config


def _gpt_oss(keys: _Metadata) -> dict[str, Any]:
    return {
        "model_type": "gpt_oss",
        "intermediate_size": keys.whole("expert_feed_forward_length"),
        "sliding_window": keys.whole("attention.sliding_window"),
        "attention_bias": keys.has("attn_q.bias"),
        **_experts(keys, "num_local_experts"),
    }


def _phi3(keys: _Metadata) -> dict[str, Any]:
    width = keys.width_over_heads()
    return {
        "model_type": "phi3",
        "hidden_act": "silu",
        "partial_rotary_factor": keys.whole("rope.dimension_count", width) / width,
        "sliding_window": keys.whole("attention.sliding_window", 0) or None,
    }


def gguf_weights(checkpoint: Checkpoint) -> tuple[str, str]:
    """The weight format that a GGUF file names, or else that of most of its bytes; and a note on what it stores."""
    by_format = checkpoint.bytes_by_format()
    number = checkpoint.metadata.get("general.file_type")
    stated = FILE_TYPES[number] if type(number) is int and 0 <= number < len(FILE_TYPES) else None
    for name in filter(None, (stated, *by_format)):
        try:
            weight_format(name)
        except UnknownName:
            continue
        stored = ", ".join(f"{size:,} B of {fmt}" for fmt, size in by_format.items())
        return name, f"{checkpoint.place}: stores {stored}; weights are counted as {name}"
    return "bf16", f"{checkpoint.place}: stores no format that weights can be counted in; they are counted as bf16"


ARCHITECTURES: dict[str, Callable[[_Metadata], dict[str, Any]]] = {
    "deepseek2": _deepseek2,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt-oss": _gpt_oss,
    "llama": _llama,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3moe,
}
"""general.architecture -> what it adds to the common keys, or says otherwise."""

FILE_TYPES = """
    fp32 fp16 q4_0 q4_1 - - - q8_0 q5_0 q5_1 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k
    iq2_xxs iq2_xs q2_k_s iq3_xs iq3_xxs iq1_s iq4_nl iq3_s iq3_m iq2_s iq2_m iq4_xs iq1_m bf16 - - - tq1_0 tq2_0 mxfp4
""".split()
"""The weight formats in the order of general.file_type (ggml-org/llama.cpp, include/llama.h, llama_ftype)."""
