"""How a mixer knows positions: rotary embedding with its scaling rules, ALiBi slopes. None of them stores a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.spec import Count, Scale, Spec, spec


@spec
class Position(Spec):
    """Base of what a mixer does about positions; a mixer without one knows none (NoPE)."""


@spec
class RopeScaling(Spec):
    """Base of the rules that stretch rotary frequencies beyond the trained length."""

    factor: Scale


@spec
class Linear(RopeScaling):
    """All positions divided by the factor (Chen et al. 2023, eq. 4)."""

    kind: ClassVar[str] = "linear"


@spec
class Dynamic(RopeScaling):
    """The base grows with the length once it passes the original one (dynamic NTK)."""

    kind: ClassVar[str] = "dynamic"
    original_positions: Count


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


@spec
class Llama3(RopeScaling):
    """Low frequencies divided, high ones kept, a ramp between (Llama 3.1 model code)."""

    kind: ClassVar[str] = "llama3"
    original_positions: Count
    low_freq_factor: Scale
    high_freq_factor: Scale

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield (
            self.low_freq_factor < self.high_freq_factor,
            "low_freq_factor = {low_freq_factor} is not below high_freq_factor = {high_freq_factor}",
        )


@spec
class LongRope(RopeScaling):
    """One factor for each rotary pair, a short and a long list (Ding et al. 2024, section 3.3)."""

    kind: ClassVar[str] = "longrope"
    original_positions: Count
    short_factors: tuple[Scale, ...]
    long_factors: tuple[Scale, ...]
    attention_factor: Scale | None = None


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


@spec
class Alibi(Position):
    """A penalty linear in distance, one slope for each head (Press et al. 2022, section 3)."""

    kind: ClassVar[str] = "alibi"
    max_bias: Scale = 8.0
