"""Inverse questions against the staircase itself: what they answer fits, one more does not."""

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.capacity import (
    _largest,
    fewest_accelerators,
    headroom_bytes,
    longest_context,
    most_sequences,
    smallest_format,
)
from planner.ladder import rank_terms
from planner.parallel import Layout, ranks
from planner.plan import make_plan
from tests.memory_builders import BARE, GIB, device

STAIRS = ["llama-3.1-8b", "gemma-3-4b", "deepseek-v2-lite", "deepseek-v4-flash", "jamba-v0.1", "lfm2-1.2b", "olmo-3-7b"]


@settings(max_examples=60)
@given(
    name=st.sampled_from(STAIRS),
    spare=st.integers(10_000_000, 40 * GIB),
    sequences=st.integers(1, 40),
    context=st.integers(1, 5000),
    layout=st.sampled_from([{}, {"dp": 3}, {"tp": 2}, {"pp": 2}, {"tp": 4, "attention_dp": 2}]),
    kv=st.sampled_from(["bf16", "fp8", "q8_0"]),
)
def test_inverses_stand_on_the_edge_of_the_staircase(name, spare, sequences, context, layout, kv):
    """One more does not fit, and what one inverse gives the other takes."""
    model = planner.edit(planner.load(name), {"max_positions": None, "trained_positions": None})
    start = make_plan(model, sequences=sequences, context=context, kv=kv, **layout)
    weights = max(rank_terms(start, rank)["weights"] for rank in ranks(model, start.layout))
    plan = start.changed(accelerator=device(weights + spare), memory_fraction=1.0, reserve_bytes=0, prefill_tokens=0)
    longest, most = longest_context(plan), most_sequences(plan)
    if longest:
        there = plan.changed(context=longest)
        assert headroom_bytes(there) >= 0 > headroom_bytes(plan.changed(context=longest + 1))
        assert most_sequences(there) >= sequences
    if most:
        there = plan.changed(sequences=most)
        assert headroom_bytes(there) >= 0 > headroom_bytes(plan.changed(sequences=most + 1))
        assert longest_context(there) >= context
    assert bool(most and most >= sequences) == bool(longest and longest >= context) == (headroom_bytes(plan) >= 0)


@given(room=st.integers(0, 60), steps=st.lists(st.integers(0, 9), min_size=1, max_size=30), bounded=st.booleans())
def test_the_search_finds_the_edge_of_any_staircase(room, steps, bounded):
    left = [room - needed for needed in accumulate(steps, initial=0)]  # bytes left with 0, 1, 2, … of what is asked
    last = max(n for n, spare in enumerate(left) if spare >= 0)
    expected = None if last == len(steps) and not bounded else last
    assert _largest(left.__getitem__, 1, len(steps), bounded) == expected


def test_ragged_sequences_are_admitted_in_order():
    lengths = (30_000, 9_000, 1_000, 8_000)
    room = 16_060_522_496 + 40_000 * 131_072
    plan = make_plan("llama-3.1-8b", accelerator=device(room), lengths=lengths, **BARE)
    assert most_sequences(plan) == 3
    assert most_sequences(plan.changed(lengths=lengths[::-1])) == 3
    assert most_sequences(plan.changed(lengths=(40_001, 1))) == 0
    assert longest_context(plan) == 10_000  # as four equal sequences


def test_a_state_never_ends_and_a_stated_maximum_does():
    assert planner.fit("falcon-mamba-7b", accelerator="h100-sxm").longest_context is None
    assert planner.fit("llama-3.1-8b", accelerator="h100-sxm", sequences=1).longest_context == 131_072
    beyond = planner.fit("llama-3.1-8b", accelerator="h100-sxm", context=200_000)
    assert beyond.fits
    assert beyond.notes == ("200,000 positions are beyond the stated maximum of 131,072",)
    assert planner.fit("opt-13b", accelerator="h100-sxm", context=2048).longest_context == 2048


def test_fewest_accelerators():
    def fewest(model, **how):
        return fewest_accelerators(make_plan(model, **how), most=16)

    assert fewest("gpt-oss-120b", accelerator="h100-sxm") == Layout()
    assert fewest("deepseek-v3", accelerator="h200").accelerators == 8
    across = fewest("llama-3.1-405b", accelerator="h100-sxm", context=131_072)
    assert (across.tp, across.pp) == (8, 2)
    assert fewest("llama-3.1-405b", accelerator="rtx-4090") is None


def test_the_smallest_step_down_in_format():
    plan = make_plan("llama-3.1-70b", accelerator="h100-sxm", context=2048)
    assert smallest_format(plan) == "fp8"
    assert smallest_format(plan, formats=("awq-g128", "q8_0", "q6_k")) == "q6_k"
    assert smallest_format(plan.changed(tp=4)) == "bf16"
    assert smallest_format(plan.changed(weights="fp8", tp=4)) == "fp8"  # a larger one would fit
    assert smallest_format(plan.changed(accelerator="rtx-4090")) is None
