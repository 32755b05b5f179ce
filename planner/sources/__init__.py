"""Where an Architecture comes from: a preset's name, a file or folder, the hub, or a table with a config.json's keys.

A text that names a preset means the preset, whatever lies in the current folder; a folder of that name is ./gpt2. What
is neither is looked for in the cache of the Hugging Face hub and, where that is allowed, on the hub itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from planner.contract import Architecture
from planner.errors import InputError, PlannerError
from planner.loading import MAX_BYTES
from planner.sources import gguf_config, hub, presets
from planner.sources.checkpoint import ENDINGS, Checkpoint, is_checkpoint, is_gguf, read_checkpoint
from planner.sources.config_json import Reading, parse_json, read_config
from planner.sources.document import Loaded, read_document
from planner.sources.quantization import read_quantization
from planner.spec import shown

SUFFIXES = (".toml", ".json", *ENDINGS)
MAX_PLACE = 200  # characters of a path in an error: its end says more than its beginning

__all__ = ["Checkpoint", "Loaded", "load", "read", "read_headers", "read_text"]

What = str | os.PathLike[str] | Mapping[str, Any] | Architecture


def load(what: What, *, online: bool = False) -> Architecture:
    """The contract of a decoder: by preset name, from a TOML file, a config.json, a checkpoint, a table, or the hub.

    The hub's cache on this machine is looked at for ``org/name``; `online` allows to ask the hub itself.

    >>> import planner
    >>> planner.load("meta-llama/Llama-3.1-8B") == planner.load("llama-3.1-8b")
    True
    """
    return read(what, online=online).architecture


def read(what: What, *, online: bool = False) -> Loaded:
    """What `load` gives, with published figures, sources, and notes such as the keys that were not understood."""
    if isinstance(what, Architecture):
        return Loaded(architecture=what)
    if isinstance(what, Mapping):
        return _of_config(read_config(dict(what), "config"), "config")
    path = _path(what)
    if path is not None:
        return _read_path(path)
    name = str(what)
    preset = presets.find(name)
    if preset is not None:
        return presets.load_preset(preset)
    if not hub.is_name(name):
        raise presets.unknown(name)
    folder = hub.cached(name)
    if folder is not None and (os.path.isfile(folder / hub.CONFIG) or is_checkpoint(folder)):
        return _read_path(folder, name)
    if hub.allowed(online):
        return _of_hub(name)
    raise presets.unknown(name, f"; it is not in the hub's cache, --online or {hub.PERMISSION}=1 asks the hub")


def read_headers(what: What, *, online: bool = False) -> tuple[Checkpoint, Loaded | None, str] | None:
    """The headers of a checkpoint, the contract beside it, or why there is none; None for what is no checkpoint.

    With `online` the headers of a model on the hub, even if there is a preset of it.
    """
    if isinstance(what, (Mapping, Architecture)):
        return None
    path, name = _path(what), str(what)
    if path is None and online and hub.is_name(name):
        return hub.fetch_checkpoint(name), *_or_why_not(lambda: _of_hub(name))
    cached = path is None and hub.is_name(name) and presets.find(name) is None
    if cached:
        path = hub.cached(name)
    if path is None or not is_checkpoint(path):
        return None
    checkpoint, called = read_checkpoint(path), name if cached else None
    if checkpoint.metadata:
        return checkpoint, *_or_why_not(lambda: _of_gguf(checkpoint, path, called))
    return checkpoint, *_or_why_not(lambda: _read_path(path, called))


def _or_why_not(reader: Callable[[], Loaded]) -> tuple[Loaded | None, str]:
    try:
        return reader(), ""
    except PlannerError as error:
        return None, str(error)


def _path(what: Any) -> Path | None:
    """The path that is meant, or None for the name of a preset or of a model on the hub."""
    if isinstance(what, os.PathLike):
        return Path(what)
    if not isinstance(what, str):
        raise InputError(f"{shown(what)} is neither a model's name nor a path, a config or an Architecture")
    if ("/" in what or os.sep in what) and os.path.exists(what):
        return Path(what)
    if presets.find(what) is None and (os.path.exists(what) or what.lower().endswith(SUFFIXES)):
        return Path(what)
    return None


def read_text(text: str, source: str) -> Loaded:
    """A contract's TOML or a config.json, told apart by the brace that only JSON begins with."""
    if text.removeprefix("\ufeff").lstrip()[:1] == "{":
        return _of_config(read_config(parse_json(text, source), source), source)
    return read_document(text.removeprefix("\ufeff"), source)


