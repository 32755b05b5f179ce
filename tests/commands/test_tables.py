"""planner rows: a CSV file in, the same rows with their figures out, as CSV, JSON or a spreadsheet."""

import csv
import io
import json
import subprocess
import sys
import zipfile

import pytest

from planner.printing import as_text_cell
from planner.rows import REMARKS, UNITS, plan_row
from planner.workbook.cells import Cells

CASES = """\
team,model,accelerator,context,sequences,budget,code
=cmd(),llama-3.1-8b,h100-sxm,32Ki,8,12.50,007
-2+3,deepseek-v3,h200-sxm,128k,16,-3.5,012
@x,lama,h100-sxm,100,1,,
+1,gpt2,h100-sxm,2000,,1,01
"\ttab",mixtral-8x7b,h200-sxm,9000,4,0,1
"""
OWN = CASES.partition("\n")[0].split(",")


@pytest.fixture
def cases(tmp_path):
    path = tmp_path / "cases.csv"
    path.write_text(CASES, encoding="utf-8")
    return path


def test_csv_to_csv(run, cases, tmp_path):
    status, out, err = run("rows", cases, "-o", tmp_path / "out.csv")
    assert (status, out) == (0, "")
    assert "2 of 5 rows lack figures" in err
    assert "assumed where no cell says otherwise: " in err
    assert "osl = 256" in err
    text = (tmp_path / "out.csv").read_text(encoding="utf-8")
    found = list(csv.DictReader(io.StringIO(text)))
    assert list(found[0]) == [*OWN, *UNITS, *REMARKS]
    given = list(csv.DictReader(io.StringIO(CASES)))
    texts = ["'=cmd()", "'-2+3", "'@x", "+1", "'\ttab"]  # no spreadsheet program takes them for formulas
    assert [row["team"] for row in found] == texts
    assert [[row[name] for name in OWN[1:]] for row in found] == [[row[name] for name in OWN[1:]] for row in given]
    want = plan_row("llama-3.1-8b", accelerator="h100-sxm", context=32_768, sequences=8)
    assert int(found[0]["kv_cache_bytes"]) == want["kv_cache_bytes"]
    assert float(found[0]["tpot_s"]) == pytest.approx(want["tpot_s"], rel=1e-12)
    assert [row["verdict"] for row in found] == ["fits", "does not fit", "", "", "fits"]
    assert "did you mean 'llama-7b'" in found[2]["reason"]
    assert found[3]["reason"] == "2,000 positions exceed the 1,024 learned ones of gpt2"
    assert found[2]["kv_cache_bytes"] == ""


def test_csv_to_a_spreadsheet(run, cases, tmp_path):
    assert run("rows", cases, "-o", tmp_path / "out.xlsx")[0] == 0
    sheet = Cells(str(tmp_path / "out.xlsx"))

    def column(letter):
        return [sheet.value("rows", f"{letter}{row}") for row in range(1, 7)]

    assert column("A") == ["team", "=cmd()", "-2+3", "@x", "+1", "\ttab"]
    assert column("F") == ["budget", 12.5, -3.5, None, 1, 0]
    assert column("G") == ["code", "007", "012", None, "01", "1"]
    heads = [sheet.value("rows", f"{chr(65 + place)}1") for place in range(len(OWN) + 7)]
    assert heads == [*OWN, *list(UNITS)[:7]]
    assert column("K")[1] == 32_768 * 8 * 131_072
    with zipfile.ZipFile(tmp_path / "out.xlsx") as archive:
        written = "".join(archive.read(name).decode() for name in archive.namelist() if "worksheets/sheet" in name)
        assert "<f>" not in written
        assert "in token/s" in "".join(archive.read(n).decode() for n in archive.namelist() if "comments" in n)


def test_json_has_numbers_and_units_stay_with_them(run, cases):
    status, out, _ = run("rows", cases, "--json")
    rows = json.loads(out)["rows"]
    assert status == 0
    assert [row["budget"] for row in rows] == [12.5, -3.5, None, 1, 0]
    assert rows[0]["parameters"] == 8_030_261_248
    assert rows[2]["parameters"] is None


def test_a_terminal_gets_the_figures_that_it_has_room_for(run, cases):
    status, out, _ = run("rows", cases)
    assert status == 0
    assert "floor_ttft_s" not in out
    assert "does not fit" in out
    short = plan_row("deepseek-v3", accelerator="h200-sxm", context=128_000, sequences=16)["headroom_bytes"]
    assert f"{short / 2**30:.1f} GiB" in out


