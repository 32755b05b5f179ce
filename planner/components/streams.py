"""Residuals that are more than one sum: hyper-connections (DeepSeek-V4), alternating updates and Laurel (Gemma 3n)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from planner.bill import Bill, Operation, Product, Tensor, linear
from planner.components.arrays import Array, np, sigmoid, softmax
from planner.components.base import Extra, Place, Run
from planner.components.norm import Norm
from planner.errors import UsageError
from planner.spec import Count, Scale, Spec, spec


class Steps(Protocol):
    """A layer taken apart, for residuals that are not one sum. Everything is [S, D] -> [S, D]."""

    @property
    def names(self) -> Sequence[str]:
        """Its branches."""

    def body(self, x: Array) -> Array:
        """All branches with their residual sums."""

    def branch(self, name: str, x: Array) -> tuple[Array, Array]:
        """What a branch reads, and what it adds."""

    def extra(self, place: Place, x: Array) -> Array | float:
        """What the extras in a place give."""


@spec
class Streams(Spec):
    """The residual as `n_streams` parallel streams of width d_model; every layer mixes them around its branches."""

    n_streams: Count

    def spread(self, x: Array, run: Run) -> Array:
        """The streams that the first layer reads: [S, D] -> [S, n, D]."""
        raise UsageError(f"the witness cannot run {self.kind}: its forward is not written")

    def layer(self, h: Array, steps: Steps, run: Run) -> Array:
        """One layer on the streams: [S, n, D] -> [S, n, D]."""
        raise UsageError(f"the witness cannot run {self.kind}: its forward is not written")

    def joined(self, h: Array, run: Run) -> Array:
        """What the final norm reads: [S, n, D] -> [S, D]."""
        raise UsageError(f"the witness cannot run {self.kind}: its forward is not written")

    def bill(self, d_model: Any) -> Bill:
        """What stands once at the two ends of the decoder."""
        raise AssertionError(f"{type(self).__name__} declares no bill")

    def layer_bill(self, d_model: Any, branches: int) -> Bill:
        """What stands in every layer, which has that many branches."""
        raise AssertionError(f"{type(self).__name__} declares no layer_bill")


@spec
class HyperConnections(Streams):
    """Manifold-constrained hyper-connections (Xie et al. 2025, mHC; `modeling_deepseek_v4.py`).

    From the normed streams, laid side by side, a matrix makes the weights that collapse n streams into a branch's
    input, spread its output over n streams and mix the n x n residual; the mixing weights are made doubly stochastic
    by `sinkhorn_steps`, to every sum of which `eps` is added. Another matrix collapses the streams at the end. Sums
    weighted element by element are operations.
    """

    kind: ClassVar[str] = "hyper_connections"
    sinkhorn_steps: Count
    eps: Scale
    norm: Norm

    def bill(self, d_model: Any) -> Bill:
        n = self.n_streams
        return Bill.of(
            self.norm.bill(n * d_model),
            linear("collapse", n * d_model, n, "other"),
            Tensor("base", (n,), "other", "other"),
            Tensor("scale", (1,), "other", "other"),
            Operation("collapse", n * d_model, "new"),
        )

    def layer_bill(self, d_model: Any, branches: int) -> Bill:
        n = self.n_streams
        one = Bill.of(
            self.norm.bill(n * d_model),
            linear("weights", n * d_model, (2 + n) * n, "other"),
            Tensor("base", ((2 + n) * n,), "other", "other"),
            Tensor("scale", (3,), "other", "other"),
            Product("mix", n * n * d_model, "new", "other"),
            Operation("collapse", n * d_model, "new"),
            Operation("expand", n * d_model, "new"),
            Operation("sinkhorn", self.sinkhorn_steps * n * n, "new"),
        )
        return Bill.of(*(one.under(f"branches[{i}]") for i in range(branches)))

    def spread(self, x: Array, run: Run) -> Array:
        return np.repeat(x[:, None], self.n_streams, axis=1)  # [S, D] -> [S, n, D]

    def layer(self, h: Array, steps: Steps, run: Run) -> Array:
        for i, name in enumerate(steps.names):
            part = run.under(f"branches[{i}]")
            read, written, mixing = self._weights(h, part)  # [S, n], [S, n], [S, n, n]
            _, out = steps.branch(name, (read[..., None] * h).sum(axis=1))  # [S, D]
            h = written[..., None] * out[:, None] + part.product("mix", "smd,smn->snd", h, mixing)  # [S, n, D]
        return h

    def joined(self, h: Array, run: Run) -> Array:
        logits = run.linear("collapse", self._flat(h, run)) * run.weight("scale") + run.weight("base")  # [S, n]
        return ((sigmoid(logits) + self.eps)[..., None] * h).sum(axis=1)  # [S, n, D] -> [S, D]

    def _weights(self, h: Array, run: Run) -> tuple[Array, Array, Array]:
        """What a branch reads of each stream, what it writes to each, and stream m's share in n."""
        n = self.n_streams
        parts = np.split(run.linear("weights", self._flat(h, run)), [n, 2 * n], axis=-1)  # [S, n], [S, n], [S, n * n]
        bases = np.split(run.weight("base"), [n, 2 * n])
        read, written, mixing = (s * part + b for s, part, b in zip(run.weight("scale"), parts, bases, strict=True))
        mixing = softmax(mixing.reshape(-1, n, n)) + self.eps  # [S, n, n], rows of a sum of 1
        for axis in [1, *[2, 1] * (self.sinkhorn_steps - 1)]:
            mixing = mixing / (mixing.sum(axis=axis, keepdims=True) + self.eps)
        return sigmoid(read) + self.eps, 2 * sigmoid(written), mixing

    def _flat(self, h: Array, run: Run) -> Array:
        """The streams side by side, normed: [S, n, D] -> [S, n * D]."""
        return self.norm.forward(h.reshape(len(h), -1), run)


