"""GGUF metadata -> config.json keys: the same model from both must be the same contract."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import InputError
from planner.sources import gguf_config as module
from planner.sources.checkpoint import read_gguf_parts
from planner.sources.gguf_config import gguf_config
from tests.sources.builders import gguf, in_memory, read_or_refuse

# What llama.cpp's converter writes for a model, and the keys of that model's own config.json that it was written from.
COMMON = {
    "context_length": 4096,
    "embedding_length": 64,
    "block_count": 6,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.freq_base": 500_000.0,
}
CONFIG = {
    "max_position_embeddings": 4096,
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
DENSE = ({"feed_forward_length": 96}, {"intermediate_size": 96})
HEADS = ({"attention.key_length": 32, "attention.value_length": 32}, {"head_dim": 32})
EXPERTS = {"expert_count": 8, "expert_used_count": 2}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 128}
OUTPUT = ("output.weight", "F16", (100, 64))
BIAS = ("blk.0.attn_q.bias", "F32", (64,))

DEEPSEEK = (
    {
        **DENSE[0],
        **EXPERTS,
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": 24,
        "attention.kv_lora_rank": 32,
        "attention.key_length": 40,
        "attention.value_length": 32,
        "attention.key_length_mla": 24,
        "attention.value_length_mla": 16,
        "rope.dimension_count": 8,
        "leading_dense_block_count": 1,
        "expert_feed_forward_length": 12,
        "expert_shared_count": 1,
        "expert_weights_scale": 2.5,
        "expert_weights_norm": True,
        "expert_gating_func": 2,
        "expert_group_count": 4,
        "expert_group_used_count": 2,
        **YARN,
        "rope.scaling.yarn_log_multiplier": 0.1,
    },
    {
        **DENSE[1],
        "model_type": "deepseek_v3",
        "num_key_value_heads": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 12,
        "n_shared_experts": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "n_group": 4,
        "topk_group": 2,
        "hidden_act": "silu",
        "rope_scaling": {
            "type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 128,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    },
)
OLD_WIDTHS = {"attention.head_count_kv": 4, "attention.key_length": 24, "attention.value_length": 16}
OLD_WIDTHS |= {"attention.key_length_mla": None, "attention.value_length_mla": None}
CORRECTION = ("blk.1.exp_probs_b.bias", "F32", (8,))

MODELS = {
    "llama": ("llama", *DENSE, [OUTPUT], {"model_type": "llama", "hidden_act": "silu"}),
    "llama with biases": (
        "llama",
        *DENSE,
        [OUTPUT, BIAS, ("blk.0.ffn_up.bias", "F32", (96,))],
        {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    ),
    "mixtral": (
        "llama",
        DENSE[0] | EXPERTS,
        DENSE[1],
        [OUTPUT],
        {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "qwen2": ("qwen2", *DENSE, [OUTPUT], {"model_type": "qwen2", "use_sliding_window": False}),
    "qwen3, tied": (
        "qwen3",
        DENSE[0] | HEADS[0],
        DENSE[1] | HEADS[1],
        [],
        {"model_type": "qwen3", "tie_word_embeddings": True},
    ),
    "qwen3moe": (
        "qwen3moe",
        DENSE[0] | HEADS[0] | EXPERTS | {"expert_feed_forward_length": 12},
        DENSE[1] | HEADS[1],
        [OUTPUT],
        {
            "model_type": "qwen3_moe",
            "moe_intermediate_size": 12,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
        },
    ),
    "qwen3moe without a dense width": (
        "qwen3moe",
        HEADS[0] | EXPERTS | {"expert_feed_forward_length": 12},
        HEADS[1],
        [OUTPUT, BIAS],
        {
            "model_type": "qwen3_moe",
            "attention_bias": True,
            "intermediate_size": 12,
            "moe_intermediate_size": 12,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
        },
    ),
    "gemma2": (
        "gemma2",
        DENSE[0]
        | HEADS[0]
        | {"attention.sliding_window": 16, "attn_logit_softcapping": 40.0, "final_logit_softcapping": 20.0},
        DENSE[1] | HEADS[1],
        [],
        {
            "model_type": "gemma2",
            "tie_word_embeddings": True,
            "sliding_window": 16,
            "attn_logit_softcapping": 40.0,
            "final_logit_softcapping": 20.0,
            "query_pre_attn_scalar": 32,
            "hidden_activation": "gelu_pytorch_tanh",
        },
    ),
    "gemma2-27b": (
        "gemma2",
        DENSE[0] | HEADS[0] | {"attention.sliding_window": 16, "block_count": 46},
        DENSE[1] | HEADS[1],
        [],
        {
            "model_type": "gemma2",
            "num_hidden_layers": 46,
            "tie_word_embeddings": True,
            "sliding_window": 16,
            "query_pre_attn_scalar": 16,
        },
    ),
    "gemma3": (
        "gemma3",
        DENSE[0]
        | HEADS[0]
        | {"attention.sliding_window": 16, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        DENSE[1] | HEADS[1],
        [],
        {
            "model_type": "gemma3_text",
            "tie_word_embeddings": True,
            "sliding_window": 16,
            "sliding_window_pattern": 6,
            "query_pre_attn_scalar": 32,
            "rope_local_base_freq": 10_000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    "gemma3-27b": (
        "gemma3",
        DENSE[0]
        | HEADS[0]
        | {"attention.sliding_window": 16, "block_count": 62, "attention.sliding_window_pattern": 2},
        DENSE[1] | HEADS[1],
        [],
        {
            "model_type": "gemma3_text",
            "num_hidden_layers": 62,
            "tie_word_embeddings": True,
            "sliding_window": 16,
            "sliding_window_pattern": 2,
            "query_pre_attn_scalar": 16,
        },
    ),
    "deepseek-v2": (
        "deepseek2",
        DEEPSEEK[0] | {"expert_gating_func": 1, "expert_weights_norm": None},
        DEEPSEEK[1],
        [OUTPUT],
        {
            "model_type": "deepseek_v2",
            "scoring_func": "softmax",
            "norm_topk_prob": False,
            "topk_method": "group_limited_greedy",
        },
    ),
    "deepseek-v3": ("deepseek2", *DEEPSEEK, [OUTPUT, CORRECTION], {}),
    "deepseek-v3, old file": ("deepseek2", DEEPSEEK[0] | OLD_WIDTHS, DEEPSEEK[1], [OUTPUT, CORRECTION], {}),
    "deepseek-v2-lite": (
        "deepseek2",
        {**DEEPSEEK[0], "attention.q_lora_rank": None, "expert_gating_func": None, "expert_weights_norm": None}
        | {"expert_group_count": None, "expert_group_used_count": None, "expert_weights_scale": 1.0},
        DEEPSEEK[1],
        [OUTPUT],
        {
            "model_type": "deepseek_v2",
            "q_lora_rank": None,
            "scoring_func": "softmax",
            "norm_topk_prob": False,
            "topk_method": "greedy",
            "n_group": 1,
            "topk_group": 1,
            "routed_scaling_factor": 1.0,
        },
    ),
    "gpt-oss": (
        "gpt-oss",
        HEADS[0] | EXPERTS | YARN | {"expert_feed_forward_length": 12, "attention.sliding_window": 16},
        HEADS[1],
        [OUTPUT, BIAS],
        {
            "model_type": "gpt_oss",
            "intermediate_size": 12,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "attention_bias": True,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 128},
        },
    ),
    "gpt-oss without biases": (
        "gpt-oss",
        HEADS[0] | EXPERTS | {"expert_feed_forward_length": 12, "attention.sliding_window": 16},
        HEADS[1],
        [OUTPUT],
        {
            "model_type": "gpt_oss",
            "intermediate_size": 12,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "sliding_window": 16,
            "attention_bias": False,
        },
    ),
    "glm4moe, with a module for multi-token prediction": (
        "glm4moe",
        DENSE[0]
        | HEADS[0]
        | EXPERTS
        | {
            "block_count": 7,
            "nextn_predict_layers": 1,
            "rope.dimension_count": 16,
            "leading_dense_block_count": 1,
            "expert_feed_forward_length": 12,
            "expert_shared_count": 1,
            "expert_weights_scale": 2.5,
            "expert_weights_norm": True,
        },
        DENSE[1] | HEADS[1],
        [OUTPUT, BIAS, ("blk.0.attn_q_norm.weight", "F32", (32,))],
        {
            "model_type": "glm4_moe",
            "attention_bias": True,
            "use_qk_norm": True,
            "partial_rotary_factor": 0.5,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 12,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "num_nextn_predict_layers": 1,
        },
    ),
    "deepseek_v3, with a module for multi-token prediction": (
        "deepseek2",
        DEEPSEEK[0] | {"block_count": 7, "nextn_predict_layers": 1},
        DEEPSEEK[1],
        [OUTPUT, CORRECTION],
        {"model_type": "deepseek_v3", "topk_method": "noaux_tc", "num_nextn_predict_layers": 1},
    ),
    "granite": (
        "granite",
        DENSE[0] | {"embedding_scale": 12.0, "residual_scale": 0.25, "attention.scale": 0.125, "logit_scale": 8.0},
        DENSE[1],
        [],
        {
            "model_type": "granite",
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.25,
            "attention_multiplier": 0.125,
            "logits_scaling": 8.0,
            "tie_word_embeddings": True,
        },
    ),
    "hunyuan-dense": (
        "hunyuan-dense",
        DENSE[0] | HEADS[0] | {"rope.scaling.type": "none"},
        DENSE[1] | HEADS[1],
        [],
        {"model_type": "hunyuan_v1_dense", "tie_word_embeddings": True},
    ),
    "minimax-m2": (
        "minimax-m2",
        HEADS[0] | EXPERTS | {"expert_feed_forward_length": 12, "rope.dimension_count": 16},
        HEADS[1],
        [OUTPUT, CORRECTION, ("blk.0.attn_q_norm.weight", "F32", (128,))],
        {
            "model_type": "minimax_m2",
            "intermediate_size": 12,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "rotary_dim": 16,
        },
    ),
    "olmo2": ("olmo2", *DENSE, [OUTPUT], {"model_type": "olmo2"}),
    "olmo3": (
        "olmo2",
        DENSE[0] | YARN | {"attention.sliding_window": 16},
        DENSE[1],
        [OUTPUT],
        {
            "model_type": "olmo3",
            "sliding_window": 16,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 128},
        },
    ),
    "qwen2moe": (
        "qwen2moe",
        DENSE[0] | EXPERTS | {"expert_feed_forward_length": 12, "expert_shared_feed_forward_length": 20},
        DENSE[1],
        [OUTPUT],
        {
            "model_type": "qwen2_moe",
            "moe_intermediate_size": 12,
            "shared_expert_intermediate_size": 20,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": False,
        },
    ),
    "seed_oss": (
        "seed_oss",
        DENSE[0] | HEADS[0],
        DENSE[1] | HEADS[1],
        [OUTPUT, BIAS],
        {"model_type": "seed_oss", "attention_bias": True},
    ),
    "smollm3": ("smollm3", *DENSE, [], {"model_type": "smollm3", "tie_word_embeddings": True}),
    "phi3": (
        "phi3",
        DENSE[0] | {"rope.dimension_count": 12, "attention.sliding_window": 0},
        DENSE[1],
        [OUTPUT],
        {"model_type": "phi3", "partial_rotary_factor": 0.75, "sliding_window": None},
    ),
}


def checkpoint_of(architecture, metadata, tensors):
    keys = {f"{architecture}.{key}": value for key, value in (COMMON | metadata).items() if value is not None}
    embedding = ("token_embd.weight", "F16", (100, 64))
    data, size = gguf({"general.architecture": architecture, **keys}, [embedding, *tensors])
    return read_gguf_parts([in_memory(data, size, "m.gguf")])


@pytest.mark.parametrize(("architecture", "metadata", "keys", "tensors", "more"), MODELS.values(), ids=MODELS)
def test_a_gguf_and_the_config_that_it_was_made_from_are_the_same_contract(architecture, metadata, keys, tensors, more):
    config, notes = gguf_config(checkpoint_of(architecture, metadata, tensors))
    assert notes == ()
    assert planner.load(config) == planner.load(CONFIG | keys | more)


def test_the_keys_are_those_of_the_gguf_package():
    gguf_py = pytest.importorskip("gguf")
    keys = gguf_py.constants.Keys
    known = {
        value.removeprefix("{arch}.")
        for part in (keys.LLM, keys.Attention, keys.Rope)
        for value in vars(part).values()
        if isinstance(value, str) and value.startswith("{arch}.")
    }
    used = set(COMMON).union(*(metadata for _, metadata, *_ in MODELS.values()))
    assert used <= known
    assert set(module.ARCHITECTURES) <= set(gguf_py.constants.MODEL_ARCH_NAMES.values())


def test_values_that_each_layer_states_are_one_value_if_they_are_equal():
    same, _ = gguf_config(checkpoint_of("llama", DENSE[0] | {"attention.head_count_kv": [2] * 6}, [OUTPUT]))
    assert same["num_key_value_heads"] == 2
    with pytest.raises(InputError, match=r"llama.attention.head_count_kv = \[2, 4\] differs between layers"):
        gguf_config(checkpoint_of("llama", DENSE[0] | {"attention.head_count_kv": [2, 4]}, [OUTPUT]))


@pytest.mark.parametrize("factors", ["rope_freqs.weight", "rope_factors_long.weight"])
def test_a_rule_of_rope_that_only_its_factors_tell_is_noted(factors):
    config, notes = gguf_config(checkpoint_of("llama", DENSE[0], [OUTPUT, (factors, "F32", (8,))]))
    assert config["rope_scaling"] is None
    assert notes == ("RoPE is scaled by factors that the file stores as a tensor: their rule is not known",)


@pytest.mark.parametrize(
    ("architecture", "metadata", "sentence"),
    [
        ("clip", {}, "m.gguf: general.architecture = 'clip' is none of deepseek2, gemma2, gemma3, glm4moe, gpt-oss, "),
        ("qwen3-moe", {}, "did you mean 'qwen3moe'?; describe the decoder in TOML instead"),
        ("llama", {"block_count": None}, "m.gguf: the metadata key llama.block_count is missing"),
        ("llama", {"nextn_predict_layers": 6}, "nextn_predict_layers = 6 leaves no layer of block_count = 6"),
        ("llama", {"block_count": "6"}, "llama.block_count = '6' is not a whole number of at least 0"),
        ("llama", {"rope.freq_base": float("nan")}, "llama.rope.freq_base = nan is not a finite number"),
        ("llama", {"rope.freq_base": "x"}, "llama.rope.freq_base = 'x' is not a finite number"),
        ("deepseek2", DEEPSEEK[0] | {"rope.dimension_count": 99}, "a key of 24 is narrower than its rotary part of 99"),
        (
            "phi3",
            DENSE[0] | {"attention.head_count": 0},
            "attention.head_count = 0 does not divide embedding_length = 64",
        ),
    ],
)
def test_what_is_not_understood_is_refused_by_name(architecture, metadata, sentence):
    with pytest.raises(InputError) as error:
        gguf_config(checkpoint_of(architecture, metadata, []))
    assert sentence in str(error.value)


def test_without_an_embedding_there_is_no_vocabulary():
    data, size = gguf({"general.architecture": "llama"}, [])
    with pytest.raises(InputError, match=r"token_embd\.weight, whose rows are the vocabulary, is missing"):
        gguf_config(read_gguf_parts([in_memory(data, size)]))


@st.composite
def mutated(draw):
    """A right file's metadata with some values replaced or taken out."""
    architecture, metadata, _, tensors, _ = draw(st.sampled_from(list(MODELS.values())))
    value = st.none() | st.integers(0, 2**40) | st.floats(width=32) | st.text(max_size=4) | st.booleans()
    changed = draw(st.dictionaries(st.sampled_from(sorted(COMMON | metadata)), value | st.just([2, 2]), max_size=3))
    return checkpoint_of(architecture, metadata | changed, tensors)


@given(mutated())
def test_mutated_metadata_are_read_or_refused(checkpoint):
    read_or_refuse(gguf_config, checkpoint)


@pytest.mark.fuzz
@settings(max_examples=20_000)
@given(mutated())
def test_many_mutated_metadata_are_read_or_refused(checkpoint):
    read_or_refuse(gguf_config, checkpoint)
