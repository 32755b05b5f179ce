"""Commands about what a model runs on and what that costs: accelerators, prices."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from planner.commands.options import Commands, emit, note
from planner.errors import UsageError

if TYPE_CHECKING:
    from planner.device import Accelerator

# What a terminal has room for; every other form has all columns.
ACCELERATOR_COLUMNS = (
    "name memory_bytes bandwidth_bytes_per_s link_bytes_per_s domain_size power_w "
    "bf16_flops fp16_flops fp8_flops nvfp4_flops mxfp4_flops confidence"
).split()
PRICE_COLUMNS = "date accelerator provider region basis usd_per_hour confidence note".split()
API_COLUMNS = "date model provider model_id token_class above_tokens usd_per_mtok confidence note".split()
SPARE = ("mxfp4_flops", "model_id", "note", "fp16_flops", "nvfp4_flops", "domain_size")
"""Of these, what it goes without if it must."""


def register(commands: Commands) -> None:
    """Add the commands of this module."""
    sub = commands.add(
        "accelerators",
        accelerators,
        "The accelerators; or every figure of one, with source and confidence.",
        "--vendor amd --min-memory 100GiB",
    )
    sub.add_argument("accelerator", nargs="?", metavar="NAME", help="an accelerator, or a TOML file of your own")
    sub.add_argument("--vendor", metavar="NAME", help="only accelerators of this vendor")
    sub.add_argument(
        "--min-memory", metavar="SIZE", help="only accelerators with at least so much memory, such as 80GiB"
    )

    sub = commands.add(
        "prices",
        prices,
        "Prices of accelerator-hours, or with --api of tokens, as of a date.",
        "--accelerator h100-sxm",
    )
    sub.add_argument("--as-of", metavar="DATE", help="what was known on a date, such as 2026-06-01")
    sub.add_argument("--provider", metavar="NAME", help="only prices of this provider")
    sub.add_argument("--prices", metavar="FILE", help="a price file of your own, over the catalogue's")
    sub.add_argument("--accelerator", metavar="NAME", help="only prices of this accelerator")
    sub.add_argument("--basis", help="on_demand, spot or reserved")
    sub.add_argument("--api", action="store_true", help="prices of a million tokens instead")
    sub.add_argument("--model", metavar="NAME", help="with --api: only prices of this model")


def accelerators(args: argparse.Namespace) -> None:
    from planner import catalogue
    from planner.units import parse_bytes

    if args.accelerator is not None:
        if args.vendor or args.min_memory:
            raise UsageError("--vendor and --min-memory choose among all accelerators; leave out the name")
        _show_facts(args, catalogue.accelerator(args.accelerator))
        return
    least = parse_bytes(args.min_memory, "--min-memory") if args.min_memory else 0
    frame = catalogue.accelerators(vendor=args.vendor, min_memory_bytes=least)
    if args.form == "table":
        frame = frame[ACCELERATOR_COLUMNS]
        peaks = [name for name in ACCELERATOR_COLUMNS if name.endswith("_flops")]
        frame.attrs["units"] |= dict.fromkeys(peaks, "1")  # the headings say FLOP/s
    emit(args, frame, {}, SPARE)


def prices(args: argparse.Namespace) -> None:
    from planner import pricing

    if args.api:
        if args.accelerator or args.basis:
            raise UsageError("--accelerator and --basis are about hours; leave out --api")
        frame = pricing.api_prices(args.as_of, args.model, args.provider, args.prices)
        columns = API_COLUMNS
    else:
        if args.model:
            raise UsageError("--model is about tokens; it needs --api")
        frame = pricing.prices(args.as_of, args.accelerator, args.basis, args.provider, args.prices)
        if args.form == "table":
            notes = zip(frame["term"], frame["note"], strict=True)
            frame["note"] = ["; ".join(filter(None, said)) for said in notes]
        columns = PRICE_COLUMNS
    if frame.empty:
        note("no such price is known" + (f" as of {args.as_of}" if args.as_of else ""))
    frame = frame[columns] if args.form == "table" else frame
    emit(args, frame, {} if args.as_of else {"as_of": "newest"}, SPARE)


def _show_facts(args: argparse.Namespace, device: Accelerator) -> None:
    from planner import catalogue
    from planner.printing import cell
    from planner.units import show

    frame = catalogue.fact_table(device)
    sources = frame.groupby("source", sort=False)["figure"].agg(", ".join)
    if args.form == "table":  # values with their units, and the long titles of sources below
        for name in ("value", "sparse"):
            frame[name] = [cell(value, unit) for value, unit in zip(frame[name], frame["unit"], strict=True)]
        frame.loc[frame["figure"] == "marketing_memory_bytes", "value"] = show(device.marketing_memory_bytes or 0, "B")
        frame = frame.drop(columns=["unit", "source"])
    emit(args, frame, {})
    for source, figures in sources.items() if args.form == "table" else ():
        note(f"{figures}: {source}")
    for remark in device.notes:
        note(f"{device.name}: {remark}")
