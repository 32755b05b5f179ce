"""The cache of small decoders after a real generation of 40 tokens, layer by layer, against another program.

The rows of `cache.jsonl.gz` are the tensors that transformers 5.24 holds once 63 positions are cached: between passes,
so a window of w keeps w - 1. Convolution states are as wide as the kernel and have the model's dtype; recurrent states
are float32 in a bfloat16 model too. MoE routers, dense layers and layers that read another's cache keep nothing.
"""

import gzip
import json
import math
from pathlib import Path

import pytest

from planner import accounts
from planner.bill import CacheEntry
from planner.editing import edit
from planner.sources.config_json import families, read_config

DATA = Path(__file__).parent / "data" / "cache.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
FORMATS = {"float32": "fp32", "bfloat16": "bf16"}
BYTES = {"fp32": 4, "bf16": 2, "float32": 4, "bfloat16": 2}

# What a small config leaves to the class there and every released file states.
LEFT_OUT = {"mimo_v2_flash": {"swa_num_key_value_heads": 2}}

# Falcon-40B's class there repeats each key and value head for all query heads of its group before it keeps them. That
# is no property of the architecture, and engines keep one.
REPEATED = {"falcon_40b_like": 2}


# GPT-Neo's class there hides old positions from local layers and keeps them all the same.
HIDDEN_ONLY = {"gpt_neo"}


def architecture(row):
    model = read_config({**row["config"], **LEFT_OUT.get(row["key"], {})}, row["key"]).architecture
    return edit(model, {"layers[*].mixer.window": None}) if row["key"] in HIDDEN_ONLY else model


def stored(entry: CacheEntry, positions: int, dtype: str) -> int:
    return entry.elements * entry.rule.held(positions) * BYTES[entry.stored_in(FORMATS[dtype], FORMATS[dtype])]


def by_layer(model, positions: int, dtype: str) -> list[list[int]]:
    """The bytes of each layer's cache entries."""
    found = []
    for layer in model.order():
        bills = [part.bill for part in layer.parts("", model.d_model)]
        found.append([stored(entry, positions, dtype) for bill in bills for entry in bill.cache])
    return found


def held(run) -> list[list[int]]:
    """The same from the other program; what it keeps outside its cache object is put where it belongs."""
    layers = [[math.prod(shape) * BYTES[dtype] for _, shape, dtype in tensors] for tensors in run["layers"]]
    empty = [i for i, tensors in enumerate(layers) if not tensors]
    for name, shape, dtype in run["extra"]:
        words = name.replace("[", ".").replace("]", "").split(".")
        number = int(next(word for word in words if word.isdigit()))
        layers[empty[number] if name.startswith("linear_cache") else number].append(math.prod(shape) * BYTES[dtype])
    return layers


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["key"])
def test_every_layer_keeps_the_same_tensors(row, dtype):
    expected = held(row["runs"][dtype])
    times = REPEATED.get(row["key"], 1)
    found = [[times * size for size in layer] for layer in by_layer(architecture(row), row["positions"], dtype)]
    assert [sorted(entries) for entries in found] == [sorted(entries) for entries in expected]
    assert sum(map(sum, found)) == row["runs"][dtype]["total"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["key"])
def test_the_fold_over_all_layers_gives_their_sum(row):
    model = architecture(row)
    bf16 = accounts.cache_bytes(model, row["positions"], kv="bf16", between_passes=True)
    assert bf16 * REPEATED.get(row["key"], 1) == row["runs"]["bfloat16"]["total"]


def test_all_rows_are_compared():
    assert len(ROWS) == 91
    assert {row["config"]["model_type"] for row in ROWS} <= set(families())
