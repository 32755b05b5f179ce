"""Tables for people and for programs: what a frame looks like as text."""

import pandas
import pytest

from planner.commands import hardware, planning, tables
from planner.errors import UsageError
from planner.printing import FOLDS, HEADINGS, WIDTH, cell, emit, form_of
from planner.rows import UNITS as OF_A_ROW
from planner.sizing import UNITS as OF_SIZING

FRAME = pandas.DataFrame(
    {
        "share": [0.1, None, 1e-300, 12345678901234.5],
        "bytes": pandas.array([2**60, None, 0, -1], dtype="Int64"),
        "code": [1, 2, 3, 4],
        "fits": [True, False, True, False],
        "text": ["plain", 'a "b", c', None, "two\nlines"],
    }
)


def printed(capsys, frame, form):
    emit(frame, command="test", form=form)
    return capsys.readouterr().out


def test_csv_is_what_pandas_writes(capsys):
    assert printed(capsys, FRAME, "csv") == FRAME.to_csv(index=False, lineterminator="\n")


def test_csv_marks_what_a_spreadsheet_would_run(capsys):
    assert printed(capsys, pandas.DataFrame({"text": ["=1+1", "-3"]}), "csv") == "text\n'=1+1\n-3\n"


def test_long_texts_go_on_below_and_no_word_is_broken(capsys):
    reason = "network_bytes_per_s is not known, and two of them exchange data; " * 3 + "x" * (FOLDS[0] + 20)
    lines = printed(capsys, pandas.DataFrame({"count": [7], "reason": [reason]}), "table").splitlines()
    assert max(map(len, lines)) == len("count  ") + FOLDS[0] + 20
    assert " ".join(line[len("count  ") :] for line in lines[2:]).split() == reason.split()
    assert reason in printed(capsys, pandas.DataFrame({"reason": [reason]}), "md")


def shown(capsys, frame, spare=()):
    left_out = emit(frame, command="test", form="table", spare=spare)
    lines = capsys.readouterr().out.splitlines()
    return left_out, lines[0].split(), max(map(len, lines))


def test_a_terminal_folds_first_and_then_goes_without_what_it_can_spare(capsys):
    frame = pandas.DataFrame({"name": ["n" * 40], "reason": ["a word and " * 10], "code": ["c" * 30], "id": ["i" * 40]})
    assert shown(capsys, frame[["name", "reason"]])[1:] == (["name", "reason"], 40 + 2 + FOLDS[0])
    assert shown(capsys, frame[["name", "reason", "id"]], ["id"])[:2] == ([], ["name", "reason", "id"])
    left_out, heads, width = shown(capsys, frame, ["missing", "id", "code"])
    assert (left_out, heads) == (["id"], ["name", "reason", "code"])
    assert width <= WIDTH
    assert shown(capsys, frame)[:2] == ([], ["name", "reason", "code", "id"])  # nothing that it may leave out
    assert "i" * 40 in printed(capsys, frame, "md")


@pytest.mark.parametrize(("columns", "left_out"), [("200", []), ("100", ["id"]), ("60", ["id", "code"])])
def test_a_terminal_says_its_width(capsys, monkeypatch, columns, left_out):
    monkeypatch.setenv("COLUMNS", columns)
    frame = pandas.DataFrame({"name": ["n" * 40], "code": ["c" * 30], "id": ["i" * 40]})
    found, _, width = shown(capsys, frame, ["id", "code"])
    assert found == left_out
    assert width <= int(columns)


def test_a_table_without_rows_has_its_heads(capsys):
    assert shown(capsys, pandas.DataFrame({"name": [], "count": []}))[1] == ["name", "count"]


def test_a_suffix_says_the_form():
    assert (form_of("a/b.MD"), form_of("x.tar.json")) == ("md", "json")
    with pytest.raises(UsageError, match=r"-o plan.txt: the suffix is none of .json, .csv, .md, .parquet, .xlsx"):
        form_of("plan.txt")


def test_columns_are_as_wide_as_what_they_hold(capsys):
    assert printed(capsys, pandas.DataFrame({"count": [1]}), "table") == "count\n-----\n    1\n"


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [(0.3916, "s", "391.6 ms"), (12.5, "s", "12.5 s"), (40_201_289_728, "B", "37.44 GiB"), (0.0, "s", "0 s")],
)
def test_a_cell_says_its_unit(value, unit, shown):
    assert cell(value, unit) == shown


def test_every_figure_of_a_terminal_has_a_heading():
    figures = {*OF_SIZING, *OF_A_ROW, *hardware.ACCELERATOR_COLUMNS, *hardware.PRICE_COLUMNS, *hardware.API_COLUMNS}
    shown = {*planning.BRIEF, *planning.REJECTED, *tables.BRIEF} | figures
    assert {name for name in shown if "_" in name} - {*HEADINGS} == {"model_id"}
