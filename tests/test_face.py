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


TAKES_A_MODEL = {
    "ablate": ({"mixer": ["mqa"]},),
    "cache_bytes": ([1000, 20],),
    "edit": ({"n_kv_heads": 4},),
    "flops": (),
    "itemise": (),
    "parameters": (),
    "weight_bytes": ("fp8",),
}


@pytest.mark.parametrize("name", TAKES_A_MODEL)
def test_a_model_is_a_contract_or_what_load_takes(name):
    ask, rest = getattr(planner, name), TAKES_A_MODEL[name]
    named, loaded = ask("gqa-8", *rest), ask(planner.load("gqa-8"), *rest)
    assert named.equals(loaded) if hasattr(named, "equals") else named == loaded
    with pytest.raises(planner.PlannerError, match="unknown model or path 'gqa-9'; did you mean 'gqa-8'"):
        ask("gqa-9", *rest)


def test_two_models_are_compared_by_name():
    assert planner.diff("mha", "mqa")["layers[0].mixer.n_kv_heads"] == (32, 1)
    assert planner.verify("mqa").passed


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: planner.cache_bytes("mha", -1), "lengths = -1 is not a number of positions, 0 or more"),
        (lambda: planner.cache_bytes("mha", [5, None]), "lengths = None is not a number of positions"),
        (lambda: planner.cache_bytes("mha", "1000"), "lengths = '1000' is not a number of positions"),
        (lambda: planner.cache_bytes("mha", 10, batch=-2), "batch = -2 is not a number of sequences"),
        (lambda: planner.flops("mha", new=10, batch=float("nan")), "batch = nan is not a number of sequences"),
        (lambda: planner.flops("mha", by="role"), "by = 'role' is none of component, product"),
        (lambda: planner.parameters("mha", by="layer"), "by = 'layer' is none of role, component"),
    ],
)
def test_figures_that_cannot_be_are_refused(ask, sentence):
    with pytest.raises(planner.PlannerError, match=sentence):
        ask()


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
