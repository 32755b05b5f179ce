"""Commands that list what options may say: formats, assumptions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from planner.commands.options import Commands, emit, note

if TYPE_CHECKING:
    from planner.assumptions import Assumption

MATRIX = (4096, 4096)
HEAD_DIM = 128
"""A weight matrix and a head of the usual size, whose elements show what scales add."""


def register(commands: Commands) -> None:
    """Add the commands of this module."""
    commands.add(
        "formats",
        formats,
        "The storage formats that --weights and --kv take, with the bits of an element. Behind a format of weights may "
        "stand what differs by role: awq-g128+lm_head=bf16.",
        "--csv",
    )
    commands.add(
        "assumptions",
        assumptions,
        "What is taken for granted where nothing else is said, and what --assume replaces.",
        "-o assumptions.csv",
    )


def formats(args: argparse.Namespace) -> None:
    import pandas

    from planner.storage import formats as known
    from planner.storage import roles_of

    schemes: dict[str, str] = {}

    def said(scheme: str) -> str:
        """The roles that are quantised; on a terminal the scheme's name, since there are few, and a line for each."""
        schemes[scheme] = ", ".join(roles_of(scheme))
        return scheme if args.form == "table" else schemes[scheme]

    rows = [
        {
            "name": name,
            "bits": float(each.bits),
            "weights_bits": float(each.effective_bits(MATRIX)) if each.scheme else None,
            "kv_bits": float(8 * each.bytes_per_position(1, HEAD_DIM) / HEAD_DIM) if each.cache else None,
            "quantises": said(each.scheme) if each.scheme and not each.plain else None,
            "source": each.source,
        }
        for name, each in known().items()
        if each.scheme or each.cache
    ]
    emit(args, pandas.DataFrame(rows), {}, spare=("source",))
    for scheme, roles in schemes.items() if args.form == "table" else ():
        note(f"{scheme} quantises {roles}")
    note(
        f"bits of an element with its scales: of a weight in {MATRIX[0]} x {MATRIX[1]}, of a cached one in a head of "
        f"{HEAD_DIM}"
    )
    note(
        "--weights also takes llama.cpp's file types, such as q4_k_m, at their average; and other formats for some "
        "roles, such as awq-g128+lm_head=int8-channel"
    )


def assumptions(args: argparse.Namespace) -> None:
    import pandas

    from planner.assumptions import assumptions as known
    from planner.printing import cell

    def shown(value: Any, each: Assumption) -> Any:
        return cell(value, each.unit) if args.form == "table" else value

    rows = [
        {
            "name": each.name,
            "value": shown(each.value, each),
            "unit": each.unit,
            "engines": ", ".join(f"{engine} = {shown(value, each)}" for engine, value in each.engines.items()),
            "moe": shown(each.moe, each),
            "meaning": each.meaning,
            "source": each.source,
        }
        for each in known().values()
    ]
    frame = pandas.DataFrame(rows)
    emit(args, frame.drop(columns=["unit", "source"]) if args.form == "table" else frame, {})
