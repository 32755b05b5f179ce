"""What the readers of hybrids, states and sparse attention decide, beyond the counts that `test_families` holds."""

import gzip
import json
from pathlib import Path

import pytest

from planner import folds
from planner.bill import Pass
from planner.components.compressed_attention import CompressedAttention
from planner.components.dense_attention import DenseAttention
from planner.components.shared_block import SharedBlock
from planner.components.side_by_side import SideBySide
from planner.components.sparse_attention import SparseLatentAttention
from planner.components.state_space import Mamba, Mamba2
from planner.components.streams import AltUp, HyperConnections
from planner.errors import PlannerError
from planner.loading import from_table, parse_toml, to_toml
from planner.rules import Strided, StridedTopK, TopK
from planner.sources.config_json import read_config

DATA = Path(__file__).parents[1] / "data" / "params.jsonl.gz"
ROWS = {row["name"]: row for row in map(json.loads, gzip.decompress(DATA.read_bytes()).splitlines())}


def read(name, **changes):
    row = ROWS[name]
    table = {"model_type": row["model_type"], **row["config"], **changes}
    return read_config({key: value for key, value in table.items() if value is not ...}, "config.json")


def layers(name, **changes):
    return read(name, **changes).architecture.layers


def bytes_of_layer(layer, d_model, length):
    entries = [entry for part in layer.parts("", d_model) for entry in part.bill.cache]
    return {entry.id: entry.elements * entry.rule.kept(length) for entry in entries}


def test_every_part_goes_through_toml_and_back():
    names = {row["model_type"]: name for name, row in ROWS.items()}
    for name in names.values():
        model = read(name).architecture
        assert from_table(parse_toml(to_toml(model), "x.toml"), "x.toml") == model


# --- hybrids ------------------------------------------------------------------------------------------------------


def test_zamba2_blocks_take_turns_and_share_everything_but_adapters():
    model = read("Zyphra/Zamba2-2.7B").architecture
    blocks = [layer.extras[0].block if layer.extras else "" for layer in model.order()]
    assert [block for block in blocks if block] == ["block0", "block1"] * 4 + ["block0"]
    extra = next(layer for layer in model.layers if layer.extras).extras[0]
    assert isinstance(extra, SharedBlock)
    own = sum(tensor.size for tensor in extra.bill(model.d_model).tensors if not tensor.shared)
    assert own == 128 * 2560 + 2 * 10240 * 128 + 2560 * 2560
    assert extra.attention.head_dim == 160
    assert extra.attention.scale == pytest.approx(80**-0.5)


def test_zamba2_with_one_block_more_stores_one_more():
    two, three = (folds.parameters(read("Zyphra/Zamba2-2.7B", num_mem_blocks=n).architecture.parts()) for n in (2, 3))
    block = 3 * 5120 * 5120 + 2560 * 5120 + 3 * 2560 * 10240 + 5120 + 2560
    assert three - two == block


def test_falcon_h1_multipliers_stand_in_the_contract():
    changes = {"key_multiplier": 0.5, "ssm_out_multiplier": 0.25, "mlp_multipliers": [0.5, 2.0]}
    (layer,) = layers("tiiuae/Falcon-H1-0.5B-Base", **changes)
    attention, state = layer.mixer.mixers
    assert isinstance(layer.mixer, SideBySide)
    assert isinstance(attention, DenseAttention)
    assert isinstance(state, Mamba2)
    assert state.norm is None
    assert attention.scale == 64**-0.5 * 0.5
    assert layer.mixer.output_scales == (1.0, 0.25)
    assert (layer.feed_forward.gate_scale, layer.feed_forward.output_scale) == (0.5, 2.0)


def test_jamba_without_a_rank_takes_a_sixteenth_of_its_width():
    state = next(layer.mixer for layer in layers("ai21labs/Jamba-v0.1", mamba_dt_rank="auto") if layer.label == "state")
    assert isinstance(state, Mamba)
    assert state.dt_rank == 256
    attention = next(layer for layer in layers("ai21labs/Jamba-v0.1") if layer.label == "global")
    assert (attention.count, attention.mixer.position) == (4, None)


def test_granite_without_experts_keeps_the_shared_branch_alone():
    name = "ibm-granite/granite-4.0-h-tiny"
    dense = read(name, num_local_experts=0, num_experts_per_tok=0).architecture
    parts = folds.parameters(read(name).architecture.parts(), by="role")
    assert folds.parameters(dense.parts(), by="role")["ffn_dense"] == parts["experts_shared"]
    assert all(layer.mixer.position is None for layer in dense.layers if isinstance(layer.mixer, DenseAttention))


