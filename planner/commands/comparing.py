"""Commands that put decoders side by side: compare, sweep, crossings, diff."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import TYPE_CHECKING

from planner.commands.options import (
    MODEL,
    Commands,
    axis_values,
    count,
    edit_option,
    edited,
    emit,
    given_load,
    load_options,
    note,
    online_option,
    pair,
    read_model,
    say,
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
        "crossings",
        crossings,
        "From which context on attention takes more FLOPs than the projections, the feed-forward and everything else.",
        "llama-3.1-8b gemma-3-27b",
    )
    sub.add_argument("models", nargs="+", metavar="MODEL", help=MODEL)
    edit_option(sub)
    online_option(sub)

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
    _say(frame, "warning", "the context is ")
    _say(frame, "reason")
    stated = frame.loc[frame["weights_basis"] == "stated", "name"]
    if len(stated):
        note(f"weights and crossovers of {', '.join(stated)} go by the parameters they state; --derive counts them")
    if args.form == "table":
        _say(frame, "crossover_note", "cache = weights: ")
        frame = frame.drop(columns=[*SAID, "reason"])
    emit(args, frame, say_assumed(args, chosen), SPARE)


SAID = ["weights_basis", "crossover_note", "warning"]
"""Columns that a terminal has as notes."""

SPARE = "cache_ratio cache_fixed_bytes crossover_tokens active_parameters cache_bytes_per_token parameters".split()
"""Columns that a terminal goes without, the first first."""


def _say(frame: DataFrame, column: str, before: str = "") -> None:
    """A note for each decoder, which says of how many of its rows it holds if not of all."""
    rows = Counter(frame["name"])
    for (name, text), held in Counter(zip(frame["name"], frame[column], strict=True)).items():
        if text:
            part = "" if held == rows[name] else f", {held} of {rows[name]} rows"
            note(f"{name}{part}: {before}{text}")


def sweep(args: argparse.Namespace) -> None:
    from planner.scenarios import sweep as table

    chosen = [edited(read_model(name, args.online).architecture, args.edits) for name in args.models]
    axes = given_load(args, numbers=lambda text, place: [count(part, place) for part in text.split(",")])
    axes |= {path: axis_values(text) for path, text in map(pair, args.axes)}
    frame = table(chosen, how="zip" if args.zip else "grid", **axes)
    if (frame["reason"] != "").all():
        raise InputError(frame["reason"].iloc[0])
    if args.form == "table":
        _say(frame, "warning", "the context is ")
        _say(frame, "crossover_note", "cache = weights: ")
        frame = frame.drop(columns=SAID)
    emit(args, frame, say_assumed(args, chosen), SPARE)


def crossings(args: argparse.Namespace) -> None:
    import pandas

    from planner.curves import OVER, PHASES
    from planner.curves import crossings as table

    frames = []
    for model in (edited(read_model(name, args.online).architecture, args.edits) for name in args.models):
        most, farthest = model.max_positions, 0
        for phase in PHASES:
            found = table(model, phase)
            frames.append(found.assign(name=model.name, phase=phase))
            farthest = max([farthest, *found["context"]])
            never = [over for over in OVER if over not in found["over"].tolist()]
            if never:
                note(f"{model.name}: in {phase}, attention never overtakes {' or '.join(never)}")
        if most is not None and farthest > most:
            note(f"{model.name}: a context above {most:,} is beyond the stated maximum")
    frame = pandas.concat(frames)[["name", "phase", "over", "context", "flops"]]
    frame.attrs["units"] = {"flops": "FLOP"}
    emit(args, frame, {})


def diff(args: argparse.Namespace) -> None:
    import pandas

    from planner.editing import diff as differences
    from planner.scenarios import compare as table

    a, b = (read_model(name, args.online).architecture for name in args.models)
    one, other = (a.name, b.name) if a.name != b.name else (f"{a.name} (1)", f"{b.name} (2)")
    rows = [
        {"path": path, one: str(left), other: str(right)}
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
        rows.append({"path": f"= {name}", one: f"{left:,}", other: f"{right:,}"})
    assumed = {"context": DIFF_CONTEXT, "batch": 1}
    say(assumed)
    emit(args, pandas.DataFrame(rows), assumed)
