"""The figures that compare decoders: what one row of `compare` and of a sweep says.

The load may be ints (and every figure is exact) or recorded words (and the figures compile to columns): the same lines
serve both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner import accounts, bill, folds
from planner.arithmetic import is_column, is_symbolic, maximum, minimum
from planner.bill import Pass
from planner.contract import Architecture

UNITS = {
    "parameters": "1",
    "active_parameters": "1",
    "weight_bytes": "B",
    "cache_bytes_per_token": "B",
    "cache_fixed_bytes": "B",
    "cache_bytes": "B",
    "crossover_tokens": "token",
    "prefill_flops": "FLOP",
    "decode_flops": "FLOP",
    "request_flops": "FLOP",
    "cache_ratio": "1",
    "context": "token",
    "isl": "token",
    "osl": "token",
    "batch": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a decoder is asked: resident context and sequences, or a request of `isl` in and `osl` out; conventions."""

    context: Any = 128_000
    batch: Any = 1
    isl: Any = None
    osl: Any = None
    weights: str | None = None
    kv: str | None = None
    attention: str = "causal"
    logits: str = "last"
    mla: str = "auto"

    @property
    def resident(self) -> Any:
        """Positions cached at the end: the context, or the whole request but its last token, which is never fed."""
        return self.context if self.isl is None else self.isl + self.osl - 1


def summary(architecture: Architecture, load: Load) -> dict[str, Any]:
    """Figure -> value, in the order in which they are shown; all but the crossover."""
    parts, context, batch = architecture.parts(), load.resident, load.batch
    slope = CacheCurve.of(architecture, load.kv).slope(context)
    cached = accounts.cache_bytes(architecture, [context], kv=load.kv)
    figures = {
        "parameters": folds.parameters(parts),
        "active_parameters": folds.parameters(parts, active=True),
        "weight_bytes": accounts.weight_bytes(architecture, load.weights),
        "cache_bytes_per_token": slope,
        "cache_fixed_bytes": cached - slope * context,
        "cache_bytes": batch * cached,
    }
    prompt = context if load.isl is None else load.isl
    decode = "absorbed" if load.mla == "auto" else load.mla
    figures["prefill_flops"] = _flops(parts, load, 0, prompt, "expanded" if load.mla == "auto" else load.mla)
    if load.isl is None:
        figures["decode_flops"] = _flops(parts, load, context, 1, decode)
    else:
        figures["decode_flops"] = _flops(parts, load, prompt, load.osl - 1, decode, logits="all")
        figures["request_flops"] = figures["prefill_flops"] + figures["decode_flops"]
    return figures


def _flops(parts: Any, load: Load, past: Any, new: Any, mla: str, logits: str | None = None) -> Any:
    run = Pass(
        past=past,
        new=new,
        emitted=accounts.emitted(logits or load.logits, new),
        attention=load.attention,
        mla=mla,
    )
    return load.batch * folds.flops(parts, run)  # one product over the rows of a sweep, and not one a term


@dataclass(frozen=True, slots=True)
class CacheCurve:
    """The cache of one sequence over its length S: ``fixed + rate * S + sum of bytes * min(S, width)`` over windows."""

    fixed: Any
    rate: Any
    windows: tuple[tuple[Any, Any], ...]

    @classmethod
    def of(
        cls, architecture: Architecture, kv: str | None = None, parts: Sequence[bill.Part] | None = None
    ) -> CacheCurve:
        """The curve of a decoder or of some of its parts, in a cache format; strided entries count by their average."""
        chosen = architecture.kv if kv is None else kv
        fixed, rate = 0, 0
        windows: dict[Any, tuple[Any, Any]] = {}
        for count, entry in folds.cache(architecture.parts() if parts is None else parts):
            size = count * accounts.position_bytes(entry, chosen, architecture.activations)
            rule = entry.rule
            if rule.limit is not None:
                key = id(rule.limit) if is_symbolic(rule.limit) or is_column(rule.limit) else rule.limit
                width, before = windows.get(key, (rule.limit, 0))
                windows[key] = (width, before + size)
            elif rule.growth is None:
                fixed = fixed + size
            else:
                rate = rate + size * rule.growth
        return cls(fixed, rate, tuple((size, width) for width, size in windows.values()))

    def slope(self, length: Any) -> Any:
        """Bytes that one more position adds at that length."""
        total = self.rate
        for size, width in self.windows:
            total = total + size * (minimum(length + 1, width) - minimum(length, width))
        return total

    def crossover(self, target: Any) -> Crossover:
        """The real-valued length at which the curve reaches `target` bytes.

        The curve is the least of straight lines, one for each set of windows taken as full, since min(S, w) is at most
        S and at most w. So it reaches the target where the last of the lines does.
        """
        tokens: Any = None
        for full in itertools.product((False, True), repeat=len(self.windows)):
            constant, rate = self.fixed, self.rate
            for (size, width), is_full in zip(self.windows, full, strict=True):
                constant, rate = (constant + size * width, rate) if is_full else (constant, rate + size)
            if not (isinstance(rate, int) and rate == 0):
                line = (target - constant) / rate
                tokens = line if tokens is None else maximum(tokens, line)
        bounded = isinstance(self.rate, int) and self.rate == 0
        limit = sum((size * width for size, width in self.windows), start=self.fixed) if bounded else None
        return Crossover(math.nan if tokens is None else tokens, limit)


@dataclass(frozen=True, slots=True)
class Crossover:
    """`tokens` at which a cache reaches its target, or NaN; `limit`: bytes that a bounded one never passes, or None."""

    tokens: Any
    limit: Any

    def absent(self, target: Any) -> tuple[tuple[Any, str], ...]:
        """(where it holds, why there is no crossover), on numbers or on columns; the first that holds counts."""
        unknown = self.tokens != self.tokens
        return (
            (unknown if self.limit is None else self.limit < target, NEVER),
            (unknown | (self.tokens <= 0), NONE),
        )


NEVER = "never: the cache stops growing before it reaches the weights"
NONE = "none: what the cache holds at any length exceeds the weights"


def beyond(length: Any, stated: int | None) -> tuple[tuple[Any, str], ...]:
    """(where it holds, what is said) of a length that is computed though the contract does not state it."""
    return () if stated is None else ((length > stated, f"beyond the stated maximum of {stated:,} positions"),)


def crossover(architecture: Architecture, load: Load, weight_bytes: Any) -> Crossover:
    """Where the cache of the batch equals the (total, not active) weight bytes."""
    return CacheCurve.of(architecture, load.kv).crossover(weight_bytes / load.batch)
