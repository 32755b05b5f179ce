"""What vLLM set aside for the cache by its start-up logs, against the ladder of the same configuration.

Each row is a thread that states device, fraction, tokens of a pass and what was left for the cache; the sequences are
max_num_seqs, for which vLLM profiles its sampler. Graphs lay outside the budget in these releases.
"""

import pytest

import planner

GIB = 2**30
LOGS = [  # thread, model, what it states, bytes left for the cache on a rank
    ("vllm-project/vllm#10517", "llama-3.1-8b", "rtx-3090", {"prefill_tokens": 20_000, "sequences": 256}, 3.81 * GIB),
    ("vllm-project/vllm#10517", "llama-3.1-8b", "rtx-3090", {"prefill_tokens": 29_000, "sequences": 256}, 2.89 * GIB),
    ("casys-kaist/LLMServingSim#59", "llama-3.1-8b", "rtx-4090", {"prefill_tokens": 2048, "sequences": 256},
     41_408 * 131_072),
    # 5.2 GiB of the layout of one kernel, beyond the checkpoint
    ("vllm-project/vllm#27508", "gpt-oss-120b", "h100-sxm", {"prefill_tokens": 1024, "sequences": 1024,
     "memory_fraction": 0.95, "weights": "mxfp4", "other_bytes": round(5.2 * GIB)}, 1.71 * GIB),
]  # fmt: skip


@pytest.mark.parametrize(("thread", "model", "device", "stated", "left"), LOGS)
def test_what_is_left_for_the_cache(thread, model, device, stated, left):
    """To 4 % of the device, and never more than there was: an engine that does not start is the worse surprise."""
    answer = planner.fit(model, accelerator=device, context=1, engine="vllm", **stated)
    room = answer.headroom_bytes + next(rung.bytes for rung in answer.rungs if rung.term == "kv cache")
    assert left - 0.04 * answer.usable_bytes < room < left


@pytest.mark.parametrize(("model", "measured"), [("gpt-oss-120b", 7.38), ("gemma-3-4b", 9.96)])
def test_the_peak_of_the_sampler(model, measured):
    """Profiled for 1,024 sequences (vllm-project/vllm#27508 and #21489); with four bytes a logit it was a tenth."""
    rungs = planner.fit(model, accelerator="h100-sxm", context=1, sequences=1024, engine="vllm").rungs
    found = next(rung.bytes for rung in rungs if rung.term == "logits")
    assert found / GIB == pytest.approx(measured, rel=0.05)