@spec
class AltUp(Streams):
    """Alternating updates (Baykal et al. 2023, algorithm 1) as Gemma 3n builds them (`modeling_gemma3n.py`).

    A layer works on one of the streams. Before it all streams are predicted, after it corrected, with coefficients
    that a router makes from the active stream; the router runs twice. The other streams are made from the embedding by
    a matrix each, and brought back by one each.
    """

    kind: ClassVar[str] = "altup"
    norm: Norm

    def bill(self, d_model: Any) -> Bill:
        others = self.n_streams - 1
        return Bill.of(*(linear(id, d_model, d_model, "other", copies=others) for id in ("project", "unproject")))

    def layer_bill(self, d_model: Any, branches: int) -> Bill:
        n = self.n_streams
        return Bill.of(
            self.norm.bill(d_model, "router_norm"),
            Tensor("router.weight", (n, d_model), "other", "other"),
            Product("router", 2 * n * d_model, "new", "other", ("router.weight",)),
            linear("prediction", n, n * n, "other"),
            linear("correction", n, n, "other"),
            Product("mix", n * n * d_model, "new", "other"),
            Tensor("output_scale", (d_model,), "other", "other"),
            Operation("correct", n * d_model, "new"),
        )

    def spread(self, x: Array, run: Run) -> Array:
        others = [self._as_large(run.copy(i).linear("project", x), x) for i in range(self.n_streams - 1)]
        return np.stack([x, *others], axis=1)

    def layer(self, h: Array, steps: Steps, run: Run) -> Array:
        n = self.n_streams
        active = self._modalities(h[:, 0], run)  # [S, n]
        mixing = run.linear("prediction", active).reshape(-1, n, n)  # [S, n * n], the row of its stream first
        predicted = h + run.product("mix", "snd,smn->smd", h, mixing)  # [S, n, D]
        out = steps.body(predicted[:, 0])  # [S, D]
        weights = run.linear("correction", self._modalities(out, run)) + 1  # [S, n]
        corrected = predicted + weights[..., None] * (out - predicted[:, 0])[:, None]  # [S, n, D]
        term = steps.extra("end", corrected[:, 0] * run.weight("output_scale"))  # [S, D]
        return np.concatenate([corrected[:, :1], corrected[:, 1:] + np.expand_dims(term, 1)], axis=1)

    def joined(self, h: Array, run: Run) -> Array:
        others = (
            self._as_large(run.copy(i).linear("unproject", h[:, i + 1]), h[:, 0]) for i in range(self.n_streams - 1)
        )
        return np.mean([h[:, 0], *others], axis=0)

    def _modalities(self, x: Array, run: Run) -> Array:
        """What the router makes of the active stream: [S, D] -> [S, n]."""
        read = self.norm.forward(x, run, "router_norm") / x.shape[-1]
        return np.tanh(run.product("router", "sd,nd->sn", read, run.weight("router.weight")))

    def _as_large(self, x: Array, like: Array) -> Array:
        """X with the root mean square of another array."""
        size = np.sqrt(np.mean(like * like, axis=-1, keepdims=True))
        return x * size / np.sqrt(np.maximum(np.mean(x * x, axis=-1, keepdims=True), 1e-5))


@spec
class LowRankResidual(Extra):
    """Laurel (Menghani, Kumar and Kumar 2024, section 3): ``l = n + norm(n A B)`` beside attention on its input n.

    Attention's own residual sum and l are averaged: ``(x + norm(attention(n)) + l) / sqrt(2)`` (Gemma 3n).
    """

    kind: ClassVar[str] = "low_rank_residual"
    place: ClassVar[Place] = "mixer_output"
    rank: Count
    norm: Norm

    def bill(self, d_model: Any) -> Bill:
        return Bill.of(
            linear("left", d_model, self.rank, "other"),
            linear("right", self.rank, d_model, "other"),
            self.norm.bill(d_model),
        )

    def forward(self, x: Array, run: Run) -> Array:
        low = run.linear("right", run.linear("left", x))  # [S, D] -> [S, rank] -> [S, D]
        return x + self.norm.forward(low, run)
