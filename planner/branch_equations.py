"""The equations of one mixer or feed-forward, in LaTeX: n is its input, i and j are positions, h a head.

A component without a writer here is shown by the matrices of its bill, so that a new one never goes missing. A field
that no equation shows is named behind them, unless it is at its default.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from planner.components.base import Branch
from planner.components.dense_and_mixture import DenseAndMixture
from planner.components.dense_attention import DenseAttention
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.norm import LayerNorm, Norm
from planner.components.position import Alibi, Position, Rope
from planner.components.side_by_side import SideBySide
from planner.notation import latex_number as number
from planner.spec import Spec, field_names

Lines: TypeAlias = Iterator[str]
Writer: TypeAlias = Callable[[Any, str, Any], Lines]

WEIGHTED = r"\operatorname{{concat}}_h \Big(\sum_j \operatorname{{softmax}}_j(z_{{h,i,j}}) \, v_{{{},j}}\Big) W_O"


def branch(part: Branch, symbol: str, d_model: Any) -> Lines:
    """The lines that say what symbol(n) is."""
    write: Writer = _WRITERS.get(type(part), matrices)
    yield from write(part, symbol, d_model)


def matrices(part: Branch, symbol: str, d_model: Any) -> Lines:
    """A component by its kind, the tensors of its bill and its fields."""
    yield rf"{symbol}(n) = \operatorname{{{escaped(part.kind)}}}(n)"
    for tensor in part.bill(d_model).tensors:
        copies = "" if tensor.copies == 1 else rf" \quad \text{{({number(tensor.copies)} of them)}}"
        yield rf"\text{{{escaped(tensor.id)}}} \in {space(*tensor.shape)}{copies}"
    yield from more(part, ())


def norm_line(norm: Norm) -> str:
    """What N is."""
    top, spread = "x", r"\operatorname{mean}(x^2)"
    if isinstance(norm, LayerNorm):
        top, spread = r"x - \operatorname{mean}(x)", r"\operatorname{var}(x)"
    line = rf"N(x) = \frac{{{top}}}{{\sqrt{{{spread} + {number(norm.eps)}}}}}"
    if norm.weight:
        line += r" \odot (1 + \gamma)" if getattr(norm, "unit_offset", False) else r" \odot \gamma"
    return line + (r" + \beta" if norm.biased else "")


def given(shapes: Mapping[str, tuple[Any, ...]]) -> str:
    """The end of a line: the matrices in it and the spaces they are from."""
    return "".join(rf", \quad {name} \in {space(*shape)}" for name, shape in shapes.items())


def space(*sides: Any) -> str:
    """R to the sides of an array; a side may itself be a product, such as (heads, width)."""
    written = (r" \cdot ".join(map(_side, side)) if isinstance(side, tuple) else _side(side) for side in sides)
    return r"\mathbb{R}^{" + r" \times ".join(written) + "}"


def more(part: Spec, told: str | tuple[str, ...]) -> Lines:
    """The fields that no equation told and that are not at their default."""
    names = told.split() if isinstance(told, str) else told
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.name not in names and value != field.default:
            yield rf"\text{{with {escaped(field.name)}}} = {_value(value)}"


def escaped(words: str) -> str:
    """A name as LaTeX writes it inside braces, whatever is in it."""
    return re.sub(r"([\\{}_#$%&~^])", r"\\\1", " ".join(words.split()))


def _side(side: Any) -> str:
    return side if isinstance(side, str) else number(side)


def _value(value: Any) -> str:
    if isinstance(value, Spec):
        fields = {name: getattr(value, name) for name in field_names(type(value))}
        inner = (rf"\text{{{escaped(name)}}} = {_value(of)}" for name, of in fields.items() if of is not None)
        return rf"\text{{{escaped(value.kind) or type(value).__name__.lower()}}}({', '.join(inner)})"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, (bool, str)):
        return rf"\text{{{escaped(str(value).lower())}}}"
    return number(value)


def _dense_attention(part: DenseAttention, symbol: str, d_model: Any) -> Lines:
    heads, kv_heads, d_k = part.n_heads, part.n_kv_heads, part.head_dim
    d_v = d_k if part.v_head_dim is None else part.v_head_dim
    bias = {name: f" + b_{name.upper()}" if getattr(part, f"{name}_bias") else "" for name in "qkvo"}
    yield f"q = n W_Q{bias['q']}{given({'W_Q': (d_model, (heads, d_k))})}"
    if part.kv_source is not None:
        yield rf"k, v \ \text{{of the last layer of kind {escaped(part.kv_source)}}}"
    else:
        yield f"k = n W_K{bias['k']}{given({'W_K': (d_model, (kv_heads, d_k))})}"
        yield "v = n W_K" if part.v_from_k else f"v = n W_V{bias['v']}{given({'W_V': (d_model, (kv_heads, d_v))})}"
    over = {"head": "each head", "heads": "each head, a weight for each", "whole": "all heads at once"}
    if part.qk_norm is not None:
        yield rf"q, k \leftarrow N(q), N(k) \quad \text{{over {over[part.qk_norm_over]}}}"
    yield from _position(part.position, "q, k", d_k)
    scores = rf"\frac{{q_{{h,i}} \cdot k_{{g,j}}}}{{\sqrt{{{d_k}}}}}"
    if part.scale is not None:
        scores = rf"{number(part.scale)} \, q_{{h,i}} \cdot k_{{g,j}}"
    if part.soft_cap is not None:
        scores = rf"{number(part.soft_cap)} \tanh\left(\frac{{{scores}}}{{{number(part.soft_cap)}}}\right)"
    slope = r" - m_h (i - j)" if isinstance(part.position, Alibi) else ""
    yield rf"z_{{h,i,j}} = {scores}{slope}, \quad g = {_kv_head(part)}, \quad {_mask(part)}"
    if part.sinks:
        yield r"\text{softmax with one more logit } s_h \text{ that has no value}"
    yield f"{symbol}(n) = {WEIGHTED.format('g')}{bias['o']}{given({'W_O': ((heads, d_v), d_model)})}"
    shown = "n_heads n_kv_heads head_dim v_head_dim window chunk position scale soft_cap sinks kv_source kv_map"
    yield from more(part, f"{shown} v_from_k qk_norm qk_norm_over q_bias k_bias v_bias o_bias")


def _kv_head(part: DenseAttention) -> str:
    """The KV head that query head h reads."""
    if part.n_kv_heads == 1:
        return "0"
    if part.n_heads == part.n_kv_heads:
        return "h"
    if part.kv_map == "interleaved":
        return rf"h \bmod {part.n_kv_heads}"
    return rf"\lfloor h / {part.n_heads // part.n_kv_heads} \rfloor"


def _mask(part: DenseAttention) -> str:
    if part.window is not None:
        return rf"i - {number(part.window)} < j \le i"
    if part.chunk is not None:
        return rf"\lfloor i / {number(part.chunk)} \rfloor \cdot {number(part.chunk)} \le j \le i"
    return r"j \le i"


def _position(position: Position | None, what: str, width: Any) -> Lines:
    """How positions turn queries and keys; ALiBi is a part of the scores."""
    if isinstance(position, Rope):
        turned = width if position.width is None else position.width
        pairs = "neighbours" if position.interleaved else "halves"
        share = "" if turned == width else f"on {turned} of {width} elements, "
        angle = rf"\theta_r = {number(position.base)}^{{-2 r / {turned}}}"
        which = rf"\text{{({share}in pairs of {pairs})}}"
        yield rf"{what} \leftarrow \operatorname{{rope}}_i({what}), \quad {angle} \quad {which}"
        if position.scaling is not None:
            yield rf"\theta \leftarrow {_value(position.scaling)}"


def _latent_attention(part: LatentAttention, symbol: str, d_model: Any) -> Lines:
    heads, rank = part.n_heads, part.kv_lora_rank
    d_c, d_r, d_v = part.nope_head_dim, part.rope_head_dim, part.v_head_dim
    query, width = "n", d_model
    if part.q_lora_rank is not None:
        yield f"c^Q = N(n W_{{DQ}}){given({'W_{DQ}': (d_model, part.q_lora_rank)})}"
        query, width = "c^Q", part.q_lora_rank
    yield f"[q^C; q^R] = {query} W_{{UQ}}{given({'W_{UQ}': (width, (heads, f'({d_c} + {d_r})'))})}"
    yield f"[c; k^R] = n W_{{DKV}}{given({'W_{DKV}': (d_model, f'({rank} + {d_r})')})}"
    yield r"c \leftarrow N(c) \quad \text{(c and rotated }k^R\text{ are cached)}"
    yield f"[k^C; v] = c W_{{UKV}}{given({'W_{UKV}': (rank, (heads, f'({d_c} + {d_v})'))})}"
    yield from _position(part.position, "q^R, k^R", d_r)
    dots = r"q^C_{h,i} \cdot k^C_{h,j} + q^R_{h,i} \cdot k^R_j"
    scores = rf"\frac{{{dots}}}{{\sqrt{{{d_c} + {d_r}}}}}"
    if part.scale is not None:
        scores = rf"{number(part.scale)} \, ({dots})"
    yield rf"z_{{h,i,j}} = {scores}, \quad j \le i"
    yield f"{symbol}(n) = {WEIGHTED.format('h')}{given({'W_O': ((heads, d_v), d_model)})}"
    shown = "n_heads kv_lora_rank q_lora_rank nope_head_dim rope_head_dim v_head_dim latent_norm position scale"
    yield from more(part, shown)


def _feed_forward(part: FeedForward, symbol: str, d_model: Any) -> Lines:
    inwards, back = (d_model, part.d_ff), (part.d_ff, d_model)
    bias = {name: f" + b_{name}" if part.bias else "" for name in "GUD"}
    act = rf"\operatorname{{{escaped(part.activation)}}}"
    inner = rf"{act}(n W_G{bias['G']}) \odot (n W_U{bias['U']})" if part.gated else f"{act}(n W_U{bias['U']})"
    if part.inner_norm is not None:
        inner = f"N({inner})"
    shapes = {"W_G, W_U" if part.gated else "W_U": inwards, "W_D": back}
    yield f"{symbol}(n) = {f'({inner})' if part.gated else inner} W_D{bias['D']}{given(shapes)}"
    yield from more(part, "d_ff gated activation bias inner_norm")


def _mixture(part: Mixture, symbol: str, d_model: Any) -> Lines:
    logits = f"n W_R{' + b_R' if part.router_bias else ''}"
    chosen_only = part.scoring == "softmax_of_chosen"
    scores = logits if chosen_only else rf"\operatorname{{{escaped(part.scoring)}}}({logits})"
    yield f"s = {scores}{given({'W_R': (d_model, part.n_experts)})}"
    by = "s" if part.correction_bias is None else "s + b"
    groups = ""
    if part.top_k_groups is not None:
        groups = rf" \quad \text{{in the best {part.top_k_groups} of {part.n_groups} groups}}"
    yield rf"T = \operatorname{{top}}_{{{part.top_k}}}({by}){groups}"
    gate = r"\frac{s_e}{\sum_{f \in T} s_f}" if part.normalised else "s_e"
    if chosen_only:
        gate = r"\operatorname{softmax}_T(s)_e"
    factor = "" if part.routed_scale == 1 else rf"{number(part.routed_scale)} \, "
    shared = part.shared_expert
    shared_gate = r"\sigma(n W_S) \, " if part.shared_gate else ""
    always = "" if shared is None else f" + {shared_gate}F_s(n)"
    yield rf"{symbol}(n) = {factor}\sum_{{e \in T}} {gate} \, F_e(n){always}"
    yield from _feed_forward(part.expert, "F_e", part.d_latent or d_model)
    if shared is not None:
        yield from _feed_forward(shared, "F_s", d_model)
    shown = "n_experts top_k d_ff gated activation bias clip d_ff_shared shared_gate router_bias correction_bias"
    yield from more(part, f"{shown} scoring normalised routed_scale n_groups top_k_groups")


def _side_by_side(part: SideBySide, symbol: str, d_model: Any) -> Lines:
    names = [f"{symbol}_{index}" for index in range(1, len(part.mixers) + 1)]
    yield f"{symbol}(n) = {' + '.join(f'{name}(n)' for name in names)}"
    for name, mixer in zip(names, part.mixers, strict=True):
        yield from branch(mixer, name, d_model)
    yield from more(part, "mixers")


def _dense_and_mixture(part: DenseAndMixture, symbol: str, d_model: Any) -> Lines:
    yield f"{symbol}(x) = N({symbol}_1(N(x))) + N({symbol}_2(N(x)))"
    yield from branch(part.dense, f"{symbol}_1", d_model)
    yield from branch(part.mixture, f"{symbol}_2", d_model)


_WRITERS: dict[type, Writer] = {
    DenseAndMixture: _dense_and_mixture,
    DenseAttention: _dense_attention,
    FeedForward: _feed_forward,
    LatentAttention: _latent_attention,
    Mixture: _mixture,
    SideBySide: _side_by_side,
}
