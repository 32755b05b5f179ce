"""Models outside the truth set: totals that the checkpoints' headers show, configs from general knowledge.

No outside program has counted these configs; each meets its published total to the last parameter.
"""

import json
from pathlib import Path

import pytest

from planner import folds
from planner.sources.config_json import read_config

DATA = Path(__file__).parents[1] / "data" / "published_totals.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_the_published_total_is_met(row):
    reading = read_config(row["config"], row["name"])
    assert folds.parameters(reading.architecture.parts()) == row["published_total"]
    assert reading.unknown_keys == ()


def test_mimo_has_its_module_for_multi_token_prediction():
    """XiaomiMiMo/MiMo-7B-Base: 7,833,409,536 parameters are published, the module among them."""
    config = {"model_type": "mimo", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 36}
    config |= {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_680}
    config |= {"attention_bias": True, "rms_norm_eps": 1e-5, "rope_theta": 640_000, "num_nextn_predict_layers": 1}
    parts = read_config(config, "mimo").architecture.parts()
    assert folds.parameters(parts, modules=("body", "mtp")) == 7_833_409_536
    assert folds.parameters(parts) == 7_622_619_136
