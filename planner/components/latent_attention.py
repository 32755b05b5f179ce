"""Multi-head latent attention (MLA): the cache holds one joint latent and one rotary key for each position."""

from __future__ import annotations

from typing import Any, ClassVar

from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.base import Mixer
from planner.components.norm import Norm
from planner.components.position import Position
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

    def bill(self, d_model: Any) -> Bill:
        heads, rank, d_rope, d_v = self.n_heads, self.kv_lora_rank, self.rope_head_dim, self.v_head_dim
        return Bill.of(
            self._query(d_model),
            linear("kv_a", d_model, rank + d_rope, "attention", bias=self.bias),
            self.latent_norm.bill(rank, "kv_a_norm"),
            Tensor("kv_b.weight", (heads * (self.nope_head_dim + d_v), rank), "attention", "attention", shard="heads"),
            self._core(),
            linear("o", heads * d_v, d_model, "attention", bias=self.bias, shard="heads"),
            CacheEntry("latent", 1, rank),
            CacheEntry("rope_key", 1, d_rope),
            Operation("softmax", heads, "pairs"),
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
            return Product(id, heads * macs, "pairs", "attention_core", reads, form=form, shard="heads")

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
