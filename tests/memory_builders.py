"""What the tests of memory build their plans of."""

from planner.catalogue import Accelerator
from planner.ladder import rank_terms
from planner.parallel import ranks
from planner.plan import make_plan

GIB = 2**30
BARE = {"engine": "none", "prefill_tokens": 0, "logits_elem_bytes": 0}  # weights and cache alone


def device(memory_bytes):
    """An accelerator of which only the memory matters, eight in a domain."""
    return Accelerator(
        name="a-device",
        title="a device",
        vendor="nobody",
        memory_bytes=memory_bytes,
        bandwidth_bytes_per_s=1e12,
        peak_flops={"bf16": 1e14},
        domain_size=8,
    )


def terms(model, rank=0, **keywords):
    """Needed terms of one rank."""
    plan = make_plan(model, **keywords)
    return rank_terms(plan, ranks(plan.model, plan.layout)[rank])
