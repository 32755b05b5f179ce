"""Parameters of the textbook against the identities of their papers."""

import pytest
import sympy

from planner.formula import symbol
from planner.textbook.parameters import (
    active_parameters,
    attention_projection_parameters,
    dense_parameters,
    embedding_parameters,
    equal_budget_width,
    equal_budget_width_rounded,
    ffn_parameters,
    gated_ffn_parameters,
    mixture_parameters,
    routed_expert_parameters,
)

D, H, K, W = map(symbol, ("d_model", "n_heads", "n_kv_heads", "head_dim"))


def test_projections_where_the_heads_fill_the_width():
    filled = sympy.expand(attention_projection_parameters.expr.subs(H, D / W))
    assert filled == 2 * D**2 + 2 * D * K * W
    assert sympy.expand(filled.subs(K, D / W)) == 4 * D**2


def test_the_gated_feed_forward_has_the_plain_ones_budget_at_two_thirds():
    assert sympy.expand(gated_ffn_parameters(D, equal_budget_width.expr)) == ffn_parameters(D, 4 * D) == 8 * D**2


@pytest.mark.parametrize(("d_model", "d_ff"), [(4096, 11008), (5120, 13824), (6656, 17920), (8192, 22016)])
def test_rounding_gives_the_published_llama_widths(d_model, d_ff):
    assert equal_budget_width_rounded(d_model, 256) == d_ff


def test_a_width_that_is_a_multiple_is_not_rounded():
    assert equal_budget_width_rounded(3 * 4096, 256) == 8 * 4096
    assert equal_budget_width_rounded(3 * 4096 + 3, 256) == 8 * 4096 + 256


@pytest.mark.parametrize(
    ("shape", "tied", "published"),
    [
        ((128256, 4096, 32, 32, 8, 128, 14336), False, 8_030_261_248),  # Llama-3.1-8B
        ((128256, 8192, 80, 64, 8, 128, 28672), False, 70_553_706_496),  # Llama-3.1-70B
        ((32000, 4096, 32, 32, 32, 128, 11008), False, 6_738_415_616),  # Llama-2-7B
        ((32000, 4096, 32, 32, 8, 128, 14336), False, 7_241_732_096),  # Mistral-7B
        ((128256, 2048, 16, 32, 8, 64, 8192), True, 1_235_814_400),  # Llama-3.2-1B
    ],
)
def test_dense_totals_are_those_of_the_checkpoints(shape, tied, published):
    vocab_size, d_model = shape[:2]
    saved = embedding_parameters(d_model, vocab_size) if tied else 0
    assert dense_parameters(*shape) - saved == published


def test_mixtral_in_all_and_for_one_token():
    total = mixture_parameters(32000, 4096, 32, 32, 8, 128, 8, 14336)
    assert total == 46_702_792_704
    assert active_parameters(total, routed_expert_parameters(32, 4096, 8, 14336), 8, 2) == 12_879_925_248


def test_one_expert_that_is_always_chosen_is_the_dense_model_with_a_router():
    words = ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff")
    dense = dense_parameters(*map(symbol, words))
    mixture = mixture_parameters(*map(symbol, words[:-1]), 1, symbol("d_ff"))
    assert sympy.expand(mixture - dense) == symbol("n_layers") * D
    assert active_parameters(mixture, symbol("routed_parameters"), 8, 8) == mixture
