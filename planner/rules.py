"""Which cached positions a query sees, and which a cache keeps: one rule, a small class with closed forms.

Every rule is a function f(n), the query-key pairs among the first n positions; a pass of `new` positions after `past`
cached ones then has ``f(past + new) - f(past)`` pairs. Plain causal keeps the direct form, which does not cancel when
the positions are floats. All arithmetic is generic: ints, columns or symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.arithmetic import floor_div, maximum, minimum, triangle

rule = dataclass(frozen=True, slots=True)


@rule
class Causal:
    """A query sees itself and everything before it; the cache keeps all positions.

    >>> Causal().pairs(past=10, new=2), Causal().square(past=10, new=2)
    (23, 24)
    """

    def pairs(self, past: Any, new: Any) -> Any:
        """Query-key pairs that the rule allows in a pass."""
        return new * past + triangle(new)

    def square(self, past: Any, new: Any) -> Any:
        """Pairs that a dense kernel computes in a pass: every query with every key at hand."""
        return new * self.at_hand(past, new)

    def at_hand(self, past: Any, new: Any) -> Any:
        """Positions whose keys are at hand in a pass: those kept from before and the new ones."""
        return self.held(past) + new

    def held(self, past: Any) -> Any:
        """Positions kept between passes."""
        return past

    def kept(self, length: Any) -> Any:
        """Positions of a sequence of that length that the cache keeps during a pass."""
        return length

    def slope(self, length: Any) -> Any:
        """Positions that one more position of context adds to the cache at that length."""
        return self.kept(length + 1) - self.kept(length)


CAUSAL = Causal()


class Counted(Causal):
    """A rule that counts its pairs by f(n)."""

    __slots__ = ()

    def among(self, n: Any) -> Any:
        """f(n): pairs among the first n positions."""
        raise AssertionError("a rule states among()")

    def pairs(self, past: Any, new: Any) -> Any:
        return self.among(past + new) - self.among(past)


@rule
class Window(Counted):
    """A query sees the last `width` positions, itself included; older ones are evicted.

    >>> Window(4).pairs(0, 6), Window(4).kept(6), Window(4).held(6)
    (18, 4, 3)
    """

    width: Any

    def among(self, n: Any) -> Any:
        inside = minimum(n, self.width)
        return triangle(inside) + self.width * (n - inside)

    def held(self, past: Any) -> Any:
        return minimum(past, self.width - 1)

    def kept(self, length: Any) -> Any:
        return minimum(length, self.width)


@rule
class Chunk(Counted):
    """A query sees the positions since its chunk of `width` began, itself included (Llama 4's local layers).

    >>> Chunk(4).pairs(0, 6)
    13
    """

    width: Any

    def among(self, n: Any) -> Any:
        full = floor_div(n, self.width)
        return full * triangle(self.width) + triangle(n - full * self.width)

    def held(self, past: Any) -> Any:
        return minimum(past, self.width - 1)

    def kept(self, length: Any) -> Any:
        return minimum(length, self.width)


@rule
class TopK(Counted):
    """A query reads the best `k` of the positions before it, itself included; the cache still keeps all.

    >>> TopK(4).pairs(0, 6), TopK(4).kept(6)
    (18, 6)
    """

    k: Any

    def among(self, n: Any) -> Any:
        inside = minimum(n, self.k)
        return triangle(inside) + self.k * (n - inside)


@rule
class Strided(Counted):
    """A query reads one compressed entry for each block of `block` positions, a block every `stride`, that is complete.

    >>> Strided(block=4, stride=2).pairs(0, 8), Strided(block=4, stride=2).kept(8)
    (9, 3)
    """

    block: Any
    stride: Any

    def among(self, n: Any) -> Any:
        complete = maximum(n - self.block + 1, 0)  # queries that see at least one entry
        full = floor_div(complete, self.stride)
        return self.stride * triangle(full) + (complete - full * self.stride) * (full + 1)

    def at_hand(self, past: Any, new: Any) -> Any:
        return self.kept(past + new)

    def held(self, past: Any) -> Any:
        return self.kept(past)

    def kept(self, length: Any) -> Any:
        return maximum(floor_div(length - self.block + self.stride, self.stride), 0)


@rule
class Constant(Counted):
    """One entry whatever the length: a recurrent or convolution state."""

    def among(self, n: Any) -> Any:
        return n

    def at_hand(self, past: Any, new: Any) -> Any:
        return 1

    def held(self, past: Any) -> Any:
        return 1

    def kept(self, length: Any) -> Any:
        return 1


@rule
class Prefix(Counted):
    """The first `length` positions see each other both ways, which adds m(m-1)/2 pairs; the rest is causal.

    The prefix is to be processed in one pass: a query cannot see keys that a later pass brings.

    >>> Prefix(4).pairs(0, 6)
    27
    """

    length: Any

    def among(self, n: Any) -> Any:
        inside = minimum(n, self.length)
        return triangle(n) + triangle(inside) - inside


@rule
class Packed(Counted):
    """Documents packed into one sequence, each closed to the others; `inner` is the rule within a document.

    >>> Packed((4, 2)).pairs(0, 6)
    13
    """

    documents: tuple[Any, ...]
    inner: Causal = CAUSAL

    def among(self, n: Any) -> Any:
        total, start = 0, 0
        for length in self.documents:
            total = total + self.inner.pairs(0, maximum(minimum(n - start, length), 0))
            start = start + length
        return total

    def held(self, past: Any) -> Any:
        return self.inner.held(past)

    def kept(self, length: Any) -> Any:
        return self.inner.kept(length)
