"""The arithmetic of formulas: the same line of Python for a number, a column, a recorded formula or a SymPy symbol.

A formula or a bill may use ``+ - * / **`` and the functions of this module, and nothing else. What they do depends on
the values alone:

===================  ==========================================================================================
Python numbers       exact whole numbers of any size; fractions exactly; floats as floats
columns              float64. NumPy's int64 wraps in silence at 9.2e18, and a FLOP count passes that, so a column
                     is converted by `column`, here and wherever one comes in (`Formula`, `Columns`)
``Written``          recorded as it was written; LaTeX, Excel and compiled columns are read from that record
SymPy symbols        SymPy's own ``Min``, ``Max``, ``ceiling`` and ``floor``
===================  ==========================================================================================

A recorded formula cannot branch on a value: ``if``, ``and``, a comparison, ``min``, ``int`` or ``//`` raises
`NotRecordable` when the formula is recorded, which happens when it is defined. (SymPy would let most of these pass and
give a wrong formula.) Neither NumPy nor SymPy is imported here before a value of theirs has come in.
"""

import math
import operator
import re
import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any, NoReturn, TypeAlias

from planner.errors import PlannerError

Value: TypeAlias = Any
"""A number, a column, a `Written` or a SymPy expression: whatever the arithmetic of a formula accepts."""

_PATH = re.compile(r"[A-Za-z_]\w*(\[(\d+|\*)\])?(\.[A-Za-z_]\w*(\[(\d+|\*)\])?)*", re.ASCII)


class NotRecordable(PlannerError, TypeError):
    """A formula does something that cannot be written down as a formula."""


class Written:
    """A formula as it was written: an operation and its arguments, which are numbers or `Written` again.

    Adding 0 and multiplying by 0 or 1 leave no trace, so that a sum over many layers stays small.

    >>> word("n_layers") * 1 + 0
    Written('n_layers')
    >>> 0 * word("n_layers")
    0
    """

    __slots__ = ("args", "op")

    # NumPy would otherwise take the record for an element and spread it over an array.
    __array_ufunc__ = None

    def __init__(self, op: str, *args: Value) -> None:
        self.op = op
        self.args = args if op == "word" else tuple(map(_recordable, args))

    def __repr__(self) -> str:
        return f"Written({self.args[0] if self.op == 'word' else f'{self.op} of ' + ', '.join(words(self))!r})"

    def __add__(self, other: Value) -> Value:
        return self if _is(other, 0) else Written("+", self, other)

    def __radd__(self, other: Value) -> Value:
        return self if _is(other, 0) else Written("+", other, self)

    def __sub__(self, other: Value) -> Value:
        return self if _is(other, 0) else Written("-", self, other)

    def __rsub__(self, other: Value) -> Value:
        return -self if _is(other, 0) else Written("-", other, self)

    def __mul__(self, other: Value) -> Value:
        return 0 if _is(other, 0) else self if _is(other, 1) else Written("*", self, other)

    def __rmul__(self, other: Value) -> Value:
        return 0 if _is(other, 0) else self if _is(other, 1) else Written("*", other, self)

    def __truediv__(self, other: Value) -> Value:
        return self if _is(other, 1) else Written("/", self, other)

    def __rtruediv__(self, other: Value) -> Value:
        return Written("/", other, self)

    def __neg__(self) -> "Written":
        return Written("neg", self)

    def __pow__(self, exponent: Value) -> "Written":
        if not isinstance(exponent, (int, Written)):
            raise NotRecordable(f"{self!r} ** {exponent!r}: the exponent of a formula is a whole number or a word")
        return Written("**", self, exponent)

    def __rpow__(self, base: Value) -> "Written":
        return Written("**", base, self)

    def _refuse(self, *_: object) -> NoReturn:
        raise NotRecordable(
            f"{self!r} is recorded and has no value yet: a formula is made of + - * / ** and minimum, maximum, "
            "ceil_div, floor_div, exact_div, without if, and, or, comparisons, min, max, int, float, round, // and %"
        )

    __hash__ = object.__hash__
    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _refuse
    __int__ = __float__ = __complex__ = __index__ = __abs__ = _refuse
    __round__ = __trunc__ = __ceil__ = __floor__ = __len__ = __iter__ = _refuse


def word(name: str) -> Written:
    """Return a variable of a recorded formula: a word of the vocabulary or a contract path.

    >>> word("layers[0].mixer.n_kv_heads")
    Written('layers[0].mixer.n_kv_heads')

    Raises `NotRecordable` for anything else, since names come from users and end up in cells and in error messages.
    """
    if not _PATH.fullmatch(name):
        raise NotRecordable(f"{name!r} is neither a word nor a contract path such as layers[0].mixer.n_kv_heads")
    return Written("word", name)


