"""`planner verify` on every preset: budget 5 s of one core each. At full depth it may take a minute."""

import time

import pytest

import planner
from planner.sources.presets import names


@pytest.mark.parametrize("name", names())
def test_every_preset_passes(benchmark, name):
    model = planner.load(name)
    began = time.process_time()  # what else the machine does is not the planner's time
    report = benchmark.pedantic(planner.verify, args=(model,), rounds=1)
    assert report.passed, report
    assert time.process_time() - began < 5


@pytest.mark.parametrize("name", ["minimax-text-01", "deepseek-v2-lite", "qwen3-next-80b-a3b", "zamba2-2.7b"])
def test_deep_decoders_pass_at_full_depth(name):
    report = planner.verify(planner.load(name), full=True)
    assert report.passed, report
