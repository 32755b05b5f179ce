"""A dense feed-forward and a mixture of experts side by side, each behind its own norms (Gemma 4)."""

from __future__ import annotations

from typing import Any, ClassVar

from planner.bill import Bill
from planner.components.arrays import Array
from planner.components.base import PositionWise, Run
from planner.components.feed_forward import FeedForward
from planner.components.mixture import Mixture
from planner.components.norm import Norm
from planner.spec import spec


@spec
class DenseAndMixture(PositionWise):
    """``norm(dense(norm(x))) + norm(mixture(norm(x)))``, where the router reads x itself."""

    kind: ClassVar[str] = "dense_and_mixture"
    own_norms: ClassVar[bool] = True
    dense: FeedForward
    mixture: Mixture
    norm: Norm

    def bill(self, d_model: Any) -> Bill:
        return Bill.of(
            *(self.norm.bill(d_model, name) for name in ("dense_norm", "dense_output_norm")),
            self.dense.bill(d_model).under("dense"),
            *(self.norm.bill(d_model, name) for name in ("mixture_norm", "mixture_output_norm")),
            self.mixture.bill(d_model),
        )

    def forward(self, x: Array, run: Run) -> Array:
        dense = self.dense.forward(self.norm.forward(x, run, "dense_norm"), run.under("dense"))  # [S, D]
        routed = self.mixture.routed(self.norm.forward(x, run, "mixture_norm"), x, run)  # [S, D]
        dense = self.norm.forward(dense, run, "dense_output_norm")
        return dense + self.norm.forward(routed, run, "mixture_output_norm")
