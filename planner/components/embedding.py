"""Both ends of a decoder: the tables that turn ids and positions into vectors, and the matrix that gives logits."""

from __future__ import annotations

from typing import Any

from planner.bill import Access, Bill, Product, Tensor, linear
from planner.components.arrays import Array, np, soft_capped
from planner.components.base import Run
from planner.components.layer_embedding import LayerEmbedding
from planner.components.norm import Norm
from planner.spec import Count, Extent, Scale, Spec, spec


@spec
class Embedding(Spec):
    """The input side. `width` where the table is narrower than d_model and projected (OPT-350M).

    `learned_positions` are the usable rows of a position table, `position_offset` the rows before the first of them.
    `sinusoidal`: position p adds sin((p + offset) f) in the first half of the vector and cos in the second, with the
    d_model / 2 frequencies f from 1 to 1/10,000; computed, never stored (XGLM). `layers` is a second table, with a
    vector for each layer (Gemma 3n).
    """

    width: Count | None = None
    scale: Scale | None = None
    norm: Norm | None = None
    learned_positions: Count | None = None
    position_offset: Extent = 0
    sinusoidal: bool = False
    layers: LayerEmbedding | None = None

    def bill(self, vocab_size: Any, d_model: Any, n_layers: Any = None, *, tied: bool) -> Bill:
        """Tables [V, width] and [positions, d_model]; a tied table is also multiplied by, so it is read whole."""
        width = d_model if self.width is None else self.width
        access: Access = "whole" if tied else "rows"
        positions = self.learned_positions
        return Bill.of(
            Tensor("tokens.weight", (vocab_size, width), "embedding", "embedding", access=access, shard="vocabulary"),
            Tensor(
                "positions.weight", (positions + self.position_offset, d_model), "embedding", "embedding", access="rows"
            )
            if positions is not None
            else None,
            linear("project", width, d_model, "other") if self.width is not None else None,
            self.norm.bill(d_model) if self.norm is not None else None,
            self.layers.bill(d_model, n_layers).under("layers") if self.layers is not None else None,
        )

    def forward(self, run: Run) -> Array:
        """The vectors of the new tokens: [S] -> [S, D]."""
        x = run.rows("tokens.weight", run.tokens)  # [S, width]
        if self.scale is not None:
            x = x * self.scale
        if self.width is not None:
            x = run.linear("project", x)  # [S, width] -> [S, D]
        if self.learned_positions is not None:
            x = x + run.rows("positions.weight", run.positions + self.position_offset)
        if self.sinusoidal:
            x = x + self._waves(run.positions, x.shape[-1]).astype(x.dtype)
        x = x if self.norm is None else self.norm.forward(x, run)
        run.notes["embedding"] = x
        if self.layers is not None:
            run.notes["layer_embedding"] = self.layers.forward(x, run.under("layers"))
        return x

    def _waves(self, positions: Array, width: int) -> Array:
        half = width // 2
        frequencies = 10_000.0 ** -(np.arange(half) / (half - 1))  # [D / 2]
        angles = np.multiply.outer(positions + self.position_offset, frequencies)  # [S, D / 2]
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


@spec
class Output(Spec):
    """The output side: logits = soft_cap(scale * (x W + bias)). `tied`: W is the input table.

    `unit_rows`: each row of W is divided by its length first (Baichuan 2).
    """

    tied: bool = False
    bias: bool = False
    scale: Scale | None = None
    soft_cap: Scale | None = None
    unit_rows: bool = False

    def bill(self, vocab_size: Any, d_model: Any, width: Any = None) -> Bill:
        """The matrix [V, d_model] and its product on emitted positions.

        Where the embedding is narrower, the reference code projects every new position before it picks the emitted
        ones.
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

    def forward(self, x: Array, run: Run) -> Array:
        """The logits of the last `emitted` positions: [S, D] -> [emitted, V]."""
        weight = run.weight("/embedding.tokens.weight" if self.tied else "weight")  # [V, width]
        if weight.shape[-1] != x.shape[-1]:
            x = run.linear("project", x)  # [S, D] -> [S, width]
        if self.unit_rows:
            weight = weight / np.linalg.norm(weight, axis=-1, keepdims=True)
        x = x[len(x) - run.step.emitted :]  # [emitted, width]
        logits = run.product("logits", "sd,vd->sv", x, weight)  # [emitted, V]
        if self.bias:
            logits = logits + run.weight("bias")
        if self.scale is not None:
            logits = logits * self.scale
        return soft_capped(logits, self.soft_cap)
