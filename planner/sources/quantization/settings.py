"""What the readers of quantisation methods share: settings read strictly, and what a method says of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError, UnknownName
from planner.spec import shown
from planner.storage import StorageFormat, find, roles_of

Table = Mapping[str, Any]
Modules = dict[str, StorageFormat | None]

_KINDS: dict[type, str] = {int: "a whole number", bool: "true or false", str: "a text", list: "a list", dict: "a table"}


@dataclass(frozen=True, slots=True)
class Quantised:
    """What a method says: the format of each role, and of modules that it names; None for one that it leaves out.

    `unsaid` is a role that is quantised or not by a rule which no config tells.
    """

    by_role: dict[str, StorageFormat]
    modules: Modules = field(default_factory=dict)
    unsaid: str | None = None


class Settings:
    """The keys of one method, each read as what it must be."""

    def __init__(self, table: Table, place: str) -> None:
        self.table = table
        self.place = place

    def get(self, *names: str, kind: type, default: Any = None) -> Any:
        """The value of the first of these keys that is there and not null, of one type exactly."""
        name, value = next(((n, self.table[n]) for n in names if self.table.get(n) is not None), (names[0], default))
        if value is not None and type(value) is not kind:
            raise self.refuse(f"{name} = {shown(value)} is not {_KINDS[kind]}")
        return value

    def nested(self, name: str) -> Settings:
        """The settings of an inner table, none where it is not there."""
        return Settings(self.get(name, kind=dict, default={}), self.place)

    def inner(self, value: Any, what: str) -> Settings:
        """The settings of a table that is a value of some other key."""
        if not isinstance(value, dict):
            raise self.refuse(f"{what} = {shown(value)} is not a table")
        return Settings(value, self.place)

    def over(self, value: Any, what: str) -> Settings:
        """The settings with those of a table in their place."""
        return Settings({**self.table, **self.inner(value, what).table}, self.place)

    def refuse(self, rule: str) -> InputError:
        """The error that says at which place a rule is broken, to be raised."""
        return InputError(f"{self.place}: {rule}; state a weight format instead")

    def format(self, name: str, words: str) -> StorageFormat:
        """The storage format of that name. Raises `InputError` with the settings in `words` if there is none."""
        try:
            return find(name)
        except UnknownName:
            raise self.refuse(f"{words} is no storage format that we know") from None


def linear(fmt: StorageFormat, *others: str) -> Quantised:
    """One format for the linear layers of the blocks, and for other roles that are named."""
    return Quantised(dict.fromkeys((*roles_of("linear"), *others), fmt))
