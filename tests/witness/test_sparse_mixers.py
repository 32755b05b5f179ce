"""Attention that reads a choice: each forward against the equations of its paper.

`reference` and `reference_blocks` state them position by position in float64 and share nothing with the forwards:
DeepSeek-V3.2, eq. 1 and 2 (DSA); Yuan et al. 2025, eq. 5 to 12 (NSA); DeepSeek-V4, section 2.3 (compressed attention).
Beside that stand cases whose outcome is known without any of them.
"""

from itertools import combinations

import numpy as np
import pytest

import planner
from planner import rules
from planner.components import attention_core, blocks
from planner.components.mixture import Mixture
from planner.errors import ContractError, UsageError
from planner.witness import Witness, random_weights, reference, reference_blocks
from planner.witness.names import adopt
from planner.witness.places import stored
from planner.witness.reference_elements import linear, normed
from tests.witness.builders import (
    NORM,
    attention,
    compressed,
    decoder,
    indexed,
    latent,
    layer,
    native,
    tokens,
)

D = 16
PLAIN = dict.fromkeys(("index_heads", "index_head_dim", "index_top_k"))
MIXERS = {
    "DSA": indexed(),
    "DSA interleaved": indexed(index_interleaved=True, index_top_k=1),
    "DSA without positions": indexed(position=None),
    "NSA": native(),
    "NSA with long selected blocks": native(selected_block=6),
    "NSA without positions": native(position=None, v_head_dim=None),
    "NSA with blocks as long as a stride": native(block=2, selected_block=2, n_selected=4),
    "NSA with long blocks": native(block=9, stride=3, selected_block=3, n_selected=3),
    "NSA with its own block alone": native(n_selected=1),
    "V4 window": compressed(compress=None, overlap=False, **PLAIN),
    "V4 heavy": compressed(overlap=False, **PLAIN),
    "V4 all entries": compressed(**PLAIN),
    "V4 sparse": compressed(),
    "V4 sparse without overlap": compressed(overlap=False, compress=2),
}


def witness_of(*layers, **fields):
    return Witness(model := decoder(*layers, **fields), random_weights(model), np.float64)


def ready(mixer, length=23):
    """A decoder of one such layer, its run over some tokens, and the mixer's weights."""
    witness = witness_of(layer(mixer, count=1))
    run = witness.run(tokens(length), witness.cache()).layer(0, 0, None).part("mixer")
    return witness, run, lambda id: witness.weights.get(f"layers.0.mixer.{id}")


def inputs(length=23):
    return np.random.default_rng(3).standard_normal((length, D))


@pytest.mark.parametrize("mixer", MIXERS.values(), ids=MIXERS)
def test_a_forward_is_what_the_paper_says(mixer):
    _, run, weights = ready(mixer)
    x = inputs()
    expected = reference.output(mixer, x, weights, weights)
    expected = reference_blocks.output(mixer, x, weights) if expected is None else expected
    np.testing.assert_allclose(mixer.forward(x, run), expected, atol=1e-12)


@pytest.mark.parametrize("mixer", MIXERS.values(), ids=MIXERS)
@pytest.mark.parametrize("sizes", [[1] * 23, [5, 1, 1, 9, 7], [2, 21], [22, 1]], ids=str)
def test_passes_of_any_size_give_what_one_pass_gives(mixer, sizes):
    witness, *_ = ready(mixer)
    cache, parts, at = witness.cache(), [], 0
    for size in sizes:
        parts.append(witness.forward(tokens(23)[at : at + size], cache))
        at += size
        assert cache.nbytes == planner.cache_bytes(witness.model, at, kv="fp32") * 2  # it runs in float64
    np.testing.assert_allclose(np.concatenate(parts), witness.forward(tokens(23)), atol=1e-12)


@pytest.mark.parametrize("mixer", MIXERS.values(), ids=MIXERS)
def test_verify_passes(mixer):
    report = planner.verify(decoder(layer(mixer)))
    assert report.passed, report


