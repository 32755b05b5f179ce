"""A plan: everything that the answers about fit, speed and cost take, and which of it was only assumed.

A plan is a contract, a workload, storage formats, a layout, an accelerator and prices; a TOML file or keyword arguments
make one. Whatever its user did not say has a default with a source (`presets/assumptions.toml`) and is shown as assumed
beside every answer.
"""

from __future__ import annotations

import datetime
import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from planner.arithmetic import is_symbolic
from planner.assumptions import assumption_rule, assumptions
from planner.catalogue import Accelerator, accelerator
from planner.contract import Architecture
from planner.errors import ContractError, UnknownName, UsageError
from planner.parallel import Layout, has_experts, widest_layout
from planner.plan_parts import PARTS, Conventions, Engine, Holders, Prices, Workload
from planner.sources import load
from planner.spec import field_names, shown
from planner.storage import cache_format, weight_format

MOST_ACCELERATORS = 1_000_000  # of one plan; more are a slip of the keyboard


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every answer takes. `given` names what the user said, in alphabetical order; all else is assumed.

    Numbers of the workload, the prices and the assumptions may be words or columns, so that one formula serves a table.
    """

    model: Architecture
    accelerator: Accelerator | None = None
    weights: str
    kv: str
    engine: str = "vllm"
    workload: Workload = field(default_factory=Workload)
    layout: Layout = field(default_factory=Layout)
    holders: Holders = field(default_factory=Holders)
    prices: Prices = field(default_factory=Prices)
    conventions: Conventions = field(default_factory=Conventions)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    given: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for name in ("weights", "kv", "engine"):
            if not isinstance(value := getattr(self, name), str):
                raise UsageError(f"{name} = {shown(value)} is not a text")
        if self.engine not in get_args(Engine):
            raise UnknownName("engine", self.engine, get_args(Engine))
        weight_format(self.weights)
        cache_format(self.kv)
        for name, value in self.overrides.items():
            if name not in assumptions():
                raise UnknownName("assumption", name, assumptions())
            if not is_symbolic(value):
                held, rule = assumption_rule(name, value)
                if held is False:
                    raise UsageError(f"{name} = {shown(value)} is not {rule}")

    @property
    def moe(self) -> bool:
        """Whether the decoder has routed experts."""
        return has_experts(self.model)

    def assume(self, name: str) -> Any:
        """The value of an assumption: the user's, else the engine's, else the general one. Raises `UnknownName`."""
        if name in self.overrides:
            return self.overrides[name]
        known = assumptions()
        if name not in known:
            raise UnknownName("assumption", name, known)
        default = known[name]
        return default.at(self.engine, default.moe is not None and self.moe)

    def dealt(self, ways: int) -> list[list[int]]:
        """The ragged lengths in so many groups: the longest is dealt first, each to the group with fewest positions."""
        groups: list[list[int]] = [[] for _ in range(ways)]
        loads = [(0, place) for place in range(ways)]
        for length in sorted(self.workload.lengths or (), reverse=True):
            positions, place = heapq.heappop(loads)
            groups[place].append(length)
            heapq.heappush(loads, (positions + length, place))
        return groups

    @property
    def device(self) -> Accelerator:
        """The accelerator. Raises `UsageError` where the plan names none."""
        if self.accelerator is None:
            raise UsageError("the plan names no accelerator; say accelerator = h100-sxm (planner accelerators)")
        return self.accelerator

    @property
    def sequences(self) -> Any:
        """Resident sequences of all replicas."""
        if self.workload.lengths is not None:
            return len(self.workload.lengths)
        return self.assume("sequences") if self.workload.sequences is None else self.workload.sequences

    @property
    def osl(self) -> Any:
        """Output tokens of a request."""
        return self.assume("osl") if self.workload.osl is None else self.workload.osl

    @property
    def isl(self) -> Any:
        """Input tokens of a request: stated, or what a request that ends at the stated context has."""
        if self.workload.isl is not None:
            return self.workload.isl
        for held, sentence, shows in request_rules(self):
            if held is False:
                raise UsageError(sentence.format_map(shows))
        return self._stated_context - self.osl + 1

    @property
    def context(self) -> Any:
        """Cached positions of a sequence: stated, or those at the end of a request."""
        if self.workload.context is None and self.workload.isl is not None:
            return self.isl + self.osl - 1
        return self._stated_context

    @property
    def longest(self) -> Any:
        """Positions of the longest sequence."""
        return max(self.workload.lengths or (self.context,))

    @property
    def _stated_context(self) -> Any:
        return self.assume("context") if self.workload.context is None else self.workload.context

    def assumed(self, *names: str) -> dict[str, Any]:
        """Those of the named figures that the user did not give, with the values they were taken to have."""
        return {name: self._value(name) for name in names if name not in self.given and name not in self.overrides}

    def _value(self, name: str) -> Any:
        if name in assumptions():
            return self.assume(name)
        for part in (self, *(getattr(self, part) for part in PARTS)):
            if hasattr(part, name):
                return getattr(part, name)
        raise UnknownName("field of a plan", name, fields_of_a_plan())

    def changed(self, **keywords: Any) -> Plan:
        """The same plan with other values, given as `make_plan` takes them; every rule is checked again."""
        keywords = {name: _plain(value) for name, value in keywords.items()}
        given = tuple(sorted({*self.given, *(name for name, value in keywords.items() if value is not None)}))
        for name, read in (("model", load), ("accelerator", _device)):
            if name in keywords:
                keywords[name] = read(keywords[name])
        try:
            parts = {
                name: replace(getattr(self, name), **mine)
                for name, cls in PARTS.items()
                if (mine := {k: keywords.pop(k) for k in field_names(cls) if k in keywords})
            }
        except ContractError as error:
            raise UsageError(str(error)) from None
        if "count" in keywords:
            said = {"count": keywords.pop("count"), **{name: True for name in field_names(Layout) if name in given}}
            model, device = keywords.get("model", self.model), keywords.get("accelerator", self.accelerator)
            parts["layout"] = _layout(model, device, said, parts.get("layout", self.layout))
        own = {f.name for f in fields(self)}
        plain = {name: keywords.pop(name) for name in tuple(keywords) if name in own}
        return replace(self, **parts, **plain, overrides={**self.overrides, **keywords}, given=given)


def fields_of_a_plan() -> tuple[str, ...]:
    """Every keyword that `make_plan` takes."""
    inner = (name for cls in PARTS.values() for name in field_names(cls))
    return ("model", "accelerator", "count", "weights", "kv", "engine", *inner, *assumptions())


def make_plan(model: Any, **keywords: Any) -> Plan:
    """A plan from a model and any of `fields_of_a_plan`; what is None counts as not said.

    With `count` accelerators and no layout the largest legal tensor parallelism inside a domain or machine is taken,
    further accelerators hold further replicas. Raises `UsageError` or `InputError` with the field and its rule.

    >>> plan = make_plan("llama-3.1-70b", accelerator="h100-sxm", count=8, context=32768)
    >>> plan.layout.tp, plan.assumed("sequences", "tp")
    (8, {'sequences': 1, 'tp': 8})
    """
    said = {name: _plain(value) for name, value in keywords.items() if value is not None}
    for name in said:
        if name not in fields_of_a_plan():
            raise UnknownName("field of a plan", name, fields_of_a_plan())
    architecture = load(model)
    device = _device(said.get("accelerator"))
    try:
        parts = {name: cls(**{k: said[k] for k in field_names(cls) if k in said}) for name, cls in PARTS.items()}
    except ContractError as error:
        raise UsageError(str(error)) from None
    parts["layout"] = _layout(architecture, device, said, parts["layout"])  # type: ignore[arg-type]
    return Plan(
        model=architecture,
        accelerator=device,
        weights=said.get("weights", architecture.weights),
        kv=said.get("kv", architecture.kv),
        engine=said.get("engine", "vllm"),
        overrides={name: said[name] for name in assumptions() if name in said and name not in _also_fields()},
        given=tuple(sorted(said)),
        **parts,  # type: ignore[arg-type]
    )


def _plain(value: Any) -> Any:
    """A list as a tuple, a date as its text, a number of NumPy, which notebooks hold without knowing, as Python's."""
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if isinstance(value, datetime.date):
        return f"{value:%Y-%m-%d}"
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _device(named: Any) -> Accelerator | None:
    if named is None or isinstance(named, Accelerator):
        return named
    if not isinstance(named, str):
        raise UsageError(f"accelerator = {shown(named)} is neither a name nor an Accelerator")
    return accelerator(named)


