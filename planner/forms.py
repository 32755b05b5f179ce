"""Recorded formulas as exact sums of multiples, before anything is computed in floats.

Two things keep a column exact:

* What is linear stays a sum of exact multiples (`Form`) until a step needs its value. A model's constants fold into a
  few ints, and a sum over sixty equal layers is one product.
* A quotient is divided once, at the end: 3x/49 is (3x)/49 and never x times the float nearest to 3/49. So ceilings and
  floors of exact multiples are right, where a product with a reciprocal is wrong for one in ten of them.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from numbers import Rational
from typing import Any, TypeAlias

from planner.arithmetic import OPERATIONS, Value

Form: TypeAlias = dict[int | None, Any]
"""A sum of multiples: the number of a value -> its coefficient; under None, a constant. A coefficient is never 0."""


class Values:
    """The values that a program computes, numbered, each of them once: (operation, what it works on)."""

    def __init__(self, numbers: Mapping[str, Value]) -> None:
        self.numbers = numbers
        self.entries: list[tuple[str, tuple[Any, ...]]] = []
        self.known: dict[Hashable, int] = {}

    def put(self, op: str, *operands: Any) -> int:
        """The number of a value, which is entered when it is first seen."""
        entry = (op, operands)
        if entry not in self.known:
            self.known[entry] = len(self.entries)
            self.entries.append(entry)
        return self.known[entry]

    def word(self, name: str) -> Form:
        """A word, or the number that is known for it."""
        return self.number(self.numbers[name]) if name in self.numbers else {self.put("word", name): 1}

    def number(self, number: Value) -> Form:
        return {None: number} if number != 0 else {}

    def operation(self, op: str, *args: Form) -> Form:
        """An operation on forms: a number where they are numbers, a form where it is linear, else a new value."""
        if all(map(_is_constant, args)):
            folded = _folded(op, [form.get(None, 0) for form in args])
            if folded is not None:
                return self.number(folded)
        if op in ("minimum", "maximum"):
            return {self.put(op, *map(self.of, args)): 1}
        if op in ("ceil_div", "floor_div"):
            return {self.put(op.removesuffix("_div"), self.of(self.quotient(*args))): 1}
        return _FORMS[op](self, *args)

    def of(self, form: Form) -> int:
        """The number of the value of a form."""
        return self.scaled(*self.split(form))

    def split(self, form: Form) -> tuple[Any, Any]:
        """A form as a factor and the number of what it multiplies; None stands for 1.

        Common factors are taken out so that 2x + 2y and 3x + 3y share x + y, and so that the rest is whole.
        """
        if _is_constant(form):
            return form.get(None, 0), None
        if len(form) == 1:
            [(value, factor)] = form.items()
            return factor, value
        if not all(isinstance(c, Rational) for c in form.values()):
            return 1, self.total(form)
        factor = Fraction(
            math.gcd(*(c.numerator for c in form.values())), math.lcm(*(c.denominator for c in form.values()))
        )
        return factor, self.total({value: c / factor for value, c in form.items()})

    def total(self, form: Form) -> int:
        """The number of a sum that has at least two terms; what is subtracted comes last."""
        (first, factor), *others = sorted(form.items(), key=lambda term: term[1] < 0)
        total = self.scaled(factor, first)
        for value, factor in others:
            total = self.put("add" if factor > 0 else "subtract", total, self.scaled(abs(factor), value))
        return total

    def scaled(self, factor: Any, value: int | None) -> int:
        """The number of factor times value. A fraction multiplies first and divides last."""
        if value is None:
            return self.put("number", float(factor))
        if not isinstance(factor, Rational):
            return self.put("multiply", value, self.put("number", factor))
        for op, part in (("multiply", factor.numerator), ("divide", factor.denominator)):
            if part != 1:
                value = self.put(op, value, self.put("number", float(part)))
        return value

    def sum(self, sign: int, a: Form, b: Form) -> Form:
        total = dict(a)
        for value, factor in b.items():
            total[value] = total.get(value, 0) + sign * factor
        return {value: factor for value, factor in total.items() if factor != 0}

    def product(self, a: Form, b: Form) -> Form:
        for form, other in ((a, b), (b, a)):
            if _is_constant(form):
                by = form.get(None, 0)
                return {value: by * factor for value, factor in other.items() if by != 0}
        (factor_a, value_a), (factor_b, value_b) = self.split(a), self.split(b)
        return {self.put("multiply", *sorted((value_a, value_b))): factor_a * factor_b}

    def quotient(self, a: Form, b: Form) -> Form:
        if not all(isinstance(c, Rational) for c in (*a.values(), *b.values())) or not b:
            return {self.put("divide", self.of(a), self.of(b)): 1}
        if _is_constant(b):
            return {value: Fraction(factor) / b[None] for value, factor in a.items()}
        (factor_a, value_a), (factor_b, value_b) = self.split(a), self.split(b)
        factor = Fraction(factor_a) / factor_b
        above, below = self.scaled(factor.numerator, value_a), self.scaled(factor.denominator, value_b)
        return {self.put("divide", above, below): 1}

    def power(self, base: Form, exponent: Form) -> Form:
        n = exponent.get(None, 0)
        if not _is_constant(exponent) or not isinstance(n, int):
            return {self.put("power", self.of(base), self.of(exponent)): 1}
        if n < 0:
            return self.quotient({None: 1}, self.power(base, {None: -n}))
        result: Form = {None: 1}
        for _ in range(n):
            result = self.product(result, base)
        return result


_FORMS: dict[str, Callable[..., Form]] = {
    "+": lambda values, a, b: values.sum(1, a, b),
    "-": lambda values, a, b: values.sum(-1, a, b),
    "neg": lambda values, a: values.sum(-1, {}, a),
    "*": Values.product,
    "/": Values.quotient,
    "exact_div": Values.quotient,
    "**": Values.power,
}


def _is_constant(form: Form) -> bool:
    return form.keys() <= {None}


def _folded(op: str, constants: list[Any]) -> Any:
    """The result of an operation on constants, exact if they are; None where only NumPy says what comes out."""
    if not all(map(math.isfinite, constants)):
        return None
    exact = [Fraction(c) if isinstance(c, Rational) else c for c in constants]
    if op in ("/", "exact_div", "ceil_div", "floor_div") and exact[1] == 0:
        return None
    if op == "**":
        return exact[0] ** constants[1] if exact[0] != 0 or constants[1] > 0 else None
    return OPERATIONS["/" if op == "exact_div" else op](*exact)
