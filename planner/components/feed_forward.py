"""The dense feed-forward: two matrices around an activation, or three with a gate."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from planner.bill import Bill, Operation, linear
from planner.components.base import PositionWise
from planner.spec import Count, Scale, spec

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "gelu_quick", "silu", "sigmoid", "swiglu_oai"]


@spec
class FeedForward(PositionWise):
    """``act(x W_up) W_down``, or gated ``(act(x W_gate) * x W_up) W_down`` (Shazeer 2020, eq. 5 and 6).

    `clip` bounds the gated product's inputs (gpt-oss).
    """

    kind: ClassVar[str] = "feed_forward"
    d_ff: Count
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False
    clip: Scale | None = None

    def bill(self, d_model: Any, component: str = "ffn_dense", copies: Any = 1, used: Any = None) -> Bill:
        """Matrices of one feed-forward, or of `copies` equal experts of which a token takes `used`."""
        shard = "experts" if used is not None else "column"
        kw: dict[str, Any] = {"bias": self.bias, "copies": copies, "used": used}
        return Bill.of(
            linear("gate", d_model, self.d_ff, component, shard=shard, **kw) if self.gated else None,
            linear("up", d_model, self.d_ff, component, shard=shard, **kw),
            linear("down", self.d_ff, d_model, component, shard="experts" if used is not None else "row", **kw),
            Operation("activation", self.d_ff * (1 if used is None else used), "new"),
        )