# --- DSA ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [23, 100])
def test_dsa_that_chooses_all_is_plain_latent_attention(k):
    sparse, *_ = ready(indexed(index_top_k=k))
    weights = {name: array for name, array in sparse.weights.items() if "indexer" not in name}
    dense = Witness(decoder(layer(latent(q_lora_rank=7), count=1)), weights, np.float64)
    np.testing.assert_allclose(sparse.forward(tokens(23)), dense.forward(tokens(23)), atol=1e-13)


def test_dsa_reads_the_best_positions_of_brute_force():
    """Of all sets of 3 positions the one is chosen whose sum of scores is the largest."""
    mixer = indexed(index_top_k=3, position=None)
    _, run, weights = ready(mixer, 9)
    x = inputs(9)
    mixer.forward(x, run)
    chosen = run.notes["chosen positions"]
    keys = [linear(weights, "indexer.k", row) for row in x]
    keys = [normed(mixer.index_norm, key, *affine(weights, "indexer.k_norm")) for key in keys]
    for p, row in enumerate(x):
        inner = normed(NORM, linear(weights, "q_a", row), *affine(weights, "q_a_norm"))
        queries, gates = linear(weights, "indexer.q", inner).reshape(3, 6), linear(weights, "indexer.head_weights", row)
        score = [sum(g * max(q @ k, 0) for g, q in zip(gates, queries, strict=True)) for k in keys[: p + 1]]
        best = max(sum(score[j] for j in some) for some in combinations(range(p + 1), min(3, p + 1)))
        assert not chosen[p, p + 1 :].any()
        assert chosen[p].sum() == min(3, p + 1)
        assert sum(score[j] for j in np.flatnonzero(chosen[p])) == pytest.approx(best, abs=1e-12)


def affine(weights, id):
    return weights(f"{id}.weight"), weights(f"{id}.bias")


def test_equal_scores_go_to_the_earlier_position():
    scores, allowed = np.array([[1.0, 2.0, 2.0, 2.0, 9.0], [0.0, -0.0, 0.0, 0.0, 0.0]]), np.ones((2, 5), bool)
    allowed[0, 4] = False
    assert attention_core.best(scores, allowed, 2).tolist() == [[0, 1, 1, 0, 0], [1, 1, 0, 0, 0]]
    assert not attention_core.best(scores, allowed, 0).any()
    assert attention_core.best(scores, allowed, 7).tolist() == allowed.tolist()


def test_a_layer_without_an_indexer_reads_what_the_last_one_chose():
    own, other, x = indexed(), indexed(own_index=False), inputs()
    witness = witness_of(layer(own, count=1), layer(other, count=2))
    assert planner.verify(witness.model).passed
    run = witness.run(tokens(23), witness.cache())
    first, second = run.layer(0, 0, None).part("mixer"), run.layer(1, 1, None).part("mixer")
    own.forward(x, first)
    chosen = run.notes["chosen positions"]
    measured = other.forward(-x, second)  # its own input would choose otherwise
    assert run.notes["chosen positions"] is chosen
    weights = {name.removeprefix("layers.1.mixer."): array for name, array in witness.weights.items()}
    expected = reference._latent(other, -x, weights.get, [np.flatnonzero(row) for row in chosen])
    np.testing.assert_allclose(measured, expected, atol=1e-12)


def test_a_choice_that_no_layer_makes_is_refused():
    witness = witness_of(layer(indexed(own_index=False)))
    with pytest.raises(UsageError, match="own_index = false in layer 0, and no layer before it has an indexer"):
        witness.forward(tokens(3))


# --- NSA ----------------------------------------------------------------------------------------------------------


def test_nsa_whose_selection_and_window_reach_everything_is_plain_attention_three_times():
    """Blocks of one position, compressed by an identity: every branch sees all, and the gates add up to 1."""
    mixer = native(block=1, stride=1, selected_block=1, n_selected=30, window=30, v_head_dim=None, position=None)
    witness, run, weights = ready(mixer)
    own = witness.weights
    for branch in ("compressed", "selected"):
        for id in "kv":
            own[f"layers.0.mixer.{branch}.{id}.weight"] = own[f"layers.0.mixer.window.{id}.weight"]
    for id in "kv":
        own[f"layers.0.mixer.compress_{id}.weight"] = np.eye(6)
        own[f"layers.0.mixer.compress_{id}.places"] = np.zeros((1, 6))
    own["layers.0.mixer.gate.weight"] = np.zeros((12, D))  # sigmoid(0) of each branch, 3 / 2 in all
    x = inputs()
    plain = attention(head_dim=6, position=None)
    dense = {"q": weights("q.weight"), "o": weights("o.weight"), "k": weights("window.k.weight")}
    dense = {f"{id}.weight": array for id, array in {**dense, "v": weights("window.v.weight")}.items()}
    expected = 1.5 * reference.output(plain, x, dense.get, dense.get)
    np.testing.assert_allclose(mixer.forward(x, run), expected, atol=1e-12)


