"""A published config.json -> Architecture: strict, every key accounted for, an unknown family refused by name.

A family is a function under `families` that reads its own keys; here are the text, the choice of the family, the
language part of a multimodal config, and what every family has.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.resources import files
from typing import Any

from planner.contract import Architecture
from planner.errors import ContractError, InputError, UnknownName, suggest
from planner.sources.config_table import Config, is_number
from planner.spec import shown

__all__ = ["Config", "Reading", "families", "family", "parse_json", "read_config"]

MAX_CHARACTERS = 4_000_000
MAX_DEPTH = 60
MAX_KEYS = 500_000  # a checkpoint of mixed formats names each matrix of each expert: 120,000 values and more

Reader = Callable[[Config], Architecture]
_registered: dict[str, Reader] = {}

TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "text_model_config")
_FOR_ALL_PARTS = "tie_word_embeddings torch_dtype dtype quantization_config compression_config quantization".split()
_IDS = ("_token_id", "_token_index", "_token_ids")
_OTHER_PARTS = ("vision", "audio", "vit", "visual", "talker", "code2wav", "img", "token2wav")


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """What a config gave: the contract, keys that were not understood, remarks, and how its weights are quantised."""

    architecture: Architecture
    unknown_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    quantization: dict[str, Any] | None = None


def family(*model_types: str) -> Callable[[Reader], Reader]:
    """Register the function that reads configs of these model types."""

    def register(function: Reader) -> Reader:
        _registered.update(dict.fromkeys(model_types, function))
        return function

    return register


def families() -> Mapping[str, Reader]:
    """model_type -> the function that reads its config. Whoever reads no config need not wait for all of them."""
    import_module("planner.sources.families")
    return _registered


def parse_json(text: str, source: str) -> dict[str, Any]:
    """The table of a config.json text. Raises `InputError` with one sentence for anything else."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"{source}: {len(text):,} characters are more than a config.json has (at most {MAX_CHARACTERS:,})"
        )

    def constant(name: str) -> float:
        if name == "Infinity":  # files of state spaces end time_step_limit so; a key that is read refuses it
            return math.inf
        raise InputError(f"{source}: {name} is no JSON; write a finite number or null")

    def finite(digits: str) -> float:
        number = float(digits)
        if not is_number(number):
            raise InputError(f"{source}: {shown(digits)} is beyond every number that a config.json can hold")
        return number

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table and table[key] != value:
                raise InputError(f"{source}: {shown(key)} stands twice with different values")
            table[key] = value
        return table

    try:
        table = json.loads(
            text.removeprefix("\ufeff"), parse_constant=constant, parse_float=finite, object_pairs_hook=once
        )
    except json.JSONDecodeError as error:
        hint = "; JSON has no comments" if _begins_comment(text, error.pos) else ""
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{source}: not valid JSON: {error.msg} at {place}{hint}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{source}: not valid JSON: nested too deeply, or a number too long") from None
    if not isinstance(table, dict):
        raise InputError(f"{source}: a config.json holds a table, not {shown(table)}")
    return table


def _begins_comment(text: str, position: int) -> bool:
    return text.removeprefix("\ufeff")[position:].lstrip().startswith(("//", "/*", "#"))


def read_config(table: dict[str, Any], source: str, name: str | None = None) -> Reading:
    """An Architecture from the keys of a config.json.

    Raises `UnknownName` for a model_type that is not known, `ContractError` for values that are missing, of the wrong
    type, or contradict each other.
    """
    _check_depth(table, source)
    config, notes = _language_part(table, source)
    reader = families()[config.model_type]
    for key in ("is_encoder_decoder", "add_cross_attention"):
        config.fixed(key, to=False)
    try:
        architecture = reader(config)
    except ContractError as error:
        raise error.within(error.source or source) from None
    except RecursionError:
        raise InputError(f"{source}: nested too deeply") from None
    if name is not None:
        architecture = dataclasses.replace(architecture, name=name)
    if not architecture.output.tied:
        notes += _without_output(table, source)
    quantization = config.table_of("quantization_config") or config.table_of("compression_config")  # its older name
    if isinstance(config.table.get("quantization"), dict):  # MLX's own key, which it reads first
        quantization = config.table_of("quantization")
    elif quantization and (experts := config.table.get("expert_dtype")):  # DeepSeek-V4 says it beside the table
        quantization = {"expert_dtype": experts, **quantization}
    return Reading(architecture, config.unknown_keys(), (*notes, *config.notes), quantization)


