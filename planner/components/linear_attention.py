"""Linear attention: the cache is one matrix a head, whatever the length. Gated delta rule and lightning attention.

The recurrence is counted as it runs one position at a time (`recurrence` in `state_space` says how).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.bill import Bill, Operation, Tensor, linear
from planner.components.base import Mixer
from planner.components.norm import Norm
from planner.components.state_space import ROLE, recurrence, short_convolution
from planner.spec import Count, spec


@spec
class GatedDeltaNet(Mixer):
    """Gated delta net (Yang, Kautz and Hatamizadeh 2025, eq. 10) as Qwen3-Next builds it.

    Query, key and value pass a short convolution; each value head holds a state [key_head_dim, value_head_dim], and
    `n_key_heads` are shared by groups of value heads. `norm` goes over each value head and is gated by a projection.
    The delta rule reads what the state holds under a key, writes the difference, then reads out: three multiply-adds
    for each element of the state.
    """

    kind: ClassVar[str] = "gated_delta_net"
    n_key_heads: Count
    n_value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    conv_kernel: Count
    norm: Norm

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield (
            self.n_value_heads % self.n_key_heads == 0,
            "n_key_heads = {n_key_heads} does not divide n_value_heads = {n_value_heads}",
        )

    def bill(self, d_model: Any) -> Bill:
        heads, keys = self.n_value_heads, self.n_key_heads * self.key_head_dim
        values = heads * self.value_head_dim
        return Bill.of(
            linear("qkv", d_model, 2 * keys + values, ROLE, shard="heads"),
            linear("z", d_model, values, ROLE, shard="heads"),
            linear("b", d_model, heads, ROLE, shard="heads"),
            linear("a", d_model, heads, ROLE, shard="heads"),
            short_convolution(2 * keys + values, self.conv_kernel, bias=False),
            *(Tensor(id, (heads,), ROLE, ROLE, shard="heads") for id in ("dt_bias", "a_log")),
            recurrence(heads, self.key_head_dim * self.value_head_dim, accesses=3),
            self.norm.bill(self.value_head_dim),
            Operation("gate", values, "new"),
            linear("out", values, d_model, ROLE, shard="row"),
        )


@spec
class LightningAttention(Mixer):
    """Lightning attention (Qin et al. 2024, TransNormerLLM, section 3.2; MiniMax 2025, MiniMax-01, section 2.2).

    Query, key and value are passed through SiLU; each head's state [head_dim, head_dim] decays by a fixed rate, which
    follows from the head's and the layer's number. `norm` goes over all heads' output, which a sigmoid gate then
    scales. Rates and the decays made from them are buffers in one implementation and no part of a checkpoint's
    published total; they are computed and not counted.
    """

    kind: ClassVar[str] = "lightning_attention"
    n_heads: Count
    head_dim: Count
    norm: Norm

    def bill(self, d_model: Any) -> Bill:
        heads, width = self.n_heads, self.n_heads * self.head_dim
        return Bill.of(
            linear("qkv", d_model, 3 * width, "attention", shard="heads"),
            linear("output_gate", d_model, width, "attention", shard="heads"),
            recurrence(heads, self.head_dim * self.head_dim, format="model"),
            self.norm.bill(width),
            Operation("activation", 3 * width, "new"),
            Operation("gate", width, "new"),
            linear("o", width, d_model, "attention", shard="row"),
        )
