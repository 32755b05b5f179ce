"""Attention on a window and on compressed entries of what lies before it (DeepSeek-V4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.arithmetic import exact_div
from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.base import Mixer
from planner.components.norm import Norm
from planner.components.position import Position
from planner.rules import Causal, Strided, StridedTopK, Window
from planner.spec import Count, spec


@spec
class CompressedAttention(Mixer):
    """Window, compressed sparse and heavily compressed attention (DeepSeek-AI 2026, DeepSeek-V4, section 2.3).

    All query heads share one vector of `head_dim` for each entry, which is key and value at once. Besides the last
    `window` positions a query sees one entry for each complete block of `compress` positions, a gated mean of its
    inputs (eq. 20 to 23); with `overlap` the block before takes part with features of its own (eq. 9 to 12). An
    indexer as in DSA, on compressed keys of its own, picks the best `index_top_k` entries (eq. 13 to 17). The output
    goes through `o_groups` low-rank projections. Inputs of the unfinished block wait in the cache; they are counted as
    a whole block.
    """

    kind: ClassVar[str] = "compressed_attention"
    n_heads: Count
    head_dim: Count
    q_lora_rank: Count
    o_groups: Count
    o_lora_rank: Count
    window: Count
    norm: Norm
    position: Position | None = None
    rope_head_dim: Count
    compress: Count | None = None
    overlap: bool = False
    index_heads: Count | None = None
    index_head_dim: Count | None = None
    index_top_k: Count | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.n_heads % self.o_groups == 0, "o_groups = {o_groups} does not divide n_heads = {n_heads}"
        yield self.rope_head_dim <= self.head_dim, "rope_head_dim = {rope_head_dim} exceeds head_dim = {head_dim}"
        index = [self.index_heads, self.index_head_dim, self.index_top_k]
        yield index.count(None) in (0, 3), "index_heads, index_head_dim and index_top_k stand together or not at all"
        for part in ("overlap", "index_heads"):
            yield self.compress is not None or not getattr(self, part), f"{part} needs compress, the width of a block"

    def bill(self, d_model: Any) -> Bill:
        heads, width, rank = self.n_heads, self.head_dim, self.o_groups * self.o_lora_rank
        return Bill.of(
            linear("q_a", d_model, self.q_lora_rank, "attention"),
            self.norm.bill(self.q_lora_rank, "q_a_norm"),
            linear("q_b", self.q_lora_rank, heads * width, "attention", shard="heads"),
            Operation("norm", heads * width, "new"),
            linear("kv", d_model, width, "attention"),
            self.norm.bill(width, "kv_norm"),
            Tensor("sinks", (heads,), "attention", "attention", shard="heads"),
            CacheEntry("kv", 1, width, Window(self.window)),
            self._core("window", "kv", Window(self.window)),
            self._compressed(d_model),
            Operation("rope", (2 * heads + 1) * self.rope_head_dim, "new") if self.position is not None else None,
            self._grouped("o_a", heads * width, rank),
            linear("o_b", rank, d_model, "attention"),
        )

    def _core(self, name: str, read: str, rule: Causal) -> Bill:
        """Scores and values of one branch, on one cache entry."""
        macs = self.n_heads * self.head_dim
        products = (
            Product(f"{name}.{id}", macs, "pairs", "attention_core", (read,), rule) for id in ("scores", "values")
        )
        return Bill.of(*products, Operation("softmax", self.n_heads, "pairs", rule, shard="heads"))

    def _grouped(self, id: str, n_in: Any, n_out: Any) -> Bill:
        """A block-diagonal matrix: each of o_groups reads its part of the input and gives its part of the output."""
        each_in = exact_div(n_in, self.o_groups)
        weight = Tensor(f"{id}.weight", (n_out, each_in), "attention", "attention", shard="heads")
        return Bill.of(weight, Product(id, n_out * each_in, "new", "attention", (weight.id,), shard="heads"))

    def _compressed(self, d_model: Any) -> Bill:
        if self.compress is None:
            return Bill()
        every, indexed = Strided(self.compress, self.compress), self.index_top_k is not None
        rule = StridedTopK(self.compress, self.compress, self.index_top_k) if indexed else every
        return Bill.of(
            self._compressor(d_model, self.head_dim).under("compressor"),
            self._core("compressed", "compressor.entries", rule),
            self._indexer(d_model, every).under("indexer") if indexed else None,
        )

    def _compressor(self, d_model: Any, width: Any) -> Bill:
        """Features and gates of each input, a vector for each place in the block, the norm on the entry."""
        block, series = self.compress, (2 if self.overlap else 1) * width
        waiting = Window(block)
        return Bill.of(
            linear("kv", d_model, series, "attention"),
            linear("gate", d_model, series, "attention"),
            Tensor("place_bias", (block, series), "biases", "attention"),
            self.norm.bill(width, "kv_norm"),
            Operation("compress", series, "new"),
            CacheEntry("entries", 1, width, Strided(block, block)),
            CacheEntry("waiting", 1, 2 * series, waiting, format="model"),
            CacheEntry("block_before", 1, 2 * width, waiting, format="model") if self.overlap else None,
        )

    def _indexer(self, d_model: Any, every: Causal) -> Bill:
        heads: Any = self.index_heads
        width: Any = self.index_head_dim
        return Bill.of(
            self._compressor(d_model, width),
            linear("q", self.q_lora_rank, heads * width, "attention"),
            linear("head_weights", d_model, heads, "attention"),
            Product("scores", heads * width, "pairs", "attention_core", ("entries",), every),
            Operation("head_sum", heads, "pairs", every),
            Operation("top_k", 1, "pairs", every),
        )
