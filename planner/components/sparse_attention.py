"""Attention that reads less than it keeps: DeepSeek sparse attention (DSA) and native sparse attention (NSA).

Selection changes which products are done and which cache entries are read; the cache itself is kept whole, with what
the selection needs on top.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from planner.arithmetic import exact_div
from planner.bill import Bill, CacheEntry, Domain, Operation, Product, Tensor, linear
from planner.components.arrays import Array, np, sigmoid, softmax
from planner.components.attention_core import attend, best
from planner.components.base import Mixer, Run
from planner.components.blocks import completed_blocks, new_entries
from planner.components.latent_attention import LatentAttention
from planner.components.norm import Norm
from planner.components.position import Position, Rope, turned
from planner.errors import UsageError
from planner.rules import BlockTopK, Causal, Strided, TopK, Window
from planner.spec import Count, Scale, spec


@spec
class SparseLatentAttention(LatentAttention):
    """MLA behind a lightning indexer (DeepSeek-AI 2025, DeepSeek-V3.2, section 2.1, eq. 1 and 2).

    `index_heads` small query heads, made from the query's latent, score every earlier position against one key of
    `index_head_dim` elements; the scores' rectified sum, weighted per head, ranks the positions. The latent attention
    reads the best `index_top_k` of them. Indexer work is left dense: it grows with all pairs. A layer without
    `own_index` takes the choice of the last layer that has one (GLM-5's later versions).
    """

    kind: ClassVar[str] = "sparse_latent_attention"
    index_heads: Count
    index_head_dim: Count
    index_top_k: Count
    index_norm: Norm
    index_interleaved: bool = False
    own_index: bool = True

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield (
            self.q_lora_rank is not None,
            "q_lora_rank is left out, and the indexer's queries are made from that latent",
        )
        if isinstance(self.position, Rope):
            yield (
                self.rope_head_dim <= self.index_head_dim,
                "rope_head_dim = {rope_head_dim} exceeds index_head_dim = {index_head_dim}, of which it turns a part",
            )

    @property
    def rule(self) -> Causal:
        return TopK(self.index_top_k)

    def bill(self, d_model: Any) -> Bill:
        indexer = self._indexer(d_model).under("indexer") if self.own_index else None
        return Bill.of(LatentAttention.bill(self, d_model), indexer)

    def _indexer(self, d_model: Any) -> Bill:
        heads, width = self.index_heads, self.index_head_dim
        return Bill.of(
            linear("q", self.q_lora_rank, heads * width, "attention"),
            linear("k", d_model, width, "attention"),
            self.index_norm.bill(width, "k_norm"),
            linear("head_weights", d_model, heads, "attention"),
            Product("scores", heads * width, "pairs", "attention_core", ("key",)),
            CacheEntry("key", 1, width),
            Product("head_sum", heads, "pairs", "attention_core", ()),
            Operation("index_relu", heads, "pairs"),
            Operation("top_k", 1, "pairs"),
            Operation("rope", (heads + 1) * self.rope_head_dim, "new") if self.position is not None else None,
        )

    def _mask(self, x: Array, query_input: Array, run: Run) -> Array:
        if self.own_index:
            run.notes["chosen positions"] = self._chosen(x, query_input, run.under("indexer"))
        elif "chosen positions" not in run.notes:
            raise UsageError(f"own_index = false in layer {run.number}, and no layer before it has an indexer")
        return run.notes["chosen positions"]

    def _chosen(self, x: Array, query_input: Array, run: Run) -> Array:
        """[S, T] the best positions of each query (eq. 1 and 2), the earlier one of two that score the same.

        Engines also scale all scores alike and turn queries and keys by a Hadamard matrix, for the sake of low
        precision; neither changes the ranking.
        """
        q = run.linear("q", query_input).reshape(len(x), self.index_heads, -1)  # [S, q_lora_rank] -> [S, H, d]
        k = self.index_norm.forward(run.linear("k", x), run, "k_norm")[:, None]  # [S, D] -> [S, 1, d]
        keys = run.extend("key", self._index_turned(k, run))[:, 0]  # [T, d]
        seen = run.mask(self.rule)  # [S, T]
        scores = run.product("scores", "shd,td->hst", self._index_turned(q, run), keys, mask=seen)  # [H, S, T]
        weights = run.linear("head_weights", x)  # [S, D] -> [S, H]
        total = run.product("head_sum", "hst,sh->st", np.maximum(scores, 0), weights, mask=seen)  # [S, T]
        return best(total, seen, self.index_top_k)

    def _index_turned(self, heads: Array, run: Run) -> Array:
        """Heads [S, H, d] of which the first `rope_head_dim` elements turn, in pairs of the indexer's own kind."""
        position = self.position
        if isinstance(position, Rope):
            position = dataclasses.replace(position, width=self.rope_head_dim, interleaved=self.index_interleaved)
        return turned(heads, position, run.positions, run.reach)


@spec
class NativeSparseAttention(Mixer):
    """Native sparse attention (Yuan et al. 2025, sections 3.2 and 3.3) on grouped query heads.

    Three branches, each with keys and values of its own (section 3.3.3), gated by sigmoids of the input (eq. 5):
    compressed, one entry for each complete block of `block` positions, a block every `stride` (eq. 7); selected,
    `n_selected` blocks of `selected_block` positions (eq. 8 to 12), ranked by the compressed scores at no further
    product; and a window of the last `window`. Where the paper leaves things open, this is done: the compression is a
    matrix [block * head_dim, head_dim] for keys and one for values, shared by the heads, with a learned vector for
    each place in the block; a rotary embedding turns a compressed key as the first position of its block; one of the
    selected blocks is always the query's own, which is not complete and so has no rank.
    """

    kind: ClassVar[str] = "native_sparse_attention"
    n_heads: Count
    n_kv_heads: Count
    head_dim: Count
    v_head_dim: Count | None = None
    block: Count
    stride: Count
    selected_block: Count
    n_selected: Count
    window: Count
    position: Position | None = None
    scale: Scale | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.n_heads % self.n_kv_heads == 0, "n_kv_heads = {n_kv_heads} does not divide n_heads = {n_heads}"
        for name in ("block", "selected_block"):
            yield getattr(self, name) % self.stride == 0, f"stride = {{stride}} does not divide {name} = {{{name}}}"

    def bill(self, d_model: Any) -> Bill:
        heads, d_v = self.n_heads, self.head_dim if self.v_head_dim is None else self.v_head_dim
        branches = {"compressed": self._entries, "selected": self._blocks, "window": Window(self.window)}
        covered = exact_div(self.block, self.stride)  # strides that an entry stands for
        return Bill.of(
            linear("q", d_model, heads * self.head_dim, "attention", shard="heads"),
            Operation("rope", heads * self.head_dim, "new", shard="heads") if isinstance(self.position, Rope) else None,
            *(self._branch(rule, d_model, d_v).under(name) for name, rule in branches.items()),
            self._compression(d_v),
            Operation("block_scores", heads * covered, "pairs", self._entries, shard="heads"),
            Operation("top_k", self.n_kv_heads, "pairs", Strided(self.selected_block, self.selected_block)),
            linear("gate", d_model, len(branches) * heads, "attention", shard="heads"),
            Operation("gate", len(branches) * heads * d_v, "new"),
            linear("o", heads * d_v, d_model, "attention", shard="row"),
        )

    @property
    def _entries(self) -> Strided:
        return Strided(self.block, self.stride)

    @property
    def _blocks(self) -> BlockTopK:
        return BlockTopK(self.selected_block, self.n_selected)

    def _branch(self, rule: Causal, d_model: Any, d_v: Any) -> Bill:
        heads, kv_heads, d_k = self.n_heads, self.n_kv_heads, self.head_dim
        turned_at: Domain = "entries" if isinstance(rule, Strided) else "new"
        rope = Operation("rope", kv_heads * d_k, turned_at, rule, shard="kv_heads")
        return Bill.of(
            linear("k", d_model, kv_heads * d_k, "attention", shard="kv_heads"),
            linear("v", d_model, kv_heads * d_v, "attention", shard="kv_heads"),
            CacheEntry("k", kv_heads, d_k, rule, shard="kv_heads"),
            CacheEntry("v", kv_heads, d_v, rule, shard="kv_heads"),
            Product("scores", heads * d_k, "pairs", "attention_core", ("k",), rule, shard="heads"),
            Product("values", heads * d_v, "pairs", "attention_core", ("v",), rule, shard="heads"),
            Operation("softmax", heads, "pairs", rule, shard="heads"),
            rope if isinstance(self.position, Rope) else None,
        )

    def _compression(self, d_v: Any) -> Bill:
        rule, pending = self._entries, Window(self.block)

        def one(name: str, width: Any) -> Bill:
            weight = Tensor("weight", (width, self.block * width), "attention", "attention")
            macs = self.n_kv_heads * self.block * width * width
            reads = ("weight", "places", "pending")
            return Bill.of(
                weight,
                Tensor("places", (self.block, width), "attention", "attention"),
                Product("map", macs, "entries", "attention", reads, rule, shard="kv_heads"),
                CacheEntry("pending", self.n_kv_heads, width, pending, shard="kv_heads"),
            ).under(f"compress_{name}")

        return Bill.of(one("k", self.head_dim), one("v", d_v))

    def forward(self, x: Array, run: Run) -> Array:
        heads = run.linear("q", x).reshape(len(x), self.n_heads, -1)  # [S, D] -> [S, H, d_k]
        q = turned(heads, self.position, run.positions, run.reach)  # [S, H, d_k]
        q = q.reshape(len(x), self.n_kv_heads, -1, self.head_dim)  # [S, G, R, d_k], neighbours read the same key head
        compressed, weights = self._compressed(q, x, run)  # [S, G, R, d_v], [G, R, S, E]
        selected = self._attended(q, x, self._selected(weights, run), run.under("selected"))  # [S, G, R, d_v]
        window = self._attended(q, x, run.mask(Window(self.window)), run.under("window"))  # [S, G, R, d_v]
        gates = sigmoid(run.linear("gate", x)).reshape(len(x), 3, self.n_heads, 1)  # [S, D] -> [S, 3, H, 1]
        branches = np.stack([compressed, selected, window], axis=1).reshape(len(x), 3, self.n_heads, -1)
        out = (gates * branches).sum(axis=1)  # [S, 3, H, d_v] -> [S, H, d_v]
        return run.linear("o", out.reshape(len(x), -1))  # [S, H * d_v] -> [S, D]

    def _attended(self, q: Array, x: Array, mask: Array, run: Run) -> Array:
        """Plain attention of one branch: [S, G, R, d_k] -> [S, G, R, d_v]."""
        k, v = self._keys_and_values(x, run)  # [S, G, d_k], [S, G, d_v]
        k = turned(k, self.position, run.positions, run.reach)  # [S, G, d_k]
        k, v = run.extend("k", k), run.extend("v", v)  # [T, G, d_k], [T, G, d_v]
        return attend(q, k, v, run, mask=mask, scale=self._score_scale)

    def _keys_and_values(self, x: Array, run: Run) -> tuple[Array, Array]:
        k, v = (run.linear(id, x).reshape(len(x), self.n_kv_heads, -1) for id in "kv")  # [S, D] -> [S, G, d]
        return k, v

    def _compressed(self, q: Array, x: Array, run: Run) -> tuple[Array, Array]:
        """Attention on the compressed entries, and its weights, for which it takes all entries at once."""
        branch, rule = run.under("compressed"), self._entries
        k, v = self._keys_and_values(x, branch)  # [S, G, d_k], [S, G, d_v]
        k, v = self._mapped(k, run.under("compress_k")), self._mapped(v, run.under("compress_v"))  # [new, G, d_k], …
        begins = run.key_positions(rule)[new_entries(rule, run)]  # [new]
        k = turned(k, self.position, begins, run.reach)  # [new, G, d_k]
        k, v = branch.extend("k", k), branch.extend("v", v)  # [E, G, d_k], [E, G, d_v]
        mask = run.mask(rule)  # [S, E]
        scores = self._score_scale * branch.product("scores", "sgrd,tgd->grst", q, k, mask=mask)  # [G, R, S, E]
        weights = softmax(np.where(mask, scores, np.asarray(-np.inf, scores.dtype)))  # [G, R, S, E]
        return branch.product("values", "grst,tgd->sgrd", weights, v, mask=mask), weights

    def _mapped(self, heads: Array, run: Run) -> Array:
        """The entries of the blocks that the pass completes (eq. 7): [S, G, d] -> [new, G, d]."""
        blocks = completed_blocks(run.extend("pending", heads), self._entries, run)  # [new, block, G, d]
        placed = (blocks + run.weight("places")[:, None]).swapaxes(1, 2)  # [new, G, block, d]
        rows = placed.reshape(*placed.shape[:2], self.block * heads.shape[-1])  # [new, G, block * d]
        return run.product("map", "egi,oi->ego", rows, run.weight("weight"))  # [new, G, d]

    def _selected(self, weights: Array, run: Run) -> Array:
        """The positions of the best blocks, the same for all query heads of a key head: [G, R, S, E] -> [G, 1, S, T].

        A block's score is the weight of the entries that overlap it, each as often as both have a stride in common
        (eq. 9), summed over the query heads (eq. 10).
        """
        end, width = run.step.past + run.step.new, self.selected_block
        blocks, entries = np.arange(-(-end // width)), weights.sum(axis=1)  # [B], [G, S, E]
        strides = np.zeros((*entries.shape[:2], len(blocks) * width // self.stride), entries.dtype)  # [G, S, strides]
        for offset in range(self.block // self.stride):
            strides[..., offset : offset + entries.shape[-1]] += entries
        scores = strides.reshape(*entries.shape[:2], len(blocks), -1).sum(axis=-1)  # [G, S, B]
        own = np.arange(run.step.past, end)[:, None] // width  # [S, 1]
        earlier = np.broadcast_to(blocks < own, scores.shape)  # [G, S, B]
        chosen = best(scores, earlier, self.n_selected - 1) | (blocks == own)  # [G, S, B]
        return np.repeat(chosen, width, axis=-1)[:, None, :, :end] & run.mask(self._blocks)

    @property
    def _score_scale(self) -> float:
        return self.head_dim**-0.5 if self.scale is None else self.scale
