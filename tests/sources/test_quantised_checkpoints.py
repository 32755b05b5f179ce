"""Whole checkpoints as other programs quantise and save them: every tensor found in the contract, every byte explained.

`quantised_checkpoints.jsonl.gz` has small models that MLX, torchao, HQQ and the layers of transformers quantised: the
config.json and the header that each wrote, and the integers by which HQQ states a shape.
"""

import json

import pytest

import planner
from planner.sources import read_headers
from planner.witness.reconcile import held_to
from planner.witness.roles import LAYER
from tests.sources.builders import entries, safetensors
from tests.witness.builders import jsonl

RECORDS = {record["name"]: record for record in jsonl("quantised_checkpoints.jsonl.gz")}

# What files hold and no format counts: HQQ stores the settings of each of 14 layers, 68 bytes, with it; two of MLX's
# recipe have other widths in some layers of a role.
MORE = {name: 14 * 68 for name in RECORDS if name.startswith("hqq")} | {"mlx llama-mixed": 10_240}


def written(folder, record):
    """The checkpoint on disk, with holes where weights are."""
    (folder / "config.json").write_text(json.dumps(record["config"]))
    header, size = safetensors(record["tensors"])
    table, _ = entries(record["tensors"])
    with (folder / "model.safetensors").open("wb") as file:
        file.write(header)
        file.truncate(size)
        for name, integers in record["values"].items():
            file.seek(len(header) + table[name]["data_offsets"][0])
            file.write(b"".join(integer.to_bytes(8, "little") for integer in integers))
    return folder


@pytest.mark.parametrize("name", RECORDS)
def test_a_quantised_checkpoint_is_what_its_config_says(name, tmp_path):
    checkpoint, loaded, why_not = read_headers(written(tmp_path, RECORDS[name]))
    assert why_not == ""
    model = loaded.architecture
    assert model.weights != "bf16"
    assert checkpoint.parameters == planner.parameters(model)
    assert checkpoint.stored_bytes == planner.weight_bytes(model) + MORE.get(name, 0)
    assert held_to(model, checkpoint).differences.agree


def test_what_is_quantised_otherwise_in_part_is_said(tmp_path):
    _, loaded, _ = read_headers(written(tmp_path, RECORDS["mlx llama-mixed"]))
    said = [note.partition("quantization_config: ")[2] for note in loaded.notes]
    assert said == [
        f"'model.layers.1.{part}' and its like are a part of {role}, mlx-int6-g64, "
        "counted as mlx-int4-g64 as the rest of it is"
        for part, role in [("self_attn.v_proj", "attention"), ("mlp.down_proj", "ffn_dense")]
    ]


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("mlp.switch_mlp.gate_proj.weight", "feed_forward.experts.gate.weight"),
        ("mlp.experts.up_proj.bias", "feed_forward.experts.up.bias"),
        ("experts.switch_glu.down_proj.weight", "feed_forward.experts.down.weight"),
        ("mixer.switch_mlp.fc1.weight", "feed_forward.experts.up.weight"),
        ("mixer.switch_mlp.fc2.weight", "feed_forward.experts.down.weight"),
        ("ffn.experts.3.v1.weight", "feed_forward.experts.up.weight"),
        ("mlp.c_fc_0.weight", "feed_forward.gate.weight"),
        ("self_attn.attention_sink_bias", "mixer.sinks"),
    ],
)
def test_what_mlx_calls_tensors_of_a_layer(name, tensor):
    found = next((role, match) for role in LAYER if (match := role.pattern.fullmatch(name)))
    assert [found[1].expand(target) for target in found[0].targets] == [tensor]


