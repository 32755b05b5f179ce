"""The workbook, its inputs changed and computed anew by LibreOffice, says what Python says of the changed inputs."""

import zipfile
from pathlib import Path

import pandas as pd
import pytest

import planner
from planner import cost, speed
from planner.memory import fit
from planner.plan import make_plan
from planner.summary import Load, crossover, summary
from planner.textbook.cost import usd_per_mtok
from planner.workbook import read_workbook, write_workbook
from planner.workbook.subject import subject
from tests.office.office import Office, change, errors, values

MODELS = {
    "dense": "llama-3.1-8b llama-3.1-70b llama-2-7b llama-3.2-1b qwen2.5-7b qwen2.5-72b phi-4 mistral-7b-v0.3 gpt2 "
    "gpt-j-6b bloom-7b1 opt-6.7b pythia-6.9b falcon-7b falcon-40b mpt-7b command-r olmo-2-7b mha gqa-8 mqa",
    "window": "mistral-7b-v0.1 gemma-2-9b gemma-3-12b gemma-3n-e2b gpt-oss-20b llama-4-scout command-a",
    "latent": "mla deepseek-v2-lite deepseek-v3 deepseek-v3.2 kimi-k2 minicpm3-4b deepseek-v4-flash",
    "experts": "mixtral-8x7b olmoe-1b-7b dbrx granite-3.1-1b-a400m glm-4.5-air",
    "hybrid": "jamba-v0.1 bamba-9b falcon-h1-7b mamba-130m nemotron-h-56b lfm2-1.2b minimax-text-01",
}
LOADS = ((1, 1), (700, 3), (1000, 17), (1800, 2), (2000, 64))
NEW_LOADS = ((3, 2), (129, 1), (1024, 5), (1537, 8), (2047, 1000))
FIGURES = (
    "parameters active_parameters weight_bytes cache_bytes_per_token cache_fixed_bytes cache_bytes "
    "prefill_flops decode_flops"
).split()


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Office:
    return Office(tmp_path_factory.mktemp("office"))


def same(found: object, expected: float) -> bool:
    """Equal to 1e-12 of the larger operand, and exactly where both are whole numbers that a float holds."""
    if not isinstance(found, (int, float)):
        return False
    whole = float(expected).is_integer() and abs(expected) < 2**53
    return found == expected if whole else abs(found - expected) <= 1e-12 * max(abs(found), abs(expected))


def test_scenarios_of_many_models_follow_their_inputs(office: Office, tmp_path: Path) -> None:
    models = " ".join(MODELS.values()).split()
    assert len(models) >= 40
    cases = [(name, *load) for name in models for load in LOADS]
    write_workbook(pd.DataFrame(cases, columns=["model", "context", "batch"]), tmp_path / "many.xlsx")

    edits: dict[str, dict[str, int]] = {}
    cells: dict[object, object] = {}
    for name in models[::2]:  # half of the models are made wider, longer and given more layers of each kind
        model, more = planner.load(name), {"vocab_size": 64, "d_ff": 256, "window": 32, "count": 2}
        for field in subject(model).fields:
            leaf = field.path.rpartition(".")[2]
            if leaf in more and not (leaf == "count" and model.pattern is not None):
                edits.setdefault(name, {}).update(field.changes(field.value + more[leaf]))
                cells[field.name] = field.value + more[leaf]
    rows = []
    formats = (("bf16", "bf16"), ("fp8", "fp8"), ("awq-g128", "q8_0"), ("q8_0", "bf16"), ("bf16", "fp8-token-head"))
    for number, (name, _, _) in enumerate(cases):
        (context, batch), (weights, kv) = NEW_LOADS[number % 5], formats[number % 5]
        if planner.load(name).embedding.learned_positions:
            context = min(context, planner.load(name).embedding.learned_positions)
        rows.append((name, weights, kv, context, batch))
        for column, value in zip("BCDE", (weights, kv, context, batch), strict=True):
            cells[("Scenarios", f"{column}{number + 6}")] = value
    change(tmp_path / "many.xlsx", tmp_path / "changed.xlsx", cells)
    (computed,) = office.convert([tmp_path / "changed.xlsx"], tmp_path / "out")
    sheets = values(computed)
    assert errors(sheets) == []

    table = sheets["Scenarios"][4:]
    at = {head: column for column, head in enumerate(table[0])}
    wrong = []
    for found, (name, weights, kv, context, batch) in zip(table[1:], rows, strict=False):
        model = planner.edit(planner.load(name), edits.get(name, {}))
        load = Load(context=context, batch=batch, weights=weights, kv=kv)
        expected = summary(model, load)
        if not edits.get(
            name
        ):  # where a shape decides on another format, the format is that of the contract as written
            assert found[at["weight_bytes"]] == expected["weight_bytes"]
        wrong += [
            (name, figure, found[at[figure]], expected[figure])
            for figure in FIGURES
            if not same(found[at[figure]], expected[figure])
        ]
        point = crossover(model, load, expected["weight_bytes"])
        absent = [text for held, text in point.absent(expected["weight_bytes"] / batch) if held]
        assert (found[at["crossover_note"]] or "") == (absent[0] if absent else "")
        if not absent and not same(found[at["crossover_tokens"]], float(point.tokens)):
            wrong.append((name, "crossover_tokens", found[at["crossover_tokens"]], float(point.tokens)))
    assert wrong == []


