"""What the commands share: options of a load, reading a model, saying what was assumed, printing.

Data go to standard output, notes to standard error.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner.errors import InputError, UsageError

if TYPE_CHECKING:
    from planner.contract import Architecture
    from planner.sources import Loaded

Command = Callable[[argparse.Namespace], int | None]

STDIN = "standard input"

MODEL = (
    "a preset (planner models), a config.json or TOML file, a checkpoint (a folder, a .gguf file, a .safetensors file "
    "with a config.json beside), org/name of the Hugging Face hub, or - for standard input"
)


class _Help(argparse.HelpFormatter):
    """Texts whose lines break between words alone, so that an example can be copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.fill(" ".join(text.split()), width, break_long_words=False, break_on_hyphens=False)


class Commands:
    """The commands of the parser; each module of this package adds its own."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._subparsers = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        self, name: str, command: Command, text: str, example: str, *, table: bool = True, explained: bool = False
    ) -> argparse.ArgumentParser:
        """Add a command with the words of an example.

        With `table` it takes the output options that every table has, with `explained` also ``--explain``.
        """
        sub = self._subparsers.add_parser(
            name,
            help=text.partition(". ")[0].rstrip("."),
            description=text,
            epilog=f"example: planner {name} {example}",
            formatter_class=_Help,
            allow_abbrev=False,
        )
        sub.set_defaults(command=command, name=name)
        if table:
            forms = sub.add_mutually_exclusive_group()
            for form in ("json", "csv", "md"):
                forms.add_argument(f"--{form}", dest="form", action="store_const", const=form, help=f"print as {form}")
            if explained:
                said = "how the figures come about, and every assumption with its meaning and source"
                forms.add_argument("--explain", dest="form", action="store_const", const="explain", help=said)
            sub.add_argument("-o", "--output", metavar="FILE", help="write to a .json, .csv, .md, .parquet, .xlsx file")
            sub.set_defaults(form="table")
        return sub


def settle_form(args: argparse.Namespace) -> None:
    """Let the suffix of a file say the form, before any work is done. Raises `UsageError` if two forms are named."""
    if "form" not in args or args.output is None:
        return
    from planner.printing import form_of

    form = form_of(args.output)
    if args.form not in ("table", form):
        raise UsageError(f"--{args.form} and -o {args.output} say two forms; leave one out")
    args.form = form


def load_options(sub: argparse.ArgumentParser, many: bool) -> None:
    """Add the options of a load; with `many`, each may have several values."""
    several = ", several as 1k,2k,4k" if many else ""
    formats = ", several as bf16,fp8" if many else ""
    sub.add_argument(
        "--context",
        metavar="N",
        help=f"cached positions of a sequence: 128k = 128,000, 128Ki = 131,072{several} (default 128k)",
    )
    sub.add_argument("--batch", "--sequences", metavar="N", help=f"resident sequences{several} (default 1)")
    sub.add_argument(
        "--kv", metavar="FORMAT", help=f"of the cache{formats}: see planner formats (default: the contract's)"
    )
    sub.add_argument(
        "--weights", metavar="FORMAT", help=f"of the weights{formats}: see planner formats (default: the contract's)"
    )
    sub.add_argument("--attention", metavar="RULE", help="pairs counted: causal or square (default causal)")
    sub.add_argument("--logits", metavar="WHICH", help="positions with logits in a prefill: last or all (default last)")
    sub.add_argument(
        "--mla", metavar="HOW", help="latent attention: auto, expanded, absorbed or reexpanded (default auto)"
    )
    edit_option(sub)
    online_option(sub)


def edit_option(sub: argparse.ArgumentParser) -> None:
    """Add ``--set PATH=VALUE``, which may come several times."""
    sub.add_argument(
        "--set",
        dest="edits",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="edit a field of the contract (planner contract MODEL has them), such as n_kv_heads=4; may come again",
    )


def online_option(sub: argparse.ArgumentParser) -> None:
    """Add ``--online``, which lets the models of a command come over the network."""
    sub.add_argument(
        "--online", action="store_true", help="ask the Hugging Face hub for org/name that its cache here lacks"
    )


def note(text: str) -> None:
    """Say something beside the data."""
    print("".join(c if c.isprintable() else "?" for c in text), file=sys.stderr)


def read_model(name: str, online: bool = False) -> Loaded:
    """Read a model from what its user named, and say what its reader noticed."""
    from planner.sources import read, read_text

    loaded = read_text(_standard_input(), STDIN) if name == "-" else read(name, online=online)
    for line in loaded.notes:
        note(f"{loaded.architecture.name}: {line}")
    return loaded


def _standard_input() -> str:
    """All that a contract could have, and a character more by which its reader sees that it is too long."""
    from planner.loading import MAX_BYTES

    try:
        text = "" if sys.stdin is None else sys.stdin.read(MAX_BYTES + 1)
    except UnicodeDecodeError:
        raise InputError(f"{STDIN}: not text in UTF-8") from None
    if not text.strip():
        raise InputError(f"{STDIN}: is empty; pipe a config.json or a contract in TOML into it")
    return text


def edited(architecture: Architecture, edits: Sequence[str]) -> Architecture:
    """The contract with the edits of the command line, each checked."""
    from planner.editing import edit

    return edit(architecture, dict(map(pair, edits)))


def pair(text: str, form: str = "PATH=VALUE, such as layers[0].mixer.n_kv_heads=4") -> tuple[str, str]:
    """Split PATH=VALUE. Raises `UsageError`, which says the form, where there is nothing to split."""
    path, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is not {form}")
    return path.strip(), value.strip()


def count(text: str, place: str) -> int:
    """A number of positions or sequences as people write it."""
    from planner.units import parse_count

    return parse_count(text, place)


def axis_values(text: str) -> list[Any]:
    """The values of an axis: numbers where they read as numbers, else words."""
    from planner.units import parse_count

    values: list[Any] = []
    for part in text.split(","):
        try:
            values.append(parse_count(part))
        except InputError:
            values.append(part)
    return values


def given_load(args: argparse.Namespace, numbers: Callable[[str, str], Any]) -> dict[str, Any]:
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


def say_assumed(args: argparse.Namespace, chosen: Sequence[Any]) -> dict[str, Any]:
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
    say(assumed)
    return assumed


def say(assumed: Mapping[str, Any], how: str = "assumed") -> None:
    """Say what was taken for granted beside the data, as ``--assume`` would read it."""

    def said(name: str, value: Any) -> str:
        text = f"{value:,}" if isinstance(value, int) else str(value)
        return f"{name} = {text} B" if name.endswith("_bytes") else f"{name} = {text}"

    if assumed:
        note(f"{how}: {', '.join(map(said, assumed, assumed.values()))}")


def emit(args: argparse.Namespace, frame: Any, assumed: dict[str, Any], spare: Sequence[str] = ()) -> None:
    """Print the frame, on a terminal without columns to `spare` for which it has no room, or write it to a file."""
    from planner import printing

    left_out = printing.emit(frame, command=args.name, form=args.form, to=args.output, assumed=assumed, spare=spare)
    if left_out:
        note(f"no room for {', '.join(left_out)}; --csv has every column")
