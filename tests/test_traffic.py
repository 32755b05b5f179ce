"""Bytes and FLOPs of a rank in a pass: against the NumPy decoder, which counts what it touches, and by hand."""

import math

import numpy as np
import pytest

import planner
from planner.arithmetic import evaluate, word
from planner.ladder import rank_terms
from planner.parallel import ranks
from planner.plan import make_plan
from planner.traffic import Batch, distinct_experts, work
from planner.witness import Meter, Witness, random_weights
from planner.witness.scaling import scaled_down


def one(past, sequences=1, **fields):
    members = ((sequences, past),)
    return Batch(members=members, mixer_members=members, **fields)


def works(plan, batch, mla="absorbed", stage=0):
    return work(plan, ranks(plan.model, plan.layout)[stage], batch, mla)


def total(found, figure="bytes", component=None):
    return sum(getattr(w, figure) for w in found if component in (None, w.component))


def h100(model, **keywords):
    return make_plan(model, accelerator="h100-sxm", **keywords)


WITNESSED = (
    "llama-3.1-8b gemma-3-27b mixtral-8x7b deepseek-v3 gpt-oss-120b qwen3-next-80b-a3b falcon-h1-7b gemma-3n-e2b "
    "zamba2-2.7b mamba2-130m opt-125m jetmoe-8b"
).split()


@pytest.mark.parametrize("name", WITNESSED)
def test_a_step_moves_what_the_witness_touches(name):
    """Windows, latents, states, caches of other layers, shared blocks, experts: the same rule for all of them."""
    model = scaled_down(planner.load(name)).architecture
    witness, ids = Witness(model, random_weights(model)), np.arange(21) % model.vocab_size
    cache, meter = witness.cache(), Meter()
    witness.forward(ids[:20], cache)
    witness.forward(ids[20:], cache, meter=meter)
    touched = meter.weight_bytes + sum(meter.cache_read.values()) + sum(meter.cache_written.values())
    if model.output.tied:  # the row that is looked up stands in the table that goes through anyway
        width = model.d_model if model.embedding.width is None else model.embedding.width
        touched -= 4 * width
    found = works(h100(model, weights="fp32", kv="fp32"), one(20))
    assert total(found, "least_bytes") == touched
    assert total(found) >= touched


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "deepseek-v3", "mixtral-8x7b", "falcon-h1-7b"])
@pytest.mark.parametrize(("past", "new"), [(0, 300), (5000, 1), (2000, 64)])
def test_flops_are_those_of_the_decoder(name, past, new):
    plan = h100(name)
    mla = "expanded" if past == 0 else "absorbed"
    found = total(works(plan, one(past, new=new, sequences=3), mla), "flops")
    assert found == planner.flops(plan.model, past=past, new=new, batch=3, mla=mla)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b", "deepseek-v3.2", "mixtral-8x7b", "llama-4-scout"])
def test_steps_in_a_row_are_the_sum_of_single_steps(name):
    plan = h100(name, weights="bf16")
    start, steps = 1000, 300  # across the window of Gemma 3
    single = [works(plan, one(start + i, sequences=2)) for i in range(steps)]
    row = works(plan, one(start, sequences=2, passes=steps))
    for i, product in enumerate(row):
        for figure in ("flops", "bytes", "least_bytes"):
            assert getattr(product, figure) == pytest.approx(
                math.fsum(getattr(found[i], figure) for found in single), rel=1e-12
            ), (product.part, product.product, figure)


def test_chunks_in_a_row_have_the_flops_of_one_pass_and_read_the_weights_each_time():
    plan = h100("llama-3.1-8b")
    whole, chunked = (works(plan, one(0, new=new, passes=n, emitted=0)) for new, n in ((4096, 1), (512, 8)))
    assert total(chunked, "flops") == total(whole, "flops")
    head = 128256 * 4096
    weights = 2 * (planner.parameters(plan.model, lookups=False) - head)  # without logits the head is not touched
    for found, n in ((whole, 1), (chunked, 8)):
        looked_up, kv = 2 * 4096 * 4096, 131072 * (4096 + sum(512 * (i + 1) for i in range(8)) if n == 8 else 2 * 4096)
        assert total(found) == n * weights + looked_up + kv


def test_the_embedding_is_looked_up_and_a_tied_one_is_multiplied_by():
    untied, tied = works(h100("llama-3.1-8b"), one(0)), works(h100("gemma-3-27b"), one(0))
    assert total(w for w in untied if w.part == "embedding") == 2 * 4096
    assert total(tied, component="lm_head") == 2 * 262208 * 5376
    stages = h100("gemma-3-27b", pp=2)
    assert total(w for w in works(stages, one(0)) if w.part == "embedding") == 2 * 5376
    assert total(works(stages, one(0), stage=1), component="lm_head") == 2 * 262208 * 5376


def test_grouped_heads_cut_the_bytes_of_attention_and_not_its_flops():
    mha, gqa = (works(h100("llama-2-70b").changed(model=m), one(4000)) for m in _heads(64, 8))
    assert total(mha, component="attention_core") == 8 * total(gqa, component="attention_core")
    assert total(mha, "flops", "attention_core") == total(gqa, "flops", "attention_core")


def _heads(*counts):
    model = planner.load("llama-2-70b")
    return (planner.edit(model, {"layers[*].mixer.n_kv_heads": count}) for count in counts)


