"""The mixture of experts: a router sends each token to k of E feed-forwards; shared ones work on every token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from planner.bill import Bill, Tensor, linear
from planner.components.base import PositionWise
from planner.components.feed_forward import Activation, FeedForward
from planner.spec import Count, Extent, Scale, spec


@spec
class Mixture(PositionWise):
    """Routed and shared experts (Fedus et al. 2022, section 2; DeepSeek-AI 2024, DeepSeekMoE, section 3).

    `d_ff` is one expert's width, `d_ff_shared` the width of all shared experts together (0: none). The router scores by
    `scoring`, in `n_groups` of which `top_k_groups` are kept first; `correction_bias` is added for the choice only and is
    stored as a buffer or as a parameter. `normalised`: the chosen scores are divided by their sum; then times
    `routed_scale`.
    """

    kind: ClassVar[str] = "mixture"
    n_experts: Count
    top_k: Count
    d_ff: Count
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False
    clip: Scale | None = None
    d_ff_shared: Extent = 0
    shared_gate: bool = False
    router_bias: bool = False
    correction_bias: Literal["buffer", "parameter"] | None = None
    scoring: Literal["softmax", "sigmoid", "softmax_of_chosen"] = "softmax"
    normalised: bool = True
    routed_scale: Scale = 1.0
    n_groups: Count | None = None
    top_k_groups: Count | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.top_k <= self.n_experts, "top_k = {top_k} exceeds n_experts = {n_experts}"
        if self.n_groups is not None:
            yield self.n_experts % self.n_groups == 0, "n_groups = {n_groups} does not divide n_experts = {n_experts}"
            if self.top_k_groups is not None:
                yield self.top_k_groups <= self.n_groups, "top_k_groups = {top_k_groups} exceeds n_groups = {n_groups}"
        if self.shared_gate:
            yield self.d_ff_shared > 0, "shared_gate needs a shared expert; d_ff_shared = {d_ff_shared}"

    @property
    def expert(self) -> FeedForward:
        """One routed expert."""
        return FeedForward(d_ff=self.d_ff, gated=self.gated, activation=self.activation, bias=self.bias, clip=self.clip)

    @property
    def shared_expert(self) -> FeedForward | None:
        """All shared experts as one feed-forward, or None."""
        if isinstance(self.d_ff_shared, int) and self.d_ff_shared == 0:
            return None
        return FeedForward(d_ff=self.d_ff_shared, gated=self.gated, activation=self.activation)

    def bill(self, d_model: Any) -> Bill:
        shared = self.shared_expert
        correction = None
        if self.correction_bias is not None:
            correction = Tensor("router.correction", (self.n_experts,), "router", "router", counts=self.correction_bias)
        return Bill.of(
            linear("router", d_model, self.n_experts, "router", bias=self.router_bias, bias_role="router"),
            correction,
            self.expert.bill(d_model, "experts_routed", self.n_experts, self.top_k).under("experts"),
            shared.bill(d_model, "experts_shared").under("shared") if shared is not None else None,
            linear("shared_gate", d_model, 1, "experts_shared") if self.shared_gate else None,
        )
