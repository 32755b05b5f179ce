"""A small decoder on the bench: random weights, tokens, their logits, and what the contract is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from planner import folds
from planner.components.arrays import Array
from planner.components.dense_attention import DenseAttention
from planner.components.latent_attention import LatentAttention
from planner.components.position import Alibi, Temperature
from planner.components.streams import HyperConnections
from planner.contract import Architecture
from planner.rules import CAUSAL, Causal, Strided
from planner.spec import Spec, parts_of, values
from planner.witness import reference, reference_blocks, reference_decoder, reference_rare, reference_states
from planner.witness.meter import Meter
from planner.witness.reference_elements import Weights
from planner.witness.scaling import Scaled
from planner.witness.session import Witness, random_weights


class Bench:
    """The contract, its small form in float64, and one sequence that it has read."""

    def __init__(self, model: Architecture, scaled: Scaled, length: int) -> None:
        self.model = model
        self.small = scaled.architecture
        self.length = length
        self.weights = random_weights(self.small)
        self.witness = Witness(self.small, self.weights, np.float64)
        self.tokens = np.random.default_rng(1).integers(0, self.small.vocab_size, length)
        self.meter = Meter()
        self.logits = self.witness.forward(self.tokens, meter=self.meter)  # [S, V]
        self._compared: set[tuple[str, int]] = set()

    def changed(self, where: slice) -> Array:
        """The same tokens but for a stretch."""
        tokens = self.tokens.copy()
        tokens[where] = (tokens[where] + 1) % self.small.vocab_size
        return tokens

    def steps(self, sizes: list[int], **options: Any) -> Array:
        """Logits of the same sequence read in several passes: [S, V]."""
        cache, start, logits = self.witness.cache(), 0, []
        for size in sizes:
            logits.append(self.witness.forward(self.tokens[start : start + size], cache, **options))
            start += size
        return np.concatenate(logits)

    def whole(self) -> tuple[Array, Array | None]:
        """Logits of the first tokens, and what the reference says, None where it does not have every part."""
        tokens = self.tokens[:12]
        return self.witness.forward(tokens), reference_decoder.logits(self.small, tokens.tolist(), self._weights)

    def branches(self, name: str, block: int | None) -> Iterator[tuple[Array, Array]]:
        """Output of every layer's attention or feed-forward in float32, and what the reference says."""

        def output(branch: Any, x: Array, own: Weights, owner: Weights, _: Any) -> Array | None:
            expected = reference.output(branch, x, own, owner)
            expected = reference_rare.output(branch, x, own) if expected is None else expected
            return reference_blocks.output(branch, x, own) if expected is None and block is None else expected

        yield from self._beside(name, block, output)

    def streams(self) -> Iterator[tuple[Array, Array]]:
        """Every layer's mixing of parallel streams around branches that are a plain function, and their end."""
        streams = self.small.streams
        if not isinstance(streams, HyperConnections):
            return
        single = Witness(self.small, self.weights, np.float32)
        run = single.run(self.tokens[:3], single.cache())
        h = np.random.default_rng(2).standard_normal((3, streams.n_streams, self.small.d_model))  # [S, n, D]
        yield (
            streams.joined(h.astype(np.float32), run.part("streams")),
            np.stack([reference_blocks.joined(streams, row, self._weights("streams")) for row in h]),
        )
        for number, index in enumerate(self.small.indices()):
            names = self.small.layers[index].branch_names
            part = run.layer(number, index, None).part("streams")
            measured = streams.layer(h.astype(np.float32), _Plain(names), part)
            plain, weights = [np.tanh] * len(names), self._weights(part.place)
            yield measured, np.stack([reference_blocks.layer(streams, row, plain, weights) for row in h])

    def extras(self) -> Iterator[tuple[Array, Array]]:
        """The same of what few layers have besides."""
        single = Witness(self.small, self.weights, np.float32)
        run = single.run(self.tokens[:12], single.cache())
        self.small.embedding.forward(run.part("embedding"))
        x = np.random.default_rng(2).standard_normal((12, self.small.d_model))
        for number, index in enumerate(self.small.indices()):
            part = run.layer(number, index, None)
            for place, extra in enumerate(self.small.layers[index].extras):
                own = part.part(f"extras[{place}]")
                once = self._weights(f"{getattr(extra, 'block', '')}/", dot="")
                expected = reference_rare.extra(extra, x, self._weights(own.place), once, run.notes, number)
                if expected is not None:
                    self._compared.add((f"extras[{place}]", index))
                    yield extra.forward(x.astype(np.float32), own), expected

    def states(self) -> Iterator[tuple[Array, Array]]:
        """The same of every layer's mixer that keeps a state."""
        yield from self._beside("mixer", None, reference_states.output)

    def not_compared(self) -> list[str]:
        """Kinds of what stands in the layers and has not been held to the reference, once the others have."""
        found: dict[str, None] = {}
        for index, layer in enumerate(self.small.layers):
            places = {name: getattr(layer, name) for name in layer.branch_names}
            places |= {f"extras[{i}]": extra for i, extra in enumerate(layer.extras)}
            found |= {part.kind: None for name, part in places.items() if (name, index) not in self._compared}
        return list(found)

    def _beside(
        self, name: str, block: int | None, output: Callable[..., Array | None]
    ) -> Iterator[tuple[Array, Array]]:
        single = Witness(self.small, self.weights, np.float32)
        run = single.run(self.tokens[:12], single.cache(), block=block)
        x = 3 * np.random.default_rng(2).standard_normal((12, self.small.d_model))  # large enough to feel a soft-cap
        owners: dict[Any, Weights] = {}
        for number, index in enumerate(self.small.indices()):
            layer = self.small.layers[index]
            branch, part = getattr(layer, name), run.layer(number, index, layer.label).part(name)
            weights = self._weights(part.place)
            source = getattr(branch, "kv_source", None)
            owner = weights if source is None else owners[source]
            expected = output(branch, x, weights, owner, (number, self.small.n_layers))
            if expected is not None:
                self._compared.add((name, index))
                yield branch.forward(x.astype(np.float32), part), expected
            owners[layer.label] = weights

    def _weights(self, place: str, dot: str = ".") -> Weights:
        return lambda id: cast("Array", self.witness.weights.get(f"{place}{dot}{id}"))

    @property
    def parts(self) -> list[Spec]:
        """Every part of the small contract."""
        return list(_parts(self.small))

    def of(self, *kinds: type) -> list[Any]:
        """The parts of some kinds."""
        return [part for part in self.parts if isinstance(part, kinds)]

    @property
    def rules(self) -> set[Causal]:
        """The rules that query-key pairs follow."""
        products = (product for part in self.small.parts() for product in part.bill.products)
        return {product.rule for product in products if product.domain == "pairs"}

    @property
    def compressed(self) -> bool:
        """Whether a cache entry stands for several positions."""
        return any(isinstance(entry.rule, Strided) for _, entry in folds.cache(self.small.parts()))

    @property
    def plain_causal(self) -> bool:
        """Whether all its attention is causal and nothing else, so that a prefix may see itself both ways."""
        return self.rules == {CAUSAL}

    @property
    def latent(self) -> bool:
        """Whether it has latent attention."""
        return bool(self.of(LatentAttention))

    @property
    def absolute(self) -> str | None:
        """What of it knows where a sequence begins, or None where only distances count."""
        embedding = self.small.embedding
        if embedding.learned_positions is not None or embedding.sinusoidal:
            return "a table of positions"
        if self.of(Temperature):
            return "the temperature of its queries"
        if any(mixer.qk_norm is not None and mixer.qk_norm_after_position for mixer in self.of(DenseAttention)):
            return "a norm behind the rotation"
        return "a penalty rounded to bf16" if any(alibi.precision == "bf16" for alibi in self.of(Alibi)) else None


@dataclass(frozen=True, slots=True)
class _Plain:
    """The steps of a layer (`streams.Steps`) whose branches all are tanh, without a norm."""

    names: tuple[str, ...]

    def body(self, x: Array) -> Array:
        return x + np.tanh(x)

    def branch(self, name: str, x: Array) -> tuple[Array, Array]:
        return x, np.tanh(x)

    def extra(self, place: str, x: Array) -> float:
        return 0.0


def _parts(part: Spec) -> Iterator[Spec]:
    yield part
    for value in values(part):
        for inner, _ in parts_of(value, ""):
            yield from _parts(inner)
