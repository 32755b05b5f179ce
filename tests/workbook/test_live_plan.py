"""A plan in words says what the plan says in numbers, in whichever format its products are multiplied."""

import pytest

from planner.arithmetic import evaluate
from planner.catalogue import accelerator
from planner.phases import timings
from planner.plan import make_plan
from planner.workbook.live_plan import live_plan

LOAD = {"isl": 2048, "osl": 256, "sequences": 8}


@pytest.mark.parametrize(
    ("device", "weights"),
    [
        ("h100-sxm", "bf16"),
        ("h100-sxm", "fp8"),
        ("h100-sxm", "awq-g128"),
        ("b200", "nvfp4"),
        ("a100-80gb-sxm", "fp8"),
        ("l40s", "fp8"),
    ],
)
def test_times_are_those_of_the_plan(device, weights):
    plan = make_plan("llama-3.1-8b", accelerator=device, count=2, weights=weights, **LOAD)
    live = live_plan(plan)
    floor, estimate = timings(plan)
    for recorded, stated in ((live.answers.floor, floor), (live.answers.estimate, estimate)):
        for name in ("ttft_s", "tpot_s", "output_tok_s"):
            assert float(evaluate(getattr(recorded, name), live.values)) == pytest.approx(
                getattr(stated, name), rel=1e-12
            )


def test_it_moves_only_to_devices_that_multiply_in_the_same_formats():
    live = live_plan(make_plan("llama-3.1-8b", accelerator="h100-sxm", count=2, weights="fp8", **LOAD))
    assert "h200" in live.movable()
    assert "a100-80gb-sxm" not in live.movable()  # it unpacks fp8, and reaches another share of another peak
    assert accelerator("a100-80gb-sxm").compute_format("fp8") == "bf16"
