"""Mixture of attention heads: experts for query and output, keys and values shared by all of them (JetMoe)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.arithmetic import exact_div
from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.arrays import Array, np, softmax
from planner.components.attention_core import attend
from planner.components.base import Mixer, Run
from planner.components.position import Position, turned
from planner.rules import CAUSAL
from planner.spec import Count, Scale, spec


@spec
class MixtureAttention(Mixer):
    """MoA (Zhang et al. 2022; Shen et al. 2024, JetMoe, section 2.2).

    A router sends each position to `top_k` of `n_experts`; each has a query matrix for `n_kv_heads` heads, which read
    the shared keys and values head by head, and an output matrix. The outputs are summed with the softmax of the chosen
    router logits as weights, and a bias is added.
    """

    kind: ClassVar[str] = "mixture_attention"
    n_experts: Count
    top_k: Count
    n_kv_heads: Count
    head_dim: Count
    position: Position | None = None
    scale: Scale | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.top_k <= self.n_experts, "top_k = {top_k} exceeds n_experts = {n_experts}"

    @property
    def n_heads(self) -> Any:
        """Query heads that one position uses."""
        return self.n_kv_heads * self.top_k

    def bill(self, d_model: Any) -> Bill:
        width, heads, component = self.n_kv_heads * self.head_dim, self.n_heads, "experts_routed"
        experts: dict[str, Any] = {"copies": self.n_experts, "used": self.top_k}
        return Bill.of(
            self._shared_by_experts("router.weight", (d_model,), component),
            Product("router", d_model * self.n_experts, "new", component, ("router.weight",)),
            linear("q", d_model, width, component, shard="column", **experts),
            linear("k", d_model, width, "attention", shard="kv_heads"),
            linear("v", d_model, width, "attention", shard="kv_heads"),
            linear("o", width, d_model, component, shard="row", **experts),
            self._shared_by_experts("output_bias", (exact_div(d_model, self.n_experts),), "biases"),
            CacheEntry("k", self.n_kv_heads, self.head_dim, shard="kv_heads"),
            CacheEntry("v", self.n_kv_heads, self.head_dim, shard="kv_heads"),
            Product("scores", heads * self.head_dim, "pairs", "attention_core", ("k",), shard="heads"),
            Product("values", heads * self.head_dim, "pairs", "attention_core", ("v",), shard="heads"),
            Operation("softmax", heads, "pairs", shard="heads"),
            Operation("rope", (heads + self.n_kv_heads) * self.head_dim, "new") if self.position is not None else None,
        )

    def _shared_by_experts(self, id: str, part: tuple[Any, ...], role: str) -> Tensor:
        """Router and bias: published active counts scale both by k/E, so they are listed as a part for each expert."""
        return Tensor(id, part, role, "experts_routed", self.n_experts, self.top_k)

    def forward(self, x: Array, run: Run) -> Array:
        logits = run.product("router", "sd,ed->se", x, run.weight("router.weight"))  # [S, E]
        chosen = np.argsort(-logits, axis=-1, kind="stable")[:, : self.top_k]  # [S, k]
        weights = softmax(np.take_along_axis(logits, chosen, axis=-1))  # [S, k]
        q = self._by_expert("q", np.repeat(x[:, None], self.top_k, axis=1), chosen, run)  # [S, k, D] -> [S, k, G * d]
        q = q.reshape(len(x), self.n_heads, self.head_dim)
        k, v = (run.linear(id, x).reshape(len(x), self.n_kv_heads, -1) for id in "kv")  # [S, G, d]
        q, k = (turned(heads, self.position, run.positions, run.reach) for heads in (q, k))
        heads = attend(
            q.reshape(len(x), self.top_k, self.n_kv_heads, -1).swapaxes(1, 2),  # [S, G, k, d]
            run.extend("k", k),
            run.extend("v", v),
            run,
            mask=run.mask(CAUSAL),
            scale=self.head_dim**-0.5 if self.scale is None else self.scale,
        )  # [S, G, k, d]
        read = heads.swapaxes(1, 2).reshape(len(x), self.top_k, -1)  # [S, k, G * d]
        out = self._by_expert("o", read, chosen, run) * weights[..., None]  # [S, k, D]
        return out.sum(axis=1) + run.weight("output_bias").reshape(-1)

    def _by_expert(self, id: str, x: Array, chosen: Array, run: Run) -> Array:
        """Each of a position's k vectors through the matrix of its expert: [S, k, n_in] -> [S, k, n_out]."""
        out = np.zeros(0)
        for index in np.unique(chosen):
            places = np.nonzero(chosen == index)
            part = run.copy(int(index)).linear(id, x[places])  # [places, n_out]
            out = np.zeros((*chosen.shape, part.shape[-1]), x.dtype) if not out.size else out
            out[places] = part
        return out
