"""A contract together with what its source says of it: published figures, where every fact comes from, remarks.

As a file it is a contract's TOML with a few keys more, so that a preset is also a plain contract file and a contract
file needs none of them.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator
from typing import Any, cast

from planner.contract import Architecture
from planner.errors import ContractError, suggest
from planner.loading import build, from_table, parse_toml, to_table, write_toml
from planner.spec import Count, Spec, field_names, spec

CONFIG = "config"  # the source of every field of the contract
HEAD = ("name", "title", "hub", "aliases", "family", "notes")
EVIDENCE = ("published", "sources")


@spec
class Source(Spec):
    """Where facts come from: a title that finds it, when it was read, and what it does not cover."""

    title: str
    retrieved: datetime.date | None = None
    note: str | None = None


@spec
class Figure(Spec):
    """A figure that others publish; `source` is a key of the sources.

    `includes` names what it contains and ours does not (``["tied head stored twice"]``), `omits` what ours
    contains and it does not, `excess` by how much it is larger for that. `rel` is the relative difference that then may
    remain: 0, or explained in the note.
    """

    value: Count
    source: str
    includes: tuple[str, ...] = ()
    omits: tuple[str, ...] = ()
    excess: int = 0
    rel: float = 0.0
    note: str | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield (
            (self.excess != 0) == bool(self.includes or self.omits),
            "excess = {excess} needs includes or omits that say of what, and they need it",
        )
        yield self.excess < self.value, "excess = {excess} is not below value = {value}"
        yield self.rel >= 0, "rel = {rel} is negative"
        yield self.rel == 0 or self.note is not None, "rel = {rel} needs a note that explains it"

    def against(self, counted: int) -> str:
        """One sentence: the published figure, ours, and what lies between them.

        >>> twice = {"includes": ("tied head stored twice",), "excess": 295_469_056}
        >>> figure = Figure(value=7_217_189_760, source="weights", **twice)
        >>> figure.against(6_921_720_704)
        'published 7,217,189,760 with tied head stored twice (+295,469,056), counted 6,921,720,704: equal'
        """
        parts = [f"with {part}" for part in self.includes] + [f"without {part}" for part in self.omits]
        said = f" {', '.join(parts)} ({self.excess:+,})" if parts else ""
        apart = (counted + self.excess) / self.value - 1
        verdict = "equal" if counted + self.excess == self.value else f"{apart:+.3%}"
        return f"published {self.value:,}{said}, counted {counted:,}: {verdict}"


@spec
class Published(Spec):
    """The figures that a test holds our counts to."""

    parameters: Figure | None = None
    active_parameters: Figure | None = None


@spec
class Loaded(Spec):
    """A contract as it was read.

    `hub` is its name ``org/name`` where people fetch it, `aliases` are names of the same contract, such as that of the
    chat model, `family` is the trade's name for it and its kin; `notes` are for whoever uses it.
    """

    architecture: Architecture
    hub: str | None = None
    aliases: tuple[str, ...] = ()
    family: str | None = None
    notes: tuple[str, ...] = ()
    published: Published = Published()
    sources: dict[str, Source] = dataclasses.field(default_factory=dict)

    def rules(self) -> Iterator[tuple[Any, str]]:
        for name in field_names(Published):
            figure = getattr(self.published, name)
            known = figure is None or figure.source in self.sources
            yield known, f"published.{name}: source = {figure and figure.source!r} is no key of sources"

    def against_published(self, counted: int) -> list[str]:
        """How the parameters that are counted compare with the published ones, as sentences."""
        return [self.published.parameters.against(counted)] if self.published.parameters else []


def read_document(text: str, source: str) -> Loaded:
    """A contract file, strictly. Raises `ContractError` with file, path, value and rule."""
    table = parse_toml(text, source)
    beside = [name for name in field_names(Loaded) if name != "architecture"]
    known = {*field_names(Architecture), *beside}
    for key in table:
        if key not in known:
            raise ContractError(f"{key[:60]}: unknown key{suggest(key[:60], known)}", source=source)
    contract = {key: value for key, value in table.items() if key not in beside}
    extra = {key: value for key, value in table.items() if key in beside}
    try:
        return cast(Loaded, build(Loaded, {"architecture": from_table(contract, source), **extra}))
    except ContractError as error:
        raise error.within(source) from None


def write_document(loaded: Loaded) -> str:
    """The TOML that `read_document` reads back: a name and a few words first, then the contract, then its evidence."""
    table = to_table(loaded)
    flat = {**table.pop("architecture"), **table}
    order = sorted(flat, key=lambda key: (key in EVIDENCE) - (key in HEAD))
    return write_toml({key: flat[key] for key in order})
