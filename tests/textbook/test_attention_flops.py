"""The work of attention: laws that hold whatever the sizes, and counts made one pair at a time."""

import pytest
import sympy

from planner.formula import symbol
from planner.textbook.attention_flops import (
    absorbed_mla_flops_per_pair,
    attention_flops_per_pair,
    attention_projection_flops_per_token,
    decode_attention_flops,
    prefill_attention_flops,
    square_attention_flops,
)

T, P = symbol("new"), symbol("past")


def test_decoding_is_tp_plus_t_squared():
    each = 4 * symbol("n_heads") * symbol("head_dim")
    expected = each * (T * P + T**2 / 2 + T / 2)
    assert sympy.expand(decode_attention_flops.expr.subs({symbol("n_layers"): 1, symbol("batch"): 1}) - expected) == 0


def test_a_prompt_is_a_pass_without_a_past():
    prefill = prefill_attention_flops.expr.subs(symbol("context"), T)
    assert sympy.expand(prefill - decode_attention_flops.expr.subs(P, 0)) == 0


def test_chunks_and_steps_add_up_to_the_whole():
    first, second = sympy.symbols("a b", positive=True)

    def work(past, new):
        return decode_attention_flops(1, 1, past, new, 32, 128)

    assert sympy.expand(work(P, first + second) - work(P, first) - work(P + first, second)) == 0
    assert sum(work(100 + step, 1) for step in range(50)) == work(100, 50)


@pytest.mark.parametrize(("past", "new"), [(0, 7), (5, 1), (5, 4)])
def test_pairs_counted_one_by_one(past, new):
    each = attention_flops_per_pair(32, 128)
    causal = sum(key <= past + query for query in range(new) for key in range(past + new))
    assert decode_attention_flops(1, 1, past, new, 32, 128) == each * causal
    assert square_attention_flops(1, 1, past, new, 32, 128) == each * new * (past + new)


def test_one_step_is_the_same_in_both_conventions():
    difference = square_attention_flops.expr - decode_attention_flops.expr
    assert sympy.expand(difference.subs(T, 1)) == 0
    assert sympy.factor(difference).subs(T, 7).is_positive


def test_grouping_changes_projections_but_not_scores():
    assert "n_kv_heads" not in attention_flops_per_pair.words
    assert "n_kv_heads" in attention_projection_flops_per_token.words


def test_the_latent_with_full_width_keys_and_no_rotary_part_is_plain_attention():
    assert absorbed_mla_flops_per_pair(32, 128, 0) == attention_flops_per_pair(32, 128)
