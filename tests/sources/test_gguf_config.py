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
from tests.sources.gguf_models import COMMON, CONFIG, DEEPSEEK, DENSE, MODELS, OUTPUT


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