def test_nemotron_experts_may_work_on_a_latent():
    name, d, latent = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 2688, 1024
    whole, narrow = (
        folds.parameters(read(name, moe_latent_size=size).architecture.parts(), by="role") for size in (None, latent)
    )
    assert narrow["experts_routed"] * d == whole["experts_routed"] * latent
    assert narrow["other"] == 23 * 2 * d * latent
    assert narrow["experts_shared"] == whole["experts_shared"]


# --- cheaper mixers between attention -----------------------------------------------------------------------------


def test_lfm2_rounds_two_thirds_of_its_width_up():
    assert layers("LiquidAI/LFM2-700M")[0].feed_forward.d_ff == 6912
    assert layers("LiquidAI/LFM2-700M", block_auto_adjust_ff_dim=False)[0].feed_forward.d_ff == 10240
    assert layers("LiquidAI/LFM2-700M", block_multiple_of=1000)[0].feed_forward.d_ff == 7000


def test_minimax_reads_its_older_spelling():
    older = {"model_type": "minimax_text_01", "layer_types": ..., "attn_type_list": ([0] * 7 + [1]) * 10}
    scales = {f"layernorm_{part}_alpha": 3.5 for part in ("full_attention", "linear_attention", "mlp")}
    new = read("MiniMaxAI/MiniMax-Text-01-hf").architecture
    old = read("MiniMaxAI/MiniMax-Text-01-hf", **older, **scales).architecture
    assert folds.parameters(old.parts()) == folds.parameters(new.parts())
    assert {layer.stream_scale for layer in old.layers} == {3.5}


def test_lightning_state_does_not_grow_and_is_not_quantised():
    model = read("MiniMaxAI/MiniMax-Text-01-hf").architecture
    (layer,) = [layer for layer in model.layers if layer.label == "linear"]
    assert bytes_of_layer(layer, model.d_model, 10) == bytes_of_layer(layer, model.d_model, 10**6)
    (entry,) = [entry for part in layer.parts("", model.d_model) for entry in part.bill.cache]
    assert entry.stored_in("fp8", "bf16") == "bf16"


# --- sparse attention ---------------------------------------------------------------------------------------------


def test_glm_layers_may_share_an_indexer():
    name = "zai-org/GLM-5"
    own = layers(name)
    assert all(isinstance(layer.mixer, SparseLatentAttention) and layer.mixer.own_index for layer in own)
    shared = read(name, index_topk_freq=4, index_skip_topk_offset=2).architecture
    counted = [layer.mixer.own_index for layer in shared.order()]
    assert counted[:11] == [True, True, False, False, False, True, False, False, False, True, False]
    indexer = 2048 * 4096 + 6144 * 128 + 2 * 128 + 6144 * 32
    less = folds.parameters(read(name).architecture.parts()) - folds.parameters(shared.parts())
    assert less == counted.count(False) * indexer


def test_sparse_attention_saves_products_and_no_cache():
    sparse = read("deepseek-ai/DeepSeek-V3.2").architecture
    dense = read_config({**ROWS["deepseek-ai/DeepSeek-V3"]["config"], "model_type": "deepseek_v3"}, "c").architecture
    run = Pass.decode(100_000)
    by = {m.name: folds.flops(m.parts(), run, by="product") for m in (sparse, dense)}
    core = {name: sum(f for p, f in by[name].items() if p.endswith("mixer.scores")) for name in by}
    assert core[sparse.name] * 100_001 == core[dense.name] * 2048
    per_layer = [sum(bytes_of_layer(m.layers[0], m.d_model, 1000).values()) for m in (sparse, dense)]
    assert per_layer == [(512 + 64 + 128) * 1000, (512 + 64) * 1000]
    assert sparse.layers[0].mixer.rule == TopK(2048)


def test_deepseek_v4_keeps_a_window_and_compressed_entries():
    model = read("deepseek-ai/DeepSeek-V4-Flash").architecture
    kinds = {layer.label: layer for layer in model.layers}
    assert sum(layer.count for layer in model.layers) == 43
    assert isinstance(kinds["heavy"].mixer, CompressedAttention)
    heavy = bytes_of_layer(kinds["heavy"], model.d_model, 10_000)
    assert heavy["kv"] == 128 * 512
    assert heavy["compressor.entries"] == 10_000 // 128 * 512
    rules = {p.id: p.rule for p in kinds["sparse2"].mixer.bill(4096).products}
    assert rules["compressed.scores"] == StridedTopK(4, 4, 512)
    assert rules["indexer.scores"] == Strided(4, 4)
    assert isinstance(model.streams, HyperConnections)


# --- Gemma 3n -----------------------------------------------------------------------------------------------------


