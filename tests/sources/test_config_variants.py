"""Configs beyond the truth set, counted by an outside program: other sizes, classes' own values, files written anew.

Rows of `config_variants.jsonl.gz`; totals and stored buffers are those of transformers 5.24.0 on the meta device, built
from the same keys. `real`: published configs from general knowledge or from copies in public repositories (the count
does not depend on that); `default`: what a class without arguments writes; `resaved`: a truth row or a `real` one as
transformers 5 writes it again (rope_parameters, layer_types, per_layer_config, mlp_layer_types); `missing` and `null`:
a truth row with one key taken out or null; `nested`: multimodal files, whose text part leaves the class's values out.
"""

import gzip
import json
from pathlib import Path

import pytest

from planner import folds
from planner.components.position import Llama3, Yarn
from planner.errors import ContractError
from planner.sources.config_json import read_config
from planner.sources.families.class_values import GROUPED

DATA = Path(__file__).parents[1] / "data"
ROWS = [json.loads(line) for line in gzip.decompress((DATA / "config_variants.jsonl.gz").read_bytes()).splitlines()]
TRUTH = [json.loads(line) for line in gzip.decompress((DATA / "params.jsonl.gz").read_bytes()).splitlines()]
CONFIGS = {row["name"]: {**row["config"], "model_type": row["model_type"]} for row in TRUTH}

COMPUTED = {"minimax"}  # its decay rates are buffers that no published total counts


def kind(*kinds):
    return [pytest.param(row, id=f"{row['kind']}: {row['name']}") for row in ROWS if row["kind"] in kinds]


def read(name, **changes):
    table = {**CONFIGS[name], **changes}
    return read_config({key: value for key, value in table.items() if value is not ...}, "config.json")


def assert_counted(reading, row):
    parts = reading.architecture.parts()
    assert folds.parameters(parts, buffers=False) == row["total"]
    if row["config"]["model_type"] not in COMPUTED:
        assert folds.parameters(parts) - row["total"] == row["buffers"]


@pytest.mark.parametrize("row", kind("real", "default", "resaved", "null"))
def test_counts_are_exact(row):
    assert_counted(read_config(row["config"], row["name"]), row)


@pytest.mark.parametrize("row", kind("missing"))
def test_a_missing_key_is_refused_or_the_class_s_own(row):
    key = row["name"].rpartition(" ")[2]
    if key == "num_key_value_heads" and row["config"]["model_type"] in GROUPED:
        with pytest.raises(ContractError, match="num_key_value_heads is missing"):
            read_config(row["config"], row["name"])
    else:
        assert_counted(read_config(row["config"], row["name"]), row)


@pytest.mark.parametrize("row", kind("nested"))
def test_a_text_part_has_its_class_s_sizes_and_says_so(row):
    reading = read_config(row["config"], "config.json")
    assert_counted(reading, row)
    text = row["config"].get("text_config") or row["config"].get("llm_config") or row["config"]
    if not {"hidden_size", "d_model"} & set(text):
        assert any("hidden_size is missing" in note for note in reading.notes)


def test_a_file_of_its_own_is_not_filled_in():
    with pytest.raises(ContractError, match="hidden_size is missing"):
        read("huggyllama/llama-7b", hidden_size=...)


def test_null_in_a_text_part_stays_null():
    text = {**CONFIGS["deepseek-ai/DeepSeek-V2-Lite"], "q_lora_rank": None, "num_experts_per_tok": 6}
    reading = read_config({"model_type": "a_wrapper", "text_config": text}, "config.json")
    assert reading.architecture.layers[0].mixer.q_lora_rank is None


# --- what no count shows ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "keys", "base"),
    [
        ("CohereLabs/c4ai-command-a-03-2025", ("rope_theta",), 10_000.0),
        ("adept/persimmon-8b-base", ("rope_theta",), 10_000.0),
        ("LGAI-EXAONE/EXAONE-3.0-7.8B-Instruct", ("rope_theta", "rope_scaling"), 500_000.0),
        ("mistralai/Ministral-3-3B-Instruct-2512#text", ("rope_parameters",), 1_000_000.0),
    ],
)
def test_the_class_s_rotation_is_taken_where_the_file_has_none(name, keys, base):
    architecture = read(name, **dict.fromkeys(keys, ...)).architecture
    assert {layer.mixer.position.base for layer in architecture.layers if layer.mixer.position} == {base}


