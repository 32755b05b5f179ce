"""The command line: it reads arguments, runs one command and turns errors into a sentence and an exit status.

Exit status 2 for a question that cannot be asked like this, 3 for an input that is not understood.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from planner.commands import ablation, app, comparing, contracts, hardware, planning, sheets, tables
from planner.commands.options import Commands, note
from planner.errors import PlannerError, UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no × still shows the rest
    try:
        args = _parser().parse_args(argv)
        status = args.command(args) or 0
        sys.stdout.flush()
        return status
    except PlannerError as error:
        note(f"planner: {error}")
        return error.exit_code
    except BrokenPipeError:  # the reader, such as head, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        note(f"planner: {error.filename or 'standard output'}: {error.strerror}")
        return UsageError.exit_code
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence, as all others are."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help says what can be asked")


def _parser() -> argparse.ArgumentParser:
    from planner import __version__

    parser = _Parser(
        prog="planner",
        description="Exact sizes, FLOPs and cache bytes of causal decoders, with their formulas.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"planner {__version__}")
    commands = Commands(parser)
    for module in (comparing, contracts, ablation, hardware, planning, tables, sheets, app):
        module.register(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