PLANS = {
    "dense": ("llama-3.1-8b", {"accelerator": "h100-sxm", "context": 8192, "sequences": 16}),
    "window": ("gemma-3-12b", {"accelerator": "h100-sxm", "isl": 3000, "osl": 100, "sequences": 8}),
    "latent": ("deepseek-v3", {"accelerator": "h200-sxm", "count": 8, "weights": "fp8", "sequences": 32}),
    "experts": ("mixtral-8x7b", {"accelerator": "h100-sxm", "count": 2, "context": 4096, "sequences": 4}),
    "hybrid": ("jamba-v0.1", {"accelerator": "h100-sxm", "count": 4, "context": 65536, "sequences": 4}),
    "stages": ("llama-3.1-70b", {"accelerator": "h100-sxm", "tp": 4, "pp": 2, "sequences": 24}),
    "unpriced": ("phi-4", {"accelerator": "h100-pcie", "sequences": 2}),
    "bought": (
        "qwen2.5-7b",
        {"accelerator": "l40s", "purchase_usd": 9000.0, "amortisation_years": 4.0, "usd_per_kwh": 0.2, "sequences": 3},
    ),
}
CHANGES = {
    "sequences": 12,
    "osl": 77,
    "compute_fraction": 0.55,
    "memory_fraction": 0.85,
    "utilisation": 0.4,
    "seconds_per_layer": 3e-5,
}


def test_results_follow_their_inputs(office: Office, tmp_path: Path) -> None:
    paths = []
    for name, (model, keywords) in PLANS.items():
        plan = make_plan(model, **keywords)
        write_workbook(plan, tmp_path / f"{name}_written.xlsx")
        cells: dict[object, object] = dict(CHANGES)
        d_ff = next(field for field in subject(plan.model).fields if field.path.endswith("d_ff"))
        cells[d_ff.name] = d_ff.value + 1024
        if name == "dense":
            cells |= {"accelerator": "b200", "usd_per_hour": 3.25}
        if name == "unpriced":
            cells |= {"usd_per_hour": 1.75}
        paths.append(tmp_path / f"{name}.xlsx")
        change(tmp_path / f"{name}_written.xlsx", paths[-1], cells)
    for name, path, computed in zip(PLANS, paths, office.convert(paths, tmp_path / "out"), strict=True):
        sheets = values(computed)
        assert errors(sheets) == []
        plan = read_workbook(path)
        assert plan.sequences == 12
        assert plan.model != make_plan(*PLANS[name][:1]).model
        found: dict[str, list[list[object]]] = {}
        for row in sheets["Results"]:
            found.setdefault(str(row[0]), []).append(row)
        answer, times, money = fit(plan), speed.estimate(plan), cost.cost(plan)
        for term in {rung.term for rung in answer.ladder}:
            stated = [rung.bytes for rung in answer.ladder if rung.term == term]
            assert [row[1] for row in found[term]] == stated, (name, term)
        assert found["verdict"][0][1] == answer.verdict
        for figure in speed.UNITS:
            (row,) = (row for row in found[figure] if row[3] is not None)
            assert same(row[1], getattr(times, figure)), (name, figure)
            assert same(row[3], getattr(times.floor, figure)), (name, figure)
        for figure, value in money.figures.items():
            if value is not None:
                assert same(found[figure][-1][1], value), (name, figure)


