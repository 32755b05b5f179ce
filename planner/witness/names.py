"""Checkpoint tensor names -> the names of the bill: the same few roles under the names of many families.

A name is a place (``model.layers.3.`` or ``transformer.h.3.``) and a role (``self_attn.q_proj.weight``); `roles` says
which tensors of the bill a role holds. The norms of a layer have no telling names (what `post_attention_layernorm`
stands before depends on the family), so they are taken in the order in which the data pass them, which is that of
`Layer.norm_ids`. Nothing is guessed: what is missing, too much or of another shape is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from planner.bill import Tensor
from planner.components.arrays import Array
from planner.components.dense_and_mixture import DenseAndMixture
from planner.components.shared_block import SharedBlock
from planner.contract import Architecture, Layer
from planner.errors import InputError
from planner.witness.places import shape, stored
from planner.witness.roles import ENDS, IGNORED, LAYER, NORMS, Role

IN_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.(\d+)\.(?:(?:norm_attn_norm|mamba_decoder)\.)?(.+)")


def adopt(model: Architecture, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights of a checkpoint under the bill's names; those that have them already stay as they are.

    Raises `InputError` for a tensor that the contract has no place for, lacks, or has in another shape.
    """
    adopted = Adopted(model, stored(model), list(model.order()))
    norms = adopted.norms(weights)
    conv1d = is_conv1d(model, weights)
    for source, array in weights.items():
        layer = IN_LAYER.fullmatch(source)
        if source in adopted.expected:
            adopted.whole[source] = array
        elif source in norms:
            adopted.take(norms[source], array, source)
        elif layer is not None and not IGNORED.fullmatch(source):
            straight = array.T if conv1d and array.ndim == 2 else array
            adopted.role(LAYER, layer[2], straight, source, int(layer[1]))
        elif not IGNORED.fullmatch(source):
            adopted.role(ENDS, source, array, source)
    return adopted.finished()


