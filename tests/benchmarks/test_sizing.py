"""Every layout on every accelerator of the catalogue: budget 2 s for a dense decoder of 70B, 3 s for DeepSeek-V3."""

import pytest

from planner import catalogue
from planner.sizing import size

LOAD = {"context": 8192, "sequences": 64, "usd_per_hour": 2.0}  # a stated price leaves no accelerator out


@pytest.mark.parametrize("name", ["llama-3.1-70b", "deepseek-v3"])
def test_rank_the_catalogue(benchmark, name):
    frame = benchmark.pedantic(size, (name,), LOAD, rounds=3, warmup_rounds=0)
    assert set(frame["accelerator"]) == set(catalogue.names())
