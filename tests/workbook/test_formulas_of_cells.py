"""The texts in the cells, computed by an independent evaluator of spreadsheet formulas, say what Python says.

The evaluator is the package `formulas`; it knows the functions but neither tables nor SUMIFS over them, so the figures
are read from their words here, and from whole files in tests/office.
"""

from fractions import Fraction

import formulas as outside
import pytest

import planner
from planner import cost, speed
from planner.arithmetic import evaluate
from planner.memory import fit
from planner.notation import excel
from planner.plan import make_plan
from planner.summary import Load, crossover, summary
from planner.workbook import coefficients
from planner.workbook.contents import contents
from planner.workbook.live_plan import live_plan
from planner.workbook.scenarios import table_of
from planner.workbook.steps import Steps

pytestmark = pytest.mark.usefixtures("few_spare_rows")

KINDS = (
    "llama-3.1-8b mha mistral-7b-v0.1 gemma-3-12b llama-4-scout deepseek-v3.2 mixtral-8x7b jamba-v0.1 mamba-130m"
).split()
LOADS = ((1, 1), (1000, 3), (4096, 1), (100_003, 7))


def compiled(text: str):
    """A function of the values of the words in a formula."""
    function = outside.Parser().ast(f"={text}")[1].compile()
    return lambda values: function(*(float(values[name.lower()]) for name in function.inputs))


def near(found, expected) -> bool:
    return abs(float(found) - float(expected)) <= 1e-12 * max(abs(float(found)), abs(float(expected)))


@pytest.fixture(scope="module")
def made():
    return contents(KINDS)


@pytest.fixture(scope="module")
def columns(made):
    """Column -> (tree, compiled text), steps first."""
    table = table_of(made)
    trees = {**table.steps.trees, **table.figures}
    return {name: (tree, compiled(excel(tree, str))) for name, tree in trees.items()}


@pytest.mark.parametrize("name", KINDS)
def test_one_column_formula_serves_all_decoders(made, columns, name):
    at = KINDS.index(name)
    one, condensed = made.subjects[at], made.condensed[at]
    trees = {
        **coefficients.sizes(one),
        "weight_bytes": coefficients.weight_bytes(one, "awq-g128"),
        **coefficients.widths(condensed, made.slots),
        **coefficients.multiply_adds(condensed, made.slots),
        **coefficients.cache(one, condensed, made.slots, "q8_0"),
    }
    numbers = {word: evaluate(tree, one.values) for word, tree in trees.items()}
    for context, batch in LOADS:
        row, exact = dict(numbers, context=context, batch=batch), dict(numbers, context=context, batch=batch)
        for column, (tree, text) in columns.items():
            if column not in numbers:
                exact[column] = evaluate(tree, exact)
                row[column] = text(row)
        expected = summary(one.architecture, Load(context=context, batch=batch, weights="awq-g128", kv="q8_0"))
        for figure, value in expected.items():
            assert exact[figure] == value
            assert near(row[figure], value), figure


@pytest.mark.parametrize("name", KINDS)
def test_coefficients_follow_an_edited_contract(made, name):
    at = KINDS.index(name)
    one, condensed = made.subjects[at], made.condensed[at]
    load = Load(context=5000, batch=2, weights="bf16", kv="bf16")
    table = table_of(made)
    for field in one.fields:
        if field.path.endswith((".count", "n_kv_heads", "head_dim")):
            continue  # a pattern, or a rule between two fields, may forbid it
        edited = planner.edit(one.architecture, field.changes(field.value * 2))
        cells = {**one.values, field.name: field.value * 2}
        numbers = {"context": 5000, "batch": 2, "weight_bytes": evaluate(coefficients.weight_bytes(one, "bf16"), cells)}
        for trees in (
            coefficients.sizes(one),
            coefficients.widths(condensed, made.slots),
            coefficients.multiply_adds(condensed, made.slots),
            coefficients.cache(one, condensed, made.slots, "bf16"),
        ):
            numbers |= {word: evaluate(tree, cells) for word, tree in trees.items()}
        for column, tree in {**table.steps.trees, **table.figures}.items():
            if column not in numbers:
                numbers[column] = evaluate(tree, numbers)
        assert {figure: numbers[figure] for figure in summary(edited, load)} == summary(edited, load), field.path


