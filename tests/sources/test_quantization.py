"""quantization_config as published files have it -> which role is stored how; anything unknown is refused by name."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.sources.quantization import METHODS, read_quantization, spelled
from planner.storage import ROLES, find, formats, weight_format
from tests.sources.builders import read_or_refuse

DATA = Path(__file__).parents[1] / "data" / "quantization_configs.jsonl"
CONFIGS = {
    row["what"]: (row["config"], row["formats"]) for row in map(json.loads, DATA.read_text("utf-8").splitlines())
}
"""Tables as files of that kind have them -> the scheme's name; a row a line."""
LAYERS = {"attention": 4, "ffn_dense": 1, "experts_routed": 3, "experts_shared": 3, "router": 3}
LAYERS |= {"embedding": 1, "lm_head": 1}


def group(**weights):
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "actorder": "weight"}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
NO_WORD_OF_ROUTERS = "quantization_config: does not say whether router is quantised, counted as not quantised"


@pytest.mark.parametrize(("config", "name"), CONFIGS.values(), ids=CONFIGS)
def test_a_published_config_gives_its_formats_by_role(config, name):
    scheme = read_quantization(config, LAYERS)
    assert scheme.name == name
    assert scheme.rest.name == "bf16"
    of_mlx = "quant_method" not in config and "group_size" in config and "router" not in name
    assert scheme.notes == ((NO_WORD_OF_ROUTERS,) if of_mlx else ())
    assert weight_format(name).by_role == scheme.by_role


def test_groups_with_targets_of_their_own():
    config = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "a": {"targets": ["re:.*self_attn.*"], "weights": FLOAT8},
            "b": {"targets": ["Linear"], "weights": INT4},
            "cache": {"targets": ["Attention"], "weights": None},
        },
        "ignore": ["lm_head", "re:.*gate$"],
    }
    scheme = read_quantization(config, LAYERS, rest="fp16")
    assert scheme.name == "int4-sym-g128+attention=fp8-channel"
    assert scheme.format_of("attention", (64, 64)).name == "fp8-channel"
    assert scheme.format_of("ffn_dense", (64, 64)).name == "int4-sym-g128"
    assert scheme.format_of("router", (64, 64)).bits == 16


def test_what_is_left_out_only_in_part_is_said():
    config = {
        "quant_method": "awq",
        "group_size": 128,
        "modules_to_not_convert": [
            "model.layers.0.self_attn.o_proj",
            "something.else",
            "and.another",
            "visual.blocks.3",
        ],
    }
    scheme = read_quantization(config, LAYERS, place="config.json")
    assert scheme.name == "awq-g128"
    assert scheme.notes == (
        "config.json: 'model.layers.0.self_attn.o_proj' and its like are a part of attention, not quantised, "
        "counted as awq-g128 as the rest of it is",
        "config.json: 'something.else' and 1 more is no module that we know, counted as its like are",
    )


def test_what_is_quantised_only_in_part_is_said():
    """MLX's recipes give some layers more bits, and ModelOpt names what it quantised."""
    name = "model.layers.1.self_attn.v_proj"
    scheme = read_quantization({"group_size": 64, "bits": 4, name: {"group_size": 64, "bits": 6}}, LAYERS)
    assert scheme.name == "mlx-int4-g64"
    note, *others = scheme.notes
    assert others == [NO_WORD_OF_ROUTERS]
    assert f"{name!r} and its like are a part of attention, mlx-int6-g64, counted as mlx-int4-g64" in note
    config = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {name: {"quant_algo": "FP8"}},
    }
    scheme = read_quantization(config, LAYERS)
    assert scheme.name == "bf16"
    assert scheme.notes[0].endswith("a part of attention, fp8-tensor-static, counted as not quantised")


def test_a_format_of_the_rest_that_has_other_bytes_is_in_the_name():
    config = {"quant_method": "awq", "bits": 4, "group_size": 128}
    assert [read_quantization(config, LAYERS, rest=rest).name for rest in ("bf16", "fp16", "fp32")] == [
        "awq-g128",
        "awq-g128",
        "awq-g128+rest=fp32",
    ]
    assert weight_format("awq-g128+rest=fp32").format_of("norms", (64,)).name == "fp32"


