"""A workbook that was written is read back as the plan that it was, with what its yellow cells hold by then."""

import shutil
import zipfile
from pathlib import Path

import openpyxl
import pytest

import planner
from planner.errors import InputError
from planner.plan import make_plan
from planner.workbook import read_workbook, write_workbook

pytestmark = pytest.mark.usefixtures("few_spare_rows")

PLANS = (
    ("llama-3.1-8b", {"accelerator": "h100-sxm", "context": 8192, "sequences": 16}),
    ("gemma-3-12b", {}),
    ("deepseek-v3", {"accelerator": "h200", "count": 8, "weights": "fp8", "kv": "fp8", "isl": 4096, "osl": 512}),
    ("qwen2.5-7b", {"accelerator": "l40s", "purchase_usd": 9e3, "amortisation_years": 4, "usd_per_kwh": 0.2}),
    ("mixtral-8x7b", {"accelerator": "h100-sxm", "count": 4, "lengths": (1000, 20, 4096), "engine": "sglang"}),
    ("llama-3.1-70b", {"accelerator": "h100-sxm", "tp": 4, "pp": 2, "memory_fraction": 0.8, "prefill_tokens": 4096}),
)


def changed(path: Path, values: dict[str, object]) -> Path:
    """The same workbook with other values in named cells."""
    book = openpyxl.load_workbook(path)
    for name, value in values.items():
        sheet, cell = next(iter(book.defined_names[name].destinations))
        book[sheet][cell.replace("$", "")] = value
    book.save(path)
    return path


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("once") / "plan.xlsx"
    write_workbook(make_plan("llama-3.1-8b", accelerator="h100-sxm", context=8192), path)
    return path


@pytest.fixture
def written(once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(once, tmp_path / "plan.xlsx"))


@pytest.mark.parametrize(("model", "keywords"), PLANS, ids=[model for model, _ in PLANS])
def test_round_trip(model, keywords, tmp_path):
    plan = make_plan(model, **keywords)
    write_workbook(plan, tmp_path / "plan.xlsx")
    assert read_workbook(tmp_path / "plan.xlsx") == plan


def test_a_model_that_is_no_preset_comes_back_whole(tmp_path):
    model = planner.edit(planner.load("gemma-3-12b"), {"name": "=own", "layers[*].feed_forward.d_ff": 12_288})
    write_workbook(make_plan(model, sequences=3), tmp_path / "plan.xlsx")
    assert read_workbook(tmp_path / "plan.xlsx") == make_plan(model, sequences=3)


@pytest.mark.parametrize("name", ["ours", "h100-sxm"])
def test_an_accelerator_of_one_s_own_comes_back_whole(name, tmp_path):
    """Also one that has the name of another in the catalogue: the sheets compute with its own figures."""
    own = tmp_path / f"{name}.toml"
    own.write_text(
        'base = "h100-sxm"\nmemory_bytes = "94 GiB"\nnotes = ["\\"=1+1\\""]\n[peak_flops]\nfp8 = "1.5 PFLOP/s"\n'
    )
    plan = make_plan("llama-3.1-8b", accelerator=str(own), weights="fp8", context=8192)
    write_workbook(plan, tmp_path / "plan.xlsx")
    own.unlink()
    assert read_workbook(tmp_path / "plan.xlsx") == plan
    book = openpyxl.load_workbook(tmp_path / "plan.xlsx", data_only=True)
    rows = book["Hardware"].iter_rows(min_row=5)
    listed = {row[0].value: row[8].value for row in rows if isinstance(row[8].value, int)}
    assert listed[name] == plan.device.memory_bytes == 94 * 2**30
    changed(tmp_path / "plan.xlsx", {"accelerator": "h200-sxm"})
    assert read_workbook(tmp_path / "plan.xlsx") == make_plan(
        "llama-3.1-8b", accelerator="h200-sxm", weights="fp8", context=8192
    )


