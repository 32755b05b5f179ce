"""Scenarios per second through `sweep`, beside the same formulas written by hand in NumPy, in one run.

``python -m pytest tests/benchmarks/test_scenarios.py`` prints both; rows per second = ROWS / the time shown. A grid of
two axes, and the same axes drawn row by row, where no row repeats another.
"""

import numpy as np
import pandas as pd
import pytest

import planner
from planner.scenarios import sweep

CONTEXTS = np.arange(1_000, 21_000)
BATCHES = np.arange(1, 51)
ROWS = len(CONTEXTS) * len(BATCHES)
DRAWN = {"context": np.random.default_rng(1).integers(1, 20_000, ROWS), "batch": np.arange(ROWS) % 50 + 1}


def grid_by_hand():
    return by_hand(np.repeat(CONTEXTS.astype(float), len(BATCHES)), np.tile(BATCHES.astype(float), len(CONTEXTS)))


def drawn_by_hand():
    return by_hand(DRAWN["context"].astype(float), DRAWN["batch"].astype(float))


def by_hand(context, batch):
    """Llama-3.1-8B: what `sweep` says of it, the way one would write it for this model alone."""
    layers, width, heads, kv_heads, d_h, d_ff, vocab = 32, 4096, 32, 8, 128, 14336, 128256
    matrices = layers * (2 * width * heads * d_h + 2 * width * kv_heads * d_h + 3 * width * d_ff)
    total = matrices + 2 * vocab * width + (2 * layers + 1) * width
    per_token = 2 * layers * kv_heads * d_h * 2
    core = 4 * layers * heads * d_h
    columns = {
        "context": context,
        "batch": batch,
        "parameters": np.full(ROWS, float(total)),
        "active_parameters": np.full(ROWS, float(total)),
        "weight_bytes": np.full(ROWS, 2.0 * total),
        "cache_bytes_per_token": np.full(ROWS, float(per_token)),
        "cache_fixed_bytes": np.zeros(ROWS),
        "cache_bytes": per_token * context * batch,
        "prefill_flops": batch * (2 * matrices * context + core * (context * (context + 1) / 2) + 2 * vocab * width),
        "decode_flops": batch * (2 * matrices + core * (context + 1) + 2 * vocab * width),
        "crossover_tokens": (2 * total / batch) / per_token,
    }
    return pd.DataFrame(columns, copy=False)


WAYS = {
    "grid": (lambda model: sweep(model, context=CONTEXTS, batch=BATCHES), grid_by_hand),
    "drawn": (lambda model: sweep(model, how="zip", **DRAWN), drawn_by_hand),
}


@pytest.mark.benchmark(group="one million scenarios of llama-3.1-8b")
@pytest.mark.parametrize("way", ["sweep", "by_hand"])
@pytest.mark.parametrize("axes", WAYS)
def test_scenarios(benchmark, axes, way):
    model = planner.load("llama-3.1-8b")
    through_sweep, hand = WAYS[axes]
    result = benchmark((lambda: through_sweep(model)) if way == "sweep" else hand)
    for name, column in hand().items():
        assert np.allclose(np.asarray(result[name], float), column, rtol=1e-14, atol=0), name