OFFERED = st.sampled_from(sorted(name for name, fmt in formats().items() if fmt.scheme))


@given(st.dictionaries(st.sampled_from(ROLES), OFFERED, min_size=1), st.sampled_from(["bf16", "fp16", "fp32"]))
def test_a_scheme_is_read_back_from_its_name(by_role, rest):
    chosen = {role: find(name) for role, name in by_role.items()}
    scheme = weight_format(spelled(chosen, find(rest), ROLES))
    assert scheme.name == weight_format(scheme.name).name
    for role in ROLES:
        wanted, found = chosen.get(role, find(rest)), scheme.by_role.get(role, scheme.rest)
        assert found == wanted or (found.plain and wanted.plain and found.bits == wanted.bits == 16)


REFUSED = {
    "unknown": ({"quant_method": "sinq"}, "quant_method = 'sinq' is none of aqlm, auto-round, awq, bitnet"),
    "misspelled": ({"quant_method": "gptqq"}, "did you mean 'gptq'?; state a weight format instead"),
    "no method": ({}, "quant_method = None is none of"),
    "no table": ([1], "quantization_config = [1] is not a table"),
    "awq of 3 bits": (
        {"quant_method": "awq", "bits": 3, "group_size": 128},
        "awq with bits = 3 and group_size = 128 is no",
    ),
    "gptq of 40": (
        {"quant_method": "gptq", "bits": 4, "group_size": 40},
        "gptq with bits = 4 and group_size = 40 is no",
    ),
    "bits are text": ({"quant_method": "gptq", "bits": "4"}, "bits = '4' is not a whole number"),
    "awq of 3 bits, the old names": ({"quant_method": "awq", "w_bit": 3, "q_group_size": 128}, "awq with bits = 3"),
    "a flag is a number": (
        {"quant_method": "gptq", "group_size": 128, "lm_head": 1},
        "lm_head = 1 is not true or false",
    ),
    "a text is a list": ({"quant_method": "fp8", "activation_scheme": []}, "activation_scheme = [] is not a text"),
    "a list is a number": ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size = 128 is not a list"),
    "a table is a list": ({"quant_method": "gptq", "dynamic": [1]}, "dynamic = [1] is not a table"),
    "gptq, dynamic": (
        {"quant_method": "gptq", "group_size": 128, "dynamic": {"+:a": 8}},
        "dynamic: '+:a' = 8 is not a table",
    ),
    "exl2": ({"quant_method": "exl2", "bits": 4.25, "head_bits": 6}, "quant_method = 'exl2': bits is an average"),
    "vptq": ({"quant_method": "vptq", "config_for_layers": {}}, "'vptq': each layer has settings of its own"),
    "spqr": ({"quant_method": "spqr", "bits": 3, "shapes": {}}, "'spqr': how many outliers a matrix has"),
    "quanto": ({"quant_method": "quanto", "weights": "int8"}, "'quanto': no checkpoint holds it"),
    "exl3 of several widths": ({"quant_method": "exl3", "bits": 4.25}, "exl3 of bits = 4.25 is no storage format"),
    "auto-round of 5 bits": (
        {"quant_method": "auto-round", "bits": 5, "group_size": 128},
        "auto-round with bits = 5 and group_size = 128 is no",
    ),
    "mlx of another mode": ({"group_size": 64, "bits": 4, "mode": "nf4"}, "mode = 'nf4' is no storage format"),
    "mlx of 7 bits": ({"group_size": 64, "bits": 7}, "mlx with bits = 7 and group_size = 64 is no"),
    "hqq, scales quantised": (
        {"quant_method": "hqq", "quant_config": {"weight_quant_params": {}, "scale_quant_params": {"nbits": 8}}},
        "scale_quant_params: scales that are quantised themselves are in no saved checkpoint",
    ),
    "hqq of nothing": ({"quant_method": "hqq"}, "quant_config says nothing of weights"),
    "torchao of nothing": ({"quant_method": "torchao"}, "quant_type is missing"),
    "torchao of old": (
        {"quant_method": "torchao", "quant_type": "int4_weight_only"},
        "'int4_weight_only' is not a table",
    ),
    "torchao of another kind": (
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "UIntxWeightOnlyConfig", "_data": {}}}},
        "torchao's 'UIntxWeightOnlyConfig' is no storage format",
    ),
    "torchao, packed for another kernel": (
        {
            "quant_method": "torchao",
            "quant_type": {
                "default": {"_type": "Int4WeightOnlyConfig", "_data": {"int4_packing_format": "preshuffled"}}
            },
        },
        "torchao's 'Int4WeightOnlyConfig' is no storage format",
    ),
    "quark of nothing": ({"quant_method": "quark"}, "global_quant_config says nothing of weights"),
    "quark of another kind": (
        {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "mx9", "qscheme": "per_group"}}},
        "dtype = 'mx9', qscheme = 'per_group', group_size = None is no storage format",
    ),
    "quark by classes": (
        {"quant_method": "quark", "layer_type_quant_config": {"Linear": {}}},
        "layer_type_quant_config, settings for classes of layers, is not read",
    ),
    "fp-quant, not packed": (
        {"quant_method": "fp_quant", "pseudoquantization": True},
        "pseudoquantization = true stores weights that are not packed",
    ),
    "higgs of 5 bits": ({"quant_method": "higgs", "bits": 5}, "higgs of 5 bits and group_size = 256 is no"),
    "aqlm of pairs of rows": (
        {"quant_method": "aqlm", "out_group_size": 2},
        "aqlm of 1 codebooks of 16 bits for groups of 8 inputs and 2 outputs is no",
    ),
    "fp8 block": (
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        "weight_block_size = [64, 64] is no storage format",
    ),
    "bitsandbytes of nothing": ({"quant_method": "bitsandbytes"}, "neither load_in_4bit nor load_in_8bit"),
    "bitsandbytes codes": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "af4"},
        "bnb_4bit_quant_type = 'af4' is neither nf4 nor fp4",
    ),
    "modelopt": (
        {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"},
        "quant_algo = 'W4A8_AWQ' is no storage format",
    ),
    "no groups": ({"quant_method": "compressed-tensors"}, "config_groups names no weights"),
    "odd group": (
        {"quant_method": "compressed-tensors", "config_groups": {"a": 3}},
        "config_groups = 3 is not a table",
    ),
    "odd target": (
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Foo"], "weights": INT4}}},
        "target 'Foo' is no module that we know",
    ),
    "5 bits": (
        {"quant_method": "compressed-tensors", **group(**INT4 | {"num_bits": 5})},
        "num_bits = 5, type = 'int', strategy = 'group of 128', symmetric is no storage format that we know",
    ),
    "names are numbers": (
        {"quant_method": "mxfp4", "modules_to_not_convert": [1]},
        "modules_to_not_convert = [1] is not a list",
    ),
}


