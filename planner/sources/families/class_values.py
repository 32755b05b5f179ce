"""What configuration classes have where a file leaves a key out: transformers 5.24.0, whose defaults decide."""

from __future__ import annotations

# Families whose class has a number of key and value heads of its own: a file without one does not mean equal heads.
GROUPED = frozenset(
    """
    bamba bitnet cwm dots1 ernie4_5 ernie4_5_moe exaone exaone4 falcon_h1 gemma gemma2 gemma3_text gemma3n_text
    gemma4_text glm glm4 glm4_moe glm4v_moe_text glm4v_text gpt_oss helium internlm3 jamba jetmoe laguna lfm2 lfm2_moe
    llama4_text mimo_v2_flash minimax minimax_m2 ministral ministral3 mistral mixtral nemotron_h phi4_multimodal phimoe
    qwen2 qwen2_5_omni_text qwen2_5_vl qwen2_5_vl_text qwen2_moe qwen2_vl qwen2_vl_text qwen3 qwen3_5_moe_text
    qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3 stablelm
    starcoder2
    """.split()
)

# Shared experts of the classes that have some where the file does not say: the classes' own values.
SHARED_EXPERTS = {
    "deepseek_v2": 2,
    "deepseek_v3": 1,
    "deepseek_v32": 1,
    "deepseek_v4": 1,
    "exaone_moe": 1,
    "afmoe": 2,
    "ernie4_5_moe": 2,
    "glm4_moe": 1,
    "glm4_moe_lite": 1,
    "glm4v_moe_text": 1,
    "glm_moe_dsa": 1,
    "hy_v3": 1,
    "kimi_k2": 1,
    "kimi_linear": 1,
    "mistral4": 1,
    "sarvam_mla": 1,
    "sarvam_moe": 1,
    "solar_open": 1,
}

# What routed experts' scores are multiplied with, and groups of experts and how many of them a token may use.
ROUTED_SCALE = {
    **dict.fromkeys(
        ("deepseek_v3", "deepseek_v32", "exaone_moe", "glm_moe_dsa", "kimi_k2", "sarvam_mla", "sarvam_moe"), 2.5
    ),
    "glm4_moe_lite": 1.8,
    "hy_v3": 2.826,
    "kimi_linear": 2.446,
}
GROUPS = {"deepseek_v3": (8, 4), "deepseek_v32": (8, 4), "kimi_k2": (8, 4), "kimi_linear": (1, 1)}

# What the class of Ministral 3 has where the file has no word about rotation.
MINISTRAL3_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 1_000_000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 16_384,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}
