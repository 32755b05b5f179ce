"""What one or two families have, once more, one token at a time in float64: parts put together from `reference`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from planner.components.arrays import Array
from planner.components.dense_and_mixture import DenseAndMixture
from planner.components.layer_embedding import LayerEmbedding, LayerInput
from planner.components.mixture_attention import MixtureAttention
from planner.components.shared_block import SharedBlock
from planner.components.streams import AltUp, LowRankResidual
from planner.witness import reference
from planner.witness.reference_elements import Weights, activated, linear, normed, turned, weighed


def output(branch: Any, x: Array, w: Weights) -> Array | None:
    """What a branch gives on [S, D], or None for a kind not written here."""
    if isinstance(branch, MixtureAttention):
        return _mixture_attention(branch, x, w)
    if isinstance(branch, DenseAndMixture):
        return np.stack([_dense_and_mixture(branch, row, w) for row in x])
    return None


def extra(part: Any, x: Array, w: Weights, once: Weights, notes: dict[str, Array], number: int) -> Array | None:
    """What an extra gives on [S, D]. `once` has the tensors of its block, `notes` what the embedding left."""
    if isinstance(part, LowRankResidual):
        low = (linear(w, "right", linear(w, "left", row)) for row in x)
        return x + np.stack([normed(part.norm, row, w("norm.weight"), w("norm.bias")) for row in low])
    if isinstance(part, LayerInput):
        vectors = notes["layer_embedding"][:, number]  # [S, width]
        made = (activated(part.activation, linear(w, "gate", row)) * v for row, v in zip(x, vectors, strict=True))
        return np.stack([normed(part.norm, linear(w, "project", row), w("norm.weight"), None) for row in made])
    return _shared_block(part, x, w, once, notes["embedding"]) if isinstance(part, SharedBlock) else None


def _mixture_attention(m: MixtureAttention, x: Array, w: Weights) -> Array:
    """Every expert that a token chooses is a set of query heads with an output matrix of its own (Shen et al. 2024)."""
    last, width = len(x) - 1, m.head_dim
    scale = width**-0.5 if m.scale is None else m.scale
    heads = {id: [linear(w, id, row).reshape(m.n_kv_heads, width) for row in x] for id in "kv"}
    keys = [[turned(m.position, head, p, last) for head in row] for p, row in enumerate(heads["k"])]
    out = []
    for p, row in enumerate(x):
        logits = w("router.weight") @ row
        chosen = sorted(range(m.n_experts), key=lambda e: -logits[e])[: m.top_k]
        total = np.array(w("output_bias")).reshape(-1)
        for expert in chosen:
            q = (w("q.weight")[expert] @ row).reshape(m.n_kv_heads, width)
            read = []
            for g in range(m.n_kv_heads):
                turned_q = turned(m.position, q[g], p, last)
                scores = {j: scale * float(turned_q @ keys[j][g]) for j in range(p + 1)}
                read.append(weighed(scores, np.stack([row[g] for row in heads["v"]]), None))
            share = 1 / sum(math.exp(logits[other] - logits[expert]) for other in chosen)
            total = total + share * (w("o.weight")[expert] @ np.concatenate(read))
        out.append(total)
    return np.stack(out)


def _dense_and_mixture(m: DenseAndMixture, x: Array, w: Weights) -> Array:
    def levelled(name: str, row: Array) -> Array:
        return normed(m.norm, row, w(f"{name}.weight"), w(f"{name}.bias"))

    dense = reference.feed_forward(m.dense, levelled("dense_norm", x), lambda id: w(f"dense.{id}"))
    routed = reference.mixture(m.mixture, levelled("mixture_norm", x), w, router_input=x)
    return levelled("dense_output_norm", dense) + levelled("mixture_output_norm", routed)


def _shared_block(m: SharedBlock, x: Array, w: Weights, once: Weights, embedding: Array) -> Array:
    """The block with this use's adapters multiplied out and added to its matrices."""

    def adapted(block: Weights, ids: dict[str, Array]) -> Weights:
        return lambda id: block(id) + ids[id] if id in ids else block(id)

    def product(name: str) -> Array:
        return w(f"{name}_adapter.up.weight") @ w(f"{name}_adapter.down.weight")

    rows = np.concatenate([x, embedding], axis=1)  # [S, 2 D]
    rows = np.stack([normed(m.norm, row, once("mixer_norm.weight"), None) for row in rows])
    has = m.adapter_rank is not None
    attention = {f"{id}.weight": product(id) for id in "qkv"} if has and m.adapts_attention else {}
    own = adapted(lambda id: once(f"mixer.{id}"), attention)
    rows = reference.dense(m.attention, rows, own, own, rows)
    rows = np.stack([normed(m.norm, row, once("feed_forward_norm.weight"), None) for row in rows])
    inner: dict[str, Array] = {}
    if has and m.adapts_feed_forward:
        both = product("up")
        gate, up = np.split(both, 2) if m.feed_forward.gated else (both[:0], both)
        inner = {"gate.weight": gate, "up.weight": up}
    block = adapted(lambda id: once(f"feed_forward.{id}"), inner)
    return np.stack([linear(w, "project", reference.feed_forward(m.feed_forward, row, block)) for row in rows])


