"""The names that spreadsheets, notebooks and other people's programs rely on."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import planner

SUBPACKAGES = {"witness"}

# What a run adds to the modules that the interpreter itself had loaded, less the standard library and ourselves.
FOREIGN = """
import sys
before = set(sys.modules)
{run}
added = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(added - sys.stdlib_module_names - {{"planner"}}))
"""


def test_names_are_sorted():
    assert planner.__all__ == sorted(planner.__all__)


@pytest.mark.parametrize("name", planner.__all__)
def test_every_name_resolves(name):
    assert getattr(planner, name) is getattr(planner, name)
    assert name in dir(planner)


@pytest.mark.parametrize("name", sorted({*planner.__all__} - SUBPACKAGES))
def test_no_name_is_also_a_module(name):
    """Importing the module would put it in the place of the name."""
    assert importlib.util.find_spec(f"planner.{name}") is None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'planner' has no attribute 'cach_bytes'$"):
        _ = planner.cach_bytes


@pytest.mark.parametrize(
    "run",
    [
        "import planner",
        """
import contextlib, io
from planner.cli import main
sys.argv = ["planner", "--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main()
""",
    ],
    ids=["import planner", "planner --help"],
)
def test_only_the_standard_library_is_imported(run):
    root = Path(__file__).parent.parent
    child = subprocess.run([sys.executable, "-c", FOREIGN.format(run=run)], cwd=root, capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (0, "\n"), child.stderr
