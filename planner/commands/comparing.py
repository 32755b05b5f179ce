"""Commands that put decoders side by side: compare, sweep, diff."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from planner.commands.options import (
    MODEL,
    Commands,
    axis_values,
    count,
    edited,
    emit,
    given_load,
    load_options,
    note,
    online_option,
    pair,
    read_model,
    say_assumed,
)
from planner.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame


def register(commands: Commands) -> None:
    """Add the commands of this module."""
    sub = commands.add(
        "compare",
        compare,
        "Compare decoders at one load; without names, MHA, GQA, MQA and MLA.",
        "llama-3.1-8b qwen3-8b --context 32k",
    )
    sub.add_argument("models", nargs="*", metavar="MODEL", help=MODEL)
    load_options(sub, many=False)
    sub.add_argument("--derive", action="store_true", help="count the parameters of contracts that state theirs")

    sub = commands.add(
        "sweep", sweep, "A row for each combination of the axes.", "llama-3.1-8b --context 8k,32k --kv bf16,fp8"
    )
    sub.add_argument("models", nargs="+", metavar="MODEL", help=MODEL)
    load_options(sub, many=True)
    sub.add_argument("--isl", metavar="N", help="tokens in of a request, with --osl instead of --context")
    sub.add_argument("--osl", metavar="N", help="tokens out of a request")
    sub.add_argument(
        "--axis", dest="axes", metavar="PATH=V1,V2", action="append", default=[], help="a contract field as an axis"
    )
    sub.add_argument("--zip", action="store_true", help="axes side by side instead of all combinations")

    sub = commands.add(
        "diff",
        diff,
        "What differs between two contracts, and what it does to parameters, FLOPs and cache.",
        "gqa-8 mla",
    )
    sub.add_argument("models", nargs=2, metavar="MODEL", help=MODEL)
    online_option(sub)


DIFF_CONTEXT = 1024


def compare(args: argparse.Namespace) -> None:
    from planner.scenarios import COMPARISON_SET
    from planner.scenarios import compare as table

    chosen = [edited(read_model(name, args.online).architecture, args.edits) for name in args.models or COMPARISON_SET]
    frame = table(chosen, derive=args.derive, **given_load(args, numbers=count))
    _say(frame, "warning")
    _say(frame, "reason")
    stated = frame.loc[frame["weights_basis"] == "stated", "name"]
    if len(stated):
        note(f"weight bytes and crossovers of {', '.join(stated)}: parameters as stated; --derive counts them")
    if args.form == "table":
        _say(frame, "crossover_note", "cache = weights: ")
        frame = frame.drop(columns=[*SAID, "reason"])
    emit(args, frame, say_assumed(args, chosen), SPARE)


SAID = ["weights_basis", "crossover_note", "warning"]
"""Columns that a terminal has as notes."""

SPARE = "cache_ratio cache_fixed_bytes crossover_tokens active_parameters cache_bytes_per_token parameters".split()
"""Columns that a terminal goes without, the first first."""


def _say(frame: DataFrame, column: str, before: str = "") -> None:
    for name, text in dict.fromkeys(zip(frame["name"], frame[column], strict=True)):
        if text:
            note(f"{name}: {before}{text}")


def sweep(args: argparse.Namespace) -> None:
    from planner.scenarios import sweep as table

    chosen = [edited(read_model(name, args.online).architecture, args.edits) for name in args.models]
    axes = given_load(args, numbers=lambda text, place: [count(part, place) for part in text.split(",")])
    axes |= {path: axis_values(text) for path, text in map(pair, args.axes)}
    frame = table(chosen, how="zip" if args.zip else "grid", **axes)
    if (frame["reason"] != "").all():
        raise InputError(frame["reason"].iloc[0])
    if args.form == "table":
        _say(frame, "warning")
        _say(frame, "crossover_note", "cache = weights: ")
        frame = frame.drop(columns=SAID)
    emit(args, frame, say_assumed(args, chosen), SPARE)


def diff(args: argparse.Namespace) -> None:
    import pandas

    from planner.editing import diff as differences
    from planner.scenarios import compare as table

    a, b = (read_model(name, args.online).architecture for name in args.models)
    rows = [
        {"path": path, a.name: str(left), b.name: str(right)}
        for path, (left, right) in differences(a, b).items()
        if path not in ("name", "title")
    ]
    figures = table([a, b], context=DIFF_CONTEXT, derive=True)
    for name in (
        "parameters",
        "active_parameters",
        "cache_bytes_per_token",
        "cache_bytes",
        "prefill_flops",
        "decode_flops",
    ):
        left, right = figures[name]
        rows.append({"path": f"= {name}", a.name: f"{left:,}", b.name: f"{right:,}"})
    emit(args, pandas.DataFrame(rows), {"context": DIFF_CONTEXT})
