"""Where an Architecture comes from: a preset's name, a file or folder, or a table with the keys of a config.json.

A text that names a preset means the preset, whatever lies in the current folder; a folder of that name is ./gpt2.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import planner.sources.families  # noqa: F401  (makes every model_type known)
from planner.contract import Architecture
from planner.errors import InputError, PlannerError
from planner.loading import MAX_BYTES
from planner.sources import presets
from planner.sources.config_json import Reading, parse_json, read_config
from planner.sources.document import Loaded, read_document
from planner.sources.quantization import read_quantization
from planner.spec import shown
from planner.storage import weight_format

SUFFIXES = (".toml", ".json")
MAX_PLACE = 200  # characters of a path in an error: its end says more than its beginning

__all__ = ["Loaded", "load", "read", "read_text"]


def load(what: str | os.PathLike[str] | Mapping[str, Any] | Architecture) -> Architecture:
    """The contract of a decoder: by preset name, from a TOML file, a config.json, a folder with one, or its table.

    >>> import planner
    >>> planner.load("meta-llama/Llama-3.1-8B") == planner.load("llama-3.1-8b")
    True
    """
    return read(what).architecture


def read(what: str | os.PathLike[str] | Mapping[str, Any] | Architecture) -> Loaded:
    """What `load` gives, with published figures, sources, and notes such as the keys that were not understood."""
    if isinstance(what, Architecture):
        return Loaded(architecture=what)
    if isinstance(what, Mapping):
        return _of_config(read_config(dict(what), "config"), "config")
    if isinstance(what, os.PathLike):
        return _read_path(Path(what))
    if not isinstance(what, str):
        raise InputError(f"{shown(what)} is neither a model's name nor a path, a config or an Architecture")
    is_place = ("/" in what or os.sep in what) and os.path.exists(what)
    name = None if is_place else presets.find(what)
    if name is not None:
        return presets.load_preset(name)
    if not os.path.exists(what) and not what.lower().endswith(SUFFIXES):
        raise presets.unknown(what)
    return _read_path(Path(what))


def read_text(text: str, source: str) -> Loaded:
    """A contract's TOML or a config.json, told apart by the brace that only JSON begins with."""
    if text.removeprefix("\ufeff").lstrip()[:1] == "{":
        return _of_config(read_config(parse_json(text, source), source), source)
    return read_document(text.removeprefix("\ufeff"), source)


def _read_path(path: Path) -> Loaded:
    """A file by its ending, or a folder by its config.json; readers of checkpoint headers belong here."""
    place = "".join(c if c.isprintable() else "?" for c in os.fspath(path)[-MAX_PLACE:])
    if os.path.isdir(path):
        if not os.path.isfile(path / "config.json"):
            raise InputError(f"{place}: a folder without a config.json")
        path, place = path / "config.json", f"{place}/config.json"
    text = _text(path, place)
    if path.suffix.lower() != ".json":
        return read_text(text, place)
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    return _of_config(read_config(parse_json(text, place), place, name or None), place)


def _text(path: Path, place: str) -> str:
    """A file's text. Raises `InputError` for what is no file, cannot be read, is too large or is not text."""
    try:
        if not os.path.isfile(path):
            raise InputError(f"{place}: {'not a regular file' if os.path.exists(path) else 'no such file'}")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{place}: {size:,} bytes are more than a contract has (at most {MAX_BYTES:,})")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{place}: not text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _of_config(reading: Reading, source: str) -> Loaded:
    keys = ", ".join(reading.unknown_keys)
    unread = (f"{source}: keys that are not understood and were left out: {keys:.400}",) if keys else ()
    weights, remarks = _weights(reading, source)
    architecture = dataclasses.replace(reading.architecture, weights=weights)
    return Loaded(architecture=architecture, notes=(*reading.notes, *unread, *remarks))


def _weights(reading: Reading, source: str) -> tuple[str, tuple[str, ...]]:
    """The storage format that a `quantization_config` describes, by name, and what the name does not say."""
    architecture, place = reading.architecture, f"{source}: quantization_config"
    if reading.quantization is None:
        return architecture.weights, ()
    layers: Counter[str] = Counter()
    for part in architecture.parts():
        layers.update(dict.fromkeys({tensor.role for tensor in part.bill.tensors}, part.count))
    try:
        scheme = read_quantization(reading.quantization, layers, architecture.weights, place)
        named = weight_format(scheme.name)
    except PlannerError as error:
        return architecture.weights, (f"{error}; weights are counted in {architecture.weights}",)
    exact = dict(named.by_role) == dict(scheme.by_role)
    differing = f"{place}: quantises other modules than weights = {scheme.name!r} stands for, which is counted"
    return scheme.name, (*scheme.notes, *(() if exact else (differing,)))