@pytest.mark.parametrize(("config", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_known_is_refused_by_name(config, sentence):
    with pytest.raises(InputError) as error:
        read_quantization(config, LAYERS)
    assert str(error.value).startswith("quantization_config")
    assert sentence in str(error.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(sorted(METHODS)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw):
    """A published config with some of its values replaced, at any depth."""
    config = json.loads(json.dumps(draw(st.sampled_from([config for config, _ in CONFIGS.values()]))))
    for _ in range(draw(st.integers(1, 3))):
        inner = config
        while isinstance(inner, dict) and inner:
            key = draw(st.sampled_from(sorted(inner)))
            if not isinstance(inner[key], dict) or draw(st.booleans()):
                inner[key] = draw(JSON)
                break
            inner = inner[key]
    return config


def check_mutant(config):
    scheme = read_or_refuse(read_quantization, config, LAYERS)
    if scheme is not None:
        assert set(scheme.by_role) <= set(ROLES)
        assert all(scheme.stored_bytes(role, (256, 256)) > 0 for role in ROLES)


@given(mutated())
def test_a_mutated_config_is_read_or_refused(config):
    check_mutant(config)


@pytest.mark.fuzz
@settings(max_examples=20_000)
@given(mutated())
def test_many_mutated_configs_are_read_or_refused(config):
    check_mutant(config)
