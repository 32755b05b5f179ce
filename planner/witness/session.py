"""Running a decoder: its weights, a cache for each sequence, one pass after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.bill import Pass
from planner.components.arrays import Array
from planner.contract import Architecture
from planner.errors import UsageError
from planner.witness import decoder
from planner.witness.cache import Cache
from planner.witness.meter import Meter
from planner.witness.names import adopt
from planner.witness.places import shape, stored
from planner.witness.run import PartRun, context


class Witness:
    """A decoder with its weights, under the names of a checkpoint or of the bill."""

    def __init__(self, model: Architecture, weights: Mapping[str, Any], dtype: Any = np.float32) -> None:
        self.model = model
        arrays = adopt(model, {name: np.asarray(array) for name, array in weights.items()})
        self.weights = {name: a.astype(dtype) if a.dtype.kind == "f" else a for name, a in arrays.items()}
        self.dtype = dtype

    def cache(self, kv: str | None = None) -> Cache:
        """An empty cache of one sequence, in a format that keeps what the weights' one does."""
        own = {np.float64: "fp64", np.float16: "fp16"}.get(self.dtype, "fp32")
        return Cache(self.model, kv or own, own)

    def forward(self, tokens: Any, cache: Cache | None = None, **options: Any) -> Array:
        """Logits of the new tokens that `emitted` asks for: [S] -> [emitted, V]. The cache takes the tokens in."""
        cache = self.cache() if cache is None else cache
        logits = decoder.forward(self.model, self.run(tokens, cache, **options))
        cache.length += len(tokens)
        return logits

    def run(
        self,
        tokens: Any,
        cache: Cache,
        *,
        emitted: int | None = None,
        mla: str = "auto",
        prefix: int | None = None,
        documents: tuple[int, ...] = (),
        offset: int = 0,
        reach: int | None = None,
        block: int | None = None,
        meter: Meter | None = None,
    ) -> PartRun:
        """A pass over new tokens [S], of which the last `emitted` (None: all) give logits, as the forwards see it.

        `documents` are the lengths of all documents packed into the sequence, `prefix` the positions that see each
        other both ways, `offset` the position of the sequence's first token, `block` the keys that a softmax takes at a
        time. `reach` is the context that rotary frequencies are set for where they depend on it (dynamic NTK,
        LongRoPE): an engine sets them once for the longest that it allows; None sets them anew in every pass for what
        has been read, and keys in the cache stay as they were turned.
        """
        tokens = np.asarray(tokens)
        if tokens.ndim != 1 or tokens.size == 0 or tokens.dtype.kind not in "iu":
            raise UsageError("a sequence is a list of at least one token id")
        if tokens.min() < 0 or tokens.max() >= self.model.vocab_size:
            raise UsageError(f"token ids go from 0 to {self.model.vocab_size - 1}, not to {int(tokens.max())}")
        step = Pass(
            past=cache.length,
            new=len(tokens),
            emitted=len(tokens) if emitted is None else emitted,
            mla=("absorbed" if cache.length else "expanded") if mla == "auto" else mla,
            prefix=prefix,
            documents=documents,
        )
        meter, depth = Meter() if meter is None else meter, self.model.n_layers
        return PartRun(context(step, tokens, self.weights, cache, meter, offset, block, depth, reach))


def logits(
    model: Architecture,
    weights: Mapping[str, Any],
    input_ids: Any,
    *,
    attention_mask: Any = None,
    dtype: type = np.float32,
    **options: Any,
) -> Array:
    """Logits of every position: [B, S] token ids -> [B, S, V]. `weights` have the names of a checkpoint.

    `attention_mask` [B, S] is 0 on padding, which then is a document of its own: nobody else sees it, and positions
    count from 0 behind it. Other options are those of `Witness.forward`.
    """
    rows = np.asarray(input_ids)
    if rows.ndim != 2:
        raise UsageError(f"input_ids is a batch of sequences, [B, S], and has {rows.ndim} axes")
    witness = Witness(model, weights, dtype)
    if attention_mask is None:
        return np.stack([witness.forward(row, **options) for row in rows])
    masks = np.asarray(attention_mask).astype(bool)
    return np.stack(
        [witness.forward(row, documents=runs(mask), **options) for row, mask in zip(rows, masks, strict=True)]
    )


def runs(mask: Array) -> tuple[int, ...]:
    """Lengths of the stretches of equal values, documents that is.

    >>> runs(np.array([0, 0, 1, 1, 1]))
    (2, 3)
    """
    ends = [*(np.flatnonzero(np.diff(mask)) + 1).tolist(), len(mask)]
    return tuple(end - start for start, end in zip([0, *ends], ends, strict=False))


OUTPUTS = ("o", "o_b", "out", "down", "project")
"""What the bill calls the matrices by which a branch writes to the residual stream."""


def random_weights(model: Architecture, seed: int = 0) -> dict[str, Array]:
    """Random arrays for every tensor of the bill: matrices that keep the size of their input, vectors near 0 or 1.

    What a branch adds is smaller the more branches there are, 1 / sqrt(2 layers) as in GPT-2, since otherwise a deep
    decoder makes a difference in the last digit a large one. A table of the experts of every token names different
    ones.
    """
    random = np.random.default_rng(seed)
    weights = {}
    expected = stored(model)
    for name, tensor in expected.items():
        router, _, role = name.rpartition(".")
        if role == "experts_of_token":
            rows, k = tensor.shape
            weights[name] = random.random((rows, expected[f"{router}.weight"].shape[0])).argsort(axis=-1)[:, :k]
            continue
        noise = random.standard_normal(shape(tensor))
        if len(tensor.shape) > 1:
            noise /= np.sqrt(tensor.shape[-1]) if tensor.role != "embedding" else 1
            noise /= np.sqrt(2 * model.n_layers) if role == "weight" and router.rpartition(".")[2] in OUTPUTS else 1
        else:
            noise *= 0.2
        weights[name] = (noise + (tensor.role == "norms" and name.endswith("weight"))).astype(np.float32)
    return weights
