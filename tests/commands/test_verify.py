"""planner verify, as its users type it: the checklist, the exit status, and the header of a checkpoint."""

import json

import pytest

import planner
from planner.cli import main
from tests.commands.test_checkpoints import TENSORS, TOTAL
from tests.sources.builders import safetensors_file
from tests.test_sources import CONFIG


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def run(capsys):
    def typed(*argv):
        status = main(["verify", *map(str, argv)])
        out, err = capsys.readouterr()
        return status, out, err

    return typed


def line(out, check):
    """The checklist's line of a check."""
    (found,) = (line for line in out.splitlines() if line[6:].startswith(f"{check}: "))
    return found


def test_a_checkpoint_is_held_to_its_contract(run, folder):
    path = safetensors_file(folder / "model.safetensors", TENSORS)
    for what in (folder, path):
        status, out, _ = run(what)
        assert status == 0
        assert line(out, "parameters of the checkpoint") == (
            f"pass  parameters of the checkpoint: {TOTAL:,}  (expected {TOTAL:,})"
        )


def test_a_checkpoint_that_differs_is_exit_status_1(run, folder):
    safetensors_file(folder / "model.safetensors", TENSORS[:-1])
    status, out, _ = run(folder)
    assert status == 1
    assert line(out, "parameters of the checkpoint").startswith("FAIL")
    assert "1 missing, such as model.layers.1." in out
    assert out.count("FAIL") == 1


def test_a_contract_has_no_header(run, folder):
    status, out, _ = run(folder / "config.json")
    assert status == 0
    assert "checkpoint" not in out


def test_an_edit_is_what_is_verified(run):
    status, out, _ = run("gqa-8", "--set", "layers[*].mixer.window=512")
    assert status == 0
    assert "scaled: layers[0].mixer.window = 512 → 6" in out
    edited = planner.edit(planner.load("gqa-8"), {"layers[*].mixer.window": 512})
    assert str(planner.verify(edited)) in out


@pytest.mark.parametrize("form", ["--json", "--csv", "--md"])
def test_every_form(run, form):
    status, out, _ = run("gqa-8", form)
    assert status == 0
    assert "FLOPs of prefill" in out


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        (["gqa-9"], 2, "unknown model or path 'gqa-9'; did you mean 'gqa-8'?"),
        (["gqa-8", "--set", "n_haeds=4"], 3, "n_haeds"),
        (["/nowhere/model.safetensors"], 3, "No such file or directory"),
    ],
)
def test_a_question_that_cannot_be_asked(run, argv, status, sentence):
    found, out, err = run(*argv)
    assert (found, out) == (status, "")
    assert sentence in err
    assert err.count("\n") == 1
