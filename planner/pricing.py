"""Dated prices: an accelerator's hour, and a million tokens from somebody else.

Prices are rows (`presets/prices/*.csv`, described there), and a question is asked *as of* a date: each offer stands as
its newest row said then, and the lowest of them is the answer, so that devices are compared on the same footing and
last year's plan can be reproduced. A file of one's own has the same columns;
where it has a row for an accelerator and basis (or a model and provider), the catalogue's rows for them are not used.

>>> price = hour_price("h100-sxm", "2026-10-01")
>>> price.usd_per_hour, price.provider, price.date.isoformat()
(2.29, 'Verda', '2026-01-01')
>>> hour_price("mi355x")
Traceback (most recent call last):
planner.errors.InputError: no on_demand price of mi355x is known; state usd_per_hour
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from planner import catalogue
from planner.device import GIVEN
from planner.errors import ContractError, InputError, UnknownName, suggest

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDER = "planner.presets.prices"
BASES = ("on_demand", "spot", "reserved")
TOKEN_CLASSES = ("input", "cached_input", "cache_write", "output", "batch_input", "batch_output")
_USD_PER_HOUR = (0.01, 1000)  # an old card at auction to a wafer: 1000 times too much or too little does not pass
_USD_PER_MTOK = (0.0001, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one accelerator costs for one hour, in USD, from `date` on. Raises `ContractError` for an impossible one."""

    UNIT: ClassVar[dict[str, str]] = {"usd_per_hour": "USD"}

    accelerator: str
    basis: str
    usd_per_hour: float
    date: datetime.date
    provider: str
    source: str
    confidence: str = GIVEN
    precision: str = "day"
    region: str = ""
    instance: str = ""
    accelerators: int = 1
    term: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        _one_of("basis", self.basis, BASES)
        _between("usd_per_hour", self.usd_per_hour, _USD_PER_HOUR)

    @property
    def subject(self) -> tuple[str, ...]:
        """What a row of one's own replaces."""
        return (self.accelerator, self.basis)

    @property
    def offer(self) -> tuple[str, ...]:
        """What a newer row replaces."""
        return (*self.subject, self.provider, self.region, self.instance, self.term)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrice:
    """What a million tokens of a class cost, in USD, from `date` on, for prompts of more than `above_tokens`."""

    UNIT: ClassVar[dict[str, str]] = {"usd_per_mtok": "USD", "above_tokens": "token"}

    model: str
    token_class: str
    usd_per_mtok: float
    date: datetime.date
    provider: str
    source: str
    confidence: str = GIVEN
    precision: str = "day"
    model_id: str = ""
    above_tokens: int = 0
    note: str = ""

    def __post_init__(self) -> None:
        _one_of("token_class", self.token_class, TOKEN_CLASSES)
        _between("usd_per_mtok", self.usd_per_mtok, _USD_PER_MTOK)

    @property
    def subject(self) -> tuple[str, ...]:
        """What a row of one's own replaces."""
        return (self.model, self.provider)

    @property
    def offer(self) -> tuple[str, ...]:
        """What a newer row replaces."""
        return (*self.subject, self.model_id, self.token_class, str(self.above_tokens))


Row = TypeVar("Row", Price, ApiPrice)


def hour_price(
    accelerator: str,
    as_of: datetime.date | str | None = None,
    basis: str = "on_demand",
    provider: str | None = None,
    file: str | Path | None = None,
) -> Price:
    """The lowest of what is offered, each offer as its newest row not later than `as_of` (default: of all) says.

    Prices differ by a factor of five between providers: name one, or look at `prices`. Raises `InputError` if none is
    known, for an unknown price is not 0.
    """
    known = _offers(as_of, accelerator, basis, provider, file)
    if not known:
        by = f" from {provider}" if provider else ""
        when = f" as of {_date(as_of)}" if as_of else ""
        raise InputError(f"no {basis} price of {accelerator}{by} is known{when}; state usd_per_hour")
    return min(known, key=lambda row: (row.usd_per_hour, -row.date.toordinal()))


def prices(
    as_of: datetime.date | str | None = None,
    accelerator: str | None = None,
    basis: str | None = None,
    provider: str | None = None,
    file: str | Path | None = None,
) -> DataFrame:
    """Every offer of accelerator-hours as it was known on a date, one row each."""
    return _frame(Price, _offers(as_of, accelerator, basis, provider, file))


def api_prices(
    as_of: datetime.date | str | None = None,
    model: str | None = None,
    provider: str | None = None,
    file: str | Path | None = None,
) -> DataFrame:
    """Every price of tokens as it was known on a date, one row for each model, provider, class and prompt length."""
    rows: Sequence[ApiPrice] = _known(ApiPrice, _tokens(), file)
    if model is not None:
        rows = _chosen(rows, "API model", model, lambda row: (row.model, row.model_id))
    if provider is not None:
        rows = _chosen(rows, "API provider", provider, lambda row: (row.provider,))
    return _frame(ApiPrice, _current(rows, as_of))


