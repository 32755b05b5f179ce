"""The folds: hand-made bills with sums one can do in the head, and laws that hold for every decoder."""

import dataclasses

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from planner import folds
from planner.accounts import cache_bytes, flops, parameters
from planner.arithmetic import evaluate, word
from planner.bill import Bill, CacheEntry, Part, Pass, Product, Tensor, linear
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.norm import RMSNorm
from planner.contract import Architecture, Layer
from planner.rules import Window

NORM = RMSNorm(eps=1e-6)


def decoder(*layers, **fields):
    return Architecture(**{"name": "toy", "vocab_size": 96, "d_model": 64, "final_norm": NORM, **fields}, layers=layers)


def layer(count=2, mixer=None, feed_forward=None, **fields):
    mixer = mixer or DenseAttention(n_heads=8, n_kv_heads=2, head_dim=16)
    return Layer(count=count, mixer=mixer, feed_forward=feed_forward or FeedForward(d_ff=160), norm=NORM, **fields)


def latent(**fields):
    return LatentAttention(
        **{
            "n_heads": 4,
            "kv_lora_rank": 32,
            "nope_head_dim": 16,
            "rope_head_dim": 8,
            "v_head_dim": 12,
            "latent_norm": NORM,
        }
        | fields
    )


DENSE = decoder(layer())
WINDOW = decoder(layer(mixer=DenseAttention(n_heads=8, n_kv_heads=2, head_dim=16, window=5)), layer(1))
CHUNK = decoder(layer(mixer=DenseAttention(n_heads=8, n_kv_heads=8, head_dim=16, v_head_dim=24, chunk=4)))
LATENT = decoder(layer(mixer=latent()), layer(1, mixer=latent(q_lora_rank=24)))
EXPERTS = decoder(layer(1), layer(feed_forward=Mixture(n_experts=8, top_k=2, d_ff=48, d_ff_shared=32)))
ALL = {"dense": DENSE, "window": WINDOW, "chunk": CHUNK, "latent": LATENT, "experts": EXPERTS}


def test_routed_copies_are_stored_whole_and_used_in_part():
    parts = [Part("moe", 10, linear("up", 3, 5, "experts_routed", copies=8, used=2))]
    assert folds.parameters(parts) == 10 * 8 * 15
    assert folds.parameters(parts, active=True) == 10 * 2 * 15
    assert folds.flops(parts, Pass(new=7)) == 10 * 2 * (2 * 15) * 7


def test_a_shared_tensor_is_stored_once_and_multiplied_at_every_use():
    block = linear("q", 4, 4, "attention").shared("block")
    parts = [Part("layers[0]", 6, block), Part("layers[2]", 3, block)]
    assert folds.parameters(parts) == 16
    assert folds.flops(parts, Pass(new=1)) == 9 * 2 * 16


def test_buffers_and_lookups_are_counted_or_left_out_as_asked():
    parts = [
        Part("", 1, Bill.of(Tensor("t", (10,), "embedding", "embedding", access="rows"))),
        Part("", 2, Bill.of(Tensor("c", (3,), "router", "router", counts="buffer"))),
    ]
    assert folds.parameters(parts) == 16
    assert folds.parameters(parts, buffers=False) == 10
    assert folds.parameters(parts, lookups=False) == 6


@pytest.mark.parametrize(
    ("domain", "units"), [("new", 4), ("emitted", 2), ("cached", 4 + 3), ("pass", 1), ("pairs", 2 + 3 + 4 + 4)]
)
def test_the_units_of_every_domain(domain, units):
    """Three positions kept by a window of 4 out of a past of 1; four new ones, two emitted."""
    product = Product("p", 5, domain, "attention", rule=Window(4))
    run = Pass(past=3 if domain == "cached" else 1, new=4, emitted=2)
    assert folds.flops([Part("", 1, Bill.of(product))], run) == 2 * 5 * units


def test_a_state_has_a_format_of_its_own():
    entries = Bill.of(CacheEntry("k", 2, 8), CacheEntry("state", 4, 4, rule=Window(1), format="fp32"))
    sizes = []
    folds.cache_total([Part("", 3, entries)], [10], lambda entry, n: sizes.append((entry.format, n)) or 0)
    assert sizes == [(None, 10), ("fp32", 1)]


@pytest.mark.parametrize("arch", ALL.values(), ids=ALL)
@given(past=st.integers(0, 30), steps=st.integers(1, 12), mla=st.sampled_from(["expanded", "absorbed"]))
def test_decoding_is_the_sum_of_its_steps(arch, past, steps, mla):
    whole = folds.flops(arch.parts(), Pass.decode(past, steps, mla=mla))
    assert whole == sum(folds.flops(arch.parts(), Pass.decode(past + i, mla=mla)) for i in range(steps))


@pytest.mark.parametrize("arch", ALL.values(), ids=ALL)
@given(chunks=st.lists(st.integers(1, 12), min_size=1, max_size=5))
def test_a_prefill_is_the_sum_of_its_chunks(arch, chunks):
    """Core FLOPs add up; the head is charged where logits are emitted, so only the last chunk emits."""
    total, past = 0, 0
    for i, new in enumerate(chunks):
        total += folds.flops(arch.parts(), Pass(past=past, new=new, emitted=int(i == len(chunks) - 1)))
        past += new
    assert total == folds.flops(arch.parts(), Pass.prefill(sum(chunks)))


