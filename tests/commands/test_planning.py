"""fit, estimate, cost and size as their users type them."""

import json

import pytest

import planner
from planner import cost as costs
from planner import memory, speed
from planner.assumptions import assumptions
from planner.cli import main
from planner.commands import planning
from planner.plan import fields_of_a_plan
from planner.plan_fields import parse_field
from planner.printing import WIDTH

ASK = {"fit": memory, "estimate": speed, "cost": costs}

PLAN = 'model = "llama-3.1-8b"\naccelerator = "h100-sxm"\n[workload]\ncontext = 8192\nsequences = 16\n'


def ran(capsys, *argv):
    status = main(argv)
    out, err = capsys.readouterr()
    return status, out, err


def row(capsys, *argv):
    _, out, _ = ran(capsys, *argv, "--json")
    return json.loads(out)["rows"][0]


def test_fit_says_the_verdict_and_exits_by_it(capsys):
    status, out, err = ran(capsys, "fit", "llama-3.1-8b", "--accelerator", "h100-sxm", "--context", "8Ki")
    assert (status, out.splitlines()[0]) == (0, "llama-3.1-8b on 1 x h100-sxm, tp1 pp1 dp1: fits")
    assert "memory_fraction = 0.9" in err
    status, out, _ = ran(capsys, "fit", "llama-3.1-70b", "--accelerator", "h100-sxm")
    assert status == 1
    assert "does not fit" in out
    assert "weights = fp8" in out


def test_fit_with_everything_that_the_issue_names(capsys):
    argv = (
        "fit llama-3.1-70b --accelerator h100-sxm --count 8 --tp 8 --weights fp8 --kv fp8 --context 32Ki --sequences 64"
    )
    found = row(capsys, *argv.split())
    answer = planner.fit(
        "llama-3.1-70b", accelerator="h100-sxm", tp=8, weights="fp8", kv="fp8", context=32_768, sequences=64
    )
    assert found["headroom_bytes"] == answer.headroom_bytes
    assert (found["verdict"], found["fits"], found["binding"]) == ("fits", True, "kv cache")


def test_the_ladder_and_the_products(capsys):
    _, out, _ = ran(capsys, "fit", "llama-3.1-8b", "--accelerator", "h100-sxm", "--terms", "--csv")
    assert out.splitlines()[0] == "rank,term,bytes,kind,provenance,formula"
    _, out, _ = ran(capsys, "estimate", "llama-3.1-8b", "--accelerator", "h100-sxm", "--products", "--json")
    assert {"prefill", "decode"} == {entry["phase"] for entry in json.loads(out)["rows"]}


def test_estimate_shows_floor_and_estimate(capsys):
    found = row(capsys, "estimate", "llama-3.1-8b", "--accelerator", "h100-sxm", "--isl", "2048", "--osl", "2")
    assert round(1e3 * found["floor_ttft_s"], 1) == 30.0
    assert round(1e3 * found["floor_tpot_s"], 2) == 4.56
    assert found["ttft_s"] > found["floor_ttft_s"]
    argv = "estimate llama-3.1-8b --accelerator h100-sxm --isl 2048 --osl 2 --attention square --logits all"
    assert round(1e3 * row(capsys, *argv.split())["floor_ttft_s"], 1) == 33.3


def test_cost_against_an_api(capsys):
    argv = "cost llama-3.1-8b --accelerator h100-sxm --isl 2k --osl 256 --sequences 64 --usd-per-hour 2"
    found = row(capsys, *argv.split(), "--api", "llama-3.1-8b")
    assert found["fleet_usd_per_day"] == 48
    assert found["api_break_even_requests_per_month"] > 0
    _, out, _ = ran(capsys, *argv.split(), "--api", "llama-3.1-8b")
    assert "the fleet is cheaper from" in out


def test_size_ranks(capsys):
    argv = "size llama-3.1-8b --context 8k --sequences 64 --accelerators h100-sxm,l40s --replica-sizes 1,2".split()
    _, out, _ = ran(capsys, *argv, "--json")
    rows = json.loads(out)["rows"]
    assert rows[0]["rank"] == 1
    assert {entry["accelerator"] for entry in rows} == {"h100-sxm", "l40s"}
    status, out, _ = ran(capsys, *argv, "--top", "1", "--csv")
    assert (status, len(out.splitlines())) == (0, 2)


def test_a_terminal_has_room_for_the_ranking_and_for_the_reasons(capsys):
    argv = "size llama-3.1-8b --context 8k --sequences 64 --accelerators h200,t4 --replica-sizes 1,16".split()
    status, out, err = ran(capsys, *argv)
    ranking, reasons = out.split("\n\n")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 110
    best = ranking.splitlines()[3].split()
    assert best[:6] == ["1", "h200", "1", "tp1", "pp1", "dp1"]
    assert "t4" in reasons
    assert "one sequence lacks" in reasons
    _, table, _ = ran(capsys, *argv, "--csv")
    hidden = len(table.splitlines()) - 1 - len(ranking.splitlines()[3:]) - 1
    assert f"{hidden} more layouts" in err
    status, out, _ = ran(capsys, *argv[:-4], "--accelerators", "t4", "--replica-sizes", "1")
    assert (status, out.splitlines()[0].split()) == (1, ["accelerator", "count", "layout", "reason"])


