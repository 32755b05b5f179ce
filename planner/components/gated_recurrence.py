"""The real-gated linear recurrent unit (RG-LRU) of Griffin and RecurrentGemma: one number of state a channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.arithmetic import exact_div
from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.base import Mixer
from planner.components.feed_forward import Activation
from planner.components.state_space import ROLE, short_convolution
from planner.rules import Constant
from planner.spec import Count, spec


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
