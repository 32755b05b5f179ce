"""Does it fit: the ladder of every rank against the memory of its device, the verdict, what binds and what would help.

The terms are in `planner.ladder`, the inverse questions in `planner.capacity`; a `Fit` shows them together.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from planner.capacity import (
    fewest_accelerators,
    headroom_bytes,
    longest_context,
    memory_context,
    most_sequences,
    smallest_format,
)
from planner.errors import UsageError
from planner.ladder import TERMS, budget_bytes, rank_terms, reserved_terms, worst_group
from planner.parallel import ranks
from planner.plan import Plan, as_plan, explained, position_notes
from planner.units import show, show_exact

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Fit",
    "Rung",
    "fewest_accelerators",
    "fit",
    "headroom_bytes",
    "longest_context",
    "most_sequences",
    "rank_terms",
    "smallest_format",
]

Verdict = Literal["fits", "tight", "does not fit", "unknown"]

TIGHT = Fraction(1, 20)
"""Share of the usable memory below which what is left is called tight."""

KV_FORMAT = "fp8"
"""The narrower cache format that is tried as a lever: the one that the serving engines share."""


def verdicts(headroom: Any, usable: int) -> tuple[tuple[Any, Verdict], ...]:
    """(where it holds, verdict) of a headroom, in bytes, a number or a column; the first that holds counts."""
    return (headroom < 0, "does not fit"), (headroom < float(TIGHT * usable), "tight"), (True, "fits")


@dataclass(frozen=True, slots=True)
class Rung:
    """One term of one rank: bytes needed or reserved, where the figure comes from, and its formula in words."""

    rank: str
    term: str
    bytes: int
    kind: str
    provenance: str
    formula: str


@dataclass(frozen=True)
class Fit:
    """The answer of `fit`: every rank's ladder and what follows from it. Bytes are those of one rank, the worst."""

    plan: Plan
    ladder: tuple[Rung, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """``fits``, ``tight`` (under 5 % of the usable memory left), ``does not fit`` or ``unknown`` (no device)."""
        if self.usable_bytes is None:
            return "unknown"
        return next(verdict for held, verdict in verdicts(self.headroom_bytes, self.usable_bytes) if held)

    @property
    def fits(self) -> bool:
        """Whether the plan fits, tightly or not; an unknown verdict does not."""
        return self.verdict in ("fits", "tight")

    @property
    def usable_bytes(self) -> int | None:
        """Memory that the driver of the device hands out; None where the plan names no device."""
        return None if self.plan.accelerator is None else self.plan.accelerator.memory_bytes

    @property
    def budget_bytes(self) -> int | None:
        """Usable memory x memory_fraction."""
        return None if self.plan.accelerator is None else budget_bytes(self.plan)

    @property
    def needed_bytes(self) -> int:
        """What the worst rank needs."""
        return self._total("needed")

    @property
    def reserved_bytes(self) -> int | None:
        """What the engine withholds from the device."""
        return None if self.plan.accelerator is None else self._total("reserved")

    @property
    def headroom_bytes(self) -> int | None:
        """What is left of the usable memory on the worst rank; negative where it is too little."""
        if self.usable_bytes is None or self.reserved_bytes is None:
            return None
        return self.usable_bytes - self.reserved_bytes - self.needed_bytes

    @cached_property
    def rank(self) -> str:
        """The worst rank: the one that needs the most."""
        totals: dict[str, int] = {}
        for rung in self.ladder:
            if rung.kind == "needed":
                totals[rung.rank] = totals.get(rung.rank, 0) + rung.bytes
        return max(totals, key=lambda rank: totals[rank])

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The ladder of the worst rank."""
        return tuple(rung for rung in self.ladder if rung.rank == self.rank)

    @property
    def binding(self) -> str:
        """The largest needed term of the worst rank."""
        return max((rung for rung in self.rungs if rung.kind == "needed"), key=lambda rung: rung.bytes).term

    @cached_property
    def longest_context(self) -> int | None:
        """The longest context at this number of sequences; None where it has no end, or no device is named."""
        return None if self.plan.accelerator is None else longest_context(self.plan)

    @cached_property
    def most_sequences(self) -> int | None:
        """The most sequences at this context, or how many of the ragged lengths in order; None without a device."""
        return None if self.plan.accelerator is None else most_sequences(self.plan)

    @cached_property
    def levers(self) -> tuple[str, ...]:
        """Single changes that make the plan fit, each tried on the ladder, the cheapest first."""
        return tuple(_levers(self, binary=True)) if self.verdict == "does not fit" else ()

    @property
    def lever(self) -> str:
        """One sentence: what to change and by how much it helps, or how much room there is."""
        return self.lever_in(binary=True)

    def lever_in(self, *, binary: bool) -> str:
        """`lever` with its sizes in GiB, or in GB."""
        match self.verdict:
            case "unknown":
                return "name an accelerator"
            case "does not fit" if levers := self.levers if binary else tuple(_levers(self, binary)):
                return "; or ".join(levers)
            case "does not fit":
                size = _shown(max(rung.bytes for rung in self.rungs if rung.term == self.binding), binary)
                return f"no single change of formats, tp or load makes it fit; most of it is {self.binding}, {size}"
            case _:
                return f"room for {_sequences(self.most_sequences)} in all, or for {self._room}"

    @property
    def assumed(self) -> dict[str, Any]:
        """What the answer rests on and the user did not say."""
        return self.plan.assumed(*_rests_on(self.plan))

    def to_frame(self) -> DataFrame:
        """A row for each rank and term: rank, term, bytes, kind, provenance, formula."""
        import pandas

        columns = ("rank", "term", "bytes", "kind", "provenance", "formula")
        frame = pandas.DataFrame({name: [getattr(rung, name) for rung in self.ladder] for name in columns})
        frame.attrs["units"] = {"bytes": "B"}
        return frame

    def explain(self) -> str:
        """Every term of the worst rank with its formula, and every assumption with its meaning and source."""
        lines = [repr(self), f"  {self.lever}", "", "how"]
        lines += [f"  {r.term} = {show_exact(r.bytes)} B ({r.provenance}): {r.formula}" for r in self.rungs]
        return "\n".join([*lines, *explained(self.assumed)])

    def plot(self, **options: Any) -> Any:
        """A Plotly figure: the ladder of the worst rank (`planner.figures.results`)."""
        from planner import plot  # the face knows where; the figures lie above

        return plot(self, **options)

    def __repr__(self) -> str:
        return "\n".join([f"{self._title}: {self._answer}", *(f"  {a:<22}{b:>12}  {c}" for a, b, c in self._lines)])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{html.escape(a)}</td><td>{b}</td><td>{c}</td></tr>" for a, b, c in self._lines)
        return f"<table><caption>{html.escape(f'{self._title}: {self._answer}')}</caption>{rows}</table>"

    @property
    def _title(self) -> str:
        plan = self.plan
        on = "" if plan.accelerator is None else f" on {plan.layout.accelerators} x {plan.accelerator.name}"
        return f"{plan.model.name}{on}, {plan.layout}"

    @property
    def _answer(self) -> str:
        if len(self.ladder) > len(self.rungs):
            return f"{self.verdict}, worst on {self.rank}"
        ranks = self.plan.layout.accelerators
        return f"{self.verdict}; the fullest of the {ranks} holds" if ranks > 1 else self.verdict

    @property
    def _room(self) -> str:
        longest, held = self.longest_context, memory_context(self.plan)
        if longest is None or longest == held:
            return f"a context of {_most(longest, 'any length')}"
        return f"the stated maximum of {longest:,} positions; memory alone would hold {_most(held, 'any length')}"

    @property
    def _lines(self) -> Iterator[tuple[str, str, str]]:
        yield from ((rung.term, _shown(rung.bytes), rung.kind) for rung in self.rungs)
        if self.usable_bytes is not None and self.headroom_bytes is not None:
            yield "headroom", _shown(self.headroom_bytes), f"of {_shown(self.usable_bytes)} usable"

    def _total(self, kind: str) -> int:
        return sum(rung.bytes for rung in self.rungs if rung.kind == kind)


def fit(model: Any, **keywords: Any) -> Fit:
    """Whether a decoder fits, with the whole ladder: `model` is what `load` takes, or a `Plan`; keywords are a plan's.

    The commonest are accelerator, count, tp, weights, kv, context, sequences (of all replicas together), lengths and
    engine. Raises `UsageError` or `InputError` with the field and its rule, also for a context beyond a learned table.

    >>> answer = fit("llama-3.1-8b", accelerator="h100-sxm", context=8192, sequences=16)
    >>> answer.verdict, answer.binding, answer.needed_bytes
    ('fits', 'kv cache', 33993564160)
    >>> fit("llama-3.1-70b", accelerator="h100-sxm").lever.partition(";")[0]
    'weights = fp8 saves 65.71 GiB and fits tightly'
    """
    plan = as_plan(model, **keywords)
    notes = tuple(_notes(plan))
    ladder = []
    for rank in ranks(plan.model, plan.layout):
        name = rank.name
        if plan.workload.lengths is not None and plan.layout.sequence_groups > 1:
            name = f"{name}, group {worst_group(plan, rank)} of sequences"
        terms = rank_terms(plan, rank)
        if plan.accelerator is not None:
            terms |= reserved_terms(plan)
        ladder += [_rung(plan, name, term, bytes) for term, bytes in terms.items()]
    return Fit(plan, tuple(ladder), notes)


def _rung(plan: Plan, rank: str, term: str, bytes: int) -> Rung:
    known = TERMS[term]
    assumed = plan.assumed(*(name for name in known.rests_on if name in _rests_on(plan)))
    provenance = "assumed" if assumed or term == "working memory" else "exact"
    if term == "outside the fraction" and not assumed:
        fact = plan.device.facts.get("memory_bytes")
        provenance = "datasheet" if fact is None else fact.provenance
    return Rung(rank, term, bytes, known.kind, provenance, known.formula)


def _rests_on(plan: Plan) -> tuple[str, ...]:
    """The figures of a plan that its ladder uses and that have a default."""
    load: tuple[str, ...] = ("context", "sequences")
    if plan.workload.lengths is not None:
        load = ()
    elif plan.workload.context is None and plan.workload.isl is not None:
        load = ("osl", "sequences")
    device = () if plan.accelerator is None else ("memory_fraction", "reserve_bytes")
    return ("engine", "weights", "kv", "tp", "pp", "dp", *load, "prefill_tokens", "logits_elem_bytes", *device)


def _notes(plan: Plan) -> Iterator[str]:
    """What stands beside the answer; a load that cannot be is refused."""
    yield from position_notes(plan)
    if plan.holders.mtp and plan.model.mtp is None:
        yield f"{plan.model.name} has no multi-token-prediction layers"


def _levers(answer: Fit, binary: bool) -> Iterator[str]:
    """Formats cost quality, accelerators cost money, a smaller load costs the purpose: in that order."""
    plan = answer.plan
    formats = {"kv": KV_FORMAT, "weights": smallest_format(plan)}
    for name, format in formats.items():
        if format is not None:
            changed = fit(plan, **{name: format})
            if changed.fits:
                saved = _shown(answer.needed_bytes - changed.needed_bytes, binary)
                yield f"{name} = {format} saves {saved} and {'fits' if changed.verdict == 'fits' else 'fits tightly'}"
    tp = plan.layout.tp * 2
    while tp <= plan.device.group_size:
        try:
            if headroom_bytes(plan.changed(tp=tp)) >= 0:
                yield f"tp = {tp}"
                break
        except UsageError:
            pass  # heads that cannot be divided so: no lever
        tp *= 2
    if plan.layout.tp * 2 > plan.device.group_size:
        yield from _stages(plan)
    if answer.most_sequences:
        yield _sequences(answer.most_sequences) + (" or fewer" if answer.most_sequences > 1 else "")
    if answer.longest_context and plan.workload.lengths is None:
        yield f"a context of {answer.longest_context:,} or less"


def _stages(plan: Plan) -> Iterator[str]:
    """The fewest stages that fit where tp is as wide as it can be, made of the replicas that there are, if any."""
    pp, dp = plan.layout.pp * 2, plan.layout.dp
    while pp <= plan.model.n_layers:
        left = max(1, dp * plan.layout.pp // pp)
        try:
            if headroom_bytes(plan.changed(pp=pp, dp=left, stage_layers=None)) >= 0:
                yield f"pp = {pp}" + (f" and dp = {left}" if left != dp else "")
                return
        except UsageError:
            pass  # fewer sequences than replicas and the like: no lever
        pp *= 2


def _sequences(count: int | None) -> str:
    return "1 sequence" if count == 1 else f"{_most(count, 'any number of')} sequences"


def _most(count: int | None, endless: str) -> str:
    return endless if count is None else show_exact(count)


def _shown(bytes: int, binary: bool = True) -> str:
    return show(bytes, "B", binary=binary)
