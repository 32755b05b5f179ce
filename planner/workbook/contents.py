"""What a workbook is about: a plan, the decoders beside it, the formats to choose from, and the scenarios."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from planner.arithmetic import word
from planner.contract import Architecture
from planner.errors import UsageError
from planner.parallel import ranks
from planner.plan import Plan, as_plan
from planner.sources import load
from planner.storage import cache_format, weight_format
from planner.summary import Load
from planner.workbook.cases import Case, of_frame
from planner.workbook.condensed import Condensed, Slots, condense
from planner.workbook.live_plan import LivePlan, live_plan
from planner.workbook.ranked import Ranked, RankSlots, check, ranked, unranked
from planner.workbook.subject import Subject, slug, subject

WEIGHTS = "bf16 fp8 fp8-block128 int8 awq-g128 gptq-g128 nf4 mxfp4 nvfp4 q8_0 q6_k q5_k_m q4_k_m".split()
"""Weight formats to choose from, besides those that the workbook's decoders have."""
KV = "bf16 fp16 fp8 int8 fp8-token-head nvfp4 q8_0 q4_0".split()
"""Cache formats to choose from, likewise."""
CONTEXTS = (4096, 8192, 32_768, 131_072)
"""Contexts of the scenarios that a plan starts with, beside its own."""


@dataclass(frozen=True)
class Contents:
    """What a workbook shows. `axes` are the numbers of a scenario: context and batch, or isl, osl and batch."""

    plan: Plan
    live: LivePlan
    subjects: tuple[Subject, ...]
    condensed: tuple[Condensed, ...]
    slots: Slots
    cases: tuple[Case, ...]
    axes: tuple[str, ...]

    @property
    def load(self) -> Load:
        """The load of a row, its numbers as words, in the plan's conventions."""
        said = self.plan.conventions
        numbers: dict[str, Any] = {name: word(name) for name in self.axes}
        return Load(**numbers, attention=said.attention, logits=said.logits, mla=said.mla)

    @cached_property
    def weights(self) -> list[str]:
        """Weight formats to choose from, the plan's first."""
        own = [s.architecture.weights for s in self.subjects] + [case.weights for case in self.cases]
        return list(dict.fromkeys(weight_format(name).name for name in [self.plan.weights, *own, *WEIGHTS]))

    @cached_property
    def kv(self) -> list[str]:
        """Cache formats to choose from, the plan's first."""
        own = [s.architecture.kv for s in self.subjects] + [case.kv for case in self.cases]
        return list(dict.fromkeys(cache_format(name).name for name in [self.plan.kv, *own, *KV]))

    @cached_property
    def ranks(self) -> tuple[RankSlots, tuple[Ranked, ...]]:
        """A rank of each decoder in the plan's layout; none where no formula of a column serves the ranks of all."""
        slots = RankSlots()
        if unranked(self.plan):
            return slots, ()
        pairs = zip(self.subjects, self.condensed, strict=True)
        return slots, tuple(ranked(self.plan, one, condensed, slots, self.weights, self.kv) for one, condensed in pairs)


def contents(what: Any) -> Contents:
    """What is to be shown of a plan or a model, with other models beside it, or of a frame of cases."""
    if hasattr(what, "columns"):
        asked = of_frame(what)
        return _contents(asked.plan, asked.models, asked.cases, asked.axes)
    first, *others = (what if isinstance(what, (list, tuple)) else [what]) or [None]
    if first is None:
        raise UsageError("name at least one model")
    plan = as_plan(first)
    models = [plan.model, *map(load, others)]
    cases = [
        Case(model.name, plan.weights if model is plan.model else model.weights, _kv(plan, model), numbers)
        for model in models
        for numbers in _default_loads(plan, model)
    ]
    return _contents(plan, models, cases, ("context", "batch"))


def _kv(plan: Plan, model: Architecture) -> str:
    return plan.kv if model is plan.model else model.kv


def _default_loads(plan: Plan, model: Architecture) -> list[dict[str, int]]:
    most = model.embedding.learned_positions or model.max_positions or max(CONTEXTS)
    lengths = sorted({min(plan.context, most), *(length for length in CONTEXTS if length <= most)})
    return [{"context": length, "batch": plan.sequences} for length in lengths]


def _attempt(plan: Plan, model: Architecture) -> Callable[[Architecture], None] | None:
    """What besides its bill is recorded of a decoder that stands beside the plan's: its rank, where it has one."""
    if unranked(plan):
        return None
    try:
        ranks(model, plan.layout)
    except UsageError:
        return None
    return partial(check, plan, model)


def _check_names(models: Sequence[Architecture]) -> None:
    names = Counter(model.name.casefold() for model in models)  # a spreadsheet does not tell capitals apart
    for model in models:
        if names[model.name.casefold()] > 1:
            times = names[model.name.casefold()]
            raise UsageError(f"{model.name} is given {times} times; a workbook has a row for each model")


def _contents(plan: Plan, models: Sequence[Architecture], cases: Sequence[Case], axes: tuple[str, ...]) -> Contents:
    _check_names(models)
    live = live_plan(plan)
    subjects: list[Subject] = []
    for model in models:
        before = sum(slug(other.name) == slug(model.name) for other in models[: len(subjects)])
        prefix = f"{slug(model.name)}_{before + 1}" if before else None
        subjects.append(live.subject if model is plan.model else subject(model, _attempt(plan, model), prefix))
    slots = Slots()
    condensed = tuple(condense(one, slots) for one in subjects)
    spelled = (replace(case, weights=weight_format(case.weights).name, kv=cache_format(case.kv).name) for case in cases)
    return Contents(plan, live, tuple(subjects), condensed, slots, tuple(spelled), axes)
