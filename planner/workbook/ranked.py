"""What one rank of the plan's layout holds and does, of any decoder: the coefficients of fit, floor and price.

They are to a rank what the coefficients of `condensed` are to a whole decoder. The work of a rank is recorded by
`planner.traffic` with words for the units of its batch (positions, pairs, positions read), so it comes out as a sum of
coefficients times these words; `planner.workbook.fleet` puts the units of a row in their place.

Layouts are those that divide tensors and replicate the rest; others have several kinds of ranks or of sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from planner import accounts, catalogue, folds
from planner.arithmetic import OPERATIONS, Value, evaluate, read, word, words
from planner.bill import CacheEntry, Operation, Part, Product
from planner.catalogue import Accelerator
from planner.contract import Architecture
from planner.errors import InputError, PlannerError, UsageError
from planner.ladder import rank_terms
from planner.parallel import Layout, Rank, ranks
from planner.phases import decode_form, prefill_forms
from planner.plan import Plan
from planner.plan_parts import Holders
from planner.rules import Causal
from planner.storage import weight_format
from planner.traffic import Batch, Work, work
from planner.workbook.condensed import Condensed
from planner.workbook.subject import Subject, numbers_of, slug

PLAIN = "bf16"
"""A format that does not look at the shape of a tensor."""
NOTHING = Batch(members=(), mixer_members=())


@dataclass
class RankSlots:
    """The columns of all decoders: word of a coefficient -> what its unit is.

    `flops`: (domain, label of the rule, form, word of the peak); `reads`: (label of the product's rule, which counts
    pairs, or nothing; label of the entry's rule; form); `peaks`: word of a peak -> format by which a device chooses it.
    """

    flops: dict[str, tuple[str, str, str | None, str]] = field(default_factory=dict)
    reads: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    peaks: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ranked:
    """Coefficients of a decoder's rank: of the decoder, by weight format, by cache format; or the `reason` of none."""

    reason: str = ""
    of_model: Mapping[str, Value] = field(default_factory=dict)
    of_weights: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    of_cache: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


OF_MODEL = ("vocab_size", "working_bytes_per_token")
OF_WEIGHTS = ("rank_weight_bytes", "rank_read_bytes", "rank_row_bytes")


def unranked(plan: Plan) -> str:
    """Why a plan gives no rank that serves all rows of a table; nothing where it does."""
    said = plan.workload
    if plan.accelerator is None:
        return "the plan names no accelerator"
    if plan.layout != Layout(tp=plan.layout.tp, dp=plan.layout.dp, ep=plan.layout.ep):
        return f"the ranks of {plan.layout} are not all alike"
    if plan.holders != Holders() or said.lengths is not None or said.chunk is not None or said.cached_prefix:
        return "the plan says more of its load than a row does"
    return ""


def forms(plan: Plan) -> tuple[str, str]:
    """The forms of latent attention in prefill and in decode."""
    (prefill,) = prefill_forms(plan, 0, chunked=False)
    return prefill, decode_form(plan)


def ranked(
    plan: Plan, one: Subject, condensed: Condensed, slots: RankSlots, weights: Iterable[str], kv: Iterable[str]
) -> Ranked:
    """The coefficients of a decoder; slots that are new are entered."""
    try:
        (stated,) = ranks(one.architecture, plan.layout)
    except UsageError as error:
        return Ranked(str(error))
    return _Coefficients(plan, one, condensed, slots, stated).all(weights, kv)


def check(plan: Plan, architecture: Architecture, live: Architecture) -> None:
    """Raise `InputError` or what recording raises, where a rank in words is not the rank in numbers."""
    both: list[list[Value]] = []
    values = numbers_of(live, architecture)
    for model in (architecture, live):
        (rank,) = ranks(model, plan.layout)
        terms = rank_terms(replace(plan, model=model, weights=PLAIN, kv=PLAIN), rank)
        both.append([terms["working memory"], *(entry.heads for _, entry in folds.cache(rank.parts))])
    for number, tree in zip(*both, strict=True):
        if evaluate(tree, values) != number:
            raise InputError("a share depends on what cannot be a word")


class _Coefficients:
    """The rank of a decoder in numbers and in words, side by side."""

    def __init__(self, plan: Plan, one: Subject, condensed: Condensed, slots: RankSlots, stated: Rank) -> None:
        self.one, self.slots, self.stated, self.forms = one, slots, stated, tuple(dict.fromkeys(forms(plan)))
        (self.live,) = ranks(one.live, plan.layout)
        self.batch, self.own = _Recorder(condensed), plan.device
        self.plan = replace(plan, accelerator=cast(Accelerator, _ByBasis()), weights=PLAIN, model=one.live)
        self.numbers = replace(self.plan, model=one.architecture)

    def all(self, weights: Iterable[str], kv: Iterable[str]) -> Ranked:
        once = replace(self.plan, overrides={**self.plan.overrides, "prefill_tokens": 1})
        of_model = {
            "vocab_size": self.one.live.vocab_size,
            "working_bytes_per_token": rank_terms(once, self.live)["working memory"],
        }
        return Ranked(
            of_model=of_model,
            of_weights={name: {**self._stored(name), **self._flops(name)} for name in weights},
            of_cache={name: {**self._kept(name), **self._reads(name)} for name in kv},
        )

    def _stored(self, weights: str) -> dict[str, Value]:
        """Bytes that the rank stores, those that a pass reads at least, and those of a position's rows in tables."""
        scheme, stored, whole, rows = weight_format(weights), 0, 0, 0
        pairs = zip(folds.tensors(self.stated.parts), folds.tensors(self.live.parts), strict=True)
        for (_, _, number), (_, count, tensor) in pairs:
            chosen = scheme.format_of(number.role, number.shape)
            each = chosen.stored_bytes(tensor.shape)
            stored = stored + count * tensor.copies * each
            if tensor.access == "rows":
                rows = rows + count * chosen.stored_bytes(tensor.shape[1:])
            else:
                whole = whole + count * (tensor.used if tensor.access == "routed" else tensor.copies) * each
        if self.one.architecture.stated_parameters is not None:
            stored = rank_terms(replace(self.plan, weights=weights), self.live)["weights"]
        return dict(zip(OF_WEIGHTS, (stored, whole, rows), strict=True))

    def _flops(self, weights: str) -> dict[str, Value]:
        """FLOPs for each unit, by unit and by the peak of the format in which they are multiplied."""
        found: dict[str, Value] = {}
        bases = {form: self._bases(weights, form) for form in self.forms}
        for form, unit, done in self._products(self.plan):
            peak = self._peak(bases[form][done.part, done.product])
            name = f"{peak.replace('flops_per_s', 'flops')}_{unit}"
            self.slots.flops[name] = (*self.batch.units_of[unit], peak)
            found[name] = found.get(name, 0) + _coefficient(done.flops, unit, self.batch.known)
        return found

    def _reads(self, kv: str) -> dict[str, Value]:
        """Bytes for each position that is read, by the rule that says how many are."""
        found: dict[str, Value] = {}
        for _, _, done in self._products(replace(self.plan, kv=kv)):
            for name in _words_in(done.least_bytes, self.batch.reads):
                self.slots.reads[name] = self.batch.reads[name]
                found[name] = found.get(name, 0) + _coefficient(done.least_bytes, name, self.batch.known)
        return found

    def _kept(self, kv: str) -> dict[str, Value]:
        """Bytes of a position, by the rule that keeps it."""
        found: dict[str, Value] = {}
        for count, entry in folds.cache(self.live.parts):
            label = self.batch.label(entry.rule)
            name = f"rank_cache_{label}"
            self.slots.kept[name] = label
            each = accounts.position_bytes(entry, kv, self.one.architecture.activations)
            found[name] = found.get(name, 0) + count * each
        return found

    def _products(self, plan: Plan) -> Iterator[tuple[str, str, Work]]:
        """(form, word of the units, work) of every product; those that no form has alone come once."""
        for form in self.forms:
            for done in work(plan, self.live, cast(Batch, self.batch), form):
                if done.product is not None:
                    (unit,) = _words_in(done.flops, self.batch.units_of)
                    if form == self.forms[0] or self.batch.units_of[unit][2] is not None:
                        yield form, unit, done

    def _bases(self, weights: str, form: str) -> dict[tuple[str, str | None], str]:
        """Product -> the format by which a device chooses how to multiply it: the shapes of numbers decide."""
        done = work(replace(self.numbers, weights=weights), self.stated, NOTHING, form)
        return {(w.part, w.product): w.format for w in done}

    def _peak(self, basis: str) -> str:
        """The word of a peak; formats that every accelerator multiplies alike share one."""
        own = self.own
        for known, other in self.slots.peaks.items():
            if _choices(other) == _choices(basis) and _choice(own, other) == _choice(own, basis):
                return known
        name = f"flops_per_s_{slug(basis)}"
        self.slots.peaks[name] = basis
        return name


class _Recorder:
    """Stands for a batch: its units are words. Tensors, which are counted apart, go through in no pass."""

    passes, emitted = 0, 1

    def __init__(self, condensed: Condensed) -> None:
        self.condensed = condensed
        self.units_of: dict[str, tuple[str, str, str | None]] = {}
        self.reads: dict[str, tuple[str, str, str | None]] = {}
        self.writes: set[str] = set()

    @property
    def known(self) -> set[str]:
        return {*self.units_of, *self.reads, *self.writes}

    def label(self, rule: Causal) -> str:
        return self.condensed.label(rule)

    def of(self, part: Part) -> tuple[()]:
        return ()

    def tokens(self, members: Any) -> int:
        return 0

    def units(self, entry: Product | Operation, members: Any) -> Value:
        rule = self.label(entry.rule) if entry.domain in ("pairs", "cached", "entries") else ""
        form = getattr(entry, "form", None)
        name = "_".join(filter(None, (entry.domain, rule, form)))
        self.units_of[name] = (entry.domain, rule, form)
        return word(name)

    def read(self, product: Product, entry: CacheEntry, members: Any) -> Value:
        seen, kept = self.label(product.rule) if product.domain == "pairs" else "", self.label(entry.rule)
        name = "_".join(filter(None, ("rank_read", seen, kept, product.form)))
        self.reads[name] = (seen, kept, product.form)
        return word(name)

    def written(self, rule: Causal, members: Any) -> Value:
        name = f"written_{self.label(rule)}"
        self.writes.add(name)
        return word(name)


class _ByBasis:
    """Stands for a device: it multiplies a tensor in the format by which others would choose."""

    def compute_format(self, stored: str) -> str:
        return stored


def _words_in(tree: Value, known: Iterable[str]) -> list[str]:
    """Those of the known words that a formula has."""
    mine = set(words(tree))
    return [name for name in known if name in mine]


def _coefficient(tree: Value, unit: str, units: set[str]) -> Value:
    """What a sum of coefficients times units has for one of them."""
    return read(
        tree,
        lambda name: int(name == unit) if name in units else word(name),
        lambda number: number,
        lambda op, *args: OPERATIONS[op](*args),
    )


@cache
def _choices(basis: str) -> tuple[str, ...]:
    """How each accelerator of the catalogue multiplies a format."""
    return tuple(_choice(catalogue.accelerator(name), basis) for name in catalogue.names())


def _choice(device: Accelerator, basis: str) -> str:
    try:
        return device.compute_format(basis)
    except PlannerError:
        return ""
