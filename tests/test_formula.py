"""What every formula gets for being one: readings that agree, units that scale, sentences that help."""

import inspect
import math
import operator
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import planner
from planner.arithmetic import OPERATIONS, NotRecordable, evaluate, is_symbolic, minimum, read, word
from planner.errors import InputError, PlannerError, UnknownName, UsageError
from planner.formula import Formula, formulas, sources, symbol
from planner.quantities import QUANTITIES, quantity
from tests.spreadsheet import calculated_by_a_spreadsheet

every_formula = pytest.mark.parametrize("formula", formulas.values(), ids=list(formulas))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("=-past^2", 9),
        ("=-(past^2)", -9),
        ("=2^past^2", 64),
        ("=-INT(-past/2)", 2),
        ("=INT(-past/2)", -2),
        ("=12/past/2*MIN(past,MAX(1,2)+3)", 6),
        ("=past^(-1)", Fraction(1, 3)),
        ("=1-2-past", -4),
    ],
)
def test_the_reader_of_cells_knows_a_spreadsheet(text, value):
    assert calculated_by_a_spreadsheet(text, {"past": Fraction(3)}) == value


# ---- readings agree ------------------------------------------------------------------------------------------------


def inputs_of(formula):
    """Whole numbers for each word; exact quotients need inputs that divide."""
    drawn = st.fixed_dictionaries({name: st.integers(1, 10**6) for name in formula.words})
    if formula.name == "active_parameters":
        return drawn.map(lambda v: {**v, "routed_parameters": v["routed_parameters"] * v["n_experts"]})
    return drawn


def magnitude(formula, values):
    """What a formula would come to if it took nothing away: the scale of its rounding."""
    plus = {"-": operator.add, "neg": operator.pos}
    return read(formula.tree, values.__getitem__, float, lambda op, *args: plus.get(op, OPERATIONS[op])(*args))


@every_formula
@given(data=st.data())
@settings(max_examples=20)
def test_readings_agree(formula, data):
    values = data.draw(inputs_of(formula))
    try:
        called = formula(**values)
    except InputError:
        assume(False)
    exact = formula.expr.subs({symbol(name): value for name, value in values.items()})
    assert exact.is_Rational
    exact = Fraction(int(exact.p), int(exact.q))
    if isinstance(called, int):
        assert called == exact
    assert calculated_by_a_spreadsheet(formula.excel, {k: Fraction(v) for k, v in values.items()}) == exact

    tolerance = 1e-12 * magnitude(formula, {name: float(value) for name, value in values.items()})
    assert float(called) == pytest.approx(float(exact), rel=1e-12, abs=tolerance)
    columns = {name: [value, value] for name, value in values.items()}
    for frame in (columns, {**values, formula.words[0]: columns[formula.words[0]]}):
        np.testing.assert_allclose(formula.over(frame), float(exact), rtol=1e-12, atol=tolerance)


@every_formula
def test_whole_numbers_give_a_whole_number_unless_the_formula_divides(formula):
    values = {name: 12 * (1 + (name != "index_flops_per_pair")) for name in formula.words}
    divides = read(formula.tree, lambda name: False, lambda number: False, lambda op, *args: op == "/" or any(args))
    assert type(formula(**values)) is (float if divides else int)


# ---- units scale ---------------------------------------------------------------------------------------------------


def powers(unit):
    """Base -> power; counts, tokens and FLOPs are numbers of things and do not scale. Hours and years are times."""
    bases = {base: {base: 1} for base in ("B", "s", "USD")} | {"h": {"s": 1}, "year": {"s": 1}, "W": {"s": -1}}
    above, below = (bases.get(part, {}) for part in f"{unit}/".split("/")[:2])
    return {base: above.get(base, 0) - below.get(base, 0) for base in ("B", "s", "USD")}


