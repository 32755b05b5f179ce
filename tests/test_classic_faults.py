"""The classic faults of calculators, each with the exact value that shows it.

Kept elsewhere: the latent sharded over ranks and KV heads fewer than ranks (`test_parallel`), a sparse or vector peak
taken for the tensor peak (`test_catalogue`).
"""

import gzip
import json
from pathlib import Path

import pytest

import planner
from planner import folds
from planner.bill import Pass
from planner.sources.config_json import read_config
from planner.units import parse_bytes, show

DATA = Path(__file__).parent / "data" / "params.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
CONFIGS = {row["name"]: {**row["config"], "model_type": row["model_type"]} for row in ROWS}


def read(name, **changes):
    config = {**CONFIGS[name], **changes}
    return read_config({key: value for key, value in config.items() if value is not ...}, name).architecture


def parts(name, **changes):
    return read(name, **changes).parts()


def cached(name, length, **changes):
    """Cached elements of one sequence."""
    return folds.cache_total(parts(name, **changes), [length], lambda entry, positions: entry.elements * positions)


def tensors(name):
    return {f"{part.path}.{tensor.id}": tensor for part in parts(name) for tensor in part.bill.tensors}


def test_latent_attention_is_not_read_as_grouped_heads():
    """DeepSeek-V3 keeps 512 + 64 elements a layer and token, not 128 heads of 192 + 128."""
    assert cached("deepseek-ai/DeepSeek-V3", 1) == 61 * (512 + 64) == 35_136
    assert cached("deepseek-ai/DeepSeek-V3", 1) != 61 * 128 * (192 + 128)


def test_the_latent_belongs_to_every_rank():
    entries = [entry for _, entry in folds.cache(parts("deepseek-ai/DeepSeek-V3"))]
    assert {(entry.id, entry.shard) for entry in entries} == {("latent", "replicated"), ("rope_key", "replicated")}


@pytest.mark.parametrize(
    ("name", "layers", "kv_heads", "head_dim", "total"),
    [
        ("Qwen/Qwen3-0.6B", 28, 8, 128, 596_049_920),  # 1024 / 16 = 64
        ("mistralai/Mistral-Nemo-Instruct-2407", 40, 8, 128, 12_247_782_400),  # 5120 / 32 = 160
        ("google/gemma-2b", 18, 1, 256, 2_506_172_416),
    ],
)
def test_the_head_width_is_no_quotient(name, layers, kv_heads, head_dim, total):
    assert cached(name, 1) == layers * 2 * kv_heads * head_dim
    assert folds.parameters(parts(name)) == total


def test_a_window_bounds_the_cache():
    """Mistral 7B v0.1: 4096 positions on every layer."""
    assert cached("mistralai/Mistral-7B-v0.1", 32_768) == 32 * 2 * 8 * 128 * 4096 == 268_435_456
    assert cached("mistralai/Mistral-7B-v0.1", 32_768, sliding_window=None) == 8 * 268_435_456


def test_a_window_is_not_on_every_layer():
    """Gemma 3 27B: 52 local layers of 1024 positions, 10 global ones."""
    expected = 2 * 16 * 128 * (52 * 1024 + 10 * 131_072)
    assert cached("google/gemma-3-27b-it#text", 131_072) == expected == 5_586_812_928


@pytest.mark.parametrize(
    ("name", "keys", "local", "window"),
    [
        ("google/gemma-3-27b-it#text", {"sliding_window_pattern": ..., "layer_types": ...}, 52, 1024),
        ("google/gemma-2-9b", {"layer_types": ..., "sliding_window": ...}, 21, 4096),
        ("openai/gpt-oss-20b", {"layer_types": ...}, 12, 128),
        ("CohereLabs/c4ai-command-a-03-2025", {"layer_types": ...}, 48, 4096),
        ("allenai/Olmo-3-1025-7B", {"layer_types": ..., "sliding_window": ...}, 24, 4096),
        ("LGAI-EXAONE/EXAONE-4.0-32B", {"layer_types": ..., "sliding_window_pattern": "LLLG"}, 48, 4096),
    ],
)
def test_a_pattern_that_the_file_leaves_out_is_the_family_s_own(name, keys, local, window):
    layers = read(name, **keys).layers
    assert sum(layer.count for layer in layers if layer.mixer.window == window) == local
    assert read(name, **keys).layers == read(name).layers


