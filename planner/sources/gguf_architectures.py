"""What each architecture of llama.cpp adds to the keys that all GGUF files have, as the keys of a config.json.

The keys are those that llama.cpp's converters write (ggml-org/llama.cpp, gguf-py/gguf/constants.py and conversion/).
What they leave to the program, such as an architecture's activation, is taken from llama.cpp's own tables.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.sources.gguf_metadata import Metadata, rope_scaling


def _llama(keys: Metadata) -> dict[str, Any]:
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


def _experts(keys: Metadata, count: str) -> dict[str, Any]:
    return {count: keys.whole("expert_count"), "num_experts_per_tok": keys.whole("expert_used_count")}


def _qwen2(keys: Metadata) -> dict[str, Any]:
    return {"model_type": "qwen2", "hidden_act": "silu", "use_sliding_window": False}


def _qwen3(keys: Metadata) -> dict[str, Any]:
    return {**_qwen2(keys), "model_type": "qwen3", "attention_bias": keys.has("attn_q.bias")}


def _qwen3moe(keys: Metadata) -> dict[str, Any]:
    routed = {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    width = keys.whole("expert_feed_forward_length")
    experts = {"moe_intermediate_size": width, **_experts(keys, "num_experts"), **routed}
    dense = {} if keys.whole("feed_forward_length", 0) else {"intermediate_size": width}
    return {**_qwen3(keys), "model_type": "qwen3_moe", **dense, **experts}


def _gemma(keys: Metadata, n_layers_27b: int) -> dict[str, Any]:
    """llama.cpp scales the scores of both 27B models by width over heads, of all others by the head width."""
    wide = keys.whole("block_count") == n_layers_27b
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": keys.width_over_heads() if wide else keys.whole("attention.key_length"),
    }


def _gemma2(keys: Metadata) -> dict[str, Any]:
    return {
        "model_type": "gemma2",
        "sliding_window": keys.whole("attention.sliding_window"),
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0),
        **_gemma(keys, 46),
    }


def _gemma3(keys: Metadata) -> dict[str, Any]:
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


def _deepseek2(keys: Metadata) -> dict[str, Any]:
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
        "norm_topk_prob": keys.flag("expert_weights_norm"),
        "scoring_func": "sigmoid" if keys.whole("expert_gating_func", 1) == 2 else "softmax",
        "topk_method": "noaux_tc" if third else "group_limited_greedy" if (groups or 1) > 1 else "greedy",
        "n_group": groups,
        "topk_group": used,
        "num_nextn_predict_layers": keys.whole("nextn_predict_layers", 0) if third else None,
        **_experts(keys, "n_routed_experts"),
    }
    scaling = rope_scaling(keys)
    multiplier = keys.number("rope.scaling.yarn_log_multiplier", None)
    if scaling is not None and multiplier is not None:
        # The converter stores a tenth of mscale_all_dim; mscale equals it in every published config.
        config["rope_scaling"] = scaling | dict.fromkeys(("mscale", "mscale_all_dim"), round(10 * multiplier, 6))
    return config


def _gpt_oss(keys: Metadata) -> dict[str, Any]:
    return {
        "model_type": "gpt_oss",
        "intermediate_size": keys.whole("expert_feed_forward_length"),
        "sliding_window": keys.whole("attention.sliding_window"),
        "attention_bias": keys.has("attn_q.bias"),
        **_experts(keys, "num_local_experts"),
    }


def _phi3(keys: Metadata) -> dict[str, Any]:
    width = keys.width_over_heads()
    return {
        "model_type": "phi3",
        "hidden_act": "silu",
        "partial_rotary_factor": keys.whole("rope.dimension_count", width) / width,
        "sliding_window": keys.whole("attention.sliding_window", 0) or None,
    }


def _glm4moe(keys: Metadata) -> dict[str, Any]:
    width = keys.whole("attention.key_length", None) or keys.width_over_heads()
    return {
        "model_type": "glm4_moe",
        "hidden_act": "silu",
        "attention_bias": keys.has("attn_q.bias"),
        "use_qk_norm": keys.has("attn_q_norm.weight"),
        "partial_rotary_factor": keys.whole("rope.dimension_count") / width,
        "first_k_dense_replace": keys.whole("leading_dense_block_count", 0),
        "moe_intermediate_size": keys.whole("expert_feed_forward_length"),
        "n_shared_experts": keys.whole("expert_shared_count", 0),
        "routed_scaling_factor": keys.number("expert_weights_scale", 1.0),
        "norm_topk_prob": keys.flag("expert_weights_norm"),
        "num_nextn_predict_layers": keys.whole("nextn_predict_layers", 0),
        **_experts(keys, "n_routed_experts"),
    }


def _granite(keys: Metadata) -> dict[str, Any]:
    return {
        "model_type": "granite",
        "hidden_act": "silu",
        "attention_bias": keys.has("attn_q.bias"),
        "embedding_multiplier": keys.number("embedding_scale"),
        "residual_multiplier": keys.number("residual_scale"),
        "attention_multiplier": keys.number("attention.scale"),
        "logits_scaling": keys.number("logit_scale"),
    }


def _hunyuan_dense(keys: Metadata) -> dict[str, Any]:
    """The converter raises the base by `alpha` once and for all and writes the raised one."""
    return {"model_type": "hunyuan_v1_dense", "hidden_act": "silu", "attention_bias": keys.has("attn_q.bias")}


def _minimax_m2(keys: Metadata) -> dict[str, Any]:
    return {
        "model_type": "minimax_m2",
        "hidden_act": "silu",
        "intermediate_size": keys.whole("expert_feed_forward_length"),
        "rotary_dim": keys.whole("rope.dimension_count"),
        "use_qk_norm": keys.has("attn_q_norm.weight"),
        "use_routing_bias": keys.has("exp_probs_b.bias"),
        **_experts(keys, "num_local_experts"),
    }


def _olmo2(keys: Metadata) -> dict[str, Any]:
    """OLMo 2, and OLMo 3 if there is a window: the last of four layers is global, and RoPE is stretched there alone."""
    window = keys.whole("attention.sliding_window", None)
    third = {"model_type": "olmo3", "sliding_window": window}
    return {"hidden_act": "silu", **(third if window else {"model_type": "olmo2"})}


def _qwen2moe(keys: Metadata) -> dict[str, Any]:
    return {
        **_qwen2(keys),
        "model_type": "qwen2_moe",
        "moe_intermediate_size": keys.whole("expert_feed_forward_length"),
        "shared_expert_intermediate_size": keys.whole("expert_shared_feed_forward_length"),
        "norm_topk_prob": False,
        **_experts(keys, "num_experts"),
    }


def _seed_oss(keys: Metadata) -> dict[str, Any]:
    return {"model_type": "seed_oss", "hidden_act": "silu", "attention_bias": keys.has("attn_q.bias")}


def _smollm3(keys: Metadata) -> dict[str, Any]:
    return {"model_type": "smollm3", "hidden_act": "silu", "attention_bias": keys.has("attn_q.bias")}


ARCHITECTURES: dict[str, Callable[[Metadata], dict[str, Any]]] = {
    "deepseek2": _deepseek2,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "glm4moe": _glm4moe,
    "gpt-oss": _gpt_oss,
    "granite": _granite,
    "hunyuan-dense": _hunyuan_dense,
    "llama": _llama,
    "minimax-m2": _minimax_m2,
    "olmo2": _olmo2,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2moe": _qwen2moe,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3moe,
    "seed_oss": _seed_oss,
    "smollm3": _smollm3,
}
"""general.architecture -> what it adds to the common keys, or says otherwise."""
