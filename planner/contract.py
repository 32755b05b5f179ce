"""The written contract of a causal decoder: everything that decides its parameters, its arithmetic and its cache.

The parts are the Specs of `components`; here they are put together into layers and a whole decoder, and the whole is a
tuple of bills (`Architecture.parts`). The contract stands above the components, so that a component is one file that
knows nothing of decoders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, Literal, cast

import planner.components  # noqa: F401  (makes every kind known)
from planner.bill import Bill, Part, Product, Tensor, linear
from planner.components.base import Extra, Mixer, PositionWise
from planner.components.embedding import Embedding, Output
from planner.components.norm import Norm
from planner.components.streams import Streams
from planner.spec import Count, Scale, Spec, literal, shown, spec

MAX_LAYERS = 10_000
Residual = Literal["pre", "post", "sandwich", "reordered", "normed", "parallel", "parallel_two_norms"]


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
    ``normed``                n = norm(x); u = n + mixer(n); m = norm(u); m + ff(m)                 1 a branch
    ``parallel``              n = norm(x); x + mixer(n) + ff(n)                                     1
    ``parallel_two_norms``    x + mixer(norm(x)) + ff(norm(x))                                      1 a branch
    ========================  ====================================================================  ===========

    `residual_scale` multiplies each branch before it is added, `stream_scale` what it is added to. With `output_scale`
    the layer's output is multiplied by a scalar that the checkpoint stores (Gemma 4). A branch with its own norms has
    none of the layer's before it. `extras` are what few layers have besides, each where its own docstring says.
    """

    count: Count
    label: str | None = None
    mixer: Mixer | None = None
    feed_forward: PositionWise | None = None
    residual: Residual = "pre"
    norm: Norm
    residual_scale: Scale | None = None
    stream_scale: Scale | None = None
    output_scale: bool = False
    extras: tuple[Extra, ...] = ()

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.mixer is not None or self.feed_forward is not None, "a layer has a mixer, a feed_forward or both"
        both = self.mixer is not None and self.feed_forward is not None
        yield both or not self.residual.startswith("parallel"), "residual = {residual} takes a mixer and a feed_forward"

    @property
    def branch_names(self) -> tuple[str, ...]:
        """Which of mixer and feed-forward there are."""
        return tuple(name for name in ("mixer", "feed_forward") if getattr(self, name) is not None)

    def norm_ids(self) -> tuple[str, ...]:
        """The names of a layer's norms, in the order in which the data pass them."""
        if self.residual == "parallel":
            return ("norm",)
        branches = self.branch_names
        after = ("{}_output_norm",)
        places = {"sandwich": ("{}_norm", *after), "reordered": after, "post": after}
        names = (place.format(branch) for branch in branches for place in places.get(self.residual, ("{}_norm",)))
        own = {f"{branch}_norm" for branch in branches if getattr(self, branch).own_norms}
        return tuple(name for name in names if name not in own)

    def parts(self, path: str, d_model: Any) -> Iterator[Part]:
        """The bills of these layers."""
        for name in self.branch_names:
            yield Part(f"{path}.{name}", self.count, getattr(self, name).bill(d_model))
        for index, extra in enumerate(self.extras):
            yield Part(f"{path}.extras[{index}]", self.count, extra.bill(d_model))
        scale = Tensor("output_scale", (1,), "other", "other", counts="buffer") if self.output_scale else None
        yield Part(path, self.count, Bill.of(*(self.norm.bill(d_model, name) for name in self.norm_ids()), scale))


@spec
class MultiToken(Spec):
    """Multi-token prediction (DeepSeek-AI 2024, DeepSeek-V3, section 2.2): `count` modules behind the decoder.

    A module norms the decoder's output and the next token's embedding, projects both from 2 d_model to d_model, runs
    one decoder layer and a norm, and predicts through the decoder's output matrix; checkpoints with `own_tables` store
    a copy of both tables in each module, those with `own_head` an output matrix alone (Step-3.5). A module drafts one
    token more; it is no part of the decoder's own counts.
    """

    count: Count = 1
    layer: Layer
    own_tables: bool = False
    own_head: bool = False

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.layer.count == 1, "layer.count is not 1; count says how many modules there are, each of one layer"
        yield not (self.own_tables and self.own_head), "own_head says no more than own_tables; leave it out"

    def parts(self, vocab_size: Any, d_model: Any, *, tied: bool) -> Iterator[Part]:
        """The bills of all modules, under the module name ``mtp``."""
        for part in self.layer.parts("mtp.layer", d_model):
            yield Part(part.path, self.count * part.count, part.bill, "mtp")
        head = "/embedding.tokens.weight" if tied else "/output.weight"
        own: list[Tensor] = []
        shape = (vocab_size, d_model)
        if self.own_tables:
            own.append(Tensor("tokens.weight", shape, "embedding", "embedding", access="rows", shard="vocabulary"))
        if self.own_tables or self.own_head:
            head = "head.weight"
            own.append(Tensor(head, shape, "lm_head", "lm_head", shard="vocabulary"))
        names = ("embedding_norm", "hidden_norm", "final_norm")
        bill = Bill.of(
            *(self.layer.norm.bill(d_model, name) for name in names),
            linear("project", 2 * d_model, d_model, "other"),
            *own,
            Product("logits", vocab_size * d_model, "emitted", "lm_head", (head,), shard="vocabulary"),
        )
        yield Part("mtp", self.count, bill, "mtp")


