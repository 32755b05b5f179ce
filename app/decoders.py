"""The decoders of a session: each a preset and what differs from it, as a text short enough to stand in a link.

``mha`` is a preset, ``mha{"layers[0].mixer.n_kv_heads":8}`` the same with a field edited. Only the names of presets are
resolved: a path or an address is an unknown name, and no file that a user names is ever opened.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from planner.contract import Architecture
from planner.editing import edit
from planner.errors import InputError, PlannerError
from planner.loading import to_table
from planner.sources import presets, read_text
from planner.spec import Spec, field_names, shown

LONGEST_TOKEN = 100_000  # characters of a decoder that a session holds
LONGEST_LINK = 1_500  # characters of a decoder that stands in a link
LONGEST_LABEL = 60


@functools.lru_cache(maxsize=256)
def contract(token: str) -> Architecture:
    """The contract that a token means. Raises `PlannerError` with one sentence for whatever is wrong with it."""
    name, edits = split(token)
    return edit(preset(name), edits)


def preset(name: str) -> Architecture:
    """A preset by any of its names. Raises `UnknownName`."""
    found = presets.find(name[:100])
    if found is None:
        raise presets.unknown(name)
    return presets.load_preset(found).architecture


def split(token: str) -> tuple[str, dict[str, Any]]:
    """The preset's name and the edits, path -> value."""
    name, brace, rest = token.partition("{")
    if not brace:
        return name, {}
    if len(token) > LONGEST_TOKEN:
        raise InputError(f"a decoder of {len(token):,} characters; at most {LONGEST_TOKEN:,} are read")
    try:
        edits = json.loads(brace + rest)
    except (ValueError, RecursionError):
        raise InputError(
            f'{shown(token)} is not a preset followed by its edits, such as mqa{{"d_model":2048}}'
        ) from None
    return name, edits


def join(name: str, edits: dict[str, Any]) -> str:
    """The token of a preset and its edits."""
    return name + (json.dumps(edits, separators=(",", ":"), ensure_ascii=False) if edits else "")


def changed(token: str, edits: dict[str, Any]) -> str:
    """The token with fields edited by path; edits that break a rule are kept as they are, for the user to mend."""
    name, before = split(token)
    pending = join(name, {**before, **edits})
    try:
        return token_of(name, edit(best(token), edits))
    except PlannerError:
        pass
    try:
        return token_of(name, contract(pending))
    except PlannerError:
        return pending


def best(token: str) -> Architecture:
    """The contract with those edits that hold; the whole one where all do."""
    try:
        return contract(token)
    except PlannerError:
        name, edits = split(token)
    architecture = preset(name)
    for path, value in edits.items():
        try:
            architecture = edit(architecture, {path: value})
        except PlannerError:
            continue
    return architecture


def token_of(name: str, architecture: Architecture) -> str:
    """The token of a contract as its differences from a preset."""
    return join(name, dict(_differences(preset(name), architecture)))


def read(text: str, source: str) -> tuple[str, tuple[str, ...]]:
    """The token of a pasted or uploaded config.json or contract, from the nearest preset, and its reader's notes."""
    loaded = read_text(text, source)
    tokens = [token_of(name, loaded.architecture) for name in presets.names()]
    token = min(tokens, key=len)
    if contract(token) != loaded.architecture:
        raise InputError(f"{source}: cannot be told as differences from a preset")
    return token, loaded.notes


def labels(tokens: list[str]) -> dict[str, str]:
    """Token -> the name under which it is shown: each a different one."""
    found: dict[str, str] = {}
    for token in tokens:
        name, edits = split(token)
        try:
            own = best(token).name
        except PlannerError:
            own = name
        own = " ".join(own.split())[:LONGEST_LABEL]
        text = f"{own} (edited)" if edits and own == name else own
        number, unique = 2, text
        while unique in found.values():
            unique, number = f"{text} {number}", number + 1
        found[token] = unique
    return found


def _differences(a: Spec, b: Spec, path: str = "") -> Any:
    """(path, plain value) of the smallest parts that differ; whole parts where their kinds or numbers do."""
    for name in field_names(type(a)):
        left, right, place = getattr(a, name), getattr(b, name), f"{path}.{name}" if path else name
        if left == right:
            continue
        if isinstance(left, Spec) and type(left) is type(right):
            yield from _differences(left, right, place)
        elif _alike(left, right):
            for index, (before, after) in enumerate(zip(left, right, strict=True)):
                yield from _differences(before, after, f"{place}[{index}]")
        else:
            yield place, _plain(right)


def _alike(left: Any, right: Any) -> bool:
    """Whether two fields list parts of the same kinds."""
    lists = isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right) > 0
    return lists and all(isinstance(a, Spec) and type(a) is type(b) for a, b in zip(left, right, strict=True))


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return to_table(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
