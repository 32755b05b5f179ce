"""Multi-head latent attention (MLA): the cache holds one joint latent and one rotary key for each position."""

from __future__ import annotations

from typing import Any, ClassVar

from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.arrays import Array, np
from planner.components.attention_core import attend
from planner.components.base import Mixer, Run
from planner.components.norm import Norm
from planner.components.position import Position, Rope, turned
from planner.errors import UsageError
from planner.rules import CAUSAL, Causal
from planner.spec import Count, Scale, spec


@spec
class LatentAttention(Mixer):
    """MLA (DeepSeek-AI 2024, DeepSeek-V2, section 2.1), with or without a low-rank query.

    Its products have three forms. ``expanded``: heads are up-projected once for each new position; ``reexpanded``: the
    cached latent of all positions is up-projected again in every pass; ``absorbed``: the up-projections are folded into
    query and output, which then work on the latent itself (section 2.1.2). All three give the same logits.
    """

    kind: ClassVar[str] = "latent_attention"
    n_heads: Count
    kv_lora_rank: Count
    q_lora_rank: Count | None = None
    nope_head_dim: Count
    rope_head_dim: Count
    v_head_dim: Count
    latent_norm: Norm
    position: Position | None = None
    bias: bool = False
    scale: Scale | None = None

    @property
    def rule(self) -> Causal:
        """Which of the cached positions a query reads."""
        return CAUSAL

    def bill(self, d_model: Any) -> Bill:
        heads, rank, d_rope, d_v = self.n_heads, self.kv_lora_rank, self.rope_head_dim, self.v_head_dim
        return Bill.of(
            self._query(d_model),
            linear("kv_a", d_model, rank + d_rope, "attention", bias=self.bias),
            self.latent_norm.bill(rank, "kv_a_norm"),
            Tensor("kv_b.weight", (heads * (self.nope_head_dim + d_v), rank), "attention", "attention", shard="heads"),
            self._core(),
            linear("o", heads * d_v, d_model, "attention", bias=self.bias, shard="row"),
            CacheEntry("latent", 1, rank),
            CacheEntry("rope_key", 1, d_rope),
            Operation("softmax", heads, "pairs", self.rule, shard="heads"),
            Operation("rope", (heads + 1) * d_rope, "new") if self.position is not None else None,
        )

    def _query(self, d_model: Any) -> Bill:
        width = self.n_heads * (self.nope_head_dim + self.rope_head_dim)
        if self.q_lora_rank is None:
            return linear("q", d_model, width, "attention", shard="heads")
        return Bill.of(
            linear("q_a", d_model, self.q_lora_rank, "attention", bias=self.bias),
            self.latent_norm.bill(self.q_lora_rank, "q_a_norm"),
            linear("q_b", self.q_lora_rank, width, "attention", shard="heads"),
        )

    def _core(self) -> Bill:
        heads, rank, d_nope, d_rope, d_v = (
            self.n_heads,
            self.kv_lora_rank,
            self.nope_head_dim,
            self.rope_head_dim,
            self.v_head_dim,
        )
        latent, weight = ("latent", "rope_key"), ("kv_b.weight",)

        def core(id: str, macs: Any, reads: tuple[str, ...], form: str) -> Product:
            return Product(id, heads * macs, "pairs", "attention_core", reads, self.rule, form=form, shard="heads")

        def up(id: str, macs: Any, domain: Any, form: str) -> Product:
            return Product(id, heads * macs * rank, domain, "attention", weight, form=form, shard="heads")

        return Bill.of(
            up("kv_b", d_nope + d_v, "new", "expanded"),
            up("kv_b", d_nope + d_v, "cached", "reexpanded"),
            up("q_absorb", d_nope, "new", "absorbed"),
            up("o_absorb", d_v, "new", "absorbed"),
            *(core("scores", d_nope + d_rope, latent, form) for form in ("expanded", "reexpanded")),
            *(core("values", d_v, latent, form) for form in ("expanded", "reexpanded")),
            core("scores", rank + d_rope, latent, "absorbed"),
            core("values", rank, latent[:1], "absorbed"),
        )

    def forward(self, x: Array, run: Run) -> Array:
        read = x if self.q_lora_rank is None else self._query_latent(x, run)  # [S, D] or [S, q_lora_rank]
        q = self._queries(read, run)  # [S, H, d_nope + d_rope]
        latent, rope_key = self._cached(x, run)  # [T, 1, R], [T, 1, d_rope]
        up = run.weight("kv_b.weight").reshape(self.n_heads, -1, self.kv_lora_rank)  # [H, d_nope + d_v, R]
        core = self._absorbed if run.step.mla == "absorbed" else self._with_heads
        out = core(q, latent, rope_key, up, self._mask(x, read, run), run)  # [S, H, d_v]
        return run.linear("o", out.reshape(len(x), -1))  # [S, H * d_v] -> [S, D]

    def _mask(self, x: Array, query_input: Array, run: Run) -> Array:
        """[S, T] what each query reads; `query_input` is what the queries are made of."""
        return run.mask(self.rule)

    def _queries(self, read: Array, run: Run) -> Array:
        q = run.linear("q" if self.q_lora_rank is None else "q_b", read)  # [S, H * (d_nope + d_rope)]
        q = q.reshape(len(read), self.n_heads, -1)
        nope, rope = np.split(q, [self.nope_head_dim], axis=-1)
        return np.concatenate([nope, turned(rope, self.position, run.positions, run.reach)], axis=-1)

    def _query_latent(self, x: Array, run: Run) -> Array:
        return self.latent_norm.forward(run.linear("q_a", x), run, "q_a_norm")  # [S, D] -> [S, q_lora_rank]

    def _cached(self, x: Array, run: Run) -> tuple[Array, Array]:
        latent, rope_key = np.split(run.linear("kv_a", x), [self.kv_lora_rank], axis=-1)  # [S, R], [S, d_rope]
        latent = self.latent_norm.forward(latent, run, "kv_a_norm")
        rope_key = turned(rope_key[:, None], self.position, run.positions, run.reach)  # [S, 1, d_rope]
        return run.extend("latent", latent[:, None]), run.extend("rope_key", rope_key)

    def _with_heads(self, q: Array, latent: Array, rope_key: Array, up: Array, mask: Array, run: Run) -> Array:
        """Keys and values of every head made from the latent: once, or again in every pass."""
        if run.step.mla == "expanded" and run.step.past:
            raise UsageError("mla = expanded needs the past heads, and the cache holds the latent; take reexpanded")
        heads = run.product("kv_b", "tr,hur->thu", latent[:, 0], up)  # [T, H, d_nope + d_v]
        nope, v = np.split(heads, [self.nope_head_dim], axis=-1)
        k = np.concatenate([nope, np.repeat(rope_key, self.n_heads, axis=1)], axis=-1)  # [T, H, d_nope + d_rope]
        out = attend(q[:, :, None], k, v, run, mask=mask, scale=self._score_scale())  # [S, H, 1, d_v]
        return out[:, :, 0]

    def _absorbed(self, q: Array, latent: Array, rope_key: Array, up: Array, mask: Array, run: Run) -> Array:
        """The latent is the one key and value of all heads: multi-query attention (section 2.1.2)."""
        nope, rope = np.split(q, [self.nope_head_dim], axis=-1)
        to_key, to_value = np.split(up, [self.nope_head_dim], axis=1)  # [H, d_nope, R], [H, d_v, R]
        inner = run.product("q_absorb", "shn,hnr->shr", nope, to_key)  # [S, H, R]
        q = np.concatenate([inner, rope], axis=-1)[:, None]  # [S, 1, H, R + d_rope]
        k = np.concatenate([latent, rope_key], axis=-1)  # [T, 1, R + d_rope]
        out = attend(q, k, latent, run, mask=mask, scale=self._score_scale())  # [S, 1, H, R]
        return run.product("o_absorb", "shr,hvr->shv", out[:, 0], to_value)  # [S, H, d_v]

    def _score_scale(self) -> float:
        if self.scale is not None:
            return self.scale
        scaling = self.position.scaling if isinstance(self.position, Rope) else None
        sharpened = 1.0 if scaling is None else scaling.score_scale
        return float(sharpened * (self.nope_head_dim + self.rope_head_dim) ** -0.5)
