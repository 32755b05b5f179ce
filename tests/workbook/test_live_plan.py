"""A plan in words says what the plan says in numbers, in whichever format its products are multiplied."""

import pytest

from planner.arithmetic import evaluate
from planner.catalogue import accelerator
from planner.phases import timings
from planner.plan import make_plan
from planner.workbook.live_plan import live_plan

LOAD = {"isl": 2048, "osl": 256, "sequences": 8}


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("h100-sxm", {}),
        ("h100-sxm", {"weights": "fp8"}),
        ("h100-sxm", {"weights": "awq-g128"}),
        ("b200", {"weights": "nvfp4"}),
        ("a100-80gb-sxm", {"weights": "fp8"}),
        ("l40s", {"weights": "fp8"}),
        ("mi300x", {}),
        ("h100-sxm", {"offloaded_weights": 0.25, "offloaded_cache": 0.5}),
        ("mi300a", {"offloaded_weights": 0.25}),
    ],
)
def test_times_are_those_of_the_plan(device, said):
    plan = make_plan("llama-3.1-8b", accelerator=device, count=2, **said, **LOAD)
    live = live_plan(plan)
    floor, estimate = timings(plan)
    for recorded, stated in ((live.answers.floor, floor), (live.answers.estimate, estimate)):
        for name in ("ttft_s", "tpot_s", "output_tok_s"):
            assert float(evaluate(getattr(recorded, name), live.values)) == pytest.approx(
                getattr(stated, name), rel=1e-12
            )


def test_tokens_sent_to_experts_on_other_machines_are_timed_alike():
    plan = make_plan("deepseek-v3", accelerator="h100-sxm", tp=32, attention_dp=32, ep=32, **LOAD)
    live = live_plan(plan)
    assert float(evaluate(live.answers.estimate.prefill_s, live.values)) == pytest.approx(
        timings(plan)[1].prefill_s, rel=1e-12
    )
    assert "h200" in live.movable()


def test_moved_to_links_without_a_switch_it_times_those_of_the_ranks():
    live = live_plan(make_plan("llama-3.1-8b", accelerator="h100-sxm", count=2, **LOAD))
    assert "mi300x" in live.movable()
    other = accelerator("mi300x")
    moved = {n: other.peak("bf16") if n in live.bases else getattr(other, n) for n in live.device}
    stated = timings(make_plan("llama-3.1-8b", accelerator=other, count=2, **LOAD))[1]
    assert float(evaluate(live.answers.estimate.ttft_s, live.values | moved)) == pytest.approx(stated.ttft_s, rel=1e-12)


def test_what_is_offloaded_moves_only_to_devices_with_a_link_to_their_host():
    live = live_plan(make_plan("llama-3.1-8b", accelerator="h100-sxm", offloaded_weights=0.5, **LOAD))
    assert "mi300x" in live.movable()
    assert "mi300a" not in live.movable()  # its memory is the host's
    unified = live_plan(make_plan("llama-3.1-8b", accelerator="mi300a", offloaded_weights=0.5, **LOAD))
    assert "gb10" in unified.movable()
    assert "mi300x" not in unified.movable()


def test_it_moves_only_to_devices_that_multiply_in_the_same_formats():
    live = live_plan(make_plan("llama-3.1-8b", accelerator="h100-sxm", count=2, weights="fp8", **LOAD))
    assert "h200" in live.movable()
    assert "a100-80gb-sxm" not in live.movable()  # it unpacks fp8, and reaches another share of another peak
    assert accelerator("a100-80gb-sxm").compute_format("fp8") == "bf16"
