"""Write a preset from a published config.json; a person reads it before it goes into `presets/models`.

For example::

    python -m planner.sources.make_preset config.json --name llama-3.1-8b --hub meta-llama/Llama-3.1-8B \\
        --family llama --source "config.json beside the weights" --parameters 8030261248 > preset.toml

What the checkpoint has and the contract does not count is named by ``--includes "..." --excess N``.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import ContractError, PlannerError
from planner.sources import load
from planner.sources.config_json import parse_json, read_config
from planner.sources.document import CONFIG, Figure, Loaded, Published, Source, write_document

WEIGHTS = "weights"  # the source of the published parameters


def preset(
    config: Mapping[str, Any],
    name: str,
    *,
    title: str,
    sources: Mapping[str, Source],
    hub: str | None = None,
    aliases: Sequence[str] = (),
    family: str | None = None,
    notes: Sequence[str] = (),
    parameters: Figure | None = None,
) -> str:
    """The TOML of a preset. Raises `ContractError` for a config that has a key we do not understand."""
    unknown = read_config(dict(config), name).unknown_keys
    if unknown:
        raise ContractError(f"keys that are not understood: {', '.join(unknown)}", source=name)
    return write_document(
        Loaded(
            architecture=dataclasses.replace(load(config), name=name, title=title),
            hub=hub,
            aliases=tuple(aliases),
            family=family,
            notes=tuple(notes),
            published=Published(parameters=parameters),
            sources=dict(sources),
        )
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the preset; exit status 0, or that of the error."""
    program = "python -m planner.sources.make_preset"
    parser = argparse.ArgumentParser(prog=program, description="Write a preset from a config.json.")
    parser.add_argument("config", type=Path)
    for option in ("--name", "--family", "--source"):
        parser.add_argument(option, required=True)
    for option in ("--hub", "--title", "--includes"):
        parser.add_argument(option)
    parser.add_argument("--parameters", type=int)
    parser.add_argument("--excess", type=int, default=0)
    args = parser.parse_args(argv)
    today = datetime.date.today()
    sources, figure = {CONFIG: Source(title=args.source, retrieved=today)}, None
    try:
        if args.parameters is not None:
            sources[WEIGHTS] = Source(title="total of the published weights, from their headers", retrieved=today)
            includes = (args.includes,) if args.includes else ()
            figure = Figure(value=args.parameters, source=WEIGHTS, includes=includes, excess=args.excess)
        sys.stdout.write(
            preset(
                parse_json(args.config.read_text("utf-8"), str(args.config)),
                args.name,
                title=args.title or (args.hub or args.name).rpartition("/")[2].replace("-", " "),
                hub=args.hub,
                family=args.family,
                sources=sources,
                parameters=figure,
            )
        )
    except PlannerError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
