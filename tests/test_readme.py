"""The README is run, line by line."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from planner.plan_file import parse_plan

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [
    line for block in re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]
SETUP = [line for line in LINES if ".venv/" in line]
COMMANDS = [line for line in LINES if line.startswith("planner ")]


def test_every_line_is_run_here_or_in_ci():
    assert [line for line in LINES if line not in SETUP + COMMANDS and not line.startswith("#")] == []
    assert len(SETUP) == 2
    assert COMMANDS


@pytest.mark.parametrize("line", SETUP)
def test_ci_installs_and_tests_word_for_word_as_here(line):
    assert f'step "{line}"\n' in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line, tmp_path):
    command = f"{shlex.quote(sys.executable)} -m planner.cli {line.removeprefix('planner ')}"
    run = subprocess.run(
        command, shell=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout or list(tmp_path.iterdir())


def test_plan_file():
    (text,) = re.findall(r"^```toml\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    plan = parse_plan(text, "README.md")
    assert (plan.isl, plan.layout.accelerators, plan.assume("compute_fraction")) == (4000, 4, 0.6)


def test_python():
    blocks = re.findall(r"^```python\n(>>> .*?)^```", README, re.DOTALL | re.MULTILINE)
    assert blocks
    example = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "README.md", "README.md", 0)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).run(example, out=said.append)
    assert not said, "".join(said)