@given(chunks=st.lists(st.integers(1, 12), min_size=2, max_size=5))
def test_a_latent_re_expanded_in_every_pass_is_charged_for_every_pass(chunks):
    """Its core adds up as well; the up-projection of all cached positions is once more work in every further chunk."""
    parts = LATENT.parts()
    total, past, again = 0, 0, 0
    rank, width = 32, 4 * (16 + 12)
    for new in chunks:
        total += folds.flops(parts, Pass(past=past, new=new, emitted=0, mla="reexpanded"))
        again += 3 * 2 * rank * width * past
        past += new
    assert total == folds.flops(parts, Pass(new=past, emitted=0, mla="expanded")) + again


def test_square_is_not_additive_over_chunks():
    def square(past, new):
        return folds.flops(DENSE.parts(), Pass(past=past, new=new, emitted=0, attention="square"))

    assert square(0, 8) > square(0, 4) + square(4, 4)


@pytest.mark.parametrize("arch", ALL.values(), ids=ALL)
@given(past=st.integers(0, 40), new=st.integers(1, 20), batch=st.integers(1, 5))
def test_parts_sum_to_the_whole(arch, past, new, batch):
    run = Pass(past=past, new=new, emitted=1)
    whole = folds.flops(arch.parts(), run, batch=batch)
    assert sum(folds.flops(arch.parts(), run, batch=batch, by="component").values()) == whole
    assert sum(folds.flops(arch.parts(), run, batch=batch, by="product").values()) == whole
    assert whole == batch * folds.flops(arch.parts(), run)
    for by in ("role", "component"):
        assert sum(parameters(arch, by=by).values()) == parameters(arch)


@pytest.mark.parametrize("arch", ALL.values(), ids=ALL)
@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_a_ragged_batch_is_the_sum_of_its_sequences(arch, lengths):
    assert cache_bytes(arch, lengths) == sum(cache_bytes(arch, n) for n in lengths)


def test_full_layers_cache_elements_times_resident_tokens():
    """B * sum of lengths * sum over layers of H_kv (d_k + d_v), the source chapter's payload."""
    assert cache_bytes(DENSE, [7, 30, 1], kv="bf16") == 2 * (7 + 30 + 1) * (2 * 2 * (16 + 16))


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 50))
def test_kv_heads_change_bytes_but_no_score_flops(kv_heads, context):
    made = decoder(layer(mixer=DenseAttention(n_heads=8, n_kv_heads=kv_heads, head_dim=16)))
    core = flops(made, past=context, new=1, by="component")["attention_core"]
    assert core == 2 * 4 * 8 * 16 * (context + 1)
    assert cache_bytes(made, context) * 8 == kv_heads * cache_bytes(
        decoder(layer(mixer=DenseAttention(n_heads=8, n_kv_heads=8, head_dim=16))), context
    )


def test_tied_matrices_are_stored_once_and_multiplied():
    tied = dataclasses.replace(DENSE, output=dataclasses.replace(DENSE.output, tied=True))
    assert parameters(DENSE) - parameters(tied) == 96 * 64
    assert flops(tied, new=3) == flops(DENSE, new=3)
    assert parameters(DENSE) - parameters(DENSE, lookups=False) == 96 * 64
    assert parameters(tied) == parameters(tied, lookups=False)


def test_packed_documents_and_prefixes_change_only_the_core():
    parts = DENSE.parts()
    alone = Pass(new=12, emitted=1)
    packed = Pass(new=12, emitted=1, documents=(5, 7))
    prefix = Pass(new=12, emitted=1, prefix=4)
    core = 2 * 2 * 2 * 8 * 16
    assert folds.flops(parts, alone) - folds.flops(parts, packed) == core * (78 - 15 - 28)
    assert folds.flops(parts, prefix) - folds.flops(parts, alone) == core * 4 * 3 // 2


@pytest.mark.parametrize("arch", [*ALL.values()], ids=[*ALL])
def test_a_bill_of_symbols_and_one_of_columns_say_what_one_of_numbers_says(arch):
    past, new, emitted = word("past"), word("new"), word("emitted")
    recorded = folds.flops(arch.parts(), Pass(past=past, new=new, emitted=emitted))
    columns = folds.flops(arch.parts(), Pass(past=np.array([9.0, 0.0]), new=np.array([3.0, 17.0]), emitted=np.ones(2)))
    p, n = sympy.symbols("p n", positive=True, integer=True)
    symbols = folds.flops(arch.parts(), Pass(past=p, new=n, emitted=1))
    for row, (a, b) in enumerate([(9, 3), (0, 17)]):
        exact = folds.flops(arch.parts(), Pass(past=a, new=b, emitted=1))
        assert evaluate(recorded, {"past": a, "new": b, "emitted": 1}) == exact
        assert columns[row] == exact
        assert symbols.subs({p: a, n: b}) == exact


def test_decode_expands_to_tp_and_t_squared():
    p, t = sympy.symbols("P T", positive=True, integer=True)
    core = folds.flops(DENSE.parts(), Pass.decode(p, t), by="component")["attention_core"]
    assert sympy.expand(core - 2 * (4 * 8 * 16 * t * p + 2 * 8 * 16 * t * (t + 1))) == 0
