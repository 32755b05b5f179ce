"""The command line as its users type it: data on standard output, notes beside it, one sentence for bad input."""

import io
import json
import os
import re
import shlex
import subprocess
import sys

import pytest

from planner.cli import main
from planner.printing import WIDTH


def run(capsys, *argv, stdin=None, monkeypatch=None):
    if stdin is not None:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
    try:
        status = main([str(a) for a in argv])
    except SystemExit as stop:  # argparse ends the process itself
        status = stop.code
    out, err = capsys.readouterr()
    return status, out, err


def rows(capsys, *argv):
    status, out, _ = run(capsys, *argv, "--json")
    assert status == 0
    return json.loads(out)["rows"]


def test_compare_without_names_shows_the_comparison_set(capsys):
    status, out, err = run(capsys, "compare")
    assert status == 0
    for figure in ("524,288 B", "62.5 GiB", "26,702.9", "854,492.2", "4.395 GiB"):
        assert figure in out
    assert "assumed: context = 128,000" in err


def test_a_terminal_has_room_for_the_comparison(capsys):
    _, out, _ = run(capsys, "compare")
    assert max(map(len, out.splitlines())) <= 115
    _, out, err = run(capsys, "compare", "llama-3.1-8b", "deepseek-v3")
    assert "beyond" not in out
    assert "deepseek-v3: cache = weights: beyond the stated maximum of 163,840 positions" in err


LARGE = "jamba-v0.1 deepseek-v3 gemma-3-27b qwen3-coder-480b-a35b nemotron-3-nano-30b-a3b".split()


@pytest.mark.parametrize(
    "argv",
    [
        ["compare", *LARGE],
        ["sweep", *LARGE, "--context", "8k,128k", "--batch", "1,64", "--kv", "bf16,fp8", "--weights", "bf16,fp8"],
        ["sweep", "deepseek-v3", "--isl", "8k,32k", "--osl", "1k", "--axis", "n_heads=64,128"],
    ],
)
def test_a_terminal_goes_without_what_it_has_no_room_for(capsys, argv):
    status, out, err = run(capsys, *argv)
    assert status == 0
    assert max(map(len, out.splitlines())) <= WIDTH
    assert "no room for " in err
    said = r"^deepseek-v3(, \d+ of \d+ rows)?: cache = weights: beyond the stated maximum of 163,840 positions$"
    assert re.search(said, err, re.MULTILINE)


def test_an_option_has_one_name_in_all_commands(capsys):
    assert rows(capsys, "compare", "gqa-8", "--sequences", "4") == rows(capsys, "compare", "gqa-8", "--batch", "4")


def test_json_has_the_names_of_the_frame_and_says_what_was_assumed(capsys):
    _, out, _ = run(capsys, "compare", "llama-3.1-8b", "--context", "128Ki", "--json")
    document = json.loads(out)
    assert document["schema"] == 1
    assert document["command"] == "compare"
    assert document["assumed"] == {
        "batch": 1,
        "attention": "causal",
        "logits": "last",
        "mla": "auto",
        "weights": "bf16",
        "kv": "bf16",
    }
    (row,) = document["rows"]
    assert row["parameters"] == 8_030_261_248
    assert row["cache_bytes"] == 131_072 * 131_072


def test_an_edit_changes_the_contract(capsys):
    (row,) = rows(capsys, "compare", "gqa-8", "--set", "layers[0].mixer.n_kv_heads=4")
    assert row["cache_bytes_per_token"] == 65_536


def test_a_model_comes_from_standard_input(capsys, monkeypatch):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 96, "vocab_size": 50, "max_position_embeddings": 128}
    status, out, _ = run(
        capsys, "compare", "-", "--context", "100", "--csv", stdin=json.dumps(config), monkeypatch=monkeypatch
    )
    assert status == 0
    assert out.splitlines()[1].startswith("llama,")


@pytest.mark.parametrize("suffix", ["csv", "json", "md", "parquet"])
def test_a_sweep_goes_to_a_file(capsys, tmp_path, suffix):
    path = tmp_path / f"out.{suffix}"
    status, out, _ = run(capsys, "sweep", "gqa-8", "--context", "1k,2k", "--axis", "n_kv_heads=1,8", "-o", path)
    assert (status, out) == (0, "")
    if suffix == "parquet":
        import pandas

        assert len(pandas.read_parquet(path)) == 4
    else:
        assert path.read_text("utf-8").count("gqa-8") == 4


def test_text_that_a_spreadsheet_would_run_stays_text(capsys, tmp_path):
    path = tmp_path / "evil.toml"
    main(["contract", "mha", "--toml"])
    path.write_text(capsys.readouterr().out.replace('"mha"', '"=1+1"'), "utf-8")
    _, out, _ = run(capsys, "compare", path, "--csv")
    assert out.splitlines()[1].startswith("'=1+1,")


def test_show_holds_the_bill_to_the_published_figure(capsys):
    status, out, err = run(capsys, "show", "gpt2")
    assert status == 0
    assert "= total" in out
    assert "published 124,439,808, counted 124,439,808: equal" in err


