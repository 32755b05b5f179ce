"""The command line: it reads arguments, runs one command and turns errors into a sentence and an exit status.

Exit status 2 for a question that cannot be asked like this, 3 for an input that is not understood.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from planner.commands import ablation, app, comparing, contracts, hardware, known, planning, sheets, tables
from planner.commands.options import Commands, note, settle_form
from planner.errors import PlannerError, UsageError, suggest


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    if sys.stdout is None:  # closed by whoever called; the exit status still answers
        sys.stdout = io.StringIO()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no × still shows the rest
    try:
        said = sys.argv[1:] if argv is None else argv
        args = _parser().parse_args(said or ["--help"])
        settle_form(args)
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

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what is not known here, where the command is known whose options there are."""
        known, left = super().parse_known_args(args, namespace)
        if left:
            near = suggest(left[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(left)}{near}")
        return known, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a command that there is not, with the nearest one."""
        if action.choices is not None and value not in action.choices:
            self.error(f"unknown command {value!r:.60}{suggest(str(value), map(str, action.choices))}")

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Refuse a bare -- as a value, of which argparse makes an empty list."""
        if action.option_strings and arg_strings == ["--"]:
            self.error(f"argument {'/'.join(action.option_strings)}: expected one argument")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {self.prog} --help says what can be asked")


def _parser() -> argparse.ArgumentParser:
    from planner import __version__

    parser = _Parser(
        prog="planner",
        description="Sizes, speeds and costs of causal decoders, with their formulas.",
        epilog="example: planner fit llama-3.1-70b --accelerator h100-sxm --count 4 --context 32Ki --sequences 8. "
        "planner COMMAND --help says more, with another one. Exit status 1 is an answer that says no, such as "
        "does not fit; 2 is a wrong question, 3 an input that is not understood.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"planner {__version__}")
    commands = Commands(parser)
    for module in (planning, comparing, contracts, ablation, hardware, known, tables, sheets, app):
        module.register(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
