"""Kwon et al. 2023, Efficient Memory Management for LLM Serving with PagedAttention, Table 1: slots of the cache.

The paper gives the memory that the weights leave and how many positions it holds: 12 GB for OPT-13B on one A100, 264 GB
for OPT-175B on eight. Its figures follow if GB is read as GiB.
"""

import pytest

import planner
from planner.catalogue import Accelerator


@pytest.mark.parametrize(("model", "count", "gib", "slots"), [("opt-13b", 1, 12, 15_700), ("opt-175b", 8, 264, 60_100)])
def test_cache_slots(model, count, gib, slots):
    left = Accelerator(
        name="what-the-weights-leave",
        title="what the weights leave of an A100",
        vendor="NVIDIA",
        memory_bytes=gib * 2**30 // count,
        bandwidth_bytes_per_s=2e12,
        peak_flops={"fp16": 312e12},
        domain_size=8,
    )
    answer = planner.fit(
        model,
        accelerator=left,
        count=count,
        context=1,
        engine="none",
        offloaded_weights=1.0,
        prefill_tokens=0,
        logits_elem_bytes=0,
    )
    assert round(answer.most_sequences, -2) == slots
