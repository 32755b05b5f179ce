"""Pope et al. 2022, Efficiently Scaling Transformer Inference, Table 1: the longest context of a 540B decoder.

118 layers, 48 query heads padded to 64, on 64 chips of 32 GiB, of which 30 % may hold the cache. The paper rounds to
two or three digits; we are held to 1.5 %.
"""

import pytest

import planner
from planner.catalogue import Accelerator

CHIP = Accelerator(
    name="tpu-v4-of-the-paper",
    title="TPU v4 with 32 GiB",
    vendor="Google",
    memory_bytes=32 * 2**30,
    bandwidth_bytes_per_s=1.2e12,
    peak_flops={"bf16": 275e12},
    domain_size=64,
)
ONLY_THE_CACHE = {
    "memory_fraction": 0.3,
    "engine": "none",
    "offloaded_weights": 1.0,
    "prefill_tokens": 0,
    "logits_elem_bytes": 0,
}


def decoder(n_kv_heads, head_dim):
    changes = {"d_model": 18_432, "layers[0].count": 118, "n_heads": 64, "n_kv_heads": n_kv_heads, "head_dim": head_dim}
    return planner.edit(planner.load("mha"), changes)


@pytest.mark.parametrize(
    ("heads", "layout", "sequences", "longest"),
    [
        ((64, 128), {"tp": 64}, 128, 1320),
        ((64, 128), {"tp": 64}, 512, 330),
        ((1, 256), {"tp": 64}, 128, 660),
        ((1, 256), {"tp": 64}, 512, 165),
        ((1, 256), {"tp": 64, "attention_dp": 64}, 128, 43_000),
        ((1, 256), {"tp": 64, "attention_dp": 64}, 512, 10_700),
    ],
    ids=["multi-head", "multi-head", "multi-query", "multi-query", "multi-query by batch", "multi-query by batch"],
)
def test_longest_context(heads, layout, sequences, longest):
    answer = planner.fit(decoder(*heads), accelerator=CHIP, sequences=sequences, **layout, **ONLY_THE_CACHE)
    assert answer.longest_context == pytest.approx(longest, rel=0.015)
