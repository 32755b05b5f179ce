"""`planner ablate`: variants of a decoder at an equal budget, and what else changes with them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
from planner.errors import UsageError

if TYPE_CHECKING:
    from pandas import DataFrame


def register(commands: Commands) -> None:
    """Add the command of this module."""
    sub = commands.add(
        "ablate",
        ablate,
        "Variants of a decoder at an equal budget: what is left over, what else changes, and whether each runs. "
        "Exit status 1 if one cannot be had or fails verify.",
        "llama-3.1-8b --vary mixer=mha,mqa,mla",
    )
    sub.add_argument("model", metavar="MODEL", help=MODEL)
    sub.add_argument(
        "--vary",
        required=True,
        action="append",
        metavar="WHAT=OPTIONS",
        help="several times to vary more, one at a time: mixer=mha,gqa-8,mqa,mla,window-4096 | "
        "norm=rms,layer,layer-nobias,pre,post,sandwich,parallel | ffn=swiglu,geglu,reglu,gelu,relu,relu2,silu | "
        "position=rope,alibi,learned,none",
    )
    sub.add_argument(
        "--match", metavar="BUDGET", help="the budget that is matched: params, flops or cache (default params)"
    )
    sub.add_argument(
        "--by",
        metavar="FIELD",
        help="what matches parameters or FLOPs: d_ff or layers (default d_ff); the cache is matched by the latent's "
        "width (mla), key heads (gqa) or window (window), else by the sequences that fit",
    )
    sub.add_argument(
        "--multiple", metavar="N", help="widths are rounded to it (default 64, less for narrow feed-forwards)"
    )
    sub.add_argument(
        "--context", metavar="N", help="positions whose FLOPs and cache are counted, such as 8k (default 4096)"
    )
    sub.add_argument("--batch", "--sequences", metavar="N", help="sequences whose cache is counted (default 1)")
    sub.add_argument(
        "--tokens", metavar="N", help="training tokens, such as 15T (default 20 for each active parameter)"
    )
    edit_option(sub)
    online_option(sub)


def ablate(args: argparse.Namespace) -> int:
    from planner.witness import ablate as witness

    given: dict[str, Any] = {name: text for name in ("match", "by") if (text := getattr(args, name)) is not None}
    for name in ("multiple", "context", "batch", "tokens"):
        if (text := getattr(args, name)) is not None:
            given[{"tokens": "training_tokens"}.get(name, name)] = count(text, f"--{name}")
    model = edited(read_model(args.model, args.online).architecture, args.edits)
    frame = witness.ablate(model, _options(args.vary), **given)
    tokens = int(frame["training_tokens"].iloc[0])
    defaults = {"match": "params", "by": "d_ff", "context": witness.CONTEXT, "batch": 1, "training_tokens": tokens}
    if given.get("match") == "cache":
        del defaults["by"]
    assumed = {name: value for name, value in defaults.items() if name not in given}
    emit(args, _in_short(frame) if args.form == "table" else frame, assumed, SPARE)
    say(assumed)
    for line in _remarks(frame) if args.form == "table" else ():
        note(line)
    note(frame.attrs["note"])
    return 0 if all(verified is True for verified in frame["verified"].tolist()) else 1


def _options(texts: list[str]) -> dict[str, list[str]]:
    """What varies -> its options."""
    vary: dict[str, list[str]] = {}
    for text in texts:
        what, equals, options = text.partition("=")
        if not equals:
            raise UsageError(f"--vary {text!r} is not WHAT=OPTIONS, such as mixer=mha,gqa-8,mqa,mla")
        vary.setdefault(what.strip(), []).extend(option.strip() for option in options.split(","))
    return vary


SPARE = ("sequences", "active_parameters", "tokens_at_equal_compute")
"""What a terminal goes without first: the sequences are one or stand in `matched_by`."""


def _remarks(frame: DataFrame) -> Iterator[str]:
    """What a variant lacks, or why there is none."""
    from planner.printing import is_absent, records

    for row in records(frame):
        if not is_absent(row["reason"]):
            yield f"{row['name']}: {row['reason'].removeprefix(row['name'] + ': ')}"
        elif row["dropped"]:
            yield f"{row['name']}: without {row['dropped']}"


def _in_short(frame: DataFrame) -> DataFrame:
    """The figures that a terminal has room for, each with its change."""
    import pandas

    from planner.printing import cell, is_absent, records
    from planner.witness.ablate import CHANGES

    def changed(row: dict[str, Any], name: str) -> str:
        change = row[f"{name}_change"]
        figure = cell(row[name], units[name])
        return f"{figure} ({change:+.1%})" if change and not is_absent(change) else figure

    units = frame.attrs["units"]
    rows = [
        {
            "name": row["name"],
            "matched_by": row["matched_by"],
            "mismatch": None if is_absent(row["mismatch"]) else f"{row['mismatch']:+.3%}",
            **{name: changed(row, name) for name in CHANGES},
            "sequences": row["sequences"],
            "tokens_at_equal_compute": row["tokens_at_equal_compute"],
            "verified": row["verified"],
        }
        for row in records(frame)
    ]
    short = pandas.DataFrame(rows)
    short.attrs["units"] = units
    return short
