"""The mixture of experts: a router sends each token to k of E feed-forwards; shared ones work on every token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from planner.bill import Bill, Tensor, linear
from planner.components.arrays import Array, np, sigmoid, softmax, softplus
from planner.components.base import PositionWise, Run
from planner.components.feed_forward import Activation, FeedForward
from planner.components.norm import Norm
from planner.spec import Count, Extent, Scale, spec


@spec
class Mixture(PositionWise):
    """Routed and shared experts (Fedus et al. 2022, section 2; DeepSeek-AI 2024, DeepSeekMoE, section 3).

    `d_ff` is one expert's width, `d_ff_shared` the width of all shared experts together (0: none). The router scores by
    `scoring`, in `n_groups` of which `top_k_groups` are kept first; `correction_bias` is added for the choice only and
    is stored as a buffer or as a parameter. `normalised`: the chosen scores are divided by their sum; then times
    `routed_scale`. `group_score`: a group counts by its best expert, or by the sum of its two best.

    Rarer: `scales_input` multiplies an expert's input by its score, not its output (Llama 4). ``sparsemixer`` takes the
    best expert, then the best of the rest, and scores each by a softmax over the ones with
    (best - s) / max(|s|, best) <= 2 `router_jitter` (Phi-3.5-MoE). The router reads `router_norm` of its input, its
    logits are multiplied by `router_scale`, and each expert's score by a learned scalar with `expert_scale` (Gemma 4).
    `output_bias` is added to the sum (JetMoe). A stored table of `hash_rows` token ids names each token's experts, the
    router only their weights (DeepSeek-V4's first layers). Routed experts may work on a projection of `d_latent`
    elements, and the sum of their outputs is projected back (Nemotron 3 Super). `clip_activated` is that of a routed
    expert, `clip_activated_shared` that of the shared ones.
    """

    kind: ClassVar[str] = "mixture"
    n_experts: Count
    top_k: Count
    d_ff: Count
    gated: bool = True
    activation: Activation = "silu"
    bias: bool = False
    clip: Scale | None = None
    clip_activated: Scale | None = None
    clip_activated_shared: Scale | None = None
    d_ff_shared: Extent = 0
    shared_gate: bool = False
    router_bias: bool = False
    correction_bias: Literal["buffer", "parameter"] | None = None
    scoring: Literal["softmax", "sigmoid", "softmax_of_chosen", "sparsemixer", "sqrt_softplus"] = "softmax"
    normalised: bool = True
    routed_scale: Scale = 1.0
    n_groups: Count | None = None
    top_k_groups: Count | None = None
    group_score: Literal["best", "best_two"] = "best_two"
    scales_input: bool = False
    router_jitter: Scale | None = None
    router_norm: Norm | None = None
    router_scale: Scale | None = None
    expert_scale: bool = False
    output_bias: bool = False
    hash_rows: Count | None = None
    d_latent: Count | None = None

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
        return FeedForward(
            d_ff=self.d_ff,
            gated=self.gated,
            activation=self.activation,
            bias=self.bias,
            clip=self.clip,
            clip_activated=self.clip_activated,
        )

    @property
    def shared_expert(self) -> FeedForward | None:
        """All shared experts as one feed-forward, or None."""
        if isinstance(self.d_ff_shared, int) and self.d_ff_shared == 0:
            return None
        return FeedForward(
            d_ff=self.d_ff_shared,
            gated=self.gated,
            activation=self.activation,
            clip=self.clip,
            clip_activated=self.clip_activated_shared,
        )

    def bill(self, d_model: Any) -> Bill:
        shared = self.shared_expert
        correction = None
        if self.correction_bias is not None:
            correction = Tensor("router.correction", (self.n_experts,), "router", "router", counts=self.correction_bias)
        return Bill.of(
            self._router(d_model),
            correction,
            self._routed(d_model),
            shared.bill(d_model, "experts_shared").under("shared") if shared is not None else None,
            linear("shared_gate", d_model, 1, "experts_shared") if self.shared_gate else None,
            self._hash_table(),
            Tensor("output_bias", (d_model,), "biases", "ffn_dense") if self.output_bias else None,
        )

    def _routed(self, d_model: Any) -> Bill:
        width = d_model if self.d_latent is None else self.d_latent
        experts = self.expert.bill(width, "experts_routed", self.n_experts, self.top_k).under("experts")
        if self.d_latent is None:
            return experts
        return Bill.of(
            linear("to_latent", d_model, width, "other", bias=self.bias),
            experts,
            linear("from_latent", width, d_model, "other", bias=self.bias),
        )

    def _hash_table(self) -> Tensor | None:
        if self.hash_rows is None:
            return None
        shape = (self.hash_rows, self.top_k)
        return Tensor("router.experts_of_token", shape, "router", "router", access="rows", counts="buffer")

    def _router(self, d_model: Any) -> Bill:
        norm = self.router_norm
        return Bill.of(
            Tensor("router.norm.weight", (d_model,), "router", "router") if norm is not None and norm.weight else None,
            linear("router", d_model, self.n_experts, "router", bias=self.router_bias, bias_role="router"),
            Tensor("router.expert_scale", (self.n_experts,), "router", "router") if self.expert_scale else None,
        )

    def forward(self, x: Array, run: Run) -> Array:
        return self.routed(x, x, run)

    def routed(self, x: Array, router_input: Array, run: Run) -> Array:
        """The sum of each token's experts, where the router may read something else than they: [S, D] -> [S, D]."""
        experts, weights = self._choice(self._logits(router_input, run), run)  # [S, k], [S, k]
        inner = x if self.d_latent is None else run.linear("to_latent", x)  # [S, W]
        out = np.zeros_like(inner)
        for index in np.unique(experts):
            tokens, places = np.nonzero(experts == index)
            weight = weights[tokens, places, None]  # [tokens of this expert, 1]
            expert = run.under("experts").copy(int(index))
            if self.scales_input:
                out[tokens] += self.expert.forward(inner[tokens] * weight, expert)
            else:
                out[tokens] += self.expert.forward(inner[tokens], expert) * weight
        if self.d_latent is not None:
            out = run.linear("from_latent", out)  # [S, W] -> [S, D]
        if self.output_bias:
            out = out + run.weight("output_bias")
        return out + self._shared_output(x, run) if self.shared_expert is not None else out

    def _shared_output(self, x: Array, run: Run) -> Array:
        shared: Any = self.shared_expert
        out: Array = shared.forward(x, run.under("shared"))  # [S, D]
        return out * sigmoid(run.linear("shared_gate", x)) if self.shared_gate else out

    def _logits(self, x: Array, run: Run) -> Array:
        if self.router_norm is not None:
            x = self.router_norm.forward(x, run, "router.norm")
        logits = run.linear("router", x)  # [S, D] -> [S, E]
        return logits if self.router_scale is None else logits * self.router_scale

    def _choice(self, logits: Array, run: Run) -> tuple[Array, Array]:
        """The k experts of every token and their weights: [S, E] -> [S, k], [S, k]."""
        if self.scoring == "sparsemixer":
            return self._sparsemixer(logits)
        scores = self._scores(logits)  # [S, E]
        if self.hash_rows is not None:
            experts = run.rows("router.experts_of_token", run.tokens).astype(int)  # [S, k]
        else:
            experts = self._best(scores + run.weight("router.correction") if self.correction_bias else scores)
        weights = np.take_along_axis(scores, experts, axis=-1)  # [S, k]
        if self.scoring == "softmax_of_chosen":
            weights = softmax(weights)
        elif self.normalised:
            weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
        weights = weights * self.routed_scale
        if self.expert_scale:
            weights = weights * run.weight("router.expert_scale")[experts]
        return experts, weights

    def _scores(self, logits: Array) -> Array:
        match self.scoring:
            case "softmax":
                return softmax(logits)
            case "sigmoid":
                return sigmoid(logits)
            case "sqrt_softplus":
                return np.asarray(np.sqrt(softplus(logits)))
        return logits  # their softmax is taken over the chosen ones

    def _best(self, scores: Array) -> Array:
        """The k experts with the highest scores, from the best groups only: [S, E] -> [S, k]."""
        if self.n_groups is not None and self.top_k_groups is not None:
            grouped = scores.reshape(len(scores), self.n_groups, -1)  # [S, groups, E / groups]
            counted = 1 if self.group_score == "best" else 2
            by_group = np.sort(grouped, axis=-1)[..., -counted:].sum(axis=-1)  # [S, groups]
            kept = np.argsort(-by_group, axis=-1, kind="stable")[:, : self.top_k_groups]  # [S, top_k_groups]
            allowed = np.zeros(by_group.shape, bool)
            np.put_along_axis(allowed, kept, True, axis=-1)
            scores = np.where(allowed[..., None], grouped, -np.inf).reshape(scores.shape)
        return np.argsort(-scores, axis=-1, kind="stable")[:, : self.top_k]

    def _sparsemixer(self, logits: Array) -> tuple[Array, Array]:
        """Best expert, then the best of the rest, weighed among those near it (Liu et al. 2024, GRIN, section 2)."""
        experts, weights, left = [], [], logits
        for _ in range(self.top_k):
            best = left.max(axis=-1, keepdims=True)  # [S, 1]
            far = (best - logits) / np.maximum(np.abs(logits), best) > 2 * (self.router_jitter or 0.0)
            chosen = left.argmax(axis=-1)[:, None]  # [S, 1]
            experts.append(chosen)
            weights.append(np.take_along_axis(softmax(np.where(far, -np.inf, left)), chosen, axis=-1))
            left = left.copy()
            np.put_along_axis(left, chosen, -np.inf, axis=-1)
        return np.concatenate(experts, axis=-1), np.concatenate(weights, axis=-1)
