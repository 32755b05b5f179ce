"""Attention and feed-forward once more, one token and one head at a time, in float64: slow, plain, and of its own.

It reads the contract's fields and the weights, and shares nothing with the forwards. What a forward gets wrong in
every way of running it, such as a dropped scale or a wrong head, shows against this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from planner.components.arrays import Array
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.position import Alibi, Rope
from planner.components.sparse_attention import SparseLatentAttention
from planner.witness.reference_elements import (
    Weights,
    activated,
    best,
    linear,
    normed,
    sharpened,
    sigmoid,
    slopes,
    turned,
    weighed,
)


def output(branch: Any, x: Array, w: Weights, owner: Weights, owner_x: Array | None = None) -> Array | None:
    """What a branch gives on [S, D], or None for a kind not written here.

    `owner` makes the keys and values that it reads, from `owner_x` where it is another layer's.
    """
    if type(branch) is DenseAttention:
        return dense(branch, x, w, owner, x if owner_x is None else owner_x)
    if type(branch) is LatentAttention:
        return _latent(branch, x, w, [range(p + 1) for p in range(len(x))])
    if type(branch) is SparseLatentAttention and branch.own_index:
        return _latent(branch, x, w, _indexed(branch, x, w))
    if type(branch) is FeedForward:
        return np.stack([feed_forward(branch, row, w) for row in x])
    if type(branch) is Mixture and branch.hash_rows is None:
        return np.stack([mixture(branch, row, w) for row in x])
    return None


def dense(m: DenseAttention, x: Array, w: Weights, owner: Weights, owner_x: Array) -> Array:
    """Attention with full heads, query by query: [S, D] -> [S, D]."""
    length, last = len(x), len(x) - 1
    scale = m.head_dim**-0.5 if m.scale is None else m.scale

    def heads(id: str, own: Weights, read: Array, count: int) -> Array:
        """[S, count, width] of a projection."""
        rows = np.stack([linear(own, id, row) for row in read])
        rows = rows if m.qkv_clip is None else np.minimum(np.maximum(rows, -m.qkv_clip), m.qkv_clip)
        return rows.reshape(length, count, -1)

    def placed(rows: Array, id: str, own: Weights) -> Array:
        """Queries or keys with their norm and their rotation."""
        weight, bias = own(f"{id}.weight"), own(f"{id}.bias")

        def levelled(row: Array) -> Array:
            if m.qk_norm is None:
                return row
            if m.qk_norm_over == "whole":
                return normed(m.qk_norm, row.reshape(-1), weight, bias).reshape(row.shape)
            gains = weight if m.qk_norm_over == "heads" and weight is not None else [weight] * len(row)
            return np.stack([normed(m.qk_norm, h, gain, bias) for h, gain in zip(row, gains, strict=True)])

        def rotated(row: Array, p: int) -> Array:
            return np.stack([turned(m.position, h, p, last) for h in row])

        after = m.qk_norm_after_position
        return np.stack([levelled(rotated(r, p)) if after else rotated(levelled(r), p) for p, r in enumerate(rows)])

    q = heads("q", w, x, m.n_heads)
    gate = q[..., m.head_dim :]
    q = placed(q[..., : m.head_dim], "q_norm", w)
    raw_k = heads("k", owner, owner_x, m.n_kv_heads)
    v = raw_k if m.v_from_k else heads("v", owner, owner_x, m.n_kv_heads)
    k = placed(raw_k, "k_norm", owner)
    if m.v_norm is not None:
        v = np.stack([[normed(m.v_norm, h, owner("v_norm.weight"), None) for h in row] for row in v])
    v = v if m.value_scale is None else v * m.value_scale
    sinks, penalties = w("sinks"), slopes(m.position, m.n_heads) if isinstance(m.position, Alibi) else None
    out = np.zeros((length, m.n_heads, v.shape[-1]))
    for p in range(length):
        stretch = 1.0
        if m.temperature is not None:
            stretch = 1 + m.temperature.slope * math.log(1 + (p + m.temperature.first) // m.temperature.interval)
        for h in range(m.n_heads):
            g = h // (m.n_heads // m.n_kv_heads) if m.kv_map == "grouped" else h % m.n_kv_heads
            scores = {}
            for j in range(p + 1):
                if m.window is not None and p - j >= m.window:
                    continue
                if m.chunk is not None and p // m.chunk != j // m.chunk:
                    continue
                score = scale * stretch * float(q[p, h] @ k[j, g])
                score = score if m.soft_cap is None else m.soft_cap * math.tanh(score / m.soft_cap)
                if penalties is not None and isinstance(m.position, Alibi):
                    score += penalties[h] * (j - p) * (scale if m.position.scaled_with_scores else 1)
                scores[j] = score
            out[p, h] = weighed(scores, v[:, g], None if sinks is None else float(sinks[h]))
    if m.output_gate:
        out = out / (1 + np.exp(-gate))
    if m.head_gate is not None:
        for p, row in enumerate(x):
            for h, raw in enumerate(linear(w, "head_gate", row).reshape(m.n_heads, -1)):
                out[p, h] *= [sigmoid(n) if m.head_gate == "sigmoid" else math.log1p(math.exp(n)) for n in raw]
    rows = out.reshape(length, -1)
    if m.output_norm is not None:
        rows = np.stack([normed(m.output_norm, row, w("output_norm.weight"), w("output_norm.bias")) for row in rows])
    return np.stack([linear(w, "o", row) for row in rows])


def _latent(m: LatentAttention, x: Array, w: Weights, read: Sequence[Iterable[int]]) -> Array:
    """`read`: the positions that each query reads."""
    length, last, n = len(x), len(x) - 1, m.nope_head_dim
    scale = (n + m.rope_head_dim) ** -0.5 * sharpened(m.position) if m.scale is None else m.scale
    up = w("kv_b.weight").reshape(m.n_heads, n + m.v_head_dim, m.kv_lora_rank)
    queries, keys, values = [], [], []
    for p, row in enumerate(x):
        inner = linear(w, "q_a", row) if m.q_lora_rank is not None else row
        if m.q_lora_rank is not None:
            inner = linear(w, "q_b", normed(m.latent_norm, inner, w("q_a_norm.weight"), w("q_a_norm.bias")))
        else:
            inner = linear(w, "q", inner)
        q = inner.reshape(m.n_heads, -1)
        queries.append([[*h[:n], *turned(m.position, h[n:], p, last)] for h in q])
        both = linear(w, "kv_a", row)
        latent = normed(m.latent_norm, both[: m.kv_lora_rank], w("kv_a_norm.weight"), w("kv_a_norm.bias"))
        rope = turned(m.position, both[m.kv_lora_rank :], p, last)
        keys.append([[*(up[h, :n] @ latent), *rope] for h in range(m.n_heads)])
        values.append([up[h, n:] @ latent for h in range(m.n_heads)])
    q, k, v = np.array(queries), np.array(keys), np.array(values)
    out = np.zeros((length, m.n_heads, m.v_head_dim))
    for p in range(length):
        for h in range(m.n_heads):
            scores = {j: scale * float(q[p, h] @ k[j, h]) for j in read[p]}
            out[p, h] = weighed(scores, v[:, h], None)
    return np.stack([linear(w, "o", row) for row in out.reshape(length, -1)])


def _indexed(m: SparseLatentAttention, x: Array, w: Weights) -> list[list[int]]:
    """The positions with the best scores for each query (DeepSeek-AI 2025, DeepSeek-V3.2, eq. 1)."""
    rope, last, chosen, keys = m.position, len(x) - 1, [], []
    if isinstance(rope, Rope):
        rope = replace(rope, width=m.rope_head_dim, interleaved=m.index_interleaved)
    for p, row in enumerate(x):
        key = normed(m.index_norm, linear(w, "indexer.k", row), w("indexer.k_norm.weight"), w("indexer.k_norm.bias"))
        keys.append(turned(rope, key, p, last))
        latent = normed(m.latent_norm, linear(w, "q_a", row), w("q_a_norm.weight"), w("q_a_norm.bias"))
        queries = [turned(rope, q, p, last) for q in linear(w, "indexer.q", latent).reshape(m.index_heads, -1)]
        weights = linear(w, "indexer.head_weights", row)
        scores = [sum(a * max(float(q @ k), 0.0) for a, q in zip(weights, queries, strict=True)) for k in keys]
        chosen.append(best(scores, m.index_top_k))
    return chosen


def feed_forward(f: FeedForward, x: Array, w: Weights) -> Array:
    """A feed-forward on one token: [D] -> [D]."""
    up = linear(w, "up", x)
    if f.gated:
        gate = linear(w, "gate", x)
        if f.sparsity is not None:
            gate = np.maximum(gate - gate.mean() - NormalDist().inv_cdf(f.sparsity) * gate.std(), 0)
        gate = gate * (1 if f.gate_scale is None else f.gate_scale)
        if f.clip is not None:
            gate, up = np.minimum(gate, f.clip), np.maximum(np.minimum(up, f.clip), -f.clip)
        gate, most = _activated(f, gate, w), math.inf if f.clip_activated is None else f.clip_activated
        up = np.minimum(gate, most) * (np.maximum(np.minimum(up, most), -most) + (f.activation == "swiglu_oai"))
    else:
        up = _activated(f, up, w)
    if f.inner_norm is not None:
        up = normed(f.inner_norm, up, w("inner_norm.weight"), w("inner_norm.bias"))
    return linear(w, "down", up) * (1 if f.output_scale is None else f.output_scale)


def _activated(f: FeedForward, x: Array, w: Weights) -> Array:
    if f.activation != "xielu":
        return activated(f.activation, x)
    beta, limit = float(w("activation.beta")[0]), float(w("activation.eps")[0])
    p, n = (math.log1p(math.exp(float(w(f"activation.alpha_{sign}")[0]))) for sign in "pn")  # Huang and Schlag 2024
    grown = [p * v**2 if v > 0 else (beta + n) * (math.exp(min(v, limit)) - 1 - v) for v in x.tolist()]
    return np.array(grown) + beta * x


def mixture(m: Mixture, x: Array, w: Weights, router_input: Array | None = None) -> Array:
    """A mixture of experts on one token, whose router may read something else: [D] -> [D]."""
    inner = x if m.d_latent is None else linear(w, "to_latent", x)
    out = np.zeros_like(inner)
    for expert, weight in _chosen(m, x if router_input is None else router_input, w).items():
        own = _of_expert(w, expert)
        read = inner * weight if m.scales_input else inner
        out = out + feed_forward(m.expert, read, own) * (1 if m.scales_input else weight)
    if m.d_latent is not None:
        out = linear(w, "from_latent", out)
    if m.output_bias:
        out = out + w("output_bias")
    if m.shared_expert is not None:
        shared = feed_forward(m.shared_expert, x, lambda id: w(f"shared.{id}"))
        out = out + shared * (1 / (1 + np.exp(-linear(w, "shared_gate", x))) if m.shared_gate else 1)
    return out


def _of_expert(w: Weights, expert: int) -> Weights:
    def own(id: str) -> Any:
        stacked = w(f"experts.{id}")
        return None if stacked is None else stacked[expert]

    return own


def _chosen(m: Mixture, x: Array, w: Weights) -> dict[int, float]:
    """One token's experts and their weights."""
    read = x if m.router_norm is None else normed(m.router_norm, x, w("router.norm.weight"), None)
    logits = [float(n) for n in linear(w, "router", read) * (1 if m.router_scale is None else m.router_scale)]
    if m.scoring == "sparsemixer":
        return _near_the_best(logits, m.top_k, 2 * (m.router_jitter or 0))
    scores = {
        "softmax": lambda: [math.exp(n) / sum(map(math.exp, logits)) for n in logits],
        "sigmoid": lambda: [1 / (1 + math.exp(-n)) for n in logits],
        "softmax_of_chosen": lambda: logits,
        "sqrt_softplus": lambda: [math.sqrt(math.log1p(math.exp(n))) for n in logits],
    }[m.scoring]()
    correction = w("router.correction") if m.correction_bias else None
    ranked = [score + (0 if correction is None else float(correction[e])) for e, score in enumerate(scores)]
    allowed = set(range(m.n_experts))
    if m.n_groups is not None and m.top_k_groups is not None:
        size, best = m.n_experts // m.n_groups, 1 if m.group_score == "best" else 2
        groups = [range(g * size, (g + 1) * size) for g in range(m.n_groups)]
        value = [sum(sorted((ranked[e] for e in group), reverse=True)[:best]) for group in groups]
        kept = sorted(range(m.n_groups), key=lambda g: -value[g])[: m.top_k_groups]
        allowed = {e for g in kept for e in groups[g]}
    experts = sorted(allowed, key=lambda e: -ranked[e])[: m.top_k]
    weights = {e: scores[e] for e in experts}
    if m.scoring == "softmax_of_chosen":
        weights = {e: math.exp(score) / sum(math.exp(scores[o]) for o in experts) for e, score in weights.items()}
    elif m.normalised:
        weights = {e: score / sum(scores[o] for o in experts) for e, score in weights.items()}
    scale = w("router.expert_scale") if m.expert_scale else None
    return {e: s * m.routed_scale * (1 if scale is None else float(scale[e])) for e, s in weights.items()}


def _near_the_best(logits: Sequence[float], k: int, share: float) -> dict[int, float]:
    """The best expert k times over, each weighed among those left that are near it (Liu et al. 2024, GRIN)."""
    found, left = {}, dict(enumerate(logits))
    for _ in range(k):
        first, top = max(left.items(), key=lambda item: item[1])
        near = [other for other in left.values() if (top - other) / max(abs(other), top) <= share]
        found[first] = 1 / sum(math.exp(other - top) for other in near)
        del left[first]
    return found
