"""All decoders of a workbook in one: what differs between them are the coefficients of a row.

A figure of any decoder is a sum of coefficients times units: multiply-adds times new positions, or times the pairs that
a rule allows; cache bytes times the positions that a rule keeps. So the bill of a decoder condenses to one entry for
each domain and each distinct rule (a *slot*), and a decoder with these words for sizes, folded like any other, gives
the formula of a column that serves all of them. A decoder without a slot has 0 there.

The condensed decoder counts in bytes: its elements are of one byte each, so that what a fold calls elements are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, cast

from planner.arithmetic import Value, word
from planner.bill import Bill, CacheEntry, Part, Product, Tensor
from planner.contract import Architecture
from planner.notation import excel
from planner.rules import Causal
from planner.summary import CacheCurve, Crossover, Load, crossover, summary
from planner.workbook.subject import Subject

ONE_BYTE = "fp8"


@dataclass
class Slots:
    """The slots of all subjects: label -> class of a rule; word of a coefficient -> what it stands for."""

    rules: dict[str, type[Causal]] = field(default_factory=dict)
    products: dict[str, tuple[str, str, str | None]] = field(default_factory=dict)
    cache: dict[str, str] = field(default_factory=dict)

    def rule(self, label: str) -> Causal:
        """A rule whose numbers are words of a row."""
        kind = self.rules[label]
        return kind(**{f.name: word(f"{label}_{f.name}") for f in fields(kind)})


@dataclass(frozen=True)
class ProductRow:
    """A product of a subject: its multiply-adds for each unit of its domain in all layers, and the slot they go to."""

    path: str
    component: str
    domain: str
    rule: str
    form: str
    slot: str
    macs: Value


@dataclass(frozen=True)
class CacheRow:
    """A cache entry of a subject, with how many layers have it."""

    path: str
    rule: str
    slot: str
    count: Value
    entry: CacheEntry


@dataclass(frozen=True)
class Condensed:
    """A subject's products and cache entries by slots, its rules by label, and the words of these."""

    products: tuple[ProductRow, ...]
    cache: tuple[CacheRow, ...]
    widths: dict[str, Value]
    labels: dict[tuple[Any, ...], str]

    def label(self, rule: Causal) -> str:
        """The label of one of its rules."""
        return self.labels[_key(rule)]


def condense(one: Subject, slots: Slots) -> Condensed:
    """The rows of a subject; slots that are new are entered."""
    labels: dict[tuple[Any, ...], str] = {}
    widths: dict[str, Value] = {}

    def label(rule: Causal) -> str:
        numbers, key = _numbers(rule), _key(rule)
        if key not in labels:
            kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(rule).__name__).lower()
            before = sum(known[0] is type(rule) for known in labels)
            labels[key] = f"{kind}_{before + 1}" if numbers else kind
            slots.rules[labels[key]] = type(rule)
            widths.update({f"{labels[key]}_{name}": value for name, value in numbers.items()})
        return labels[key]

    products, cache = [], []
    for part in (part for part in one.live.parts() if part.module == "body"):
        for product in part.bill.products:
            rule = label(product.rule) if product.domain in ("pairs", "cached", "entries") else ""
            slot = "_".join(filter(None, ("macs", product.domain, rule, product.form)))
            slots.products[slot] = (product.domain, rule, product.form)
            place = f"{part.path}.{product.id}".lstrip(".")
            macs = part.count * product.macs
            products.append(ProductRow(place, product.component, product.domain, rule, product.form or "", slot, macs))
        for entry in part.bill.cache:
            rule = label(entry.rule)
            slots.cache[f"cache_{rule}"] = rule
            cache.append(CacheRow(f"{part.path}.{entry.id}", rule, f"cache_{rule}", part.count, entry))
    return Condensed(tuple(products), tuple(cache), widths, labels)


def _numbers(rule: Causal) -> dict[str, Value]:
    return {f.name: getattr(rule, f.name) for f in fields(rule)}


def _key(rule: Causal) -> tuple[Any, ...]:
    return (type(rule), *(excel(value, str) for value in _numbers(rule).values()))


def rule_words(slots: Slots) -> tuple[str, ...]:
    """The coefficients that say how wide rules are."""
    return tuple(f"{label}_{f.name}" for label, rule in slots.rules.items() for f in fields(rule))


@dataclass(frozen=True)
class _Decoder:
    """What `summary` asks of a contract."""

    slots: Slots
    weights: str = ONE_BYTE
    kv: str = ONE_BYTE
    activations: str = ONE_BYTE

    @property
    def stated_parameters(self) -> Value:
        """Elements of one byte: the bytes of all weights."""
        return word("weight_bytes")

    def parts(self) -> tuple[Part, ...]:
        slots, rule = self.slots, self.slots.rule
        all_tensors = Tensor("all", (), "other", "other", word("parameters"), word("active_parameters"))
        products = (
            Product(slot, word(slot), cast(Any, domain), "other", rule=rule(of) if of else Causal(), form=form)
            for slot, (domain, of, form) in slots.products.items()
        )
        cache = (CacheEntry(slot, 1, word(slot), rule(of)) for slot, of in slots.cache.items())
        return (Part("", 1, Bill((all_tensors,), tuple(products), tuple(cache))),)


def column_formulas(slots: Slots, load: Load) -> dict[str, Value]:
    """Figure -> formula over the words of a row, in the order of `summary`."""
    return summary(cast(Architecture, _Decoder(slots)), load)


@dataclass(frozen=True)
class Crossing:
    """Where the cache of a row reaches its weights: straight lines, of which the last to do so counts.

    `rate` is what the cache grows by beyond all windows; where that is 0 it never passes `limit`.
    """

    lines: tuple[Value, ...]
    rate: Value
    limit: Value
    target: Value


def crossing(slots: Slots, load: Load) -> Crossing:
    """The crossover of a row."""
    decoder = cast(Architecture, _Decoder(slots))
    target = word("weight_bytes")
    found: Crossover = crossover(decoder, load, target)
    curve = CacheCurve.of(decoder)
    bounded = CacheCurve(curve.fixed, 0, curve.windows).crossover(target)
    return Crossing(tuple(_alternatives(found.tokens)), curve.rate, bounded.limit, target / load.batch)


def cache_curve(slots: Slots) -> Value:
    """Cache bytes of one sequence over `context`."""
    return column_formulas(slots, Load(context=word("context"), batch=1))["cache_bytes"]


def _alternatives(tree: Value) -> Iterator[Value]:
    """The values of which a tree of maxima is the greatest."""
    waiting: list[Value] = [tree]
    while waiting:
        one = waiting.pop()
        if getattr(one, "op", "") == "maximum":
            waiting += reversed(one.args)
        else:
            yield one
