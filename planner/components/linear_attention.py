"""Linear attention: the cache is one matrix a head, whatever the length. Gated delta rules and lightning attention.

The recurrence is counted as it runs one position at a time (`recurrence` in `state_space` says how).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.bill import Bill, Operation, Tensor, linear
from planner.components.arrays import Array, activate, np, sigmoid, softplus
from planner.components.base import Mixer, Run
from planner.components.norm import Norm
from planner.components.state_space import ROLE, convolved, recurrence, scanned, short_convolution
from planner.spec import Count, spec

UNIT_EPS = 1e-6
"""Added to the square of a query's or key's length before it is brought to 1 (`modeling_qwen3_next.py`)."""


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
            self.norm.bill(self.value_head_dim, vectors=heads),
            Operation("gate", values, "new"),
            linear("out", values, d_model, ROLE, shard="row"),
        )

    def forward(self, x: Array, run: Run) -> Array:
        keys = self.n_key_heads * self.key_head_dim
        gate = activate("silu", run.linear("z", x))  # [S, D] -> [S, H * d_v]
        beta = sigmoid(run.linear("b", x))  # [S, D] -> [S, H] how much of the difference is written
        step = softplus(run.linear("a", x) + run.weight("dt_bias"))  # [S, D] -> [S, H]
        decay = np.exp(-step * np.exp(run.weight("a_log")))  # [S, H]
        qkv = activate("silu", convolved(run.linear("qkv", x), run, bias=False))  # [S, D] -> [S, 2 G * d_k + H * d_v]
        q, k, v = np.split(qkv, [keys, 2 * keys], axis=-1)
        q, k = (self._by_value_head(part) for part in (q, k))  # [S, H, d_k]
        v = v.reshape(len(x), self.n_value_heads, -1)  # [S, H, d_v]
        out = _delta_rule(q * self.key_head_dim**-0.5, k, v, beta, decay[..., None], run)  # [S, H, d_v]
        out = self.norm.forward(out, run)
        return run.linear("out", out.reshape(len(x), -1) * gate)  # [S, H * d_v] -> [S, D]

    def _by_value_head(self, x: Array) -> Array:
        """Queries or keys of length 1, which neighbours share: [S, G * d_k] -> [S, H, d_k]."""
        heads = _unit(x.reshape(len(x), self.n_key_heads, -1))  # [S, G, d_k]
        return np.repeat(heads, self.n_value_heads // self.n_key_heads, axis=1)


def _unit(x: Array) -> Array:
    """Vectors of length 1 along the last axis."""
    return np.asarray(x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + UNIT_EPS))


def _delta_rule(q: Array, k: Array, v: Array, beta: Array, decay: Array, run: Run) -> Array:
    """``S' = decay_t S_{t-1}; S_t = S' + beta_t k_t (v_t - S'^T k_t)^T; o_t = S_t^T q_t``.

    That is Yang et al. 2025, eq. 10, transposed. q and k [S, H, d_k], v [S, H, d_v], beta [S, H], decay [S, H, d_k or
    1] -> [S, H, d_v]. A document begins with S = 0.
    """
    carried = np.where(run.begins[:, None, None], 0, decay)[..., None]  # [S, H, d_k or 1, 1]
    state, out = run.state("state").astype(v.dtype).reshape(*k.shape[1:], -1), []  # [H, d_k, d_v]
    for t in range(len(v)):
        state = carried[t] * state  # [H, d_k, d_v]
        held = run.product("state_recall", "hkv,hk->hv", state, k[t])  # [H, d_v]
        change = beta[t, :, None] * (v[t] - held)  # [H, d_v]
        state = state + run.product("state_update", "hk,hv->hkv", k[t], change)  # [H, d_k, d_v]
        out.append(run.product("state_readout", "hkv,hk->hv", state, q[t]))  # [H, d_v]
    run.keep("state", state)
    return np.stack(out)


@spec
class KimiDeltaAttention(Mixer):
    """Kimi delta attention (Kimi Team 2025, Kimi Linear, sections 3 and 4): each channel of a key decays on its own.

    Query, key and value pass a short convolution each. The decay of `n_heads` x `head_dim` channels and the sigmoid
    gate of the output are projections through a bottleneck of `head_dim`. `norm` goes over each head. The work is that
    of the gated delta net.
    """

    kind: ClassVar[str] = "kimi_delta_attention"
    n_heads: Count
    head_dim: Count
    conv_kernel: Count
    norm: Norm

    def bill(self, d_model: Any) -> Bill:
        heads, rank = self.n_heads, self.head_dim
        width = heads * self.head_dim
        convolution = short_convolution(width, self.conv_kernel, bias=False)
        return Bill.of(
            *(linear(id, d_model, width, "attention", shard="heads") for id in "qkv"),
            *(convolution.under(id) for id in "qkv"),
            linear("b", d_model, heads, "attention", shard="heads"),
            *(linear(f"{id}_a", d_model, rank, "attention") for id in ("decay", "gate")),
            *(linear(f"{id}_b", rank, width, "attention", shard="heads") for id in ("decay", "gate")),
            Tensor("dt_bias", (width,), ROLE, ROLE, shard="heads"),
            Tensor("a_log", (heads,), ROLE, ROLE, shard="heads"),
            recurrence(heads, self.head_dim * self.head_dim, accesses=3),
            self.norm.bill(self.head_dim, vectors=heads),
            Operation("gate", width, "new"),
            linear("o", width, d_model, "attention", shard="row"),
        )

    def forward(self, x: Array, run: Run) -> Array:
        q, k, v = (self._heads(convolved(run.linear(id, x), run.under(id), bias=False)) for id in "qkv")  # [S, H, d]
        q, k, v = _unit(activate("silu", q)) * self.head_dim**-0.5, _unit(activate("silu", k)), activate("silu", v)
        beta = sigmoid(run.linear("b", x))  # [S, D] -> [S, H] how much of the difference is written
        step = softplus(run.linear("decay_b", run.linear("decay_a", x)) + run.weight("dt_bias"))  # [S, D] -> [S, H * d]
        decay = np.exp(-self._heads(step) * np.exp(run.weight("a_log"))[:, None])  # [S, H, d]
        gate = sigmoid(run.linear("gate_b", run.linear("gate_a", x)))  # [S, D] -> [S, H * d]
        out = self.norm.forward(_delta_rule(q, k, v, beta, decay, run), run)  # [S, H, d]
        return run.linear("o", out.reshape(len(x), -1) * gate)  # [S, H * d] -> [S, D]

    def _heads(self, x: Array) -> Array:
        """[S, H * d] -> [S, H, d]."""
        return x.reshape(len(x), self.n_heads, -1)


DEPTH_EPS = 1e-5
"""Keeps the last layer's rates above 0, and those of a single layer finite (`modeling_minimax.py`)."""


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

    def forward(self, x: Array, run: Run) -> Array:
        gate = sigmoid(run.linear("output_gate", x))  # [S, D] -> [S, H * d]
        qkv = activate("silu", run.linear("qkv", x)).reshape(len(x), self.n_heads, -1)  # [S, D] -> [S, H, 3 d]
        q, k, v = np.split(qkv, 3, axis=-1)  # [S, H, d]
        decay = np.exp(-self.rates(run.number, run.n_layers)).astype(x.dtype)  # [H]
        out = scanned(v, k, q, decay[:, None, None], run)  # [S, H, d]
        return run.linear("o", self.norm.forward(out.reshape(len(x), -1), run) * gate)  # [S, H * d] -> [S, D]

    def rates(self, layer: int, n_layers: int) -> Array:
        """[H] how fast heads forget: as ALiBi's slopes, and less the deeper the layer (`modeling_minimax.py`)."""
        depth = 1 - layer / (n_layers - 1 + DEPTH_EPS) + DEPTH_EPS
        return np.asarray(2.0 ** (-8 * np.arange(1, self.n_heads + 1) / self.n_heads) * depth)