@every_formula
@pytest.mark.parametrize("base", ["B", "s", "USD"])
def test_units_scale(formula, base):
    """Powers of four keep floats exact, so that whatever is rounded up is rounded up alike."""
    values = {name: float(1000 + 37 * i) for i, name in enumerate(formula.words)}
    scaled = {name: value * 4.0 ** powers(quantity(name).unit)[base] for name, value in values.items()}
    assert formula(**scaled) == formula(**values) * 4.0 ** powers(formula.unit)[base]


# ---- words, sources, doctests --------------------------------------------------------------------------------------


@every_formula
def test_a_formula_says_what_it_is(formula):
    lines = inspect.getdoc(formula).splitlines()
    assert lines[0] == formula.summary
    assert lines[0].endswith(".")
    assert any(line.startswith(">>>") for line in lines), "a doctest, with a public model"
    assert formula.source in sources()
    assert str(sources()[formula.source]["year"]) in formula.citation
    assert formula.source.endswith(str(sources()[formula.source]["year"]))
    assert formulas[formula.name] is formula


@every_formula
def test_latex_is_balanced_and_shows_every_letter(formula):
    assert formula.latex.count("{") == formula.latex.count("}")
    assert formula.latex.count(r"\left") == formula.latex.count(r"\right")
    assert "_{_" not in formula.latex
    assert all(q.letter in formula.latex for q in formula.quantities)


def test_every_word_is_used_and_every_source_is_cited():
    assert {name for formula in formulas.values() for name in formula.words} == set(QUANTITIES)
    assert {formula.source for formula in formulas.values()} == set(sources())
    for key, source in sources().items():
        assert re.fullmatch(r"[a-z]+-\d{4}", key)
        assert source["title"]
        assert {"arxiv", "venue"} & set(source)


# ---- one formula, looked at closely ---------------------------------------------------------------------------------

LLAMA = {"n_layers": 32, "batch": 1, "context": 128_000, "n_kv_heads": 8, "head_dim": 128, "kv_elem_bytes": 2}


@pytest.fixture
def kv_payload():
    return planner.formulas["kv_payload"]


def test_latex_keeps_the_order_in_which_it_is_written(kv_payload):
    assert kv_payload.latex == r"2 L B S H_{kv} d_h b_{kv}"
    assert kv_payload._repr_latex_() == r"$$\text{kv payload} = 2 L B S H_{kv} d_h b_{kv}$$"
    assert formulas["weight_bytes"]._repr_latex_() == r"$$W = N b_w$$"
    assert formulas["prefill_attention_flops"].latex == r"4 H_q d_h L B \frac{S \left(S + 1\right)}{2}"


def test_excel_is_a_live_formula_over_named_cells(kv_payload):
    assert kv_payload.excel == "=2*n_layers*batch*context*n_kv_heads*head_dim*kv_elem_bytes"


def test_decoding_expands_to_the_product_and_the_square():
    expr = formulas["decode_attention_flops"].expr
    t, p = symbol("new"), symbol("past")
    terms = sympy.Poly(sympy.expand(expr), t, p).as_dict()
    each = 4 * symbol("n_layers") * symbol("batch") * symbol("n_heads") * symbol("head_dim")
    assert terms == {(1, 1): each, (2, 0): each / 2, (1, 0): each / 2}


def test_a_call_is_exact_for_any_size_and_for_numpys_ints(kv_payload):
    assert kv_payload(**{**LLAMA, "context": 10**30}) == 2 * 32 * 10**30 * 8 * 128 * 2
    assert kv_payload(*map(np.int32, LLAMA.values())) == kv_payload(*LLAMA.values()) == 16_777_216_000
    assert type(kv_payload(*map(np.int32, LLAMA.values()))) is int
    assert kv_payload(**{**LLAMA, "kv_elem_bytes": 0.5}) == 4_194_304_000


