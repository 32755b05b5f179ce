"""Four decoders whose parts are not one to a layer: the lists of a bill still add up, on numbers, columns and symbols.

The figures are worked out by hand in the comments; d is d_model = 6 throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from planner import bill, folds
from planner.arithmetic import evaluate, word
from planner.bill import Bill, Pass
from planner.components.dense_attention import DenseAttention
from planner.components.embedding import Output
from planner.components.feed_forward import FeedForward
from planner.components.linear_attention import GatedDeltaNet
from planner.components.norm import LayerNorm, RMSNorm
from planner.components.shared_block import SharedBlock
from planner.components.side_by_side import SideBySide
from planner.components.sparse_attention import NativeSparseAttention, SparseLatentAttention
from planner.components.state_space import Mamba2
from planner.contract import Architecture, Layer

NORM = RMSNorm(eps=1e-6)
FF = FeedForward(d_ff=10)


def decoder(*layers: Layer, **fields: Any) -> Architecture:
    return Architecture(name="toy", vocab_size=11, d_model=6, layers=layers, output=Output(tied=True), **fields)


def product(model: Architecture, ending: str, run: Pass) -> list[Any]:
    """FLOPs of the products of that name, one a part."""
    by = folds.flops(model.parts(), run, by="product")
    return [flops for name, flops in by.items() if name.endswith(ending)]


def elements(model: Architecture, length: Any) -> Any:
    """Cached elements of one sequence."""
    return folds.cache_total(model.parts(), [length], lambda entry, positions: entry.elements * positions)


def mamba(**fields: Any) -> Mamba2:
    return Mamba2(**{"n_heads": 2, "head_dim": 3, "d_state": 4, "conv_kernel": 4, "norm": NORM, **fields})


def test_a_recurrence_reads_and_writes_each_element_of_its_state() -> None:
    state = 2 * 3 * 4
    delta = GatedDeltaNet(n_key_heads=1, n_value_heads=2, key_head_dim=3, value_head_dim=4, conv_kernel=4, norm=NORM)
    macs = {p.id: p.macs for p in delta.bill(6).products if p.component == "recurrence"}
    assert macs == {"state_recall": state, "state_update": state, "state_readout": state}
    macs = {p.id: p.macs for p in mamba().bill(6).products if p.component == "recurrence"}
    assert macs == {"state_update": state, "state_readout": state}


# --- Zamba2: one block in many layers -----------------------------------------------------------------------------


def with_block(block: str, **fields: Any) -> SharedBlock:
    attention = DenseAttention(n_heads=2, n_kv_heads=2, head_dim=6)
    return SharedBlock(block=block, attention=attention, feed_forward=FF, norm=NORM, adapter_rank=2, **fields)


def zamba(uses: int) -> Architecture:
    plain = Layer(count=3, mixer=mamba(), norm=NORM, label="plain")
    hybrid = Layer(count=uses, mixer=mamba(), norm=NORM, label="hybrid", extras=(with_block("A"),))
    return decoder(plain, hybrid)


def test_a_shared_block_is_stored_once_and_run_at_each_use() -> None:
    once, five = zamba(1), zamba(5)
    # A use adds: its mixer and norm as in a plain layer, its projection d*d = 36, its adapter 2*6 + 2*2*10 = 52.
    layer = folds.parameters(decoder(Layer(count=1, mixer=mamba(), norm=NORM)).parts()) - 66
    assert folds.parameters(five.parts()) - folds.parameters(once.parts()) == 4 * (layer + 36 + 52)
    # The block itself: norm 12, q k v 3*12*12, o 12*6, norm 6, feed-forward 3*6*10.
    block = 12 + 432 + 72 + 6 + 180
    assert folds.parameters(once.parts()) == 66 + 4 * layer + block + 36 + 52
    # Scores: 2 heads x 6 wide, 2 x 12 FLOPs a pair, at each of five uses.
    assert product(five, "scores", Pass.prefill(7)) == [5 * 2 * 12 * 28]
    assert product(five, "extras[0].mixer.q", Pass.prefill(7)) == [5 * 2 * 12 * 12 * 7]
    # Each use keeps its own keys and values: 2 x 12 a position; each of 8 layers its state: (6+8)*4 + 2*3*4.
    assert elements(five, 7) == 5 * 24 * 7 + 8 * (56 + 24)


def test_two_blocks_alternate() -> None:
    layers = [Layer(count=2, mixer=mamba(), norm=NORM, label=b, extras=(with_block(b),)) for b in "AB"]
    both = decoder(*layers, pattern=("A", "B"))
    one = decoder(Layer(count=4, mixer=mamba(), norm=NORM, extras=(with_block("A"),)))
    assert folds.parameters(both.parts()) - folds.parameters(one.parts()) == 702
    assert folds.flops(both.parts(), Pass.prefill(9)) == folds.flops(one.parts(), Pass.prefill(9))


def test_a_product_of_a_shared_block_reads_shared_tensors_and_its_own_cache() -> None:
    lists = with_block("A").bill(6)
    tensors, entries = {t.id for t in lists.tensors}, {e.id for e in lists.cache}
    reads = {read for p in lists.products for read in p.reads}
    assert reads <= tensors | entries
    assert "/A/mixer.q.weight" in reads
    assert "mixer.k" in reads


# --- Gemma 3n: a cache that other layers read ---------------------------------------------------------------------


def test_a_cache_entry_stands_only_with_its_owner() -> None:
    own = {"n_heads": 2, "n_kv_heads": 1, "head_dim": 3}
    owner = Layer(count=2, mixer=DenseAttention(**own), norm=NORM, label="owner")
    reader = Layer(count=3, mixer=DenseAttention(**own, kv_source="owner"), norm=NORM, label="reader")
    model = decoder(owner, reader)
    assert elements(model, 10) == 2 * 2 * 3 * 10  # two owners, key and value 3 wide
    assert product(model, "mixer.k", Pass.prefill(10)) == [2 * 2 * 6 * 3 * 10]  # the owners' alone
    assert product(model, "scores", Pass.prefill(10)) == [n * 2 * 6 * 55 for n in (2, 3)]  # both kinds'
    reads = {read for p in reader.mixer.bill(6).products for read in p.reads}
    assert {"/owner.mixer.k", "/owner.mixer.v"} <= reads
    assert folds.parameters(model.parts()) == 66 + 5 * (6 + 2 * 6 * 6) + 2 * 2 * 6 * 3


# --- DSA and NSA: read less than they keep ------------------------------------------------------------------------


def dsa(**fields: Any) -> SparseLatentAttention:
    usual = {"n_heads": 2, "kv_lora_rank": 5, "q_lora_rank": 4, "nope_head_dim": 3, "rope_head_dim": 2, "v_head_dim": 3}
    index = {"index_heads": 3, "index_head_dim": 2, "index_top_k": 4, "index_norm": LayerNorm(eps=1e-6)}
    return SparseLatentAttention(latent_norm=NORM, **{**usual, **index, **fields})


def test_sparse_attention_reads_the_best_and_keeps_all() -> None:
    model = decoder(Layer(count=1, mixer=dsa(), norm=NORM))
    assert elements(model, 10) == (5 + 2 + 2) * 10  # latent, rotary key, indexer key
    # Of 10 queries the first 4 read 1, 2, 3, 4 positions and the others 4 each: 34 pairs of 2 heads x 5 wide.
    # The indexer scores all 55 pairs with 3 heads x 2 wide.
    assert product(model, "scores", Pass.prefill(10)) == [2 * 10 * 34, 2 * 6 * 55]
    # On the latent, a step at 100 reads 4 of 101 positions, 2 heads x 7 wide; the indexer all of them.
    assert product(model, "scores", Pass.decode(100)) == [2 * 14 * 4, 2 * 6 * 101]
    # A dense kernel with a mask saves nothing.
    assert product(model, "scores", Pass.prefill(10, attention="square")) == [2 * 10 * 100, 2 * 6 * 100]
    # Indexer: q 4 x 6, k 6 x 2, norm 2 + 2, weights 6 x 3.
    plain = decoder(Layer(count=1, mixer=dsa(index_heads=1, index_head_dim=1), norm=NORM))
    assert folds.parameters(model.parts()) - folds.parameters(plain.parts()) == (24 + 12 + 4 + 18) - (4 + 6 + 2 + 6)


def nsa(**fields: Any) -> NativeSparseAttention:
    heads = {"n_heads": 4, "n_kv_heads": 2, "head_dim": 3}
    blocks = {"block": 4, "stride": 2, "selected_block": 4, "n_selected": 2, "window": 3}
    return NativeSparseAttention(**{**heads, **blocks, **fields})


def test_native_sparse_attention_has_three_branches() -> None:
    model = decoder(Layer(count=1, mixer=nsa(), norm=NORM))
    # Scores of 4 heads x 3 wide. Compressed: queries 4..10 see 1 1 2 2 3 3 4 entries; selected: 1..8, then one block of
    # 4 and 1 or 2 positions of their own; window: 1 2 then 3 each.
    pairs = [1 + 1 + 2 + 2 + 3 + 3 + 4, 36 + 5 + 6, 3 + 24]
    assert product(model, "scores", Pass.prefill(10)) == [2 * 12 * n for n in pairs]
    # Keys and values of 2 heads x 3: 4 compressed entries, all 10 selected, 3 in the window, 4 inputs to compress.
    assert elements(model, 10) == 2 * 6 * (4 + 10 + 3 + 4)
    # One compression a new entry: 2 heads x (4 x 3) x 3, for 4 entries; a step at 11 completes one, a step at 10 none.
    assert product(model, "compress_k.map", Pass.prefill(10)) == [2 * 72 * 4]
    assert [product(model, "compress_k.map", Pass.decode(n)) for n in (10, 11)] == [[0], [2 * 72]]
    # q 6*12, o 12*6, three branches of k and v 6*6, gate 6*12, two compressions 12*3 + 4*3.
    assert folds.parameters(model.parts()) == 66 + 6 + 72 + 72 + 3 * 72 + 72 + 2 * 48


# --- Falcon-H1: two mixers side by side ---------------------------------------------------------------------------


def test_the_lists_of_two_mixers_add() -> None:
    attention, state = DenseAttention(n_heads=2, n_kv_heads=1, head_dim=3), mamba()
    apart = [decoder(Layer(count=4, mixer=mixer, feed_forward=FF, norm=NORM)) for mixer in (attention, state)]
    both = decoder(Layer(count=4, mixer=SideBySide(mixers=(attention, state)), feed_forward=FF, norm=NORM))
    rest = decoder(Layer(count=4, feed_forward=FF, norm=NORM))
    run = Pass(past=5, new=6, emitted=1)

    def sums_up(figure: Callable[[Architecture], Any], norms: Any) -> None:
        assert figure(both) == sum(map(figure, apart)) - figure(rest) - norms

    sums_up(lambda m: folds.parameters(m.parts()), 4 * 6)  # both alone have a mixer norm, together there is one
    sums_up(lambda m: folds.flops(m.parts(), run), 0)
    sums_up(lambda m: elements(m, 11), 0)
    assert elements(both, 11) == 4 * (2 * 3 * 11 + 14 * 4 + 24)


def test_each_of_two_mixers_has_ids_of_its_own_and_reads_its_own_entries() -> None:
    attention = DenseAttention(n_heads=2, n_kv_heads=1, head_dim=3)
    reader = DenseAttention(n_heads=2, n_kv_heads=1, head_dim=3, kv_source="owner")
    lists = SideBySide(mixers=(attention, attention, reader)).bill(6)
    tensors, entries = [t.id for t in lists.tensors], [e.id for e in lists.cache]
    assert len(tensors + entries) == len({*tensors, *entries})
    reads = {read for p in lists.products for read in p.reads}
    assert reads - {*tensors, *entries} == {"/owner.mixer.k", "/owner.mixer.v"}
    shared = SideBySide(mixers=(attention, attention)).bill(6).shared("A").under("x")
    assert all(t.id.startswith("/A/mixers[") for t in shared.tensors)
    assert all(e.id.startswith("x.mixers[") for e in shared.cache)


# --- The same on columns and symbols ------------------------------------------------------------------------------


def every_toy(n: Callable[[str, int], Any]) -> dict[str, Bill]:
    """The bills of all four, their fields from `n(name, number)`."""
    attention = DenseAttention(n_heads=n("h", 2), n_kv_heads=n("h", 2), head_dim=n("w", 6))
    adapters = {"adapter_rank": n("r", 2), "adapts_attention": True}
    block = SharedBlock(block="A", attention=attention, feed_forward=FF, norm=NORM, **adapters)
    state = mamba(n_heads=n("h", 2), d_state=n("s", 4))
    return {
        "shared": block.bill(n("d", 6)),
        "state": state.bill(n("d", 6)),
        "sparse": dsa(n_heads=n("h", 2), index_heads=n("i", 3), index_top_k=n("k", 4)).bill(n("d", 6)),
        "native": nsa(n_heads=n("h", 4), window=n("k", 3), stride=n("t", 2)).bill(n("d", 6)),
        "both": SideBySide(mixers=(attention, state)).bill(n("d", 6)),
    }


def figures(lists: Bill, past: Any, new: Any) -> tuple[Any, Any, Any]:
    parts = [bill.Part("x", 3, lists)]
    cached = folds.cache_total(parts, [past], lambda entry, positions: entry.elements * positions)
    return folds.parameters(parts), folds.flops(parts, Pass(past=past, new=new, emitted=new)), cached


@pytest.mark.parametrize("toy", ["shared", "state", "sparse", "native", "both"])
def test_symbols_and_columns_give_the_same_figures(toy: str) -> None:
    values: dict[str, float] = {"past": 9, "new": 4}

    def named(name: str, number: int) -> Any:
        values[f"{name}{number}"] = number
        return word(f"{name}{number}")

    expected = figures(every_toy(lambda _, number: number)[toy], 9, 4)
    written = figures(every_toy(named)[toy], word("past"), word("new"))
    assert tuple(evaluate(tree, values) for tree in written) == expected
    pair = np.ones(2)
    columns = figures(every_toy(lambda _, number: number * pair)[toy], 9 * pair, 4 * pair)
    assert [list(column) for column in columns] == [[figure, figure] for figure in expected]