@spec
class Architecture(Spec):
    """A decoder: vocabulary and width, both ends, its layers, its lengths and its default formats.

    `layers` lists the kinds of layer with their counts. They stand in that order, or in that of `pattern`: labels that
    repeat until every layer has one (``["local", "local", "local", "local", "local", "global"]``). `documents` says
    whether packed documents see each other. `trained_positions` and `max_positions` are the trained and the stated
    length. `weights` and `kv` are the default storage formats of the checkpoint and of the cache. `stated_parameters`
    replaces the counted ones where only weight bytes are asked for. `streams` are several residuals instead of one.
    `mtp` is left out of every count unless its module is asked for.
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
    streams: Streams | None = None
    mtp: MultiToken | None = None
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
        counted = all(isinstance(layer.count, int) for layer in self.layers)
        if counted:
            most = f"more than a decoder has (at most {MAX_LAYERS:,})"
            yield self.n_layers <= MAX_LAYERS, f"n_layers = {{n_layers}} is {most}"
        if self.pattern is not None:
            yield (
                set(self.pattern) == set(labels) and len(labels) == len(self.layers),
                ("pattern = {pattern} does not name the label of every entry of layers, and only those"),
            )
            if counted:
                found = Counter(layer.label for layer in self.order())
                stated = {layer.label: layer.count for layer in self.layers}
                yield found == stated, f"pattern gives {shown_counts(found)}, but the counts are {shown_counts(stated)}"
        for source in (getattr(layer.mixer, "kv_source", None) for layer in self.layers):
            if source is not None:
                yield source in labels, f"kv_source = {literal(shown(source))} is not the label of an entry of layers"

    @property
    def activations(self) -> str:
        """The format the model computes in: that of plain weights, bf16 where they are quantised."""
        return self.weights if self.weights in ("fp32", "fp16") else "bf16"

    @property
    def n_layers(self) -> Any:
        """Layers of all kinds together."""
        total = 0
        for layer in self.layers:
            total = total + layer.count
        return total

    def indices(self) -> Iterator[int]:
        """The index in `layers` of every layer's kind, from the first layer to the last."""
        if self.pattern is None:
            for index, layer in enumerate(self.layers):
                yield from (index for _ in range(layer.count))
        else:
            by_label = {layer.label: index for index, layer in enumerate(self.layers)}
            yield from (by_label[label] for label in islice(cycle(self.pattern), self.n_layers))

    def order(self) -> Iterator[Layer]:
        """The kind of every layer, from the first layer to the last."""
        return (self.layers[index] for index in self.indices())

    def parts(self) -> tuple[Part, ...]:
        """The whole decoder as bills."""
        width, d_model, vocab = self.embedding.width, self.d_model, self.vocab_size
        parts = [Part("embedding", 1, self.embedding.bill(vocab, d_model, self.n_layers, tied=self.output.tied))]
        for index, layer in enumerate(self.layers):
            parts += layer.parts(f"layers[{index}]", d_model)
            if self.streams is not None:
                mixing = self.streams.layer_bill(d_model, len(layer.branch_names))
                parts.append(Part(f"layers[{index}].streams", layer.count, mixing))
        if self.streams is not None:
            parts.append(Part("streams", 1, self.streams.bill(d_model)))
        if self.final_norm is not None:
            parts.append(Part("", 1, self.final_norm.bill(d_model, "final_norm")))
        parts.append(Part("output", 1, self.output.bill(vocab, d_model, width)))
        if self.mtp is not None:
            parts += self.mtp.parts(vocab, d_model, tied=self.output.tied)
        return tuple(parts)


def as_architecture(model: Any) -> Architecture:
    """A contract, or what has its parts, as it is; else that of what `planner.load` takes, such as a name."""
    if not hasattr(model, "parts"):
        from planner import load  # the face knows where; the sources lie above

        model = load(model)
    return cast(Architecture, model)


def shown_counts(counts: Any) -> str:
    """Label counts as a sentence shows them."""
    return literal(", ".join(f"{count} {label}" for label, count in counts.items()))
