"""What lies in the file: sheets, live formulas with their values, names, protection; and texts that stay texts."""

import zipfile
from pathlib import Path

import openpyxl
import pandas as pd
import pytest

import planner
from planner.cli import main
from planner.errors import UsageError
from planner.memory import fit
from planner.plan import make_plan
from planner.summary import Load, summary
from planner.workbook import write_workbook

SHEETS = ["Start", "Inputs", "Model", "Hardware", "Results", "Scenarios", "Crossovers", "Formulas"]
EVIL = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "=cmd|' /C calc'!A0", '"&A1&"', "a*?~b")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workbook") / "plan.xlsx"
    plan = make_plan("llama-3.1-8b", accelerator="h100-sxm", context=8192, sequences=16)
    write_workbook([plan, "mla", "gemma-3-12b", "mixtral-8x7b"], path)
    return path


@pytest.fixture(scope="module")
def book(written: Path):
    return openpyxl.load_workbook(written)


@pytest.fixture(scope="module")
def cached(written: Path):
    return openpyxl.load_workbook(written, data_only=True)


def formulas(book):
    """(sheet, cell, text) of every cell with a formula."""
    for sheet in book:
        for row in sheet.iter_rows():
            yield from ((sheet.title, cell.coordinate, cell.value) for cell in row if cell.data_type == "f")


def test_sheets_stand_in_their_order_without_macros(book, written):
    assert book.sheetnames == SHEETS
    assert not any("vba" in name.lower() for name in zipfile.ZipFile(written).namelist())


def test_every_formula_has_the_value_that_it_gives(book, cached):
    found = list(formulas(book))
    assert len(found) > 2000
    assert all(cached[sheet][cell].data_type != "e" for sheet, cell, _ in found)
    assert max(len(text) for _, _, text in found) < 8192
    blank = [cell for sheet, cell, _ in found if sheet != "Scenarios" and cached[sheet][cell].value is None]
    assert blank == []


def test_cached_values_are_python_s(cached):
    rows = {row[0].value: row[1].value for row in cached["Results"].iter_rows(min_row=12)}
    answer = fit("llama-3.1-8b", accelerator="h100-sxm", context=8192, sequences=16)
    assert rows["needed"] == answer.needed_bytes
    assert rows["headroom"] == answer.headroom_bytes
    head, *cases = [[cell.value for cell in row] for row in cached["Scenarios"].iter_rows(min_row=5)]
    shown = [dict(zip(head, case, strict=True)) for case in cases if case[0]]
    assert len({case["model"] for case in shown}) == 4
    for case in shown:
        load = Load(context=case["context"], batch=case["batch"], weights=case["weights"], kv=case["kv"])
        expected = summary(planner.load(case["model"]), load)
        assert {name: case[name] for name in expected} == expected


def test_what_a_figure_is_stands_beside_it(cached):
    meanings = {row[0].value: row[4].value for row in cached["Results"].iter_rows(min_row=4)}
    assert meanings["weights"].startswith("needed: the rank's share of every tensor")
    assert meanings["request_s"] == "a request from end to end"
    assert meanings["burst_ttft_s"].startswith("TTFT of the last of all sequences")


def test_inputs_are_named_yellow_and_open_and_all_else_is_locked(book):
    names = {name: next(iter(entry.destinations)) for name, entry in book.defined_names.items() if "!" in entry.value}
    for name in ("context", "sequences", "osl", "accelerator", "memory_fraction", "llama_3_1_8b_n_heads"):
        sheet, cell = names[name]
        assert not book[sheet][cell.replace("$", "")].protection.locked
        assert book[sheet][cell.replace("$", "")].fill.fgColor.rgb.endswith("FFF6CC")
    assert all(book[name].protection.sheet for name in SHEETS if name != "Scenarios")
    assert all(book[name].protection.password is None for name in SHEETS)
    assert all(book[sheet][cell].protection.locked for sheet, cell, _ in formulas(book))


def test_lists_of_models_formats_and_accelerators_guard_their_cells(book):
    lists = {
        sheet: [rule for rule in book[sheet].data_validations.dataValidation if rule.type == "list"] for sheet in SHEETS
    }
    assert len(lists["Scenarios"]) == 4  # model, weights, kv, accelerator
    assert len(lists["Inputs"]) == 1  # accelerator
    for rule in lists["Scenarios"]:  # whose rows a user deletes, and with them what else stands there
        assert rule.formula1.startswith("Inputs!")
    inputs, (rule,) = book["Inputs"], [rule for rule in lists["Scenarios"] if "A6" in str(rule.sqref)]
    listed = [row[0].value for row in inputs[rule.formula1.removeprefix("Inputs!").replace("$", "")]]
    assert listed == ["llama-3.1-8b", "mla", "gemma-3-12b", "mixtral-8x7b"]