def _read_path(path: Path, name: str | None = None) -> Loaded:
    """A file by its ending, a folder by its config.json, weights by the config.json beside them, GGUF by itself.

    A folder whose weights are GGUF files is that GGUF, whatever its config.json says: of how they are stored it says
    nothing, and often no more than the model_type. `name` is what the contract is called, if not as the file or folder.
    """
    folder = path if os.path.isdir(path) else path.parent
    beside = folder / hub.CONFIG
    if (path == folder or is_checkpoint(path)) and not is_gguf(path) and os.path.isfile(beside):
        return _of_file(beside, name)
    if is_checkpoint(path):
        checkpoint = read_checkpoint(path)
        if checkpoint.metadata:
            return _of_gguf(checkpoint, path, name)
        rule = "a checkpoint's header says nothing of heads, masks and positions"
        raise InputError(f"{_place(path)}: {rule}; put its config.json beside it (planner show lists its tensors)")
    if path == folder:
        raise InputError(f"{_place(path)}: a folder without a config.json")
    return _of_file(path, name)


def _of_file(path: Path, name: str | None) -> Loaded:
    place = _place(path)
    text = _text(path, place)
    if path.suffix.lower() != ".json":
        return read_text(text, place)
    own = path.parent.resolve().name if path.name == hub.CONFIG else path.stem
    reading = read_config(parse_json(text, place), place, (name or own) or None)
    beside = path.with_name(hub.QUANTIZATION)
    if path.name == hub.CONFIG and reading.quantization is None and os.path.isfile(beside):
        return _of_modelopt(reading, place, _text(beside, _place(beside)), _place(beside))
    return _of_config(reading, place)


def _place(path: Path) -> str:
    return "".join(c if c.isprintable() else "?" for c in os.fspath(path)[-MAX_PLACE:])


def _of_hub(name: str) -> Loaded:
    place, beside = f"{name}/{hub.CONFIG}", f"{name}/{hub.QUANTIZATION}"
    reading = read_config(parse_json(hub.fetch_text(name, hub.CONFIG), place), place, name)
    if reading.quantization is None:
        with contextlib.suppress(hub.Absent):
            return _of_modelopt(reading, place, hub.fetch_text(name, hub.QUANTIZATION), beside)
    return _of_config(reading, place)


def _of_modelopt(reading: Reading, place: str, text: str, beside: str) -> Loaded:
    """A config whose weights are quantised as the file beside it says."""
    return _of_config(dataclasses.replace(reading, quantization=parse_json(text, beside)), place, beside)


def _of_gguf(checkpoint: Checkpoint, path: Path, name: str | None) -> Loaded:
    """The contract of a GGUF file's metadata, called `name`, or as the file or the folder is."""
    config, notes = gguf_config.gguf_config(checkpoint)
    own = path.resolve().name.removesuffix(".gguf")
    name = name or re.sub(r"-\d{5}-of-\d{5}$", "", own) or None
    loaded = _of_config(read_config(config, checkpoint.place, name), checkpoint.place)
    weights, stored = gguf_config.gguf_weights(checkpoint)
    architecture = dataclasses.replace(loaded.architecture, weights=weights)
    return dataclasses.replace(loaded, architecture=architecture, notes=(*loaded.notes, *notes, stored))


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


def _of_config(reading: Reading, source: str, quantised_by: str | None = None) -> Loaded:
    keys = ", ".join(reading.unknown_keys)
    unread = (f"{source}: keys that are not understood and were left out: {keys:.400}",) if keys else ()
    weights, remarks = _weights(reading, quantised_by or f"{source}: quantization_config")
    architecture = dataclasses.replace(reading.architecture, weights=weights)
    return Loaded(architecture=architecture, notes=(*reading.notes, *unread, *remarks))


def _weights(reading: Reading, place: str) -> tuple[str, tuple[str, ...]]:
    """The storage format that a `quantization_config` describes, by name, and what the name does not say."""
    architecture = reading.architecture
    if reading.quantization is None:
        return architecture.weights, ()
    layers: Counter[str] = Counter()
    for part in (part for part in architecture.parts() if part.module == "body"):
        layers.update(dict.fromkeys({tensor.role for tensor in part.bill.tensors}, part.count))
    try:
        scheme = read_quantization(reading.quantization, layers, architecture.weights, place)
    except PlannerError as error:
        return architecture.weights, (f"{error}; weights are counted in {architecture.weights}",)
    return scheme.name, scheme.notes
