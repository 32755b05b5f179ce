"""Checkpoint tensor names -> the names of the bill: the same few roles under the names of a dozen families.

A name is a place (``model.layers.3.`` or ``transformer.h.3.``) and a role (``self_attn.q_proj.weight``). `ROLES` says which tensors
of the bill a role holds, and how several of them are fused. The norms of a layer have no telling names (what
`post_attention_layernorm` stands before depends on the family), so they are taken in the order in which the data pass them,
which is the order of `Layer.norm_ids`. Nothing is guessed: what is missing, too much or of another shape is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.bill import Tensor
from planner.components.arrays import Array
from planner.contract import Architecture
from planner.errors import InputError
from planner.witness.places import shape, stored

Layout = Literal["plain", "blocks", "by_group", "experts"]

_LAYER = re.compile(r"(?:.*\.)?(?:layers|h|blocks)\.(\d+)\.(.+)")
_ATTENTION = r"(?:self_attn|self_attention|attn\.attention|attn|attention)\."
_FEED_FORWARD = r"(?:(?:mlp|ffn|feed_forward|block_sparse_moe)\.)?"
_EXPERT = r"experts\.(?P<copy>\d+)\."
_SUFFIX = r"\.(?P<suffix>weight|bias)"

ENDS = {
    r"(?:embed_tokens|wte|word_embeddings|embed_in)\.weight": "embedding.tokens.weight",
    r"(?:wpe|embed_positions)\.weight": "embedding.positions.weight",
    r"word_embeddings_layernorm" + _SUFFIX: "embedding.norm.{suffix}",
    r"project_in\.weight": "embedding.project.weight",
    r"project_out\.weight": "output.project.weight",
    r"(?:norm|ln_f|norm_f|final_layernorm|final_layer_norm)" + _SUFFIX: "final_norm.{suffix}",
    r"(?:lm_head|embed_out)" + _SUFFIX: "output.{suffix}",
}
"""Role outside the layers -> name in the bill."""

ROLES: dict[str, tuple[Layout, tuple[str, ...]]] = {
    _ATTENTION + r"(?P<id>[qkv])_proj" + _SUFFIX: ("plain", ("mixer.{id}.{suffix}",)),
    _ATTENTION + r"(?:o_proj|out_proj|dense|c_proj)" + _SUFFIX: ("plain", ("mixer.o.{suffix}",)),
    _ATTENTION + r"query_key_value" + _SUFFIX: ("by_group", tuple(f"mixer.{id}.{{suffix}}" for id in "qkv")),
    _ATTENTION + r"(?:c_attn|Wqkv|qkv_proj)" + _SUFFIX: ("blocks", tuple(f"mixer.{id}.{{suffix}}" for id in "qkv")),
    _ATTENTION + r"(?P<id>[qk])_(?:layer)?norm" + _SUFFIX: ("plain", ("mixer.{id}_norm.{suffix}",)),
    _ATTENTION + r"(?P<id>[qk])_layernorm\.norms\.(?P<copy>\d+)" + _SUFFIX: ("plain", ("mixer.{id}_norm.{suffix}",)),
    _ATTENTION + r"sinks": ("plain", ("mixer.sinks",)),
    _ATTENTION + r"(?P<id>q_a|q_b|kv_b)_proj" + _SUFFIX: ("plain", ("mixer.{id}.{suffix}",)),
    _ATTENTION + r"kv_a_proj_with_mqa" + _SUFFIX: ("plain", ("mixer.kv_a.{suffix}",)),
    _ATTENTION + r"(?P<id>q_a|kv_a)_layernorm" + _SUFFIX: ("plain", ("mixer.{id}_norm.{suffix}",)),
    _FEED_FORWARD + r"(?P<id>gate|up|down)_proj" + _SUFFIX: ("plain", ("feed_forward.{id}.{suffix}",)),
    _FEED_FORWARD + r"(?:c_fc|fc1|fc_in|dense_h_to_4h)" + _SUFFIX: ("plain", ("feed_forward.up.{suffix}",)),
    _FEED_FORWARD + r"(?:c_proj|fc2|fc_out|dense_4h_to_h)" + _SUFFIX: ("plain", ("feed_forward.down.{suffix}",)),
    _FEED_FORWARD + r"gate_up_proj" + _SUFFIX: ("blocks", tuple(f"feed_forward.{id}.{{suffix}}" for id in ("gate", "up"))),
    _FEED_FORWARD + r"(?:gate|router)" + _SUFFIX: ("plain", ("feed_forward.router.{suffix}",)),
    _FEED_FORWARD + r"(?:gate\.)?e_score_correction_bias": ("plain", ("feed_forward.router.correction",)),
    _FEED_FORWARD + r"experts\.gate_up_proj": ("experts", ("feed_forward.experts.gate.weight", "feed_forward.experts.up.weight")),
    _FEED_FORWARD + r"experts\.gate_up_proj_bias": ("experts", ("feed_forward.experts.gate.bias", "feed_forward.experts.up.bias")),
    _FEED_FORWARD + r"experts\.down_proj": ("experts", ("feed_forward.experts.down.weight",)),
    _FEED_FORWARD + r"experts\.down_proj_bias": ("experts", ("feed_forward.experts.down.bias",)),
    _FEED_FORWARD + _EXPERT + r"(?P<id>gate|up|down)_proj" + _SUFFIX: ("plain", ("feed_forward.experts.{id}.{suffix}",)),
    _FEED_FORWARD + _EXPERT + r"w1" + _SUFFIX: ("plain", ("feed_forward.experts.gate.{suffix}",)),
    _FEED_FORWARD + _EXPERT + r"w3" + _SUFFIX: ("plain", ("feed_forward.experts.up.{suffix}",)),
    _FEED_FORWARD + _EXPERT + r"w2" + _SUFFIX: ("plain", ("feed_forward.experts.down.{suffix}",)),
    _FEED_FORWARD + r"shared_experts?\.(?P<id>gate|up|down)_proj" + _SUFFIX: ("plain", ("feed_forward.shared.{id}.{suffix}",)),
    _FEED_FORWARD + r"shared_expert_gate" + _SUFFIX: ("plain", ("feed_forward.shared_gate.{suffix}",)),
}
"""Role in a layer -> how it is laid out, and the tensors of the bill that it holds."""

NORMS = """
    input_layernorm ln_1 norm_1 ln_attn self_attn_layer_norm
    post_self_attn_layernorm post_attention_layernorm
    ln_2 norm_2 ln_mlp pre_feedforward_layernorm
    post_feedforward_layernorm post_mlp_layernorm final_layer_norm