def test_the_first_sheet_says_what_is_planned_and_whether_it_fits(book, cached):
    assert [cached["Start"].cell(row, 2).value for row in (3, 4, 5)] == ["llama-3.1-8b", "1 x h100-sxm", "fits"]
    assert [book["Start"].cell(row, 2).value for row in (4, 5)] == ['="1 x "&accelerator', "=verdict"]


def test_a_plan_that_just_fits_is_tight(tmp_path):
    said = {"accelerator": "h100-sxm", "sequences": 16}
    said["context"] = fit("llama-3.1-8b", **said).longest_context
    write_workbook(make_plan("llama-3.1-8b", **said), tmp_path / "plan.xlsx")
    start = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)["Start"]
    assert start["B5"].value == fit("llama-3.1-8b", **said).verdict == "tight"


def test_a_load_that_cannot_be_is_named_when_it_is_written(tmp_path):
    write_workbook(make_plan("gpt2", accelerator="h100-sxm", context=2000), tmp_path / "plan.xlsx")
    sheets = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)
    assert sheets["Inputs"]["B3"].value == "more positions than the 1,024 learned ones"
    assert [cell.value for cell in sheets["Results"][6]][1::3] == ["unknown", sheets["Inputs"]["B3"].value]
    assert sheets["Start"]["B5"].value == "unknown"
    numbers = [cell.value for row in sheets["Results"].iter_rows() for cell in row if isinstance(cell.value, float)]
    assert numbers == []


def test_scenarios_are_a_table_with_a_formula_in_every_output_column_and_spare_rows(book):
    sheet = book["Scenarios"]
    table = sheet.tables["Scenarios"]
    inputs = {"model", "weights", "kv", "accelerator", "context", "batch", "count", "usd_per_hour"}
    for column in table.tableColumns:
        assert (column.calculatedColumnFormula is None) == (column.name in inputs), column.name
    _, last = table.ref.split(":")
    blank = [row for row in range(6, sheet[last].row + 1) if sheet.cell(row, 1).value is None]
    assert len(blank) >= 50
    assert all(sheet.cell(row, len(inputs) + 1).data_type == "f" for row in blank)


def test_printing_is_landscape_and_one_page_wide_or_two(book):
    for name in SHEETS:
        assert book[name].page_setup.orientation == "landscape"
        wide = (None, 1) if name != "Scenarios" else (2,)  # 1 is the default; two pages repeat the models
        assert book[name].page_setup.fitToWidth in wide
        assert book[name].page_setup.fitToHeight in (0, None)  # as many pages as it takes, or one
        assert book[name].freeze_panes is not None or name in ("Start", "Crossovers")


def test_no_number_is_shown_in_scientific_notation(book):
    shown = {
        cell.number_format for sheet in book for row in sheet.iter_rows() for cell in row if cell.value is not None
    }
    assert not any("E" in number_format.replace("General", "") for number_format in shown)


def test_texts_of_users_stay_texts(tmp_path):
    models = [planner.edit(planner.load("gpt2"), name=name, title=f"={name}") for name in EVIL]
    write_workbook(models, tmp_path / "evil.xlsx")
    book = openpyxl.load_workbook(tmp_path / "evil.xlsx")
    begin = tuple("=+-@\t")
    for sheet, cell, text in formulas(book):
        assert not any(name in text for name in EVIL if len(name) > 3), (sheet, cell)
    texts = [cell for sheet in book for row in sheet.iter_rows() for cell in row if cell.data_type == "s"]
    assert {cell.value for cell in texts} >= {name for name in EVIL if not name.startswith("\t")}
    assert all(
        not cell.hyperlink or sheet.title == "Start" for sheet in book for row in sheet.iter_rows() for cell in row
    )
    assert any(str(cell.value).startswith(begin) for cell in texts)
    charts = zipfile.ZipFile(tmp_path / "evil.xlsx")
    for name in charts.namelist():
        if "chart" in name and name.endswith(".xml"):
            assert b"cmd|" not in charts.read(name).split(b"<c:cat>")[0].split(b"<c:strCache>")[0]


def test_two_models_of_one_name_are_told_apart_or_refused(tmp_path):
    alike = [planner.edit(planner.load("gpt2"), name=name) for name in ("gpt 2", "gpt-2")]
    write_workbook(alike, tmp_path / "alike.xlsx")
    assert {"gpt_2_n_heads", "gpt_2_2_n_heads"} <= set(openpyxl.load_workbook(tmp_path / "alike.xlsx").defined_names)
    with pytest.raises(UsageError, match="is given 2 times; a workbook has a row for each model"):
        write_workbook(["mha", planner.edit(planner.load("mqa"), name="MHA")], tmp_path / "twice.xlsx")


