"""One worked example for each kind of user, run from its first line to its last: what it asserts must hold."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent / "examples").glob("*.py"))


def test_there_is_one_for_each_kind_of_user():
    assert [path.stem for path in EXAMPLES] == ["capacity_planner", "model_architect", "serving_engineer"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, capsys):
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")  # a notebook in the percent format, which editors open as cells
    assert text.count("\nassert ") >= 5
    runpy.run_path(str(path))
    assert capsys.readouterr().out
