"""The sheet of crossovers: closed forms against sums by hand, and the table under the chart against the core."""

import openpyxl
import pytest

import planner
from planner.plan import make_plan
from planner.workbook import write_workbook

pytestmark = pytest.mark.usefixtures("few_spare_rows")

MODELS = ("llama-3.1-8b", "gemma-3-4b")


@pytest.fixture(scope="module")
def sheet(tmp_path_factory):
    path = tmp_path_factory.mktemp("crossovers") / "plan.xlsx"
    write_workbook([make_plan(MODELS[0], accelerator="h100-sxm", context=8192, sequences=16), MODELS[1]], path)
    return openpyxl.load_workbook(path, data_only=True)["Crossovers"]


def rows_below(sheet, head):
    """First cell -> the other four, of the rows between a head and the next blank row."""
    found, column = {}, [cell.value for cell in sheet["A"]]
    for row in range(column.index(head) + 2, len(column) + 1):
        name, *rest = (cell.value for cell in sheet[row][:5])
        if name is None:
            return found
        found[name] = rest
    return found


LAYER = 2 * 4096 * (4096 + 2 * 1024 + 4096)  # FLOPs of its projections for one position
CORE = 4 * 32 * 128  # and of its scores and values for each cached one
BY_HAND = {
    "cache_equals_weights_context": 16_060_522_496 / (16 * 131_072),
    "cache_equals_weights_batch": 16_060_522_496 / (8192 * 131_072),
    "core_equals_projections_decode": LAYER / CORE,
    "core_equals_projections_prefill": 2 * LAYER / CORE - 1,
    "core_equals_layer_decode": (LAYER + 2 * 3 * 4096 * 14_336) / CORE,
    "ridge_batch": 989.4e12 * 2 / (2 * 3.35e12),
}


def test_closed_forms_have_the_values_of_sums_by_hand(sheet):
    found = rows_below(sheet, "crossover")
    assert {name: found[name][0] for name in BY_HAND} == pytest.approx(BY_HAND, rel=1e-12)


def test_every_closed_form_says_what_it_is_and_what_it_takes(sheet):
    taken = {word: value for word, (value, *_) in rows_below(sheet, "word").items()}
    for name, (value, *said) in rows_below(sheet, "crossover").items():
        formula = planner.formulas[name]
        assert value == pytest.approx(formula(**{word: taken[word] for word in formula.words}), rel=1e-12)
        assert said == ["" if formula.unit == "1" else formula.unit, formula.summary, formula.validity]


def test_the_table_under_the_chart_goes_from_nothing_to_the_longest_context(sheet):
    heads = [cell.value for cell in sheet[5][7:12]]
    assert heads == ["context", *(f"{name}: {what}" for name in MODELS for what in ("cache", "weights"))]
    rows = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=6, max_row=38, min_col=8, max_col=12)]
    assert (rows[0][0], rows[-1][0]) == (0, 131_072)
    for context, *figures in rows:
        models = map(planner.load, MODELS)
        expected = [n for m in models for n in (planner.cache_bytes(m, context), planner.weight_bytes(m))]
        assert figures == [n / 2**30 for n in expected]