def test_formats_may_be_spelled_in_other_ways(tmp_path):
    write_workbook(make_plan("llama-3.1-8b", weights="BF16", kv="FP8"), tmp_path / "plan.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)["Scenarios"]
    assert [cell.value for cell in sheet[6]][1:3] == ["bf16", "fp8"]
    assert planner.read_workbook(tmp_path / "plan.xlsx") == make_plan("llama-3.1-8b", weights="BF16", kv="FP8")


def test_a_swept_frame_becomes_the_scenarios(tmp_path):
    frame = planner.sweep("gqa-8", context=[1000, 2000], n_kv_heads=[8, 4], stated_parameters=[None])
    write_workbook(frame, tmp_path / "sweep.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "sweep.xlsx", data_only=True)["Scenarios"]
    head, *rows = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=5)]
    found = [dict(zip(head, row, strict=True)) for row in rows if row[0]]
    for figure in ("parameters", "weight_bytes", "cache_bytes", "prefill_flops", "decode_flops"):
        assert [row[figure] for row in found] == frame[figure].tolist()
    write_workbook(planner.sweep(["mha", "mla"], isl=1000, osl=[10, 20]), tmp_path / "requests.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "requests.xlsx", data_only=True)["Scenarios"]
    assert "request_flops" in [cell.value for cell in sheet[5]]


def test_a_frame_without_its_load_is_refused(tmp_path):
    with pytest.raises(UsageError, match="the frame does not say its whole load"):
        write_workbook(planner.compare(["mha"], context=777), tmp_path / "compare.xlsx")
    with pytest.raises(UsageError, match="needs a column 'name' or 'model'"):
        write_workbook(pd.DataFrame({"context": [1]}), tmp_path / "none.xlsx")
    with pytest.raises(UsageError, match="context = 0 is not a whole number of at least 1"):
        write_workbook(pd.DataFrame({"model": ["mha"], "context": [0]}), tmp_path / "zero.xlsx")


def test_a_frame_of_one_s_own_says_more_than_its_load(tmp_path):
    frame = pd.DataFrame({"team": ["=a", "b"], "model": "llama-3.1-8b", "n_kv_heads": [8, 4], "sequences": [2, 5]})
    write_workbook(frame.assign(context=2000, accelerator="h100-sxm"), tmp_path / "own.xlsx")
    assert planner.read_workbook(tmp_path / "own.xlsx").device.name == "h100-sxm"
    sheet = openpyxl.load_workbook(tmp_path / "own.xlsx", data_only=True)["Scenarios"]
    head, *rows = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=5)]
    found = [dict(zip(head, row, strict=True)) for row in rows if row[0]]
    assert [row["cache_bytes"] for row in found] == [131_072 * 2 * 2000, 65_536 * 5 * 2000]
    with pytest.raises(UsageError, match="accelerator differs between rows"):
        write_workbook(frame.assign(accelerator=["h100-sxm", "h200"]), tmp_path / "two.xlsx")


def test_the_command_writes_a_workbook(tmp_path, capsys):
    target = tmp_path / "plan.xlsx"
    assert main(["workbook", "mha", "mla", "--context", "4k", "--accelerator", "h100-sxm", "-o", str(target)]) == 0
    assert "wrote" in capsys.readouterr().err
    assert planner.read_workbook(target).context == 4000
    assert main(["workbook", "mha", "-o", str(tmp_path / "no" / "plan.xlsx")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert main(["workbook", "-o", str(target)]) == 2
    assert "no model" in capsys.readouterr().err


def test_an_unknown_price_is_unknown_and_not_nothing(tmp_path):
    write_workbook(make_plan("mha", accelerator="h100-pcie"), tmp_path / "plan.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)["Results"]
    rows = {row[0].value: row[1].value for row in sheet.iter_rows(min_row=14)}
    assert rows["usd_per_mtok_output"] == rows["fleet_usd_per_month"] == "unknown"
    assert rows["requests_per_month"] > 0


@pytest.mark.parametrize(("accelerator", "count"), [("cerebras-wse-3", 1), ("gh200-96gb", 2)])
def test_memory_is_answered_where_no_peak_or_link_is_known(tmp_path, accelerator, count):
    plan = make_plan("llama-3.1-8b", accelerator=accelerator, tp=count)
    write_workbook(plan, tmp_path / "plan.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)["Results"]
    assert sheet["B7"].value == fit(plan).headroom_bytes
    assert sheet["B8"].value == "unknown"
    assert planner.read_workbook(tmp_path / "plan.xlsx") == plan


def test_the_summary_has_the_headroom_of_the_worst_rank(tmp_path):
    plan = make_plan("llama-3.1-70b", accelerator="h100-sxm", tp=4, pp=2, sequences=24)
    write_workbook(plan, tmp_path / "plan.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)["Results"]
    assert [sheet["A7"].value, sheet["B7"].value] == ["headroom", fit(plan).headroom_bytes]
    assert sheet["B6"].value == "fits"


def test_without_an_accelerator_the_verdict_is_unknown(tmp_path):
    write_workbook("mha", tmp_path / "plan.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)["Results"]
    rows = {row[0].value: row[1].value for row in sheet.iter_rows()}
    assert rows["verdict"] == "unknown"
    assert rows["ttft_s"] == "unknown"