# The total_size in the index of public checkpoints. Where a difference is known to the byte, it is the last figure.
PUBLISHED = [
    ("mlx-community/Llama-3.2-1B-Instruct-4bit", "llama-3.2-1b", "mlx-int4-g64", 695_242_752, 0),
    ("mlx-community/Llama-3.2-3B-Instruct-4bit", "llama-3.2-3b", "mlx-int4-g64", 1_807_423_488, 0),
    ("mlx-community/Llama-3.1-8B-Instruct-4bit", "llama-3.1-8b", "mlx-int4-g64", 4_517_404_672, 0),
    ("mlx-community/Llama-3.3-70B-Instruct-4bit", "llama-3.3-70b", "mlx-int4-g64", 39_688_355_840, 0),
    ("mlx-community/SmolLM2-135M-Instruct-8bit", "smollm2-135m", "mlx-int8-g64", 142_955_136, 0),
    (
        "mlx-community/gpt-oss-20b-MXFP4-Q8",
        "gpt-oss-20b",
        "mlx-int8-g64+experts_routed=mlx-mxfp4+router=mlx-int8-g64",
        12_076_119_168,
        0,
    ),
    (
        "mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit",
        "qwen3-30b-a3b",
        "mlx-int4-g64+router=mlx-int8-g64",
        17_180_913_664,
        0,
    ),
    (  # the gate of the shared expert, a single row, has eight bits there
        "mlx-community/Qwen3-Coder-Next-4bit",
        "qwen3-next-80b-a3b",
        "mlx-int4-g64+router=mlx-int8-g64",
        44_844_060_160,
        48 * (2048 * 2 - 2048 - 2048 // 64 * 4),
    ),
    (  # scales of the router, and its correction, are float32 there
        "mlx-community/MiniMax-M2.5-6bit",
        "minimax-m2.5",
        "mlx-int6-g64+router=mlx-int8-g64",
        185_826_705_408,
        -62 * 256 * (3072 // 64 * 4 + 2),
    ),
]


@pytest.mark.parametrize(("repository", "model", "weights", "total", "apart"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_a_public_checkpoint_has_the_bytes_of_its_formats(repository, model, weights, total, apart):
    assert planner.weight_bytes(planner.load(model), weights=weights) == total + apart


def test_experts_of_deepseek_v4_are_of_four_bits():
    """Its config says so beside its quantization_config, which speaks of fp8 alone."""
    config = next(row["config"] for row in jsonl("params.jsonl.gz") if row["config"]["model_type"] == "deepseek_v4")
    quantised = {"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}
    for experts, weights in [("fp4", "fp8-block128+experts_routed=mxfp4"), ("fp8", "fp8-block128")]:
        told = {"expert_dtype": experts, "quantization_config": quantised}
        assert planner.load({**config, **told}).weights == weights
    of_text = "deepseek_v4_fp8"  # what some tools write under MLX's key is no table, and not read
    assert planner.load({**config, "quantization": of_text}).weights == "bf16"


# MLX 0.32.4 and mlx-lm 0.32.2 made each of these decoders in its full size and quantised it; the bytes are those of all
# its arrays. Whether a router is quantised depends on its family's class there, which no config tells: these are.
SIZES = {row["name"]: row for row in jsonl("mlx_bytes.jsonl.gz")}
ROUTERS = """
    mistralai/Mixtral-8x7B-v0.1 Qwen/Qwen1.5-MoE-A2.7B microsoft/Phi-3.5-MoE-instruct allenai/OLMoE-1B-7B-0924
    databricks/dbrx-base baidu/ERNIE-4.5-21B-A3B-PT
""".split()
SINGLE_ROWS = {"Qwen/Qwen3-Next-80B-A3B-Instruct": 92_160}


@pytest.mark.parametrize("name", SIZES)
def test_every_decoder_that_mlx_quantises_has_its_bytes(name):
    config = next(row["config"] for row in jsonl("params.jsonl.gz") if row["name"] == name)
    loaded = planner.sources.read({**config, "torch_dtype": "bfloat16", "quantization": SIZES[name]["quantization"]})
    apart = planner.weight_bytes(loaded.architecture) - SIZES[name]["stored_bytes"]
    said = any("does not say whether router is quantised" in note for note in loaded.notes)
    if name in ROUTERS:
        assert said
        assert 0 < apart < 0.001 * SIZES[name]["stored_bytes"]
    else:
        assert apart == SINGLE_ROWS.get(name, 0)