def test_a_call_takes_columns_and_symbols_too(kv_payload):
    columns = kv_payload(**{**LLAMA, "context": np.array([2**62, 1])})
    assert columns.tolist() == [131_072 * 2.0**62, 131_072]
    assert is_symbolic(kv_payload(**{**LLAMA, "batch": word("batch")}))
    assert kv_payload(**{**LLAMA, "batch": symbol("batch")}) == 16_777_216_000 * symbol("batch")


def test_over_reads_frames(kv_payload):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([LLAMA, {**LLAMA, "n_kv_heads": 1}], index=["gqa", "mqa"]).assign(other="x")
    result = kv_payload.over(frame)
    assert result.dtype == np.float64
    assert result.tolist() == [16_777_216_000, 2_097_152_000]


def test_an_explanation_shows_how(kv_payload):
    shown = kv_payload.explain({**LLAMA, "other": 7})
    assert (shown.value, shown.unit, shown.symbol) == (16_777_216_000, "B", r"\text{kv payload}")
    assert shown.line == r"2 \cdot 32 \cdot 1 \cdot 128{,}000 \cdot 8 \cdot 128 \cdot 2"
    assert shown._repr_latex_().startswith(rf"$$\text{{kv payload}} = 2 L B S H_{{kv}} d_h b_{{kv}} = {shown.line} = ")
    assert shown._repr_latex_().endswith(r" = 16{,}777{,}216{,}000\ \mathrm{B}$$")
    lines = str(shown).splitlines()
    assert lines[0] == "kv_payload = 16,777,216,000 B"
    assert "  context       = 128,000 token  (positions of a sequence)" in lines
    assert lines[-1] == f"  source: {shown.source}"
    assert shown.source.endswith("Multi-Head Checkpoints (2023), section 2.2")


def test_tables_of_inputs(kv_payload):
    pytest.importorskip("pandas")
    frame = kv_payload.explain(LLAMA).to_frame()
    assert frame.columns.tolist() == ["word", "letter", "unit", "meaning", "value"]
    assert dict(zip(frame["word"], frame["value"], strict=True)) == LLAMA


def test_a_description_says_all_there_is(kv_payload):
    text = kv_payload.describe()
    for part in (kv_payload.summary, kv_payload.excel, kv_payload.validity, kv_payload.citation, "[token]"):
        assert part in text
    assert repr(kv_payload).startswith("<formula kv_payload(n_layers, batch,")


# ---- sentences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "error", "sentence"),
    [
        ({"batch": None}, UsageError, r"^kv_payload needs batch \(sequences that are resident at once\)$"),
        ({"n_kv_head": 1}, UnknownName, r"^unknown word of kv_payload 'n_kv_head'; did you mean 'n_kv_heads'\?$"),
        ({"context": "128k"}, InputError, r"^kv_payload: context = '128k' is not a number of at least 0$"),
        ({"context": -1}, InputError, r"^kv_payload: context = -1 is not a number of at least 0$"),
        ({"context": math.nan}, InputError, r"^kv_payload: context = nan is not a number of at least 0$"),
        ({"context": True}, InputError, r"^kv_payload: context = True is not a number of at least 0$"),
        ({"context": np.array(["1k"])}, InputError, r"^kv_payload: context = array\(\['1k'\].* is not a number of at"),
        ({"context": [1, 2]}, InputError, r"^kv_payload: context = \[1, 2\] is not a number of at least 0$"),
    ],
)
def test_a_wrong_input_is_named(kv_payload, values, error, sentence):
    values = {name: value for name, value in {**LLAMA, **values}.items() if value is not None}
    with pytest.raises(error, match=sentence):
        kv_payload(**values)


def test_missing_words_are_named_in_every_reading(kv_payload):
    sentence = r"^kv_payload needs head_dim \(width of .*\), kv_elem_bytes \(bytes of one cached element\)$"
    few = {name: LLAMA[name] for name in ("n_layers", "batch", "context", "n_kv_heads")}
    for reading in (lambda v: kv_payload(**v), kv_payload.over, kv_payload.explain):
        with pytest.raises(UsageError, match=sentence):
            reading(few)