@pytest.mark.parametrize(
    ("line", "other", "sentence"),
    [
        ("memory_bytes = ", "memory_bytes = 8 #", "memory_bytes = 8 B is not between 100 MB and 10 TB"),
        ('name = "ours"', 'nmae = "ours"', "accelerator: name is missing"),
        ("power_w = ", 'power_w = "hot" #', "power_w: 'hot' is not a number"),
    ],
)
def test_a_spoilt_accelerator_is_refused_like_a_file(line, other, sentence, tmp_path):
    own = tmp_path / "ours.toml"
    own.write_text(
        'memory_bytes = "94 GiB"\nbandwidth_bytes_per_s = "4 TB/s"\npower_w = 500\n[peak_flops]\nbf16 = 1e15\n'
    )
    write_workbook(make_plan("llama-3.1-8b", accelerator=str(own)), tmp_path / "plan.xlsx")
    book = openpyxl.load_workbook(tmp_path / "plan.xlsx")
    (cell,) = (cell for cell in book["Start"]["A"] if str(cell.value).startswith(line))
    cell.value = str(cell.value).replace(line, other)
    book.save(tmp_path / "plan.xlsx")
    with pytest.raises(InputError) as caught:
        read_workbook(tmp_path / "plan.xlsx")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'plan.xlsx'}: Start: accelerator: ")


def test_changed_cells_win_and_say_that_they_are_given(written):
    cells = {"context": 4000, "sequences": 9, "usd_per_hour": 2.5, "compute_fraction": 0.5, "accelerator": "b200"}
    plan = read_workbook(changed(written, {**cells, "llama_3_1_8b_d_ff": 16_384, "llama_3_1_8b_count": 30}))
    edited = planner.edit(planner.load("llama-3.1-8b"), d_ff=16_384, n_layers=30)
    expected = make_plan(edited, context=4000, sequences=9, usd_per_hour=2.5, compute_fraction=0.5, accelerator="b200")
    assert plan == expected
    assert not plan.assumed("context", "sequences", "compute_fraction")
    assert plan.assumed("osl") == {"osl": 256}


REFUSED = (
    ({"context": "8k"}, "Inputs!B15: context = '8k' is not a number"),
    ({"sequences": None}, "Inputs!B16: sequences = None is not a number"),
    ({"sequences": 2.5}, "Inputs: sequences = 2.5 is not"),
    ({"memory_fraction": 1.5}, "Inputs: memory_fraction = 1.5 is not a share above 0 and up to 1"),
    ({"llama_3_1_8b_n_kv_heads": 7}, "n_kv_heads = 7 does not divide n_heads = 32"),
    ({"accelerator": "h101"}, "Inputs: unknown accelerator 'h101'"),
    ({"planner_schema_version": 9}, "schema_version = 9 is not 1"),
)


@pytest.mark.parametrize(
    ("cells", "sentence"), REFUSED, ids=[next(iter(cells)) + str(i) for i, (cells, _) in enumerate(REFUSED)]
)
def test_a_cell_that_cannot_be_is_refused_with_its_place(written, cells, sentence):
    with pytest.raises(InputError) as caught:
        read_workbook(changed(written, cells))
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(f"{written}: ")
    assert "\n" not in str(caught.value)


def test_a_foreign_or_damaged_file_gets_one_sentence(written, tmp_path):
    foreign = openpyxl.Workbook()
    foreign.save(tmp_path / "foreign.xlsx")
    (tmp_path / "text.xlsx").write_text("model = 1")
    (tmp_path / "cut.xlsx").write_bytes(written.read_bytes()[:5000])
    with zipfile.ZipFile(written) as whole, zipfile.ZipFile(tmp_path / "part.xlsx", "w") as part:
        for name in whole.namelist():
            if not name.endswith("sharedStrings.xml"):
                part.writestr(name, whole.read(name))
    with zipfile.ZipFile(written) as whole, zipfile.ZipFile(tmp_path / "spoilt.xlsx", "w") as spoilt:
        for name in whole.namelist():
            spoilt.writestr(name, whole.read(name)[:-20] if name.endswith("sheet2.xml") else whole.read(name))
    with zipfile.ZipFile(tmp_path / "bomb.xlsx", "w") as bomb:
        bomb.writestr("xl/workbook.xml", '<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>')
    for name, sentence in {
        "absent.xlsx": "cannot be read: No such file or directory",
        "foreign.xlsx": "was not written by `planner workbook`, and only that can be read",
        "text.xlsx": "is no .xlsx workbook",
        "cut.xlsx": "is no .xlsx workbook",
        "part.xlsx": "is damaged: cell",
        "spoilt.xlsx": "is damaged: xl/worksheets/sheet2.xml",
        "bomb.xlsx": "is damaged: xl/workbook.xml declares a document type",
    }.items():
        with pytest.raises(InputError) as caught:
            read_workbook(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path / name}: {sentence}"), name


def test_a_name_that_is_gone_is_said(written):
    book = openpyxl.load_workbook(written)
    del book.defined_names["context"]
    book.save(written)
    with pytest.raises(InputError, match="no cell is named context any more; write the workbook anew"):
        read_workbook(written)
