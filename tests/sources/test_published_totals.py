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