def test_ministral3_stretches_by_its_class_s_table():
    mixer = read("mistralai/Ministral-3-3B-Instruct-2512#text", rope_parameters=...).architecture.layers[0].mixer
    assert isinstance(mixer.position.scaling, Yarn)
    assert (mixer.position.scaling.factor, mixer.position.scaling.original_positions) == (16.0, 16_384)
    assert (mixer.temperature.slope, mixer.temperature.interval) == (0.1, 16_384)


@pytest.mark.parametrize(
    ("changes", "scaled"), [({}, True), ({"rope_theta": 5e5}, True), ({"rope_scaling": None}, False)]
)
def test_a_class_s_scaling_goes_with_a_stated_base_and_yields_to_null(changes, scaled):
    plain = dict.fromkeys(("rope_theta", "rope_scaling", "rope_parameters"), ...)
    position = read("swiss-ai/Apertus-8B-2509", **(plain | changes)).architecture.layers[0].mixer.position
    assert position.base == changes.get("rope_theta", 12e6)
    assert isinstance(position.scaling, Llama3) == scaled


def test_deepseek_v4_may_write_both_rotations_in_rope_parameters():
    plain = {"rope_theta": 10_000, "rope_type": "default", "partial_rotary_factor": 0.125}
    yarn = {"rope_type": "yarn", "type": "yarn", "rope_theta": 160_000, "factor": 16, "beta_fast": 32, "beta_slow": 1}
    yarn |= {"original_max_position_embeddings": 65_536, "attention_factor": 1.0, "partial_rotary_factor": 0.125}
    name = "deepseek-ai/DeepSeek-V4-Flash"
    anew = read(name, rope_parameters={"main": plain, "compress": yarn}, rope_scaling=..., compress_rope_theta=...)
    assert anew.architecture == read(name).architecture
    assert anew.unknown_keys == ()


def test_gemma4_global_layers_may_stand_in_per_layer_config():
    name = "google/gemma-4-26B-A4B#text"
    old = read(name)
    own = {"head_dim": 512, "num_key_value_heads": 2}
    moved = {"global_head_dim": ..., "num_global_key_value_heads": ...}
    places = [i for i, entry in enumerate(CONFIGS[name]["layer_types"]) if entry == "full_attention"]
    anew = read(name, per_layer_config={f"{i:02}": own for i in places}, **moved)
    assert anew.architecture == old.architecture
    assert anew.unknown_keys == ()
    with pytest.raises(ContractError, match="per_layer_config has other layers than the global ones"):
        read(name, per_layer_config={"0": own}, **moved)
    with pytest.raises(ContractError, match="has more than head_dim and num_key_value_heads"):
        read(name, per_layer_config={str(i): {**own, "wobble": 1} for i in places}, **moved)


def test_deepseek_s_routing_has_its_class_s_values():
    bare = dict.fromkeys(("n_group", "topk_group", "routed_scaling_factor"), ...)
    experts = read("deepseek-ai/DeepSeek-V3", **bare).architecture.layers[-1].feed_forward
    assert (experts.n_groups, experts.top_k_groups, experts.routed_scale) == (8, 4, 2.5)
    assert not read("rednote-hilab/dots.llm1.inst", norm_topk_prob=...).architecture.layers[-1].feed_forward.normalised


def test_gemma_s_newer_activation_goes_before_the_older():
    reading = read("google/gemma-2-9b", hidden_act="gelu", hidden_activation="gelu_pytorch_tanh")
    assert reading.architecture.layers[0].feed_forward.activation == "gelu_tanh"