@pytest.mark.parametrize("name", KINDS)
def test_crossover_is_the_last_of_straight_lines(made, name):
    at = KINDS.index(name)
    one, condensed = made.subjects[at], made.condensed[at]
    table = table_of(made)
    trees = {
        "weight_bytes": coefficients.weight_bytes(one, "bf16"),
        **coefficients.widths(condensed, made.slots),
        **coefficients.cache(one, condensed, made.slots, "bf16"),
    }
    numbers = {"batch": 3, **{word: evaluate(tree, one.values) for word, tree in trees.items()}}
    load = Load(batch=3, weights="bf16", kv="bf16")
    expected = crossover(one.architecture, load, numbers["weight_bytes"])
    rate = evaluate(table.crossing.rate, numbers)
    assert (rate == 0) == (expected.limit is not None)
    if expected.limit is not None:
        assert evaluate(table.crossing.limit, numbers) == expected.limit
        return
    lines = []
    for tree in table.crossing.lines:
        try:
            lines.append(evaluate(tree, numbers))
        except ZeroDivisionError:
            continue  # IFERROR in the cell
    assert near(max(lines), expected.tokens)


PLANS = (
    ("llama-3.1-8b", {"accelerator": "h100-sxm", "context": 8192, "sequences": 16}),
    ("gemma-3-12b", {"accelerator": "h100-sxm", "isl": 3000, "osl": 100, "sequences": 8, "usd_per_hour": 2.5}),
    ("deepseek-v3", {"accelerator": "h200", "count": 8, "weights": "fp8", "sequences": 32}),
    ("mixtral-8x7b", {"accelerator": "h100-sxm", "count": 2, "context": 4096, "sequences": 4}),
    ("jamba-v0.1", {"accelerator": "h100-sxm", "count": 4, "context": 65536, "sequences": 4}),
    ("llama-3.1-70b", {"accelerator": "h100-sxm", "tp": 4, "pp": 2, "sequences": 24}),
)
CHANGES = {"sequences": 12, "osl": 77, "compute_fraction": 0.55, "memory_fraction": 0.85, "seconds_per_layer": 3e-5}


@pytest.mark.parametrize(("model", "keywords"), PLANS, ids=[model for model, _ in PLANS])
def test_a_plan_in_words_answers_like_the_plan(model, keywords):
    plan = make_plan(model, **keywords)
    live = live_plan(plan)
    width = next(field for field in live.subject.fields if field.path.endswith("d_ff"))
    changed = plan.changed(**CHANGES, model=planner.edit(plan.model, width.changes(width.value + 512)))
    values = {**live.values, **CHANGES, width.name: width.value + 512}

    answer = fit(changed)
    exact = {**values, "memory_fraction": Fraction(85, 100)}
    for (_, needed, reserved), rank in zip(live.answers.ladder, _ranks(answer), strict=True):
        found = {term: evaluate(tree, exact) for term, tree in {**needed, **reserved}.items()}
        assert found == rank

    timing, money = speed.estimate(changed), cost.cost(changed)
    trees = {name: getattr(live.answers.estimate, name) for name in speed.UNITS}
    trees |= {f"floor {name}": getattr(live.answers.floor, name) for name in speed.UNITS}
    trees |= {name: tree for name, tree in live.answers.cost.items() if tree is not None}
    expected = {name: getattr(timing, name) for name in speed.UNITS}
    expected |= {f"floor {name}": getattr(timing.floor, name) for name in speed.UNITS}
    expected |= {name: value for name, value in money.figures.items() if value is not None}
    steps = Steps("step")
    roots = {name: steps.split(tree) for name, tree in trees.items()}
    for name, tree in steps.trees.items():
        values[name] = compiled(excel(tree, str))(values)
    for name, tree in roots.items():
        assert near(compiled(excel(tree, str))(values), expected[name]), name


def _ranks(answer) -> list[dict[str, int]]:
    names = dict.fromkeys(rung.rank for rung in answer.ladder)
    return [{rung.term: rung.bytes for rung in answer.ladder if rung.rank == name} for name in names]


def test_a_word_that_would_give_another_figure_stays_a_number():
    """Rows of 896 are no whole blocks of q4_k, and with 8 ranks the KV heads decide who holds a copy."""
    small = live_plan(make_plan("qwen2.5-0.5b", weights="q4_k"))
    assert "d_model" in [field.path for field in small.subject.fixed]
    divided = live_plan(make_plan("llama-3.1-70b", accelerator="h100-sxm", count=8))
    assert "layers[0].mixer.n_kv_heads" in [field.path for field in divided.subject.fixed]
    alone = live_plan(make_plan("llama-3.1-70b", accelerator="h200"))
    assert "layers[0].mixer.n_kv_heads" in [field.path for field in alone.subject.fields]


def test_an_accelerator_is_offered_where_the_same_formulas_hold():
    live = live_plan(make_plan("llama-3.1-70b", accelerator="h100-sxm", count=8))
    assert {"h100-sxm", "h200", "b200"} <= set(live.movable())
    assert not {"rtx-4090", "l40s"} & set(live.movable())  # eight of them have no common link
