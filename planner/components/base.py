"""What a layer may hold: a mixer of positions and a position-wise branch. Each declares its bill."""

from __future__ import annotations

from typing import Any

from planner.bill import Bill
from planner.spec import Spec, spec


@spec
class Branch(Spec):
    """A branch of a layer: reads and writes the residual stream of width d_model."""

    def bill(self, d_model: Any) -> Bill:
        """Tensors, products, cache and operations of one layer's branch."""
        raise AssertionError(f"{type(self).__name__} declares no bill")


@spec
class Mixer(Branch):
    """Attention or a state: moves information between positions."""


@spec
class PositionWise(Branch):
    """A feed-forward: works on each position alone."""
