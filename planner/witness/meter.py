"""What a pass really multiplied, read and wrote, counted as it happens."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from planner.components.arrays import Array


@dataclass(slots=True)
class Meter:
    """Counts of one or several passes, by the paths that the bill uses.

    `square` are the multiply-adds that were done, `causal` those of query-key pairs that the mask allowed. A weight
    that is used twice in a pass, by two sequences of a batch say, is read once.
    """

    square: Counter[str] = field(default_factory=Counter)
    causal: Counter[str] = field(default_factory=Counter)
    weights: dict[str, int] = field(default_factory=dict)
    cache_read: Counter[str] = field(default_factory=Counter)
    cache_written: Counter[str] = field(default_factory=Counter)

    def multiplied(self, path: str, subscripts: str, a: Array, b: Array, mask: Array | None) -> None:
        """Count ``einsum(subscripts, a, b)``: one multiply-add for each combination of its indices."""
        left, right = subscripts.partition("->")[0].split(",")
        sizes = dict(zip(left + right, (*a.shape, *b.shape), strict=True))
        done = math.prod(sizes.values())
        self.square[path] += done
        self.causal[path] += done if mask is None or mask.size == 0 else done * int(mask.sum()) // mask.size

    def flops(self, convention: Literal["causal", "square"] = "causal") -> dict[str, int]:
        """FLOPs by product, 2 for each multiply-add."""
        return {path: 2 * macs for path, macs in getattr(self, convention).items() if macs}

    @property
    def tensors(self) -> set[str]:
        """Names of the weights that were used, whole, by rows or by copies."""
        return {re.sub(r"\[\d+\]$", "", name) for name in self.weights}

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights that were used."""
        return sum(self.weights.values())
