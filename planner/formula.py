"""A formula is written once, as a plain function of words of the vocabulary, and has several readings.

::

    @formula("B", source="ainslie-2023", equation="section 2.2")
    def kv_payload(n_layers, batch, context, n_kv_heads, head_dim, kv_elem_bytes):
        '''KV cache payload of equal layers.'''
        return 2 * n_layers * batch * context * n_kv_heads * head_dim * kv_elem_bytes

===================  ======================================================================================
``kv_payload(...)``  the number itself, an exact int for ints; columns and symbols pass through
``.latex``           the line of a textbook, in the order in which it is written
``.over(frame)``     a float64 column, compiled (`planner.columns`)
``.excel``           the live formula of a cell, over cells named like the words
``.explain(...)``    symbols, values, units, the line with the numbers in it, the result, the source
``.expr``            SymPy: solve, expand, differentiate, prove; the only reading that imports SymPy
===================  ======================================================================================

All come from one record, which is made when the formula is defined; what cannot be recorded is refused there and then
(`planner.arithmetic`). Of a formula that calls another one the record holds the whole.
"""

import functools
import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.resources import files
from numbers import Real
from typing import Any

from planner.arithmetic import Value, evaluate, is_column, is_symbolic, plain, word
from planner.columns import Columns, compile_columns
from planner.errors import InputError, PlannerError, UnknownName, UsageError
from planner.notation import excel, latex, latex_number
from planner.quantities import QUANTITIES, Quantity, check_unit, described, quantity


class Formula:
    """A function of words with its unit, its source and its readings; made by `formula`.

    `words` are its inputs, `equation` is the place in the source, `validity` says where it holds if not everywhere.
    """

    def __init__(self, function: Callable[..., Value], unit: str, source: str, equation: str, validity: str) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        self.function = function
        self.unit = unit
        self.source = source
        self.equation = equation
        self.validity = validity
        self.words = tuple(inspect.signature(function).parameters)
        check_unit(unit, self.name)
        for name in self.words:
            quantity(name)
        if source not in sources():
            raise UnknownName(f"source of {self.name}", source, sources())
        self.tree = function(*map(word, self.words))

    def __repr__(self) -> str:
        return f"<formula {self.name}({', '.join(self.words)}) in {self.unit}>"

    def __reduce__(self) -> str:
        return self.name  # pickled by its name, as the function that it was made of would be

    def __call__(self, *args: Value, **named: Value) -> Value:
        """Calculate: exactly from ints. Columns are read as float64; recorded and SymPy symbols pass through.

        Raises `UsageError` for words that are missing or unknown, and `InputError` for values that are no numbers of at
        least 0 and where there is no result, as in a division by zero.
        """
        values = self._bound(args, named)
        try:
            return self.function(**values)
        except ArithmeticError as error:
            given = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            raise InputError(f"{self.name} has no value at {given}: {error}") from None

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """The inputs, each with letter, unit and meaning."""
        return tuple(map(quantity, self.words))

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.__doc__ or "").partition("\n")[0]

    @property
    def citation(self) -> str:
        """Title and year of the source, and the place in it."""
        source = sources()[self.source]
        return ", ".join(filter(None, (f"{source['title']} ({source['year']})", self.equation)))

    @property
    def letter(self) -> str:
        """LaTeX of the left-hand side: a letter if the result is itself a word of the vocabulary, else the name."""
        if self.name in QUANTITIES:
            return quantity(self.name).letter
        return rf"\text{{{self.name.replace('_', ' ')}}}"

    @functools.cached_property
    def latex(self) -> str:
        """LaTeX of the right-hand side, in the order in which it is written."""
        return latex(self.tree, lambda name: quantity(name).letter)

    def _repr_latex_(self) -> str:
        return f"$${self.letter} = {self.latex}$$"

    @functools.cached_property
    def _columns(self) -> Columns:
        return compile_columns({self.name: self.tree})

    def over(self, frame: Any) -> Any:
        """Calculate for every row of a frame, or of a mapping of columns and numbers: a float64 array.

        Raises `UsageError` if a word is missing, and `InputError` for a column that cannot be calculated with.
        """
        self._require(frame)
        return self._columns(frame)[self.name]

    @functools.cached_property
    def excel(self) -> str:
        """The formula of a spreadsheet cell; it expects cells named like the words."""
        return "=" + excel(self.tree, str)

    @functools.cached_property
    def expr(self) -> Any:
        """The SymPy expression, whose symbols are positive reals named like the words (see `symbol`)."""
        return evaluate(self.tree, {name: symbol(name) for name in self.words})

    def explain(self, values: Mapping[str, Value]) -> "Explanation":
        """Calculate and say how. `values` may hold more than the formula needs; its errors are those of a call."""
        self._require(values)
        given = {name: plain(values[name]) for name in self.words}
        if any(is_symbolic(value) or is_column(value) for value in given.values()):
            raise UsageError(f"{self.name}: one number for each word can be explained, not a column or a symbol")
        result = self(**given)
        line = latex(self.tree, lambda name: latex_number(given[name]))
        return Explanation(self, given, result, line)

    def describe(self) -> str:
        """Say in a few lines of text what is calculated from what, in which unit, where it holds and who says so."""
        width = max(map(len, self.words))
        letters = max(len(q.letter) for q in self.quantities)
        rows = [f"  {q.word:<{width}}  {q.letter:<{letters}}  {q.meaning}{_in(q.unit)}" for q in self.quantities]
        return "\n".join([f"{self.name}{_in(self.unit)}: {self.summary}", *self._lines(rows)])

    def to_frame(self) -> Any:
        """Return the inputs as a table: word, letter, unit, meaning."""
        import pandas

        return pandas.DataFrame([asdict(q) for q in self.quantities])

    def _lines(self, rows: list[str]) -> list[str]:
        held = [f"  holds for: {self.validity}"] if self.validity else []
        return [f"  LaTeX: {self.latex}", f"  Excel: {self.excel}", *rows, *held, f"  source: {self.citation}"]

    def _bound(self, args: tuple[Value, ...], named: dict[str, Value]) -> dict[str, Value]:
        if len(args) > len(self.words):
            raise UsageError(f"{self.name} takes {len(self.words)} values ({', '.join(self.words)}), not {len(args)}")
        values = dict(zip(self.words, args, strict=False))
        for name in named:
            if name in values:
                raise UsageError(f"{self.name} got {name} twice")
            if name not in self.words:
                raise UnknownName(f"word of {self.name}", name, self.words)
        values |= named
        self._require(values)
        return {name: self._checked(name, values[name]) for name in self.words}

    def _require(self, values: Any) -> None:
        missing = [described(name) for name in self.words if name not in values]
        if missing:
            raise UsageError(f"{self.name} needs {', '.join(missing)}")

    def _checked(self, name: str, value: Value) -> Value:
        number = isinstance(value, Real) and not isinstance(value, bool)
        with suppress(TypeError, ValueError):  # a column of texts
            result = plain(value)
            if result >= 0 if number else is_column(value) or is_symbolic(value):
                return result
        raise InputError(f"{self.name}: {name} = {value!r} is not a number of at least 0")


