"""A workbook with changed inputs, computed in this process by an independent program, says what Python says of them.

LibreOffice does the same with many more decoders in tests/office.
"""

import openpyxl
import pytest

import planner
from planner import cost, speed
from planner.memory import fit
from planner.plan import make_plan
from planner.summary import Load, crossover, summary
from planner.workbook import read_workbook, write_workbook
from tests.workbook.recalculate import recalculated

pytestmark = pytest.mark.usefixtures("few_spare_rows")

INPUTS = {
    "context": 5000,
    "sequences": 12,
    "osl": 77,
    "memory_fraction": 0.85,
    "compute_fraction": 0.5,
    "accelerator": "h200",
    "usd_per_hour": 3.25,
    "gemma_3_4b_window": 600,
    "gemma_3_4b_d_ff": 10_496,
    "mixtral_8x7b_top_k": 3,
}
CASES = (("gemma-3-4b", "fp8", "fp8", 700, 3), ("mixtral-8x7b", "awq-g128", "q8_0", 9000, 2))


def near(found: object, expected: float) -> bool:
    return abs(float(found) - expected) <= 1e-12 * max(abs(float(found)), abs(expected))


@pytest.mark.slow
def test_a_changed_workbook_computes_what_python_computes(tmp_path):
    written = tmp_path / "plan.xlsx"
    write_workbook([make_plan("gemma-3-4b", accelerator="h100-sxm"), "mixtral-8x7b"], written)
    book = openpyxl.load_workbook(written)
    for name, value in INPUTS.items():
        sheet, cell = next(iter(book.defined_names[name].destinations))
        book[sheet][cell.replace("$", "")] = value
    scenarios = book["Scenarios"]
    heads = {scenarios.cell(5, column).value: column for column in range(1, scenarios.max_column + 1)}
    blank = next(row for row in range(6, 99) if scenarios.cell(row, 1).value is None)  # a spare row
    for row, case in zip((6, blank), CASES, strict=True):
        for head, value in zip(("model", "weights", "kv", "context", "batch"), case, strict=True):
            scenarios.cell(row, heads[head]).value = value
    labels = [(row[0].value, row[0].row) for row in book["Results"].iter_rows(min_row=14)]
    book.save(written)
    found = recalculated(written)
    assert not [value for cells in found.values() for value in cells.values() if str(value).startswith("#")]

    plan = read_workbook(written)
    results = {label: (found["Results"].get(f"B{row}"), found["Results"].get(f"D{row}")) for label, row in labels}
    for rung in fit(plan).ladder:
        assert results[rung.term][0] == rung.bytes
    answer = speed.estimate(plan)
    for name in speed.UNITS:
        assert near(results[name][0], getattr(answer, name)), name
        assert near(results[name][1], getattr(answer.floor, name)), name
    for name, value in cost.cost(plan).figures.items():
        assert value is None or near(results[name][0], value), name

    edited = {"gemma-3-4b": plan.model, "mixtral-8x7b": planner.edit(planner.load("mixtral-8x7b"), top_k=3)}
    for row, (name, weights, kv, context, batch) in zip((6, blank), CASES, strict=True):
        load = Load(context=context, batch=batch, weights=weights, kv=kv)
        expected = summary(edited[name], load)
        expected["crossover_tokens"] = float(crossover(edited[name], load, expected["weight_bytes"]).tokens)
        for figure, value in expected.items():
            cell = scenarios.cell(row, heads[figure]).coordinate
            assert near(found["Scenarios"][cell], value), (name, figure)
