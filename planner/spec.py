"""What every part of a contract is: a frozen record of typed fields that checks itself.

A field holds a number, and then its type and its rules are checked when the record is made; or a NumPy column or a
symbol, so that the same record can be folded for a whole sweep at once. A column is checked by `violations`, row by
row; a symbol cannot be checked, the numbers that replace it are.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from planner.arithmetic import is_column, is_symbolic
from planner.errors import ContractError, suggest

LARGEST = 10**15  # no width, count or length of a decoder comes near; above it floats are no longer exact
_COUNT, _EXTENT = "a whole number from 1 to 10^15", "a whole number from 0 to 10^15"
_SCALE = "a positive, finite number"
Count = Annotated[int, _COUNT]
Extent = Annotated[int, _EXTENT]
Scale = Annotated[float, _SCALE]

PLAIN = frozenset((int, float, bool, str, tuple, dict, type(None)))  # types of fields that hold no column and no symbol

Violation = tuple[Any, str, str, "Spec"]  # rows that hold (a bool or a column), path, sentence, the part
T = TypeVar("T")


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def spec(cls: type[T]) -> type[T]:
    """The decorator of every part: a frozen record whose fields are given by name."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)


@spec
class Spec:
    """Base of all parts. A leaf names its `kind`; `rules` yields what must hold between its fields."""

    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, check, rule in field_checks(type(self)):
            value = getattr(self, name)
            held = check(value)
            if held is False:
                raise ContractError(f"{name} = {shown(value)} is not {rule}")
        if not any(type(v) not in PLAIN and (is_symbolic(v) or is_column(v)) for v in values(self)):
            for held, sentence in self.rules():
                if not held:
                    raise ContractError(sentence.format_map(Shown(self)))

    def rules(self) -> Iterator[tuple[Any, str]]:
        """Yield (what must hold, the sentence said when it does not), on numbers or on columns."""
        yield from ()


def per_class(function: Callable[[type], T]) -> Callable[[type], T]:
    """`functools.cache` for a function of a class, which type checkers do not believe to be hashable."""
    return functools.cache(function)


def values(part: Spec) -> Iterator[Any]:
    """Every field's value, in the order in which they are declared."""
    return (getattr(part, name) for name in field_names(type(part)))


@per_class
def field_names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


