"""RMSNorm and LayerNorm: over the residual stream, over query and key heads, over a latent."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from planner.bill import Bill, Operation, Tensor
from planner.components.arrays import Array, np
from planner.components.base import Run
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

    def bill(self, width: Any, id: str = "norm", *, vectors: Any = 1, apart: bool = False) -> Bill:
        """Learned vectors of shape [width] for all `vectors` of a position, or [vectors, width] where each is apart."""
        shape = (vectors, width) if apart else (width,)
        return Bill.of(
            Tensor(f"{id}.weight", shape, "norms", "norms") if self.weight else None,
            Tensor(f"{id}.bias", shape, "norms", "norms") if self.biased else None,
            Operation(id, vectors * width, "new"),
        )

    def forward(self, x: Array, run: Run, id: str = "norm", *, groups: int = 1) -> Array:
        """Over the last axis or each of several groups in it, then times γ plus β: [..., width] -> [..., width]."""
        x = self.normalised(x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)).reshape(x.shape)
        if self.weight:
            x = x * (run.weight(f"{id}.weight") + self.offset)
        return x + run.weight(f"{id}.bias") if self.biased else x

    @property
    def offset(self) -> int:
        """What is added to the stored weight: 1 where it is stored as γ - 1."""
        return 0

    def normalised(self, x: Array) -> Array:
        """The norm without what it learned."""
        raise AssertionError(f"{type(self).__name__} has no forward")


@spec
class RMSNorm(Norm):
    """Root-mean-square norm (Zhang and Sennrich 2019, eq. 4). `unit_offset`: the weight is stored as γ - 1 (Gemma)."""

    kind: ClassVar[str] = "rms"
    unit_offset: bool = False

    @property
    def offset(self) -> int:
        return int(self.unit_offset)

    def normalised(self, x: Array) -> Array:
        return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps))


@spec
class LayerNorm(Norm):
    """Layer norm (Ba et al. 2016, eq. 4), with or without its bias. `unit_offset`: stored as γ - 1 (Nemotron)."""

    kind: ClassVar[str] = "layer"
    bias: bool = True
    unit_offset: bool = False

    @property
    def biased(self) -> bool:
        return self.bias

    @property
    def offset(self) -> int:
        return int(self.unit_offset)

    def normalised(self, x: Array) -> Array:
        x = x - np.mean(x, axis=-1, keepdims=True)
        return np.asarray(x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps))
