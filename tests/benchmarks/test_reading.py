"""From a config's keys to a full set of figures: budget 1 ms a config."""

import gzip
import json
from pathlib import Path

import pytest

from planner import bill, folds
from planner.sources.config_json import read_config

DATA = Path(__file__).parents[1] / "data" / "params.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
CONFIGS = {row["name"]: {**row["config"], "model_type": row["model_type"]} for row in ROWS}
LONGEST = ["google/gemma-3-27b-it#text", "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.1-405B", "openai/gpt-oss-120b"]


def figures(config):
    parts = read_config(config, "config.json").architecture.parts()
    return [
        folds.parameters(parts),
        folds.parameters(parts, active=True),
        folds.flops(parts, bill.Pass.prefill(8192)),
        folds.flops(parts, bill.Pass.decode(8192)),
        folds.cache_total(parts, [8192], lambda entry, positions: 2 * entry.elements * positions),
    ]


@pytest.mark.parametrize("name", LONGEST)
def test_read_and_count(benchmark, name):
    assert min(benchmark(figures, CONFIGS[name])) > 0
