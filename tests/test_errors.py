import pytest

from planner import errors
from planner.errors import ContractError, PlannerError, UnknownName, suggest


@pytest.mark.parametrize(
    ("name", "exit_code"), [("UsageError", 2), ("UnknownName", 2), ("InputError", 3), ("ContractError", 3)]
)
def test_one_root_and_the_exit_code_of_each(name, exit_code):
    error = getattr(errors, name)
    assert issubclass(error, PlannerError)
    assert error.exit_code == exit_code


def test_the_tree_in_the_docstring_is_complete():
    classes = [
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, PlannerError)
    ]
    assert all(f"{name} " in errors.__doc__ for name in classes)


@pytest.mark.parametrize(
    ("parents", "path"),
    [
        ([], "n_heads"),
        (["mixer"], "mixer.n_heads"),
        (["mixer", "[0]", "layers"], "layers[0].mixer.n_heads"),
    ],
)
def test_a_broken_rule_learns_its_place_on_the_way_up(parents, path):
    error = ContractError("0 is not positive", "n_heads")
    for parent in parents:
        error = error.under(parent)
    assert error.path == path
    assert str(error.within("x.toml")) == f"x.toml: {path}: 0 is not positive"


def test_few_names_are_listed_where_none_is_near():
    assert str(UnknownName("basis", "monthly", ["spot", "reserved"])) == (
        "unknown basis 'monthly'; it is one of reserved, spot"
    )
    assert str(UnknownName("basis", "sport", ["spot", "reserved"])).endswith("; did you mean 'spot'?")
    assert str(UnknownName("model", "zebra", map(str, range(9)))) == "unknown model 'zebra'"


def test_where_many_names_are_known_the_command_that_lists_them_is_named():
    many = [*map(str, range(9))]
    assert str(UnknownName("accelerator", "zebra", many)) == (
        "unknown accelerator 'zebra'; planner accelerators lists those that are known"
    )
    assert str(UnknownName("accelerator", "zebra", many[:2])).endswith("; it is one of 0, 1")
    commands = {" ".join(command.split()[1:]) for command in errors.LISTED_BY.values()}
    assert commands == {"models", "accelerators", "formats", "formulas", "assumptions", "prices", "prices --api"}


def test_the_place_of_the_outermost_part_is_empty():
    assert str(ContractError("no layers").within("x.toml")) == "x.toml: no layers"


def test_suggestions():
    names = ["GQA-8", "mha", "mla"]
    assert suggest("gqa8", names) == "; did you mean 'GQA-8'?"
    assert suggest("", names) == suggest("mha", []) == ""
    assert suggest("--gpu", ["--tp", "--dcp"]) == ""  # dashes are no likeness
    assert suggest("--acclerator", ["--accelerator", "--api"]) == "; did you mean '--accelerator'?"
    assert str(UnknownName("model", "mma", names)) == "unknown model 'mma'; did you mean 'mla'?"
