"""Embeddings of a token for each layer (Gemma 3n): a table that is only looked up, and where layers take it in."""

from __future__ import annotations

from typing import Any, ClassVar

from planner.bill import Bill, Operation, Tensor, linear
from planner.components.arrays import Array, activate, np
from planner.components.base import Extra, Place, Run
from planner.components.feed_forward import Activation
from planner.components.norm import Norm
from planner.spec import Count, Spec, spec


@spec
class LayerEmbedding(Spec):
    """A table [vocab_size, layers x width] beside the embedding's (`modeling_gemma3n.py`).

    Its row for a token, times sqrt(width), and the normed projection of the token's embedding are averaged,
    ``(e + norm(x P)) / sqrt(2)``, and cut into one vector for each layer.
    """

    vocab_size: Count
    width: Count
    norm: Norm

    def bill(self, d_model: Any, n_layers: Any) -> Bill:
        """The table, the projection and its norm, which goes over each layer's part alone."""
        row = n_layers * self.width
        return Bill.of(
            Tensor("table.weight", (self.vocab_size, row), "embedding", "embedding", access="rows", shard="vocabulary"),
            linear("project", d_model, row, "other"),
            self.norm.bill(self.width, "project_norm", vectors=n_layers),
        )

    def forward(self, x: Array, run: Run) -> Array:
        """A vector for each new token and layer, from the token's embedding x: [S, D] -> [S, L, width]."""
        known = np.where(run.tokens < self.vocab_size, run.tokens, 0)  # the table may end before the vocabulary
        looked_up = run.rows("table.weight", known) * self.width**0.5  # [S, L * width]
        made = run.linear("project", x) * x.shape[-1] ** -0.5  # [S, D] -> [S, L * width]
        looked_up, made = (row.reshape(len(x), -1, self.width) for row in (looked_up, made))
        return (looked_up + self.norm.forward(made, run, "project_norm")) * 0.5**0.5


@spec
class LayerInput(Extra):
    """A layer's part of the row at the end of the layer: ``x + norm((act(x G) * e) W)`` (`modeling_gemma3n.py`)."""

    kind: ClassVar[str] = "layer_input"
    place: ClassVar[Place] = "end"
    width: Count
    activation: Activation
    norm: Norm

    def bill(self, d_model: Any) -> Bill:
        return Bill.of(
            linear("gate", d_model, self.width, "other"),
            linear("project", self.width, d_model, "other"),
            Operation("activation", self.width, "new"),
            self.norm.bill(d_model),
        )

    def forward(self, x: Array, run: Run) -> Array:
        vectors = run.notes["layer_embedding"][:, run.number]  # [S, L, width] -> [S, width]
        hidden = activate(self.activation, run.linear("gate", x)) * vectors  # [S, D] -> [S, width]
        return self.norm.forward(run.linear("project", hidden), run)  # [S, width] -> [S, D]
