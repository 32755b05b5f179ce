"""Mixers that keep a state once more, one position and one element at a time, in float64, as `reference` does it.

What does not show in any way of running a forward, such as a state that never decays, shows against this.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planner.components.arrays import Array
from planner.components.gated_recurrence import GatedRecurrence
from planner.components.linear_attention import GatedDeltaNet, KimiDeltaAttention, LightningAttention
from planner.components.short_convolution import ShortConvolution
from planner.components.side_by_side import SideBySide
from planner.components.state_space import Mamba, Mamba2
from planner.witness import reference
from planner.witness.reference_elements import Weights, activated, linear, normed


def output(branch: Any, x: Array, w: Weights, owner: Weights, layer: tuple[int, int]) -> Array | None:
    """What a branch gives on [S, D], or None for a kind not written here. `layer`: which it is, of how many."""
    match branch:
        case SideBySide():
            return _side_by_side(branch, x, w, owner, layer)
        case Mamba():
            return _mamba(branch, x, w)
        case Mamba2():
            return _mamba2(branch, x, w)
        case GatedDeltaNet():
            return _delta_net(branch, x, w)
        case KimiDeltaAttention():
            return _kimi_delta(branch, x, w)
        case LightningAttention():
            return _lightning(branch, x, w, layer)
        case GatedRecurrence():
            return _gated_recurrence(branch, x, w)
        case ShortConvolution():
            return _short_convolution(x, w)
    return None


def _rows(w: Weights, id: str, x: Array) -> Array:
    return np.stack([linear(w, id, row) for row in x])


def _convolved(x: Array, w: Weights, id: str = "conv") -> Array:
    weight, bias = w(f"{id}.weight"), w(f"{id}.bias")
    out = np.zeros_like(x) + (0 if bias is None else bias)
    for t in range(len(x)):
        for back in range(min(weight.shape[-1], t + 1)):
            out[t] += weight[:, 0, -1 - back] * x[t - back]
    return out


def _softplus(x: float) -> float:
    return x if x > 30 else math.log1p(math.exp(x))


def _side_by_side(m: SideBySide, x: Array, w: Weights, owner: Weights, layer: tuple[int, int]) -> Array | None:
    total = np.zeros_like(x)
    for i, mixer in enumerate(m.mixers):
        read = x if m.input_scales is None else x * m.input_scales[i]
        own, other = (lambda id, i=i, of=of: of(f"mixers[{i}].{id}") for of in (w, owner))
        out = output(mixer, read, own, other, layer)
        out = reference.output(mixer, read, own, other) if out is None else out
        if out is None:
            return None
        total = total + out * (1 if m.output_scales is None else m.output_scales[i])
    return total


def _mamba(m: Mamba, x: Array, w: Weights) -> Array:
    both = _rows(w, "in", x)
    inner, a = activated("silu", _convolved(both[:, : m.d_inner], w)), -np.exp(w("a_log"))
    h, y = np.zeros((m.d_inner, m.d_state)), np.zeros_like(inner)
    for t, u in enumerate(inner):
        low, b, c = np.split(linear(w, "x", u), [m.dt_rank, m.dt_rank + m.d_state])
        if m.inner_norm is not None:
            low, b, c = (
                normed(m.inner_norm, part, w(f"{id}.weight"), w(f"{id}.bias"))
                for id, part in (("dt_norm", low), ("b_norm", b), ("c_norm", c))
            )
        for channel, raw in enumerate(linear(w, "dt", low)):
            step = _softplus(raw)
            for n in range(m.d_state):
                h[channel, n] = math.exp(step * a[channel, n]) * h[channel, n] + step * b[n] * u[channel]
                y[t, channel] += c[n] * h[channel, n]
            y[t, channel] += w("d")[channel] * u[channel]
    return _rows(w, "out", y * activated("silu", both[:, m.d_inner :]))


def _mamba2(m: Mamba2, x: Array, w: Weights) -> Array:
    inner, shared = m.n_heads * m.head_dim, m.n_groups * m.d_state
    widths = (inner, inner, shared, shared, m.n_heads)
    scales = np.repeat((1,) * 5 if m.scales is None else m.scales, widths)
    z, *read, steps = np.split(_rows(w, "in", x) * scales, np.cumsum(widths)[:-1], axis=-1)
    mixed = activated("silu", _convolved(np.concatenate(read, axis=-1), w))
    u, b, c = np.split(mixed, [inner, inner + shared], axis=-1)
    u, b, c = u.reshape(len(x), m.n_heads, -1), *(part.reshape(len(x), m.n_groups, -1) for part in (b, c))
    h, y = np.zeros((m.n_heads, m.head_dim, m.d_state)), np.zeros_like(u)
    for t in range(len(x)):
        for head in range(m.n_heads):
            group = head // (m.n_heads // m.n_groups)
            step = _softplus(steps[t, head] + w("dt_bias")[head])
            decay = math.exp(-step * math.exp(w("a_log")[head]))
            for p in range(m.head_dim):
                h[head, p] = decay * h[head, p] + step * u[t, head, p] * b[t, group]
                y[t, head, p] = sum(h[head, p] * c[t, group]) + w("d")[head] * u[t, head, p]
    gated = zip(y.reshape(len(x), -1), activated("silu", z), strict=True)
    return _rows(w, "out", np.stack([_gated(m, row, gate, w) for row, gate in gated]))


def _gated(m: Mamba2, y: Array, gate: Array, w: Weights) -> Array:
    if m.norm is None:
        return y * gate
    y = y if m.norm_before_gate else y * gate
    parts, weight = m.n_groups if m.norm_by_group else 1, w("norm.weight")
    weights = [None] * parts if weight is None else np.split(weight, parts)
    pieces = zip(np.split(y, parts), weights, strict=True)
    y = np.concatenate([normed(m.norm, piece, gain, None) for piece, gain in pieces])
    return y * gate if m.norm_before_gate else y


def _delta_net(m: GatedDeltaNet, x: Array, w: Weights) -> Array:
    keys, share = m.n_key_heads * m.key_head_dim, m.n_value_heads // m.n_key_heads
    qkv = np.split(activated("silu", _convolved(_rows(w, "qkv", x), w)), [keys, 2 * keys], axis=-1)
    q, k, v = (part.reshape(len(x), -1, width) for part, width in zip(qkv, _widths(m), strict=True))
    z, state = _rows(w, "z", x).reshape(v.shape), np.zeros((m.n_value_heads, m.value_head_dim, m.key_head_dim))
    out = np.zeros_like(v)
    for t, row in enumerate(x):
        beta = activated("sigmoid", linear(w, "b", row))
        for head, raw in enumerate(linear(w, "a", row) + w("dt_bias")):
            alpha = math.exp(-math.exp(w("a_log")[head]) * _softplus(raw))
            key, query = (row / math.sqrt(sum(row * row) + 1e-6) for row in (k[t, head // share], q[t, head // share]))
            erased = np.eye(m.key_head_dim) - beta[head] * np.outer(key, key)
            state[head] = alpha * state[head] @ erased + beta[head] * np.outer(v[t, head], key)
            read = normed(m.norm, state[head] @ query / math.sqrt(m.key_head_dim), w("norm.weight"), None)
            out[t, head] = read * activated("silu", z[t, head])
    return _rows(w, "out", out.reshape(len(x), -1))


def _widths(m: GatedDeltaNet) -> tuple[int, int, int]:
    return m.key_head_dim, m.key_head_dim, m.value_head_dim


def _kimi_delta(m: KimiDeltaAttention, x: Array, w: Weights) -> Array:
    heads = (len(x), m.n_heads, m.head_dim)
    q, k, v = (activated("silu", _convolved(_rows(w, id, x), w, f"{id}.conv")).reshape(heads) for id in ("q", "k", "v"))
    raw = (_rows(w, "decay_b", _rows(w, "decay_a", x)) + w("dt_bias")).reshape(heads)
    gate = activated("sigmoid", _rows(w, "gate_b", _rows(w, "gate_a", x))).reshape(heads)
    out, state = np.zeros_like(v), np.zeros((m.n_heads, m.head_dim, m.head_dim))
    for t, row in enumerate(x):
        beta = activated("sigmoid", linear(w, "b", row))
        for head in range(m.n_heads):
            alpha = np.array([math.exp(-math.exp(w("a_log")[head]) * _softplus(a)) for a in raw[t, head]])
            key, query = (part / math.sqrt(sum(part * part) + 1e-6) for part in (k[t, head], q[t, head]))
            erased = np.eye(m.head_dim) - beta[head] * np.outer(key, key)
            state[head] = erased @ np.diag(alpha) @ state[head] + beta[head] * np.outer(key, v[t, head])
            read = normed(m.norm, query @ state[head] / math.sqrt(m.head_dim), w("norm.weight"), None)
            out[t, head] = read * gate[t, head]
    return _rows(w, "o", out.reshape(len(x), -1))


def _lightning(m: LightningAttention, x: Array, w: Weights, layer: tuple[int, int]) -> Array:
    number, depth = layer
    q, k, v = np.split(activated("silu", _rows(w, "qkv", x)).reshape(len(x), m.n_heads, -1), 3, axis=-1)
    out, state = np.zeros_like(v), np.zeros((m.n_heads, m.head_dim, m.head_dim))
    for t in range(len(x)):
        for head in range(m.n_heads):
            rate = 0.5 ** (8 * (head + 1) / m.n_heads) * (1 - number / (depth - 1 + 1e-5) + 1e-5)
            state[head] = math.exp(-rate) * state[head] + np.outer(k[t, head], v[t, head])
            out[t, head] = q[t, head] @ state[head]
    rows = [normed(m.norm, row, w("norm.weight"), w("norm.bias")) for row in out.reshape(len(x), -1)]
    return _rows(w, "o", activated("sigmoid", _rows(w, "output_gate", x)) * np.stack(rows))


def _gated_recurrence(m: GatedRecurrence, x: Array, w: Weights) -> Array:
    block = m.width // m.n_heads
    u, h = _convolved(_rows(w, "x", x), w), np.zeros(m.width)
    out = np.zeros_like(u)
    for t, row in enumerate(u):
        for channel in range(m.width):
            head, place = divmod(channel, block)
            part = row[head * block : (head + 1) * block]
            r, i = (
                1 / (1 + math.exp(-float(part @ w(f"{id}.weight")[head, :, place]) - w(f"{id}.bias")[head, place]))
                for id in ("recurrent_gate", "input_gate")
            )
            a = math.exp(-8 * r * _softplus(w("a_param")[channel]))
            h[channel] = a * h[channel] + (math.sqrt(1 - a * a) if t else 1) * i * row[channel]
        out[t] = h
    return _rows(w, "out", out * activated(m.activation, _rows(w, "y", x)))


def _short_convolution(x: Array, w: Weights) -> Array:
    b, c, h = np.split(_rows(w, "in", x), 3, axis=-1)
    return _rows(w, "out", c * _convolved(b * h, w))