def test_a_block_is_ranked_by_the_strides_that_entries_share_with_it():
    """Yuan et al. 2025, eq. 9, with block 4, stride 2 and selected blocks of 6: (l'/d) j - m - n, written out."""
    mixer = native(selected_block=6)
    _, run, _ = ready(mixer)
    weights = np.zeros((2, 2, 23, 10))
    p = np.random.default_rng(1).random(10)
    weights[0, 0, 22], weights[1, 1, 22] = p, p[::-1]
    for group, entries in enumerate((p, p[::-1])):
        worth = [
            sum(entries[i] for m in range(3) for n in range(2) if 0 <= (i := 3 * (j + 1) - 1 - m - n) < 10)
            for j in range(3)
        ]
        best = int(np.argmax(worth))
        read = np.flatnonzero(mixer._selected(weights, run)[group, 0, 22])
        assert read.tolist() == [*range(6 * best, 6 * best + 6), *range(18, 23)]


def test_blocks_are_cut_from_what_a_pass_has_at_hand():
    witness, *_ = ready(native(block=6))
    cache = witness.cache()
    witness.forward(tokens(9), cache)
    run = witness.run(tokens(5), cache)
    assert blocks.new_entries(rules.Strided(6, 2), run).tolist() == [2, 3, 4]
    at_hand = np.arange(4, 14)  # of 9 past positions the last 5
    cut = blocks.completed_blocks(at_hand, rules.Strided(6, 2), run)
    assert cut.tolist() == [list(range(s, s + 6)) for s in (4, 6, 8)]


# --- DeepSeek-V4 --------------------------------------------------------------------------------------------------


def test_one_position_is_its_own_value():
    """Alone, a query reads its own entry with the share that the sink leaves, turned back to where it was."""
    mixer = compressed(compress=None, overlap=False, **PLAIN)
    witness, run, weights = ready(mixer)
    witness.weights["layers.0.mixer.sinks"][:] = -np.inf
    x = inputs(1)
    run = witness.run(tokens(1), witness.cache(), offset=5).layer(0, 0, None).part("mixer")
    entry = normed(NORM, linear(weights, "kv", x[0]), weights("kv_norm.weight"), None)  # all 4 heads give it
    low = weights("o_a.weight").reshape(2, 3, 16) @ np.tile(entry, 2)
    np.testing.assert_allclose(mixer.forward(x, run)[0], weights("o_b.weight") @ low.reshape(-1), atol=1e-12)


def test_entries_of_equal_gates_are_means():
    mixer = compressed(position=None, **PLAIN)
    witness, run, weights = ready(mixer)
    for id in ("gate.weight", "place_bias"):
        witness.weights[f"layers.0.mixer.compressor.{id}"][:] = 0
    x = inputs()
    entries = mixer._entries(x, run.under("compressor"))[:, 0]
    features = x @ weights("compressor.kv.weight").T
    first = normed(NORM, features[:3, 8:].mean(axis=0), weights("compressor.kv_norm.weight"), None)
    mean = (features[3:6, :8].sum(axis=0) + features[6:9, 8:].sum(axis=0)) / 6
    third = normed(NORM, mean, weights("compressor.kv_norm.weight"), None)
    assert len(entries) == 7
    np.testing.assert_allclose(entries[[0, 2]], [first, third], atol=1e-12)


