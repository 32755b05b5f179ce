"""The command line as the tests of the commands type it."""

import pytest

from planner.cli import main


@pytest.fixture
def run(capsys):
    """Type a command: its exit status, what it printed, what it said beside it."""

    def typed(*argv):
        status = main([str(word) for word in argv])
        out, err = capsys.readouterr()
        return status, out, err

    return typed


@pytest.fixture
def answered(capsys):
    """Type a command that succeeds: what it printed (`out`) and said (`err`)."""

    def typed(*argv):
        assert main([str(word) for word in argv]) == 0
        return capsys.readouterr()

    return typed
