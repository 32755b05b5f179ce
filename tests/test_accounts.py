"""The basic figures as their callers ask for them: the itemised bill, how many logits, how many sequences."""

import pytest

import planner
from planner.errors import UsageError


def test_the_itemised_bill_has_every_tensor_once_with_its_shape_and_copies():
    rows = {row["path"]: row for row in planner.itemise("mixtral-8x7b").to_dict("records")}
    assert rows["embedding.tokens.weight"]["parameters"] == 32_000 * 4096
    query, expert = rows["layers[0].mixer.q.weight"], rows["layers[0].feed_forward.experts.up.weight"]
    assert (query["shape"], query["copies"], query["parameters"]) == ((4096, 4096), 32, 32 * 4096**2)
    assert (expert["shape"], expert["copies"]) == ((14_336, 4096), 32 * 8)
    assert expert["parameters"] == 32 * 8 * 14_336 * 4096
    assert expert["role"] == expert["component"] == "experts_routed"


@pytest.mark.parametrize("name", ["gpt2", "zamba2-2.7b", "deepseek-v3", "jetmoe-8b"])
def test_the_itemised_bill_adds_up(name):
    rows = planner.itemise(name)
    assert rows["parameters"].sum() == planner.parameters(planner.load(name))
    assert not rows["path"].duplicated().any()


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
