"""Attention that reads less than it keeps: DeepSeek sparse attention (DSA) and native sparse attention (NSA).

Selection changes which products are done and which cache entries are read; the cache itself is kept whole, with what
the selection needs on top.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.base import Mixer
from planner.components.latent_attention import LatentAttention
from planner.components.norm import Norm
from planner.components.position import Position, Rope
from planner.rules import Causal, Strided, TopK, Window
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


@spec
class NativeSparseAttention(Mixer):
    """Native sparse attention (Yuan et al. 2025, sections 3.2 and 3.3) on grouped query heads.

    Three branches, each with keys and values of its own (section 3.3.3), gated by sigmoids of the input (eq. 5):
    compressed, one entry for each complete block of `block` positions, a block every `stride` (eq. 7); selected, the
    best `n_selected` blocks of `selected_block` positions (eq. 8 to 12), ranked by the compressed scores at no further
    product; and a window of the last `window`. The compression is a matrix [block * head_dim, head_dim] for keys and
    one for values, shared by the heads, with a learned vector for each place in the block; the paper leaves its depth
    open.
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
        branches: dict[str, Causal] = {
            "compressed": Strided(self.block, self.stride),
            "selected": TopK(self.n_selected * self.selected_block),
            "window": Window(self.window),
        }
        return Bill.of(
            linear("q", d_model, heads * self.head_dim, "attention", shard="heads"),
            *(self._branch(rule, d_model, d_v).under(name) for name, rule in branches.items()),
            self._compression(d_v),
            linear("gate", d_model, len(branches) * heads, "attention", shard="heads"),
            Operation("gate", len(branches) * heads * d_v, "new"),
            linear("o", heads * d_v, d_model, "attention", shard="row"),
        )

    def _branch(self, rule: Causal, d_model: Any, d_v: Any) -> Bill:
        heads, kv_heads, d_k = self.n_heads, self.n_kv_heads, self.head_dim
        turned = (heads + kv_heads) * d_k if isinstance(self.position, Rope) else 0
        return Bill.of(
            linear("k", d_model, kv_heads * d_k, "attention", shard="kv_heads"),
            linear("v", d_model, kv_heads * d_v, "attention", shard="kv_heads"),
            CacheEntry("k", kv_heads, d_k, rule, shard="kv_heads"),
            CacheEntry("v", kv_heads, d_v, rule, shard="kv_heads"),
            Product("scores", heads * d_k, "pairs", "attention_core", ("k",), rule, shard="heads"),
            Product("values", heads * d_v, "pairs", "attention_core", ("v",), rule, shard="heads"),
            Operation("softmax", heads, "pairs", rule, shard="heads"),
            Operation("rope", turned, "new") if turned else None,
        )

    def _compression(self, d_v: Any) -> Bill:
        rule, pending = Strided(self.block, self.stride), Window(self.block)

        def one(name: str, width: Any) -> Bill:
            weight = Tensor("weight", (width, self.block * width), "attention", "attention")
            reads = ("weight", "places", "pending")
            return Bill.of(
                weight,
                Tensor("places", (self.block, width), "attention", "attention"),
                Product("map", self.n_kv_heads * self.block * width * width, "entries", "attention", reads, rule),
                CacheEntry("pending", self.n_kv_heads, width, pending, shard="kv_heads"),
            ).under(f"compress_{name}")

        return Bill.of(one("k", self.head_dim), one("v", d_v))