def test_a_window_that_is_switched_off_is_none():
    """Qwen2.5 files state a sliding_window beside use_sliding_window = false."""
    config = CONFIGS["Qwen/Qwen2.5-14B"]
    assert config["use_sliding_window"] is False
    assert config["sliding_window"] > 0
    assert cached("Qwen/Qwen2.5-14B", 131_072) == 131_072 * 48 * 2 * 8 * 128


def test_a_tied_matrix_is_stored_once_and_multiplied_by():
    """Llama 3.2 1B is tied, Llama 3.1 8B is not; both multiply by V x d for each position that gives logits."""
    assert folds.parameters(parts("meta-llama/Llama-3.2-1B")) == 1_235_814_400
    assert "lm_head" not in folds.parameters(parts("meta-llama/Llama-3.2-1B"), by="role")
    assert (
        folds.parameters(parts("meta-llama/Llama-3.2-1B", tie_word_embeddings=False)) == 1_235_814_400 + 128_256 * 2048
    )
    heads = folds.flops(parts("meta-llama/Llama-3.2-1B"), Pass.prefill(1), by="component")["lm_head"]
    assert heads == 2 * 128_256 * 2048
    assert folds.parameters(parts("meta-llama/Llama-3.1-8B"), by="role")["lm_head"] == 128_256 * 4096


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "openai-community/gpt2", "google/gemma-2-9b"])
def test_an_embedding_is_no_product(name):
    assert "embedding" not in folds.flops(parts(name), Pass.prefill(1000), by="component")


def test_a_look_up_reads_rows_and_a_tied_table_is_read_whole():
    assert tensors("meta-llama/Llama-3.1-8B")["embedding.tokens.weight"].access == "rows"
    assert tensors("openai-community/gpt2")["embedding.tokens.weight"].access == "whole"
    assert tensors("openai-community/gpt2")["embedding.positions.weight"].access == "rows"


def test_a_gated_feed_forward_has_three_matrices():
    role = folds.parameters(parts("meta-llama/Llama-3.1-8B"), by="role")
    assert role["ffn_dense"] == 32 * 3 * 4096 * 14_336 == 5_637_144_576
    role = folds.parameters(parts("arcee-ai/AFM-4.5B"), by="role")
    assert role["ffn_dense"] == 36 * 2 * 2560 * 18_432 == 3_397_386_240


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704, 12_879_925_248),
        ("deepseek-ai/DeepSeek-V3", 671_026_419_200, 37_552_282_624 + 58 * 256),
        ("openai/gpt-oss-120b", 116_829_156_672, 5_711_982_912),
    ],
)
def test_active_experts_are_not_all_experts(name, total, active):
    assert folds.parameters(parts(name)) == total
    assert folds.parameters(parts(name), active=True) == active


def test_the_first_layers_are_dense():
    """DeepSeek-V3: three dense layers of 18432, then 58 with experts."""
    architecture = read("deepseek-ai/DeepSeek-V3")
    assert [(layer.count, layer.feed_forward.kind) for layer in architecture.layers] == [
        (3, "feed_forward"),
        (58, "mixture"),
    ]
    role = folds.parameters(architecture.parts(), by="role")
    assert role["ffn_dense"] == 3 * 3 * 7168 * 18_432 == 1_189_085_184
    assert role["experts_routed"] == 58 * 256 * 3 * 7168 * 2048 == 653_908_770_816


