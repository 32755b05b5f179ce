"""The tensors of a checkpoint held to those of a contract, one by one, in the checkpoint's own names.

A contract says which tensors there are, not what a family calls them; `roles` knows that. So a checkpoint's names are
looked up there, each tells what shape the contract gives it, and what no name stands for is missing: it is called as
its like in another layer is, or as the bill calls it. Vision, audio and multi-token prediction are parts that a
contract leaves out; they are told by their names and not taken for extra.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from planner.contract import Architecture
from planner.errors import InputError
from planner.sources.checkpoint import Checkpoint, Differences, reconcile
from planner.sources.gguf_names import contract_names
from planner.sources.packing import Weight
from planner.witness.names import IN_LAYER, Adopted, is_conv1d
from planner.witness.places import shape, stored
from planner.witness.roles import ENDS, IGNORED, LAYER

Shape = tuple[int, ...]
Place = tuple[str, int | None]  # a tensor of the bill, or one of several equal ones

PREDICTION = "multi-token prediction"
MAX_NAME = 300
"""Characters of a name that may stand for something; a longer one is extra."""

_WORDS = {
    "audio": r"audio\w*|speech\w*|embed_audio|talker|code2wav|token2wav",
    "vision": r"visual|vision\w*|vit|image\w*|img\w*|patch_\w+|embed_vision|\w*projector|mm_\w+|connector|mlp1",
    PREDICTION: r"mtp\w*|nextn\w*",
}
_PARTS = {part: re.compile(rf"(?:^|\.)(?:{words})(?=\.|$)", re.ASCII) for part, words in _WORDS.items()}
_EXPERT = re.compile(r"(.*\.experts\.)(\d+)(\..+)")
_PREDICTS = re.compile(r"(?:eh_proj|enorm|hnorm)\.weight")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """A checkpoint beside a contract: their `differences`, the `body` that was compared, and what was left out of it.

    The body has a tied output matrix once; `left_out` has the weights of the parts that the contract leaves out.
    """

    body: Checkpoint
    differences: Differences
    left_out: dict[str, tuple[Weight, ...]]

    def verdicts(self) -> dict[str, str]:
        """What was found of every stored tensor: equal, extra, another shape, a buffer, or the part it belongs to.

        The second copy of a tied matrix is not among them.
        """
        found = {name: "extra" for name, _ in self.differences.extra}
        found |= {name: f"shape differs: {list(side)}" for name, side, _ in self.differences.shape_differs}
        of_body = ((w, found.get(w.name, "buffer" if w.counts == "buffer" else "equal")) for w in self.body.weights)
        of_parts = ((weight, part) for part, weights in self.left_out.items() for weight in weights)
        return {name: verdict for weight, verdict in (*of_body, *of_parts) for name in weight.stored_as}


def held_to(model: Architecture, checkpoint: Checkpoint) -> Reconciled:
    """Compare every weight of a checkpoint with the contract: which are missing, extra, or of another shape."""
    checkpoint = checkpoint.tied() if model.output.tied else checkpoint
    named = {weight.name: weight for weight in checkpoint.weights}
    architecture = checkpoint.metadata.get("general.architecture")
    if architecture is not None:
        named = dict(contract_names(checkpoint.weights, gated_up=architecture == "phi3"))
    parts = _parts(named, model.n_layers)
    left_out = {part: tuple(named.pop(name) for name in names) for part, names in parts.items()}
    body = dataclasses.replace(checkpoint, weights=tuple(named.values()))
    known = {name: weight for name, weight in named.items() if len(name) <= MAX_NAME}
    wanted = [(named[name].name if name in named else name, side) for name, side in expected(model, known)]
    return Reconciled(body, reconcile(body, wanted), left_out)


def _parts(names: Mapping[str, Any], n_layers: int) -> dict[str, list[str]]:
    """The names that belong to parts which a contract leaves out; a layer behind the last is one if it predicts."""
    found: dict[str, list[str]] = defaultdict(list)
    behind: dict[int, list[str]] = defaultdict(list)
    predicting = set()
    for name in (name for name in names if len(name) <= MAX_NAME):
        part = next((part for part, pattern in _PARTS.items() if pattern.search(name)), None)
        layer = IN_LAYER.fullmatch(name)
        if part is not None:
            found[part].append(name)
        elif layer is not None and int(layer[1]) >= n_layers:
            behind[int(layer[1])].append(name)
            if _PREDICTS.fullmatch(layer[2]):
                predicting.add(int(layer[1]))
    for number in sorted(predicting):
        found[PREDICTION] += behind[number]
    return dict(found)


def expected(model: Architecture, found: Mapping[str, Weight]) -> Iterator[tuple[str, Shape]]:
    """The contract's tensors, each by the name that it has in the checkpoint, with the shape that it should have there.

    A name of the checkpoint that the contract has no place for does not come. What is missing comes under the name of
    its like in another layer with that layer's number, or else under the bill's own name.
    """
    matrices = {name: weight for name, weight in found.items() if len(weight.shape) == 2}
    places = _Places(model, stored(model), list(model.order()), turned=is_conv1d(model, matrices))
    norms = places.norms_of(found)
    for source in found:
        if not IGNORED.fullmatch(source):
            places.find(source, norms)
    for source, (layout, targets) in places.held.items():
        yield source, places.side(source, layout, targets, found[source].shape)
    yield from places.missing(found)


@dataclass(slots=True)
class _Places(Adopted):
    """Finds the places of names as `Adopted` does those of arrays, and keeps which place each name has."""

    turned: bool = False
    held: dict[str, tuple[str, list[Place]]] = field(default_factory=dict)
    taken: set[Place] = field(default_factory=set)
    experts: dict[tuple[str, str], str] = field(default_factory=dict)
    layout: str = "plain"
    targets: list[Place] = field(default_factory=list)

    def norms_of(self, names: Mapping[str, Any]) -> dict[str, str]:
        """The norms of all layers that have as many as the contract says."""
        by_layer: dict[int, dict[str, Any]] = defaultdict(dict)
        for name in names:
            if (number := _number(name)) is not None:
                by_layer[number][name] = None
        norms: dict[str, str] = {}
        for layer in by_layer.values():
            try:
                norms |= self.norms(layer)
            except InputError:
                continue  # then they are extra, and the contract's are missing
        return norms

    def find(self, source: str, norms: Mapping[str, str]) -> None:
        """Note the place of a name, if the contract has one that is not taken."""
        self.layout, self.targets = "plain", []
        layer, expert = IN_LAYER.fullmatch(source), _EXPERT.fullmatch(source)
        alike = (expert[1], expert[3]) if expert else None
        nothing: Any = None
        try:
            if expert and alike in self.experts:  # there are too many to look at every role for each
                self.take(self.experts[alike], nothing, source, expert[2])
            elif source in self.expected or source in norms:
                self.take(norms.get(source, source), nothing, source)
            elif layer is not None:
                self.role(LAYER, layer[2], nothing, source, int(layer[1]))
            else:
                self.role(ENDS, source, nothing, source)
        except InputError:
            return
        if self.targets:
            self.held[source] = self.layout, self.targets
            self.taken.update(self.targets)
            if alike and self.layout == "plain":
                self.experts[alike] = self.targets[0][0]

    def parts(self, layout: str, names: Sequence[str], array: Any, number: int | None) -> Sequence[Any]:
        """Keep the layout; there are no arrays to take apart."""
        self.layout = layout
        return [array] * len(names)

    def take(self, name: str, array: Any, source: str, copy: str | None = None) -> None:
        """Note one place. Raises `InputError` for one that is not there or taken."""
        target = name, None if copy is None else int(copy)
        free = name in self.expected and target not in self.taken and (name, None) not in self.taken
        if not free or (copy is not None and int(copy) >= shape(self.expected[name])[0]):
            raise InputError(f"{source}: the contract has no {name} that is free")
        self.targets.append(target)

    def side(self, source: str, layout: str, targets: Sequence[Place], found: Shape) -> Shape:
        """The shape that a tensor of the checkpoint should have, which holds these tensors in that layout."""
        sides = [shape(self.expected[name])[copy is not None :] for name, copy in targets]
        whole = _whole(layout, sides, found)
        return whole[::-1] if self.turned and len(whole) == 2 and _number(source) is not None else whole

    def missing(self, found: Mapping[str, Weight]) -> Iterator[tuple[str, Shape]]:
        """The tensors that no name of the checkpoint stands for; of several equal ones those that are absent."""
        like = {
            (_of_any_layer(name), copy): source for source, (_, targets) in self.held.items() for name, copy in targets
        }
        apart = {name for name, copy in like if copy is not None}
        named = set()
        for name, tensor in self.expected.items():
            general, sides = _of_any_layer(name), shape(tensor)
            copies: list[int | None] = [*range(sides[0])] if general in apart else [None]
            for copy in copies if (name, None) not in self.taken else ():
                if (name, copy) in self.taken:
                    continue
                source = like.get((general, copy))
                own = source and re.sub(rf"\.{_number(source)}\.", f".{_number(name)}.", source, count=1)
                if source is None or own is None or own in self.held:
                    yield name if copy is None else f"{name}[{copy}]", sides[copy is not None :]
                elif own not in named:
                    named.add(own)
                    layout, targets = self.held[source]
                    here = [(re.sub(r"\d+", str(_number(name)), of, count=1), copy) for of, copy in targets]
                    yield own, self.side(source, layout, here, found[source].shape)


def _number(name: str) -> int | None:
    layer = IN_LAYER.fullmatch(name)
    return int(layer[1]) if layer else None


def _of_any_layer(name: str) -> str:
    return re.sub(r"^layers\.\d+\.", "layers.*.", name)


def _whole(layout: str, sides: Sequence[Shape], found: Shape) -> Shape:
    """The shape of the tensor that holds tensors of these shapes in that layout, see `roles`.

    Where a layout stands for several, the one that was found if it is one of them.
    """
    first = sides[0]
    match layout:
        case "flat":
            return found if prod(found) == prod(first) else first
        case "rows":
            return first[0] * first[1], first[2]
        case "columns":
            return first[0] * first[2], first[1]
        case "experts":
            stacked = (first[0], sum(side[1] for side in sides), *first[2:])
            turned = (stacked[0], *stacked[:0:-1])
            return found if found == turned else stacked
    return sum(side[0] for side in sides), *first[1:]
