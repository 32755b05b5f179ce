"""A transformer block that many layers use: stored once, run and cached at each use (Zamba, Zamba2)."""

from __future__ import annotations

from typing import Any, ClassVar

from planner.bill import Bill, linear
from planner.components.arrays import Array, np
from planner.components.base import Extra, Place, Run
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.norm import Norm
from planner.spec import Count, spec


@spec
class SharedBlock(Extra):
    """Attention and feed-forward on the hidden state beside the embedding (Glorioso et al. 2024, Zamba2, section 2).

    ``a = attention(norm([x, e])); x' = mixer(norm(x + ff(norm(a)) W))``: the layer's own mixer reads the sum. All uses
    of a `block` share its tensors; each use has a projection W, low-rank adapters on the feed-forward's input
    matrices, and on query, key and value where they are asked for, and a cache of its own. Attention reads 2 d_model
    and gives d_model.
    """

    kind: ClassVar[str] = "shared_block"
    place: ClassVar[Place] = "mixer_input"
    block: str
    attention: DenseAttention
    feed_forward: FeedForward
    norm: Norm
    adapter_rank: Count | None = None
    adapts_feed_forward: bool = True
    adapts_attention: bool = False

    def bill(self, d_model: Any) -> Bill:
        once = Bill.of(
            self.norm.bill(2 * d_model, "mixer_norm"),
            self.attention.bill(2 * d_model, d_model).under("mixer"),
            self.norm.bill(d_model, "feed_forward_norm"),
            self.feed_forward.bill(d_model).under("feed_forward"),
        )
        return Bill.of(once.shared(self.block), self._adapters(d_model), linear("project", d_model, d_model, "other"))

    def _adapters(self, d_model: Any) -> Bill:
        attention, ff, rank = self.attention, self.feed_forward, self.adapter_rank
        if rank is None:
            return Bill()

        def adapter(name: str, n_in: Any, n_out: Any, component: str) -> Bill:
            down = linear(f"{name}_adapter.down", n_in, rank, component)
            return Bill.of(down, linear(f"{name}_adapter.up", rank, n_out, component, shard="column"))

        q = attention.n_heads * attention.head_dim
        kv = attention.n_kv_heads * attention.head_dim
        on_attention = (adapter(n, 2 * d_model, width, "attention") for n, width in (("q", q), ("k", kv), ("v", kv)))
        wide = (2 if ff.gated else 1) * ff.d_ff
        return Bill.of(
            *(on_attention if self.adapts_attention else ()),
            adapter("up", d_model, wide, "ffn_dense") if self.adapts_feed_forward else None,
        )

    def forward(self, x: Array, run: Run) -> Array:
        once = run.shared(self.block)
        read = np.concatenate([x, run.notes["embedding"]], axis=-1)  # [S, 2 D]
        read = self.norm.forward(read, once, "mixer_norm")
        terms = {id: self._adapted(id, read, run) for id in "qkv"} if self.adapts_attention else {}
        a = self.attention.forward(read, once.under("mixer").plus(terms))  # [S, 2 D] -> [S, D]
        a = self.norm.forward(a, once, "feed_forward_norm")
        terms = self._feed_forward_terms(a, run) if self.adapts_feed_forward else {}
        return run.linear("project", self.feed_forward.forward(a, once.under("feed_forward").plus(terms)))

    def _adapted(self, id: str, x: Array, run: Run) -> Array:
        return run.linear(
            f"{id}_adapter.up", run.linear(f"{id}_adapter.down", x)
        )  # [S, n_in] -> [S, rank] -> [S, n_out]

    def _feed_forward_terms(self, x: Array, run: Run) -> dict[str, Array]:
        """One adapter for both input matrices: gate, then up."""
        if self.adapter_rank is None:
            return {}
        both = self._adapted("up", x, run)  # [S, 2 F], or [S, F] where there is no gate
        if not self.feed_forward.gated:
            return {"up": both}
        gate, up = np.split(both, 2, axis=-1)
        return {"gate": gate, "up": up}