def test_shared_experts_are_counted():
    assert folds.parameters(parts("deepseek-ai/DeepSeek-V3"), by="role")["experts_shared"] == 58 * 3 * 7168 * 2048
    qwen = folds.parameters(parts("Qwen/Qwen1.5-MoE-A2.7B"), by="role")["experts_shared"]
    assert qwen == 24 * (3 * 2048 * 5632 + 2048)  # with the gate in front of it


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("deepseek-ai/DeepSeek-V3", "n_routed_experts", "num_local_experts"),
        ("deepseek-ai/DeepSeek-V3", "n_routed_experts", "num_experts"),
        ("deepseek-ai/DeepSeek-V3", "n_shared_experts", "num_shared_experts"),
        ("mistralai/Mixtral-8x7B-v0.1", "num_local_experts", "n_routed_experts"),
        ("mistralai/Mixtral-8x7B-v0.1", "num_experts_per_tok", "num_experts_per_token"),
        ("openai/gpt-oss-20b", "num_experts_per_tok", "experts_per_token"),
        ("baidu/ERNIE-4.5-21B-A3B-PT", "moe_num_experts", "num_experts"),
        ("tencent/Hunyuan-A13B-Instruct", "moe_topk", "num_experts_per_tok"),
    ],
)
def test_experts_have_many_names(name, old, new):
    assert read(name, **{old: ..., new: CONFIGS[name][old]}) == read(name)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
def test_the_checkpoint_s_format_is_not_the_cache_s(dtype):
    architecture = read("meta-llama/Llama-3.1-8B", torch_dtype=dtype, quantization_config={"quant_method": "fp8"})
    assert architecture.kv == "bf16"
    assert (architecture.weights == "bf16") == (dtype == "bfloat16")


def test_scales_and_zero_points_of_quantised_weights_are_stored():
    """Llama 3.1 8B, AWQ in groups of 128: 2 bytes of scale and half a byte of zero point for each group; published
    checkpoints have 5.73 GB. Half a byte a parameter would be 4.0 GB."""
    model = read("meta-llama/Llama-3.1-8B")
    linear = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14_336)
    rest = 2 * 128_256 * 4096 + 65 * 4096
    expected = linear // 2 + linear // 128 * 5 // 2 + 2 * rest
    assert planner.weight_bytes(model, weights="awq-g128") == expected == 5_727_854_592


def test_gib_are_no_gb():
    """80 GiB are 7 % more than 80 GB, and Llama 3.1 8B in bf16 is 16.06 GB or 14.96 GiB."""
    assert (parse_bytes("80GB"), parse_bytes("80GiB")) == (80_000_000_000, 85_899_345_920)
    size = planner.weight_bytes(read("meta-llama/Llama-3.1-8B"))
    assert size == 16_060_522_496
    assert (show(size, "B"), show(size, "B", binary=True)) == ("16.06 GB", "14.96 GiB")


def test_a_multiply_add_is_two_flops():
    """Llama 3.1 8B, one token without context: twice the weights that multiply, and one key to look at."""
    run = parts("meta-llama/Llama-3.1-8B")
    weights = 8_030_261_248 - 128_256 * 4096 - 65 * 4096  # without the look-up table and the norms
    assert folds.flops(run, Pass.prefill(1)) == 2 * weights + 32 * 2 * 32 * (128 + 128)


def test_decoding_looks_at_the_context():
    """Each step costs 4 H d a layer for every position behind it: the TP + T² law."""
    run = parts("meta-llama/Llama-3.1-8B")
    step = folds.flops(run, Pass.decode(131_071)) - folds.flops(run, Pass.decode(0))
    assert step == 32 * 4 * 32 * 128 * 131_071 == 68_718_952_448
    core = folds.flops(run, Pass.decode(1000, 50), by="component")["attention_core"]
    assert core == 32 * (4 * 32 * 128 * 50 * 1000 + 2 * 32 * 128 * 50 * 51)
