"""Commands about one decoder and what is known of it: show, contract, verify, models, formulas."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from planner.commands import checkpoints
from planner.commands.options import (
    MODEL,
    Commands,
    count,
    edit_option,
    edited,
    emit,
    note,
    online_option,
    read_model,
    say,
)
from planner.errors import UnknownName, UsageError

SPARE = ("per", "units", "component", "format", "heads", "width", "layers")


def register(commands: Commands) -> None:
    """Add the commands of this module."""
    sub = commands.add(
        "show",
        show,
        "The itemised bill of a decoder: its tensors, its cache, or of a pass the matrix products, the element-wise "
        "operations or the temporary memory. Of a checkpoint, the tensors of its headers, held to its contract. Exit "
        "status 1 if a checkpoint differs.",
        "llama-3.1-8b --of products --past 0 --new 2Ki",
    )
    sub.add_argument("model", metavar="MODEL", help=MODEL)
    sub.add_argument(
        "--of", metavar="LIST", default="tensors", help="tensors (default), products, cache, operations or temporary"
    )
    sub.add_argument("--past", metavar="N", help="cached positions before the pass (default 0)")
    sub.add_argument("--new", metavar="N", help="positions of the pass (default 1)")
    sub.add_argument("--kv", metavar="FORMAT", help="of the cache: see planner formats (default: the contract's)")
    sub.add_argument(
        "--on-chip", metavar="SIZE", help="memory for tiles of attention, such as 192KiB, for --of temporary"
    )
    edit_option(sub)
    online_option(sub)

    sub = commands.add(
        "contract",
        contract,
        "The whole written contract of a decoder, and its block equations.",
        "llama-3.1-8b --toml",
        table=False,
    )
    sub.add_argument("model", metavar="MODEL", help=MODEL)
    sub.add_argument("--toml", action="store_true", help="as TOML that the planner reads back")
    edit_option(sub)
    online_option(sub)

    sub = commands.add(
        "verify",
        verify,
        "Run a decoder in NumPy, made small, and hold the counts to what was measured; of a checkpoint, its header "
        "too. Exit status 1 if a check fails.",
        "qwen3-8b",
    )
    sub.add_argument("model", nargs="?", default="gqa-8", metavar="MODEL", help=f"{MODEL} (default gqa-8)")
    sub.add_argument("--full", action="store_true", help="keep the depth and read longer sequences")
    edit_option(sub)
    online_option(sub)

    sub = commands.add(
        "formulas", formulas, "The named formulas, or one of them with symbols, units and source.", "kv_payload"
    )
    sub.add_argument("formula", nargs="?", metavar="NAME", help="one of them (default: a list of all)")

    sub = commands.add("models", models, "The models that are known by name.", "--family llama --max-params 40G")
    sub.add_argument("--family", metavar="NAME", help="only presets of this family")
    sub.add_argument("--min-params", metavar="N", help="only presets with at least so many parameters, such as 7G")
    sub.add_argument("--max-params", metavar="N", help="only presets with at most so many parameters")


def show(args: argparse.Namespace) -> int | None:
    import pandas

    from planner.accounts import parameters
    from planner.itemised import itemise
    from planner.sources import read_headers
    from planner.sources.checkpoint import INDEX

    if args.of != "tensors":
        _show_work(args)
        return None
    for name in ("past", "new", "kv", "on_chip"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} is of a pass or its cache; say with --of what to list of it")
    headers = None if args.model == "-" else read_headers(args.model, online=args.online)
    if headers is not None:
        return checkpoints.show(args, *headers)
    loaded = read_model(args.model, args.online)
    architecture = edited(loaded.architecture, args.edits)
    frame = itemise(architecture)
    total = parameters(architecture)
    if args.form == "table":
        subtotals = [
            {"path": f"= {key}", "parameters": n} for key, n in parameters(architecture, by="component").items()
        ]
        active = {"path": "= active per token", "parameters": parameters(architecture, active=True)}
        frame = pandas.concat(
            [
                frame.drop(columns=["component"]),
                pandas.DataFrame([*subtotals, active, {"path": "= total", "parameters": total}]),
            ]
        )
        frame["parameters"] = [f"{n:,}" for n in frame["parameters"]]
        frame["copies"] = ["" if pandas.isna(n) else f"{n:,.0f}" for n in frame["copies"]]
    emit(args, frame, {})
    if os.path.isfile(os.path.join(args.model, INDEX)):  # of a download that was cut short, or is all there is
        note(f"{args.model}: {INDEX} is there, but no weights; this is what config.json says")
    for line in loaded.against_published(total) if not args.edits else ():
        note(line)
    return None


def _show_work(args: argparse.Namespace) -> None:
    """One of the lists that depend on how long the sequence is, with its sums."""
    import pandas

    from planner.itemised import itemise
    from planner.units import parse_bytes

    architecture = edited(read_model(args.model, args.online).architecture, args.edits)
    said: dict[str, Any] = {
        name: count(text, f"--{name}") for name in ("past", "new") if (text := getattr(args, name)) is not None
    }
    if args.on_chip is not None:
        said["on_chip_bytes"] = parse_bytes(args.on_chip, "--on-chip")
    frame = itemise(architecture, of=args.of, kv=args.kv, **said)
    say({name: value for name, value in {"past": 0, "new": 1}.items() if name not in said})
    amount = {"products": "flops", "cache": "bytes"}.get(args.of)  # the rows of the others are of different kinds
    if args.form == "table" and len(frame) and amount is not None:
        ends = [{"path": "= total", amount: frame[amount].sum()}]
        if args.of == "products":
            sums = frame.groupby("component", sort=False)[amount].sum()
            ends = [{"path": f"= {key}", amount: value} for key, value in sums.items()] + ends
        frame = pandas.concat([frame, pandas.DataFrame(ends)]).convert_dtypes()
    emit(args, frame, {}, SPARE)


def contract(args: argparse.Namespace) -> None:
    from planner.equations import contract_document
    from planner.loading import to_toml

    architecture = edited(read_model(args.model, args.online).architecture, args.edits)
    sys.stdout.write(to_toml(architecture) if args.toml else contract_document(architecture))


def verify(args: argparse.Namespace) -> int:
    from planner.sources import read_headers
    from planner.witness.verify import verify as run

    headers = None if args.model == "-" else read_headers(args.model, online=args.online)
    architecture = edited(read_model(args.model, args.online).architecture, args.edits)
    report = run(architecture, args.full, checkpoint=headers[0] if headers else None)
    if args.form == "table":
        print(report)
    else:
        emit(args, report.to_frame(), {})
    return 0 if report.passed else 1


def models(args: argparse.Namespace) -> None:
    from planner.sources.presets import catalogue

    frame = catalogue()
    if args.family is not None:
        if args.family not in frame["family"].values:
            raise UnknownName("family", args.family, sorted(frame["family"].unique()))
        frame = frame[frame["family"] == args.family]
    if args.min_params is not None:
        frame = frame[frame["parameters"] >= count(args.min_params, "--min-params")]
    if args.max_params is not None:
        frame = frame[frame["parameters"] <= count(args.max_params, "--max-params")]
    if frame.empty:
        note("no preset has so many parameters")
    emit(args, frame.drop(columns=["hub"]) if args.form == "table" else frame, {}, ("vocab_size", "d_model"))


def formulas(args: argparse.Namespace) -> None:
    import pandas

    from planner.formula import formulas as registry

    if args.formula is None:
        rows = [
            {
                "name": name,
                "unit": f.unit,
                "meaning": f.summary,
                "latex": f.latex,
                "excel": f.excel,
                "source": f.citation,
            }
            for name, f in registry.items()
        ]
        frame = pandas.DataFrame(rows)
        emit(args, frame[["name", "unit", "meaning"]] if args.form == "table" else frame, {})
        return
    chosen = registry[args.formula]
    if args.form == "table":
        sys.stdout.write(f"{chosen.describe()}\n")
    else:
        emit(args, chosen.to_frame(), {})
