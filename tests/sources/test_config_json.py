"""Reading a config.json: what is refused and in which words, what is left out and said, what decides what."""

import gzip
import json
from pathlib import Path

import pytest

from planner import folds
from planner.errors import ContractError, InputError, PlannerError, UnknownName
from planner.loading import from_table, to_table
from planner.sources.config_json import families, parse_json, read_config

DATA = Path(__file__).parents[1] / "data" / "params.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
BY_NAME = {row["name"]: {**row["config"], "model_type": row["model_type"]} for row in ROWS}
FIRST_OF = {row["model_type"]: BY_NAME[row["name"]] for row in reversed(ROWS) if row["model_type"] in families()}

LLAMA = BY_NAME["meta-llama/Llama-3.1-8B"]
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def changed(config=LLAMA, /, **changes):
    """A config with keys changed, or taken out where the new value is Ellipsis."""
    merged = {**config, **changes}
    return {key: value for key, value in merged.items() if value is not ...}


def read(config=LLAMA, /, **changes):
    return read_config(changed(config, **changes), "config.json")


# --- text -----------------------------------------------------------------------------------------

TEXTS = [
    ("{", "x: not valid JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
    ("", "x: not valid JSON: Expecting value at line 1, column 1"),
    ("[]", "x: a config.json holds a table, not []"),
    ('"llama"', "x: a config.json holds a table, not 'llama'"),
    ('{"a": NaN}', "x: NaN is no JSON; write a finite number or null"),
    ('{"a": -Infinity}', "x: -Infinity is no JSON; write a finite number or null"),
    ('{"a": 1e999}', "x: '1e999' is beyond every number that a config.json can hold"),
    ('{"a": 1, "a": 2}', "x: 'a' stands twice with different values"),
    ('{"a": // width', "x: not valid JSON: Expecting value at line 1, column 7; JSON has no comments"),
    ('{"a": ' + "9" * 5000 + "}", "x: not valid JSON: nested too deeply, or a number too long"),
    ('{"a": ' * 100_000, "x: not valid JSON: nested too deeply, or a number too long"),
    ('{"a": 1}' + " " * 4_000_000, "x: 4,000,008 characters are more than a config.json has (at most 4,000,000)"),
]


@pytest.mark.parametrize(("text", "sentence"), TEXTS, ids=range(len(TEXTS)))
def test_text_that_is_no_config_gets_one_sentence(text, sentence):
    with pytest.raises(InputError) as caught:
        parse_json(text, "x")
    assert str(caught.value) == sentence


def test_infinity_is_read_where_nobody_needs_it():
    """Files of state spaces end time_step_limit so; the sentence for a key that counts is that of any wrong value."""
    table = parse_json('{"time_step_limit": [0.0, Infinity], "hidden_size": Infinity}', "config.json")
    mamba2 = {**BY_NAME["AntonV/mamba2-130m-hf"], "time_step_limit": table["time_step_limit"]}
    assert read(mamba2).unknown_keys == ()
    with pytest.raises(ContractError, match="hidden_size = inf is not a whole number"):
        read(hidden_size=table["hidden_size"])


@pytest.mark.parametrize("name", ["LlamaForSequenceClassification", "Qwen2ForProcessRewardModel", "MistralModel"])
def test_a_checkpoint_without_an_output_matrix_is_pointed_out(name):
    remark = f"config.json: {name!r} has no output matrix; counted is the decoder, which has one"
    assert read(architectures=[name]).notes == (remark,)
    assert read(architectures=[name], tie_word_embeddings=True).notes == ()


@pytest.mark.parametrize("names", [["LlamaForCausalLM"], ["GPT2LMHeadModel"], ["InternVLChatModel"], [5], "x", None])
def test_a_language_model_s_class_needs_no_word(names):
    assert read(architectures=names).notes == ()


def test_a_key_without_a_value_is_not_reported():
    assert read(wobble=None).unknown_keys == ()
    assert read(wobble=0).unknown_keys == ("wobble",)


def test_a_byte_order_mark_and_equal_doubles_are_read_past():
    assert parse_json('\ufeff{"a": 1, "a": 1}', "x") == {"a": 1}


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_nesting_is_refused_wherever_it_comes_from(depth):
    nested: object = 1
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(InputError, match=r"^config.json: nested more than 60 levels deep$"):
        read(unknown=nested)


def test_a_100_level_text_is_refused():
    text = json.dumps(LLAMA)[:-1] + ', "deep": ' + "[" * 100 + "]" * 100 + "}"
    with pytest.raises(InputError, match=r"^config.json: nested more than 60 levels deep$"):
        read_config(parse_json(text, "config.json"), "config.json")


# --- values ---------------------------------------------------------------------------------------

SENTENCES = [
    ({"hidden_size": "4096"}, "hidden_size = '4096' is not a whole number from 1 to 2^53"),
    ({"hidden_size": 32.0}, "hidden_size = 32.0 is not a whole number from 1 to 2^53"),
    ({"hidden_size": True}, "hidden_size = True is not a whole number from 1 to 2^53"),
    ({"hidden_size": []}, "hidden_size = [] is not a whole number from 1 to 2^53"),
    ({"hidden_size": -5}, "hidden_size = -5 is not a whole number from 1 to 2^53"),
    ({"hidden_size": 0}, "hidden_size = 0 is not a whole number from 1 to 2^53"),
    ({"hidden_size": 2**53 + 1}, "hidden_size = 9007199254740993 is not a whole number from 1 to 2^53"),
    ({"hidden_size": None}, "hidden_size is missing"),
    ({"hidden_size": ...}, "hidden_size is missing"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000 is more than 10,000, which no model comes near"),
    ({"num_key_value_heads": 7}, "n_kv_heads = 7 does not divide n_heads = 32"),
    ({"num_key_value_heads": 0}, "num_key_value_heads = 0 is not a whole number from 1 to 2^53"),
    (
        {"num_attention_heads": 33, "num_key_value_heads": 33, "head_dim": ...},
        "num_attention_heads = 33 does not divide hidden_size = 4096, and head_dim is missing",
    ),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps = nan is not a finite number above 0"),
    ({"rms_norm_eps": float("inf")}, "rms_norm_eps = inf is not a finite number above 0"),
    ({"rms_norm_eps": -1e-6}, "rms_norm_eps = -1e-06 is not a finite number above 0"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings = 'yes' is not true or false"),
    ({"hidden_act": "swigloo"}, "hidden_act = 'swigloo' is none of relu, relu2, gelu"),
    ({"num_layers": 31}, "num_hidden_layers = 32 contradicts num_layers = 31"),
    ({"torch_dtype": 16}, "torch_dtype = 16 is not a text"),
    ({"rope_scaling": {"rope_type": "banana"}}, "rope_scaling: rope_type = 'banana' is none of default, linear"),
    ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling: factor is missing"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor = 0 is not a finite number above 0"),
    ({"rope_scaling": []}, "rope_scaling = [] is not a table"),
    ({"rope_scaling": {**SCALING, "low_freq_factor": 9.0}}, "low_freq_factor = 9.0 exceeds high_freq_factor = 4.0"),
    (
        {"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
        "short_factor has 1 entries for 64 rotary pairs",
    ),
    (
        {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "rope_theta = 500000 contradicts rope_theta = 10000 of the rope table",
    ),
    ({"partial_rotary_factor": 1.5}, "partial_rotary_factor = 1.5 is more than the whole head, which is 1"),
    ({"is_encoder_decoder": True}, "is_encoder_decoder = True is not built for llama, only False"),
    ({"head_dim": 127}, "head_dim = 127 is odd, and rotation turns elements in pairs"),
]


@pytest.mark.parametrize(("changes", "sentence"), SENTENCES, ids=[str(c)[:40] for c, _ in SENTENCES])
def test_a_value_that_cannot_be_is_named(changes, sentence):
    with pytest.raises(ContractError) as caught:
        read(**changes)
    assert str(caught.value).startswith("config.json: ")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


MORE = [
    ("google/gemma-3-4b-it#text", {"layer_types": ["full_attention"]}, "layer_types has 1 entries for 34 layers"),
    ("google/gemma-3-4b-it#text", {"layer_types": ["global"] * 34}, "layer_types: 'global' is none of full_attention"),
    (
        "google/gemma-3-4b-it#text",
        {"query_pre_attn_scalar": 0},
        "query_pre_attn_scalar = 0 is not a finite number above 0",
    ),
    (
        "google/gemma-3-4b-it#text",
        {"layer_types": ["sliding_attention"] * 34, "sliding_window": None},
        "layer_types has sliding_attention, but sliding_window is missing",
    ),
    (
        "openai-community/gpt2",
        {"head_dim": 80},
        "head_dim = 80 times num_attention_heads = 12 is not hidden_size = 768",
    ),
    ("openai-community/gpt2", {"scale_attn_weights": False}, "is not built for gpt2, only True"),
    ("bigscience/bloom-560m", {"apply_residual_connection_post_layernorm": True}, "is not built for bloom, only False"),
    ("deepseek-ai/DeepSeek-V3", {"q_lora_rank": ...}, "q_lora_rank is missing; null says that queries have no latent"),
    ("deepseek-ai/DeepSeek-V3", {"num_experts_per_tok": 300}, "top_k = 300 exceeds n_experts = 256"),
    ("deepseek-ai/DeepSeek-V3", {"n_group": 7}, "n_groups = 7 does not divide n_experts = 256"),
    ("deepseek-ai/DeepSeek-V3", {"num_experts": 128}, "n_routed_experts = 256 contradicts num_experts = 128"),
    ("EleutherAI/gpt-neo-1.3B", {"attention_types": [[["global"], 3]]}, "attention_types gives 3 layers for 24"),
    ("EleutherAI/gpt-neo-1.3B", {"attention_types": [["global", 3]]}, "is not a list of kinds and how often it comes"),
    (
        "tencent/Hunyuan-A13B-Instruct",
        {"moe_topk": [8, 7]},
        "moe_topk = [8, 7] is not one number, equal for all 32 layers",
    ),
    ("google/gemma-4-26B-A4B#text", {"num_kv_shared_layers": 30}, "num_kv_shared_layers leaves 0 of 30 layers"),
    ("HuggingFaceTB/SmolLM3-3B", {"no_rope_layers": [1, 0]}, "no_rope_layers has 2 entries for 36 layers"),
]


@pytest.mark.parametrize(("name", "changes", "sentence"), MORE, ids=[f"{n}-{str(c)[:30]}" for n, c, _ in MORE])
def test_a_value_that_its_family_cannot_have_is_named(name, changes, sentence):
    with pytest.raises(ContractError) as caught:
        read(BY_NAME[name], **changes)
    assert sentence in str(caught.value)


ESSENTIAL = [
    ("hidden_size", "n_embd", "d_model"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    ("vocab_size",),
    ("intermediate_size", "ffn_dim"),
    ("moe_intermediate_size",),
    ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts"),
]

# Where a family's class says in the file's place how large a part is, or where its absence means another model.
BY_DESIGN = {
    ("gpt_neo", "intermediate_size"),  # four times the width
}


@pytest.mark.parametrize("model_type", sorted(FIRST_OF))
def test_no_essential_size_is_filled_in_silently(model_type):
    config = FIRST_OF[model_type]
    whole = read_config(config, "config.json")
    for names in ESSENTIAL:
        for name in names:
            if name not in config or (model_type, name) in BY_DESIGN:
                continue
            try:
                without = read(config, **{name: ...})
            except PlannerError:
                continue
            said = any(name in note for note in without.notes)
            same = without.architecture == whole.architecture
            assert said or same, f"{name} was filled in without a word"


@pytest.mark.parametrize(
    "model_type", ["mistral", "qwen2", "qwen3_moe", "gpt_oss", "glm4", "mixtral", "smollm3", "gemma2"]
)
def test_key_heads_are_not_taken_for_query_heads(model_type):
    with pytest.raises(ContractError, match="num_key_value_heads is missing"):
        read(FIRST_OF[model_type], num_key_value_heads=...)


@pytest.mark.parametrize("name", ["huggyllama/llama-7b", "allenai/OLMo-7B-hf", "microsoft/phi-2"])
def test_every_head_has_its_own_keys_where_its_class_says_so(name):
    assert read(BY_NAME[name], num_key_value_heads=...).architecture == read(BY_NAME[name]).architecture


# --- what is read past, and said ------------------------------------------------------------------


def test_unknown_keys_are_reported_with_the_table_they_stand_in():
    reading = read(
        wobble=1, rope_scaling={"rope_type": "linear", "factor": 2.0, "wiggle": 1, "rope_theta": LLAMA["rope_theta"]}
    )
    assert reading.unknown_keys == ("rope_scaling.wiggle", "wobble")


def test_keys_without_influence_are_not_reported():
    assert read(transformers_version="5.0", use_cache=False, initializer_range=0.1).unknown_keys == ()


def test_an_unknown_family_is_refused_with_the_known_ones():
    with pytest.raises(
        UnknownName, match=r"model_type 'lama' is not known; did you mean 'llama'\?; known are .*mixtral"
    ):
        read(model_type="lama")
    with pytest.raises(ContractError, match="model_type is missing"):
        read(model_type=...)
    for wrong in (7, [], {}, True):
        with pytest.raises(UnknownName):
            read(model_type=wrong)


def test_an_unhashable_or_foreign_key_is_no_traceback():
    with pytest.raises(InputError, match="a key is not a text"):
        read_config({**LLAMA, 3: 4}, "config.json")


@pytest.mark.parametrize(
    ("dtype", "weights"), [("float16", "fp16"), ("torch.bfloat16", "bf16"), ("float32", "fp32"), (..., "bf16")]
)
def test_the_dtype_decides_the_weights_and_never_the_cache(dtype, weights):
    architecture = read(torch_dtype=dtype).architecture
    assert architecture.weights == weights
    assert architecture.kv == "bf16"


def test_a_dtype_that_is_no_format_is_said():
    assert "torch_dtype = 'auto' is no format of weights; taken as bf16" in read(torch_dtype="auto").notes[0]


def test_the_quantisation_is_handed_on():
    table = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    reading = read(quantization_config=table)
    assert reading.quantization == table
    assert reading.unknown_keys == ()


@pytest.mark.parametrize(
    ("name", "key", "path", "absent"),
    [
        ("mistralai/Mistral-7B-v0.1", "sliding_window", lambda a: a.layers[0].mixer.window, 4096),
        ("google/gemma-2-9b", "attn_logit_softcapping", lambda a: a.layers[0].mixer.soft_cap, 50.0),
        ("EleutherAI/gpt-j-6b", "rotary_dim", lambda a: a.layers[0].mixer.position.width, 64),
        ("XiaomiMiMo/MiMo-V2-Flash", "attention_value_scale", lambda a: a.layers[0].mixer.value_scale, 0.707),
    ],
)
def test_null_and_absent_differ_where_the_class_has_a_value(name, key, path, absent):
    assert path(read(BY_NAME[name], **{key: ...}).architecture) == absent
    assert path(read(BY_NAME[name], **{key: None}).architecture) is None


# --- the contract holds it all --------------------------------------------------------------------


@pytest.mark.parametrize("model_type", sorted(FIRST_OF))
def test_what_is_read_survives_the_written_contract(model_type):
    architecture = read_config(FIRST_OF[model_type], "x").architecture
    assert from_table(to_table(architecture), "x") == architecture


def test_readers_of_other_layers_caches_keep_none():
    """Gemma 4 E2B as published: 15 of 35 layers cache, 12 of them 512 positions of 256, 3 all positions of 512."""
    e2b = changed(
        BY_NAME["google/gemma-4-26B-A4B#text"],
        hidden_size=1536,
        intermediate_size=6144,
        num_hidden_layers=35,
        num_attention_heads=8,
        num_key_value_heads=1,
        num_global_key_value_heads=None,
        attention_k_eq_v=False,
        num_kv_shared_layers=20,
        use_double_wide_mlp=True,
        hidden_size_per_layer_input=256,
        sliding_window=512,
        layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7,
        enable_moe_block=False,
    )
    parts = read_config(e2b, "x").architecture.parts()
    cached = folds.cache_total(parts, [1000], lambda entry, positions: entry.elements * positions)
    assert cached == 12 * 2 * 256 * 512 + 3 * 2 * 512 * 1000
    role = folds.parameters(parts, by="role")
    assert role["embedding"] == 262_144 * 1536 + 262_144 * 35 * 256
    assert role["ffn_dense"] == 3 * 1536 * 6144 * (15 + 2 * 20)
