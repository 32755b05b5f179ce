"""Both ends of a decoder: the tables that turn ids and positions into vectors, and the matrix that gives logits."""

from __future__ import annotations

from typing import Any

from planner.bill import Bill, Product, Tensor, linear
from planner.components.norm import Norm
from planner.spec import Count, Extent, Scale, Spec, spec


@spec
class Embedding(Spec):
    """The input side. `width` where the table is narrower than d_model and projected (OPT-350M).

    `learned_positions` are the usable rows of a position table, `position_offset` the rows before the first of them.
    """

    width: Count | None = None
    scale: Scale | None = None
    norm: Norm | None = None
    learned_positions: Count | None = None
    position_offset: Extent = 0

    def bill(self, vocab_size: Any, d_model: Any, *, tied: bool) -> Bill:
        """Tables [V, width] and [positions, d_model]; a tied table is also multiplied by, so it is read whole."""
        width = d_model if self.width is None else self.width
        access = "whole" if tied else "rows"
        positions = self.learned_positions
        return Bill.of(
            Tensor("tokens.weight", (vocab_size, width), "embedding", "embedding", access=access, shard="vocabulary"),
            Tensor("positions.weight", (positions + self.position_offset, d_model), "embedding", "embedding", access="rows")
            if positions is not None
            else None,
            linear("project", width, d_model, "other") if self.width is not None else None,
            self.norm.bill(d_model) if self.norm is not None else None,
        )


@spec
class Output(Spec):
    """The output side: logits = soft_cap(scale * (x W + bias)). `tied`: W is the input table."""

    tied: bool = False
    bias: bool = False
    scale: Scale | None = None
    soft_cap: Scale | None = None

    def bill(self, vocab_size: Any, d_model: Any, width: Any = None) -> Bill:
        """The matrix [V, d_model] and its product on emitted positions.

        Where the embedding is narrower, the reference code projects every new position before it picks the emitted ones.
        """
        inner = d_model if width is None else width
        weight = "/embedding.tokens.weight" if self.tied else "weight"
        own = Tensor("weight", (vocab_size, inner), "lm_head", "lm_head", shard="vocabulary")
        return Bill.of(
            linear("project", d_model, width, "other") if width is not None else None,
            None if self.tied else own,
            Tensor("bias", (vocab_size,), "lm_head", "lm_head", shard="vocabulary") if self.bias else None,
            Product("logits", vocab_size * inner, "emitted", "lm_head", (weight,), shard="vocabulary"),
        )
