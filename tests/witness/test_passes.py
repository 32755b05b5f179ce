"""Masks, caches and counts of single passes, on toys whose figures are worked out here."""

import numpy as np
import pytest

import planner
from planner import folds, rules
from planner.bill import Pass
from planner.components.embedding import Embedding, Output
from planner.components.mixture import Mixture
from planner.components.position import Alibi, Dynamic, LongRope, Rope
from planner.errors import UsageError
from planner.witness import Meter, Witness, logits, random_weights
from tests.witness.builders import attention, decoder, feed_forward, latent, layer, tokens

RULES = [
    rules.Causal(),
    rules.Window(4),
    rules.Window(1),
    rules.Chunk(5),
    rules.Prefix(6),
    rules.Packed((3, 5, 20)),
    rules.Packed((7, 21), rules.Window(3)),
    rules.Packed((7, 21), rules.Chunk(4)),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("past", "new"), [(0, 1), (0, 13), (6, 9), (8, 1), (20, 4)])
def test_what_a_rule_sees_is_what_it_counts(rule, past, new):
    queries, keys = np.arange(past, past + new)[:, None], np.arange(past + new)[None]
    assert rule.sees(queries, keys).sum() == rule.pairs(past, new)


@pytest.mark.parametrize(("block", "stride"), [(4, 2), (4, 4), (3, 1)])
def test_complete_blocks_are_seen_as_they_are_counted(block, stride):
    rule = rules.Strided(block, stride)
    for past, new in [(0, 3), (0, 11), (5, 6), (9, 1)]:
        queries = np.arange(past, past + new)[:, None]
        entries = np.arange(rule.kept(past + new))[None]
        assert rule.sees(queries, entries).sum() == rule.pairs(past, new)


def run(model, **fields):
    return Witness(model, random_weights(model), **fields)


def test_a_ring_keeps_its_bytes():
    witness = run(decoder(layer(attention(window=5))))
    cache = witness.cache()
    witness.forward(tokens(3), cache)
    assert cache.nbytes == 2 * 2 * 3 * 2 * 8 * 4  # layers, keys and values, positions, heads, width, float32
    sizes = set()
    for token in tokens(12):
        witness.forward([token], cache)
        sizes.add(cache.nbytes)
    assert max(sizes) == 2 * 2 * 5 * 2 * 8 * 4 == cache.nbytes
    (entry, *_) = cache.stores.values()
    assert len(entry.rows) == 5
    assert len(entry.at_hand) == 5  # four held and the new one


def test_cache_formats_have_their_own_bytes():
    model = decoder(layer(latent()))
    witness = run(model)
    for kv, size in (("fp32", 4), ("fp16", 2)):
        cache = witness.cache(kv)
        witness.forward(tokens(7), cache)
        assert cache.nbytes == 2 * 7 * (10 + 4) * size == planner.cache_bytes(model, 7, kv=kv)
    with pytest.raises(UsageError, match="the witness keeps a cache in fp64, fp32, fp16, not in fp8"):
        witness.cache("fp8")


def test_refused_drafts_are_forgotten():
    witness = run(decoder(layer(attention()), layer(latent())))
    cache = witness.cache()
    text = tokens(9)
    witness.forward(text[:6], cache)
    before = cache.nbytes
    witness.forward([1, 2, 3], cache)
    cache.rewind(6)
    assert cache.nbytes == before
    np.testing.assert_allclose(witness.forward(text[6:], cache), witness.forward(text)[6:], atol=1e-5)


def test_a_full_ring_cannot_be_rewound():
    witness = run(decoder(layer(attention(window=4))))
    cache = witness.cache()
    witness.forward(tokens(6), cache)
    with pytest.raises(UsageError, match=r"layers.0.mixer.k keeps no copy of what position 5 saw"):
        cache.rewind(5)


def test_a_pass_reads_each_weight_once_whatever_the_batch():
    model = decoder(layer(attention()), output=Output(tied=False))
    witness, meter = run(model), Meter()
    for seed in range(3):
        witness.forward(tokens(5, seed), meter=meter)
    rows = {int(token) for seed in range(3) for token in tokens(5, seed)}
    table = 61 * 16 * 4
    assert meter.weight_bytes == planner.weight_bytes(model) - table + len(rows) * 16 * 4


def test_only_the_chosen_experts_are_read():
    model = decoder(layer(attention(), Mixture(n_experts=8, top_k=2, d_ff=6), count=1))
    witness, meter = run(model), Meter()
    witness.forward([5], meter=meter)
    assert sum(name.startswith("layers.0.feed_forward.experts.up") for name in meter.weights) == 2


def test_cache_bytes_that_a_step_reads_and_writes():
    model = decoder(layer(attention(window=4)), layer(attention()))
    witness = run(model)
    cache, meter = witness.cache(), Meter()
    witness.forward(tokens(9), cache)
    witness.forward([3], cache, meter=meter)
    position = 2 * 8 * 4
    assert meter.cache_written == {"k": 4 * position, "v": 4 * position}
    assert meter.cache_read["k"] == 2 * (4 + 10) * position