def _also_fields() -> set[str]:
    """Assumptions that are fields of the workload: the field holds what the user says."""
    return set(field_names(Workload)) & set(assumptions())


def _layout(model: Architecture, device: Accelerator | None, said: Mapping[str, Any], layout: Layout) -> Layout:
    count = said.get("count")
    stated = any(name in said for name in field_names(Layout))
    if count is None:
        return layout
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_ACCELERATORS:
        raise UsageError(f"count = {count!r} is not a number of accelerators from 1 to {MOST_ACCELERATORS:,}")
    if not stated:
        return widest_layout(model, count, count if device is None else device.group_size)
    if "dp" not in said and count % layout.accelerators == 0:
        layout = replace(layout, dp=count // layout.accelerators)
    if layout.accelerators != count:
        raise UsageError(f"count = {count} is not the {layout.accelerators} of {layout}; make them agree")
    return layout


def as_plan(what: Any, **keywords: Any) -> Plan:
    """A plan as it is or changed, or one made of a model: what every answer accepts first."""
    if not isinstance(what, Plan):
        return make_plan(what, **keywords)
    said = {name: value for name, value in keywords.items() if value is not None}
    return what.changed(**said) if said else what


def explained(assumed: Mapping[str, Any]) -> Iterator[str]:
    """Those of the assumed figures that presets/assumptions.toml explains, each in a line with its source."""
    known = {name: value for name, value in assumed.items() if name in assumptions()}
    yield from ["assumed"] * bool(known)
    for name, value in known.items():
        yield f"  {name} = {value}: {assumptions()[name].meaning}; {assumptions()[name].source}"


Rule = tuple[Any, str, Mapping[str, Any]]
"""What must hold, a bool or a column of them; the sentence said where it does not; and the values that it shows."""


def request_rules(plan: Plan) -> Iterator[Rule]:
    """What must hold of a prompt whose length follows from a context; words are checked when they are numbers."""
    work, context, osl = plan.workload, plan._stated_context, plan.osl
    if work.isl is not None or work.lengths is not None:
        return
    isl, cached = context - osl + 1, work.cached_prefix
    if not is_symbolic(isl):
        said = {"context": context, "osl": osl, "isl": isl, "cached": cached}
        yield isl >= 1, "context = {context:.15g} has no room for osl = {osl:.15g}; state isl and osl", said
        if not is_symbolic(cached):
            yield cached < isl, "cached_prefix = {cached:.15g} leaves nothing of isl = {isl:.15g}", said


def load_rules(plan: Plan) -> Iterator[Rule]:
    """What must hold between the positions of the load and the rest of the plan."""
    learned, prefix = plan.model.embedding.learned_positions, plan.holders.shared_prefix
    if learned is not None:
        said = {"longest": plan.longest, "name": plan.model.name}
        sentence = f"{{longest:,.15g}} positions exceed the {learned:,} learned ones of {{name}}"
        yield plan.longest <= learned, sentence, said
    if prefix:
        shortest = min(plan.workload.lengths or (plan.context,))
        sentence = f"shared_prefix = {prefix:,} exceeds the {{shortest:,.15g}} positions of a sequence"
        yield prefix <= shortest, sentence, {"shortest": shortest}


def position_notes(plan: Plan) -> Iterator[str]:
    """What is to be said of the positions of the longest sequence: beyond a stated maximum they are computed.

    Raises `UsageError` where `load_rules` do not hold.
    """
    for held, sentence, shows in load_rules(plan):
        if not held:
            raise UsageError(sentence.format_map(shows))
    stated = plan.model.max_positions
    if stated is not None and plan.longest > stated:
        yield f"{plan.longest:,} positions are beyond the stated maximum of {stated:,}"