def layer_vectors(e: LayerEmbedding, token: int, x: Array, w: Weights) -> Array:
    """One token's vectors for all layers, x its embedding: [L, width] (`modeling_gemma3n.py`)."""
    row = w("layers.table.weight")[token if token < e.vocab_size else 0] * math.sqrt(e.width)
    made = (linear(w, "layers.project", x) / math.sqrt(len(x))).reshape(-1, e.width)
    made = np.stack([normed(e.norm, part, w("layers.project_norm.weight"), None) for part in made])
    return (row.reshape(-1, e.width) + made) / math.sqrt(2)


class Steps(Protocol):
    """A layer's two steps, around which streams are mixed: [S, D] -> [S, D]."""

    place: str

    def body(self, x: Array) -> Array:
        """Both branches with their sums."""

    def end(self, x: Array) -> Array:
        """What the layer adds at its end, x included."""


def altup(s: AltUp, x: Array, layers: Sequence[Steps], at: Callable[[str], Weights]) -> Array:
    """All layers between streams that are made from the embedding and averaged: [S, D] -> [S, D].

    Baykal et al. 2023, algorithm 1: predict, compute, correct; coefficients by a router on the active stream.
    """
    ends, n = at("streams"), s.n_streams

    def as_large(row: Array, like: Array) -> Array:
        return row * math.sqrt(sum(like**2) / len(like) / max(sum(row**2) / len(row), 1e-5))

    h = [x] + [np.stack([as_large(m @ row, row) for row in x]) for m in _stacked(ends("project.weight"), n - 1)]
    for layer in layers:
        w = at(f"{layer.place}.streams")

        def coefficients(id: str, row: Array, w: Weights = w) -> Array:
            read = normed(s.norm, row, w("router_norm.weight"), None) / len(row)
            return linear(w, id, np.tanh(w("router.weight") @ read))

        mixing = np.stack([coefficients("prediction", row).reshape(n, n) for row in h[0]])  # [S, into, from]
        predicted = [h[i] + sum(mixing[:, i, j, None] * h[j] for j in range(n)) for i in range(n)]
        out = layer.body(predicted[0])
        shares = 1 + np.stack([coefficients("correction", row) for row in out])  # [S, n]
        h = [predicted[i] + shares[:, i, None] * (out - predicted[0]) for i in range(n)]
        scaled = h[0] * w("output_scale")
        h[1:] = [stream + layer.end(scaled) - scaled for stream in h[1:]]
    others = zip(_stacked(ends("unproject.weight"), n - 1), h[1:], strict=True)
    back = [np.stack([as_large(m @ row, a) for row, a in zip(other, h[0], strict=True)]) for m, other in others]
    return np.mean([h[0], *back], axis=0)


def _stacked(matrices: Array, count: int) -> Array:
    """Equal matrices under one name, where there is only one of them too."""
    return matrices.reshape(count, *matrices.shape[-2:])
