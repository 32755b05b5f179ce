"""The accelerators that come with the planner, and those of a file of one's own.

A device is data: `presets/accelerators/*.toml`, one file each, where a figure is a number in base units or a text with
its unit, and has the source and confidence of its file unless it states others. Nothing here knows a particular one.

>>> device = accelerator("h100-sxm")
>>> device.memory_bytes, device.bandwidth_bytes_per_s, device.peak("bf16")
(85520809984, 3350000000000.0, 989400000000000.0)
>>> device.facts["memory_bytes"].provenance, device.facts["peak_flops.fp8"].confidence
('measured', 'A')
"""

from __future__ import annotations

import dataclasses
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.device import BOUNDS, COMPUTE_FORMATS, GIVEN, Accelerator, Fact
from planner.errors import ContractError, InputError, UnknownName, UsageError, suggest
from planner.loading import parse_toml
from planner.units import parse_bytes, parse_count, parse_quantity

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Accelerator",
    "Fact",
    "accelerator",
    "accelerators",
    "fact_table",
    "find",
    "from_table",
    "names",
    "to_table",
]

FOLDER = "planner.presets.accelerators"
_WORDS = {
    "name": str,
    "title": str,
    "vendor": str,
    "launch_year": int,
    "aliases": list,
    "interconnect": str,
    "unified_memory": bool,
    "notes": list,
}
_SHARED = ("source", "confidence", "provenance")
"""What a table may state once for all of its figures."""
_FACT_WORDS = {"source": (str, list), "confidence": str, "provenance": str, "note": str}