@dataclass(slots=True)
class Adopted:
    """Arrays under the bill's names; equal tensors that come one by one are collected before they are stacked."""

    model: Architecture
    expected: dict[str, Tensor]
    layers: list[Layer]
    whole: dict[str, Array] = field(default_factory=dict)
    pieces: dict[str, dict[int, Array]] = field(default_factory=dict)

    def role(self, roles: Sequence[Role], name: str, array: Array, source: str, number: int | None = None) -> None:
        """Take in a tensor by its role; outside the layers a role ends the name, whatever stands before it."""
        for role in roles:
            match = (
                role.pattern.fullmatch(name)
                if number is not None
                else re.search(f"(?:^|\\.){role.pattern.pattern}$", name)
            )
            if match is None:
                continue
            copy, place = match.groupdict().get("copy"), number
            if role.layout == "by_use":
                copy, place = None, self.using(int(match["copy"]))
            targets = [self.place(match.expand(target), place) for target in role.targets]
            if number is not None and not any(target in self.expected for target in targets):
                continue
            if targets == ["output.weight"] and self.model.output.tied:  # a copy of the input table
                return
            for target, part in zip(targets, self.parts(role.layout, targets, array, number), strict=True):
                self.take(target, part, source, copy)
            return
        raise InputError(f"{source}: the contract has no place for it")

    def place(self, target: str, number: int | None) -> str:
        """The name in the bill; of mixers side by side, that of the one that has such a tensor."""
        if number is not None and target.startswith("/"):
            return "".join(f"{block.block}{target}" for block in self.blocks(number))
        name = target if number is None else f"layers.{number}.{target}"
        beside = (name.replace(".mixer.", f".mixer.mixers[{i}].") for i in range(2))
        return next((other for other in (name, *beside) if other in self.expected), name)

    def blocks(self, number: int) -> list[SharedBlock]:
        """The block that a layer shares with others, if it has one."""
        extras = self.layers[number].extras if number < len(self.layers) else ()
        return [extra for extra in extras if isinstance(extra, SharedBlock)]

    def using(self, use: int) -> int:
        """The number of the layer that is the first, second … to use a shared block; one beyond all where none is."""
        numbers = [number for number in range(len(self.layers)) if self.blocks(number)]
        return numbers[use] if use < len(numbers) else len(self.layers)

    def take(self, name: str, array: Array, source: str, copy: str | None = None) -> None:
        """Take in a tensor, or one of several equal ones."""
        if name not in self.expected:
            raise InputError(f"{source}: the contract has no {name}")
        if copy is None:
            self.whole[name] = array
        else:
            self.pieces.setdefault(name, {})[int(copy)] = array

    def parts(self, layout: str, names: Sequence[str], array: Array, number: int | None) -> Sequence[Array]:
        """The tensors of the bill that one tensor of a checkpoint holds, see `roles`."""
        if layout in ("plain", "by_use"):
            return [array]
        layer: Any = self.layers[number] if number is not None and number < len(self.layers) else None
        shapes = [shape(self.expected[name]) for name in names if name in self.expected]
        match layout:
            case "flat":
                return [array.reshape(shapes[0])]
            case "blocks":
                return np.split(array, np.cumsum([side[0] for side in shapes])[:-1])
            case "by_group":
                return _by_group(array, layer.mixer.n_kv_heads, [side[0] for side in shapes])
            case "by_shard":
                return _by_group(array, 4, [side[0] for side in shapes])
            case "rows":
                return [array.reshape(shapes[0])]
            case "columns":
                experts, out, inner = shapes[0]
                return [array.reshape(experts, inner, out).swapaxes(1, 2)]
            case "delta_qkvz":
                keys, values = layer.mixer.n_key_heads * layer.mixer.key_head_dim, shapes[1][0]
                *qkv, z = _by_group(array, layer.mixer.n_key_heads, [keys, keys, values, values])
                return [np.concatenate(qkv), z]
            case "delta_ba":
                return _by_group(array, layer.mixer.n_key_heads, [side[0] for side in shapes])
        return _experts(getattr(layer.feed_forward, "mixture", layer.feed_forward), len(names), array)

    def norms(self, weights: Mapping[str, Array]) -> dict[str, str]:
        """Name in the checkpoint -> name in the bill, of every norm that stands in a layer itself."""
        found: dict[int, dict[str, list[tuple[str, str]]]] = {}
        for source in weights:
            layer = IN_LAYER.fullmatch(source)
            stem, _, suffix = layer[2].partition(".") if layer is not None else ("", "", "")
            if layer is not None and stem in NORMS and source not in self.expected:
                found.setdefault(int(layer[1]), {}).setdefault(stem, []).append((source, suffix))
        names = {}
        for number, stems in found.items():
            ids = _norm_ids(self.layers[number]) if number < len(self.layers) else ()
            in_order = sorted(stems, key=NORMS.index)
            if len(ids) != len(in_order):
                raise InputError(
                    f"layer {number} has the norms {', '.join(in_order)}, and the contract says {len(ids)}"
                )
            for id, stem in zip(ids, in_order, strict=True):
                names.update({source: f"layers.{number}.{id}.{suffix}" for source, suffix in stems[stem]})
        return names

    def finished(self) -> dict[str, Array]:
        """All of them, if they are all that the contract says."""
        for name, pieces in self.pieces.items():
            self.whole[name] = np.stack([pieces[copy] for copy in sorted(pieces)])
        missing = [name for name in self.expected if name not in self.whole]
        if missing:
            raise InputError(f"the weights lack {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}")
        for name, tensor in self.expected.items():
            found = self.whole[name].shape
            if found != shape(tensor):
                raise InputError(f"{name} has the shape {list(found)}, and the contract says {list(shape(tensor))}")
        return self.whole


def _by_group(array: Array, groups: int, widths: Sequence[int]) -> list[Array]:
    """Tensors of those widths, of which each of several groups holds its part of all, one after the other."""
    grouped = array.reshape(groups, -1, *array.shape[1:])
    parts = np.split(grouped, np.cumsum([width // groups for width in widths])[:-1], axis=1)
    return [part.reshape(-1, *array.shape[1:]) for part in parts]


def _experts(mixture: Any, parts: int, array: Array) -> Sequence[Array]:
    """[E, out, in], gate above up; gpt-oss stores [E, in, out] with gate and up in turns, Llama 4 side by side."""
    in_turns, by_columns = getattr(mixture, "activation", "") == "swiglu_oai", getattr(mixture, "scales_input", False)
    if array.ndim == 3 and (in_turns or by_columns):
        array = array.swapaxes(1, 2)
    if parts == 1:
        return [array]
    return [array[:, 0::2], array[:, 1::2]] if in_turns else np.split(array, 2, axis=1)


def _norm_ids(layer: Layer) -> tuple[str, ...]:
    """The norms of a layer in the order in which the data pass them, those of a branch with its own included."""
    ids = layer.norm_ids()
    if not isinstance(layer.feed_forward, DenseAndMixture):
        return ids
    own = [f"feed_forward.{part}{end}" for part in ("dense", "mixture") for end in ("_norm", "_output_norm")]
    return (*ids[:2], *own, *ids[2:])


def is_conv1d(model: Architecture, weights: Mapping[str, Any]) -> bool:
    """Whether matrices are stored [in, out], as GPT-2 alone does: its fused projection is not square and tells."""
    fused = (array for name, array in weights.items() if name.endswith("attn.c_attn.weight"))
    return any(array.shape[0] == model.d_model != array.shape[1] for array in fused)