@per_class
def field_types(cls: type) -> dict[str, Any]:
    """Field name -> annotation, with what `Annotated` says kept."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in field_names(cls)}


@per_class
def field_checks(cls: type) -> tuple[tuple[str, Callable[[Any], Any], str], ...]:
    """(name, check, what the value must be) of every field of a part."""
    return tuple((name, *check_of(hint)) for name, hint in field_types(cls).items())


def check_of(hint: Any) -> tuple[Callable[[Any], Any], str]:
    """Return a function that says whether a value has the annotated type, and that type in words."""
    origin = typing.get_origin(hint)
    if origin is Annotated:
        words = typing.get_args(hint)[1]
        return _NUMBERS[words], words
    if origin in (typing.Union, types.UnionType):
        options = [check_of(option) for option in typing.get_args(hint)]
        words = " or ".join(dict.fromkeys(words for _, words in options))
        return functools.partial(_any_of, [check for check, _ in options]), words
    if origin is Literal:
        choices = typing.get_args(hint)
        return (lambda value: isinstance(value, str) and value in choices), "one of " + ", ".join(choices)
    if origin is tuple:
        element, words = check_of(typing.get_args(hint)[0])
        return (lambda value: isinstance(value, tuple) and _all_of(element, value)), f"a list of {words}"
    if origin is dict:
        element, words = check_of(typing.get_args(hint)[1])
        return (lambda value: isinstance(value, dict) and _all_of(element, value.values())), f"tables of {words}"
    if hint is type(None):
        return (lambda value: value is None), "left out"
    if hint is float:
        return (lambda value: type(value) in (int, float) and math.isfinite(value)), "a finite number"
    if hint is int:
        return (lambda value: type(value) is int), "a whole number"
    words = {bool: "true or false", str: "a text"}.get(hint) or f"a {hint.__name__.lower()}"
    return (lambda value: isinstance(value, hint)), words


def _all_of(check: Callable[[Any], Any], values: Iterable[Any]) -> bool:
    return all(check(value) is not False for value in values)


def _any_of(checks: list[Callable[[Any], Any]], value: Any) -> Any:
    for check in checks:
        held = check(value)
        if held is not False:
            return held
    return False


def _number(low: int, whole: bool, value: Any) -> Any:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return low <= value <= LARGEST if whole else low < value <= LARGEST
    if is_symbolic(value):
        return True
    if is_column(value):
        import numpy  # there is a column, so it is loaded already

        inside = (value >= low) & (value <= LARGEST) if whole else (value > low) & (value < math.inf)
        return inside & (numpy.floor(value) == value) if whole else inside
    return not whole and isinstance(value, float) and low < value < math.inf


_NUMBERS: dict[str, Callable[[Any], Any]] = {
    _COUNT: functools.partial(_number, 1, True),
    _EXTENT: functools.partial(_number, 0, True),
    _SCALE: functools.partial(_number, 0, False),
}


def violations(part: Spec, path: str = "") -> Iterator[Violation]:
    """Yield every check of a part that holds columns, and of the parts in it: rows that pass, path, sentence."""
    for name, check, rule in field_checks(type(part)):
        value = getattr(part, name)
        if is_column(value):
            yield check(value), path, f"{name} = {{{name}}} is not {rule}", part
        for inner, place in parts_of(value, f"{path}.{name}" if path else name):
            yield from violations(inner, place)
    if any(is_column(value) for value in values(part)):
        import numpy  # there is a column, so it is loaded already

        with numpy.errstate(all="ignore"):  # a row that is refused for its 0 may divide by it here
            found = list(part.rules())
        yield from ((held, path, sentence, part) for held, sentence in found)


def parts_of(value: Any, path: str) -> Iterator[tuple[Spec, str]]:
    """The parts that a field's value is or lists, each with its path."""
    if isinstance(value, Spec):
        yield value, path
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if isinstance(item, Spec):
                yield item, f"{path}[{index}]"


class Shown(dict[str, str]):
    """The fields of a part as a sentence shows them: ``"n_heads = {n_heads}".format_map(Shown(part))``."""

    def __init__(self, part: Spec) -> None:
        self.part = part

    def __missing__(self, name: str) -> str:
        value = getattr(self.part, name)
        return shown(list(value) if isinstance(value, tuple) else value)


class ShownRow(Shown):
    """The fields of a part that holds columns, as a sentence about one row shows them; `row` is its index in them."""

    def __init__(self, part: Spec, row: Any) -> None:
        super().__init__(part)
        self.row = row

    def __missing__(self, name: str) -> str:
        value = getattr(self.part, name)
        return f"{value[self.row]:.15g}" if is_column(value) else shown(value)


def literal(text: str) -> str:
    """A text that stands in a rule's sentence as it is, whatever braces it has."""
    return text.replace("{", "{{").replace("}", "}}")


def shown(value: Any) -> str:
    """A value as an error sentence shows it: short, whatever was put in."""
    if isinstance(value, Spec):
        return f"a {type(value).__name__.lower()}"
    try:
        text = repr(value)
    except RecursionError:
        return "deeply nested tables"
    return text if len(text) <= 60 else text[:57] + "..."


def leaves(base: type[Spec]) -> dict[str, type[Spec]]:
    """Kind -> class of every leaf below a base: what a contract may write under ``kind = ``."""
    found = {}
    for cls in base.__subclasses__():
        if cls.kind:
            found[cls.kind] = cls
        found.update(leaves(cls))
    return found


def leaf(base: type[Spec], kind: Any) -> type[Spec]:
    """The leaf of that kind, or a sentence with the kinds there are."""
    known = leaves(base)
    if kind is None:
        raise ContractError(f"kind is missing; it is one of {', '.join(sorted(known))}")
    if not isinstance(kind, str) or kind not in known:
        near = suggest(kind, known) if isinstance(kind, str) else ""
        raise ContractError(f"kind = {shown(kind)} is none of {', '.join(sorted(known))}{near}")
    return known[kind]
