"""Selective state spaces: Mamba, whose state decays by channel, and Mamba-2, whose state decays by head.

Work of the recurrence. It is counted as it runs one position at a time, in products of component ``recurrence``: one
multiply-add for each element of the state to update it, and one to read it out (Gu and Dao 2023, algorithm 2; Dao and
Gu 2024, eq. 1). A kernel that scans chunks does other work for the same result; that is a fact about the kernel. The
exponentials that make the decay are an operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.bill import Bill, CacheEntry, Operation, Product, Shard, Tensor, linear
from planner.components.arrays import Array, activate, np, softplus
from planner.components.base import Mixer, Run
from planner.components.norm import Norm
from planner.rules import Constant
from planner.spec import Count, Scale, spec

ROLE = "ssm_conv_mixer"


def short_convolution(channels: Any, kernel: Any, *, bias: bool, shard: Shard = "column", kept: Any = None) -> Bill:
    """A causal depthwise convolution; its last inputs are a state, `kept` of them (None: as many as the kernel).

    Keeping one input more than is needed is what the common implementations do; the state has the dtype of the model,
    whatever format the attention cache has.
    """
    return Bill.of(
        Tensor("conv.weight", (channels, 1, kernel), ROLE, ROLE, shard=shard),
        Tensor("conv.bias", (channels,), "biases", ROLE, shard=shard) if bias else None,
        Product("conv", channels * kernel, "new", ROLE, ("conv.weight", "conv_state"), shard=shard),
        CacheEntry("conv_state", channels, kernel if kept is None else kept, Constant(), format="model", shard=shard),
    )


def convolved(x: Array, run: Run, *, bias: bool) -> Array:
    """What `short_convolution` makes of its inputs, each document for itself: [S, C] -> [S, C]."""
    weight, held = run.weight("conv.weight")[:, 0], run.state("conv_state")  # [C, K], [C, kept]
    kernel, kept = weight.shape[-1], held.shape[-1]
    new, tap = np.arange(len(x)), np.arange(kernel)
    rows = np.concatenate([held.T.astype(x.dtype), x])[-(len(x) + kernel - 1) :]  # [S + K - 1, C]
    windows = rows[new[:, None] + tap]  # [S, K, C] what each position reads, the oldest first
    begun = np.maximum.accumulate(np.where(run.begins, new, -kernel))  # [S] where its document began
    own = kernel - 1 - tap <= (new - begun)[:, None]  # [S, K] whether that is of the same document
    windows = np.where(own[..., None], windows, 0)
    run.keep("conv_state", windows[-1, kernel - kept :].T)  # [C, kept]
    out = run.product("conv", "skc,ck->sc", windows, weight)  # [S, C]
    return out + run.weight("conv.bias") if bias else out


def recurrence(heads: Any, width: Any, *, accesses: int = 2, format: str = "fp32", shard: Shard = "heads") -> Bill:
    """A state of `heads` x `width` elements and the work on it for each new position.

    `accesses` counts the multiply-adds for each element: one to update, one to read out, and one more for a delta rule,
    which first reads what the state holds under the new key.
    """
    elements = heads * width
    reads = ("state",)
    return Bill.of(
        CacheEntry("state", heads, width, Constant(), format=format, shard=shard),
        Product("state_recall", elements, "new", "recurrence", reads, shard=shard) if accesses == 3 else None,
        Product("state_update", elements, "new", "recurrence", reads, shard=shard),
        Product("state_readout", elements, "new", "recurrence", reads, shard=shard),
        Operation("decay", elements, "new"),
    )


def scanned(values: Array, keys: Array, queries: Array, decay: Array, run: Run) -> Array:
    """The recurrence without a delta rule: ``h_t = decay_t h_{t-1} + values_t keys_t^T; y_t = h_t queries_t``.

    values [S, H, P], keys and queries [S, H, N], decay [S, H, P or 1, N or 1] -> [S, H, P]. A document begins with
    h = 0.
    """
    added = run.product("state_update", "shp,shn->shpn", values, keys)  # [S, H, P, N]
    carried = np.where(run.begins[:, None, None, None], 0, decay)  # [S, H, P or 1, N or 1]
    state, states = run.state("state").astype(values.dtype).reshape(added.shape[1:]), []  # [H, P, N]
    for kept, new in zip(carried, added, strict=True):
        state = kept * state + new  # [H, P, N]
        states.append(state)
    run.keep("state", state)
    return run.product("state_readout", "shpn,shn->shp", np.stack(states), queries)  # [S, H, P]


@spec
class Mamba(Mixer):
    """Mamba (Gu and Dao 2023, section 3 and algorithm 2).

    `d_inner` channels hold a state of `d_state` elements each; the step width is made by a bottleneck of `dt_rank`.
    `inner_norm` goes over step width, B and C (Jamba with weights, Falcon-Mamba without).
    """

    kind: ClassVar[str] = "mamba"
    d_inner: Count
    d_state: Count
    conv_kernel: Count
    dt_rank: Count
    conv_bias: bool = True
    bias: bool = False
    inner_norm: Norm | None = None

    def bill(self, d_model: Any) -> Bill:
        inner, states, rank, norm = self.d_inner, self.d_state, self.dt_rank, self.inner_norm
        widths = {"dt_norm": rank, "b_norm": states, "c_norm": states}
        return Bill.of(
            linear("in", d_model, 2 * inner, ROLE, bias=self.bias, shard="column"),
            short_convolution(inner, self.conv_kernel, bias=self.conv_bias),
            linear("x", inner, rank + 2 * states, ROLE, shard="row"),
            *(norm.bill(width, id) for id, width in widths.items() if norm is not None),
            linear("dt", rank, inner, ROLE, bias=True, shard="column"),
            Tensor("a_log", (inner, states), ROLE, ROLE, shard="column"),
            Tensor("d", (inner,), ROLE, ROLE, shard="column"),
            recurrence(inner, states, shard="column"),
            Operation("gate", inner, "new"),
            linear("out", inner, d_model, ROLE, bias=self.bias, shard="row"),
        )

    def forward(self, x: Array, run: Run) -> Array:
        x, gate = np.split(run.linear("in", x), 2, axis=-1)  # [S, D] -> [S, C], [S, C]
        x = activate("silu", convolved(x, run, bias=self.conv_bias))  # [S, C]
        ends = [self.dt_rank, self.dt_rank + self.d_state]
        step, b, c = np.split(run.linear("x", x), ends, axis=-1)  # [S, C] -> [S, R], [S, N], [S, N]
        if self.inner_norm is not None:
            named = (("dt_norm", step), ("b_norm", b), ("c_norm", c))
            step, b, c = (self.inner_norm.forward(part, run, id) for id, part in named)
        step = softplus(run.linear("dt", step))  # [S, R] -> [S, C]
        decay = np.exp(-step[..., None] * np.exp(run.weight("a_log")))  # [S, C, N]
        y = scanned((step * x)[:, None], b[:, None], c[:, None], decay[:, None], run)[:, 0]  # [S, C], as one head
        return run.linear("out", (y + run.weight("d") * x) * activate("silu", gate))  # [S, C] -> [S, D]


@spec
class Mamba2(Mixer):
    """Mamba-2 (Dao and Gu 2024, sections 6 and 7.1; section 7.2 on the shards of heads and groups).

    Each of `n_heads` holds a state [head_dim, d_state]; B and C are shared by the heads of a group. `norm` is the norm
    on the gated output, over all channels or, with `norm_by_group`, over each group's; with `norm_before_gate` the
    gate comes after it. `scales` multiply gate, input, B, C and step width as they leave the first matrix (Falcon-H1).
    """

    kind: ClassVar[str] = "mamba2"
    n_heads: Count
    head_dim: Count
    d_state: Count
    n_groups: Count = 1
    conv_kernel: Count
    conv_bias: bool = True
    bias: bool = False
    norm: Norm | None = None
    norm_by_group: bool = False
    norm_before_gate: bool = False
    scales: tuple[Scale, ...] | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.n_heads % self.n_groups == 0, "n_groups = {n_groups} does not divide n_heads = {n_heads}"
        yield (
            self.scales is None or len(self.scales) == 5,
            "scales has not five entries: gate, input, B, C and step width",
        )

    def bill(self, d_model: Any) -> Bill:
        heads, width, states, groups = self.n_heads, self.head_dim, self.d_state, self.n_groups
        inner, channels = heads * width, heads * width + 2 * groups * states
        return Bill.of(
            linear("in", d_model, inner + channels + heads, ROLE, bias=self.bias, shard="heads"),
            short_convolution(channels, self.conv_kernel, bias=self.conv_bias),
            *(Tensor(id, (heads,), ROLE, ROLE, shard="heads") for id in ("dt_bias", "a_log", "d")),
            recurrence(heads, width * states),
            self.norm.bill(inner) if self.norm is not None else None,
            Operation("gate", inner, "new"),
            linear("out", inner, d_model, ROLE, bias=self.bias, shard="row"),
        )

    def forward(self, x: Array, run: Run) -> Array:
        heads, groups, inner = self.n_heads, self.n_groups, self.n_heads * self.head_dim
        shared = groups * self.d_state  # the width of B, and of C
        ends = np.cumsum([inner, inner, shared, shared])
        parts = np.split(run.linear("in", x), ends, axis=-1)  # [S, D] -> gate, x, B, C [S, ...], step width [S, H]
        if self.scales is not None:
            parts = [part * scale for part, scale in zip(parts, self.scales, strict=True)]
        gate, *read, step = parts
        mixed = activate("silu", convolved(np.concatenate(read, axis=-1), run, bias=self.conv_bias))  # [S, ...]
        x, b, c = np.split(mixed, [inner, inner + shared], axis=-1)
        x = x.reshape(len(x), heads, -1)  # [S, H, P]
        b, c = (np.repeat(part.reshape(len(x), groups, -1), heads // groups, axis=1) for part in (b, c))  # [S, H, N]
        step = softplus(step + run.weight("dt_bias"))[..., None]  # [S, H, 1]
        decay = np.exp(-step * np.exp(run.weight("a_log"))[:, None])[..., None]  # [S, H, 1, 1]
        y = scanned(step * x, b, c, decay, run) + run.weight("d")[:, None] * x  # [S, H, P]
        y = self._gated(y.reshape(len(x), -1), activate("silu", gate), run)  # [S, H * P]
        return run.linear("out", y)  # [S, H * P] -> [S, D]

    def _gated(self, y: Array, gate: Array, run: Run) -> Array:
        """The output [S, H * P] with its gate and its norm, in the order that the contract says."""
        if self.norm is None:
            return y * gate
        groups = self.n_groups if self.norm_by_group else 1
        if self.norm_before_gate:
            return self.norm.forward(y, run, groups=groups) * gate
        return self.norm.forward(y * gate, run, groups=groups)