def test_standard_input(cases):
    command = [sys.executable, "-m", "planner.cli", "rows", "-", "--csv"]
    done = subprocess.run(command, input=CASES.encode(), capture_output=True, check=False)
    assert done.returncode == 0
    assert len(done.stdout.decode().splitlines()) == 6


@pytest.mark.parametrize(
    "written", ["model;context\nmha;1k\n", "\ufeffmodel\tcontext\r\nmha\t1k\r\n", " model , context\nmha,1k\n"]
)
def test_separators_and_what_programs_write_before(run, tmp_path, written):
    path = tmp_path / "c.csv"
    path.write_bytes(written.encode())
    status, out, _ = run("rows", path, "--json")
    assert status == 0
    assert json.loads(out)["rows"][0]["kv_cache_bytes"] == 524_288_000


def test_a_column_that_was_meant_as_a_field_is_pointed_at(run, tmp_path):
    path = tmp_path / "c.csv"
    path.write_text("model,contxt,owner\nmha,1000,x\n")
    assert "columns that say nothing of the plan: contxt (did you mean 'context'?), owner\n" in run("rows", path)[2]


def test_commas_between_semicolons_are_refused_in_numbers_alone(run, tmp_path):
    """A decimal comma to some, thousands to others; in a list, and between commas, there is no doubt."""
    (tmp_path / "c.csv").write_text("sep=;\nmodel;lengths;usd_per_hour;team\nmha;1000,20;2.5;a, b\n")
    status, out, _ = run("rows", tmp_path / "c.csv", "--json")
    assert (status, json.loads(out)["rows"][0]["kv_cache_bytes"]) == (0, 1020 * 524_288)
    (tmp_path / "c.csv").write_text('model,context\nmha,"1,020"\n')
    assert json.loads(run("rows", tmp_path / "c.csv", "--json")[1])["rows"][0]["kv_cache_bytes"] == 1020 * 524_288


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty, or has no header row"),
        (b"\n\n", "is empty, or has no header row"),
        (b"\xff\xfe\x00m", "not text in UTF-8"),
        (b"PK\x03\x04\x00\x00", "zero bytes"),
        (b"name,context\nmha,5\n", "has no column 'model'; its columns are name, context"),
        (b"Model,Context\nmha,5\n", "has no column 'model'; did you mean 'Model'?"),
        (b"model;usd_per_hour\nmha;2\nmha; 2,500\n", "row 2: usd_per_hour = '2,500' has a comma, which between semi"),
        (b"sep=;\nmodel;context\nmha;1,5\n", "row 1: context = '1,5' has a comma, which between semicolons may be"),
        (b"model,tp,tp\nmha,1,2\n", "has 2 columns 'tp'"),
        (b"model,tp\nmha,1,2,3\n", "is no CSV table: "),
        (b'model,tp\n"mha,1\n', "is no CSV table: "),
        (b"model,reason\nmha,x\n", "a column 'reason' already"),
        (b'{"model": 1}', "has no column 'model'"),
    ],
)
def test_what_is_no_table_gets_one_sentence(run, tmp_path, data, sentence):
    path = tmp_path / "c.csv"
    path.write_bytes(data)
    status, out, err = run("rows", path)
    assert status in (2, 3)
    assert out == ""
    assert sentence in err
    assert err.startswith("planner: ")
    assert err.count("\n") == 1


def test_files_that_cannot_be_read_or_written(run, cases, tmp_path, monkeypatch):
    for place in (tmp_path / "none.csv", tmp_path):
        status, _, err = run("rows", place)
        assert status == 3
        assert "cannot be read" in err
    status, _, err = run("rows", cases, "-o", tmp_path / "none" / "out.xlsx")
    assert status == 2
    assert "cannot be written" in err.splitlines()[-1]
    monkeypatch.setattr("planner.commands.tables.LARGEST", 10)
    assert "is larger than 10 bytes; split it" in run("rows", cases)[2]


def test_a_sheet_holds_no_more_than_it_holds(run, cases, tmp_path, monkeypatch):
    monkeypatch.setattr("planner.workbook.frames.MOST_ROWS", 4)
    status, _, err = run("rows", cases, "-o", tmp_path / "out.xlsx")
    assert status == 2
    assert "5 rows of 33 cells are more than a sheet holds; write .csv instead" in err


@pytest.mark.parametrize("text", ["=1", "-2+3", "+A1", "@sum", "\tx", "\rx", "-", "=", "--1", "-1e", "-inf"])
def test_texts_that_look_like_formulas_are_marked(text):
    assert as_text_cell(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-5", "+5.25", "-1e6", "a=b", "", "1-2", 7])
def test_other_cells_stay(text):
    assert as_text_cell(text) == text
