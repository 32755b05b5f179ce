"""Multimodal configs: the language model's part is read, wherever it stands, and what is left out is named."""

import gzip
import json
from pathlib import Path

import pytest

from planner import folds
from planner.sources.config_json import read_config

DATA = Path(__file__).parents[1] / "data" / "params.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
BY_NAME = {row["name"]: {**row["config"], "model_type": row["model_type"]} for row in ROWS}

LLAMA = BY_NAME["meta-llama/Llama-3.1-8B"]
GEMMA3 = BY_NAME["google/gemma-3-4b-it#text"]


def size(config):
    return folds.parameters(read_config(config, "config.json").architecture.parts())


def test_the_text_part_of_a_multimodal_config_is_read_and_the_rest_named():
    config = {
        "model_type": "gemma3",
        "text_config": GEMMA3,
        "vision_config": {"hidden_size": 1152},
        "image_token_index": 5,
    }
    reading = read_config(config, "config.json")
    assert folds.parameters(reading.architecture.parts()) == size(GEMMA3)
    assert reading.notes == ("config.json: vision_config is left out; only the language model is read",)
    assert reading.unknown_keys == ()


def test_ends_and_formats_stand_outside_the_text_part():
    config = {
        "model_type": "mistral3",
        "text_config": {**LLAMA, "tie_word_embeddings": None},
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "quantization_config": {"quant_method": "fp8"},
        "wobble": 1,
        "hidden_size": 7,
    }
    reading = read_config(config, "config.json")
    assert reading.architecture.output.tied
    assert reading.architecture.weights == "fp16"
    assert reading.quantization == {"quant_method": "fp8"}
    beside = "config.json: keys beside text_config that are not understood and were left out: wobble"
    assert [note for note in reading.notes if "not understood" in note] == [beside]  # nor is hidden_size repeated


def test_sizes_that_published_files_leave_out_are_filled_in_aloud():
    bare = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34}
    bare |= {"sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
    reading = read_config({"model_type": "gemma3", "text_config": bare}, "config.json")
    assert folds.parameters(reading.architecture.parts()) == 3_880_263_168
    assert "config.json: text_config: vocab_size is missing; 262,208 is what the class gemma3_text has" in reading.notes


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("kimi_k25", "deepseek-ai/DeepSeek-V3"),
        ("llama4", "meta-llama/Llama-4-Scout-17B-16E-Instruct#text"),
        ("mistral3", "mistralai/Ministral-3-3B-Instruct-2512#text"),
        ("llava", "meta-llama/Llama-2-7b-hf"),
    ],
)
def test_wrappers_need_no_reader_of_their_own(outer, inner):
    config = {"model_type": outer, "text_config": BY_NAME[inner]}
    assert folds.parameters(read_config(config, "x").architecture.parts()) == size(BY_NAME[inner])


def test_flat_multimodal_configs_are_read_too():
    flat = {**BY_NAME["Qwen/Qwen2-7B-Instruct"], "model_type": "qwen2_vl", "vision_config": {"depth": 32}}
    flat["rope_scaling"] = {"type": "mrope", "mrope_section": [16, 24, 24]}
    reading = read_config(flat, "x")
    assert folds.parameters(reading.architecture.parts()) == 7_615_616_512
    assert reading.unknown_keys == ()


def test_a_nested_part_of_a_nested_part():
    config = {"model_type": "omni", "thinker_config": {"model_type": "thinker", "text_config": LLAMA}}
    assert folds.parameters(read_config(config, "x").architecture.parts()) == 8_030_261_248


SMALL_DEEPSEEK = {
    "model_type": "deepseek_v2",
    "vocab_size": 129_280,
    "hidden_size": 1280,
    "num_hidden_layers": 12,
    "num_attention_heads": 10,
    "num_key_value_heads": 10,
    "intermediate_size": 6848,
    "moe_intermediate_size": 896,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "topk_method": "greedy",
    "use_mla": False,
    "kv_lora_rank": None,
    "q_lora_rank": None,
    "qk_nope_head_dim": 0,
    "qk_rope_head_dim": 0,
    "v_head_dim": 0,
    "lm_head": True,
    "rm_head": False,
}


def test_a_small_deepseek_may_have_plain_attention():
    """DeepSeek-VL2-Tiny; the text part of DeepSeek-OCR has the same shapes, and transformers counts as many."""
    config = {"model_type": "deepseek_vl_v2", "language_config": SMALL_DEEPSEEK, "projector_config": {"n_embed": 1280}}
    reading = read_config(config, "config.json")
    assert folds.parameters(reading.architecture.parts()) == 2_934_734_080
    assert reading.unknown_keys == ()
    assert "config.json: projector_config is left out; only the language model is read" in reading.notes


def test_a_correction_of_scores_is_stored_where_the_routing_has_one():
    routing = {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True}
    experts = read_config({**SMALL_DEEPSEEK, **routing, "routed_scaling_factor": 2.0}, "x").architecture.layers[1]
    assert (experts.feed_forward.correction_bias, experts.feed_forward.routed_scale) == ("buffer", 2.0)
    assert size({**SMALL_DEEPSEEK, **routing}) - size(SMALL_DEEPSEEK) == 11 * 64


@pytest.mark.parametrize("name", ["quantization", "quantization_config", "compression_config"])
def test_how_weights_are_quantised_stands_under_several_names_inside_and_outside(name):
    table = {"quant_method": "compressed-tensors", "format": "dense"}
    for config in ({**LLAMA, name: table}, {"model_type": "llava", "text_config": LLAMA, name: table}):
        reading = read_config(config, "config.json")
        assert (reading.quantization, reading.unknown_keys, reading.notes) == (table, (), ())


def test_a_part_that_is_null_needs_no_word():
    config = {"model_type": "gemma3", "text_config": GEMMA3, "audio_config": None, "boi_token_index": 1}
    assert read_config(config, "config.json").notes == ()