def test_size_says_what_it_did_not_try(capsys):
    _, out, err = ran(capsys, *"size llama-3.1-8b --replica-sizes 1 --top 1".split())
    assert "accelerators have no on_demand price and were not tried" in err
    assert len(out.splitlines()) == 4


def test_a_rejected_layout_is_the_one_that_its_reason_names(capsys):
    """Sixteen L40S lie in two hosts, and what joins those is not known."""
    load = "--weights fp8 --context 8k --sequences 100 --accelerators l40s --replica-sizes 16 --json"
    _, out, _ = ran(capsys, *f"size llama-3.1-405b {load}".split())
    rows = json.loads(out)["rows"]
    assert max(row["dp"] for row in rows) > 1
    for row in rows:
        assert f"exchange data in tp{row['tp']} pp{row['pp']} dp{row['dp']};" in row["reason"]
        assert row["count"] == row["tp"] * row["pp"] * row["dp"]


def test_where_nothing_carries_the_load_the_few_cheapest_are_the_reasons(capsys):
    argv = "size llama-3.1-8b --context 8k --accelerators t4 --replica-sizes 1 --top 3".split()
    status, out, _ = ran(capsys, *argv)
    assert status == 1
    assert "one sequence lacks" in " ".join(out.split())
    assert json.loads(ran(capsys, *argv, "--json")[1])["rows"][0]["rank"] is None


def test_a_ranking_says_whose_prices_it_rests_on(capsys):
    argv = "size llama-3.1-8b --context 8k --accelerators l40s,h200 --replica-sizes 1 --as-of 2026-10-01".split()
    _, _, err = ran(capsys, *argv)
    (line,) = [line for line in err.splitlines() if line.startswith("listed USD per accelerator-hour: ")]
    hours = {name: costs.hour_price_of(planner.fit("mha", accelerator=name, as_of="2026-10-01").plan) for name in NAMES}
    assert {*line.partition(": ")[2].split("; ")} == {f"{n} {hour.usd:g} ({hour.source})" for n, hour in hours.items()}
    assert "listed USD" not in ran(capsys, *argv, "--usd-per-hour", "2")[2]


NAMES = ("l40s", "h200")