def test_llama4_without_experts_needs_neither_their_number_nor_their_step():
    row = next(row for row in ROWS if row["name"] == "mobilellm-r1-950m")
    with pytest.raises(ContractError, match="moe_layers is missing"):
        read_config({**row["config"], "moe_layers": None}, "config.json")


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("tiiuae/Falcon-H1-7B-Base", {"projectors_bias": True}, "mamba_proj_bias and projectors_bias differ"),
        ("kyutai/helium-1-preview-2b", {"head_dim": 96}, "is not hidden_size"),
        ("Zyphra/Zamba2-2.7B", {"attention_hidden_size": 2560}, "attention_hidden_size = 2560 is not built"),
        ("deepseek-ai/DeepSeek-V4-Flash", {"n_shared_experts": 2}, "n_shared_experts = 2 is not built"),
        ("nvidia/Nemotron-H-56B-Base-8K", {"layers_block_type": ["mamba"] * 118}, "contradicts hybrid_override"),
    ],
)
def test_what_the_class_does_not_build_is_refused(name, changes, sentence):
    with pytest.raises(ContractError, match=sentence):
        read(name, **changes)


def test_a_class_s_head_width_is_no_share_of_the_model_s():
    mixer = read("internlm/internlm3-8b-instruct", num_attention_heads=16, head_dim=...).architecture.layers[0].mixer
    assert (mixer.n_heads, mixer.head_dim) == (16, 128)
    with pytest.raises(ContractError, match="head_dim = 128 times num_attention_heads = 16 is not hidden_size = 2560"):
        read("kyutai/helium-1-preview-2b", num_attention_heads=16, num_key_value_heads=16, head_dim=...)


def test_gpt2_may_scale_scores_by_layer():
    order = list(read("openai-community/gpt2", scale_attn_by_inverse_layer_idx=True).architecture.order())
    assert [layer.mixer.scale for layer in order] == [1 / (8 * place) for place in range(1, 13)]


@pytest.mark.parametrize(("changes", "heads"), [({}, (512, 2)), ({"per_layer_config": None}, (256, 8))])
def test_gemma4_s_global_layers_are_as_local_ones_where_per_layer_config_is_null(changes, heads):
    layers = read("google/gemma-4-26B-A4B#text", **changes).architecture.layers
    (mixer,) = [layer.mixer for layer in layers if layer.label == "global"]
    assert (mixer.head_dim, mixer.n_kv_heads) == heads


@pytest.mark.parametrize(
    ("name", "changes", "longest"),
    [
        ("huggyllama/llama-7b", {"max_position_embeddings": 4096, "max_sequence_length": 16_384}, 4096),
        ("huggyllama/llama-7b", {"max_position_embeddings": 32_768, "seq_length": 8192}, 32_768),
    ],
)
def test_a_second_length_is_said_and_not_refused(name, changes, longest):
    reading = read(name, **changes)
    assert reading.architecture.max_positions == longest
    assert any("several lengths are stated" in note for note in reading.notes)


KIMI = next(row["config"] for row in ROWS if (row["kind"], row["name"]) == ("real", "kimi-linear-48b-a3b"))


def test_kimi_linear_s_layers_are_named_from_one():
    architecture = read_config(KIMI, "config.json").architecture
    order = enumerate(architecture.order(), start=1)
    latent = {number: layer.mixer for number, layer in order if layer.mixer.kind == "latent_attention"}
    assert list(latent) == [4, 8, 12, 16, 20, 24, 27]
    assert latent[4].position is None
    assert architecture.max_positions == 1_048_576


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"attn_res_block_size": 12}, "attn_res_block_size = 12 is not built"),
        ({"mla_use_output_gate": True}, "mla_use_output_gate = True is not built"),
        ({"mla_use_nope": False}, "mla_use_nope = False is not built"),
        ({"linear_attn_config": {"use_full_rank_gate": True}}, "linear_attn_config: use_full_rank_gate = True"),
        ({"linear_attn_config": {"gate_lower_bound": -5.0}}, "linear_attn_config: gate_lower_bound = -5.0"),
        ({"num_hidden_layers": 28}, "do not name each of the 28 layers once"),
    ],
)
def test_what_kimi_k3_has_beyond_kimi_linear_is_refused(changes, sentence):
    with pytest.raises(ContractError, match=sentence):
        read_config({**KIMI, **changes}, "config.json")


