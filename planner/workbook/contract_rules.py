"""The rules between the fields of a contract, read off the contract itself as formulas over its cells.

`Spec.rules` are comparisons that hold for numbers and for columns alike. Here the fields hold words that note what they
are compared with; a rule that does anything else with them is left to `read_workbook`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.arithmetic import Value, Written, floor_div
from planner.editing import edit
from planner.errors import PlannerError
from planner.notation import excel
from planner.spec import Spec, parts_of, values
from planner.workbook.subject import Subject


def broken_rules(one: Subject) -> dict[str, str]:
    """What a rule of a decoder says, without the numbers -> the formula that is true where it does not hold."""
    words = {path: _Word("word", field.name) for field in one.fields for path in field.paths}
    found: dict[str, dict[str, None]] = {}
    for part in _parts(edit(one.architecture, words)):
        try:
            for held, sentence in part.rules():
                if isinstance(held, _Comparison):
                    said = re.sub(r" = \{\w+\}", "", sentence)
                    found.setdefault(said, {})[f"({held.text})=FALSE"] = None  # many layers have the same
        except (TypeError, PlannerError):
            continue
    return {said: f"OR({','.join(broken)})" for said, broken in found.items()}


def _parts(part: Spec) -> Iterator[Spec]:
    yield part
    for value in values(part):
        for inner, _ in parts_of(value, ""):
            yield from _parts(inner)


@dataclass(frozen=True)
class _Comparison:
    """A comparison as a formula."""

    text: str

    def __bool__(self) -> bool:
        raise TypeError("a comparison that is recorded is neither true nor false yet")


def _noting(sign: str, of_none: bool = False) -> Any:
    def compared(one: Value, other: Value) -> bool | _Comparison:
        return of_none if other is None else _Comparison(f"{excel(one, str)}{sign}{excel(other, str)}")

    return compared


class _Word(Written):
    """A formula that may be compared."""

    __slots__ = ()
    __hash__ = Written.__hash__
    __eq__, __ne__ = _noting("="), _noting("<>", of_none=True)
    __lt__, __le__, __gt__, __ge__ = _noting("<"), _noting("<="), _noting(">"), _noting(">=")

    def __mod__(self, other: Value) -> _Word:  # type: ignore[override]
        return _remainder(self, other)

    def __rmod__(self, other: Value) -> _Word:  # type: ignore[override]
        return _remainder(other, self)


def _remainder(a: Value, b: Value) -> _Word:
    tree = a - floor_div(a, b) * b
    return _Word(tree.op, *tree.args)
