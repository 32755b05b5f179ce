"""Plans per second through `plan_frame`, beside the same figures written by hand in NumPy, in one run.

``python -m pytest tests/benchmarks/test_rows.py`` prints all; rows per second = ROWS / the time shown. The table has 20
columns, of which 15 are its user's own, and every row is another plan. `mixed` deals the rows out over two
accelerators and two cache formats, one row after another.
"""

import numpy as np
import pandas as pd
import pytest

from planner.rows import plan_frame

ROWS = 1_000_000
DRAW = np.random.default_rng(1)
CASES = pd.DataFrame(
    {
        "model": pd.Categorical.from_codes(np.zeros(ROWS, int), ["llama-3.1-8b"]),
        "accelerator": pd.Categorical.from_codes(np.zeros(ROWS, int), ["h100-sxm"]),
        "context": DRAW.integers(1_000, 131_072, ROWS),
        "sequences": DRAW.integers(1, 200, ROWS),
        "usd_per_hour": DRAW.uniform(1.0, 8.0, ROWS),
        **{f"own_{place}": DRAW.random(ROWS) for place in range(15)},
    }
)
MIXED = CASES.assign(
    accelerator=pd.Categorical.from_codes(DRAW.integers(0, 2, ROWS), ["h100-sxm", "h200-sxm"]),
    kv=pd.Categorical.from_codes(DRAW.integers(0, 2, ROWS), ["bf16", "fp8"]),
)


def by_hand():
    """Llama-3.1-8B on one H100: what `plan_frame` says of it, the way one would write it for this plan alone."""
    context, sequences, hour = (CASES[n].to_numpy(float) for n in ("context", "sequences", "usd_per_hour"))
    layers, width, heads, kv_heads, d_h, d_ff, vocab = 32, 4096, 32, 8, 128, 14336, 128_256
    peak, bandwidth, memory = 989.4e12, 3.35e12, 85_520_809_984
    osl, steps, fixed_s = 256, 255, layers * 65e-6
    matrices = [layers * n for n in (width * heads * d_h, width * kv_heads * d_h, width * kv_heads * d_h)]
    matrices += [layers * n for n in (heads * d_h * width, width * d_ff, width * d_ff, width * d_ff)]
    head, norms = vocab * width, (2 * layers + 1) * width
    parameters = sum(matrices) + 2 * head + norms
    isl = context - osl + 1
    kv_bytes = layers * kv_heads * d_h * 2  # of a position's keys, and of its values

    def phase(tokens, passes, pairs, positions, emitted):
        work = [(2 * n * tokens, 2 * n * passes) for n in matrices]
        work += 2 * [(2 * layers * heads * d_h * pairs, kv_bytes * positions)]
        work += [(2 * head * emitted, 2 * head * passes)]
        rest = 2 * (norms * passes + width * tokens)
        seconds = sum(np.maximum(f / (peak * 0.7), b / (bandwidth * 0.92)) for f, b in work)
        estimate = seconds + rest / (bandwidth * 0.92) + passes * fixed_s
        floor = np.maximum(sum(f for f, _ in work) / peak, (sum(b for _, b in work) + rest) / bandwidth)
        return floor, estimate

    floor_ttft, ttft = phase(isl, 1, isl * (isl + 1) / 2, 2 * isl, 1)
    n = np.minimum(sequences, np.maximum(1, 8192 // isl))  # prompts of a pass
    prefill = phase(n * isl, 1, n * isl * (isl + 1) / 2, n * 2 * isl, n)[1] / n
    seen = steps * isl + steps * (steps + 1) / 2
    many = sequences * steps
    floor_steps, decode = phase(many, steps, sequences * seen, sequences * (seen + steps), many)
    cache = 131_072.0 * context * sequences
    needed = 2 * parameters + cache + 40 * vocab * sequences + 8192 * (2 * d_ff + width + 2 * width) * 2
    request, rate = ttft + decode, sequences / (sequences * prefill + decode)
    each = hour * (prefill + decode / sequences) / 3600
    columns = {
        "parameters": np.full(ROWS, float(parameters)),
        "active_parameters": np.full(ROWS, float(parameters)),
        "weights_bytes": np.full(ROWS, 2.0 * parameters),
        "kv_cache_bytes": cache,
        "needed_bytes": needed,
        "usable_bytes": np.full(ROWS, float(memory)),
        "headroom_bytes": memory * 9 // 10 - 3 * 2**28 - needed,
        "ttft_s": ttft,
        "tpot_s": decode / steps,
        "request_s": request,
        "requests_per_s": rate,
        "output_tok_s_per_user": steps / decode,
        "output_tok_s_per_accelerator": osl * rate,
        "output_tok_s": osl * rate,
        "total_tok_s": (osl + isl) * rate,
        "floor_ttft_s": floor_ttft,
        "floor_tpot_s": floor_steps / steps,
        "usd_per_accelerator_hour": hour,
        "fleet_usd_per_month": hour * 720,
        "usd_per_request": each,
        "usd_per_mtok_input": hour * prefill / 3600 * 1e6 / isl,
        "usd_per_mtok_output": hour * decode / sequences / 3600 * 1e6 / osl,
        "usd_per_mtok_blended": each * 1e6 / (isl + osl),
    }
    return pd.concat([CASES, pd.DataFrame(columns, copy=False)], axis=1)


@pytest.mark.benchmark(group="one million plans of llama-3.1-8b")
@pytest.mark.parametrize("way", ["plan_frame", "by_hand"])
def test_rows(benchmark, way):
    result = benchmark((lambda: plan_frame(CASES)) if way == "plan_frame" else by_hand)
    for name, column in by_hand().items():
        if column.dtype == float:
            assert np.allclose(result[name], column, rtol=1e-12, atol=0), name


@pytest.mark.benchmark(group="one million plans, four groups dealt out row by row")
def test_mixed(benchmark):
    assert set(benchmark(lambda: plan_frame(MIXED))["reason"]) == {""}
