"""`planner app` serves on loopback and says nothing to anybody else."""

import sys

import pytest

from planner.cli import main
from planner.commands.app import server


def test_the_server_is_told_address_port_and_silence():
    command = server("main.py", "8600", headless=True)
    assert command[:5] == [sys.executable, "-m", "streamlit", "run", "main.py"]
    assert set(command[5:]) == {
        "--server.address=127.0.0.1",
        "--server.port=8600",
        "--server.headless=true",
        "--browser.gatherUsageStats=false",
    }


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1", "8501; true"])
def test_a_port_is_a_number(port, capsys):
    assert main(["app", f"--port={port}"]) in (2, 3)
    assert "--port" in capsys.readouterr().err


def test_the_command_becomes_the_server(monkeypatch):
    become = []
    monkeypatch.setattr("os.execv", lambda program, command: become.append((program, command)))
    assert main(["app", "--headless"]) == 0
    ((program, command),) = become
    assert program == command[0] == sys.executable
    assert command[4].endswith("main.py")