@functools.cache
def names() -> tuple[str, ...]:
    """All accelerators that come with the planner, in alphabetical order."""
    found = (entry.name for entry in files(FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


def accelerator(name: str) -> Accelerator:
    """The accelerator of a name (``h100-sxm``), or of a TOML file of one's own.

    A file states the same keys as those of `presets/accelerators`; with ``base = "h100-sxm"`` it states only what
    differs. Raises `UnknownName`, or `InputError` with file, value and rule.
    """
    if name.strip().lower().endswith(".toml"):
        return _from_file(Path(name.strip()))
    found = find(name)
    if found is None:
        folded = _folded(name)
        several = [known for known in names() if known.startswith(f"{folded}-")] if folded else []
        if several:
            raise UsageError(f"accelerator {name!r:.60} may be {' or '.join(several)}; name one of them")
        raise UnknownName("accelerator", name[:_LONGEST], names())
    return _preset(found)


def find(name: str) -> str | None:
    """The preset that a name means, or None.

    >>> find("H100 SXM"), find("NVIDIA RTX 4090"), find("Trillium"), find("h101")
    ('h100-sxm', 'rtx-4090', 'tpu-v6e', None)
    """
    folded = _folded(name)
    return folded if folded in names() else _other_names().get(folded)


def accelerators(*, vendor: str | None = None, min_memory_bytes: float = 0) -> DataFrame:
    """A row for each accelerator: identity, memory, bandwidth, links, power, confidence and a column for each peak.

    Figures that are not known are NaN. `attrs["units"]` gives the unit of a column.
    """
    import pandas

    known = [_preset(name) for name in names()]
    if vendor is not None:
        vendors = {device.vendor for device in known}
        known = [device for device in known if device.vendor.casefold() == str(vendor).casefold()]
        if not known:
            raise UnknownName("vendor", str(vendor), vendors)
    rows = [_row(device) for device in known if device.memory_bytes >= min_memory_bytes]
    units = {name: unit for name, (unit, _, _) in BOUNDS.items() if name != "peak_flops"}
    peaks = {f"{format}_flops": "FLOP/s" for format in COMPUTE_FORMATS}
    columns = ["name", "title", "vendor", "launch_year", *units, *peaks, "unified_memory", "confidence"]
    frame = pandas.DataFrame(rows, columns=columns)
    frame.attrs["units"] = units | peaks
    return frame


def _row(device: Accelerator) -> dict[str, Any]:
    planned = ("memory_bytes", "bandwidth_bytes_per_s", *(f"peak_flops.{format}" for format in device.peak_flops))
    return {
        **{name: getattr(device, name) for name in ("name", "title", "vendor", "launch_year", "unified_memory")},
        **{name: getattr(device, name) for name in BOUNDS if name != "peak_flops"},
        **{f"{format}_flops": peak for format, peak in device.peak_flops.items()},
        "confidence": max(device.facts[name].confidence for name in planned),  # the letter of the weakest
    }


def fact_table(device: Accelerator) -> DataFrame:
    """A row for each figure of one device: value, unit, provenance, confidence, note, sparse peak and source."""
    import pandas

    rows = []
    for name, fact in device.facts.items():
        field, _, format = name.partition(".")
        value = getattr(device, field)
        rows.append(
            {
                "figure": name,
                "value": value[format] if format else value,
                "unit": BOUNDS[field][0],
                "provenance": fact.provenance,
                "confidence": fact.confidence,
                "sparse": fact.sparse,
                "note": fact.note or "",
                "source": fact.source,
            }
        )
    return pandas.DataFrame(rows)


_LONGEST = 100  # characters of a name that are looked at
_VENDORS = re.compile(r"^(nvidia|amd|intel|google|aws|apple|geforce|radeon)-(geforce-|radeon-)?")


def _folded(name: str) -> str:
    return _VENDORS.sub("", re.sub(r"[\s_]+", "-", name[: _LONGEST + 1].strip().casefold()))


@functools.cache
def _other_names() -> dict[str, str]:
    return {_folded(alias): name for name in names() for alias in _preset(name).aliases}


@functools.cache
def _preset(name: str) -> Accelerator:
    text = files(FOLDER).joinpath(f"{name}.toml").read_text("utf-8")
    return _built([(parse_toml(text, f"{name}.toml"), _sources())], f"{name}.toml")


def _from_file(path: Path) -> Accelerator:
    try:
        table = parse_toml(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    return from_table({"name": path.stem} | table, str(path))


def from_table(table: Mapping[str, Any], place: str) -> Accelerator:
    """An accelerator from the keys of a file of one's own. Raises `InputError` with place, value and rule."""
    table = {"source": place, "confidence": GIVEN, "provenance": GIVEN} | dict(table)
    base = table.pop("base", None)
    if "name" not in table:
        raise InputError(f"{place}: name is missing")
    if base is None:
        return _built([(table, {})], place)
    known = find(str(base))
    if known is None:
        near = suggest(str(base), names())
        raise InputError(f"{place}: base = {base!r:.60} is no accelerator of the catalogue{near}")
    text = files(FOLDER).joinpath(f"{known}.toml").read_text("utf-8")
    return _built([(parse_toml(text, f"{known}.toml"), _sources()), (table, {})], place)


def to_table(device: Accelerator) -> dict[str, Any]:
    """A device as the keys of a file, in full; `from_table` gives it back, figures of no stated source as given.

    What most of the figures share of source, confidence and provenance stands once, above them.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Accelerator)}
    facts = {
        name: {key: said for key, said in dataclasses.asdict(fact).items() if said is not None}
        for name, fact in device.facts.items()
    }
    shared = Counter(tuple(fact[key] for key in _SHARED) for fact in facts.values()).most_common(1)
    common = dict(zip(_SHARED, shared[0][0], strict=True)) if shared else {}

    def stated(name: str, value: Any) -> Any:
        own = {key: said for key, said in facts.get(name, {}).items() if common.get(key) != said}
        return {"value": value} | own if own else value

    own = {key: getattr(device, key) for key in _WORDS if getattr(device, key) != defaults[key]}
    words = {key: list(word) if isinstance(word, tuple) else word for key, word in own.items()}
    figures = {
        name: stated(name, getattr(device, name))
        for name in BOUNDS
        if name != "peak_flops" and (name in facts or getattr(device, name) != defaults[name])
    }
    peaks = {format: stated(f"peak_flops.{format}", peak) for format, peak in device.peak_flops.items()}
    return {**words, **common, **figures, "peak_flops": peaks}


def _built(layers: list[tuple[dict[str, Any], Mapping[str, str]]], source: str) -> Accelerator:
    """A device from tables laid over each other, the last on top."""
    words: dict[str, Any] = {}
    figures: dict[str, tuple[float, Fact]] = {}
    try:
        for table, titles in layers:
            words |= {key: _typed(key, table[key], _WORDS) for key in _WORDS if key in table}
            given = dict(_figures(table, titles))
            if "memory_bytes" in given:  # the number on the box belongs to it
                figures.pop("marketing_memory_bytes", None)
            figures |= given
        for key in ("memory_bytes", "bandwidth_bytes_per_s"):
            if key not in figures:
                raise ContractError(f"{key} is missing")
        return Accelerator(
            **{"title": words["name"], "vendor": ""} | words,
            **{name: value for name, (value, _) in figures.items() if "." not in name},  # type: ignore[arg-type]
            peak_flops={name.partition(".")[2]: value for name, (value, _) in figures.items() if "." in name},
            facts={name: fact for name, (_, fact) in figures.items()},
        )
    except ContractError as error:
        raise error.within(source) from None
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _figures(table: dict[str, Any], titles: Mapping[str, str]) -> Iterator[tuple[str, tuple[float, Fact]]]:
    """Each figure of a table in its base unit, with its fact; what a figure does not state its table states for all."""
    common = {key: word for key, word in table.items() if key in _SHARED}
    for key, entry in table.items():
        if key == "peak_flops":
            for format, peak in _typed(key, entry, {key: dict}).items():
                yield _figure(f"peak_flops.{format}", peak, common, titles)
        elif key in BOUNDS:
            yield _figure(key, entry, common, titles)
        elif key not in _WORDS and key not in common:
            raise ContractError(f"{key}: unknown key{suggest(key, [*_WORDS, *common, *BOUNDS])}")


def _figure(name: str, entry: Any, common: dict[str, Any], titles: Mapping[str, str]) -> tuple[str, tuple[float, Fact]]:
    said = common | (dict(entry) if isinstance(entry, dict) else {"value": entry})
    unit = BOUNDS[name.partition(".")[0]][0]
    value = _number(said.pop("value", None), unit, name)
    sparse = _number(said.pop("sparse"), unit, f"{name}: sparse") if "sparse" in said else None
    try:
        for key, word in said.items():
            _typed(key, word, _FACT_WORDS)
        sources = said.pop("source", "")
        keys = [sources] if isinstance(sources, str) else sources
        titled = "; ".join(titles.get(key, str(key)) for key in keys)
        return name, (value, Fact(**{"provenance": "datasheet", "confidence": ""} | said, source=titled, sparse=sparse))
    except ContractError as error:
        raise error.under(name) from None


def _typed(key: str, value: Any, types: Mapping[str, Any]) -> Any:
    """A value that TOML gave the type it should have; lists become tuples."""
    if key not in types:
        raise ContractError(f"{key}: unknown key{suggest(key, types)}")
    if not isinstance(value, types[key]) or (isinstance(value, bool) and types[key] is not bool):
        raise ContractError(f"{key} = {value!r:.60} has the wrong type")
    return tuple(map(str, value)) if isinstance(value, list) else value


def _number(value: Any, unit: str, place: str) -> float:
    if unit == "B":
        return parse_bytes(value, place)
    if place in ("domain_size", "machine_size"):
        return parse_count(value, place)
    return parse_quantity(value, "1" if unit == "W" else unit, place)


@functools.cache
def _sources() -> Mapping[str, str]:
    titles: dict[str, str] = tomllib.loads(
        files("planner.presets").joinpath("hardware_sources.toml").read_text("utf-8")
    )["sources"]
    return titles
