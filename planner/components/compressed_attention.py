"""Attention on a window and on compressed entries of what lies before it (DeepSeek-V4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.arithmetic import exact_div
from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.arrays import Array, np, softmax
from planner.components.attention_core import best
from planner.components.base import Mixer, Run
from planner.components.blocks import completed_blocks, new_entries
from planner.components.norm import Norm
from planner.components.position import Position, turned
from planner.rules import Causal, Strided, StridedTopK, Window
from planner.spec import Count, spec


@spec
class CompressedAttention(Mixer):
    """Window, compressed sparse and heavily compressed attention (DeepSeek-AI 2026, DeepSeek-V4, section 2.3).

    All query heads share one vector of `head_dim` for each entry, which is key and value at once. Besides the last
    `window` positions a query sees one entry for each complete block of `compress` positions, a gated mean of its
    inputs (eq. 20 to 23); with `overlap` the block before takes part with features of its own (eq. 9 to 12). An
    indexer as in DSA, on compressed keys of its own, picks the best `index_top_k` entries (eq. 13 to 17). The output
    is turned back, since values are turned as keys, and goes through `o_groups` low-rank projections. Features of the
    last block wait in the cache until it is complete, those for the entry of the block after it for two blocks.
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
        if self.index_head_dim is not None:
            yield (
                self.rope_head_dim <= self.index_head_dim,
                "rope_head_dim = {rope_head_dim} exceeds index_head_dim = {index_head_dim}, of which it turns a part",
            )
        for part in ("overlap", "index_heads"):
            yield self.compress is not None or not getattr(self, part), f"{part} needs compress, the width of a block"

    def bill(self, d_model: Any) -> Bill:
        heads, width, rank = self.n_heads, self.head_dim, self.o_groups * self.o_lora_rank
        return Bill.of(
            linear("q_a", d_model, self.q_lora_rank, "attention"),
            self.norm.bill(self.q_lora_rank, "q_a_norm"),
            linear("q_b", self.q_lora_rank, heads * width, "attention", shard="heads"),
            Operation("q_norm", heads * width, "new"),
            linear("kv", d_model, width, "attention"),
            self.norm.bill(width, "kv_norm"),
            Tensor("sinks", (heads,), "attention", "attention", shard="heads"),
            CacheEntry("kv", 1, width, Window(self.window)),
            self._core("window", "kv", Window(self.window)),
            self._compressed(d_model),
            Operation("rope", (2 * heads + 1) * self.rope_head_dim, "new") if self.position is not None else None,
            self._grouped("o_a", heads * width, rank),
            linear("o_b", rank, d_model, "attention", shard="row"),
        )

    def _core(self, name: str, read: str, rule: Causal) -> Bill:
        """Scores and values of one branch, on one cache entry."""
        macs = self.n_heads * self.head_dim
        products = (
            Product(f"{name}.{id}", macs, "pairs", "attention_core", (read,), rule, shard="heads")
            for id in ("scores", "values")
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
        return Bill.of(
            self._compressor(d_model, self.head_dim).under("compressor"),
            self._core("compressed", "compressor.entries", self._read),
            self._indexer(d_model).under("indexer") if self.index_top_k is not None else None,
        )

    @property
    def _every(self) -> Strided:
        """All entries."""
        return Strided(self.compress, self.compress)

    @property
    def _read(self) -> Strided:
        """The entries that a query reads."""
        k = self.index_top_k
        return self._every if k is None else StridedTopK(self.compress, self.compress, k)

    def _compressor(self, d_model: Any, width: Any) -> Bill:
        """Features and gates of each input, a vector for each place in the block, the norm on the entry."""
        block: Any = self.compress
        series = (2 if self.overlap else 1) * width
        return Bill.of(
            linear("kv", d_model, series, "attention"),
            linear("gate", d_model, series, "attention"),
            Tensor("place_bias", (block, series), "biases", "attention"),
            self.norm.bill(width, "kv_norm"),
            Operation("compress", series, "new"),
            CacheEntry("entries", 1, width, self._every),
            CacheEntry("waiting", 1, 2 * width, Window(block), format="model"),
            CacheEntry("waiting_for_next", 1, 2 * width, Window(2 * block), format="model") if self.overlap else None,
        )

    def _indexer(self, d_model: Any) -> Bill:
        heads: Any = self.index_heads
        width: Any = self.index_head_dim
        return Bill.of(
            self._compressor(d_model, width),
            linear("q", self.q_lora_rank, heads * width, "attention"),
            linear("head_weights", d_model, heads, "attention"),
            Product("scores", heads * width, "pairs", "attention_core", ("entries",), self._every),
            Operation("head_sum", heads, "pairs", self._every),
            Operation("top_k", 1, "pairs", self._every),
        )

    def forward(self, x: Array, run: Run) -> Array:
        latent = self.norm.forward(run.linear("q_a", x), run, "q_a_norm")  # [S, D] -> [S, q_lora_rank]
        q = run.linear("q_b", latent).reshape(len(x), self.n_heads, -1)  # [S, H, d]
        q = self._turned(self.norm.normalised(q), run.positions, run)  # [S, H, d]
        kv = self.norm.forward(run.linear("kv", x), run, "kv_norm")[:, None]  # [S, D] -> [S, 1, d]
        kv = run.extend("kv", self._turned(kv, run.positions, run))  # [T, 1, d]
        read = {"window": (kv, run.mask(Window(self.window)))}  # [T, 1, d], [S, T]
        if self.compress is not None:
            entries = self._entries(x, run.under("compressor"))  # [E, 1, d]
            mask = run.mask(self._read)  # [S, E]
            if self.index_top_k is not None:
                mask = self._chosen(x, latent, mask, run.under("indexer"))
            read["compressed"] = (entries, mask)
        out = self._turned(self._attended(q, read, run), -run.positions, run)  # [S, H, d]
        groups = out.reshape(len(x), self.o_groups, -1)  # [S, o_groups, H / o_groups * d]
        weight = run.weight("o_a.weight").reshape(self.o_groups, self.o_lora_rank, -1)  # a matrix for each group
        out = run.product("o_a", "sgi,gri->sgr", groups, weight)  # [S, o_groups, rank]
        return run.linear("o_b", out.reshape(len(x), -1))  # [S, o_groups * rank] -> [S, D]

    def _attended(self, q: Array, read: dict[str, tuple[Array, Array]], run: Run) -> Array:
        """One softmax over window, entries and sink, all keys at once: [S, H, d] -> [S, H, d]."""
        sinks = np.broadcast_to(run.weight("sinks")[:, None, None], (self.n_heads, len(q), 1))  # [H, S, 1]
        scores, ends = [sinks], [1]
        for name, (keys, mask) in read.items():
            products = run.under(name).product("scores", "shd,td->hst", q, keys[:, 0], mask=mask)  # [H, S, T]
            scores.append(np.where(mask, self.head_dim**-0.5 * products, np.asarray(-np.inf, q.dtype)))
            ends.append(ends[-1] + len(keys))
        weights = np.split(softmax(np.concatenate(scores, axis=-1)), ends, axis=-1)[1:]  # [H, S, T] each
        out = np.zeros_like(q)
        for part, (name, (values, mask)) in zip(weights, read.items(), strict=False):
            out = out + run.under(name).product("values", "hst,td->shd", part, values[:, 0], mask=mask)  # [S, H, d]
        return out

    def _entries(self, x: Array, run: Run) -> Array:
        """All entries of complete blocks: [S, D] -> [E, 1, width]."""
        block: Any = self.compress
        places = run.weight("place_bias")[(run.step.past + np.arange(run.step.new)) % block]  # [S, series]
        features, gates = run.linear("kv", x), run.linear("gate", x) + places  # [S, series] each
        series = np.stack([features, gates], axis=1)  # [S, 2, series]
        blocks = [self._waited("waiting", series[..., -self._width(series) :], 0, run)]  # [new, block, 2, width]
        if self.overlap:
            before = self._waited("waiting_for_next", series[..., : self._width(series)], block, run)
            before[new_entries(self._every, run) == 0, :, 1] = -np.inf  # there is no block before the first
            blocks = [before, *blocks]
        mixed = np.concatenate(blocks, axis=1)  # [new, slots, 2, width]
        weights = softmax(mixed[:, :, 1].swapaxes(1, 2)).swapaxes(1, 2)  # [new, slots, width], a sum of 1 over slots
        rows = self.norm.forward((weights * mixed[:, :, 0]).sum(axis=1), run, "kv_norm")[:, None]  # [new, 1, width]
        begins = run.key_positions(self._every)[new_entries(self._every, run)]  # [new]
        return run.extend("entries", self._turned(rows, begins, run))

    def _width(self, series: Array) -> int:
        return series.shape[-1] // 2 if self.overlap else series.shape[-1]

    def _waited(self, id: str, series: Array, before: int, run: Run) -> Array:
        """Features and gates of the blocks that the pass completes, or of those `before`: -> [new, block, 2, width]."""
        at_hand = run.extend(id, series.reshape(len(series), 1, -1))  # [S, 2, width] -> [T, 1, 2 * width]
        blocks = completed_blocks(at_hand[:, 0], self._every, run, before=before)  # [new, block, 2 * width]
        return blocks.reshape(*blocks.shape[:2], 2, series.shape[-1])

    def _chosen(self, x: Array, latent: Array, mask: Array, run: Run) -> Array:
        """[S, E] the best entries of each query (eq. 13 to 17), ranked as in DSA."""
        heads: Any = self.index_heads
        k: Any = self.index_top_k
        q = run.linear("q", latent).reshape(len(x), heads, -1)  # [S, q_lora_rank] -> [S, H, d]
        keys = self._entries(x, run)[:, 0]  # [E, d]
        scores = run.product("scores", "shd,td->hst", self._turned(q, run.positions, run), keys, mask=mask)  # [H, S, E]
        weights = run.linear("head_weights", x).T[..., None]  # [S, D] -> [H, S, 1]
        return best((np.maximum(scores, 0) * weights).sum(axis=0), mask, k)

    def _turned(self, heads: Array, positions: Array, run: Run) -> Array:
        """Heads [S, H, d] of which the last `rope_head_dim` elements turn."""
        still, turning = np.split(heads, [heads.shape[-1] - self.rope_head_dim], axis=-1)
        return np.concatenate([still, turned(turning, self.position, positions, run.reach)], axis=-1)
