"""The generic functions on every kind of value, and the record: what it keeps, what it refuses, how it is read."""

import math
import operator
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from planner.arithmetic import (
    NotRecordable,
    Written,
    ceil_div,
    column,
    evaluate,
    exact_div,
    floor_div,
    is_column,
    is_symbolic,
    maximum,
    minimum,
    plain,
    read,
    triangle,
    word,
    words,
)
from planner.columns import compile_columns
from planner.errors import PlannerError
from planner.notation import excel, latex

FUNCTIONS = {
    minimum: min,
    maximum: max,
    ceil_div: lambda a, b: -(-a // b),
    floor_div: lambda a, b: a // b,
}
functions = pytest.mark.parametrize("function", FUNCTIONS)


@functions
@given(a=st.integers(-(10**30), 10**30), b=st.integers(1, 10**25))
def test_ints_of_any_size_are_exact(function, a, b):
    result = function(a, b)
    assert result == FUNCTIONS[function](a, b)
    assert type(result) is int


@functions
@given(a=st.integers(-(2**50), 2**50), b=st.integers(1, 2**20))
def test_columns_and_floats_do_what_ints_do(function, a, b):
    expected = FUNCTIONS[function](a, b)
    assert function(float(a), float(b)) == expected
    result = function(np.array([a, 0]), b)
    assert result.dtype == np.float64
    assert result[0] == expected


@functions
@given(a=st.integers(1, 10**30), b=st.integers(1, 10**25))
def test_sympy_substitutes_to_what_ints_give(function, a, b):
    x, y = sympy.symbols("x y", positive=True)
    assert function(x, y).subs({x: a, y: b}) == FUNCTIONS[function](a, b)
    assert function(x, b).subs(x, a) == FUNCTIONS[function](a, b)


@functions
@given(a=st.integers(1, 10**30), b=st.integers(1, 10**25))
def test_a_record_evaluates_to_what_ints_give(function, a, b):
    tree = function(word("a_word"), word("b_word"))
    assert evaluate(tree, {"a_word": a, "b_word": b}) == FUNCTIONS[function](a, b)


def test_fractions_are_divided_exactly():
    assert ceil_div(Fraction(1, 3) * 9, 3) == floor_div(Fraction(9, 3), 3) == 1


def test_a_float_quotient_is_rounded_as_in_a_column():
    for rounded, numpys in ((ceil_div, np.ceil), (floor_div, np.floor)):
        assert rounded(1.0, 0.1) == numpys(np.float64(1.0) / 0.1) == 10
        assert rounded(math.inf, 2.0) == math.inf


def test_exact_div_is_whole_or_an_error():
    n = 10**20 + 1
    assert triangle(n) == n * (n + 1) // 2
    assert exact_div(3.0, 2) == 1.5
    assert exact_div(column([3]), 2)[0] == 1.5
    with pytest.raises(PlannerError, match=r"exact_div\(7, 2\): 2 does not divide 7"):
        exact_div(7, 2)


def test_kinds_are_told_apart():
    symbol, array = sympy.Symbol("x"), np.arange(3)
    assert [is_symbolic(v) for v in (word("batch"), symbol, array, 1, None)] == [True, True, False, False, False]
    assert [is_column(v) for v in (word("batch"), symbol, array, np.int64(1), 1.0)] == [
        False,
        False,
        True,
        False,
        False,
    ]


def test_numpy_ints_become_python_ints_before_they_can_wrap():
    assert type(plain(np.int64(2**62))) is int
    assert type(plain(np.float32(0.5))) is float
    assert type(plain(True)) is int
    assert plain(Fraction(4, 2)) == 2
    assert type(plain(Fraction(4, 2))) is int
    assert plain(sympy.Rational(1, 2)) == Fraction(1, 2)
    assert plain(np.array([2**62])).dtype == np.float64


REFUSED = {
    "if": lambda x: 1 if x else 2,
    "and": lambda x: x and 2,
    "or": lambda x: x or 2,
    "not": lambda x: not x,
    "==": lambda x: x == 2,
    "!=": lambda x: x != 2,
    "<": lambda x: x < 2,
    "<=": lambda x: x <= 2,
    ">": lambda x: x > 2,
    ">=": lambda x: x >= 2,
    "in": lambda x: x in (1, 2),
    "min": lambda x: min(x, 2),
    "max": lambda x: max(2, x),
    "int": int,
    "float": float,
    "complex": complex,
    "round": round,
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "sqrt": math.sqrt,
    "abs": abs,
    "//": lambda x: x // 2,
    "reflected //": lambda x: 2 // x,
    "%": lambda x: x % 2,
    "reflected %": lambda x: 2 % x,
    "divmod": lambda x: divmod(x, 2),
    "square root": lambda x: x**0.5,
    "range": range,
    "index": lambda x: [1, 2][x],
    "unpacking": lambda x: [*x],
    "length": len,
    "text": lambda x: x + "2",
    "none": lambda x: x * None,
    "infinity": lambda x: minimum(x, math.inf),
    "array": lambda x: x * np.arange(3),
    "array first": lambda x: np.arange(3) * x,
    "array inside": lambda x: minimum(x, np.arange(3)),
    "symbol": lambda x: x * sympy.Symbol("y"),
    "symbol first": lambda x: sympy.Symbol("y") + x,
    "symbol inside": lambda x: maximum(sympy.Symbol("y"), x),
}


def test_a_word_may_be_an_exponent():
    tree = (1 - 0.25) ** word("batch") + word("new") ** word("batch")
    assert evaluate(tree, {"batch": 3, "new": 5}) == 0.75**3 + 125
    assert evaluate(2 ** word("batch"), {"batch": 100}) == 2**100
    assert evaluate(tree, {"batch": np.array([1, 2]), "new": 2}).tolist() == [2.75, 4.5625]
    batch = sympy.Symbol("batch")
    assert evaluate(2 ** word("batch"), {"batch": batch}) == 2**batch


@pytest.mark.parametrize("attempt", REFUSED.values(), ids=REFUSED.keys())
def test_a_record_refuses_all_but_arithmetic(attempt):
    with pytest.raises(NotRecordable, match=r"formula") as caught:
        attempt(word("context"))
    assert isinstance(caught.value, PlannerError)
    assert isinstance(caught.value, TypeError)
    assert "\n" not in str(caught.value)


def test_the_refusal_names_the_word_and_what_may_be_written():
    with pytest.raises(
        NotRecordable, match=r"^Written\('context'\) is recorded .* minimum, maximum, ceil_div, floor_div"
    ):
        bool(word("context"))


@pytest.mark.parametrize(
    "name", ["", "1a", "a b", "a;b", "a-b", "a[0", "a[x]", "a.", ".a", "__import__('os')", "é", "a\n"]
)
def test_a_word_is_an_identifier_or_a_path(name):
    with pytest.raises(NotRecordable, match="neither a word nor a contract path"):
        word(name)


@pytest.mark.parametrize("name", ["batch", "layers[0].mixer.n_kv_heads", "layers[*].feed_forward.d_ff"])
def test_contract_paths_are_words(name):
    assert words(word(name) * 2) == (name,)


def test_what_changes_nothing_leaves_no_trace():
    x = word("batch")
    for same in (x * 1, 1 * x, x + 0, 0 + x, x - 0, x / 1, sum([x])):
        assert same is x
    assert type(x * 0) is type(0 * x) is int
    assert x * 0 == 0 * x == 0
    assert (0 - x).op == "neg"
    # Only the ints 0 and 1: a float zero may be a rounded one, and 0.0 is not nothing to a NaN.
    assert isinstance(x * 0.0, Written)


def test_a_deep_tree_is_read_without_recursion():
    x, n = word("batch"), 5_000
    tree = sum(x * 2 for _ in range(n))
    assert evaluate(tree, {"batch": 10**20}) == 2 * n * 10**20
    assert compile_columns({"sum": tree})({"batch": [1, 2]})["sum"].tolist() == [2 * n, 4 * n]
    assert excel(tree, str).count("+") == latex(tree, str).count("+") == n - 1


def test_a_shared_part_is_read_once():
    part = word("batch") + 1
    for _ in range(60):
        part = part + part
    assert evaluate(part, {"batch": 1}) == 2**61
    visits = []
    read(part, visits.append, visits.append, lambda op, *args: visits.append(op))
    assert len(visits) == 63


def test_reading_keeps_the_order_of_operands():
    tree = (word("past") - word("new")) / word("window")
    assert evaluate(tree, {"past": 7, "new": 1, "window": 4}) == 1.5
    assert evaluate(tree, {"past": Fraction(7), "new": 1, "window": 4}) == Fraction(3, 2)


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul, operator.truediv])
def test_numbers_on_the_left_stay_on_the_left(op):
    assert evaluate(op(12, word("batch")), {"batch": 5}) == op(12, 5)
    assert evaluate(op(word("batch"), 12), {"batch": 5}) == op(5, 12)


def test_neither_numpy_nor_sympy_is_imported_before_it_is_needed():
    code = (
        "import sys; from planner.formula import formulas; f = formulas['kv_payload'];"
        "f(1, 1, 1, 1, 1, 1); f.latex, f.excel; print({'numpy', 'sympy', 'pandas'} & set(sys.modules));"
        "f.over({w: [1] for w in f.words}); print({'sympy', 'pandas'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["set()", "set()"]
