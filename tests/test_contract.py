"""Layers and decoders: their rules, their norms, the order of layers, and where every part of the bill hangs."""

import dataclasses
import itertools

import pytest

import planner
from planner import folds
from planner.components.dense_attention import DenseAttention
from planner.components.embedding import Embedding, Output
from planner.components.feed_forward import FeedForward
from planner.components.norm import LayerNorm, RMSNorm
from planner.contract import Architecture, Layer, MultiToken
from planner.errors import ContractError

NORM = RMSNorm(eps=1e-6)
MIXER = DenseAttention(n_heads=4, n_kv_heads=2, head_dim=8)
FEED_FORWARD = FeedForward(d_ff=64)


def layer(**fields):
    return Layer(**{"count": 3, "mixer": MIXER, "feed_forward": FEED_FORWARD, "norm": NORM, **fields})


def decoder(*layers, **fields):
    return Architecture(**{"name": "toy", "vocab_size": 100, "d_model": 32, "layers": layers or (layer(),), **fields})


def counted(model, modules=("body",)):
    return folds.parameters(model.parts(), modules=modules)


@pytest.mark.parametrize(
    ("residual", "norms"),
    [
        ("pre", ("mixer_norm", "feed_forward_norm")),
        ("post", ("mixer_output_norm", "feed_forward_output_norm")),
        ("reordered", ("mixer_output_norm", "feed_forward_output_norm")),
        ("sandwich", ("mixer_norm", "mixer_output_norm", "feed_forward_norm", "feed_forward_output_norm")),
        ("normed", ("mixer_norm", "feed_forward_norm")),
        ("parallel", ("norm",)),
        ("parallel_two_norms", ("mixer_norm", "feed_forward_norm")),
    ],
)
def test_norms_of_each_residual_order(residual, norms):
    assert layer(residual=residual).norm_ids() == norms
    with_norms, without = decoder(layer(residual=residual)), decoder(layer(norm=RMSNorm(eps=1e-6, weight=False)))
    assert counted(with_norms) - counted(without) == 3 * 32 * len(norms)


def test_a_layer_may_have_one_branch_only():
    assert layer(feed_forward=None).norm_ids() == ("mixer_norm",)
    assert layer(mixer=None, residual="sandwich").norm_ids() == ("feed_forward_norm", "feed_forward_output_norm")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"mixer": None, "feed_forward": None}, "a layer has a mixer, a feed_forward or both"),
        ({"mixer": None, "residual": "parallel"}, "residual = 'parallel' takes a mixer and a feed_forward"),
        ({"feed_forward": None, "residual": "parallel"}, "residual = 'parallel' takes a mixer and a feed_forward"),
        ({"count": 0}, "count = 0 is not a whole number from 1 to 10^15"),
        ({"norm": None}, "norm = None is not a norm"),
        ({"mixer": FEED_FORWARD}, "mixer = a feedforward is not a mixer or left out"),
    ],
)
def test_rules_of_a_layer(fields, sentence):
    with pytest.raises(ContractError) as error:
        layer(**fields)
    assert str(error.value) == sentence


def test_layers_stand_in_the_order_in_which_they_are_listed():
    model = decoder(layer(count=2, label="dense"), layer(count=3, label="experts"))
    assert [kind.label for kind in model.order()] == ["dense"] * 2 + ["experts"] * 3
    assert model.n_layers == 5


def test_layers_stand_in_the_order_of_the_pattern():
    model = decoder(layer(count=5, label="a"), layer(count=2, label="b"), pattern=("a", "a", "b"))
    assert "".join(kind.label for kind in model.order()) == "aabaaba"
    same = decoder(layer(count=5, label="a"), layer(count=2, label="b"))
    assert counted(model) == counted(same)


def test_order_is_lazy():
    assert len(list(itertools.islice(decoder(layer(count=10_000)).order(), 3))) == 3


def test_every_entry_of_the_bill_has_a_place_of_its_own():
    model = planner.load("deepseek-v3")
    places = [
        f"{part.path}.{entry.id}"
        for part in model.parts()
        for entries in (part.bill.tensors, part.bill.cache)
        for entry in entries
    ]
    assert len(set(places)) == len(places)
    assert "layers[1].feed_forward.router.correction" in places


def test_everything_that_a_product_reads_is_there():
    for name in ("gemma-3-27b", "deepseek-v3", "opt-350m", "qwen3-30b-a3b"):
        parts = planner.load(name).parts()
        places = {f"{part.path}.{entry.id}" for part in parts for entry in (*part.bill.tensors, *part.bill.cache)}
        for part in parts:
            for product in part.bill.products:
                for read in product.reads:
                    assert (read[1:] if read.startswith("/") else f"{part.path}.{read}") in places


def test_both_ends():
    plain = decoder()
    assert counted(decoder(output=Output(tied=True))) == counted(plain) - 100 * 32
    assert counted(decoder(final_norm=LayerNorm(eps=1e-5))) == counted(plain) + 2 * 32
    positions = Embedding(learned_positions=50, position_offset=2)
    assert counted(decoder(embedding=positions)) == counted(plain) + 52 * 32
    narrow = decoder(embedding=Embedding(width=8))
    assert counted(narrow) == counted(plain) - 2 * 100 * (32 - 8) + 2 * 8 * 32


def test_multi_token_prediction_is_apart():
    plain, one = decoder(), layer(count=1)
    drafting = decoder(mtp=MultiToken(count=2, layer=one))
    assert counted(drafting) == counted(plain)
    module = counted(decoder(one)) - 2 * 100 * 32 + 2 * 32 * 32 + 3 * 32
    assert counted(drafting, modules=("mtp",)) == 2 * module
    tables = decoder(mtp=MultiToken(layer=one, own_tables=True))
    assert counted(tables, modules=("mtp",)) == module + 2 * 100 * 32
    head = decoder(mtp=MultiToken(layer=one, own_head=True))
    assert counted(head, modules=("mtp",)) == module + 100 * 32
    with pytest.raises(ContractError, match=r"^own_head says no more than own_tables; "):
        MultiToken(layer=one, own_tables=True, own_head=True)
    with pytest.raises(ContractError, match=r"^layer\.count is not 1; "):
        MultiToken(layer=layer())


def test_a_decoder_is_hashed_and_compared_by_value():
    assert decoder() == decoder()
    assert hash(decoder()) == hash(decoder())
    assert decoder() != dataclasses.replace(decoder(), vocab_size=101)
