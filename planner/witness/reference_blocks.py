"""Attention on compressed blocks and parallel streams once more, one position and one element at a time, in float64.

As in `reference`, nothing is shared with the forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planner.components.arrays import Array
from planner.components.compressed_attention import CompressedAttention
from planner.components.sparse_attention import NativeSparseAttention
from planner.components.streams import HyperConnections
from planner.witness.reference_elements import Weights, best, linear, normed, sigmoid, turned, weighed


def output(branch: Any, x: Array, w: Weights) -> Array | None:
    """What a branch gives on [S, D], or None for a kind not written here."""
    if isinstance(branch, NativeSparseAttention):
        return _native(branch, x, w)
    return _compressed(branch, x, w) if isinstance(branch, CompressedAttention) else None


def _softmax(x: Array) -> Array:
    return np.exp(x - max(x)) / sum(np.exp(x - max(x)))


def _native(m: NativeSparseAttention, x: Array, w: Weights) -> Array:
    """Yuan et al. 2025, eq. 5 to 12, query by query and head by head."""
    length, last, share = len(x), len(x) - 1, m.n_heads // m.n_kv_heads
    scale = m.head_dim**-0.5 if m.scale is None else m.scale

    def heads(id: str, count: int) -> Array:
        return np.stack([linear(w, id, row).reshape(count, -1) for row in x])

    def rotated(rows: Array, places: range) -> Array:
        return np.array([[turned(m.position, h, p, last) for h in row] for p, row in zip(places, rows, strict=True)])

    q, gates = rotated(heads("q", m.n_heads), range(length)), heads("gate", 3)
    branches = ("compressed", "selected", "window")
    k = {name: heads(f"{name}.k", m.n_kv_heads) for name in branches}
    v = {name: heads(f"{name}.v", m.n_kv_heads) for name in branches}
    starts = range(0, length - m.block + 1, m.stride)
    for id, rows in (("k", k), ("v", v)):
        matrix, places = w(f"compress_{id}.weight"), w(f"compress_{id}.places")
        rows["compressed"] = np.array(
            [
                [matrix @ (rows["compressed"][s : s + m.block, g] + places).reshape(-1) for g in range(m.n_kv_heads)]
                for s in starts
            ]
        )
    k["compressed"] = rotated(k["compressed"], starts)
    k |= {name: rotated(k[name], range(length)) for name in branches[1:]}
    out = np.zeros((length, m.n_heads, v["window"].shape[-1]))
    for p in range(length):
        complete = [e for e, s in enumerate(starts) if s + m.block <= p + 1]
        for g in range(m.n_kv_heads):
            group = range(g * share, (g + 1) * share)
            worth = np.zeros(p // m.selected_block)
            for h in group:
                logits = [scale * float(q[p, h] @ k["compressed"][e, g]) for e in complete]
                for e, weight in zip(complete, _softmax(np.array(logits)) if logits else (), strict=True):
                    for b in range(len(worth)):
                        first, end = b * m.selected_block, (b + 1) * m.selected_block
                        common = min(end, starts[e] + m.block) - max(first, starts[e])
                        worth[b] += weight * max(common, 0) / m.stride
            blocks = {p // m.selected_block, *best(list(worth), m.n_selected - 1)}
            read = {
                "compressed": complete,
                "selected": [j for j in range(p + 1) if j // m.selected_block in blocks],
                "window": range(max(p - m.window + 1, 0), p + 1),
            }
            for h in group:
                for i, name in enumerate(branches):
                    scores = {j: scale * float(q[p, h] @ k[name][j, g]) for j in read[name]}
                    if scores:
                        out[p, h] += sigmoid(gates[p, i, h]) * weighed(scores, v[name][:, g], None)
    return np.stack([linear(w, "o", row) for row in out.reshape(length, -1)])


def _compressed(m: CompressedAttention, x: Array, w: Weights) -> Array:
    """DeepSeek-AI 2026, DeepSeek-V4, section 2.3, query by query and head by head."""
    length = len(x)
    every: Any = m.compress
    index_heads: Any = m.index_heads

    def rotated(head: Array, p: int) -> Array:
        still = len(head) - m.rope_head_dim
        return np.array([*head[:still], *turned(m.position, head[still:], p, length - 1)])

    def entries(place: str) -> list[Array]:
        """The gated mean of each complete block, and of the block before it (eq. 9 to 12, 20 to 23)."""
        features = [linear(w, f"{place}.kv", row) for row in x]
        bias, found = w(f"{place}.place_bias"), []
        gates = [linear(w, f"{place}.gate", row) + bias[p % every] for p, row in enumerate(x)]
        width = len(bias[0]) // (2 if m.overlap else 1)
        for start in range(0, length - every + 1, every):
            slots = [(gates[p][-width:], features[p][-width:]) for p in range(start, start + every)]
            if m.overlap and start:
                slots += [(gates[p][:width], features[p][:width]) for p in range(start - every, start)]
            shares = np.transpose([_softmax(np.array([gate[i] for gate, _ in slots])) for i in range(width)])
            mean = sum(share * feature for share, (_, feature) in zip(shares, slots, strict=True))
            found.append(rotated(normed(m.norm, mean, w(f"{place}.kv_norm.weight"), None), start))
        return found

    latents = [normed(m.norm, linear(w, "q_a", row), w("q_a_norm.weight"), None) for row in x]
    kv = [rotated(normed(m.norm, linear(w, "kv", row), w("kv_norm.weight"), None), p) for p, row in enumerate(x)]
    keys = kv + (entries("compressor") if every is not None else [])  # positions first, then entries
    index = entries("indexer") if m.index_top_k is not None else []
    rows = []
    for p, row in enumerate(x):
        complete = list(range((p + 1) // every)) if every is not None else []
        if m.index_top_k is not None:
            queries = [rotated(q, p) for q in linear(w, "indexer.q", latents[p]).reshape(index_heads, -1)]
            weights = linear(w, "indexer.head_weights", row)
            worth = [sum(a * max(float(q @ k), 0) for a, q in zip(weights, queries, strict=True)) for k in index]
            complete = best(worth[: len(complete)], m.index_top_k)
        read = [*range(max(p - m.window + 1, 0), p + 1), *(length + e for e in complete)]
        heads = []
        for h, q in enumerate(linear(w, "q_b", latents[p]).reshape(m.n_heads, -1)):
            q = rotated(normed(m.norm, q, None, None), p)
            scores = {j: m.head_dim**-0.5 * float(q @ keys[j]) for j in read}
            heads.append(rotated(weighed(scores, np.array(keys), float(w("sinks")[h])), -p))
        groups = np.array(heads).reshape(m.o_groups, -1)
        matrices = w("o_a.weight").reshape(m.o_groups, m.o_lora_rank, -1)
        low = np.concatenate([matrix @ group for matrix, group in zip(matrices, groups, strict=True)])
        rows.append(linear(w, "o_b", low))
    return np.stack(rows)


def layer(s: HyperConnections, h: Array, branches: Sequence[Callable[[Array], Array]], w: Weights) -> Array:
    """A layer on one position's streams [n, D], its branches functions of a vector (DeepSeek-V4, section 2.2)."""
    n = s.n_streams
    for i, branch in enumerate(branches):
        logits = linear(w, f"branches[{i}].weights", normed(s.norm, h.reshape(-1), None, None))
        scale, base = w(f"branches[{i}].scale"), w(f"branches[{i}].base")
        out = branch(sum((sigmoid(scale[0] * logits[a] + base[a]) + s.eps) * h[a] for a in range(n)))
        mixing = [[scale[2] * logits[2 * n + a * n + b] + base[2 * n + a * n + b] for b in range(n)] for a in range(n)]
        shares = np.array([_softmax(np.array(row)) for row in mixing]) + s.eps
        for step in range(s.sinkhorn_steps):
            if step:
                shares = np.array([row / (sum(row) + s.eps) for row in shares])
            shares = np.array([column / (sum(column) + s.eps) for column in shares.T]).T
        written = [2 * sigmoid(scale[1] * logits[n + a] + base[n + a]) for a in range(n)]
        h = np.array([written[b] * out + sum(shares[a, b] * h[a] for a in range(n)) for b in range(n)])
    return h


def joined(s: HyperConnections, h: Array, w: Weights) -> Array:
    """The streams of one position collapsed at the end: [n, D] -> [D]."""
    logits = linear(w, "collapse", normed(s.norm, h.reshape(-1), None, None))
    shares = [sigmoid(w("scale")[0] * logits[a] + w("base")[a]) + s.eps for a in range(s.n_streams)]
    return np.asarray(sum(share * stream for share, stream in zip(shares, h, strict=True)))
