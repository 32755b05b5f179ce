"""Compiled columns against exact arithmetic, row by row; and what the compiler owes: few steps, little memory."""

import math
import operator
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from planner.arithmetic import (
    NotRecordable,
    ceil_div,
    exact_div,
    floor_div,
    maximum,
    minimum,
    read,
    triangle,
    word,
)
from planner.columns import CHUNK, compile_columns
from planner.errors import InputError

WORDS = ("past", "new", "window")
PAST, NEW, WINDOW = map(word, WORDS)

leaves = st.one_of(st.sampled_from([PAST, NEW, WINDOW]), st.integers(0, 12))
ADD = [lambda a, b: a + b, lambda a, b: a * b, minimum, maximum]
WHOLE = [*ADD, lambda a, b: a - b, ceil_div, floor_div, lambda a, b: -a, lambda a, b: a**2, lambda a, b: triangle(a)]
REAL = [*ADD, lambda a, b: a / b, lambda a, b: a * Fraction(3, 7), lambda a, b: a * 0.1, lambda a, b: (1 + a) ** -2]


def recorded(operations):
    def combine(children):
        return st.tuples(st.sampled_from(operations), children, children)

    return st.recursive(leaves, combine, max_leaves=14)


def build(shape):
    """The tree of a drawn shape; a division of numbers by zero is drawn again."""
    if not isinstance(shape, tuple):
        return shape
    operation, a, b = shape
    try:
        return operation(build(a), build(b))
    except ZeroDivisionError:
        assume(False)


EXACT = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "exact_div": operator.truediv,
    "**": lambda a, b: a ** int(b),
    "neg": operator.neg,
    "minimum": min,
    "maximum": max,
    "ceil_div": lambda a, b: Fraction(math.ceil(a / b)),
    "floor_div": lambda a, b: Fraction(math.floor(a / b)),
}


def exactly(tree, row):
    """The value of a tree in fractions, and the largest value on the way to it."""
    passed = [Fraction(0)]

    def operation(op, *args):
        passed.append(EXACT[op](*args))
        return passed[-1]

    try:
        return read(tree, {w: Fraction(v) for w, v in row.items()}.__getitem__, Fraction, operation), max(
            map(abs, passed)
        )
    except ZeroDivisionError:
        assume(False)


def tables(least):
    """A few rows of whole numbers for the three words."""
    values = st.lists(st.tuples(*(st.integers(least, 60) for _ in WORDS)), min_size=1, max_size=4)
    return values.map(lambda rows: [dict(zip(WORDS, row, strict=True)) for row in rows])


def calculated(trees, rows):
    return compile_columns(trees)({name: np.array([row[name] for row in rows]) for name in WORDS}, len(rows))


def parts(shape):
    """A drawn shape and all that it is made of: results that are also steps on the way to other results."""
    yield shape
    if isinstance(shape, tuple):
        yield from parts(shape[1])
        yield from parts(shape[2])


@given(shapes=st.lists(recorded(WHOLE), min_size=1, max_size=2), rows=tables(0), order=st.randoms())
def test_whole_numbers_come_out_exactly(shapes, rows, order):
    figures = [build(part) for shape in shapes for part in parts(shape)]
    order.shuffle(figures)
    trees = {f"figure{i}": figure for i, figure in enumerate(figures)}
    expected = {name: [exactly(tree, row) for row in rows] for name, tree in trees.items()}
    assume(all(largest < 2**40 for column in expected.values() for _, largest in column))
    for name, column in calculated(trees, rows).items():
        assert column.tolist() == [value for value, _ in expected[name]]


@given(shape=recorded(REAL), rows=tables(1))
def test_real_numbers_agree_to_the_last_bits(shape, rows):
    tree = build(shape)
    expected = [float(exactly(tree, row)[0]) for row in rows]
    np.testing.assert_allclose(calculated({"figure": tree}, rows)["figure"], expected, rtol=1e-12)


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_roundings_of_exact_multiples_are_right(off):
    """A product with a reciprocal is wrong for one in ten of these 28,672 multiples."""
    multiples = np.arange(1, 65)
    up, down = multiples + (off > 0), multiples - (off < 0)
    for d in range(2, 450):
        for x, divisor in ((PAST, d), (3 * PAST, 3 * d), (PAST / 3, Fraction(d, 3)), (PAST * Fraction(7, d), 7)):
            result = compile_columns({"up": ceil_div(x, divisor), "down": floor_div(x, divisor)})
            result = result({"past": multiples * d + off})
            np.testing.assert_array_equal(result["up"], up)
            np.testing.assert_array_equal(result["down"], down)


