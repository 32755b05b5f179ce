"""A gated short convolution as the whole mixer (LFM2): it keeps its last inputs and nothing else."""

from __future__ import annotations

from typing import Any, ClassVar

from planner.bill import Bill, Operation, linear
from planner.components import state_space
from planner.components.arrays import Array, np
from planner.components.base import Mixer, Run
from planner.spec import Count, spec


@spec
class ShortConvolution(Mixer):
    """``(B, C, h) = x W_in; y = (C * conv(B * h)) W_out`` (Liquid AI 2025, LFM2, section 2; `modeling_lfm2.py`)."""

    kind: ClassVar[str] = "short_convolution"
    conv_kernel: Count
    bias: bool = False

    def bill(self, d_model: Any) -> Bill:
        role = state_space.ROLE
        return Bill.of(
            linear("in", d_model, 3 * d_model, role, bias=self.bias, shard="column"),
            state_space.short_convolution(d_model, self.conv_kernel, bias=self.bias),
            Operation("gate", 2 * d_model, "new"),
            linear("out", d_model, d_model, role, bias=self.bias, shard="row"),
        )

    def forward(self, x: Array, run: Run) -> Array:
        b, c, h = np.split(run.linear("in", x), 3, axis=-1)  # [S, D] -> [S, D] each
        return run.linear("out", c * state_space.convolved(b * h, run, bias=self.bias))  # [S, D] -> [S, D]