@dataclass(frozen=True)
class Explanation:
    """A calculated formula with all that led to it: `print` it, or show it in a notebook.

    `line` is the right-hand side in LaTeX with the numbers in the words' places.
    """

    formula: Formula
    values: Mapping[str, Value]
    value: Value
    line: str

    @property
    def symbol(self) -> str:
        """LaTeX of the left-hand side."""
        return self.formula.letter

    @property
    def unit(self) -> str:
        """Unit of the value."""
        return self.formula.unit

    @property
    def source(self) -> str:
        """Title, year and place of the source."""
        return self.formula.citation

    def to_frame(self) -> Any:
        """Return the inputs as a table: word, letter, unit, meaning, value."""
        return self.formula.to_frame().assign(value=list(self.values.values()))

    def __str__(self) -> str:
        width = max(map(len, self.values))
        given = [(q, _shown(self.values[q.word], q.unit)) for q in self.formula.quantities]
        rows = [f"  {q.word:<{width}} = {value}  ({q.meaning})" for q, value in given]
        head = f"{self.formula.name} = {_shown(self.value, self.unit)}"
        return "\n".join([head, *self.formula._lines(rows)])

    def _repr_latex_(self) -> str:
        unit = "" if self.unit == "1" else rf"\ \mathrm{{{self.unit}}}"
        return rf"$${self.symbol} = {self.formula.latex} = {self.line} = {latex_number(self.value)}{unit}$$"


def _in(unit: str) -> str:
    return "" if unit == "1" else f" [{unit}]"


def _shown(value: Value, unit: str) -> str:
    return f"{value:,}" + ("" if unit == "1" else f" {unit}")


class Registry(Mapping[str, Formula]):
    """All formulas by name; looking into it imports the textbook.

    Raises `UnknownName`, with the nearest name, for a formula that there is not.
    """

    def __init__(self) -> None:
        self._known: dict[str, Formula] = {}

    def add(self, formula: Formula) -> None:
        """Enter a formula; a second one of that name, from another place, is refused."""
        known = self._known.setdefault(formula.name, formula)
        if known.function.__code__.co_filename != formula.function.__code__.co_filename:
            raise PlannerError(f"formula {formula.name!r} is defined in {known.__module__} and in {formula.__module__}")
        self._known[formula.name] = formula

    def _all(self) -> dict[str, Formula]:
        import_module("planner.textbook")
        return self._known

    def __getitem__(self, name: str) -> Formula:
        known = self._all()
        if name not in known:
            raise UnknownName("formula", name, known)
        return known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def get(self, name: str, default: Any = None) -> Any:
        """Return the formula of that name, or the default."""
        return self._all().get(name, default)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._all()))

    def __len__(self) -> int:
        return len(self._all())


formulas = Registry()


def formula(
    unit: str, *, source: str, equation: str = "", validity: str = ""
) -> Callable[[Callable[..., Value]], Formula]:
    """Make a formula of a function whose arguments are words of the vocabulary, and enter it into `formulas`.

    `source` is a key of presets/sources.toml, `equation` the place in it.

    Raises `UnknownName` for a word or a source that is not known, and `NotRecordable` for a function that does more
    than arithmetic.
    """

    def decorate(function: Callable[..., Value]) -> Formula:
        made = Formula(function, unit, source, equation, validity)
        formulas.add(made)
        return made

    return decorate


@functools.cache
def sources() -> dict[str, dict[str, Any]]:
    """Return what presets/sources.toml says of each source: title, year, and where it appeared."""
    return tomllib.loads((files("planner.presets") / "sources.toml").read_text(encoding="utf-8"))


def symbol(name: str) -> Any:
    """Return the SymPy symbol of a word. One made otherwise, without `positive`, is another symbol to SymPy."""
    import sympy

    return sympy.Symbol(quantity(name).word, positive=True)
