"""A whole decoder once more, by the equations of its contract: what stands between the branches, and at both ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from planner.components.arrays import Array
from planner.components.streams import AltUp
from planner.contract import Architecture, Layer
from planner.witness import reference, reference_blocks, reference_rare, reference_states
from planner.witness.reference_elements import Weights, linear, normed

At = Callable[..., Weights]
"""The weights of a place, such as ``layers.2.mixer``; with ``dot=""`` those whose names begin so."""


class Unknown(Exception):
    """A part that the reference does not have."""


def branch(part: Any, x: Array, w: Weights, owner: tuple[Weights, Array], layer: tuple[int, int]) -> Array | None:
    """What a branch gives on [S, D], or None for a kind that no file of the reference has."""
    out = reference.output(part, x, w, *owner)
    out = reference_rare.output(part, x, w) if out is None else out
    out = reference_blocks.output(part, x, w) if out is None else out
    return reference_states.output(part, x, w, owner[0], layer) if out is None else out


def logits(model: Architecture, tokens: Sequence[int], at: At) -> Array | None:
    """[S] -> [S, V], or None where the reference does not have every part."""
    if model.streams is not None and not isinstance(model.streams, AltUp):
        return None
    try:
        return _Decoder(model, at).logits(tokens)
    except Unknown:
        return None


class _Decoder:
    def __init__(self, model: Architecture, at: At) -> None:
        self.model, self.at = model, at
        self.notes: dict[str, Array] = {}
        self.owners: dict[str | None, tuple[Weights, Array]] = {}

    def logits(self, tokens: Sequence[int]) -> Array:
        model, x = self.model, self.embedded(tokens)
        if isinstance(model.streams, AltUp):
            x = reference_rare.altup(model.streams, x, self.layers(), self.at)
        else:
            for layer in self.layers():
                x = layer(x)
        if model.final_norm is not None:
            x = self.normed(model.final_norm, x, "final_norm")
        return np.stack([self.emitted(row) for row in x])

    def normed(self, norm: Any, x: Array, id: str, place: str = "") -> Array:
        """A norm over every position, its vectors stored under a place."""
        w = self.at(place, dot="." if place else "")
        return np.stack([normed(norm, row, w(f"{id}.weight"), w(f"{id}.bias")) for row in x])

    def embedded(self, tokens: Sequence[int]) -> Array:
        """[S] -> [S, D]."""
        e, w, rows = self.model.embedding, self.at("embedding"), []
        for position, token in enumerate(tokens):
            x = w("tokens.weight")[token] * (1 if e.scale is None else e.scale)
            x = x if e.width is None else linear(w, "project", x)
            if e.learned_positions is not None:
                x = x + w("positions.weight")[position + e.position_offset]
            if e.sinusoidal:
                half = len(x) // 2
                angles = [(position + e.position_offset) / 10_000 ** (i / (half - 1)) for i in range(half)]
                x = x + np.array([*map(math.sin, angles), *map(math.cos, angles)])
            rows.append(x if e.norm is None else normed(e.norm, x, w("norm.weight"), w("norm.bias")))
        self.notes["embedding"] = np.stack(rows)
        if e.layers is not None:
            vectors = [reference_rare.layer_vectors(e.layers, t, x, w) for t, x in zip(tokens, rows, strict=True)]
            self.notes["layer_embedding"] = np.stack(vectors)
        return self.notes["embedding"]

    def emitted(self, x: Array) -> Array:
        """[D] -> [V]."""
        o, w = self.model.output, self.at("output")
        table = w("weight") if not o.tied else self.at("embedding")("tokens.weight")
        if self.model.embedding.width is not None:
            x = linear(w, "project", x)
        scores = [float(row @ x) / (math.sqrt(row @ row) if o.unit_rows else 1) for row in table]
        out = np.array(scores) + (w("bias") if o.bias else 0)
        out = out * (1 if o.scale is None else o.scale)
        return out if o.soft_cap is None else o.soft_cap * np.tanh(out / o.soft_cap)

    def layers(self) -> list[_Layer]:
        return [_Layer(self, layer, number) for number, layer in enumerate(self.model.order())]


class _Layer:
    """A layer's equations, as the table of `contract.Layer` has them: [S, D] -> [S, D]."""

    def __init__(self, decoder: _Decoder, layer: Layer, number: int) -> None:
        self.decoder, self.layer, self.number = decoder, layer, number
        self.place = f"layers.{number}"
        self.stream = 1 if layer.stream_scale is None else layer.stream_scale

    def __call__(self, x: Array) -> Array:
        x = self.end(self.body(x))
        return x * self.decoder.at(self.place)("output_scale") if self.layer.output_scale else x

    def body(self, x: Array) -> Array:
        """Both branches with their norms and sums."""
        if self.layer.residual.startswith("parallel"):
            two = self.layer.residual == "parallel_two_norms"
            mixer, ff = (
                self.output(n, self.normed(f"{n}_norm" if two else "norm", x)) for n in ("mixer", "feed_forward")
            )
            return self.stream * x + mixer + ff
        for name in self.layer.branch_names:
            x = self.added(name, x)
        return x

    def added(self, name: str, x: Array) -> Array:
        """The stream behind one branch."""
        residual = self.layer.residual
        own = getattr(self.layer, name).own_norms
        read = x + sum(self.extras("mixer_input", x)) if name == "mixer" else x
        if residual in ("pre", "sandwich", "normed") and not own:
            read = self.normed(f"{name}_norm", read)
        out = self.output(name, read, after=residual in ("sandwich", "reordered"))
        x = self.stream * (read if residual == "normed" else x) + out
        if residual == "post":
            x = self.normed(f"{name}_output_norm", x)
        for laurel in self.extras("mixer_output", read) if name == "mixer" else ():
            x = (x + laurel) / math.sqrt(2)
        return x

    def output(self, name: str, read: Array, after: bool = False) -> Array:
        """What a branch adds."""
        part, w = getattr(self.layer, name), self.decoder.at(f"{self.place}.{name}")
        source = getattr(part, "kv_source", None)
        owner = (w, read) if source is None else self.decoder.owners[source]
        if name == "mixer":
            self.decoder.owners[self.layer.label] = owner
        out = branch(part, read, w, owner, (self.number, self.decoder.model.n_layers))
        if out is None:
            raise Unknown(part.kind)
        out = self.normed(f"{name}_output_norm", out) if after else out
        return out * (1 if self.layer.residual_scale is None else self.layer.residual_scale)

    def end(self, x: Array) -> Array:
        """With the extras at its end."""
        return x + sum(self.extras("end", x))

    def extras(self, place: str, x: Array) -> list[Array]:
        found = []
        for i, extra in enumerate(self.layer.extras):
            if extra.place == place:
                w, at = self.decoder.at(f"{self.place}.extras[{i}]"), self.decoder.at
                once = at(f"{getattr(extra, 'block', '')}/", dot="")
                out = reference_rare.extra(extra, x, w, once, self.decoder.notes, self.number)
                if out is None:
                    raise Unknown(extra.kind)
                found.append(out)
        return found

    def normed(self, id: str, x: Array) -> Array:
        return self.decoder.normed(self.layer.norm, x, id, self.place)