def test_a_divisor_may_be_a_column():
    d, k = np.meshgrid(np.arange(1, 449), np.arange(1, 65))
    columns = {"past": (d * k).ravel(), "window": d.ravel()}
    for x, y in ((PAST, WINDOW), (6 * PAST, 6 * WINDOW), (2 * PAST, 4 * WINDOW / 2)):
        result = compile_columns({"up": ceil_div(x, y), "down": floor_div(x, y)})(columns)
        np.testing.assert_array_equal(result["up"], k.ravel())
        np.testing.assert_array_equal(result["down"], k.ravel())


def test_equal_parts_are_computed_once():
    program = compile_columns({"a": 3 * (PAST * NEW) + 1, "b": (NEW * PAST) * 5, "c": minimum(NEW * PAST, WINDOW)})
    assert sum(step[0] == "multiply" and len(set(step[1])) == 2 for step in program.steps) == 3  # P T, 3 P T, 5 P T
    shared = compile_columns({"a": 2 * PAST + 2 * NEW, "b": (3 * PAST + 3 * NEW) * WINDOW})
    assert sum(step[0] == "add" for step in shared.steps) == 1


def test_a_fold_over_equal_layers_is_one_product():
    trees = {
        "cache": sum(2 * 8 * 128 * 2 * PAST * NEW for _ in range(61)),
        "pairs": sum(4 * triangle(PAST) for _ in range(61)),
    }
    program = compile_columns(trees)
    assert len(program.steps) <= 6
    result = program({"past": [10], "new": [3]})
    assert result["cache"] == [61 * 4096 * 30]
    assert result["pairs"] == [61 * 4 * 55]


def test_what_is_subtracted_comes_last():
    assert [step[0] for step in compile_columns({"rest": 5 - PAST}).steps] == ["subtract"]
    assert [step[0] for step in compile_columns({"rest": -PAST + NEW}).steps] == ["subtract"]


def test_results_that_feed_each_other_keep_their_values():
    trees, expected = {}, {}
    figure, number = PAST, 3
    for i in range(12):
        trees[f"up{i}"], expected[f"up{i}"] = figure, number
        trees[f"low{i}"], expected[f"low{i}"] = minimum(figure * NEW, WINDOW + i), min(number * 2, 1000 + i)
        figure, number = figure * NEW + WINDOW, number * 2 + 1000
    for names in (list(trees), list(reversed(trees))):
        result = compile_columns({name: trees[name] for name in names})({"past": [3], "new": [2], "window": [1000]})
        assert {name: column[0] for name, column in result.items()} == expected


def test_two_results_do_not_take_each_others_room():
    program = compile_columns({"whole": minimum(PAST, NEW) + PAST * NEW, "part": PAST * NEW})
    assert program({"past": [2], "new": [5]}) == {"whole": [12], "part": [10]}


def test_a_long_sum_needs_little_room():
    tree = sum(minimum(PAST * i, WINDOW) * NEW for i in range(1, 200))
    assert compile_columns({"sum": tree}).n_registers <= 4


def test_numbers_are_folded_exactly_before_the_columns_come():
    tree = floor_div(PAST * WINDOW, 10**30) + exact_div(PAST * 3, 2)
    result = compile_columns({"figure": tree})({"past": [2, 4], "window": 10**30})
    assert result["figure"].tolist() == [2 + 3, 4 + 6]
    far = compile_columns({"difference": PAST * (WINDOW - 10**20)})
    assert far({"past": [2], "window": 10**20 + 7})["difference"].tolist() == [14]
    assert compile_columns({"figure": PAST / WINDOW})({"past": 1, "window": 3}, 2)["figure"].tolist() == [1 / 3, 1 / 3]


