"""Two or more mixers side by side on the same input: their outputs are added."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from planner.bill import Bill
from planner.components.arrays import Array, np
from planner.components.base import Mixer, Run
from planner.spec import Scale, spec


@spec
class SideBySide(Mixer):
    """Mixers that read the same normed input; their outputs are added (Falcon-H1, Zuo et al. 2025, section 2).

    `input_scales` and `output_scales` multiply what each mixer reads and gives (None: all 1).
    """

    kind: ClassVar[str] = "side_by_side"
    mixers: tuple[Mixer, ...]
    input_scales: tuple[Scale, ...] | None = None
    output_scales: tuple[Scale, ...] | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield len(self.mixers) > 1, "mixers has fewer than two entries; name a single one as the mixer itself"
        for name in ("input_scales", "output_scales"):
            scales = getattr(self, name)
            yield scales is None or len(scales) == len(self.mixers), f"{name} has not one entry for each of mixers"

    def bill(self, d_model: Any) -> Bill:
        return Bill.of(*(mixer.bill(d_model).under(f"mixers[{i}]") for i, mixer in enumerate(self.mixers)))

    def forward(self, x: Array, run: Run) -> Array:
        total = np.zeros_like(x)
        for i, mixer in enumerate(self.mixers):
            read = x if self.input_scales is None else x * self.input_scales[i]
            out = mixer.forward(read, run.under(f"mixers[{i}]"))  # [S, D]
            total += out if self.output_scales is None else out * self.output_scales[i]
        return total
