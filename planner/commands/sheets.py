"""Commands about spreadsheets: workbook."""

from __future__ import annotations

import argparse

from planner.commands.options import MODEL, Commands, note, read_model
from planner.commands.planning import plan_of, plan_options


def register(commands: Commands) -> None:
    """Add the commands of this module."""
    sub = commands.add(
        "workbook",
        workbook,
        "A live .xlsx: change its yellow cells in a spreadsheet program, and every figure follows.",
        "llama-3.1-8b mla --accelerator h100-sxm --context 32k -o plan.xlsx",
        table=False,
    )
    sub.add_argument("models", nargs="*", metavar="MODEL", help=f"{MODEL}; the first is planned")
    plan_options(sub, without=("model",))
    sub.add_argument("-o", "--output", metavar="FILE", required=True, help="the workbook to write, such as plan.xlsx")


def workbook(args: argparse.Namespace) -> None:
    from planner.workbook import write_workbook

    beside = args.models if args.plan is not None else args.models[1:]
    args.model = args.models[0] if args.models and args.plan is None else None
    plan = plan_of(args)
    write_workbook([plan, *(read_model(name, args.online).architecture for name in beside)], args.output)
    note(f"wrote {args.output}")
