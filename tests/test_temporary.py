"""Temporary memory and its traffic: the textbook's formulas on a uniform stack, and known models beyond it."""

from dataclasses import replace

import pytest
import sympy

import planner
from planner import folds, temporary
from planner.arithmetic import evaluate, word, words
from planner.bill import Pass
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.norm import RMSNorm
from planner.contract import Architecture, Layer
from planner.formula import formulas, symbol
from planner.sources import presets
from planner.temporary import cores

NORM = RMSNorm(eps=1e-5)
MIXER = DenseAttention(n_heads=word("n_heads"), n_kv_heads=word("n_kv_heads"), head_dim=word("head_dim"))
UNIFORM = Architecture(
    name="uniform",
    vocab_size=word("vocab_size"),
    d_model=word("d_model"),
    layers=(Layer(count=1, mixer=MIXER, feed_forward=FeedForward(d_ff=word("d_ff")), norm=NORM),),
    final_norm=NORM,
).parts()
BYTES, BATCH, CHIP = word("elem_bytes"), word("batch"), word("on_chip_bytes")
ENDS = ("scores", "values")
PROMPT = Pass(new=word("context"), emitted=word("emitted"))


def proved(tree, formula):
    expression = evaluate(tree, {name: symbol(name) for name in words(tree)})
    return sympy.simplify(sympy.expand(expression - formulas[formula].expr)) == 0


def test_folds_of_a_uniform_stack_are_the_textbooks():
    assert proved(temporary.score_bytes(UNIFORM, PROMPT, BYTES, batch=BATCH), "score_bytes")
    assert proved(temporary.statistics_bytes(UNIFORM, PROMPT, BYTES, batch=BATCH), "tiled_statistics_bytes")
    assert proved(temporary.naive_traffic(UNIFORM, PROMPT, BYTES, batch=BATCH), "naive_attention_traffic")
    assert proved(temporary.tiled_traffic(UNIFORM, PROMPT, CHIP, BYTES, batch=BATCH), "tiled_attention_traffic")
    assert proved(temporary.logits_bytes(UNIFORM, PROMPT, BYTES, batch=BATCH), "logits_bytes")


def parts(name):
    return planner.load(name).parts()


def test_scores_live_in_one_layer_and_their_traffic_in_all():
    llama = parts("llama-3.1-8b")
    assert temporary.score_bytes(llama, Pass.prefill(8192), 2, batch=3) == 3 * 32 * 8192**2 * 2
    assert temporary.score_bytes(llama, Pass(past=6144, new=2048), 2) == 32 * 2048 * 8192 * 2
    assert temporary.score_bytes(llama, Pass.decode(8191), 2) == 32 * 8192 * 2
    assert temporary.naive_traffic(llama, Pass.prefill(1024), 2) == 32 * 32 * (4 * 1024 * 128 + 4 * 1024**2) * 2
    tiles = 1024 // (131_072 // (4 * 128 * 2))  # of 128 keys
    once, each = 2 * 1024 * 128, 1024 * (3 * 128 + 4)  # K and V; Q, and O with two statistics read and written
    assert temporary.tiled_traffic(llama, Pass.prefill(1024), 131_072, 2) == 32 * 32 * (once + tiles * each) * 2


def test_a_window_shortens_the_keys_at_hand():
    """Gemma-2-9B: 21 local layers of 4,096 positions, 21 global ones; Mistral-7B-v0.1: local ones alone."""
    chunk = Pass(past=8192, new=2048)
    assert temporary.score_bytes(parts("gemma-2-9b"), chunk, 2) == 16 * 2048 * (8192 + 2048) * 2
    assert temporary.score_bytes(parts("mistral-7b-v0.1"), chunk, 2) == 32 * 2048 * (4095 + 2048) * 2
    ends, scores = 2 * 16 * 256, 4 * 16 * 2048
    local, full = 4095 + 2048, 8192 + 2048
    moved = sum(21 * (ends * (2048 + keys) + scores * keys) for keys in (local, full))
    assert temporary.naive_traffic(parts("gemma-2-9b"), chunk, 2) == 2 * moved


def test_latent_heads_are_as_wide_as_the_form_makes_them():
    deepseek, step = parts("deepseek-v3"), Pass.decode(999)
    assert temporary.score_bytes(deepseek, step, 2) == 128 * 1000 * 2
    assert {(c.query, c.output) for c in cores(deepseek, step)} == {(128 * (512 + 64), 128 * 512)}
    prompt = Pass.prefill(1000)
    assert {(c.query, c.output) for c in cores(deepseek, prompt)} == {(128 * (128 + 64), 128 * 128)}


@pytest.mark.parametrize("name", presets.names())
@pytest.mark.parametrize("run", [Pass.prefill(5000), Pass.decode(5000)], ids=["prefill", "decode"])
def test_cores_do_the_work_of_a_square_pass(name, run):
    """Nothing is left out: 2 (q + o) for each pair is what the dense convention counts, indexers aside."""
    square = folds.flops(parts(name), replace(run, attention="square"), by="product")
    counted = sum(n for product, n in square.items() if "indexer" not in product and product.endswith(ENDS))
    assert counted == sum(2 * core.count * (core.query + core.output) * core.pairs for core in cores(parts(name), run))


def test_a_stack_without_attention_has_no_scores():
    mamba = parts("mamba-130m")
    assert temporary.score_bytes(mamba, Pass.prefill(100), 2) == 0
    assert temporary.naive_traffic(mamba, Pass.prefill(100), 2) == 0


def test_a_tied_matrix_gives_as_many_logits():
    assert temporary.logits_bytes(parts("gemma-2-9b"), Pass.prefill(77), 4, batch=2) == 2 * 256_000 * 4
    every = Pass(new=77, emitted=77)
    assert temporary.logits_bytes(parts("gpt2"), every, 4) == 77 * 50_257 * 4