def test_show_lists_the_work_of_a_pass_apart_from_what_is_no_product(capsys):
    """2 x 32 layers x 32 heads x 128 x 2,048 x 2,049 / 2 pairs; the total is that of the README's example in Python."""
    status, out, err = run(capsys, "show", "llama-3.1-8b", "--of", "products", "--new", "2Ki")
    lines = {line.split()[0]: line.split()[-1] for line in out.splitlines()}
    assert (status, lines["layers[0].mixer.scores"]) == (0, "550,024,249,344")
    assert out.splitlines()[-1].split() == ["=", "total", "29,688,401,494,016"]
    assert "assumed: past = 0" in err
    assert "new" not in err
    _, out, _ = run(capsys, "show", "llama-3.1-8b", "--of", "operations")
    assert "softmax" in out
    assert "total" not in out
    _, out, _ = run(capsys, "show", "deepseek-v3", "--of", "cache", "--kv", "fp8")
    assert out.splitlines()[-1].split() == ["=", "total", "35,136"]
    for asked, sentence in (
        (("--past", "5"), "--past is of a pass or its cache; say with --of what to list of it"),
        (("--of", "flops"), "of = 'flops' is none of tensors, products, cache, operations, temporary"),
    ):
        status, out, err = run(capsys, "show", "mha", *asked)
        assert (status, out, sentence in err) == (2, "", True)


def test_the_other_tables(capsys):
    assert any(row["name"] == "deepseek-v3" for row in rows(capsys, "models", "--min-params", "500G"))
    assert {row["path"]: row for row in rows(capsys, "diff", "mha", "mqa")}["layers[0].mixer.n_kv_heads"]["mqa"] == "1"
    assert len(rows(capsys, "formulas")) >= 30
    status, out, _ = run(capsys, "formulas", "kv_payload")
    assert status == 0
    for text in ("n_kv_heads", "[B]", "GQA", "2 L B S H_{kv} d_h b_{kv}"):
        assert text in out


def test_verify_ends_with_its_verdict(capsys):
    status, out, _ = run(capsys, "verify", "mqa")
    assert status == 0
    assert "FLOPs of a decode step" in out


GARBAGE = "x" * 10_000_000


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        (["compare", "llama-3.1-8x"], 2, "did you mean 'llama-3.1-8b'?"),
        (["compare", "--kv", "bf61"], 2, "unknown cache format 'bf61'; did you mean 'bf16'?"),
        (["compare", "--context", "0"], 2, "context"),
        (["compare", "--context", "-5"], 3, "--context: '-5' is negative"),
        (["compare", "--context", "nan"], 3, "--context: 'nan' is not a number"),
        (["compare", "--context", "1e999"], 3, "--context"),
        (["compare", "--context", "128K"], 3, "unknown unit 'K'"),
        (["compare", "--batch", "1.5"], 3, "--batch: '1.5' is not whole"),
        (["compare", "mha", "--set", "n_kv_heads=7"], 3, "n_kv_heads = 7 does not divide n_heads = 32"),
        (["compare", "mha", "--set", "n_heads=7.5"], 3, "n_heads = 7.5 is not a whole number"),
        (["compare", "mha", "--set", "n_kv_head=7"], 3, "did you mean 'n_kv_heads'?"),
        (["compare", "mha", "--set", "n_kv_heads"], 2, "is not PATH=VALUE"),
        (["compare", "mha", "--set", "__class__=7"], 3, "unknown field"),
        (["compare", "--attention", "dense"], 2, "attention = 'dense' is none of causal, square"),
        (["models", "--family", "lama"], 2, "unknown family 'lama'; did you mean 'llama'?"),
        (["formulas", "kv_payloads"], 2, "did you mean 'kv_payload'?"),
        (["sweep", "mha", "-o", "out.xls"], 2, "the suffix is none of"),
        (["sweep", "mha", "-o", "\0.csv"], 2, "the suffix is none of"),
        (["sweep", "no-such-model", "-o", "out.xls"], 2, "the suffix is none of"),  # before any work
        (["sweep", "mha", "--json", "-o", "out.csv"], 2, "--json and -o out.csv say two forms; leave one out"),
        (["compare", "mha", "--contxt", "1k"], 2, "--contxt 1k; did you mean '--context'?; planner compare --help"),
        (["--contxt", "compare"], 2, "unrecognized arguments: --contxt; planner --help"),
        (["compare", "mha", "--gpu", "2"], 2, "unrecognized arguments: --gpu 2; planner compare --help"),
        (["comprae", "mha"], 2, "planner: unknown command 'comprae'; did you mean 'compare'?; planner --help says"),
        (["zebra"], 2, "planner: unknown command 'zebra'; planner --help says"),
        (["compare", "no-such-thing"], 2, "unknown model or path 'no-such-thing'; planner models lists those"),
        (["sweep", "mha", "--context", "0"], 3, "context = 0 is not a whole number of at least 1"),
        (["sweep", "mha", "--context=--"], 2, "argument --context: expected one argument"),
        (["prices", "--provider=--"], 2, "argument --provider: expected one argument"),
        (["compare", "mha", "--set=--"], 2, "argument --set: expected one argument"),
        (["sweep", "mha", "--kv", "bf61"], 2, "unknown cache format 'bf61'; did you mean 'bf16'?"),
        (["sweep", "mha", "--axis", "name=mqa"], 2, "name is no axis"),
        (["sweep", "mha", "--axis", "n_kv_head=1"], 3, "did you mean 'n_kv_heads'?"),
        (["compare", "no/such/config.json"], 3, "no such file"),
    ],
)
def test_bad_input_gets_one_sentence(capsys, argv, status, sentence):
    found, out, err = run(capsys, *argv)
    assert (found, out) == (status, "")
    assert sentence in err
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if line.startswith("planner: ")]) == 1


