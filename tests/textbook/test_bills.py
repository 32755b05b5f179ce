"""The bill of a uniform decoder, made of words instead of numbers, folds to the formulas of the textbook."""

import pytest
import sympy

from planner import folds
from planner.arithmetic import evaluate, word, words
from planner.bill import Pass
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.norm import RMSNorm
from planner.contract import Architecture, Layer
from planner.formula import formulas, symbol

NORM = RMSNorm(eps=1e-5)
DENSE = DenseAttention(n_heads=word("n_heads"), n_kv_heads=word("n_kv_heads"), head_dim=word("head_dim"))
WINDOWED = DenseAttention(
    n_heads=word("n_heads"), n_kv_heads=word("n_kv_heads"), head_dim=word("head_dim"), window=word("window")
)
LATENT = LatentAttention(
    n_heads=word("n_heads"),
    kv_lora_rank=word("kv_lora_rank"),
    nope_head_dim=word("head_dim"),
    rope_head_dim=word("rope_head_dim"),
    v_head_dim=word("v_head_dim"),
    latent_norm=NORM,
)
GATED = FeedForward(d_ff=word("d_ff"))
ROUTED = Mixture(n_experts=word("n_experts"), top_k=word("top_k"), d_ff=word("d_ff"))


def decoder(mixer, feed_forward=GATED):
    layer = Layer(count=word("n_layers"), mixer=mixer, feed_forward=feed_forward, norm=NORM)
    uniform = Architecture(
        name="uniform", vocab_size=word("vocab_size"), d_model=word("d_model"), layers=(layer,), final_norm=NORM
    )
    return uniform.parts()


def proved(tree, formula):
    expression = evaluate(tree, {name: symbol(name) for name in words(tree)})
    return sympy.expand(expression - formulas[formula].expr) == 0


def payload(parts, **options):
    def size(entry, positions):
        return positions * entry.elements * word("kv_elem_bytes")

    return word("batch") * folds.cache_total(parts, [word("context")], size, **options)


def core(parts, run):
    return folds.flops(parts, run, batch=word("batch"), by="component")["attention_core"]


def test_parameters():
    assert proved(folds.parameters(decoder(DENSE)), "dense_parameters")
    assert proved(folds.parameters(decoder(DENSE, ROUTED)), "mixture_parameters")
    routed = folds.parameters(decoder(DENSE, ROUTED), by="component")["experts_routed"]
    assert proved(routed, "routed_expert_parameters")


def test_active_parameters():
    parts = decoder(DENSE, ROUTED)
    active = formulas["active_parameters"].tree
    known = {"parameters": folds.parameters(parts), "n_experts": word("n_experts"), "top_k": word("top_k")}
    known["routed_parameters"] = folds.parameters(parts, by="component")["experts_routed"]
    folded = folds.parameters(parts, active=True) - evaluate(active, known)
    assert sympy.expand(evaluate(folded, {name: symbol(name) for name in words(folded)})) == 0


def test_cache():
    assert proved(payload(decoder(DENSE)), "kv_payload")
    assert proved(payload(decoder(WINDOWED)), "kv_payload_windowed")
    assert proved(payload(decoder(LATENT)), "mla_payload")


@pytest.mark.parametrize(("attention", "formula"), [("causal", "decode"), ("square", "square")])
def test_attention_core(attention, formula):
    run = Pass(past=word("past"), new=word("new"), attention=attention)
    assert proved(core(decoder(DENSE), run), f"{formula}_attention_flops")


def test_prefill():
    assert proved(core(decoder(DENSE), Pass(new=word("context"))), "prefill_attention_flops")


def test_work_on_a_pair_and_on_a_position():
    run = Pass(past=0, new=1, mla="absorbed")
    one = {"n_layers": 1, "batch": 1}

    def alone(tree):
        return evaluate(tree, {name: one.get(name, word(name)) for name in words(tree)})

    assert proved(alone(core(decoder(LATENT), run)), "absorbed_mla_flops_per_pair")
    assert proved(alone(core(decoder(DENSE), run)), "attention_flops_per_pair")
    components = folds.flops(decoder(DENSE), run, batch=1, by="component")
    assert proved(alone(components["attention"]), "attention_projection_flops_per_token")
    assert proved(alone(components["ffn_dense"]), "gated_ffn_flops_per_token")
