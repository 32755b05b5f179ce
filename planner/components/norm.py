"""RMSNorm and LayerNorm: over the residual stream, over query and key heads, over a latent."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from planner.bill import Bill, Operation, Tensor
from planner.spec import Scale, Spec, spec


@spec
class Norm(Spec):
    """A norm over the last axis. `weight` and `bias` say which learned vectors it has."""

    eps: Scale
    weight: bool = True
    precision: Literal["float32", "input"] = "float32"

    @property
    def biased(self) -> bool:
        """Whether it has a learned bias."""
        return False

    def bill(self, width: Any, id: str = "norm", *, heads: Any = None) -> Bill:
        """Vectors of shape [width], or [heads, width] where every head has its own."""
        shape = (width,) if heads is None else (heads, width)
        elements = width if heads is None else heads * width
        return Bill.of(
            Tensor(f"{id}.weight", shape, "norms", "norms") if self.weight else None,
            Tensor(f"{id}.bias", shape, "norms", "norms") if self.biased else None,
            Operation("norm", elements, "new"),
        )


@spec
class RMSNorm(Norm):
    """Root-mean-square norm (Zhang and Sennrich 2019, eq. 4). `unit_offset`: the weight is stored as γ - 1 (Gemma)."""

    kind: ClassVar[str] = "rms"
    unit_offset: bool = False


@spec
class LayerNorm(Norm):
    """Layer norm (Ba et al. 2016, eq. 4), with or without its bias."""

    kind: ClassVar[str] = "layer"
    bias: bool = True

    @property
    def biased(self) -> bool:
        return self.bias
