"""A decoder whose numbers are cells: its contract with a word in the place of each number that its figures follow from.

A number that the program decides by (a switch that is 0, a width that is compared) cannot be a word; it keeps its
value. Words are the names of the cells, such as ``llama_3_1_8b_n_heads``.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any

from planner import folds
from planner.arithmetic import Value, Written, word, words
from planner.bill import Tensor
from planner.contract import Architecture
from planner.editing import edit, flatten
from planner.errors import PlannerError
from planner.storage import weight_format

LONGEST = 60  # characters of a model's name in the name of a cell
APART = ("trained_positions", "max_positions", "mtp.")
"""Numbers that no figure of the body follows from."""


@dataclass(frozen=True)
class Field:
    """A number of a contract: the paths where it stands, the name of its cell, and its value."""

    paths: tuple[str, ...]
    name: str
    value: int

    @property
    def path(self) -> str:
        """The paths as one: ``layers[*].mixer.n_heads`` where several layers have it."""
        return self.paths[0] if len(self.paths) == 1 else re.sub(r"\[\d+\]", "[*]", self.paths[0], count=1)

    def changes(self, value: Any) -> dict[str, Any]:
        """What `edit` takes to put another value in all its places."""
        return dict.fromkeys(self.paths, value)


@dataclass(frozen=True)
class TensorRow:
    """A stored tensor of a subject, in numbers and in words, with how many layers store it."""

    path: str
    stated: Tensor
    live: Tensor
    count: Value

    def bytes(self, weights: str) -> Value:
        """Bytes in a format; which one a tensor of its shape gets is decided by the numbers of the contract."""
        chosen = weight_format(weights).format_of(self.stated.role, self.stated.shape)
        return self.count * self.live.copies * chosen.stored_bytes(self.live.shape)


@dataclass(frozen=True)
class Subject:
    """A decoder in numbers and, as `live`, in words, which begin with `prefix`; no word stands for those of `fixed`."""

    prefix: str
    architecture: Architecture
    live: Architecture
    fields: tuple[Field, ...]
    fixed: tuple[Field, ...]

    @property
    def name(self) -> str:
        """Its name in lists and tables."""
        return self.architecture.name

    @property
    def check(self) -> str:
        """The name of the cell that says whether its cells hold what they may."""
        return f"{self.prefix}_check"

    @property
    def values(self) -> dict[str, int]:
        """Cell name -> number."""
        return {field.name: field.value for field in self.fields}

    @cached_property
    def tensors(self) -> list[TensorRow]:
        """Every stored tensor of the body."""
        pairs = zip(folds.tensors(self.architecture.parts()), folds.tensors(self.live.parts()), strict=True)
        rows = []
        for (part, _, stated), (_, count, live) in pairs:
            path = stated.id.lstrip("/") if stated.shared else f"{part.path}.{stated.id}".lstrip(".")
            rows.append(TensorRow(path, stated, live, count))
        return rows


def subject(
    architecture: Architecture, attempt: Callable[[Architecture], Any] | None = None, prefix: str | None = None
) -> Subject:
    """A decoder with as many of its numbers in words as can be recorded; `attempt` records more than its bill.

    Words begin with `prefix`, or with the decoder's name.
    """
    prefix = prefix or slug(architecture.name)
    candidates = list(_candidates(architecture, prefix))

    def recorded(chosen: Iterable[Field]) -> Architecture:
        changes = {path: word(field.name) for field in chosen for path in field.paths}
        live = edit(architecture, changes)
        live.parts()
        if attempt is not None:
            attempt(live)
        return live

    ordered = architecture.pattern is not None  # which says how many layers of a kind there are, too
    kept = _recordable([field for field in candidates if not (ordered and field.path.endswith("count"))], recorded)
    used = {name for part in recorded(kept).parts() for name in words_of(part)}
    if architecture.stated_parameters is not None:
        used |= {field.name for field in kept if field.paths == ("stated_parameters",)}
    fixed = [field for field in candidates if field not in kept]
    kept = [field for field in kept if field.name in used]
    return Subject(prefix, architecture, recorded(kept), tuple(kept), tuple(fixed))


def words_of(item: Any) -> Iterator[str]:
    """Every word in a formula, or in the fields of records and lists that hold formulas."""
    if isinstance(item, Written):
        yield from words(item)
    elif isinstance(item, (tuple, list, Mapping)):
        for inner in item.values() if isinstance(item, Mapping) else item:
            yield from words_of(inner)
    elif is_dataclass(item):
        for field in fields(item):
            yield from words_of(getattr(item, field.name))


def numbers_of(live: Architecture, stated: Architecture) -> dict[str, int]:
    """Cell name -> number, of every word in a contract."""
    numbers = dict(flatten(stated))
    return {value.args[0]: numbers[path] for path, value in flatten(live) if isinstance(value, Written)}


def slug(text: str) -> str:
    """A text as part of the name of a cell.

    >>> slug("Llama-3.1-8B"), slug("7b")
    ('llama_3_1_8b', 'm7b')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:LONGEST]
    return plain if plain[:1].isalpha() else f"m{plain}"


def _recordable(candidates: list[Field], attempt: Callable[[list[Field]], Any]) -> list[Field]:
    """As many of the candidates as an attempt takes together, in their order."""

    def works(chosen: list[Field]) -> bool:
        try:
            attempt(chosen)
        except (TypeError, PlannerError):
            return False
        return True

    if works(candidates):
        return candidates
    kept: list[Field] = []
    for one in candidates:
        if works([*kept, one]):
            kept.append(one)
    return kept


def _candidates(architecture: Architecture, prefix: str) -> Iterator[Field]:
    """Positive whole numbers; layers that have the same one share its cell, but for how many layers there are."""
    alike: defaultdict[tuple[Any, ...], list[str]] = defaultdict(list)
    values: dict[str, int] = {}
    for path, value in flatten(architecture):
        if type(value) is int and value >= 1 and not path.startswith(APART):
            inside = path.partition("].")[2] if path.startswith("layers[") else ""
            alike[(inside, value) if inside and inside != "count" else (path,)].append(path)
            values[path] = value
    leaves = Counter(paths[0].rpartition(".")[2] for paths in alike.values())
    for paths in alike.values():
        leaf = paths[0].rpartition(".")[2]
        name = slug(leaf if leaves[leaf] == 1 else paths[0])
        yield Field(tuple(paths), f"{prefix}_{name}", values[paths[0]])
