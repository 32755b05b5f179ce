"""The command line: it reads arguments, calls the core and prints; every figure comes from the core.

Data go to standard output, notes to standard error. Exit status 2 for a question that cannot be asked like this, 3 for
an input that is not understood.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from planner.errors import PlannerError, UsageError

if TYPE_CHECKING:
    from planner.sources import Loaded

Command = Callable[[argparse.Namespace], int | None]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    args = _parser().parse_args(argv)
    try:
        return args.command(args) or 0
    except PlannerError as error:
        note(f"planner: {error}")
        return error.exit_code
    except BrokenPipeError:  # the reader, such as head, has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def note(text: str) -> None:
    """Say something beside the data."""
    print("".join(c if c.isprintable() else "?" for c in text), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="planner",
        description="Exact sizes, FLOPs and cache bytes of causal decoders, with their formulas.",
        allow_abbrev=False,
    )
    from planner import __version__

    parser.add_argument("--version", action="version", version=f"planner {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    model_help = "a preset (planner models), a config.json or TOML file, a checkpoint folder, or - for standard input"

    def add(name: str, command: Command, text: str, *, table: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(command=command, name=name)
        if table:
            forms = sub.add_mutually_exclusive_group()
            for form in ("json", "csv", "md"):
                forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=f"print as {form}")
            sub.add_argument("-o", "--output", metavar="FILE", help="write to a .json, .csv, .md or .parquet file")
            sub.set_defaults(form="table")
        return sub

    def load_options(sub: argparse.ArgumentParser, many: bool) -> None:
        several = ", several as 1k,2k,4k" if many else ""
        sub.add_argument("--context", help=f"cached positions of a sequence: 128k = 128,000, 128Ki = 131,072{several}")
        sub.add_argument("--batch", help=f"resident sequences{several}")
        sub.add_argument("--kv", help="storage format of the cache (default: the contract's)")
        sub.add_argument("--weights", help="storage format of the weights (default: the contract's)")
        sub.add_argument("--attention", help="pairs counted: causal or square (default causal)")
        sub.add_argument("--logits", help="positions with logits in a prefill: last or all (default last)")
        sub.add_argument("--mla", help="latent attention: auto, expanded, absorbed or reexpanded (default auto)")
        sub.add_argument(
            "--set", dest="edits", metavar="PATH=VALUE", action="append", default=[], help="edit a contract field"
        )

    sub = add("compare", compare, "Compare decoders at one load; without names, MHA, GQA, MQA and MLA.")
    sub.add_argument("models", nargs="*", metavar="MODEL", help=model_help)
    load_options(sub, many=False)
    sub.add_argument("--derive", action="store_true", help="count the parameters of contracts that state theirs")

    sub = add("sweep", sweep, "A row for each combination of the axes.")
    sub.add_argument("models", nargs="+", metavar="MODEL", help=model_help)
    load_options(sub, many=True)
    sub.add_argument("--isl", help="tokens in of a request, instead of --context")
    sub.add_argument("--osl", help="tokens out of a request")
    sub.add_argument(
        "--axis", dest="axes", metavar="PATH=V1,V2", action="append", default=[], help="a contract field as an axis"
    )
    sub.add_argument("--zip", action="store_true", help="axes side by side instead of all combinations")

    sub = add("show", show, "The itemised bill of a decoder, with subtotals and the published figures.")
    sub.add_argument("model", metavar="MODEL", help=model_help)
    sub.add_argument(
        "--set", dest="edits", metavar="PATH=VALUE", action="append", default=[], help="edit a contract field"
    )

    sub = add("diff", diff, "What differs between two contracts, and what it does to parameters, FLOPs and cache.")
    sub.add_argument("models", nargs=2, metavar="MODEL", help=model_help)

    sub = add("contract", contract, "The whole written contract of a decoder, and its block equations.", table=False)
    sub.add_argument("model", metavar="MODEL", help=model_help)
    sub.add_argument("--toml", action="store_true", help="as TOML that the planner reads back")
    sub.add_argument(
        "--set", dest="edits", metavar="PATH=VALUE", action="append", default=[], help="edit a contract field"
    )

    sub = add("verify", verify, "Run a decoder in NumPy, made small, and hold the counts to what was measured.")
    sub.add_argument("model", nargs="?", default="gqa-8", metavar="MODEL", help=model_help)
    sub.add_argument("--full", action="store_true", help="keep the depth and read longer sequences")

    sub = add("formulas", formulas, "The named formulas, or one of them with symbols, units and source.")
    sub.add_argument("formula", nargs="?", metavar="NAME")

    sub = add("models", models, "The presets.")
    sub.add_argument("--family", help="only presets of this family")
    sub.add_argument("--min-params", help="only presets with at least so many parameters, such as 7G")
    sub.add_argument("--max-params", help="only presets with at most so many parameters")
    return parser


def compare(args: argparse.Namespace) -> None:
    from planner.scenarios import COMPARISON_SET
    from planner.scenarios import compare as table

    chosen = [_edited(_read(name), args.edits) for name in args.models or COMPARISON_SET]
    frame = table(chosen, derive=args.derive, **_load(args, numbers=_count))
    for column in ("warning", "reason"):
        for name, text in zip(frame["name"], frame[column], strict=True):
            if text:
                note(f"{name}: {text}")
    stated = frame.loc[frame["weights_basis"] == "stated", "name"]
    if len(stated):
        note(f"weight bytes and crossovers of {', '.join(stated)}: parameters as stated; --derive counts them")
    if args.form == "table" and args.output is None:
        frame = frame.drop(columns=["weights_basis", "warning", "reason"])
    _emit(args, frame, _assumed(args, chosen))


def sweep(args: argparse.Namespace) -> None:
    from planner.scenarios import sweep as table

    chosen = [_edited(_read(name), args.edits) for name in args.models]
    axes = _load(args, numbers=lambda text, place: [_count(part, place) for part in text.split(",")])
    axes |= {path: _axis_values(text) for path, text in map(_pair, args.axes)}
    _emit(args, table(chosen, how="zip" if args.zip else "grid", **axes), _assumed(args, chosen))


def show(args: argparse.Namespace) -> None:
    import pandas

    from planner.accounts import itemise, parameters

    loaded = _read(args.model)
    architecture = _edited(loaded, args.edits)
    frame = itemise(architecture)
    total = parameters(architecture)
    if args.form == "table" and args.output is None:
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
    _emit(args, frame, {})
    for line in loaded.against_published(total) if not args.edits else ():
        note(line)


def diff(args: argparse.Namespace) -> None:
    import pandas

    from planner.editing import diff as differences
    from planner.scenarios import compare as table

    a, b = (_read(name).architecture for name in args.models)
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
    _emit(args, pandas.DataFrame(rows), {"context": DIFF_CONTEXT})


DIFF_CONTEXT = 1024


def contract(args: argparse.Namespace) -> None:
    from planner.equations import contract_document
    from planner.loading import to_toml

    architecture = _edited(_read(args.model), args.edits)
    sys.stdout.write(to_toml(architecture) if args.toml else contract_document(architecture))


def verify(args: argparse.Namespace) -> int:
    from planner.witness.verify import verify as run

    report = run(_read(args.model).architecture, args.full)
    if args.form == "table" and args.output is None:
        print(report)
    else:
        _emit(args, report.to_frame(), {})
    return 0 if report.passed else 1


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
        _emit(args, frame[["name", "unit", "meaning"]] if args.form == "table" and not args.output else frame, {})
        return
    chosen = registry[args.formula]
    if args.form == "table" and args.output is None:
        sys.stdout.write(f"{chosen.describe()}\n")
    else:
        _emit(args, chosen.to_frame(), {})


def models(args: argparse.Namespace) -> None:
    from planner.sources.presets import catalogue

    frame = catalogue()
    if args.family is not None:
        frame = frame[frame["family"] == args.family]
    if args.min_params is not None:
        frame = frame[frame["parameters"] >= _count(args.min_params, "--min-params")]
    if args.max_params is not None:
        frame = frame[frame["parameters"] <= _count(args.max_params, "--max-params")]
    _emit(args, frame, {})


def _read(name: str) -> Loaded:
    from planner.sources import read, read_text

    loaded = read_text(sys.stdin.read(), "standard input") if name == "-" else read(name)
    for line in loaded.notes:
        note(f"{loaded.architecture.name}: {line}")
    return loaded


def _edited(loaded: Loaded, edits: Sequence[str]) -> Any:
    from planner.editing import edit

    return edit(loaded.architecture, dict(map(_pair, edits)))


def _pair(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not PATH=VALUE, such as layers[0].mixer.n_kv_heads=4")
    return path.strip(), value.strip()


def _count(text: str, place: str) -> int:
    from planner.units import parse_count

    return parse_count(text, place)


def _axis_values(text: str) -> list[Any]:
    from planner.errors import InputError
    from planner.units import parse_count

    values: list[Any] = []
    for part in text.split(","):
        try:
            values.append(parse_count(part))
        except InputError:
            values.append(part)
    return values


def _load(args: argparse.Namespace, numbers: Callable[[str, str], Any]) -> dict[str, Any]:
    """The options of the load that were given."""
    given: dict[str, Any] = {}
    for name in ("context", "batch", "isl", "osl"):
        text = getattr(args, name, None)
        if text is not None:
            given[name] = numbers(text, f"--{name}")
    for name in ("kv", "weights", "attention", "logits", "mla"):
        text = getattr(args, name)
        if text is not None:
            given[name] = text.split(",") if name in ("kv", "weights") and args.name == "sweep" else text
    return given


def _assumed(args: argparse.Namespace, chosen: Sequence[Any]) -> dict[str, Any]:
    """What the user did not say and was taken for granted, said beside the data."""
    from planner.summary import Load

    default = Load()
    assumed = {
        name: getattr(default, name)
        for name in ("context", "batch", "attention", "logits", "mla")
        if getattr(args, name) is None and not (name == "context" and getattr(args, "isl", None) is not None)
    }
    for name in ("weights", "kv"):
        if getattr(args, name) is None:
            formats = {getattr(architecture, name) for architecture in chosen}
            assumed[name] = formats.pop() if len(formats) == 1 else "each contract's own"
    if assumed:
        note(
            "assumed: " + ", ".join(f"{k} = {v:,}" if isinstance(v, int) else f"{k} = {v}" for k, v in assumed.items())
        )
    return assumed


def _emit(args: argparse.Namespace, frame: Any, assumed: dict[str, Any]) -> None:
    from planner.printing import emit

    emit(frame, command=args.name, form=args.form, to=args.output, assumed=assumed)


if __name__ == "__main__":
    sys.exit(main())
