"""How a mixer knows positions: rotary embedding with its scaling rules, ALiBi slopes. None stores a parameter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from planner.components.arrays import Array, np
from planner.spec import Count, Extent, Scale, Spec, spec


@spec
class Position(Spec):
    """Base of what a mixer does about positions; a mixer without one knows none (NoPE)."""


@spec
class RopeScaling(Spec):
    """Base of the rules that stretch rotary frequencies beyond the trained length."""

    factor: Scale

    def stretched(self, frequencies: Array, base: float, length: int) -> tuple[Array, float]:
        """The frequencies [width / 2] for a context of that length, and what cosine and sine are multiplied by."""
        raise AssertionError(f"{type(self).__name__} has no forward")

    @property
    def score_scale(self) -> float:
        """What latent attention multiplies its scores by on top (DeepSeek-AI 2024, DeepSeek-V2, section 3.1.4)."""
        return 1.0


@spec
class Linear(RopeScaling):
    """All positions divided by the factor (Chen et al. 2023, eq. 4)."""

    kind: ClassVar[str] = "linear"

    def stretched(self, frequencies: Array, base: float, length: int) -> tuple[Array, float]:
        return frequencies / self.factor, 1.0


@spec
class Dynamic(RopeScaling):
    """The base grows with the length once it passes the original one (dynamic NTK)."""

    kind: ClassVar[str] = "dynamic"
    original_positions: Count

    def stretched(self, frequencies: Array, base: float, length: int) -> tuple[Array, float]:
        pairs = len(frequencies)
        beyond = self.factor * max(length / self.original_positions, 1) - (self.factor - 1)
        grown = base * beyond ** (pairs / (pairs - 1))
        return np.asarray(grown ** -(np.arange(pairs) / pairs)), 1.0


@spec
class Yarn(RopeScaling):
    """Frequencies interpolated band by band, scores sharpened (Peng et al. 2023, sections 3.2 to 3.4)."""

    kind: ClassVar[str] = "yarn"
    original_positions: Count
    beta_fast: Scale = 32.0
    beta_slow: Scale = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: Scale | None = None
    truncate: bool = True

    def stretched(self, frequencies: Array, base: float, length: int) -> tuple[Array, float]:
        pairs = len(frequencies)

        def pair(turns: float) -> float:
            """The pair that turns so often within the original length (eq. 17, solved for the pair)."""
            return pairs * math.log(self.original_positions / (turns * 2 * math.pi)) / math.log(base)

        low, high = pair(self.beta_fast), pair(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)
        ramp = np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0, 1)
        return frequencies / self.factor * ramp + frequencies * (1 - ramp), self._sharpening()

    def _sharpening(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            return self._mscale(self.mscale) / self._mscale(self.mscale_all_dim)
        return self._mscale(1.0)

    def _mscale(self, weight: float) -> float:
        return 1.0 if self.factor <= 1 else 0.1 * weight * math.log(self.factor) + 1.0  # eq. 22, as a factor on both

    @property
    def score_scale(self) -> float:
        return self._mscale(self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0


@spec
class Llama3(RopeScaling):
    """Low frequencies divided, high ones kept, a ramp between (Llama 3.1 model code), none for equal factors."""

    kind: ClassVar[str] = "llama3"
    original_positions: Count
    low_freq_factor: Scale
    high_freq_factor: Scale

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield (
            self.low_freq_factor <= self.high_freq_factor,
            "low_freq_factor = {low_freq_factor} exceeds high_freq_factor = {high_freq_factor}",
        )

    def stretched(self, frequencies: Array, base: float, length: int) -> tuple[Array, float]:
        turns = self.original_positions * frequencies / (2 * math.pi)  # within the original length
        ramp = (turns - self.low_freq_factor) / max(self.high_freq_factor - self.low_freq_factor, 1e-9)
        kept = np.clip(ramp, 0, 1)
        return (1 - kept) * frequencies / self.factor + kept * frequencies, 1.0


@spec
class LongRope(RopeScaling):
    """One factor for each rotary pair, a short and a long list (Ding et al. 2024, section 3.3).

    Cosine and sine are multiplied by `attention_factor` (None: sqrt(1 + ln factor / ln original_positions)), or, where
    they are stated, by `short_mscale` up to the original length and by `long_mscale` beyond it (Phi-3.5-MoE).
    """

    kind: ClassVar[str] = "longrope"
    original_positions: Count
    short_factors: tuple[Scale, ...]
    long_factors: tuple[Scale, ...]
    attention_factor: Scale | None = None
    short_mscale: Scale | None = None
    long_mscale: Scale | None = None

    def stretched(self, frequencies: Array, base: float, length: int) -> tuple[Array, float]:
        beyond = length > self.original_positions
        stated = self.long_mscale if beyond else self.short_mscale
        factors = np.asarray(self.long_factors if beyond else self.short_factors)
        return frequencies / factors, self._sharpening() if stated is None else stated

    def _sharpening(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return 1.0 if self.factor <= 1 else math.sqrt(1 + math.log(self.factor) / math.log(self.original_positions))


@spec
class Proportional(RopeScaling):
    """The first `pairs` frequencies of the whole head turn, all others stand still (Gemma 4's global layers).

    Unlike a narrower rotary width, the exponent stays 2i / head_dim, and element r still pairs with r + head_dim / 2.
    """

    kind: ClassVar[str] = "proportional"
    pairs: Count

    def stretched(self, frequencies: Array, base: float, length: int) -> tuple[Array, float]:
        return np.where(np.arange(len(frequencies)) < self.pairs, frequencies / self.factor, 0), 1.0


@spec
class Rope(Position):
    """Rotary embedding (Su et al. 2024, eq. 15).

    `width` elements of each head turn (None: the whole head), in pairs of neighbours when `interleaved`, else element r
    with element r + width/2.
    """

    kind: ClassVar[str] = "rope"
    base: Scale
    width: Count | None = None
    interleaved: bool = False
    scaling: RopeScaling | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        if self.width is not None:
            yield self.width % 2 == 0, "width = {width} is odd, and rotation turns elements in pairs"

    def turned(self, heads: Array, positions: Array, reach: int) -> Array:
        """Each pair of elements turned by its position times its frequency for a context of `reach` positions.

        [S, H, d] -> [S, H, d].
        """
        width = heads.shape[-1] if self.width is None else self.width
        frequencies, size = self.base ** -(np.arange(0, width, 2) / width), 1.0  # [width / 2]
        if self.scaling is not None:
            frequencies, size = self.scaling.stretched(frequencies, self.base, reach)
        angles = np.multiply.outer(positions, frequencies)[:, None]  # [S, 1, width / 2]
        cos, sin = ((size * wave(angles)).astype(heads.dtype) for wave in (np.cos, np.sin))
        inner, rest = heads[..., :width], heads[..., width:]
        pairs = inner.reshape(*inner.shape[:-1], *((width // 2, 2) if self.interleaved else (2, width // 2)))
        axis = -1 if self.interleaved else -2
        a, b = np.moveaxis(pairs, axis, 0)  # [S, H, width / 2] each
        out = np.stack([a * cos - b * sin, a * sin + b * cos], axis=axis).reshape(inner.shape)
        return np.concatenate([out, rest], axis=-1)


def turned(heads: Array, position: Position | None, positions: Array, reach: int) -> Array:
    """Heads [S, H, d] under a rotary embedding; any other knowledge of positions leaves them as they are."""
    return position.turned(heads, positions, reach) if isinstance(position, Rope) else heads


@spec
class Temperature(Spec):
    """Queries times 1 + slope ln(1 + floor((p + first) / interval)) at position p (Llama 4, Ministral 3)."""

    slope: Scale
    interval: Count
    first: Extent = 0

    def stretched(self, q: Array, positions: Array) -> Array:
        """[S, H, d] -> [S, H, d]."""
        factor = 1 + self.slope * np.log1p((positions + self.first) // self.interval)  # [S]
        return q * factor.astype(q.dtype)[:, None, None]


@spec
class Alibi(Position):
    """A penalty linear in distance, one slope for each head (Press et al. 2022, section 3).

    Slope i of n is 2 ** (-max_bias i / n), n a power of two; between two powers come first those of the lower one,
    then every other one of the upper. Falcon scales the penalty together with the scores, and rounds slope and product
    to bf16.
    """

    kind: ClassVar[str] = "alibi"
    max_bias: Scale = 8.0
    scaled_with_scores: bool = False
    precision: Literal["float32", "bf16"] = "float32"

    def slopes(self, n_heads: int) -> Array:
        """[H] one slope for each head."""
        lower = 2 ** int(math.log2(n_heads))
        first = 2.0 ** (-self.max_bias * np.arange(1, lower + 1) / lower)
        upper = 2.0 ** (-self.max_bias * np.arange(1, 2 * lower + 1, 2) / (2 * lower))
        return np.concatenate([first, upper])[:n_heads]

    def bias(self, n_heads: int, queries: Array, keys: Array) -> Array:
        """[H, S, T] the penalty of keys [T] under queries [S], given their positions."""
        slopes = self.slopes(n_heads)[:, None, None]
        if self.precision == "bf16":  # not of the distance but of the key's position, which the softmax cannot tell
            return np.broadcast_to(_bf16(_bf16(slopes) * _bf16(1.0 * keys)), (n_heads, len(queries), len(keys)))
        return slopes * (keys - queries[:, None])


def _bf16(x: Array) -> Array:
    """Rounded to the nearest bf16 number, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)