@pytest.mark.parametrize("kind", ["prefix", "documents", "plain"])
def test_pairs_of_a_pass(kind):
    """Packed documents have the sum of n (n + 1) / 2, a prefix of m positions m (m - 1) / 2 more than n (n + 1) / 2."""
    model = decoder(layer(attention(), count=1))
    witness, meter = run(model), Meter()
    options = {"prefix": {"prefix": 5}, "documents": {"documents": (4, 8)}, "plain": {}}[kind]
    witness.forward(tokens(12), meter=meter, **options)
    pairs = {"prefix": 78 + 10, "documents": 10 + 36, "plain": 78}[kind]
    assert meter.causal["layers[0].mixer.scores"] == pairs * 4 * 8
    assert meter.square["layers[0].mixer.scores"] == 144 * 4 * 8
    step = Pass(past=0, new=12, emitted=12, **options)
    assert meter.flops() == folds.flops(model.parts(), step, by="product")


def test_padding_on_either_side_of_a_batch():
    model = decoder(layer(attention()), embedding=Embedding(learned_positions=20))
    weights = random_weights(model)
    text = tokens(6)
    alone = logits(model, weights, [text])[0]
    padded = np.stack([np.concatenate([[0, 0], text]), np.concatenate([text, [0, 0]])])
    mask = [[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 0, 0]]
    both = logits(model, weights, padded, attention_mask=mask)
    np.testing.assert_allclose(both[0, 2:], alone, atol=1e-5)
    np.testing.assert_allclose(both[1, :6], alone, atol=1e-5)
    unmasked = logits(model, weights, padded)
    assert np.abs(unmasked[0, 2:] - alone).max() > 1e-2


def test_decoding_behind_left_padding():
    model = decoder(layer(attention(window=3)))
    witness = run(model)
    text = tokens(8)
    cache = witness.cache()
    steps = [witness.forward([0, 0, *text[:3]], cache, documents=(2, 3))[2:]]
    steps += [witness.forward([token], cache, documents=(2, 4 + i)) for i, token in enumerate(text[3:])]
    np.testing.assert_allclose(np.concatenate(steps), witness.forward(text), atol=1e-5)


def test_expanded_heads_are_not_in_a_latent_cache():
    witness = run(decoder(layer(latent())))
    cache = witness.cache()
    witness.forward(tokens(3), cache)
    with pytest.raises(UsageError, match="expanded needs the past heads, and the cache holds the latent"):
        witness.forward([1], cache, mla="expanded")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda w: w.forward([]), "a sequence is a list of at least one token id"),
        (lambda w: w.forward([61]), "token ids go from 0 to 60, not to 61"),
        (lambda w: w.forward([1, 2, 3], documents=(1, 1)), r"documents = \(1, 1\) are fewer positions than 0 past"),
        (lambda w: w.forward([1, 2, 3], offset=2, reach=4), "reach = 4 ends before the pass, which goes on to 5"),
        (lambda w: w.forward([1], prefix=1, documents=(1,)), "either a bidirectional prefix or packed documents"),
    ],
)
def test_a_pass_that_cannot_be_is_refused(call, message):
    with pytest.raises(UsageError, match=message):
        call(run(decoder(layer(attention()))))


@pytest.mark.parametrize(
    "scaling",
    [
        Dynamic(factor=2.0, original_positions=6),
        LongRope(factor=4.0, original_positions=6, short_factors=(1.0,) * 4, long_factors=(3.0, 4.0, 5.0, 6.0)),
    ],
    ids=["dynamic", "longrope"],
)
def test_frequencies_are_set_once_for_the_stated_reach(scaling):
    """Without it each pass sets them for what has been read, as transformers does, and old keys stay as they were."""
    witness = run(decoder(layer(attention(position=Rope(base=1e2, scaling=scaling)))), dtype=np.float64)
    text = tokens(9)

    def in_two_passes(**options):
        cache = witness.cache()
        return np.concatenate([witness.forward(part, cache, **options) for part in (text[:5], text[5:])])

    whole = witness.forward(text, reach=9)
    np.testing.assert_allclose(in_two_passes(reach=9), whole, atol=1e-12)
    np.testing.assert_array_equal(witness.forward(text), whole)
    assert np.abs(in_two_passes() - whole).max() > 1e-3
    packed = witness.forward(text, documents=(5, 4), reach=9)
    np.testing.assert_allclose(packed[5:], witness.forward(text[5:], reach=9), atol=1e-12)


def test_a_prefix_is_read_in_one_pass():
    witness = run(decoder(layer(attention())))
    cache = witness.cache()
    witness.forward(tokens(3), cache, prefix=3)
    with pytest.raises(UsageError, match="prefix = 5 is cut at 3; a prefix is read in one pass"):
        witness.forward(tokens(3), cache, prefix=5)


@pytest.mark.parametrize(
    "mixer",
    [
        attention(sinks=True, soft_cap=5.0),
        attention(window=3, output_gate=True, kv_map="interleaved"),
        attention(n_kv_heads=1, position=Alibi()),
        latent(q_lora_rank=7),
    ],
    ids=["sinks", "window", "alibi", "latent"],
)
@pytest.mark.parametrize("block", [1, 4, 64])
def test_an_online_softmax_gives_the_same(mixer, block):
    witness, meter, plain = run(decoder(layer(mixer)), dtype=np.float64), Meter(), Meter()
    by_blocks = witness.forward(tokens(11), block=block, meter=meter)
    np.testing.assert_allclose(by_blocks, witness.forward(tokens(11), meter=plain), atol=1e-12)
    assert meter.causal == plain.causal
    assert meter.square == plain.square


def test_weights_are_only_cast_where_they_are_floats():
    model = decoder(layer(attention(), feed_forward(activation="gelu")))
    assert logits(model, random_weights(model), [tokens(4)], dtype=np.float64).dtype == np.float64