@pytest.mark.parametrize("suffix", ["toml", "json"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"model_type": "llama", "hidden_size": NaN}',
        '{"model_type": "llama", "hidden_size": 1e999}',
        '{"model_type": "nope"}',
        '{"model_type": "llama", "hidden_size": "4096"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "a = " + "[" * 100_000,
        "name = 'x'\nlayers = 3",
        "name = 'x'\nvocab_size = -1\nd_model = 2\nlayers = []",
        GARBAGE,
        "\x00\x01",
    ],
    ids=range(13),
)
def test_files_that_are_no_contract(capsys, tmp_path, suffix, text):
    path = tmp_path / f"bad.{suffix}"
    path.write_text(text, "utf-8")
    found, out, err = run(capsys, "compare", path)
    assert found in (2, 3)
    assert out == ""
    assert "bad" in err
    assert "Traceback" not in err
    assert len(err) < 3000


class Endless(io.TextIOBase):
    def read(self, size=-1):
        assert 0 < size < 10**8
        return "x" * size


@pytest.mark.parametrize(
    ("stdin", "sentence"),
    [
        (None, "standard input: is empty; pipe a config.json or a contract in TOML into it"),
        (io.StringIO("\n"), "standard input: is empty; pipe a config.json or a contract in TOML into it"),
        (Endless(), "standard input: 4,000,001 characters are more than a contract has"),
        (io.TextIOWrapper(io.BytesIO(b"\xff\xfe"), "utf-8"), "standard input: not text in UTF-8"),
    ],
    ids=["closed", "empty", "endless", "binary"],
)
def test_standard_input_that_is_no_contract(capsys, monkeypatch, stdin, sentence):
    monkeypatch.setattr("sys.stdin", stdin)
    status, out, err = run(capsys, "compare", "-")
    assert (status, out) == (3, "")
    assert sentence in err


def test_a_terminal_without_every_character_shows_the_rest():
    asked = [sys.executable, "-m", "planner.cli", "show", "gqa-8"]
    done = subprocess.run(asked, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True)
    assert b"4096 ? 4096" in done.stdout


def test_an_output_that_is_closed_leaves_the_exit_status(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert main(["compare", "mha"]) == 0
    assert main(["fit", "llama-3.1-70b", "--accelerator", "l40s"]) == 1


def test_without_a_command_there_is_the_help(capsys):
    assert run(capsys) == run(capsys, "--help")
    assert run(capsys)[1].startswith("usage: planner ")


def test_help_is_one_line_a_command_and_ends_with_an_example_that_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "40")  # no example is torn where it has to be folded
    (tmp_path / "cases.csv").write_text("model\nmha\n", "utf-8")
    _, out, _ = run(capsys, "--help")
    listed = out.partition("COMMAND\n")[2].partition("\n\n")[0]
    commands = [line.split()[0] for line in listed.splitlines() if line[4] != " "]
    assert len(commands) >= 20
    for command in commands:
        _, out, _ = run(capsys, command, "--help")
        prompt, *argv = shlex.split(out.partition("example: ")[2])
        assert (prompt, argv[0]) == ("planner", command)
        if command != "app":  # which serves until it is ended
            assert run(capsys, *argv)[0] == 0, argv


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_an_output_that_takes_nothing():
    asked = [sys.executable, "-m", "planner.cli", "contract", "mha"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(asked, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("planner: standard output: No space left")


def test_parquet_keeps_what_its_types_can(capsys, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "mixed.parquet"
    assert run(capsys, "sweep", "mha", "--axis", "window=4096,none", "-o", path)[0] == 0
    assert parquet.read_table(path)["window"].to_pylist() == ["4096", "none"]
    assert run(capsys, "compare", "mha", "--batch", "1e16", "-o", path)[0] == 0
    assert parquet.read_table(path)["cache_bytes"].to_pylist() == [10.0**16 * 524_288 * 128_000]


def test_parquet_without_pyarrow_names_the_way_out(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("pandas.DataFrame.to_parquet", raises_import_error)
    status, _, err = run(capsys, "compare", "mha", "-o", tmp_path / "x.parquet")
    assert status == 2
    assert "Parquet needs pyarrow, which is not installed; take .csv or install it" in err


def raises_import_error(*_, **__):
    raise ImportError
