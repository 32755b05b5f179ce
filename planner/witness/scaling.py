"""Any contract made small, its structure kept, so that a laptop runs it in a second.

Every kind of layer stays, in its order, at most two of each; every flag, scale, norm and rule stays. Widths and
counts shrink by `RUNGS`: the smallest value of a field in a contract becomes the first rung, the next larger one the
next, so that what differs between two kinds of layer still does. What belongs together is kept together: query heads
to a key head, experts to a group, rotary width to head, strides to a block.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from planner.components.dense_attention import DenseAttention
from planner.components.mixture import Mixture
from planner.components.position import Alibi, LongRope, Rope
from planner.contract import Architecture
from planner.editing import diff, flatten
from planner.spec import Spec, field_names

MOST_QUERY_HEADS = 16
"""Query heads on one key head that are kept as they are; more become as many."""

RUNGS: dict[str, tuple[int, int]] = {
    # residual stream, vocabulary, lengths
    "d_model": (32, 8),
    "vocab_size": (67, 4),
    "hash_rows": (67, 4),
    "learned_positions": (64, 8),
    "original_positions": (64, 8),
    # attention
    "n_kv_heads": (2, 1),
    "head_dim": (8, 4),
    "v_head_dim": (6, 2),
    "window": (6, 3),
    "chunk": (5, 3),
    "q_lora_rank": (12, 4),
    "kv_lora_rank": (16, 4),
    "nope_head_dim": (8, 4),
    "rope_head_dim": (4, 2),
    "index_heads": (2, 1),
    "index_head_dim": (8, 4),
    "index_top_k": (2, 1),
    "stride": (2, 1),
    "n_selected": (2, 1),
    "compress": (4, 3),
    "o_groups": (2, 1),
    "o_lora_rank": (6, 2),
    "interval": (8, 4),
    # states
    "d_inner": (16, 8),
    "d_state": (4, 2),
    "dt_rank": (3, 1),
    "n_groups": (2, 1),
    "n_key_heads": (2, 1),
    "key_head_dim": (6, 2),
    "value_head_dim": (8, 2),
    # feed-forward
    "d_ff": (24, 8),
    "d_ff_shared": (16, 8),
    "d_latent": (12, 4),
    "n_experts": (8, 4),
    "top_k": (2, 1),
    # rarer parts
    "width": (16, 8),
    "rank": (4, 2),
    "adapter_rank": (4, 2),
    "pairs": (2, 1),
}
"""Field -> (first rung, step to the next)."""


_ENDS = ("trained_positions", "max_positions")


@dataclass(frozen=True, slots=True)
class Scaled:
    """A small contract, and what was scaled: path -> (before, after)."""

    architecture: Architecture
    changes: dict[str, tuple[Any, Any]]


def scaled_down(model: Architecture, *, every_layer: bool = False) -> Scaled:
    """The contract made small, in float32; with `every_layer` its depth stays."""
    fields = {
        "stated_parameters": None,
        "weights": "fp32",
        "kv": "fp32",
        **({} if every_layer else _fewer_layers(model)),
    }
    shrinking = _Shrinking(model)
    small = shrinking.part(dataclasses.replace(model, **fields))
    rows = small.embedding.learned_positions
    if rows is not None:
        ends = {name: value and min(value, rows) for name in _ENDS if (value := getattr(small, name)) is not None}
        small = dataclasses.replace(small, **ends)
    return Scaled(small, diff(model, small))


def _fewer_layers(model: Architecture) -> dict[str, Any]:
    """At most two layers of each kind: the first two, in the order in which they stand."""
    layers = tuple(dataclasses.replace(layer, count=min(layer.count, 2)) for layer in model.layers)
    if model.pattern is None:
        return {"layers": layers}
    order = [layer.label for layer in model.order()]
    first = [label for i, label in enumerate(order) if order[:i].count(label) < 2]
    return {"layers": layers, "pattern": tuple(label for label in first if label is not None)}


class _Shrinking:
    """Rungs of one contract."""

    def __init__(self, model: Architecture) -> None:
        self.values: dict[str, list[int]] = {}
        for path, value in flatten(model):
            field = path.rpartition(".")[2]
            if field in RUNGS and isinstance(value, int) and value:
                known = self.values.setdefault(field, [])
                self.values[field] = sorted({*known, value})

    def rung(self, field: str, value: int) -> int:
        """The small value of a field; one that is small already stays."""
        first, step = RUNGS[field]
        return min(value, first + step * self.values[field].index(value)) if value else value

    def part(self, part: Any) -> Any:
        """A part and all parts in it."""
        fields = {name: self.field(name, getattr(part, name)) for name in field_names(type(part))}
        if isinstance(part, DenseAttention):
            fields |= _attention(part, fields)
        elif isinstance(part, Mixture):
            fields |= _experts(part)
        elif "n_heads" in fields:
            fields["n_heads"] = _heads(part, fields)
        elif "n_value_heads" in fields:
            fields["n_value_heads"] = fields["n_key_heads"] * min(part.n_value_heads // part.n_key_heads, 4)
        if "stride" in fields:
            lengths = ("block", "selected_block")
            fields |= {name: fields["stride"] * min(getattr(part, name) // part.stride, 3) for name in lengths}
        if "rope_head_dim" in fields and isinstance(part.position, Rope):
            fields["position"] = _narrower(fields["position"], None, fields["rope_head_dim"])
        return type(part)(**fields)

    def field(self, name: str, value: Any) -> Any:
        if isinstance(value, Spec):
            return self.part(value)
        if isinstance(value, tuple) and value and isinstance(value[0], Spec):
            return tuple(self.part(item) for item in value)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return self.rung(name, value) if whole and name in RUNGS else value


def _heads(part: Any, fields: dict[str, Any]) -> int:
    """Heads as a multiple of what must divide them."""
    for divisor in ("n_kv_heads", "n_groups"):
        if divisor in fields:
            count: int = fields[divisor] * min(part.n_heads // getattr(part, divisor), MOST_QUERY_HEADS)
            return count
    return min(part.n_heads, 4)


def _attention(part: DenseAttention, fields: dict[str, Any]) -> dict[str, Any]:
    kv_heads, position = fields["n_kv_heads"], fields["position"]
    if isinstance(position, Alibi) and part.n_heads & (part.n_heads - 1) and part.n_kv_heads > 1:
        kv_heads = 3  # slopes between two powers of two are a rule of their own
    if isinstance(part.position, Rope):
        turned = part.head_dim if part.position.width is None else part.position.width
        width = max(2 * round(fields["head_dim"] * turned / part.head_dim / 2), 2)
        position = _narrower(position, None if position.width is None else width, width)
    share = min(part.n_heads // part.n_kv_heads, MOST_QUERY_HEADS)
    return {"n_kv_heads": kv_heads, "n_heads": kv_heads * share, "position": position}


def _experts(part: Mixture) -> dict[str, Any]:
    if part.n_groups is None:
        return {}
    kept = part.top_k_groups or part.n_groups
    groups = min(part.n_groups, 4)
    small_kept = max(1, round(groups * kept / part.n_groups))
    return {"n_groups": groups, "n_experts": 4 * groups, "top_k": min(part.top_k, 3), "top_k_groups": small_kept}


def _narrower(rope: Rope, width: int | None, turned: int) -> Rope:
    """A rotary embedding of a narrower head; lists of factors, one for each pair, are thinned out."""
    scaling = rope.scaling
    if isinstance(scaling, LongRope):
        lists = ("short_factors", "long_factors")
        thinned: dict[str, Any] = {name: _thinned(getattr(scaling, name), turned // 2) for name in lists}
        scaling = dataclasses.replace(scaling, **thinned)
    return dataclasses.replace(rope, width=width, scaling=scaling)


def _thinned(factors: tuple[float, ...], count: int) -> tuple[float, ...]:
    return tuple(factors[i * len(factors) // count] for i in range(count))
