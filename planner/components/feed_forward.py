"""The dense feed-forward: two matrices around an activation, or three with a gate."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import NormalDist
from typing import Any, ClassVar, Literal

from planner.bill import Bill, Operation, Tensor, linear
from planner.components.arrays import Array, activate, np, softplus
from planner.components.base import PositionWise, Run
from planner.components.norm import Norm
from planner.spec import Count, Scale, spec

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "gelu_quick", "silu", "sigmoid", "swiglu_oai", "xielu"]


@spec
class FeedForward(PositionWise):
    """``act(x W_up) W_down``, or gated ``(act(x W_gate) * x W_up) W_down`` (Shazeer 2020, eq. 5 and 6).

    `clip` bounds the gated product's inputs before the activation (gpt-oss), `clip_activated` behind it: act(x W_gate)
    from above, x W_up on both sides (Step-3.5). `inner_norm` stands before W_down (BitNet). xIELU (Apertus)
    learns two scalars and stores two constants: with p = softplus(alpha_p) and n = beta + softplus(alpha_n) it is
    p x² + beta x where x > 0, else n (exp(min(x, eps)) - 1 - x) + beta x. With `sparsity` the gate x becomes
    max(x - m - q s, 0) before its activation, m and s its mean and deviation, q that normal quantile (Gemma 3n).
    `gate_scale` multiplies the gate before its activation, `output_scale` the output (Falcon-H1).
    """

    kind: ClassVar[str] = "feed_forward"
    d_ff: Count
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False
    clip: Scale | None = None
    clip_activated: Scale | None = None
    inner_norm: Norm | None = None
    sparsity: Scale | None = None
    gate_scale: Scale | None = None
    output_scale: Scale | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        if self.sparsity is not None:
            yield self.sparsity < 1, "sparsity = {sparsity} is not below 1, the share of gates that are set to zero"

    def bill(self, d_model: Any, component: str = "ffn_dense", copies: Any = 1, used: Any = None) -> Bill:
        """Matrices of one feed-forward, or of `copies` equal experts of which a token takes `used`."""
        routed = used is not None
        kw: dict[str, Any] = {"bias": self.bias, "copies": copies, "used": used}
        return Bill.of(
            linear("gate", d_model, self.d_ff, component, shard="column", **kw) if self.gated else None,
            linear("up", d_model, self.d_ff, component, shard="column", **kw),
            self.inner_norm.bill(self.d_ff, "inner_norm") if self.inner_norm is not None else None,
            self._learned_activation(),
            linear("down", self.d_ff, d_model, component, shard="row", **kw),
            Operation("activation", self.d_ff * (used if routed else 1), "new"),
        )

    def _learned_activation(self) -> Bill | None:
        if self.activation != "xielu":
            return None
        learned = (Tensor(f"activation.alpha_{sign}", (1,), "other", "other") for sign in "pn")
        stored = (Tensor(f"activation.{name}", (1,), "other", "other", counts="buffer") for name in ("beta", "eps"))
        return Bill.of(*learned, *stored)

    def forward(self, x: Array, run: Run) -> Array:
        gate = run.linear("gate", x) if self.gated else None  # [S, D] -> [S, F]
        up = run.linear("up", x)  # [S, D] -> [S, F]
        hidden = self._activated(up, run) if gate is None else self._gated(gate, up, run)  # [S, F]
        if self.inner_norm is not None:
            hidden = self.inner_norm.forward(hidden, run, "inner_norm")
        out = run.linear("down", hidden)  # [S, F] -> [S, D]
        return out if self.output_scale is None else out * self.output_scale

    def _gated(self, gate: Array, up: Array, run: Run) -> Array:
        if self.sparsity is not None:
            quantile = NormalDist().inv_cdf(self.sparsity)
            cut = gate.mean(axis=-1, keepdims=True) + quantile * gate.std(axis=-1, keepdims=True)  # [S, 1]
            gate = np.maximum(gate - cut, 0)
        if self.gate_scale is not None:
            gate = gate * self.gate_scale
        if self.clip is not None:
            gate, up = np.minimum(gate, self.clip), np.clip(up, -self.clip, self.clip)
        gate = self._activated(gate, run)
        if self.clip_activated is not None:
            gate, up = np.minimum(gate, self.clip_activated), np.clip(up, -self.clip_activated, self.clip_activated)
        return gate * (up + 1 if self.activation == "swiglu_oai" else up)

    def _activated(self, x: Array, run: Run) -> Array:
        if self.activation != "xielu":
            return activate(self.activation, x)
        beta, eps = run.weight("activation.beta"), run.weight("activation.eps")  # [1], [1]
        p = softplus(run.weight("activation.alpha_p"))
        n = beta + softplus(run.weight("activation.alpha_n"))
        return np.where(x > 0, p * x * x, n * (np.expm1(np.minimum(x, eps)) - x)) + beta * x
