"""What a layer may hold: a mixer of positions and a position-wise branch. Each declares its bill and really does it.

A forward stands beside the lists and mirrors them: ``linear("q", …)`` in the bill is ``run.linear("q", x)`` in the
forward, a `Product` is ``run.product`` under the same id, a `CacheEntry` is ``run.extend``, and ``.under`` and
``.shared`` are the same on both sides. Whatever is multiplied goes through the run, which counts it; all else is plain
NumPy. Arrays are of one sequence: ``[S, …]`` for its new positions, ``[T, …]`` for the positions at hand, those held
from before and the new ones. Padding is a document of its own, which nobody else sees; so no forward has to know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

from planner.bill import Bill, Pass
from planner.components.arrays import Array
from planner.errors import UsageError
from planner.rules import Causal
from planner.spec import Spec, spec


class Run(Protocol):
    """A pass over one sequence, seen from one part of the decoder: its weights, its products, its cache."""

    @property
    def step(self) -> Pass:
        """How many positions are past and new, and which form of latent attention is chosen."""

    @property
    def tokens(self) -> Array:
        """[S] the ids of the new tokens."""

    @property
    def positions(self) -> Array:
        """[S] where each new token stands, as rotary and learned positions count; documents begin again at 0."""

    @property
    def reach(self) -> int:
        """The context that rotary frequencies are set for, where their scaling depends on it."""

    @property
    def begins(self) -> Array:
        """[S] whether a sequence or a document begins there: a recurrence starts from nothing."""

    @property
    def block(self) -> int | None:
        """Keys that a softmax takes at a time; None for all at once."""

    @property
    def number(self) -> int:
        """Which layer of the decoder it is, from 0."""

    @property
    def n_layers(self) -> int:
        """How many layers the decoder has."""

    @property
    def notes(self) -> dict[str, Array]:
        """What one part leaves for a later one in the same pass: the embedding, an indexer's choice."""

    def weight(self, id: str) -> Array:
        """The tensor of that id."""

    def rows(self, id: str, indices: Array) -> Array:
        """The rows of a table that is looked up, not multiplied: [...] -> [..., width]."""

    def linear(self, id: str, x: Array) -> Array:
        """Return x W^T + b with ``{id}.weight`` and, where there is one, ``{id}.bias``: [S, n_in] -> [S, n_out]."""

    def product(self, id: str, subscripts: str, a: Array, b: Array, *, mask: Array | None = None) -> Array:
        """``einsum(subscripts, a, b)``, counted. With a mask of query-key pairs, the allowed ones are counted too."""

    def extend(self, id: str, rows: Array) -> Array:
        """Put [S, heads, width] into a cache entry and return what is at hand: [T, heads, width].

        An entry with a stride takes those rows that its rule adds in this pass, and returns all.
        """

    def at_hand(self, id: str) -> Array:
        """What another layer's cache entry has at hand in this pass: [T, heads, width]."""

    def state(self, id: str) -> Array:
        """[heads, width] of a state as the last pass left it, zeros at first."""

    def keep(self, id: str, value: Array) -> None:
        """Replace a state."""

    def mask(self, rule: Causal) -> Array:
        """[S, T] which of the positions at hand each new one sees, documents and a prefix included."""

    def key_positions(self, rule: Causal) -> Array:
        """[T] where the tokens of the positions at hand stand, as `positions`; of an entry, its block's first one."""

    def under(self, prefix: str) -> Run:
        """The same run with every id below a prefix, as `Bill.under`."""

    def shared(self, block: str) -> Run:
        """The same run with the tensors of a block that many layers use, as `Bill.shared`."""

    def plus(self, terms: Mapping[str, Array]) -> Run:
        """The same run, where these arrays are added to what `linear` gives under their ids: low-rank adapters."""

    def copy(self, index: int) -> Run:
        """The same run with one of several equal tensors that stand under one id: an expert."""


Place = Literal["mixer_input", "mixer_output", "end"]


@spec
class Branch(Spec):
    """A branch of a layer: reads and writes the residual stream of width d_model.

    One with `own_norms` reads the stream itself, where others read the layer's norm of it.
    """

    own_norms: ClassVar[bool] = False

    def bill(self, d_model: Any) -> Bill:
        """Tensors, products, cache and operations of one layer's branch."""
        raise AssertionError(f"{type(self).__name__} declares no bill")

    def forward(self, x: Array, run: Run) -> Array:
        """The branch itself: [S, D] -> [S, D]."""
        raise UsageError(f"the witness cannot run {self.kind}: its forward is not written")


@spec
class Mixer(Branch):
    """Attention or a state: moves information between positions."""


@spec
class PositionWise(Branch):
    """A feed-forward: works on each position alone."""


@spec
class Extra(Branch):
    """What few layers have besides a mixer and a feed-forward.

    Its output e is added in one `place`: at ``mixer_input`` the mixer reads norm(x + e(x)); at ``mixer_output`` the
    sum u behind the mixer becomes (u + e(n)) / sqrt(2), n what the mixer read; at the ``end`` x becomes x + e(x).
    """

    place: ClassVar[Place]
