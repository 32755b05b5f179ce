"""planner accelerators and planner prices, as their users type them."""

import json

import pytest

from planner.printing import WIDTH


def rows(run, *argv):
    status, out, _ = run(*argv, "--json")
    assert status == 0
    return json.loads(out)["rows"]


def test_accelerators_are_listed_and_filtered(run):
    status, out, _ = run("accelerators", "--vendor", "nvidia", "--min-memory", "140GiB")
    assert status == 0
    assert "h200" in out
    assert "140.4 GiB" in out
    assert "h100-sxm" not in out
    found = rows(run, "accelerators", "--min-memory", "80GiB")
    assert {"a100-80gb-sxm", "mi300x"} <= {row["name"] for row in found}  # 80 GiB is not less than 80 GiB
    assert "h100-sxm" not in {row["name"] for row in found}  # its driver shows 79.65
    assert next(row for row in found if row["name"] == "a100-80gb-sxm")["fp8_flops"] is None


def test_one_accelerator_shows_every_figure_with_its_source(run):
    status, out, err = run("accelerators", "l40s")
    assert status == 0
    assert "44.99 GiB" in out
    assert "1.466 PFLOP/s" in out
    assert "totals of nvidia-smi" in err
    (fact,) = [row for row in rows(run, "accelerators", "l40s") if row["figure"] == "peak_flops.fp8"]
    assert (fact["value"], fact["sparse"], fact["confidence"]) == (733e12, 1466e12, "A")


def test_prices_as_of_a_date(run):
    found = rows(run, "prices", "--as-of", "2026-06-01", "--accelerator", "h100-sxm", "--basis", "spot")
    assert found
    assert {row["basis"] for row in found} == {"spot"}
    assert max(row["date"] for row in found) <= "2026-06-01"
    status, _, err = run("prices", "--accelerator", "m3-max")
    assert (status, err) == (0, "no such price is known\n")


def test_prices_of_tokens(run):
    found = rows(run, "prices", "--api", "--model", "gpt-oss-120b")
    assert {row["model"] for row in found} == {"gpt-oss-120b"}


@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        ("accelerators", "mxfp4_flops"),
        ("prices", ""),
        ("prices --api", "model_id, note"),
        ("prices --api --model o3", ""),
    ],
)
def test_a_terminal_has_room(run, command, left_out):
    status, out, err = run(*command.split())
    assert status == 0
    assert max(map(len, out.splitlines())) <= WIDTH
    assert err == (f"no room for {left_out}; --csv has every column\n" if left_out else "")


def test_the_term_of_a_reservation_stands_with_the_note_on_a_terminal(run):
    argv = ("prices", "--basis", "reserved", "--accelerator", "h100-sxm", "--as-of", "2026-06-01")
    assert "capacity block" in run(*argv)[1]
    assert next(row["term"] for row in rows(run, *argv)).startswith("capacity block")


@pytest.mark.parametrize("form", ["--json", "--csv", "--md"])
@pytest.mark.parametrize("command", [["accelerators"], ["accelerators", "h200"], ["prices"], ["prices", "--api"]])
def test_every_form(run, command, form):
    status, out, _ = run(*command, form)
    assert status == 0
    assert out


def test_a_file_is_written(run, tmp_path):
    path = tmp_path / "cards.csv"
    assert run("accelerators", "-o", path)[0] == 0
    assert "h100-sxm" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        (["accelerators", "h100"], 2, "accelerator 'h100' may be h100-nvl or h100-pcie or h100-sxm; name one of them"),
        (["accelerators", "h200", "--vendor", "AMD"], 2, "choose among all accelerators; leave out the name"),
        (["accelerators", "--min-memory", "80"], 3, "--min-memory: '80' has no unit"),
        (["prices", "--as-of", "soon"], 3, "as_of: 'soon' is no date; write it as 2026-06-01"),
        (["prices", "--model", "x"], 2, "--model is about tokens; it needs --api"),
        (["prices", "--api", "--basis", "spot"], 2, "--accelerator and --basis are about hours; leave out --api"),
        (["prices", "--basis", "sopt"], 2, "unknown basis 'sopt'; did you mean 'spot'?"),
    ],
)
def test_a_question_that_cannot_be_asked(run, argv, status, sentence):
    found, out, err = run(*argv)
    assert (found, out) == (status, "")
    assert sentence in err
    assert err.count("\n") == 1
