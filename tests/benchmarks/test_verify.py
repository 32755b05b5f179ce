"""`planner verify` on every preset: budget 5 s each."""

import pytest

import planner
from planner.sources.presets import names


@pytest.mark.parametrize("name", names())
def test_every_preset_passes(benchmark, name):
    model = planner.load(name)
    report = benchmark.pedantic(planner.verify, args=(model,), rounds=1)
    assert report.passed, report
    assert benchmark.stats.stats.max < 5