def test_a_narrow_terminal_has_room_for_the_ranking(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, err = ran(capsys, *"size llama-3.1-8b --context 8k --accelerators h200 --replica-sizes 1,2".split())
    assert max(map(len, out.splitlines())) <= 80
    assert "no room for verdict, headroom_bytes" in err


def test_markdown_says_the_units(capsys):
    argv = "fit llama-3.1-8b --accelerator h100-sxm --context 8Ki --md".split()
    head, _, row = ran(capsys, *argv)[1].splitlines()
    found = dict(zip(*([cell.strip() for cell in line.split("|")] for line in (head, row)), strict=True))
    assert (found["kv cache"], found["usable"]) == ("1 GiB", "79.65 GiB")
    assert found["TPOT, floor"].endswith(" ms")


@pytest.mark.parametrize("command", ["estimate", "cost"])
def test_times_and_prices_of_what_does_not_fit_say_so(capsys, command):
    _, _, err = ran(capsys, command, "llama-3.1-70b", "--accelerator", "h100-sxm")
    short = -planner.fit("llama-3.1-70b", accelerator="h100-sxm").headroom_bytes
    assert f"does not fit, a rank lacks {short / 2**30:.2f} GiB" in err
    assert "does not fit" not in ran(capsys, command, "llama-3.1-8b", "--accelerator", "h100-sxm")[2]


def test_a_note_is_said_once(capsys):
    _, out, err = ran(capsys, *"estimate mixtral-8x7b --accelerator h200 --isl 2k".split())
    assert (out + err).count("tokens are taken to choose their experts evenly") == 1
    assert "1 at once, 2,000 tokens in, 256 out" in out
    _, out, err = ran(capsys, *"estimate mixtral-8x7b --accelerator h200 --isl 2k --explain".split())
    assert (out + err).count("tokens are taken to choose their experts evenly") == 1


def test_a_plan_file_and_options_above_it(capsys, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, "utf-8")
    assert row(capsys, "fit", "--plan", str(path))["sequences"] == 16
    assert row(capsys, "fit", "--plan", str(path), "--sequences", "32", "--count", "2")["count"] == 2


def test_an_edit_changes_the_model_of_a_plan_file(capsys, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, "utf-8")
    whole = row(capsys, "fit", "--plan", str(path))["kv_cache_bytes"]
    assert row(capsys, "fit", "--plan", str(path), "--set", "n_kv_heads=4")["kv_cache_bytes"] == whole / 2


@pytest.mark.parametrize("command", ["fit", "estimate", "cost"])
def test_an_answer_explains_itself(capsys, command):
    argv = f"{command} llama-3.1-8b --accelerator h100-sxm --explain".split()
    status, out, _ = ran(capsys, *argv)
    assert (status, out) == (0, f"{getattr(ASK[command], command)('llama-3.1-8b', accelerator='h100-sxm').explain()}\n")
    assert "\nhow\n" in out
    assert "sequences that are resident at the same time" in out
    status, out, err = ran(capsys, *argv, "--json")
    assert (status, out) == (2, "")
    assert "--json: not allowed with argument --explain" in err
    status, _, err = ran(capsys, *argv, "-o", "answer.csv")
    assert (status, err) == (2, "planner: --explain and -o answer.csv say two forms; leave one out\n")


@pytest.mark.parametrize(
    "argv",
    [
        "fit deepseek-v3 --accelerator h200 --count 16 --tp 8 --pp 2 --terms",
        "estimate deepseek-v3 --accelerator h200 --count 16 --tp 8 --pp 2 --products",
        "estimate qwen3-next-80b-a3b --accelerator h200 --count 4 --products",
    ],
)
def test_a_terminal_has_room_for_terms_and_products(capsys, argv):
    _, out, _ = ran(capsys, *argv.split())
    assert max(map(len, out.splitlines())) <= WIDTH


def test_every_field_of_a_plan_is_an_option():
    options = {name for group in planning.OPTIONS.values() for name in group}
    assert options | {"model", "mtp"} | {*assumptions()} >= {*fields_of_a_plan()}


def test_assumptions_are_replaced_by_name(capsys):
    argv = "fit llama-3.1-8b --accelerator h100-sxm --assume memory_fraction=0.5 --assume reserve_bytes=2GiB".split()
    _, out, err = ran(capsys, *argv)
    assert "reserve                      2 GiB" in out
    assert "memory_fraction" not in err


@pytest.mark.parametrize("command", ["fit", "cost"])
def test_what_is_assumed_is_said_as_it_can_be_given(capsys, command):
    _, _, err = ran(capsys, command, "llama-3.1-8b", "--accelerator", "h100-sxm")
    (line,) = [line for line in err.splitlines() if line.startswith("assumed: ")]
    said = dict(word.split(" = ") for word in line.removeprefix("assumed: ").split(", "))
    plan = planner.fit("llama-3.1-8b", accelerator="h100-sxm").plan
    known = {name: text for name, text in said.items() if name in assumptions() and name != "isl"}
    assert len(known) >= 5
    assert {name: parse_field(name, text) for name, text in known.items()} == {
        name: plan.assume(name) for name in known
    }


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        ("fit", 2, "no model"),
        ("fit llama-3.1-8b --accelerator h100-smx", 2, "did you mean 'h100-sxm'"),
        ("fit llama-3.1-8b --accelerator h100-sxm --context=-3", 3, "'-3' is negative"),
        ("fit llama-3.1-8b --accelerator h100-sxm --assume nonsense=3", 2, "nonsense"),
        ("fit llama-3.1-8b --assume memory_fraction", 2, "is not NAME=VALUE, such as memory_fraction=0.85"),
        ("fit llama-3.1-8b --accelerator h100-sxm --assume memory_fraction=2", 2, "memory_fraction = 2 is not a share"),
        ("fit llama-3.1-8b --accelerator h100-sxm --usd-per-hour 0", 2, "usd_per_hour = 0 is not"),
        ("fit llama-3.1-8b --accelerator h100-sxm --count 8 --tp 3", 2, "count = 8"),
        ("fit llama-3.1-8b --tp 3", 2, "8 key-value heads neither divide nor are divided by 3 ranks"),
        ("estimate llama-3.1-8b", 2, "names no accelerator"),
        ("cost llama-3.1-8b --accelerator m3-max", 3, "no on_demand price of m3-max"),
        ("cost llama-3.1-8b --accelerator h100-sxm --as-of yesterday", 3, "is no date"),
        ("fit llama-3.1-8b --plan nowhere.toml", 3, "cannot be read"),
        ("fit llama-3.1-8b --accelerator h100-sxm --other-bytes -2GiB", 2, "--other-bytes: expected one argument"),
        ("fit llama-3.1-8b --accelerators h100-sxm", 2, "unrecognized arguments: --accelerators"),
        ("cost llama-3.1-8b --accelerator h100-sxm --usd-per-hour=-1", 3, "'-1' is negative; write a number, plain"),
        ("size llama-3.1-8b --top 0", 2, "--top = 0 shows nothing"),
        ("fit mha --offloaded-weights 50%", 3, "'50%' is not a number; write a number, plain or with a point: 12"),
        ("fit mha --isl 8k --context 4k", 2, "isl = 8000 does not fit context = 4000"),
        ("fit mha --lengths 1k,2k --context 4k", 2, "lengths say themselves what context, isl and sequences say"),
        ("cost mha --accelerator l40s --api nothing", 2, "unknown API model 'nothing'; planner prices --api lists"),
    ],
)
def test_a_bad_question_gets_one_sentence(capsys, argv, status, sentence):
    found, out, err = ran(capsys, *argv.split())
    assert found == status
    assert sentence in err.splitlines()[-1]
    assert out == ""