def test_experts_by_a_table_of_tokens():
    experts = Mixture(n_experts=5, top_k=2, d_ff=6, scoring="sqrt_softplus", hash_rows=61)
    model = decoder(layer(compressed(), experts, count=1))
    weights = random_weights(model)
    table = weights["layers.0.feed_forward.router.experts_of_token"]
    assert table.shape == (61, 2)
    assert all(len({*row}) == 2 and {*row} <= {*range(5)} for row in table)
    witness = Witness(model, weights, np.float64)
    run = witness.run(np.array([7, 8]), witness.cache()).layer(0, 0, None).part("feed_forward")
    chosen, shares = experts._choice(np.log(np.expm1(np.array([[1.0, 4, 9, 16, 25]] * 2))), run)
    np.testing.assert_array_equal(chosen, table[[7, 8]])
    np.testing.assert_allclose(shares, (chosen + 1) / (chosen + 1).sum(axis=1, keepdims=True))


# The names in DeepSeek's own release, read off its inference code; `test_names` has those of another program.
NATIVE = {
    "embedding.tokens.weight": "embed.weight",
    "final_norm.weight": "norm.weight",
    "output.weight": "head.weight",
    "streams.collapse.weight": "hc_head_fn",
    "streams.base": "hc_head_base",
    "streams.scale": "hc_head_scale",
    ".mixer_norm.": ".attn_norm.",
    ".feed_forward_norm.": ".ffn_norm.",
    ".streams.branches[0].weights.weight": ".hc_attn_fn",
    ".streams.branches[0].": ".hc_attn_",
    ".streams.branches[1].weights.weight": ".hc_ffn_fn",
    ".streams.branches[1].": ".hc_ffn_",
    ".mixer.indexer.q.": ".attn.indexer.wq_b.",
    ".mixer.indexer.head_weights.": ".attn.indexer.weights_proj.",
    ".mixer.indexer.": ".attn.indexer.compressor.",
    ".mixer.sinks": ".attn.attn_sink",
    ".mixer.q_a_norm": ".attn.q_norm",
    ".mixer.kv_norm": ".attn.kv_norm",
    ".mixer.compressor.": ".attn.compressor.",
    ".mixer.": ".attn.w",
    "compressor.kv.": "compressor.wkv.",
    "compressor.gate.": "compressor.wgate.",
    "compressor.kv_norm.": "compressor.norm.",
    "place_bias": "ape",
    ".feed_forward.router.correction": ".ffn.gate.bias",
    ".feed_forward.router.experts_of_token": ".ffn.gate.tid2eid",
    ".feed_forward.router.": ".ffn.gate.",
    ".feed_forward.shared.gate.": ".ffn.shared_experts.w1.",
    ".feed_forward.shared.down.": ".ffn.shared_experts.w2.",
    ".feed_forward.shared.up.": ".ffn.shared_experts.w3.",
}


def test_a_release_of_deepseek_v4_finds_its_places():
    model = planner.witness.scaled_down(planner.load("deepseek-v4-flash")).architecture
    own, released = random_weights(model), {}
    for name, array in own.items():
        for ours, theirs in NATIVE.items():
            name = name.replace(ours, theirs)
        number = {"gate": 1, "down": 2, "up": 3}.get(name.rpartition(".")[0].rpartition(".")[2])
        if ".experts." in name:
            place = name.replace("feed_forward", "ffn").rpartition("experts.")[0]
            released |= {f"{place}experts.{e}.w{number}.weight": each for e, each in enumerate(array)}
        else:
            released[name] = array
    assert released.keys().isdisjoint(stored(model))
    adopted = adopt(model, released)
    assert adopted.keys() == own.keys()
    assert all((adopted[name] == own[name]).all() for name in own)


# --- what cannot be -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: indexed(index_head_dim=2), "rope_head_dim = 4 exceeds index_head_dim = 2"),
        (lambda: compressed(index_head_dim=2), "rope_head_dim = 4 exceeds index_head_dim = 2"),
        (lambda: native(stride=3), "stride = 3 does not divide block = 4"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(build, message):
    with pytest.raises(ContractError, match=message):
        build()


@pytest.mark.parametrize("mixer", [native(), compressed()], ids=["NSA", "V4"])
def test_packed_documents_are_refused(mixer):
    witness, *_ = ready(mixer)
    with pytest.raises(UsageError, match="packed documents are not defined for entries that span several positions"):
        witness.forward(tokens(8), documents=(5, 3))