FLEET = "llama-3.1-8b mla deepseek-v3.2 gemma-3n-e2b gpt-oss-20b mixtral-8x7b jamba-v0.1 llama-4-scout".split()
DEVICES = ("h100-sxm", "b200", "mi300x", "a100-80gb-sxm", "rtx-4090")
FLEET_FORMATS = (("fp8", "fp8"), ("bf16", "bf16"), ("nvfp4", "q8_0"), ("awq-g128", "fp8-token-head"))


@pytest.mark.parametrize("tp", [1, 4])
def test_scenarios_answer_for_their_own_accelerators(office: Office, tmp_path: Path, tp: int) -> None:
    plan = make_plan(FLEET[0], accelerator="h100-sxm", tp=tp, context=4096, sequences=3)
    write_workbook([plan, *FLEET[1:]], tmp_path / "fleet.xlsx")
    said = {"memory_fraction": 0.83, "prefill_tokens": 2048, "reserve_bytes": 5 * 10**8, "logits_elem_bytes": 2}
    cells: dict[object, object] = dict(said)
    models = {}
    for name in FLEET:
        model = planner.load(name)
        widest = next(field for field in subject(model).fields if field.path.endswith("d_ff"))
        cells[widest.name] = widest.value + 256
        models[name] = planner.edit(model, widest.changes(widest.value + 256))
    rows = []
    for number in range(4 * len(FLEET)):  # each decoder four times
        (weights, kv), device, name = FLEET_FORMATS[number % 4], DEVICES[number % 5], FLEET[number // 4]
        context, batch = NEW_LOADS[number % 5]
        rows.append((name, weights, kv, device, context, batch, tp * (1 + number % 3), 1.5 if number % 2 else None))
        for column, value in zip("ABCDEFGH", rows[-1], strict=True):
            cells[("Scenarios", f"{column}{number + 6}")] = value
    for column, value in zip("ABCDEFGH", (*rows[0][:3], "h101", 100, 2, tp, None), strict=True):
        cells[("Scenarios", f"{column}{len(rows) + 6}")] = value
    for column, value in zip("ABCDEFGH", (*rows[0][:4], 100, 2, tp + 0.5, None), strict=True):
        cells[("Scenarios", f"{column}{len(rows) + 7}")] = value
    change(tmp_path / "fleet.xlsx", tmp_path / "changed.xlsx", cells)
    (computed,) = office.convert([tmp_path / "changed.xlsx"], tmp_path / "out")
    sheets = values(computed)
    assert errors(sheets) == []
    head, *table = sheets["Scenarios"][4:]
    found = [dict(zip(head, row, strict=False)) for row in table]
    wrong = []
    for row, (name, weights, kv, device, context, batch, count, usd) in zip(found, rows, strict=False):
        layout = {"tp": tp, "dp": count // tp, "weights": weights, "kv": kv, "accelerator": device, "sequences": batch}
        answer = fit(models[name], **layout, **said, context=context, osl=1)
        floor = speed.estimate(models[name], **layout, isl=context, osl=2).floor
        assert (row["verdict"], row["reason"] or "") == (answer.verdict, ""), name
        expected = {"headroom_bytes": answer.headroom_bytes, "floor_ttft_s": floor.ttft_s, "floor_tpot_s": floor.tpot_s}
        try:
            hour = usd or cost.hour_price_of(make_plan(models[name], **layout)).usd
            busiest = -(-batch // (count // tp))
            expected["floor_usd_per_mtok_output"] = usd_per_mtok(hour * tp, floor.tpot_s, busiest)
        except planner.PlannerError:
            assert row["usd_per_accelerator_hour"] == row["floor_usd_per_mtok_output"] == "unknown"
        wrong += [
            (name, figure, row[figure], value) for figure, value in expected.items() if not same(row[figure], value)
        ]
    assert wrong == []
    assert found[len(rows)]["reason"] == "unknown accelerator"
    assert str(found[len(rows) + 1]["reason"]).startswith("count is n")
    assert not found[len(rows) + 1]["verdict"]


WRONG = {
    "sequences": (None, "sequences is not a whole number from 1 to 10^15"),
    "isl": ("4k", "isl is not a whole number from 1 to 10^15"),
    "osl": (2.5, "osl is not a whole number from 1 to 10^15"),
    "usd_per_hour": (-1, "usd_per_hour is not a number from 0.000001 to 1,000,000"),
    "memory_fraction": (90, "memory_fraction is not a share above 0 and up to 1"),
    "compute_fraction": (0, "compute_fraction is not a share above 0 and up to 1"),
    "accelerator": ("h101", "accelerator is none of those for which the same formulas hold"),
    "mha_d_ff": ("wide", "layers[0].feed_forward.d_ff is not a whole number from 1 to 10^15"),
    "mha_n_heads": (33, "n_kv_heads does not divide n_heads"),
}


def test_a_yellow_cell_that_holds_what_it_may_not_is_named_and_no_figure_shown(office: Office, tmp_path: Path) -> None:
    """Validation sees what is typed; a cell is also cleared and pasted over."""
    plan = make_plan("mha", accelerator="h100-sxm", isl=1000, osl=100, sequences=4)
    write_workbook([plan, "gemma-3-4b"], tmp_path / "plan.xlsx")
    for name, (value, _) in WRONG.items():
        change(tmp_path / "plan.xlsx", tmp_path / f"{name}.xlsx", {name: value})
    paths = [tmp_path / f"{name}.xlsx" for name in WRONG]
    change(tmp_path / "plan.xlsx", tmp_path / "other.xlsx", {"gemma_3_4b_window": None, ("Scenarios", "H6"): "cheap"})
    *computed, other = office.convert([*paths, tmp_path / "other.xlsx"], tmp_path / "out")
    for (name, (_, sentence)), path in zip(WRONG.items(), computed, strict=True):
        sheets = values(path)
        assert errors(sheets) == [], name
        found = {str(row[0]): row for row in sheets["Results"][4:13]}
        assert (found["verdict"][1], found["verdict"][4]) == ("unknown", sentence)
        numbers = [cell for row in sheets["Results"] for cell in row if isinstance(cell, float)]
        assert numbers == [], name
        assert sheets["Inputs"][2][:2] == ["check of the yellow cells", sentence]
        assert sheets["Start"][4][:2] == ["verdict", "unknown"]
        rows = _scenarios(sheets)
        contract = name.startswith("mha_")
        assert {row["reason"] for row in rows["mha"]} == {sentence if contract else f"Inputs: {sentence}"}
        assert all(row["verdict"] is row["floor_tpot_s"] is None for row in rows["mha"])
        assert all((row["cache_bytes"] is None) == contract for row in rows["mha"])
        assert all(row["verdict"] is not None for row in rows["gemma-3-4b"]) == contract
    sheets = values(other)
    assert errors(sheets) == []
    rows = _scenarios(sheets)
    assert {row["reason"] for row in rows["gemma-3-4b"]} == {
        "layers[0].mixer.window is not a whole number from 1 to 10^15"
    }
    assert rows["mha"][0]["reason"] == "usd_per_hour is not a number from 0.000001 to 1,000,000"
    assert rows["mha"][0]["verdict"] is None
    assert all(row["verdict"] for row in rows["mha"][1:])
    assert sheets["Start"][4][:2] == ["verdict", "fits"]


def test_a_load_that_cannot_be_is_named_and_a_long_one_warned_of(office: Office, tmp_path: Path) -> None:
    write_workbook(make_plan("gpt2", accelerator="h100-sxm", context=600), tmp_path / "gpt2.xlsx")
    write_workbook(make_plan("gemma-3-4b", accelerator="h100-sxm", isl=600, osl=10), tmp_path / "long.xlsx")
    change(tmp_path / "gpt2.xlsx", tmp_path / "short.xlsx", {"context": 200})
    change(tmp_path / "gpt2.xlsx", tmp_path / "learned.xlsx", {"context": 1025})
    change(tmp_path / "long.xlsx", tmp_path / "beyond.xlsx", {"isl": 10**7, ("Scenarios", "E6"): 10**7})
    paths = [tmp_path / f"{name}.xlsx" for name in ("short", "learned", "beyond")]
    short, learned, beyond = map(values, office.convert(paths, tmp_path / "out"))
    assert errors(short) == errors(learned) == errors(beyond) == []
    assert short["Results"][5][1:5:3] == ["unknown", "context has no room for osl"]
    assert learned["Results"][5][1:5:3] == ["unknown", "more positions than the 1,024 learned ones"]
    warning = "beyond the stated maximum of 131,072 positions"
    assert beyond["Results"][5][1:5:3] == ["does not fit", warning]
    first, second, *_ = _scenarios(beyond)["gemma-3-4b"]
    assert (first["verdict"], first["warning"]) == ("does not fit", warning)
    assert second["warning"] is None


def _scenarios(sheets: dict[str, list[list[object]]]) -> dict[str, list[dict[str, object]]]:
    """Model -> its rows of the table, by their heads."""
    head, *table = sheets["Scenarios"][4:]
    rows: dict[str, list[dict[str, object]]] = {}
    for row in table:
        if row and row[0]:
            rows.setdefault(str(row[0]), []).append(dict(zip(head, row, strict=False)))
    return rows


def test_names_that_look_like_formulas_or_searches_find_their_own_row(office: Office, tmp_path: Path) -> None:
    names = ("abc", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", '"&A1&"', "a*", "a?c", "a~b", ">1", "<>2", "TRUE", "1")
    small = planner.load("gpt2")
    models = [
        planner.edit(small, name=name, title=f"={name}", vocab_size=64 * (at + 1)) for at, name in enumerate(names)
    ]
    write_workbook(models, tmp_path / "names.xlsx")
    (computed,) = office.convert([tmp_path / "names.xlsx"], tmp_path / "out")
    sheets = values(computed)
    assert errors(sheets) == []
    table = sheets["Scenarios"][4:]
    column = table[0].index("parameters")
    expected = {model.name.strip(): planner.parameters(model) for model in models}
    found = {str(row[0]).strip(): row[column] for row in table[1:] if row[0]}
    assert found == expected


def test_a_workbook_that_another_program_saved_is_read(office: Office, tmp_path: Path) -> None:
    model, keywords = PLANS["window"]
    write_workbook(make_plan(model, **keywords), tmp_path / "plan.xlsx")
    (saved,) = office.convert([tmp_path / "plan.xlsx"], tmp_path / "saved", to="xlsx:Calc MS Excel 2007 XML")
    assert read_workbook(saved) == make_plan(model, **keywords)


def test_a_wrong_cached_value_is_replaced_and_only_by_computing(office: Office, tmp_path: Path) -> None:
    """Proof that the other tests see computed values and not those that were written beside the formulas."""
    plan = make_plan("llama-3.1-8b", accelerator="h100-sxm")
    write_workbook(plan, tmp_path / "right.xlsx")
    right, planted = str(fit(plan).needed_bytes), 0
    with zipfile.ZipFile(tmp_path / "right.xlsx") as old, zipfile.ZipFile(tmp_path / "wrong.xlsx", "w") as new:
        for name in old.namelist():
            text = old.read(name)
            planted += text.count(f"<v>{right}</v>".encode())
            new.writestr(name, text.replace(f"<v>{right}</v>".encode(), b"<v>4711</v>"))
    assert planted == 1
    (computed,) = office.convert([tmp_path / "wrong.xlsx"], tmp_path / "always")
    assert 4711 not in _all(computed)
    assert int(right) in _all(computed)
    (kept,) = Office(tmp_path, mode=1).convert([tmp_path / "wrong.xlsx"], tmp_path / "never")
    assert 4711 in _all(kept)


def _all(path: Path) -> set[object]:
    return {cell for rows in values(path).values() for row in rows for cell in row}
