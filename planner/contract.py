"""The written contract of a causal decoder: everything that decides its parameters, its arithmetic and its cache.

The parts are the Specs of `components`; here they are put together into layers and a whole decoder, and the whole is a
tuple of bills (`Architecture.parts`). The contract stands above the components, so that a component is one file that
knows nothing of decoders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, Literal

import planner.components  # noqa: F401  (makes every kind known)
from planner.bill import Bill, Part
from planner.components.base import Mixer, PositionWise
from planner.components.embedding import Embedding, Output
from planner.components.norm import Norm
from planner.spec import Count, Scale, Spec, spec

Residual = Literal["pre", "post", "sandwich", "reordered", "parallel", "parallel_two_norms"]


@spec
class Layer(Spec):
    """`count` equal layers: a mixer, a feed-forward, or both, and the order of norms and additions around them.

    ========================  ====================================================================  ===========
    residual                  equations                                                             norms
    ========================  ====================================================================  ===========
    ``pre``                   u = x + mixer(norm(x)); u + ff(norm(u))                               1 a branch
    ``post``                  u = norm(x + mixer(x)); norm(u + ff(u))                               1 a branch
    ``reordered``             u = x + norm(mixer(x)); u + norm(ff(u))                               1 a branch
    ``sandwich``              u = x + norm(mixer(norm(x))); u + norm(ff(norm(u)))                   2 a branch
    ``parallel``              n = norm(x); x + mixer(n) + ff(n)                                     1
    ``parallel_two_norms``    x + mixer(norm(x)) + ff(norm(x))                                      1 a branch
    ========================  ====================================================================  ===========

    `residual_scale` multiplies each branch before it is added.
    """

    count: Count
    label: str | None = None
    mixer: Mixer | None = None
    feed_forward: PositionWise | None = None
    residual: Residual = "pre"
    norm: Norm
    residual_scale: Scale | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.mixer is not None or self.feed_forward is not None, "a layer has a mixer, a feed_forward or both"
        both = self.mixer is not None and self.feed_forward is not None
        yield both or not self.residual.startswith("parallel"), "residual = {residual} takes a mixer and a feed_forward"

    def norm_ids(self) -> tuple[str, ...]:
        """The names of a layer's norms, in the order in which the data pass them."""
        if self.residual == "parallel":
            return ("norm",)
        branches = [name for name in ("mixer", "feed_forward") if getattr(self, name) is not None]
        places = {"sandwich": ("{}_norm", "{}_output_norm"), "reordered": ("{}_output_norm",), "post": ("{}_output_norm",)}
        return tuple(place.format(branch) for branch in branches for place in places.get(self.residual, ("{}_norm",)))

    def parts(self, path: str, d_model: Any) -> Iterator[Part]:
        """The bills of these layers."""
        for name in ("mixer", "feed_forward"):
            branch = getattr(self, name)
            if branch is not None:
                yield Part(f"{path}.{name}", self.count, branch.bill(d_model))
        norms = Bill.of(*(self.norm.bill(d_model, name) for name in self.norm_ids()))
        yield Part(path, self.count, norms)


@spec
class Architecture(Spec):
    """A decoder: vocabulary and width, both ends, its layers, its lengths and its default formats.

    `layers` lists the kinds of layer with their counts. They stand in that order, or in that of `pattern`: labels that
    repeat until every layer has one (``["local", "local", "local", "local", "local", "global"]``). `documents` says whether
    packed documents see each other. `trained_positions` and `max_positions` are the trained and the stated length.
    `weights` and `kv` are the default storage formats of the checkpoint and of the cache. `stated_parameters` replaces the
    counted ones where only weight bytes are asked for.
    """

    name: str
    title: str | None = None
    vocab_size: Count
    d_model: Count
    embedding: Embedding = Embedding()
    layers: tuple[Layer, ...]
    pattern: tuple[str, ...] | None = None
    final_norm: Norm | None = None
    output: Output = Output()
    trained_positions: Count | None = None
    max_positions: Count | None = None
    documents: Literal["visible", "isolated"] = "visible"
    weights: str = "bf16"
    kv: str = "bf16"
    stated_parameters: Count | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield len(self.layers) > 0, "layers is empty; a decoder has at least one layer"
        labels = [layer.label for layer in self.layers if layer.label is not None]
        yield len(set(labels)) == len(labels), "two entries of layers have the same label"
        if self.pattern is not None:
            yield set(self.pattern) == set(labels) and len(labels) == len(self.layers), (
                "pattern = {pattern} does not name the label of every entry of layers, and only those"
            )
            if all(isinstance(layer.count, int) for layer in self.layers):
                found = Counter(layer.label for layer in self.order())
                stated = {layer.label: layer.count for layer in self.layers}
                yield found == stated, f"pattern gives {shown_counts(found)}, but the counts are {shown_counts(stated)}"
        sources = {getattr(layer.mixer, "kv_source", None) for layer in self.layers} - {None}
        for source in sources:
            yield source in labels, f"kv_source = {source!r} is not the label of an entry of layers"

    @property
    def n_layers(self) -> Any:
        """Layers of all kinds together."""
        total = 0
        for layer in self.layers:
            total = total + layer.count
        return total

    def order(self) -> Iterator[Layer]:
        """The kind of every layer, from the first layer to the last."""
        if self.pattern is None:
            for layer in self.layers:
                yield from (layer for _ in range(layer.count))
        else:
            by_label = {layer.label: layer for layer in self.layers}
            yield from (by_label[label] for label in islice(cycle(self.pattern), self.n_layers))

    def parts(self) -> tuple[Part, ...]:
        """The whole decoder as bills."""
        width, d_model, vocab = self.embedding.width, self.d_model, self.vocab_size
        parts = [Part("embedding", 1, self.embedding.bill(vocab, d_model, tied=self.output.tied))]
        for index, layer in enumerate(self.layers):
            parts += layer.parts(f"layers[{index}]", d_model)
        if self.final_norm is not None:
            parts.append(Part("", 1, self.final_norm.bill(d_model, "final_norm")))
        parts.append(Part("output", 1, self.output.bill(vocab, d_model, width)))
        return tuple(parts)


def shown_counts(counts: Any) -> str:
    """Label counts as a sentence shows them."""
    return ", ".join(f"{count} {label}" for label, count in counts.items())