""".split()
"""Names of a layer's norms, in the order in which the data pass them."""

IGNORED = re.compile(r"(?:.*\.)?(?:rotary_emb\.inv_freq|(?:attn|attention)\.(?:masked_)?bias)")
"""Buffers that old checkpoints hold and that follow from the contract: rotary frequencies and causal masks."""


@dataclass(slots=True)
class Adopted:
    """Arrays under the bill's names; equal tensors that come one by one are collected before they are stacked."""

    expected: dict[str, Tensor]
    whole: dict[str, Array]
    pieces: dict[str, dict[int, Array]]

    def take(self, name: str, array: Array, copy: str | None, source: str) -> None:
        if name not in self.expected:
            raise InputError(f"{source}: the contract has no {name}")
        if copy is None:
            self.whole[name] = array
        else:
            self.pieces.setdefault(name, {})[int(copy)] = array

    def finished(self) -> dict[str, Array]:
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


def adopt(model: Architecture, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights of a checkpoint under the bill's names; those that have them already stay as they are.

    Raises `InputError` for a tensor that the contract has no place for, lacks, or has in another shape.
    """
    expected = stored(model)
    adopted = Adopted(expected, {name: array for name, array in weights.items() if name in expected}, {})
    norms = _norms(model, weights)
    conv1d = _is_conv1d(model, weights)
    for source, array in weights.items():
        if source in expected or IGNORED.fullmatch(source):
            continue
        layer = _LAYER.fullmatch(source)
        if layer is None:
            _adopt_end(model, adopted, source, array)
        elif source in norms:
            adopted.take(norms[source], array, None, source)
        else:
            _adopt_role(model, adopted, source, int(layer[1]), layer[2], array.T if conv1d and array.ndim == 2 else array)
    return adopted.finished()


def _adopt_end(model: Architecture, adopted: Adopted, source: str, array: Array) -> None:
    for pattern, name in ENDS.items():
        match = re.fullmatch(rf"(?:.*\.)?{pattern}", source)
        if match is not None:
            name = name.format(**match.groupdict())
            if not (model.output.tied and name == "output.weight"):  # a copy of the input table
                adopted.take(name, array, None, source)
            return
    raise InputError(f"{source}: no known role of a tensor")


def _adopt_role(model: Architecture, adopted: Adopted, source: str, number: int, role: str, array: Array) -> None:
    for pattern, (layout, targets) in ROLES.items():
        match = re.fullmatch(pattern, role)
        if match is not None:
            groups = match.groupdict()
            names = [f"layers.{number}.{target.format(**groups)}" for target in targets]
            parts = _parts(model, adopted.expected, number, layout, names, array)
            for name, part in zip(names, parts, strict=True):
                adopted.take(name, part, groups.get("copy"), source)
            return
    raise InputError(f"{source}: no known role of a tensor")


def _parts(
    model: Architecture, expected: dict[str, Tensor], number: int, layout: Layout, names: list[str], array: Array
) -> list[Array]:
    """The tensors of the bill that one tensor of a checkpoint holds."""
    mixer = model.layers[list(model.indices())[number]].mixer
    match layout:
        case "plain":
            return [array]
        case "blocks":  # one after the other
            ends = np.cumsum([expected[name].shape[0] if name in expected else 0 for name in names])
            return np.split(array, ends[:-1])
        case "by_group":  # for each key head its query heads, the key, the value
            groups = mixer.n_kv_heads  # type: ignore[union-attr]
            widths = np.cumsum([expected[name].shape[0] // groups for name in names])
            grouped = array.reshape(groups, -1, *array.shape[1:])
            return [part.reshape(-1, *array.shape[1:]) for part in np.split(grouped, widths[:-1], axis=1)]
        case "experts":
            return _experts(model, number, len(names), array)


def _experts(model: Architecture, number: int, parts: int, array: Array) -> list[Array]:
    """[E, out, in], gate above up; gpt-oss stores [E, in, out] with gate and up in turns, Llama 4 side by side."""
    mixture = model.layers[list(model.indices())[number]].feed_forward
    in_turns, by_columns = getattr(mixture, "activation", "") == "swiglu_oai", getattr(mixture, "scales_input", False)
    if array.ndim == 3 and (in_turns or by_columns):
        array = array.swapaxes(1, 2)
    if parts == 1:
        return [array]
    return [array[:, 0::2], array[:, 1::2]] if in_turns else np.split(array, 2, axis=1)


def _norms(model: Architecture, weights: Mapping[str, Array]) -> dict[str, str]:
    """Name in the checkpoint -> name in the bill, of every norm that stands in a layer itself."""
    found: dict[int, dict[str, list[tuple[str, str]]]] = {}
    for source in weights:
        layer = _LAYER.fullmatch(source)
        stem, _, suffix = layer[2].partition(".") if layer is not None else ("", "", "")
        if layer is not None and stem in NORMS:
            found.setdefault(int(layer[1]), {}).setdefault(stem, []).append((source, suffix))
    names = {}
    order = list(model.order())
    for number, stems in found.items():
        ids = order[number].norm_ids() if number < len(order) else ()
        in_order = sorted(stems, key=NORMS.index)
        if len(ids) != len(in_order):
            raise InputError(f"layer {number} has the norms {', '.join(in_order)}, and the contract says {len(ids)}")
        for id, stem in zip(ids, in_order, strict=True):
            names.update({source: f"layers.{number}.{id}.{suffix}" for source, suffix in stems[stem]})
    return names


def _is_conv1d(model: Architecture, weights: Mapping[str, Array]) -> bool:
    """Whether matrices are stored [in, out], as GPT-2 alone does: its fused projection is not square and tells."""
    fused = (array for name, array in weights.items() if name.endswith("attn.c_attn.weight"))
    return any(array.shape[0] == model.d_model != array.shape[1] for array in fused)
