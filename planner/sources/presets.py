"""The models that come with the planner: `presets/models/*.toml`, found by name as people write it."""

from __future__ import annotations

import functools
import re
import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING

from planner.accounts import parameters
from planner.errors import UnknownName
from planner.sources.document import Loaded, read_document

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDER = "planner.presets.models"
_LONGEST = 100  # characters of a name that are looked at


@functools.cache
def names() -> tuple[str, ...]:
    """All presets, in alphabetical order."""
    found = (entry.name for entry in files(FOLDER).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


@functools.cache
def load_preset(name: str) -> Loaded:
    """The preset of that name, with its published figures and sources. Raises `UnknownName` with the nearest name."""
    found = find(name)
    if found is None:
        raise unknown(name)
    return read_document(_text(found), f"{found}.toml")


def find(name: str) -> str | None:
    """The preset that a name means, or None.

    >>> find("Llama-3.1-8B"), find("meta-llama/Llama-3.1-8B"), find("llama 3.1 8b"), find("llama-9")
    ('llama-3.1-8b', 'llama-3.1-8b', 'llama-3.1-8b', None)
    """
    folded = _folded(name)
    return folded if folded in names() else _other_names().get(folded)


def unknown(name: str, remedy: str = "") -> UnknownName:
    """The error for a text that is neither a preset nor a place; `remedy` ends its sentence."""
    error = UnknownName("model or path", name[:_LONGEST], names())
    error.args = (f"{error}{remedy}",)
    return error


def catalogue() -> DataFrame:
    """One row for each preset: name, family, hub name, layers, width, vocabulary, parameters, active parameters."""
    import pandas

    rows = []
    for name in names():
        loaded = load_preset(name)
        model = loaded.architecture
        rows.append(
            {
                "name": name,
                "family": loaded.family,
                "hub": loaded.hub,
                "n_layers": model.n_layers,
                "d_model": model.d_model,
                "vocab_size": model.vocab_size,
                "parameters": parameters(model),
                "active_parameters": parameters(model, active=True),
            }
        )
    return pandas.DataFrame(rows)


@functools.cache
def _other_names() -> dict[str, str]:
    """Hub name, with and without the organisation, and aliases -> preset."""
    found: dict[str, str] = {}
    for name in names():
        # The plain keys stand before the first blank line and are TOML by themselves: a tenth of the time of the whole.
        head = tomllib.loads(_text(name).partition("\n\n")[0])
        for other in filter(None, [head.get("hub"), *head.get("aliases", ())]):
            found[_folded(other)] = found[_folded(other.rpartition("/")[2])] = name
    return found


def _text(name: str) -> str:
    return files(FOLDER).joinpath(f"{name}.toml").read_text("utf-8")


def _folded(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name[: _LONGEST + 1].strip().casefold())