def test_a_result_is_as_long_as_the_columns_or_as_asked():
    program = compile_columns(
        {"sum": PAST + NEW, "five": 5, "nothing": 0, "nan": math.nan, "word": PAST, "again": PAST + NEW}
    )
    column = np.arange(3.0)
    result = program({"past": column, "new": 1})
    assert result["sum"].tolist() == result["again"].tolist() == [1, 2, 3]
    assert result["five"].tolist() == [5, 5, 5]
    assert result["nothing"].tolist() == [0, 0, 0]
    assert np.isnan(result["nan"]).all()
    assert result["word"].tolist() == [0, 1, 2]
    result["word"][:] = 9
    result["sum"][:] = 9
    assert column.tolist() == [0, 1, 2]
    assert result["again"].tolist() == [1, 2, 3]
    assert program({"past": 1, "new": 1})["sum"].tolist() == [2]
    assert program({"past": 1, "new": 1}, rows=4)["sum"].tolist() == [2] * 4
    assert program({"past": [], "new": []})["sum"].tolist() == []
    assert compile_columns({"five": 5})({}, rows=2)["five"].tolist() == [5, 5]


@pytest.mark.parametrize("n", [1, CHUNK - 1, CHUNK, CHUNK + 2, 2 * CHUNK + 3])
def test_chunks_meet_without_a_seam(n):
    past, new = np.arange(n), np.arange(n)[::-1]
    program = compile_columns(
        {"flops": NEW * PAST + triangle(NEW), "cut": (minimum(PAST, NEW) + 1) * (maximum(PAST, 7) + 2)}
    )
    result = program({"past": past, "new": new})
    assert program.n_registers > 0
    np.testing.assert_array_equal(result["flops"], new * past + new * (new + 1) // 2)
    np.testing.assert_array_equal(result["cut"], (np.minimum(past, new) + 1) * (np.maximum(past, 7) + 2))


def test_int64_columns_do_not_wrap():
    big = np.array([2**40, 3_000_000_000], dtype=np.int64)
    result = compile_columns({"square": PAST**2, "pairs": triangle(PAST)})({"past": big})
    assert result["square"].tolist() == [2.0**80, 9e18]
    assert result["pairs"][0] == 2**39 * (2**40 + 1)


def test_an_exponent_may_be_a_column_a_number_or_half_a_number():
    program = compile_columns({"left": 8 * (1.0 - (1.0 - 0.25) ** PAST), "both": NEW**PAST})
    frame = {"past": np.array([1, 2, 40]), "new": np.array([3, 3, 1])}
    result = program(frame)
    np.testing.assert_allclose(result["left"], [8 * (1 - 0.75**n) for n in (1, 2, 40)], rtol=1e-15)
    assert result["both"].tolist() == [3, 9, 1]
    assert program({"past": 2, "new": np.array([3, 5])})["both"].tolist() == [9, 25]
    assert program({"past": 0.5, "new": np.array([4, 9])})["both"].tolist() == [2, 3]


def test_division_by_zero_marks_the_row_and_warns_nobody():
    program = compile_columns(
        {"ratio": PAST / NEW, "fixed": PAST / 0, "up": ceil_div(PAST, NEW), "none": word("new") ** -1}
    )
    result = program({"past": [1, 0, 1], "new": [0, 0, 2]})
    np.testing.assert_array_equal(result["ratio"], [np.inf, np.nan, 0.5])
    np.testing.assert_array_equal(result["fixed"], [np.inf, np.nan, np.inf])
    np.testing.assert_array_equal(result["up"], [np.inf, np.nan, 1])
    np.testing.assert_array_equal(result["none"], [np.inf, np.inf, 0.5])
    assert compile_columns({"ratio": PAST / NEW})({"past": 5, "new": 0})["ratio"] == [np.inf]


def test_nan_stays_in_its_row():
    trees = {"low": minimum(PAST, NEW), "sum": PAST + NEW, "up": ceil_div(PAST, 3)}
    for past in ([np.nan, 4.0], np.array([np.nan, 4.0], dtype=object)):
        result = compile_columns(trees)({"past": past, "new": [1, 1]})
        assert all(np.isnan(column[0]) and not np.isnan(column[1]) for column in result.values())
    assert np.isnan(compile_columns(trees)({"past": math.nan, "new": [1, 1]})["low"]).all()
    assert compile_columns(trees)({"past": math.inf, "new": [1, 1]})["low"].tolist() == [1, 1]


def test_contract_paths_are_columns_like_any_other():
    path = "layers[0].mixer.n_kv_heads"
    assert compile_columns({"double": 2 * word(path)})({path: [1, 8]})["double"].tolist() == [2, 16]


def test_a_hostile_name_never_gets_as_far_as_a_column():
    with pytest.raises(NotRecordable):
        compile_columns({"x": word("().__class__")})


def test_frames_are_read_by_position():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"past": [1, 2], "new": pandas.array([3, None], dtype="Int64"), "x": ["a", "b"]}, index=[7, 7]
    )
    result = compile_columns({"sum": PAST + NEW, "double": 2 * PAST})(frame)
    assert result["sum"][0] == 4
    assert np.isnan(result["sum"][1])
    assert result["double"].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("frame", "rows", "sentence"),
    [
        ({"past": [1]}, None, r"the table has no new \(positions processed after them\)"),
        ({"past": [1, 2], "new": [1, 2, 3]}, None, r"columns differ in length: past has 2, new has 3"),
        ({"past": [1, 2], "new": 1}, 5, r"columns differ in length: past has 2; 5 rows are asked for"),
        (
            {"past": ["a", "b"], "new": 1},
            None,
            r"column past \(positions already cached\) holds something .* not a number",
        ),
        ({"past": "128k", "new": 1}, None, r"past \(positions already cached\) = '128k' is not a number"),
        ({"past": [1, 2], "new": None}, None, r"new .* = None is not a number"),
        ({"past": [[1, 2]], "new": [1]}, None, r"column past .* holds something that is not a number"),
    ],
)
def test_what_cannot_be_calculated_is_said(frame, rows, sentence):
    with pytest.raises(InputError, match=sentence):
        compile_columns({"sum": PAST + NEW})(frame, rows)


