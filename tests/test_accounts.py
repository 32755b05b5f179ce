"""The basic figures as their callers ask for them: how many logits, how many sequences."""

import pytest

import planner
from planner.errors import UsageError


def test_logits_are_those_of_the_last_position_of_all_or_of_a_number():
    model = planner.load("llama-3.1-8b")
    head = 2 * 128_256 * 4096
    last = planner.flops(model, new=10)
    assert planner.flops(model, new=10, logits="all") - last == 9 * head
    assert planner.flops(model, new=10, logits=3) - last == 2 * head
    assert last - planner.flops(model, new=10, logits=0) == head
    with pytest.raises(UsageError, match=r"^logits = 11 exceeds new = 10; a pass emits at most its new positions$"):
        planner.flops(model, new=10, logits=11)


def test_a_batch_is_so_many_equal_sequences():
    model = planner.load("gemma-3-4b")
    assert planner.cache_bytes(model, 3000, batch=7) == planner.cache_bytes(model, [3000] * 7)
    assert planner.flops(model, new=50, batch=7) == 7 * planner.flops(model, new=50)


def test_a_window_is_whole_during_a_pass_and_one_short_between_two():
    model = planner.load("mistral-7b-v0.1")
    assert planner.cache_bytes(model, 10_000) == 4096 * 131_072
    assert planner.cache_bytes(model, 10_000, between_passes=True) == 4095 * 131_072
