"""A plan whose numbers are cells: load, assumptions, prices, device and contract as words, and every answer over them.

Model, formats, layout and engine decide which formulas there are, so they are fixed when the workbook is written. Where
a formula over some word would not give the figure that the program gives, that word stays a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from planner import catalogue, cost
from planner.arithmetic import Value, evaluate, word
from planner.assumptions import assumptions
from planner.catalogue import Accelerator
from planner.contract import Architecture
from planner.errors import InputError, PlannerError
from planner.ladder import rank_terms, reserved_terms
from planner.parallel import Rank, ranks
from planner.phases import Timing, timings
from planner.plan import Plan
from planner.plan_parts import Prices
from planner.summary import Load, summary
from planner.textbook.cost import owned_usd_per_hour
from planner.timing import reach
from planner.traffic import compute_bases, over_host
from planner.workbook import ranges
from planner.workbook.subject import Subject, numbers_of, slug, subject, words_of

HOUR = "usd_per_accelerator_hour"
DEVICE = {
    "memory_bytes": ("B", "memory that the driver hands out"),
    "bandwidth_bytes_per_s": ("B/s", "bandwidth of the memory"),
    "link_bytes_per_s": ("B/s", "bandwidth of the scale-up link, one way"),
    "peer_bytes_per_s": ("B/s", "bandwidth to one other device of the link's domain, one way"),
    "host_bytes_per_s": ("B/s", "bandwidth of PCIe, one way"),
    "network_bytes_per_s": ("B/s", "bandwidth of the network, one way"),
    "power_w": ("W", "rated power"),
}
LOADS = {
    "context": ("token", "cached positions of a sequence"),
    "sequences": ("1", "sequences that are resident at the same time, of all replicas"),
    "isl": ("token", "input tokens of a request"),
    "osl": ("token", "output tokens of a request"),
}
PRICES = {
    "usd_per_hour": ("USD/h", "rent of an accelerator; left blank, the listed price of the Hardware sheet"),
    "purchase_usd": ("USD", "price of buying an accelerator with its share of the machine"),
    "amortisation_years": ("year", "years over which a purchase is written off"),
    "usd_per_kwh": ("USD/kWh", "price of electrical energy"),
}


@dataclass(frozen=True)
class Input:
    """A number to change: the name of its cell, value, unit, meaning, and whether it was given or why it is assumed."""

    name: str
    value: Any
    unit: str
    meaning: str
    basis: str

    @property
    def allowed(self) -> ranges.Range:
        """The numbers that it may be."""
        if self.name in LOADS:
            return ranges.whole(0 if self.name == "context" else 1)
        return ranges.price(self.name) if self.name in PRICES else ranges.assumed(self.name)


@dataclass(frozen=True)
class Device:
    """An accelerator in words. `computes`: the format in which a tensor is stored -> that in which it is multiplied."""

    name: str
    memory_bytes: Value
    bandwidth_bytes_per_s: Value
    link_bytes_per_s: Value
    peer_bytes_per_s: Value
    host_bytes_per_s: Value
    network_bytes_per_s: Value
    power_w: Value
    unified_memory: bool
    routes: Mapping[int, str]
    spread: Mapping[int, int]
    computes: Mapping[str, str]
    peak_flops: Mapping[str, Value]

    def route(self, devices: int) -> str:
        """The figure that bounds an exchange among so many."""
        return self.routes[devices]

    def domains(self, devices: int) -> int:
        """Domains of the link over which so many lie."""
        return self.spread[devices]

    def compute_format(self, stored: str) -> str:
        """The format that tensors stored so are multiplied in."""
        if stored not in self.computes:
            raise InputError(f"{self.name} has no published peak for tensors stored in {stored}")
        return self.computes[stored]


@dataclass(frozen=True)
class Answers:
    """Recorded answers. Without `floor`, `estimate` and `cost`, `reason` says why there are none."""

    summary: Mapping[str, Value]
    ladder: tuple[tuple[Rank, Mapping[str, Value], Mapping[str, Value]], ...]
    floor: Timing | None = None
    estimate: Timing | None = None
    cost: Mapping[str, Value] | None = None
    reason: str = ""


@dataclass(frozen=True)
class LivePlan:
    """A plan in words. `device` are the figures that the sheet looks up for the chosen accelerator."""

    plan: Plan
    subject: Subject
    answers: Answers
    inputs: tuple[Input, ...]
    device: Mapping[str, Any]
    bases: Mapping[str, str]
    hour: float | None
    owned: Value | None

    @property
    def values(self) -> dict[str, Any]:
        """Word -> number, of everything that the answers take."""
        numbers = {entry.name: entry.value for entry in self.inputs if entry.value is not None}
        return {**self.subject.values, **self.device, **numbers, HOUR: self.hour}

    @property
    def longest(self) -> Value:
        """Positions of the longest sequence."""
        if self.plan.workload.lengths is not None:
            return self.plan.longest
        stated = any(entry.name == "context" for entry in self.inputs)
        return word("context") if stated else word("isl") + word("osl") - 1

    def movable(self) -> list[str]:
        """Accelerators for which the same formulas hold.

        Their links reach as far, they multiply in the same formats, and the figures are known.
        """
        device = self.plan.accelerator
        if device is None:
            return []
        reaches = _reaches(self.plan)

        def alike(other: Accelerator) -> bool:
            same = all((other.route(n), other.domains(n)) == (device.route(n), device.domains(n)) for n in reaches)
            same &= over_host(replace(self.plan, accelerator=other)) == over_host(self.plan)
            try:
                same &= all(other.compute_format(b) == device.compute_format(b) for b in self.bases.values())
                return same and all(value is not None for value in _figures(other, self.bases, self.device).values())
            except InputError:
                return False

        names = [name for name in catalogue.names() if alike(catalogue.accelerator(name))]
        return names if device.name in names else [device.name, *names]


def live_plan(plan: Plan) -> LivePlan:
    """A plan in words, with as much of its contract in words as its answers can be recorded over."""
    bases = {f"flops_per_s_{slug(basis)}": basis for basis in compute_bases(plan)} if plan.accelerator else {}
    inputs = list(_inputs(plan))
    hour = _hour(plan)
    try:
        figures = {} if plan.accelerator is None else _figures(plan.accelerator, bases)
    except InputError:  # memory can be answered all the same
        bases = {}
        figures = {} if plan.accelerator is None else _figures(plan.accelerator, bases)
    known = {**figures, HOUR: hour}
    numbers = {entry.name: entry.value for entry in inputs if entry.value is not None}

    def record(model: Architecture) -> Answers:
        return _answers(_in_words(plan, model, bases, inputs), priced=True)

    exact = _answers(plan, priced=hour is not None)

    def attempt(model: Architecture) -> None:
        names = numbers_of(model, plan.model)
        values = {**known, **numbers, **names}
        pairs = zip(record(model).ladder, exact.ladder, strict=True)
        for (_, live, _), (_, stated, _) in pairs:
            for term in stated:
                if evaluate(live[term], values) != stated[term]:
                    raise InputError(f"{term} depends on what cannot be a word")

    chosen = subject(plan.model, attempt)
    answers = record(chosen.live)
    used = set(words_of([answers.summary, answers.ladder, answers.floor, answers.estimate, answers.cost]))
    owned = None
    if plan.prices.purchase_usd is not None:
        owned = owned_usd_per_hour(*map(word, owned_usd_per_hour.words))
        used |= {*owned_usd_per_hour.words}
    always = {"usd_per_hour", *PRICES} if plan.accelerator else set()
    return LivePlan(
        plan=plan,
        subject=chosen,
        answers=answers,
        inputs=tuple(entry for entry in inputs if entry.name in used | always),
        device={name: value for name, value in known.items() if name in used and name != HOUR},
        bases={name: basis for name, basis in bases.items() if name in used},
        hour=hour,
        owned=owned,
    )


def _answers(plan: Plan, *, priced: bool) -> Answers:
    said = plan.conventions
    lengths = plan.workload.lengths
    load = Load(
        isl=plan.isl if lengths is None else max(lengths),
        osl=plan.osl,
        batch=plan.sequences,
        weights=plan.weights,
        kv=plan.kv,
        attention=said.attention,
        logits=said.logits,
        mla=said.mla,
    )
    ladder = tuple(
        (rank, rank_terms(plan, rank), {} if plan.accelerator is None else reserved_terms(plan))
        for rank in ranks(plan.model, plan.layout)
    )
    figures = summary(plan.model, load)
    if plan.accelerator is None:
        return Answers(figures, ladder, reason="no accelerator is named")
    try:
        floor, estimate = timings(plan)
    except InputError as error:
        return Answers(figures, ladder, reason=str(error))
    priced_at = cost.figures(plan, estimate, cost.hour_price_of(plan).usd) if priced else None
    return Answers(figures, ladder, floor, estimate, priced_at)


def _in_words(plan: Plan, model: Architecture, bases: Mapping[str, str], inputs: Iterable[Input]) -> Plan:
    names = {entry.name for entry in inputs}
    load = {name: word(name) for name in LOADS if name in names}
    plan = plan.changed(**{name: value for name, value in load.items()})
    prices = plan.prices if plan.accelerator is None else Prices(usd_per_hour=cast(Any, word(HOUR)))
    device: Any = None
    if plan.accelerator is not None:
        own = plan.accelerator
        rates = {name: None if getattr(own, name) is None else word(name) for name in DEVICE}
        computes = {basis: own.compute_format(basis) for basis in bases.values()}
        peaks = {computes[basis]: word(name) for name, basis in bases.items()}
        device = Device(
            own.name,
            unified_memory=own.unified_memory,
            routes={n: own.route(n) for n in _reaches(plan)},
            spread={n: own.domains(n) for n in _reaches(plan)},
            computes=computes,
            peak_flops=peaks,
            **rates,
        )
    assumed = {name: word(name) for name in assumptions() if name in names and name not in LOADS}
    return replace(
        plan,
        model=model,
        accelerator=cast(Accelerator, device),
        prices=prices,
        overrides={**plan.overrides, **assumed},
    )


def _inputs(plan: Plan) -> Iterator[Input]:
    """Everything numeric that a user can say, in the order in which it is shown."""
    said = plan.workload
    for name, (unit, meaning) in LOADS.items():
        stated = getattr(said, name)
        follows = stated is None and (name == "isl" or (name == "context" and said.isl is not None))
        if not follows and (said.lengths is None or name == "osl"):
            yield Input(name, getattr(plan, name), unit, meaning, _basis(plan, name, stated))
    for name, (unit, meaning) in PRICES.items():
        value = getattr(plan.prices, name)
        if name == "usd_per_hour" or value is not None:
            yield Input(name, value, unit, meaning, "given" if value is not None else "")
    for name, assumption in assumptions().items():
        value = plan.assume(name)
        if name not in LOADS and isinstance(value, (int, float)):
            stated = plan.overrides.get(name)
            yield Input(name, value, assumption.unit, assumption.meaning, _basis(plan, name, stated))


def _basis(plan: Plan, name: str, stated: Any) -> str:
    return "given" if stated is not None else f"assumed: {assumptions()[name].source}"


def _reaches(plan: Plan) -> set[int]:
    """How many devices each collective of a plan must join."""
    return {reach(plan.layout, c) for rank in ranks(plan.model, plan.layout) for c in rank.collectives}


def _figures(device: Accelerator, bases: Mapping[str, str], only: Iterable[str] | None = None) -> dict[str, Any]:
    """Word -> figure of an accelerator. Raises `InputError` where a peak is not known."""
    wanted = [*DEVICE, *bases] if only is None else list(only)
    return {
        name: getattr(device, name) if name in DEVICE else device.peak(device.compute_format(bases[name]))
        for name in wanted
    }


def _hour(plan: Plan) -> float | None:
    if plan.accelerator is None:
        return None
    try:
        return float(cost.hour_price_of(plan).usd)
    except PlannerError:
        return None