def test_too_many_values_and_values_given_twice(kv_payload):
    with pytest.raises(UsageError, match=r"^kv_payload takes 6 values \(n_layers, .*\), not 7$"):
        kv_payload(*range(7))
    with pytest.raises(UsageError, match=r"^kv_payload got n_layers twice$"):
        kv_payload(1, n_layers=1)


def test_what_has_no_result_says_where():
    sentence = r"^cache_equals_weights_context has no value at weight_bytes = 5, batch = 1, kv_bytes_per_token = 0: "
    with pytest.raises(InputError, match=sentence):
        formulas["cache_equals_weights_context"](5, 1, 0)


def test_only_single_numbers_are_explained(kv_payload):
    with pytest.raises(UsageError, match="one number for each word can be explained"):
        kv_payload.explain({**LLAMA, "batch": np.array([1, 2])})


def made(function, unit="B", source="ainslie-2023"):
    return Formula(function, unit, source, "", "")


def test_a_formula_is_checked_when_it_is_defined():
    with pytest.raises(UnknownName, match=r"unknown quantity 'n_layer'; did you mean 'n_layers'\?"):
        made(lambda n_layer: n_layer)
    with pytest.raises(UnknownName, match=r"unknown source of .* 'ainslie-2024'; did you mean 'ainslie-2023'\?"):
        made(lambda n_layers: n_layers, source="ainslie-2024")
    with pytest.raises(PlannerError, match="unit 'GB' is none of"):
        made(lambda n_layers: n_layers, unit="GB")
    with pytest.raises(NotRecordable, match=r"window.* is recorded and has no value yet"):
        made(lambda context, window: min(context, window))
    assert made(lambda context, window: minimum(context, window))(5, 3) == 3


def test_a_name_belongs_to_one_formula(kv_payload):
    def kv_payload_elsewhere(n_layers):
        return n_layers

    kv_payload_elsewhere.__name__ = "kv_payload"
    with pytest.raises(PlannerError, match=r"formula 'kv_payload' is defined in planner.textbook.cache and in "):
        formulas.add(made(kv_payload_elsewhere))
    assert formulas["kv_payload"] is kv_payload


def test_the_registry_is_a_mapping_that_helps(kv_payload):
    assert list(formulas) == sorted(formulas)
    assert len(formulas) == len(list(formulas)) > 40
    assert "kv_payload" in formulas
    assert "kv_payloads" not in formulas
    assert formulas.get("kv_payloads") is None
    assert formulas.get("kv_payload") is kv_payload
    with pytest.raises(UnknownName, match=r"^unknown formula 'kv_payloads'; did you mean 'kv_payload'\?$"):
        formulas["kv_payloads"]


def test_the_textbook_is_imported_when_somebody_looks():
    code = (
        "import sys, planner; r = planner.formulas; print('planner.textbook' in sys.modules);"
        "r['kv_payload']; print('planner.textbook' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "True"]


def test_all_readings_from_many_threads():
    """SymPy keeps global state, and each reading is made when it is first asked for."""

    def read_all(formula):
        fresh = Formula(formula.function, formula.unit, formula.source, "", "")
        ones = dict.fromkeys(fresh.words, 3.0) | {fresh.words[0]: 6.0}
        return fresh.latex, fresh.excel, fresh.expr, fresh.over(ones).tolist(), fresh(**ones)

    some = [f for f in formulas.values() if f.name != "sparse_equals_dense_context"] * 4
    alone = list(map(read_all, some))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read_all, some)) == alone
    for formula, (*_, column, called) in zip(some, alone, strict=True):
        assert column == [pytest.approx(called, rel=1e-12)]
        assert evaluate(formula.tree, {name: symbol(name) for name in formula.words}) == formula.expr
