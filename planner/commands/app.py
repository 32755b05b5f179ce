"""The command that starts the web app: a server of its own on loopback, told nothing to anybody else."""

from __future__ import annotations

import argparse
import os
import sys

from planner.commands.options import Commands, count
from planner.errors import UsageError

ADDRESS = "127.0.0.1"
PORT = 8501
LARGEST_PORT = 65_535


def register(commands: Commands) -> None:
    """Add the commands of this module."""
    sub = commands.add(
        "app", app, "Open the web app in the browser; it is served on this machine alone.", "--port 8600", table=False
    )
    sub.add_argument("--port", metavar="N", default=str(PORT), help=f"port on {ADDRESS} (default {PORT})")
    sub.add_argument("--headless", action="store_true", help="serve without opening a browser")


def app(args: argparse.Namespace) -> None:
    from importlib.resources import as_file, files

    with as_file(files("planner.app") / "main.py") as main:
        command = server(str(main), args.port, args.headless)
        os.execv(command[0], command)  # whoever ends this process ends the server


def server(main: str, port: str, headless: bool) -> list[str]:
    """The command line of the server. What else it is told stands in the config.toml beside `main`.

    Raises `UsageError` for what is no port.
    """
    number = count(port, "--port")
    if not 1 <= number <= LARGEST_PORT:
        raise UsageError(f"--port {port}: a port is a number from 1 to {LARGEST_PORT}")
    told = {
        "server.address": ADDRESS,
        "server.port": number,
        "server.headless": str(headless).lower(),
        "browser.gatherUsageStats": "false",
    }
    return [sys.executable, "-m", "streamlit", "run", main, *(f"--{option}={value}" for option, value in told.items())]
