"""Each crossover is proved to solve its equation: both costs, written from their own formulas, are equal there."""

import pytest
import sympy

from planner.formula import formulas, symbol
from planner.textbook import attention_flops as work
from planner.textbook import cache, crossovers
from planner.textbook.memory_traffic import weight_bytes
from planner.textbook.parameters import gated_ffn_parameters

S, T, P = symbol("context"), symbol("new"), symbol("past")
ONE_LAYER = {symbol("n_layers"): 1, symbol("batch"): 1}

projections = work.attention_projection_flops_per_token.expr
matrices = projections + work.gated_ffn_flops_per_token.expr
core_on_all = work.attention_flops_per_pair.expr * S
core_of_prompt = work.prefill_attention_flops.expr.subs(ONE_LAYER)
per_token = symbol("kv_bytes_per_token")
cache_of_all = symbol("batch") * S * per_token
loading = S * per_token / symbol("link_bytes_per_s")
prefix = work.prefill_attention_flops.expr.subs(symbol("batch"), 1)
recomputing = (2 * symbol("active_parameters") * S + prefix) / symbol("flops_per_s")
sparse = symbol("index_flops_per_pair") * S + symbol("core_flops_per_pair") * symbol("index_top_k")
reading = weight_bytes.expr / symbol("memory_bytes_per_s")
multiplying = 2 * symbol("parameters") * symbol("batch") / symbol("flops_per_s")

# formula -> (what it solves for, one cost, the other)
EQUATIONS = {
    "cache_equals_weights_context": (S, cache_of_all, symbol("weight_bytes")),
    "cache_equals_weights_batch": (symbol("batch"), cache_of_all, symbol("weight_bytes")),
    "mla_equals_gqa_kv_heads": (symbol("n_kv_heads"), cache.mla_payload.expr, cache.kv_payload.expr),
    "mla_equals_mqa_kv_lora_rank": (
        symbol("kv_lora_rank"),
        cache.mla_payload.expr,
        cache.kv_payload.expr.subs(symbol("n_kv_heads"), 1),
    ),
    "core_equals_projections_decode": (S, core_on_all, projections),
    "core_equals_projections_prefill": (S, core_of_prompt, S * projections),
    "core_equals_layer_decode": (S, core_on_all, matrices),
    "core_equals_layer_prefill": (S, core_of_prompt, S * matrices),
    "sparse_equals_dense_context": (S, sparse, symbol("core_flops_per_pair") * S),
    "load_equals_recompute_bandwidth": (symbol("link_bytes_per_s"), loading, recomputing),
    "load_equals_recompute_context": (S, loading, recomputing),
    "ridge_batch": (symbol("batch"), multiplying, reading),
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_it_solves_its_equation(name):
    unknown, one, other = EQUATIONS[name]
    assert sympy.simplify((one - other).subs(unknown, formulas[name].expr)) == 0
    solution = formulas[name].expr
    assert sympy.simplify((one - other).subs(unknown, solution + 1)) != 0


def test_every_crossover_has_its_equation():
    defined = {f.name for f in formulas.values() if f.__module__ == crossovers.__name__}
    assert defined == set(EQUATIONS)


LLAMA = {"d_model": 4096, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128}


def test_four_answers_to_one_question():
    """'Where does attention overtake the rest?' depends on the phase and on what the rest is: Llama-3.1-8B."""
    assert crossovers.core_equals_projections_decode(**LLAMA) == 5_120
    assert crossovers.core_equals_projections_prefill(**LLAMA) == 10_239
    assert crossovers.core_equals_layer_decode(**LLAMA, d_ff=14_336) == 26_624
    assert crossovers.core_equals_layer_prefill(**LLAMA, d_ff=14_336) == 53_247


def test_the_integer_costs_meet_there_too():
    shape = (4096, 32, 8, 128)
    layer = work.attention_projection_flops_per_token(*shape) + 2 * gated_ffn_parameters(4096, 14_336)
    assert work.prefill_attention_flops(1, 1, 53_247, 32, 128) == 53_247 * layer
    assert work.decode_attention_flops(1, 1, 26_623, 1, 32, 128) == layer


def test_an_indexer_as_dear_as_the_core_never_pays():
    assert crossovers.sparse_equals_dense_context(100, 101, 2048) < 0
