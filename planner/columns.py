"""Recorded formulas compiled to columns: many figures of many scenarios at the speed of NumPy, or a little above.

`compile_columns` turns several formulas into one straight list of steps, each a NumPy function over a chunk of rows.
Three things make it exact and fast:

* What is linear stays a sum of exact multiples (`Form`) until a step needs its value. A model's constants fold into a
  few ints, and a sum over sixty equal layers is one product.
* A quotient is divided once, at the end: 3x/49 is (3x)/49 and never x times the float nearest to 3/49. So ceilings and
  floors of exact multiples are right, where a product with a reciprocal is wrong for one in ten of them.
* Equal steps are computed once, whichever formula they belong to, and their room is used again when nobody needs it.

No program text is made of the formulas, so a word can do nothing but name a column. All columns are read and returned
in float64, see `planner.arithmetic`.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, TypeAlias

from planner.arithmetic import OPERATIONS, Value, column, plain, read
from planner.errors import InputError
from planner.quantities import described

CHUNK = 65_536
"""Rows that are computed at a time: few enough for the caches, enough to make the steps themselves cost nothing."""

Form: TypeAlias = dict[int | None, Any]
"""A sum of multiples: the number of a value -> its coefficient; under None, a constant. A coefficient is never 0."""

Step: TypeAlias = tuple[str, tuple[int, ...], int]
"""The name of a NumPy function, the slots that it reads and the slot that it writes."""


@dataclass(frozen=True, eq=False)
class Columns:
    """Compiled formulas; called with a frame or a mapping, it returns a float64 array for each formula.

    >>> from planner.arithmetic import ceil_div, word
    >>> blocks = compile_columns({"blocks": ceil_div(word("context"), word("block"))})
    >>> blocks({"context": [1, 16, 17], "block": 16})
    {'blocks': array([1., 1., 2.])}
    """

    trees: Mapping[str, Value]
    words: tuple[str, ...]
    constants: tuple[float, ...]
    n_registers: int
    steps: tuple[Step, ...]

    def __call__(self, frame: Mapping[str, Any], rows: int | None = None) -> dict[str, Any]:
        """Compute all formulas for every row.

        A mapping may hold numbers beside columns; they are folded in exactly before anything is computed. `rows` is the
        length of the result where there are only numbers. A row that divides by zero gets an infinity or a NaN.

        Raises `InputError` for a column that is absent, not numeric, or of another length.
        """
        import numpy

        missing = [described(word) for word in self.words if word not in frame]
        if missing:
            raise InputError(f"the table has no {', no '.join(missing)}")
        given = {word: frame[word] for word in self.words}
        numbers = {word: _number(word, value) for word, value in given.items() if numpy.ndim(value) == 0}
        if numbers:
            length = _rows({word: given[word] for word in self.words if word not in numbers}, rows)
            return _compile(self.trees, numbers)(frame, length)

        rows = _rows(given, rows)
        results = [numpy.empty(rows) for _ in self.trees]
        registers = [numpy.empty(min(CHUNK, rows)) for _ in range(self.n_registers)]
        steps = [(getattr(numpy, name), reads, writes) for name, reads, writes in self.steps]
        inputs = [numpy.asarray(values) for values in given.values()]
        with numpy.errstate(all="ignore"):
            for start in range(0, rows, CHUNK):
                stop = min(start + CHUNK, rows)
                slots = [
                    *self.constants,
                    *(_numeric(word, values[start:stop]) for word, values in zip(self.words, inputs, strict=True)),
                    *(result[start:stop] for result in results),
                    *(register[: stop - start] for register in registers),
                ]
                for function, reads, writes in steps:
                    function(*[slots[slot] for slot in reads], out=slots[writes])
        return dict(zip(self.trees, results, strict=True))


def compile_columns(trees: Mapping[str, Value]) -> Columns:
    """Compile recorded formulas, or numbers, by name."""
    return _compile(trees, {})


def _compile(trees: Mapping[str, Value], numbers: Mapping[str, Value]) -> Columns:
    values = _Values(numbers)
    results = [values.of(read(tree, values.word, values.number, values.operation)) for tree in trees.values()]
    return _scheduled(trees, values, results)


def _rows(columns: Mapping[str, Any], rows: int | None) -> int:
    lengths = {word: len(values) for word, values in columns.items()}
    if len({*lengths.values(), *(() if rows is None else (rows,))}) > 1:
        asked = "" if rows is None else f"; {rows} rows are asked for"
        raise InputError(f"columns differ in length: {', '.join(f'{w} has {n}' for w, n in lengths.items())}{asked}")
    return next(iter(lengths.values()), 1 if rows is None else rows)


def _number(word: str, value: Any) -> Any:
    """One number of a mapping, as it is or as an array of no dimensions."""
    item = getattr(value, "item", lambda: value)()
    if not isinstance(item, Real):
        raise InputError(f"{described(word)} = {item!r} is not a number")
    return plain(item)


def _numeric(word: str, values: Any) -> Any:
    with suppress(TypeError, ValueError):
        if (numbers := column(values)).ndim == 1:
            return numbers
    raise InputError(f"column {described(word)} holds something that is not a number")


class _Values:
    """The values that a program computes, numbered, each of them once: (operation, what it works on)."""

    def __init__(self, numbers: Mapping[str, Value]) -> None:
        self.numbers = numbers
        self.entries: list[tuple[str, tuple[Any, ...]]] = []
        self.known: dict[Hashable, int] = {}

    def put(self, op: str, *operands: Any) -> int:
        entry = (op, operands)
        if entry not in self.known:
            self.known[entry] = len(self.entries)
            self.entries.append(entry)
        return self.known[entry]

    def word(self, name: str) -> Form:
        return self.number(self.numbers[name]) if name in self.numbers else {self.put("word", name): 1}

    def number(self, number: Value) -> Form:
        return {None: number} if number != 0 else {}

    def operation(self, op: str, *args: Form) -> Form:
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
    "*": _Values.product,
    "/": _Values.quotient,
    "exact_div": _Values.quotient,
    "**": _Values.power,
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


def _scheduled(trees: Mapping[str, Value], values: _Values, results: list[int]) -> Columns:
    """Put what the results need in order, each value in a slot: constants, words, results, then registers.

    A value comes just before the first step that needs it, so that a long sum is added up as its terms are computed.
    """
    entries, order, waiting = values.entries, dict[int, None](), results[::-1]
    while waiting:
        op, operands = entries[waiting[-1]]
        first = [] if op in ("word", "number") else [operand for operand in operands if operand not in order]
        if first:
            waiting += first[::-1]
        else:
            order[waiting.pop()] = None

    def leaves(kind: str) -> dict[int, Any]:
        return {value: entries[value][1][0] for value in order if entries[value][0] == kind}

    constants, words = leaves("number"), leaves("word")
    slot_of = {value: slot for slot, value in enumerate((*constants, *words))}
    result_slots = range(len(slot_of), len(slot_of) + len(results))
    own = dict(zip(results, result_slots, strict=True))

    computed = [value for value in order if value not in slot_of]
    uses = Counter([*results, *(operand for value in computed for operand in set(entries[value][1]))])
    steps: list[Step] = []
    free = list(result_slots)  # the room of a result serves others until the result comes
    n_slots = result_slots.stop
    for value in computed:
        op, operands = entries[value]
        for operand in set(operands):
            uses[operand] -= 1
            if uses[operand] == 0 and slot_of[operand] >= result_slots.start:
                free.append(slot_of[operand])  # also for this step: it goes element by element
        if own.get(value) in free:
            free.remove(own[value])
            slot_of[value] = own[value]
        elif free and value not in own:
            slot_of[value] = free.pop()
        else:
            slot_of[value] = n_slots
            n_slots += 1
        steps.append((op, tuple(slot_of[operand] for operand in operands), slot_of[value]))
    for slot, value in zip(result_slots, results, strict=True):
        if slot_of[value] != slot:
            steps.append(("positive", (slot_of[value],), slot))
    n_registers = n_slots - result_slots.stop
    return Columns(trees, tuple(words.values()), tuple(constants.values()), n_registers, tuple(steps))
