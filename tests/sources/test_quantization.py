"""quantization_config as published files have it -> which role is stored how; anything unknown is refused by name."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.sources.quantization import METHODS, read_quantization
from planner.storage import ROLES
from tests.sources.builders import read_or_refuse

LAYERS = {"attention": 4, "ffn_dense": 1, "experts_routed": 3, "experts_shared": 3, "router": 3}
LINEAR = {"attention", "ssm_conv_mixer", "ffn_dense", "experts_routed", "experts_shared"}


def each_layer(*modules):
    return [f"model.layers.{layer}.{module}" for layer in range(4) for module in modules]


def group(**weights):
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["lm_head"]}


INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True, "actorder": "weight"}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
BITSANDBYTES = {
    "_load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "llm_int8_skip_modules": None,
    "load_in_8bit": False,
}

CONFIGS = {
    "deepseek-v3": (
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
        "fp8-block128",
        LINEAR,
    ),
    "qwen3-moe-fp8": (
        {
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": [
                "lm_head",
                *each_layer("mlp.gate", "input_layernorm", "post_attention_layernorm"),
            ],
        },
        "fp8-block128",
        LINEAR,
    ),
    "fp8 per tensor, static": ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-tensor-static", LINEAR),
    "fp8 per tensor": (
        {"quant_method": "fp8", "ignored_layers": ["*.self_attn*"]},
        "fp8-tensor",
        LINEAR - {"attention"},
    ),
    "llama-3.1-405b-fp8": (
        {
            "quant_method": "fbgemm_fp8",
            "activation_scale_ub": 1200.0,
            "modules_to_not_convert": each_layer(*(f"self_attn.{p}_proj" for p in "qkvo")),
        },
        "fp8-channel",
        LINEAR - {"attention"},
    ),
    "awq": (
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "modules_to_not_convert": None},
        "awq-g128",
        LINEAR,
    ),
    "awq of mixtral": (
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "modules_to_not_convert": ["gate"]},
        "awq-g64",
        LINEAR,
    ),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True}, "gptq-g32", LINEAR),
    "gptq per channel": ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "gptq-int8-channel", LINEAR),
    "gptq with head": (
        {"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True},
        "gptq-g128",
        LINEAR | {"lm_head"},
    ),
    "gptq of some modules": (
        {"quant_method": "gptq", "group_size": 128, "modules_in_block_to_quantize": [["mlp.experts.0.w1"], ["mlp.w1"]]},
        "gptq-g128",
        {"experts_routed", "ffn_dense"},
    ),
    "w4a16": (
        {"quant_method": "compressed-tensors", "format": "pack-quantized", **group(**INT4)},
        "int4-sym-g128",
        LINEAR | {"router"},
    ),
    "w4a16, asymmetric": (
        {"quant_method": "compressed-tensors", **group(**INT4 | {"symmetric": False})},
        "int4-asym-g128",
        LINEAR | {"router"},
    ),
    "fp8 dynamic": ({"quant_method": "compressed-tensors", **group(**FLOAT8)}, "fp8-channel", LINEAR | {"router"}),
    "fp8 block": (
        {
            "quant_method": "compressed-tensors",
            **group(**FLOAT8 | {"strategy": "block", "block_structure": [128, 128]}),
        },
        "fp8-block128",
        LINEAR | {"router"},
    ),
    "w8a8": (
        {"quant_method": "compressed-tensors", **group(**FLOAT8 | {"type": "int"})},
        "int8-channel",
        LINEAR | {"router"},
    ),
    "nvfp4": (
        {
            "quant_method": "compressed-tensors",
            **group(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True),
        },
        "nvfp4",
        LINEAR | {"router"},
    ),
    "kimi-k2-thinking": (
        {
            "quant_method": "compressed-tensors",
            **group(**INT4 | {"group_size": 32}),
            "ignore": [
                "lm_head",
                "re:.*self_attn.*",
                "re:.*shared_experts.*",
                r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
                "re:.*mlp.gate$",
            ],
        },
        "int4-sym-g32",
        {"experts_routed", "ssm_conv_mixer"},
    ),
    "bitsandbytes": ({"quant_method": "bitsandbytes", **BITSANDBYTES}, "nf4", LINEAR),
    "bitsandbytes, nested": (
        {"quant_method": "bitsandbytes", **BITSANDBYTES, "bnb_4bit_use_double_quant": True},
        "nf4-dq",
        LINEAR,
    ),
    "bitsandbytes, 8 bit": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8-channel", LINEAR),
    "gpt-oss": (
        {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn",
                "model.layers.*.mlp.router",
                "model.embed_tokens",
                "lm_head",
            ],
        },
        "mxfp4",
        {"experts_routed"},
    ),
    "deepseek-r1-fp4": (
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "group_size": 16,
            "ignore": ["lm_head", *each_layer("self_attn*")],
        },
        "nvfp4",
        LINEAR - {"attention"},
    ),
    "hf_quant_config.json": (
        {
            "producer": {"name": "modelopt"},
            "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head", "*self_attn*"]},
        },
        "fp8-tensor-static",
        LINEAR - {"attention"},
    ),
    "modelopt, blocks": ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8-block128", LINEAR),
    "modelopt_fp4": ({"quant_method": "modelopt_fp4", "quant_algo": "NVFP4"}, "nvfp4", LINEAR),
    "bitsandbytes, its own default": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4", LINEAR),
    "no method but groups": (group(**INT4), "int4-sym-g128", LINEAR | {"router"}),
    "nothing but a width": (
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"strategy": "channel"}}}},
        "int8-channel",
        LINEAR | {"router", "lm_head"},
    ),
    "nothing but a group": (
        {"quant_method": "compressed-tensors", **group(num_bits=4, group_size=64)},
        "int4-sym-g64",
        LINEAR | {"router"},
    ),
    "fp8 static": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "a": {
                    "weights": FLOAT8 | {"strategy": "tensor"},
                    "input_activations": {"num_bits": 8, "dynamic": False},
                }
            },
        },
        "fp8-tensor-static",
        LINEAR | {"router", "lm_head"},
    ),
    "fp8 dynamic per tensor": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "a": {"weights": FLOAT8 | {"strategy": "tensor"}, "input_activations": {"num_bits": 8, "dynamic": True}}
            },
        },
        "fp8-tensor",
        LINEAR | {"router", "lm_head"},
    ),
    "mxfp8": (
        {"quant_method": "compressed-tensors", **group(**FLOAT8 | {"strategy": "group", "group_size": 32})},
        "mxfp8",
        LINEAR | {"router"},
    ),
    "mxfp4 of every linear layer": (
        {"quant_method": "compressed-tensors", **group(num_bits=4, type="float", strategy="group", group_size=32)},
        "mxfp4",
        LINEAR | {"router"},
    ),
}


@pytest.mark.parametrize(("config", "name", "roles"), CONFIGS.values(), ids=CONFIGS)
def test_a_published_config_gives_its_formats_by_role(config, name, roles):
    scheme = read_quantization(config, LAYERS)
    assert scheme.name == name
    assert set(scheme.by_role) == roles
    assert {fmt.name for fmt in scheme.by_role.values()} == {name}
    assert scheme.rest.name == "bf16"
    assert scheme.notes == ()


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
    assert scheme.name == "fp8-channel+int4-sym-g128"
    assert scheme.format_of("attention", (64, 64)).name == "fp8-channel"
    assert scheme.format_of("ffn_dense", (64, 64)).name == "int4-sym-g128"
    assert scheme.format_of("router", (64, 64)).name == "fp16"


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
    assert set(scheme.by_role) == LINEAR
    assert scheme.notes == (
        "config.json: 'model.layers.0.self_attn.o_proj' and its like are a part of attention, counted as quantised",
        "config.json: 'something.else' and 1 more is no module that we know, counted as quantised",
    )


REFUSED = {
    "unknown": ({"quant_method": "quark"}, "quant_method = 'quark' is none of awq, bitsandbytes, compressed-tensors"),
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
        {"quant_method": "gptq", "group_size": 128, "dynamic": {"+:a": {"bits": 8}}},
        "dynamic, other settings",
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
        "config_groups: 3 is not a table",
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
    config = json.loads(json.dumps(draw(st.sampled_from([config for config, *_ in CONFIGS.values()]))))
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
