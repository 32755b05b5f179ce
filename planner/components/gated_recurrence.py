"""The real-gated linear recurrent unit (RG-LRU) of Griffin and RecurrentGemma: one number of state a channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.arithmetic import exact_div
from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.arrays import Array, activate, np, sigmoid, softplus
from planner.components.base import Mixer, Run
from planner.components.feed_forward import Activation
from planner.components.state_space import ROLE, convolved, short_convolution
from planner.rules import Constant
from planner.spec import Count, spec

SHARPNESS = 8
"""c of De et al. 2024, eq. 3: an open gate raises the learned decay to this power."""


@spec
class GatedRecurrence(Mixer):
    """Griffin's recurrent block (De et al. 2024, sections 2.3 and 2.4, eq. 1 to 4).

    One branch of `width` channels passes a short convolution and the recurrence, the other an activation; their product
    is projected back. Input and recurrence gate are block-diagonal, one block for each of `n_heads`. The recurrence is
    element-wise, so it is an operation; the convolution keeps kernel - 1 inputs.
    """

    kind: ClassVar[str] = "gated_recurrence"
    width: Count
    n_heads: Count
    conv_kernel: Count
    activation: Activation = "gelu_tanh"

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.width % self.n_heads == 0, "n_heads = {n_heads} does not divide width = {width}"

    def bill(self, d_model: Any) -> Bill:
        width, heads = self.width, self.n_heads
        block = exact_div(width, heads)

        def gate(id: str) -> Bill:
            weight = Tensor(f"{id}.weight", (heads, block, block), ROLE, ROLE, shard="heads")
            bias = Tensor(f"{id}.bias", (heads, block), "biases", ROLE, shard="heads")
            return Bill.of(weight, bias, Product(id, width * block, "new", ROLE, (weight.id,), shard="heads"))

        return Bill.of(
            linear("x", d_model, width, ROLE, bias=True, shard="heads"),
            linear("y", d_model, width, ROLE, bias=True, shard="heads"),
            short_convolution(width, self.conv_kernel, bias=True, kept=self.conv_kernel - 1),
            gate("input_gate"),
            gate("recurrent_gate"),
            Tensor("a_param", (width,), ROLE, ROLE, shard="heads"),
            CacheEntry("state", heads, block, Constant(), format="fp32", shard="heads"),
            Operation("decay", width, "new"),
            Operation("state_update", width, "new"),
            Operation("gate", width, "new"),
            linear("out", width, d_model, ROLE, bias=True, shard="row"),
        )

    def forward(self, x: Array, run: Run) -> Array:
        beside = activate(self.activation, run.linear("y", x))  # [S, D] -> [S, W]
        x = convolved(run.linear("x", x), run, bias=True)  # [S, D] -> [S, W]
        log_a = -SHARPNESS * self._gate("recurrent_gate", x, run) * softplus(run.weight("a_param"))  # [S, W]
        new = run.begins[:, None]  # [S, 1]
        read = np.where(new, 1, np.sqrt(-np.expm1(2 * log_a))) * self._gate("input_gate", x, run) * x  # [S, W]
        carried = np.where(new, 0, np.exp(log_a))  # [S, W]
        state, states = run.state("state").astype(x.dtype).reshape(-1), []  # [W]
        for a, u in zip(carried, read, strict=True):
            state = a * state + u  # [W]
            states.append(state)
        run.keep("state", state)
        return run.linear("out", np.stack(states) * beside)  # [S, W] -> [S, D]

    def _gate(self, id: str, x: Array, run: Run) -> Array:
        """A sigmoid gate, block by block: [S, W] -> [S, W]."""
        blocks = x.reshape(len(x), self.n_heads, -1)  # [S, H, W / H]
        gate = run.product(id, "shi,hij->shj", blocks, run.weight(f"{id}.weight")) + run.weight(f"{id}.bias")
        return sigmoid(gate).reshape(x.shape)
