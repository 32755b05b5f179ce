"""The cache's payload: the figures of the worked example, and what follows from one formula for the others."""

import pytest
import sympy

from planner.formula import symbol
from planner.textbook.cache import (
    cache_saved_by_grouping,
    kv_elements,
    kv_payload,
    kv_payload_per_token,
    kv_payload_ragged,
    kv_payload_windowed,
    mla_over_mqa_cache,
    mla_payload,
    mla_payload_per_token,
)
from planner.textbook.crossovers import cache_equals_weights_context

EXAMPLE = [
    # KV heads, bytes of a token, GiB at 128,000 tokens, tokens at which 7 billion two-byte weights are reached
    (32, 524_288, 62.5, 26_703),
    (8, 131_072, 15.625, 106_812),
    (1, 16_384, 1.953125, 854_492),
]


@pytest.mark.parametrize(("n_kv_heads", "token", "gib", "crossover"), EXAMPLE, ids=["mha", "gqa", "mqa"])
def test_the_worked_example(n_kv_heads, token, gib, crossover):
    assert kv_payload_per_token(32, n_kv_heads, 128, 2) == token
    assert kv_payload(32, 1, 128_000, n_kv_heads, 128, 2) == gib * 2**30
    assert round(cache_equals_weights_context(14_000_000_000, 1, token)) == crossover


@pytest.mark.parametrize("lengths", [[5], [1000, 20], [7, 0, 3, 3]])
def test_only_the_sum_of_the_lengths_counts(lengths):
    shape = (8, 128, 2)
    assert kv_payload_ragged(32, sum(lengths), *shape) == sum(kv_payload(32, 1, n, *shape) for n in lengths)


def test_equal_lengths_are_a_ragged_batch():
    ragged = kv_payload_ragged.expr.subs(symbol("resident_tokens"), symbol("batch") * symbol("context"))
    assert sympy.expand(ragged - kv_payload.expr) == 0


def test_a_key_as_wide_as_its_value_makes_the_factor_two():
    bytes_of_all = kv_elements.expr.subs(symbol("v_head_dim"), symbol("head_dim"))
    bytes_of_all *= symbol("n_layers") * symbol("batch") * symbol("context") * symbol("kv_elem_bytes")
    assert sympy.expand(bytes_of_all - kv_payload.expr) == 0


def test_a_window_holds_until_it_is_full():
    def windowed(context):
        return kv_payload_windowed(32, 2, context, 4096, 8, 128, 2)

    assert windowed(4095) == kv_payload(32, 2, 4095, 8, 128, 2)
    assert windowed(4096) == windowed(4097) == windowed(10**6) == kv_payload(32, 2, 4096, 8, 128, 2)


def test_storage_ratios_are_ratios_of_payloads():
    heads = symbol("n_heads")
    mha = kv_payload.expr.subs(symbol("n_kv_heads"), heads)
    mqa = kv_payload.expr.subs(symbol("n_kv_heads"), 1)
    assert sympy.simplify(mha / kv_payload.expr - cache_saved_by_grouping.expr) == 0
    assert sympy.simplify(mha / mqa) == heads
    assert sympy.simplify(mla_payload.expr / mqa - mla_over_mqa_cache.expr) == 0


def test_deepseek_v2_keeps_four_and_a_half_head_widths():
    d = symbol("head_dim")
    assert mla_over_mqa_cache(4 * d, d / 2, d) == sympy.Rational(9, 4)
    assert mla_payload_per_token(1, 4 * d, d / 2, 1) == sympy.Rational(9, 2) * d
    assert mla_payload_per_token(60, 512, 64, 2) == 69_120  # DeepSeek-V2