def test_sparse_attention_reads_what_it_selects_and_its_indexer_everything():
    found = works(h100("deepseek-v3.2"), one(99_999))
    by = {w.product: w for w in found if w.part == "layers[1].mixer"}
    layers, written = 58, 1
    assert by["scores"].bytes == layers * 2 * (512 + 64) * (2048 + written)
    assert by["indexer.scores"].bytes == layers * 2 * 128 * (100_000 + written)


def test_expected_experts_are_those_of_a_draw():
    random = np.random.default_rng(1)
    drawn = [len({e for _ in range(20) for e in random.permutation(128)[:8]}) for _ in range(2000)]
    assert distinct_experts(128, 8, 20) == pytest.approx(np.mean(drawn), rel=5e-3)
    assert distinct_experts(128, 8, 1) == 8
    tree = distinct_experts(128, 8, word("batch"))
    assert evaluate(tree, {"batch": 20}) == distinct_experts(128, 8, 20)


def test_a_batch_reads_the_experts_that_it_expects_and_at_least_those_of_a_token():
    plan = h100("mixtral-8x7b")
    expert = 3 * 4096 * 14336 * 2 * 32
    few, many = works(plan, one(100)), works(plan, one(100, sequences=64))
    assert total(few, component="experts_routed") == 2 * expert
    assert total(many, component="experts_routed") == pytest.approx(8 * (1 - 0.75**64) * expert)
    assert total(many, "least_bytes", "experts_routed") == 2 * expert


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama-3.1-70b", {"tp": 8}),
        ("qwen3-235b-a22b", {"tp": 8, "ep": 8}),
        ("deepseek-v3", {"tp": 8}),
        ("mixtral-8x7b", {"tp": 2, "pp": 2}),
        ("gemma-3-27b", {"tp": 4, "pp": 3}),
    ],
)
@pytest.mark.parametrize("figure", ["flops", "least_bytes"])
def test_ranks_together_do_at_least_the_work_of_one(name, layout, figure):
    plan, alone = h100(name, **layout), h100(name)
    together = sum(plan.layout.tp * total(works(plan, one(3000), stage=s), figure) for s in range(plan.layout.pp))
    assert together >= 0.999_999 * total(works(alone, one(3000)), figure)


def test_sequences_of_a_mixer_are_those_of_its_group():
    plan = make_plan("deepseek-v3", accelerator="h200", tp=8, attention_dp=8, ep=8)
    batch = Batch(members=((64, 1000),), mixer_members=((8, 1000),))
    found = works(plan, batch)
    latent = sum(w.bytes for w in found if w.product == "scores")
    assert latent == 61 * 8 * (1001 + 1) * 576 * 2
    router = [w.flops for w in found if w.product == "router"]
    assert sum(router) == 58 * 8 * 2 * 7168 * 256  # of the group's own tokens
    experts = [w.flops for w in found if w.component == "experts_routed"]
    assert sum(experts) == 58 * 64 * 2 * 3 * 7168 * 2048 * 8 // 8  # its experts serve those of all
    gathered = works(make_plan("deepseek-v3", accelerator="h200", tp=8, attention_dp=8), batch)
    assert sum(w.flops for w in gathered if w.product == "router") == 58 * 64 * 2 * 7168 * 256


def test_decode_context_parallelism_shares_the_positions_out():
    whole, shared = (make_plan("deepseek-v3", accelerator="h200", tp=8, dcp=n) for n in (1, 4))
    latent = [total(w for w in works(plan, one(9999)) if w.product == "scores") for plan in (whole, shared)]
    assert latent[0] == 4 * latent[1]


def test_a_window_is_read_whole_by_each_decode_context_rank_as_it_is_kept():
    """The scores of gpt-oss: one key head of 64 on each of 16 ranks, in 18 layers a window of 128, in 18 all keys."""
    plan = make_plan("gpt-oss-120b", accelerator="h100-sxm", tp=16, dcp=2, context=10_000)
    keys = {w.part: w.bytes for w in works(plan, one(9999)) if w.product == "scores"}
    window, full = 18 * (128 + 1) * 64 * 2, 18 * (10_000 + 1) * 64 * 2 // 2
    assert sorted(keys.values()) == [window, full]
    assert rank_terms(plan, *ranks(plan.model, plan.layout))["kv cache"] == 2 * 18 * (128 + 5000) * 64 * 2


@pytest.mark.parametrize(
    ("device", "weights", "format"),
    [("h100-sxm", "fp8", "fp8"), ("a100-80gb-sxm", "fp8", "bf16"), ("h100-sxm", "awq-g128", "bf16"),
     ("h100-sxm", "q4_k_m", "bf16"), ("b200", "nvfp4", "nvfp4")],
)  # fmt: skip
def test_a_product_is_computed_as_its_weight_is_stored_and_attention_as_the_activations(device, weights, format):
    found = works(make_plan("llama-3.1-8b", accelerator=device, weights=weights), one(100))
    formats = {w.product: w.format for w in found}
    assert formats["q"] == formats["down"] == format
    assert formats["scores"] == "bf16"


def test_a_mixed_format_is_read_as_it_is_stored():
    found = works(h100("llama-3.1-8b", weights="fp8-block128"), one(0))
    by = {w.product: w.bytes for w in found if w.part.endswith("feed_forward")}
    assert by["down"] == 32 * (4096 * 14336 + 4 * (4096 // 128) * (14336 // 128))
    assert total(found, component="lm_head") == 2 * 128256 * 4096
