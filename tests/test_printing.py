"""Tables for people and for programs: what a frame looks like as text."""

import pandas
import pytest

from planner.commands import hardware, planning, tables
from planner.printing import HEADINGS, WIDEST, cell, emit
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
    reason = "network_bytes_per_s is not known, and two of them exchange data; " * 3 + "x" * (WIDEST + 20)
    lines = printed(capsys, pandas.DataFrame({"count": [7], "reason": [reason]}), "table").splitlines()
    assert max(map(len, lines)) == len("count  ") + WIDEST + 20
    assert " ".join(line[len("count  ") :] for line in lines[2:]).split() == reason.split()
    assert reason in printed(capsys, pandas.DataFrame({"reason": [reason]}), "md")


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