def read(
    tree: Value,
    on_word: Callable[[str], Any],
    on_number: Callable[[Any], Any],
    on_operation: Callable[..., Any],
    done: dict[int, Any] | None = None,
) -> Any:
    """Read a recorded formula from its leaves to its root; every reading is one call of this.

    ``on_operation(op, *arguments)`` gets the arguments as already read. A part that is used twice is read once, and
    depth costs no recursion: the sum over a hundred layers is a deep tree. `done` remembers what has been read, by
    `id`, for several formulas that share parts and live as long.
    """
    if not isinstance(tree, Written):
        return on_number(tree)
    done = {} if done is None else done
    stack = [tree]
    while stack:
        node = stack[-1]
        waiting = [arg for arg in node.args if isinstance(arg, Written) and id(arg) not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        if id(node) in done:
            continue
        if node.op == "word":
            done[id(node)] = on_word(node.args[0])
        else:
            args = (done[id(arg)] if isinstance(arg, Written) else on_number(arg) for arg in node.args)
            done[id(node)] = on_operation(node.op, *args)
    return done[id(tree)]


def words(tree: Value) -> tuple[str, ...]:
    """Return the words of a recorded formula, sorted."""
    found: dict[str, None] = {}
    read(tree, lambda name: found.setdefault(name), lambda number: None, lambda op, *args: None)
    return tuple(sorted(found))


def evaluate(tree: Value, values: Mapping[str, Value]) -> Value:
    """Replace the words of a recorded formula by values and calculate: exactly where these are Python ints.

    >>> evaluate(ceil_div(word("context"), 16), {"context": 100})
    7
    """
    return read(tree, values.__getitem__, lambda number: number, lambda op, *args: OPERATIONS[op](*args))


def minimum(a: Value, b: Value) -> Value:
    """Return the smaller of two values."""
    match _kind(a, b):
        case "number":
            return min(a, b)
        case "column":
            return _numpy().minimum(column(a), column(b))
        case "written":
            return Written("minimum", a, b)
        case _:
            return _sympy().Min(a, b)


def maximum(a: Value, b: Value) -> Value:
    """Return the greater of two values."""
    match _kind(a, b):
        case "number":
            return max(a, b)
        case "column":
            return _numpy().maximum(column(a), column(b))
        case "written":
            return Written("maximum", a, b)
        case _:
            return _sympy().Max(a, b)


def ceil_div(a: Value, b: Value) -> Value:
    """Return a / b rounded up to a whole number, such as the blocks that hold a positions.

    >>> ceil_div(33, 16)
    3
    """
    match _kind(a, b):
        case "number":
            return -(-a // b) if _exact(a, b) else _rounded(math.ceil, a / b)
        case "column":
            return _numpy().ceil(column(a) / column(b))
        case "written":
            return Written("ceil_div", a, b)
        case _:
            return _sympy().ceiling(a / b)


def floor_div(a: Value, b: Value) -> Value:
    """Return a / b rounded down to a whole number, such as the entries that a stride of b leaves of a positions.

    >>> floor_div(33, 16)
    2
    """
    match _kind(a, b):
        case "number":
            return a // b if _exact(a, b) else _rounded(math.floor, a / b)
        case "column":
            return _numpy().floor(column(a) / column(b))
        case "written":
            return Written("floor_div", a, b)
        case _:
            return _sympy().floor(a / b)


def exact_div(a: Value, b: Value) -> Value:
    """Return a / b where the quotient is whole by construction, as in n(n+1)/2; of ints it is an int.

    >>> exact_div(5 * 6, 2)
    15

    Raises `PlannerError` if whole numbers leave a remainder.
    """
    match _kind(a, b):
        case "number" if isinstance(a, Integral) and isinstance(b, Integral):
            quotient, remainder = divmod(a, b)
            if remainder:
                raise PlannerError(f"exact_div({a}, {b}): {b} does not divide {a}")
            return quotient
        case "number":
            return a / b
        case "column":
            return column(a) / column(b)
        case "written":
            return Written("exact_div", a, b)
        case _:
            return a / b


def triangle(n: Value) -> Value:
    """Return 1 + 2 + ... + n, the query-key pairs that a causal mask allows among n positions.

    >>> triangle(4)
    10
    """
    return exact_div(n * (n + 1), 2)


OPERATIONS: dict[str, Callable[..., Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "neg": operator.neg,
    "minimum": minimum,
    "maximum": maximum,
    "ceil_div": ceil_div,
    "floor_div": floor_div,
    "exact_div": exact_div,
}
"""Every operation that a `Written` can hold, as a function of values."""


def is_symbolic(value: Value) -> bool:
    """Tell whether a value stands for a number that is not known: a `Written` or something of SymPy's."""
    return isinstance(value, (Written, getattr(sys.modules.get("sympy"), "Basic", Written)))


def is_column(value: Value) -> bool:
    """Tell whether a value holds many numbers: a NumPy array, a pandas column."""
    return hasattr(value, "__array__") and not isinstance(value, Real) and not is_symbolic(value)


def column(value: Value) -> Value:
    """Return the numbers of a column, or one number, as a float64 array; exact up to 2**53."""
    return _numpy().asarray(value, dtype="float64")


def plain(value: Value) -> Value:
    """Return a value as formulas calculate with it: NumPy's ints as Python ints, columns in float64."""
    if isinstance(value, Rational):
        numerator, denominator = int(value.numerator), int(value.denominator)
        return numerator if denominator == 1 else Fraction(numerator, denominator)
    if isinstance(value, Real):
        return float(value)
    return column(value) if is_column(value) else value


def _numpy() -> Any:
    import numpy

    return numpy


def _sympy() -> Any:
    import sympy

    return sympy


def _is(value: Value, number: int) -> bool:
    return type(value) is int and value == number


def _recordable(value: Value) -> Value:
    if isinstance(value, Written):
        return value
    if isinstance(value, Real) and math.isfinite(value):
        return plain(value)
    raise NotRecordable(f"a recorded formula is made of words and finite numbers, not of {value!r}")


def _kind(a: Value, b: Value) -> str:
    """Name what two values have in common; a record wins over all, and then refuses what it cannot hold."""
    if isinstance(a, (int, float, Real)) and isinstance(b, (int, float, Real)):  # Real alone is slow to ask
        return "number"
    if isinstance(a, Written) or isinstance(b, Written):
        return "written"
    return "sympy" if is_symbolic(a) or is_symbolic(b) else "column"


def _exact(a: Value, b: Value) -> bool:
    return isinstance(a, Rational) and isinstance(b, Rational)


def _rounded(rounding: Callable[[float], int], quotient: float) -> float:
    """Round a float quotient; one that is not finite stays, as it does in a column."""
    return float(rounding(quotient)) if math.isfinite(quotient) else quotient
