"""The core of softmax attention: scores, softmax, values; in one go, or block by block of keys with an online softmax.

Shapes: S new positions, T positions at hand, G key heads, R query heads on each of them.
"""

from __future__ import annotations

from collections.abc import Callable

from planner.components.arrays import Array, np, soft_capped, softmax
from planner.components.base import Run


def attend(
    q: Array,
    k: Array,
    v: Array,
    run: Run,
    *,
    mask: Array,
    scale: float,
    bias: Array | None = None,
    soft_cap: float | None = None,
    sinks: Array | None = None,
) -> Array:
    """``softmax(scale q k^T + bias) v`` over what the mask allows (Vaswani et al. 2017, eq. 1).

    q [S, G, R, d_k], k [T, G, d_k], v [T, G, d_v], mask [S, T] or [G, 1, S, T], bias [G, R, S, T], sinks [G, R] ->
    [S, G, R, d_v]. A sink is one more score, of a position whose value is nothing (gpt-oss).
    """

    def scored(keys: slice) -> Array:
        scores = scale * run.product("scores", "sgrd,tgd->grst", q, k[keys], mask=mask[..., keys])  # [G, R, S, T]
        scores = soft_capped(scores, soft_cap)
        if bias is not None:
            scores = scores + bias[..., keys]
        return np.where(mask[..., keys], scores, np.asarray(-np.inf, scores.dtype))

    def valued(weights: Array, keys: slice) -> Array:
        return run.product("values", "grst,tgd->sgrd", weights, v[keys], mask=mask[..., keys])  # [S, G, R, d_v]

    if run.block is not None:
        return _blockwise(scored, valued, len(k), run.block, (*q.shape[1:3], len(q)), sinks)
    everything = slice(None)
    scores = scored(everything)  # [G, R, S, T]
    if sinks is None:
        return valued(softmax(scores), everything)
    column = np.broadcast_to(sinks[:, :, None, None], (*scores.shape[:-1], 1))  # [G, R, S, 1]
    return valued(softmax(np.concatenate([scores, column], axis=-1))[..., :-1], everything)


def best(scores: Array, allowed: Array, k: int) -> Array:
    """Which k of the allowed keys have the highest scores, the earlier one of two equals: [..., T] -> [..., T]."""
    ranked = np.argsort(-np.where(allowed, scores, -np.inf), axis=-1, kind="stable")[..., :k]  # [..., k]
    chosen = np.zeros(scores.shape, bool)
    np.put_along_axis(chosen, ranked, True, axis=-1)
    return chosen & allowed


def _blockwise(
    scored: Callable[[slice], Array],
    valued: Callable[[Array, slice], Array],
    n_keys: int,
    block: int,
    shape: tuple[int, int, int],
    sinks: Array | None,
) -> Array:
    """The same, `block` keys at a time (Milakov and Gimelshein 2018, algorithm 3; Dao et al. 2022, algorithm 1)."""
    top = np.full(shape, -np.inf) if sinks is None else np.broadcast_to(sinks[:, :, None], shape)  # [G, R, S]
    total, out = np.where(np.isfinite(top), 1.0, 0.0), np.zeros(())  # a sink's exponential is 1, its value nothing
    for start in range(0, n_keys, block):
        keys = slice(start, start + block)
        scores = scored(keys)  # [G, R, S, block]
        higher = np.maximum(top, scores.max(axis=-1))  # [G, R, S]
        finite = np.where(np.isfinite(higher), higher, 0)
        shrink, weights = np.exp(top - finite), np.exp(scores - finite[..., None])
        top, total = higher, total * shrink + weights.sum(axis=-1)
        out = out * np.moveaxis(shrink, -1, 0)[..., None] + valued(weights.astype(scores.dtype), keys)  # [S, G, R, d_v]
    return out / np.moveaxis(total, -1, 0)[..., None]
