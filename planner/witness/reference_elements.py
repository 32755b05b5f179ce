"""What the reference is made of: functions of one vector or one number, in float64, written from the papers.

Nothing here is shared with the forwards, nor written the way they are: a GELU is a normal distribution's, a rotation a
complex product, a frequency that of one pair.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from planner.components.arrays import Array
from planner.components.norm import LayerNorm, Norm
from planner.components.position import Alibi, Dynamic, Linear, Llama3, LongRope, Proportional, Rope, Yarn

Weights = Callable[[str], Array]
"""A part's tensor by its id; None where it has none of that id."""


def linear(w: Weights, id: str, x: Array) -> Array:
    """One vector times a matrix, plus its bias where there is one: [n_in] -> [n_out]."""
    bias = w(f"{id}.bias")
    return w(f"{id}.weight") @ x + (0 if bias is None else bias)


def normed(norm: Norm, x: Array, weight: Array | None, bias: Array | None) -> Array:
    """A norm over one vector."""
    if isinstance(norm, LayerNorm):
        x = x - sum(x) / len(x)
    x = x / math.sqrt(sum(x * x) / len(x) + norm.eps)
    gain = 1.0 if weight is None else weight + (1 if getattr(norm, "unit_offset", False) else 0)
    return x * gain + (0 if bias is None else bias)


def sigmoid(x: float) -> float:
    """The logistic function, as half a hyperbolic tangent."""
    return (1 + math.tanh(x / 2)) / 2


_ACTIVATIONS: dict[str, Callable[[float], float]] = {
    "relu": lambda x: x if x > 0 else 0.0,
    "relu2": lambda x: x * x if x > 0 else 0.0,
    "gelu": lambda x: x * NormalDist().cdf(x),
    "gelu_tanh": lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "swiglu_oai": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid,
}


def activated(name: str, x: Array) -> Array:
    """An activation, number by number."""
    return np.array([_ACTIVATIONS[name](value) for value in x.ravel().tolist()]).reshape(x.shape)


def weighed(scores: Mapping[int, float], values: Array, sink: float | None) -> Array:
    """The softmax of the scores of some positions, times their values."""
    top = max([*scores.values(), *([] if sink is None else [sink])])
    weights = {j: math.exp(score - top) for j, score in scores.items()}
    total = sum(weights.values()) + (0 if sink is None else math.exp(sink - top))
    return sum((weight / total * values[j] for j, weight in weights.items()), np.zeros(values.shape[-1]))


def best(scores: Sequence[float], k: int) -> list[int]:
    """Where the k highest scores stand, the earlier one of two equals."""
    return sorted(range(len(scores)), key=lambda j: -scores[j])[:k]


def turned(rope: Any, x: Array, position: int, last: int) -> Array:
    """One head at one position: every pair is a complex number, multiplied by a phase."""
    if not isinstance(rope, Rope):
        return x
    width = len(x) if rope.width is None else rope.width
    out, size = x.copy(), _size(rope.scaling, last + 1)
    for i in range(width // 2):
        a, b = (2 * i, 2 * i + 1) if rope.interleaved else (i, i + width // 2)
        product = complex(x[a], x[b]) * cmath.rect(size, position * _frequency(rope, i, width // 2, last + 1))
        out[a], out[b] = product.real, product.imag
    return out


def _frequency(rope: Rope, i: int, pairs: int, length: int) -> float:
    """By how much pair i turns from one position to the next, in a context of that length."""
    plain, scaling = float(rope.base) ** (-i / pairs), rope.scaling
    match scaling:
        case Linear():
            return plain / scaling.factor
        case Dynamic():
            if length <= scaling.original_positions:
                return plain
            longer = scaling.factor * length / scaling.original_positions - scaling.factor + 1
            return plain * longer ** (-i / (pairs - 1))  # the slowest pair is divided by it whole
        case Llama3():
            wavelength, original = 2 * math.pi / plain, scaling.original_positions
            if wavelength < original / scaling.high_freq_factor:
                return plain
            if wavelength > original / scaling.low_freq_factor:
                return plain / scaling.factor
            span = scaling.high_freq_factor - scaling.low_freq_factor
            smooth = (original / wavelength - scaling.low_freq_factor) / span
            return (1 - smooth) * plain / scaling.factor + smooth * plain
        case Yarn():
            share = _interpolated(scaling, rope.base, i, pairs)
            return plain * (1 - share + share / scaling.factor)
        case LongRope():
            return plain / (scaling.short_factors if length <= scaling.original_positions else scaling.long_factors)[i]
        case Proportional():
            return plain / scaling.factor if i < scaling.pairs else 0.0
    return plain


def _interpolated(yarn: Yarn, base: float, i: int, pairs: int) -> float:
    """How much of pair i is interpolated: 0 up to the pair that turns `beta_fast` times in the original length."""
    first, last = (
        2 * pairs * math.log(yarn.original_positions / (2 * math.pi * turns)) / (2 * math.log(base))
        for turns in (yarn.beta_fast, yarn.beta_slow)
    )
    if yarn.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    return min(max((i - first) / (last - first or 0.001), 0.0), 1.0)


def _size(scaling: Any, length: int) -> float:
    """How long a rotated vector of length 1 is."""
    if isinstance(scaling, LongRope):
        stated = scaling.short_mscale if length <= scaling.original_positions else scaling.long_mscale
        return stated or scaling.attention_factor or _longrope_size(scaling)
    if not isinstance(scaling, Yarn):
        return 1.0
    if scaling.mscale and scaling.mscale_all_dim and not scaling.attention_factor:
        return _sharper(scaling, scaling.mscale) / _sharper(scaling, scaling.mscale_all_dim)
    return scaling.attention_factor or _sharper(scaling, 1)


def _longrope_size(scaling: LongRope) -> float:
    return math.sqrt(1 + math.log(max(scaling.factor, 1)) / math.log(scaling.original_positions))


def _sharper(yarn: Yarn, weight: float) -> float:
    return 1 + 0.1 * weight * math.log(max(yarn.factor, 1))


def sharpened(position: Any) -> float:
    """What latent attention multiplies its scores by (DeepSeek-AI 2024, DeepSeek-V2, section 3.1.4)."""
    yarn = position.scaling if isinstance(position, Rope) else None
    return _sharper(yarn, yarn.mscale_all_dim) ** 2 if isinstance(yarn, Yarn) and yarn.mscale_all_dim else 1.0


def slopes(alibi: Alibi, n_heads: int) -> list[float]:
    """The penalty of each head for a distance of 1 (Press et al. 2022, section 3 and its code)."""
    power = 1 << n_heads.bit_length() - 1
    own = [2.0 ** (-alibi.max_bias * (i + 1) / power) for i in range(power)]
    return own if power == n_heads else own + slopes(alibi, 2 * power)[0 : 2 * (n_heads - power) : 2]
