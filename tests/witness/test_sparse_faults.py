"""Faults planted in attention that reads a choice and in parallel streams; a check of `planner verify` names each."""

from dataclasses import replace

import numpy as np
import pytest

from planner import rules
from planner.components import attention_core, compressed_attention, sparse_attention
from planner.components.compressed_attention import CompressedAttention
from planner.components.sparse_attention import NativeSparseAttention, SparseLatentAttention
from planner.components.streams import HyperConnections
from planner.witness.run import PartRun
from tests.witness.builders import compressed, decoder, indexed, layer, native, streams
from tests.witness.planted import assert_caught, collector

DSA = decoder(layer(indexed()))
NSA = decoder(layer(native()))
V4 = decoder(layer(compressed()), streams=streams())

FAULTS, fault = collector()


@fault(DSA, "attention as the reference")
def index_heads_all_weigh_the_same(patch):
    right = PartRun.product

    def wrong(self, id, subscripts, a, b, *, mask=None):
        return right(self, id, subscripts, a, np.ones_like(b) if id == "head_sum" else b, mask=mask)

    patch.setattr(PartRun, "product", wrong)


@fault(DSA, "FLOPs of prefill", "attention as the reference")
def one_position_too_many_is_chosen(patch):
    patch.setattr(sparse_attention, "best", lambda scores, seen, k: attention_core.best(scores, seen, k + 1))


@fault(DSA, "decode token by token", "prefill in chunks")
def the_indexer_forgets_its_keys(patch):
    right = PartRun.extend

    def wrong(self, id, rows):
        at_hand = right(self, id, rows)
        at_hand[: len(at_hand) - len(rows)] *= id != "key"
        return at_hand

    patch.setattr(PartRun, "extend", wrong)


@fault(DSA, "attention as the reference")
def the_indexer_turns_the_wrong_pairs(patch):
    right = SparseLatentAttention._index_turned
    patch.setattr(
        SparseLatentAttention,
        "_index_turned",
        lambda self, heads, run: right(replace(self, index_interleaved=not self.index_interleaved), heads, run),
    )


@fault(NSA, "attention as the reference")
def selected_blocks_are_not_shared_by_their_group(patch):
    right = NativeSparseAttention._selected
    patch.setattr(NativeSparseAttention, "_selected", lambda self, weights, run: right(self, weights[:, :1], run))


@fault(NSA, "FLOPs of prefill", "attention as the reference")
def the_own_block_is_not_selected(patch):
    right = NativeSparseAttention._selected

    def wrong(self, weights, run):
        read = right(self, weights, run)
        queries = run.step.past + np.arange(run.step.new)
        other = queries[:, None] // self.selected_block != np.arange(read.shape[-1]) // self.selected_block
        return read & other

    patch.setattr(NativeSparseAttention, "_selected", wrong)


@fault(NSA, "future tokens change nothing", "decode token by token")
def entries_are_seen_before_they_are_complete(patch):
    patch.setattr(rules.Strided, "sees", lambda self, q, k: k * self.stride <= q)


@fault(V4, "decode token by token", "prefill in chunks")
def a_block_forgets_what_it_waited_for(patch):
    right = CompressedAttention._waited

    def wrong(self, id, series, before, run):
        blocks = right(self, id, series, before, run)
        return blocks if run.step.past == 0 else blocks * 0

    patch.setattr(CompressedAttention, "_waited", wrong)


@fault(V4, "attention as the reference")
def values_are_not_turned_back(patch):
    right = CompressedAttention._turned
    patch.setattr(
        CompressedAttention,
        "_turned",
        lambda self, heads, places, run: heads if (places < 0).any() else right(self, heads, places, run),
    )


@fault(V4, "attention as the reference")
def entries_have_no_block_before_them(patch):
    right = compressed_attention.new_entries
    patch.setattr(compressed_attention, "new_entries", lambda rule, run: right(rule, run) * 0)


@fault(V4, "streams as the reference")
def streams_are_mixed_the_wrong_way_round(patch):
    right = HyperConnections._weights

    def wrong(self, h, run):
        read, written, mixing = right(self, h, run)
        return read, written, mixing.swapaxes(1, 2)

    patch.setattr(HyperConnections, "_weights", wrong)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_the_named_check(name, monkeypatch):
    assert_caught(FAULTS[name], monkeypatch)
