"""Which cached positions a query sees, and which a cache keeps: one rule, a small class with closed forms.

Every rule is a function f(n), the query-key pairs among the first n positions; a pass of `new` positions after `past`
cached ones then has ``f(past + new) - f(past)`` pairs. Plain causal keeps the direct form, which does not cancel when
the positions are floats. All arithmetic is generic: ints, columns or symbols.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.arithmetic import floor_div, maximum, minimum, triangle


@dataclass(frozen=True, slots=True)
class Causal:
    """A query sees itself and everything before it; the cache keeps all positions.

    >>> Causal().pairs(past=10, new=2), Causal().square(past=10, new=2)
    (23, 24)
    """

    @property
    def limit(self) -> Any:
        """Positions beyond which the cache does not grow, or None."""
        return None

    @property
    def growth(self) -> Any:
        """Entries that one more position adds on average below the limit; None where the length does not matter."""
        return 1

    @property
    def unbounded(self) -> bool:
        """Whether the cache grows for as long as the sequence does."""
        return self.limit is None and self.growth is not None

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

    def sees(self, query: Any, key: Any) -> Any:
        """Whether the query at one index may read the key at another; `pairs` counts what this allows."""
        return key <= query


CAUSAL = Causal()


class Counted(Causal):
    """A rule that counts its pairs by f(n)."""

    __slots__ = ()

    def among(self, n: Any) -> Any:
        """f(n): pairs among the first n positions."""
        raise AssertionError("a rule states among()")

    def pairs(self, past: Any, new: Any) -> Any:
        return self.among(past + new) - self.among(past)


@dataclass(frozen=True, slots=True)
class Window(Counted):
    """A query sees the last `width` positions, itself included; older ones are evicted.

    >>> Window(4).pairs(0, 6), Window(4).kept(6), Window(4).held(6)
    (18, 4, 3)
    """

    width: Any

    def among(self, n: Any) -> Any:
        inside = minimum(n, self.width)
        return triangle(inside) + self.width * (n - inside)

    @property
    def limit(self) -> Any:
        return self.width

    def held(self, past: Any) -> Any:
        return minimum(past, self.width - 1)

    def kept(self, length: Any) -> Any:
        return minimum(length, self.width)

    def sees(self, query: Any, key: Any) -> Any:
        return (key <= query) & (query - key < self.width)


@dataclass(frozen=True, slots=True)
class Chunk(Counted):
    """A query sees the positions since its chunk of `width` began, itself included (Llama 4's local layers).

    >>> Chunk(4).pairs(0, 6)
    13
    """

    width: Any

    def among(self, n: Any) -> Any:
        full = floor_div(n, self.width)
        return full * triangle(self.width) + triangle(n - full * self.width)

    @property
    def limit(self) -> Any:
        return self.width

    def held(self, past: Any) -> Any:
        return minimum(past, self.width - 1)

    def kept(self, length: Any) -> Any:
        return minimum(length, self.width)

    def sees(self, query: Any, key: Any) -> Any:
        return (key <= query) & (floor_div(query, self.width) == floor_div(key, self.width))


@dataclass(frozen=True, slots=True)
class TopK(Counted):
    """A query reads the best `k` of the positions before it, itself included; the cache still keeps all.

    >>> TopK(4).pairs(0, 6), TopK(4).kept(6)
    (18, 6)
    """

    k: Any

    def among(self, n: Any) -> Any:
        inside = minimum(n, self.k)
        return triangle(inside) + self.k * (n - inside)


@dataclass(frozen=True, slots=True)
class BlockTopK(Counted):
    """A query reads its own block of `block` positions up to itself, and the best `k - 1` of the blocks before it.

    >>> BlockTopK(block=4, k=2).pairs(0, 10), BlockTopK(block=4, k=2).kept(10)
    (47, 10)
    """

    block: Any
    k: Any

    def among(self, n: Any) -> Any:
        full = floor_div(n, self.block)
        rest = n - full * self.block
        few = minimum(full, self.k)  # blocks whose queries read every block before
        before = triangle(few) - few + (self.k - 1) * (full - few)  # blocks that the queries of all full ones read
        own = full * triangle(self.block) + triangle(rest)
        return own + self.block * (self.block * before + rest * minimum(full, self.k - 1))


@dataclass(frozen=True, slots=True)
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

    @property
    def growth(self) -> Any:
        return 1 / self.stride

    def at_hand(self, past: Any, new: Any) -> Any:
        return self.kept(past + new)

    def held(self, past: Any) -> Any:
        return self.kept(past)

    def kept(self, length: Any) -> Any:
        return maximum(floor_div(length - self.block + self.stride, self.stride), 0)

    def sees(self, query: Any, key: Any) -> Any:
        return key * self.stride + self.block - 1 <= query


@dataclass(frozen=True, slots=True)
class StridedTopK(Strided):
    """A query reads the best `k` of the compressed entries that `Strided` gives it; the cache still keeps all.

    >>> StridedTopK(block=4, stride=2, k=2).pairs(0, 8), StridedTopK(block=4, stride=2, k=2).kept(8)
    (8, 3)
    """

    k: Any

    def among(self, n: Any) -> Any:
        inside = minimum(n, self.block + (self.k - 1) * self.stride)  # queries that see at most k entries
        return Strided.among(self, inside) + self.k * (n - inside)


@dataclass(frozen=True, slots=True)
class Constant(Counted):
    """One entry whatever the length: a recurrent or convolution state."""

    @property
    def growth(self) -> Any:
        return None

    def among(self, n: Any) -> Any:
        return n

    def at_hand(self, past: Any, new: Any) -> Any:
        return 1

    def held(self, past: Any) -> Any:
        return 1

    def kept(self, length: Any) -> Any:
        return 1


@dataclass(frozen=True, slots=True)
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

    def sees(self, query: Any, key: Any) -> Any:
        return (key <= query) | ((query < self.length) & (key < self.length))


@dataclass(frozen=True, slots=True)
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

    def start(self, index: Any) -> Any:
        """Where the document of an index begins."""
        start, end = 0 * index, 0
        for length in self.documents:
            end = end + length
            start = start + length * (index >= end)
        return start

    def sees(self, query: Any, key: Any) -> Any:
        first = self.start(query)
        return (first == self.start(key)) & self.inner.sees(query - first, key - first)
