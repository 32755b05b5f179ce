"""fit, estimate, cost and size as their users type them."""

import json

import pytest

import planner
from planner.cli import main

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


def test_a_plan_file_and_options_above_it(capsys, tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN, "utf-8")
    assert row(capsys, "fit", "--plan", str(path))["sequences"] == 16
    assert row(capsys, "fit", "--plan", str(path), "--sequences", "32", "--count", "2")["count"] == 2


def test_assumptions_are_replaced_by_name(capsys):
    argv = "fit llama-3.1-8b --accelerator h100-sxm --assume memory_fraction=0.5 --assume reserve_bytes=2GiB".split()
    _, out, err = ran(capsys, *argv)
    assert "reserve                      2 GiB" in out
    assert "memory_fraction" not in err


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        ("fit", 2, "no model"),
        ("fit llama-3.1-8b --accelerator h100-smx", 2, "did you mean 'h100-sxm'"),
        ("fit llama-3.1-8b --accelerator h100-sxm --context=-3", 3, "'-3' is negative"),
        ("fit llama-3.1-8b --accelerator h100-sxm --assume nonsense=3", 2, "nonsense"),
        ("fit llama-3.1-8b --accelerator h100-sxm --assume memory_fraction=2", 2, "memory_fraction = 2 is not a share"),
        ("fit llama-3.1-8b --accelerator h100-sxm --usd-per-hour 0", 2, "usd_per_hour = 0 is not"),
        ("fit llama-3.1-8b --accelerator h100-sxm --count 8 --tp 3", 2, "count = 8"),
        ("fit llama-3.1-8b --tp 3", 2, "8 key-value heads neither divide nor are divided by 3 ranks"),
        ("estimate llama-3.1-8b", 2, "names no accelerator"),
        ("cost llama-3.1-8b --accelerator mi300x", 3, "no on_demand price of mi300x"),
        ("cost llama-3.1-8b --accelerator h100-sxm --as-of yesterday", 3, "is no date"),
        ("fit llama-3.1-8b --plan nowhere.toml", 3, "cannot be read"),
    ],
)
def test_a_bad_question_gets_one_sentence(capsys, argv, status, sentence):
    found, out, err = ran(capsys, *argv.split())
    assert found == status
    assert sentence in err.splitlines()[-1]
    assert out == ""
