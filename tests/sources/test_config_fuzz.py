"""Mutated real configs: our own errors come out, one sentence each, or a contract with positive and finite counts."""

import copy
import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import bill, folds
from planner.errors import PlannerError
from planner.sources.config_json import families, parse_json, read_config

DATA = Path(__file__).parents[1] / "data" / "params.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
CONFIGS = [{**row["config"], "model_type": row["model_type"]} for row in ROWS if row["model_type"] in families()]
KEYS = sorted({key for config in CONFIGS for key in config})

NUMBERS = [0, 1, 2, 3, 7, 64, 97, 4096, 10_001, -1, -5, 2**31, 2**53, 2**53 + 1, 2**63, 10**30, 10**400]
FLOATS = [0.0, 1.0, 0.5, 32.0, -1.0, 5e-324, 1e-300, 1e300, 1.7e308, math.inf, -math.inf, math.nan]
WORDS = """
    full_attention sliding_attention chunked_attention linear_attention mamba conv attention yarn longrope llama3 linear
    dynamic proportional default su mrope silu gelu relu2 xielu sigmoid softmax greedy noaux_tc group_limited_greedy
    global local LLLG inv_sqrt_d_model vision all float16 float32 fp8 buffer 4096 true null
""".split()
SCALARS = st.sampled_from([None, True, False, "", *NUMBERS, *FLOATS, *WORDS]) | st.text(max_size=3)
GARBAGE = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, *WORDS]), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw):
    """A real config with one to four keys changed, taken out, added, swapped, or changed inside a nested value."""
    config = copy.deepcopy(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 4))):
        where = config
        nested = [value for value in config.values() if isinstance(value, (dict, list)) and value]
        if nested and draw(st.booleans()):
            where = draw(st.sampled_from(nested))
        places = sorted(where) if isinstance(where, dict) else list(range(len(where)))
        if not places:
            continue
        place = draw(st.sampled_from(places))
        match draw(st.sampled_from(["change", "change", "drop", "add", "copy", "repeat"])):
            case "change":
                where[place] = draw(GARBAGE)
            case "drop":
                del where[place]
            case "add":
                config[draw(st.sampled_from(KEYS))] = draw(GARBAGE)
            case "copy":
                where[place] = copy.deepcopy(config[draw(st.sampled_from(sorted(config)))] if config else None)
            case "repeat" if isinstance(where[place], list):
                where[place] = where[place] * 2
    if draw(st.integers(0, 9)) == 0:
        config["model_type"] = draw(st.sampled_from(sorted(families())))
    return config


def check(read):
    """Whatever `read` does, it raises our own error in one sentence, or gives sound counts."""
    said = None
    try:
        parts = read().architecture.parts()
    except PlannerError as error:
        said = str(error)
    if said is not None:
        assert said
        assert "\n" not in said
        return
    counts = [
        folds.parameters(parts),
        folds.parameters(parts, active=True),
        folds.flops(parts, bill.Pass.prefill(1000)),
        folds.flops(parts, bill.Pass.decode(1000)),
    ]
    cache = folds.cache_total(parts, [1000], lambda entry, positions: entry.elements * positions)
    assert all(type(count) is int and count > 0 for count in counts)
    assert type(cache) is int
    assert cache >= 0
    assert counts[1] <= counts[0]


@given(mutated())
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
def test_a_mutated_config_gives_a_sentence_or_sound_counts(config):
    check(lambda: read_config(config, "config.json"))


@pytest.mark.fuzz
@pytest.mark.slow
@given(mutated())
@settings(max_examples=20_000, suppress_health_check=list(HealthCheck))
def test_20_000_mutated_configs(config):
    check(lambda: read_config(config, "config.json"))


@st.composite
def mangled(draw):
    """The text of a real config with a few places cut, doubled or overwritten."""
    text = json.dumps(draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 20))
        put = draw(
            st.sampled_from(
                ["", "[", "]", "{", "}", '"', ",", ":", "-", "1e999", "NaN", "null", "//", "\ufeff", "\x00"]
            )
        )
        text = text[:at] + put + text[at + length :]
    return text


@given(mangled())
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
def test_a_mangled_text_gives_a_sentence_or_sound_counts(text):
    check(lambda: read_config(parse_json(text, "config.json"), "config.json"))


@pytest.mark.fuzz
@pytest.mark.slow
@given(mangled())
@settings(max_examples=20_000, suppress_health_check=list(HealthCheck))
def test_20_000_mangled_texts(text):
    check(lambda: read_config(parse_json(text, "config.json"), "config.json"))