def _without_output(table: dict[str, Any], source: str) -> list[str]:
    """A remark on checkpoints of embedders, classifiers and reward models, which have no output matrix."""
    names = table.get("architectures")
    return [
        f"{source}: {shown(name)} has no output matrix; counted is the decoder, which has one"
        for name in (names if isinstance(names, list) else ())
        if isinstance(name, str) and re.search(r"Classification$|Reward|(?<!LMHead)(?<!Chat)Model$", name)
    ]


def _language_part(table: dict[str, Any], source: str) -> tuple[Config, list[str]]:
    """The keys of the language model, and remarks on the parts of a multimodal config that are left out."""
    model_type = table.get("model_type")
    nested = next((key for key in TEXT_PARTS if isinstance(table.get(key), dict)), None)
    if nested is None or (isinstance(model_type, str) and model_type in families() and nested != "text_config"):
        if model_type is None:
            raise ContractError("model_type is missing; it says which family the other keys belong to", source=source)
        if not isinstance(model_type, str) or model_type not in families():
            raise unknown_family(model_type, source)
        config = Config(table, source)
        return config, _left_out(config, _OTHER_PARTS)
    inner = dict(table[nested])
    inner.update((key, table[key]) for key in _FOR_ALL_PARTS if key in table and inner.get(key) is None)
    if "model_type" not in inner and isinstance(model_type, str) and f"{model_type}_text" in families():
        inner["model_type"] = f"{model_type}_text"
    config, notes = _language_part(inner, f"{source}: {nested}")
    for key, value in _class_sizes().get(config.model_type, {}).items():
        if key not in config.table:
            config.assume(key, value)
    outer = Config(table, source)
    outer.ignore(nested, *_FOR_ALL_PARTS, *inner)  # files of old repeat the keys of the text part beside it
    notes += _left_out(outer, ("",))
    if keys := ", ".join(outer.unknown_keys()):
        config.note(f"{source}: keys beside {nested} that are not understood and were left out: {keys:.400}")
    return config, notes


@functools.cache
def _class_sizes() -> dict[str, dict[str, int]]:
    """Each family's own sizes: frameworks write a nested part without the keys that have its class's values."""
    return tomllib.loads(files("planner.presets").joinpath("class_sizes.toml").read_text(encoding="utf-8"))


def _left_out(config: Config, begins: tuple[str, ...]) -> list[str]:
    """Tick off the tables of vision and audio parts, by how their names begin, and ids; one remark for each part."""
    config.ignore(*(key for key in config.table if key.endswith(_IDS)))
    parts = sorted(
        key
        for key, value in config.table.items()
        if key.endswith("_config") and key.startswith(begins) and isinstance(value, (dict, type(None)))
    )
    others = [part for part in parts if part not in config.used and config.table[part]]
    config.ignore(*parts)
    return [f"{config.source}: {part} is left out; only the language model is read" for part in others]


def _check_depth(table: Any, source: str) -> None:
    """Refuse what is nested deeper, or longer, than any config: everything below may then walk it freely."""
    level, depth, seen = [table], 0, 0
    while level:
        if depth > MAX_DEPTH:
            raise InputError(f"{source}: nested more than {MAX_DEPTH} levels deep")
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if not all(isinstance(key, str) for key in value):
                    raise InputError(f"{source}: a key is not a text")
                inner += value.values()
            elif isinstance(value, (list, tuple)):
                inner += value
        seen += len(inner)
        if seen > MAX_KEYS:
            raise InputError(f"{source}: more than {MAX_KEYS:,} values are more than a config has")
        level = [value for value in inner if isinstance(value, (dict, list, tuple))]
        depth += 1


def unknown_family(model_type: Any, source: str) -> UnknownName:
    """The error for a family that is not built, with those that are."""
    known = ", ".join(sorted(families()))
    error = UnknownName("model_type", shown(model_type), ())
    near = suggest(model_type, families()) if isinstance(model_type, str) else ""
    error.args = (
        f"{source}: model_type {shown(model_type)} is not known{near}; known are {known}; "
        "describe any other decoder in TOML (planner contract NAME shows one)",
    )
    return error