def test_memory_is_bounded_by_the_chunk():
    program = compile_columns({"sum": sum(minimum(PAST * i, WINDOW) * NEW for i in range(1, 30))})
    columns = {name: np.arange(40 * CHUNK) for name in WORDS}
    program({name: column[:1] for name, column in columns.items()})
    tracemalloc.start()
    result = program(columns)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < result["sum"].nbytes + 12 * 8 * CHUNK


def test_one_program_serves_many_threads():
    program = compile_columns({"flops": NEW * PAST + triangle(NEW), "cut": minimum(PAST, WINDOW) / NEW})
    random = np.random.default_rng(1)
    tables = [{name: random.integers(1, 1000, 3 * CHUNK) for name in WORDS} for _ in range(4)]
    alone = [program(table) for table in tables]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(program, tables * 8))
    for i, result in enumerate(together):
        for name, column in result.items():
            np.testing.assert_array_equal(column, alone[i % 4][name])


@pytest.mark.parametrize("shape", [(5, 7), (1, 9), (9, 1), (CHUNK + 3, 2), (3, CHUNK + 1)])
def test_a_grid_varies_only_where_its_columns_do(shape):
    past, new = np.arange(1.0, shape[0] + 1)[:, None], np.arange(2.0, shape[1] + 2)[None]
    trees = {"outer": 3 * PAST + triangle(PAST), "inner": minimum(NEW, 4), "five": 5, "word": NEW}
    trees["both"] = PAST * NEW + 1
    out = {name: np.full(shape, -1.0) for name in trees}
    result = compile_columns(trees).grid({"past": past, "new": new}, shape, out)
    expected = {"outer": 3 * past + past * (past + 1) / 2, "inner": np.minimum(new, 4), "five": 5.0, "word": new}
    for name, want in {**expected, "both": past * new + 1}.items():
        np.testing.assert_array_equal(*np.broadcast_arrays(result[name], want))
    assert [result[name].shape for name in ("outer", "inner", "five")] == [past.shape, new.shape, (1, 1)]
    assert np.may_share_memory(result["both"], out["both"])