def test_gemma_3n_readers_take_the_last_layer_of_their_type_before_them():
    model = read("google/gemma-3n-E2B-it#text").architecture
    order = list(model.order())
    sources = {layer.mixer.kv_source for layer in order[20:]}
    assert sources == {order[18].label, order[19].label}
    assert all(layer.mixer.kv_source is None for layer in order[:20])
    assert [bool(layer.feed_forward.sparsity) for layer in order] == [True] * 10 + [False] * 20
    assert isinstance(model.streams, AltUp)
    cached = folds.cache_total(model.parts(), [1000], lambda entry, positions: entry.elements * positions)
    assert cached == 2 * 2 * 256 * (16 * 512 + 4 * 1000)


def test_the_table_of_layer_embeddings_is_only_looked_up():
    parts = read("google/gemma-3n-E4B-it#text").architecture.parts()
    assert folds.parameters(parts) - folds.parameters(parts, lookups=False) == 262_144 * 35 * 256


# --- what cannot be -----------------------------------------------------------------------------------------------

BAD = [
    ("Zyphra/Zamba2-2.7B", {"num_attention_heads": 4000}, "num_attention_heads = 4000 leaves heads of 1 elements"),
    ("Zyphra/Zamba2-2.7B", {"layers_block_type": ["mamba"]}, "layers_block_type is not mamba or hybrid"),
    ("Zyphra/Zamba2-2.7B", {"mamba_headdim": 63}, "80 heads of 63 are not the inner width 5120"),
    ("tiiuae/Falcon-H1-0.5B-Base", {"mlp_multipliers": [1.0]}, "mlp_multipliers has not 2 entries"),
    ("tiiuae/Falcon-H1-0.5B-Base", {"mamba_n_groups": 5}, "n_groups = 5 does not divide n_heads = 24"),
    ("nvidia/Nemotron-H-56B-Base-8K", {"hybrid_override_pattern": ""}, "hybrid_override_pattern is missing, and so is"),
    ("nvidia/Nemotron-H-56B-Base-8K", {"hybrid_override_pattern": "MX"}, "is not made of M, *, - and E"),
    ("nvidia/Nemotron-H-56B-Base-8K", {"hybrid_override_pattern": "M" * 10}, "has 10 letters for 118 layers"),
    ("ibm-granite/granite-4.0-h-tiny", {"layer_types": ["mamba"]}, "layer_types has 1 entries for 40 layers"),
    ("ibm-granite/granite-4.0-h-tiny", {"layer_types": ["x"] * 40}, "layer_types: 'x' is none of"),
    ("MiniMaxAI/MiniMax-Text-01-hf", {"mlp_alpha_factor": 2.0}, "mlp_alpha_factor = 2 is not that of attention"),
    ("MiniMaxAI/MiniMax-Text-01-hf", {"attn_type_list": [1]}, "attn_type_list has 1 entries for 80 layers"),
    ("google/recurrentgemma-2b", {"block_types": ["x"]}, "block_types has another entry"),
    ("google/recurrentgemma-2b", {"lru_width": 2561}, "n_heads = 10 does not divide width = 2561"),
    ("zai-org/GLM-5", {"indexer_types": ["full"]}, "indexer_types = ['full'] is not full or shared for each of 78"),
    ("zai-org/GLM-5", {"mlp_layer_types": ["dense"]}, "mlp_layer_types has 1 entries for 78 layers"),
    ("zai-org/GLM-5", {"q_lora_rank": None}, "q_lora_rank is left out"),
    ("deepseek-ai/DeepSeek-V4-Flash", {"compress_ratios": [0, 5]}, "compress_ratios is not one of 0, 4, 128"),
    ("deepseek-ai/DeepSeek-V4-Flash", {"scoring_func": "x"}, "scoring_func = 'x' is none of"),
    ("google/gemma-3n-E2B-it#text", {"num_kv_shared_layers": 30}, "num_kv_shared_layers = 30 leaves none of 30"),
    ("google/gemma-3n-E2B-it#text", {"intermediate_size": [1, 2]}, "intermediate_size has 2 entries for 30 layers"),
    ("google/gemma-3n-E2B-it#text", {"num_kv_shared_layers": 27}, "leaves no full_attention layer"),
    (
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        {"mlp_only_layers": [0], "intermediate_size": ...},
        "intermediate_size is missing",
    ),
    ("state-spaces/mamba-130m-hf", {"time_step_rank": "big"}, "time_step_rank = 'big' is not a whole number"),
]


@pytest.mark.parametrize(("name", "changes", "sentence"), BAD, ids=[f"{n}-{next(iter(c))}" for n, c, _ in BAD])
def test_a_value_that_cannot_be_is_named(name, changes, sentence):
    with pytest.raises(PlannerError) as caught:
        read(name, **changes)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("config.json: ")


def test_a_size_that_the_file_leaves_out_is_said():
    reading = read("state-spaces/mamba-130m-hf", state_size=...)
    assert reading.notes == ("config.json: state_size is missing; 16 is what the class mamba has",)