def _offers(
    as_of: datetime.date | str | None,
    accelerator: str | None,
    basis: str | None,
    provider: str | None,
    file: str | Path | None,
) -> list[Price]:
    rows: Sequence[Price] = _known(Price, _hours(), file)
    if basis is not None:
        if basis not in BASES:
            raise UnknownName("basis", basis, BASES)
        rows = [row for row in rows if row.basis == basis]
    if provider is not None:
        rows = _chosen(rows, "provider", provider, lambda row: (row.provider,))
    if accelerator is not None:
        name = _canonical(accelerator)
        if name not in catalogue.names() and all(row.accelerator != name for row in rows):
            catalogue.accelerator(accelerator)  # a file of one's own, or an unknown name
        rows = [row for row in rows if row.accelerator == name]
    return _current(rows, as_of)


def _canonical(accelerator: str) -> str:
    return catalogue.find(accelerator) or accelerator


def _chosen(rows: Sequence[Row], kind: str, name: str, names: Callable[[Row], tuple[str, ...]]) -> list[Row]:
    found = [row for row in rows if name.casefold() in map(str.casefold, names(row))]
    if not found:
        raise UnknownName(kind, name, {known for row in rows for known in names(row)})
    return found


def _current(rows: Iterable[Row], as_of: datetime.date | str | None) -> list[Row]:
    """The newest row of each offer that was known on a date."""
    limit = _date(as_of) if as_of is not None else datetime.date.max
    newest: dict[tuple[str, ...], Row] = {}
    for row in sorted(rows, key=lambda row: row.date):
        if row.date <= limit:
            newest[row.offer] = row
    return sorted(newest.values(), key=lambda row: (*row.subject, -row.date.toordinal(), row.offer))


def _date(value: datetime.date | str, place: str = "as_of") -> datetime.date:
    if isinstance(value, datetime.date):
        return value
    try:
        return datetime.date.fromisoformat(value.strip())
    except (AttributeError, ValueError):  # no text, or one that says no day
        raise InputError(f"{place}: {value!r:.60} is no date; write it as 2026-06-01") from None


def _known(kind: type[Row], ours: Sequence[Row], file: str | Path | None) -> Sequence[Row]:
    """The rows of the catalogue, with those of a file of one's own in the place of their like."""
    if file is None:
        return ours
    try:
        text = Path(file).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    theirs = list(_read(kind, text, str(file)))
    replaced = {row.subject for row in theirs}
    return [row for row in ours if row.subject not in replaced] + theirs


@functools.cache
def _hours() -> tuple[Price, ...]:
    return tuple(_read(Price, _text("accelerator_hours.csv"), "accelerator_hours.csv"))


@functools.cache
def _tokens() -> tuple[ApiPrice, ...]:
    return tuple(_read(ApiPrice, _text("api.csv"), "api.csv"))


def _text(name: str) -> str:
    return files(FOLDER).joinpath(name).read_text("utf-8")


def _read(kind: type[Row], text: str, source: str) -> Iterator[Row]:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    needed = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name != "source"]
    header, *lines = csv.reader(text.splitlines() or [""])
    for name in header:
        if name not in fields:
            raise InputError(f"{source}: column {name!r:.60} is none of {', '.join(fields)}{suggest(name, fields)}")
    for number, cells in enumerate(lines, start=2):
        place = f"{source}, row {number}"
        if len(cells) != len(header):
            raise InputError(f"{place}: {len(cells)} cells stand under {len(header)} columns")
        given: dict[str, Any] = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
        for name in needed:
            if name not in given:
                raise InputError(f"{place}: {name} is missing")
        given["date"] = _date(given["date"], f"{place}: date")
        for name, number_of in _NUMBERS.items():
            if name in given:
                given[name] = _number(given[name], number_of, f"{place}: {name}")
        if "accelerator" in given:
            given["accelerator"] = _canonical(given["accelerator"])
        try:
            yield kind(**{"source": source} | given)
        except ContractError as error:
            raise error.within(place) from None


_NUMBERS: Mapping[str, type[float]] = {
    "usd_per_hour": float,
    "usd_per_mtok": float,
    "accelerators": int,
    "above_tokens": int,
}


def _number(text: str, kind: type[float], place: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{place} = {text!r:.60} is not a {'whole ' if kind is int else ''}number") from None


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ContractError(f"{name} = {value!r:.60} is none of {', '.join(known)}{suggest(value, known)}")


def _between(name: str, value: float, bounds: tuple[float, float]) -> None:
    low, high = bounds
    if math.isnan(value) or not low <= value <= high:
        raise ContractError(
            f"{name} = {value:g} is not from {low:g} to {high:g} USD; leave out a price that is not known"
        )


def _frame(kind: type[Row], rows: Sequence[Row]) -> DataFrame:
    import pandas

    names = [field.name for field in dataclasses.fields(kind)]
    frame = pandas.DataFrame([[getattr(row, name) for name in names] for row in rows], columns=names)
    frame["date"] = [row.date.isoformat() for row in rows]
    frame.attrs["units"] = dict(kind.UNIT)
    return frame
