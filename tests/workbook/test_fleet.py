"""Rows of Scenarios say of their accelerators what `fit`, the floor of `estimate` and the price list say.

These are the values beside the formulas; tests/office has the formulas computed.
"""

import openpyxl
import pandas as pd
import pytest

import planner
from planner import cost, speed
from planner.memory import fit
from planner.plan import make_plan
from planner.workbook import write_workbook

pytestmark = pytest.mark.usefixtures("few_spare_rows")

KINDS = "llama-3.1-8b mla gemma-3n-e2b gpt-oss-20b deepseek-v3.2 jamba-v0.1".split()


def rows_of(path) -> list[dict[str, object]]:
    """The filled rows of the table by their heads."""
    sheet = openpyxl.load_workbook(path, data_only=True)["Scenarios"]
    head, *rows = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=5)]
    return [dict(zip(head, row, strict=False)) for row in rows if row[0]]


def near(found: object, expected: float) -> bool:
    return abs(float(found) - expected) <= 1e-12 * abs(expected)


@pytest.fixture(scope="module")
def rows(tmp_path_factory) -> list[dict[str, object]]:
    path = tmp_path_factory.mktemp("fleet") / "plan.xlsx"
    plan = make_plan("llama-3.1-8b", accelerator="h200-sxm", tp=4, dp=2, context=1500, sequences=9, weights="fp8")
    write_workbook([plan, *KINDS[1:], "gpt2"], path)
    return rows_of(path)


@pytest.mark.parametrize("name", KINDS)
def test_a_row_answers_like_a_plan(rows, name):
    mine = [row for row in rows if row["model"] == name]
    assert len(mine) >= 3
    for row in mine:
        said = {key: row[key] for key in ("accelerator", "weights", "kv")} | {"tp": 4, "dp": 2}
        answer = fit(name, context=row["context"], sequences=row["batch"], osl=1, **said)
        floor = speed.estimate(name, isl=row["context"], osl=2, sequences=row["batch"], **said).floor
        assert row["headroom_bytes"] == answer.headroom_bytes
        assert row["headroom_gib"] == answer.headroom_bytes / 2**30
        assert row["verdict"] == answer.verdict
        assert near(row["floor_ttft_s"], floor.ttft_s)
        assert near(row["floor_tpot_s"], floor.tpot_s)
        hour = cost.cost(name, **said).usd_per_accelerator_hour
        assert row["usd_per_accelerator_hour"] == hour
        assert near(row["floor_usd_per_mtok_output"], hour * 4 * floor.tpot_s / 3600 / 5 * 1e6)  # 5 of 9 on a replica


def test_a_decoder_that_the_layout_does_not_divide_says_so_and_keeps_its_other_figures(tmp_path):
    write_workbook([make_plan("llama-3.1-8b", accelerator="h100-sxm", tp=8), "gpt2"], tmp_path / "plan.xlsx")
    row = next(row for row in rows_of(tmp_path / "plan.xlsx") if row["model"] == "gpt2")
    assert row["reason"] == "layers[0].mixer: 12 key-value heads neither divide nor are divided by 8 ranks"
    assert row["verdict"] is row["headroom_gib"] is row["floor_tpot_s"] is None
    assert row["parameters"] == planner.parameters(planner.load("gpt2"))


def test_rows_of_requests_take_the_mean_of_their_steps(tmp_path):
    frame = pd.DataFrame({"model": ["mla", "mistral-7b-v0.1"], "isl": [900, 5000], "osl": [1, 300], "batch": [4, 3]})
    write_workbook(frame.assign(accelerator="h100-sxm", usd_per_hour=2.5), tmp_path / "requests.xlsx")
    for row in rows_of(tmp_path / "requests.xlsx"):
        said = {"isl": row["isl"], "osl": row["osl"], "sequences": row["batch"], "accelerator": "h100-sxm"}
        assert row["headroom_bytes"] == fit(row["model"], **said).headroom_bytes
        floor = speed.estimate(row["model"], **said).floor
        assert near(row["floor_ttft_s"], floor.ttft_s)
        assert near(row["floor_tpot_s"], floor.tpot_s)
        assert row["usd_per_hour"] == row["usd_per_accelerator_hour"] == 2.5


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({}, "the plan names no accelerator"),
        ({"accelerator": "h100-sxm", "tp": 2, "pp": 2}, "the ranks of tp2 pp2 dp1 are not all alike"),
        ({"accelerator": "h100-sxm", "beams": 4}, "the plan says more of its load than a row does"),
        ({"accelerator": "h100-sxm", "chunk": 512}, "the plan says more of its load than a row does"),
    ],
)
def test_where_rows_cannot_follow_the_plan_the_columns_are_left_out_with_a_reason(keywords, sentence, tmp_path):
    write_workbook(make_plan("mha", **keywords), tmp_path / "plan.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "plan.xlsx")["Scenarios"]
    assert sheet["F2"].value == f"Fit, floor and price are left out: {sentence}."
    assert "verdict" not in [cell.value for cell in sheet[5]]


def test_what_nobody_publishes_is_unknown(tmp_path):
    write_workbook(make_plan("mha", accelerator="cerebras-wse-3"), tmp_path / "plan.xlsx")
    row = rows_of(tmp_path / "plan.xlsx")[0]
    assert row["verdict"] == fit("mha", accelerator="cerebras-wse-3", context=row["context"]).verdict
    unknown = ("floor_ttft_s", "floor_tpot_s", "usd_per_accelerator_hour", "floor_usd_per_mtok_output")
    assert [row[name] for name in unknown] == ["unknown"] * 4


def test_rows_of_a_rank_may_be_stored_in_another_format_than_rows_of_the_whole(tmp_path):
    """A quarter of mla's 11,008 hidden columns is no whole number of q6_k's blocks of 256."""
    said = {"accelerator": "h100-sxm", "tp": 4, "weights": "q6_k"}
    write_workbook(make_plan("mla", context=1000, **said), tmp_path / "plan.xlsx")
    row = next(row for row in rows_of(tmp_path / "plan.xlsx") if row["context"] == 1000)
    assert row["headroom_bytes"] == fit("mla", context=1000, **said).headroom_bytes
    assert near(row["floor_tpot_s"], speed.estimate("mla", isl=1000, osl=2, **said).floor.tpot_s)