LAGUNA = next(row["config"] for row in ROWS if (row["kind"], row["name"]) == ("real", "laguna-s-2.1"))


def test_laguna_s_local_layers_have_more_heads_and_turn_whole():
    architecture = read_config(LAGUNA, "config.json").architecture
    mixers = {layer.label: layer.mixer for layer in architecture.layers}
    assert (mixers["global"].n_heads, mixers["global"].window, mixers["global"].position.width) == (48, None, 64)
    assert (mixers["local"].n_heads, mixers["local"].window, mixers["local"].position.width) == (72, 512, None)
    assert (mixers["global"].position.scaling.factor, mixers["local"].position.scaling) == (128.0, None)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gating": False}, "do not say per-head or per-element"),
        ({"gating_types": ["per_head", "per_element"] * 24}, "do not say per-head or per-element for all layers alike"),
        ({"moe_router_logit_softcapping": 5.0}, "moe_router_logit_softcapping is not built"),
        ({"num_attention_heads_per_layer": [48] * 47}, "has 47 entries for 48 layers"),
        ({"num_attention_heads_per_layer": [48, 72] * 24}, "two numbers for one layer type"),
        ({"mlp_only_layers": [0, 1]}, "mlp_only_layers contradicts"),
    ],
)
def test_what_other_lagunas_may_have_is_refused(changes, sentence):
    with pytest.raises(ContractError, match=sentence):
        read_config({**LAGUNA, **changes}, "config.json")


STEP = next(row["config"] for row in ROWS if (row["kind"], row["name"]) == ("real", "step-3.5-flash"))


def test_step_counts_as_its_checkpoint_with_its_prediction_modules():
    """The published total of Step-3.5-Flash, whose three modules have an output matrix each and no input table."""
    parts = read_config(STEP, "config.json").architecture.parts()
    assert folds.parameters(parts, modules=("body", "mtp")) == 199_384_301_376


def test_step_s_kinds_of_layer_turn_and_are_bounded_apart():
    order = list(read_config(STEP, "config.json").architecture.order())
    turned = [(layer.mixer.n_heads, layer.mixer.position.base, layer.mixer.position.width) for layer in order]
    assert turned[:5] == [(64, 5e6, 64), *[(96, 1e4, None)] * 3, (64, 5e6, 64)]
    assert [isinstance(layer.mixer.position.scaling, Llama3) for layer in order[:2]] == [True, False]
    assert [i for i, layer in enumerate(order) if layer.feed_forward.clip_activated is not None] == [43, 44]
    last = order[44].feed_forward
    assert (last.expert.clip_activated, last.shared_expert.clip_activated) == (7, 16)


def test_step_may_stand_in_a_file_with_a_vision_part():
    whole = {"model_type": "step3p7", "text_config": STEP, "vision_config": {"width": 1536}}
    assert read_config(whole, "config.json").architecture == read_config(STEP, "config.json").architecture


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"use_head_wise_attn_gate": False}, "use_head_wise_attn_gate = False is not built"),
        ({"layer_types": ["full_attention"] * 46}, "has 46 entries for 45 layers and 3 modules behind them"),
        ({"layer_types": ["full_attention"] * 46 + ["sliding_attention"] * 2}, "names two kinds of modules"),
        ({"layer_types": ["linear_attention"] * 48}, "'linear_attention' is not built"),
        ({"rope_theta": [1e4, *[5e6] * 47]}, "are not the same for all layers of"),
        ({"moe_layers_enum": "3,x"}, "moe_layers_enum = '3,x' does not name layers"),
        ({"attention_other_setting": {"num_attention_groups": 4}}, "num_attention_groups = 4 is not built"),
    ],
)
def test_what_step_does_not_have_is_refused(changes, sentence):
    with pytest.raises(ContractError, match=sentence):
        read_config({**STEP, **changes}, "config.json")
