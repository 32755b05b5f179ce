"""The command that answers a table of cases, one plan a row: rows."""

from __future__ import annotations

import argparse
import csv
import io
import sys
import warnings
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.commands.options import Commands, emit, note, say
from planner.errors import InputError, suggest

if TYPE_CHECKING:
    from pandas import DataFrame

LARGEST = 2**30
"""Bytes of a table beyond which reading it would take the memory of the machine."""

PLAIN = r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?"
"""A number and not a code such as 007, which would lose its zeros."""

DOUBTFUL = r"\s*-?\d+(?:,\d+)+.*"
"""A number with a comma, which parts thousands or, in a file with semicolons, may be a decimal one."""

ALIKE = 0.8
"""How near a column's name is to a field's that was meant, as `difflib` measures it."""

BRIEF = "needed_bytes headroom_bytes ttft_s tpot_s output_tok_s usd_per_mtok_blended verdict warning reason".split()
"""The figures that a terminal has room for, beside the columns of the table."""

SPARE = ("needed_bytes", "ttft_s", "output_tok_s", "usd_per_mtok_blended", "headroom_bytes")


def register(commands: Commands) -> None:
    """Add the command of this module."""
    sub = commands.add(
        "rows",
        rows,
        "Every figure of a table of cases: CSV in, one plan a row, the same rows with their figures out. Columns named "
        "like the options of planner estimate say the plan (model is needed; 128k, 32Ki and 2GiB are read as there); "
        "other columns stay. A row that cannot be says its reason.",
        "cases.csv -o cases.xlsx",
    )
    sub.add_argument("cases", metavar="CASES", help="a CSV file with a header row, or - for standard input")


def rows(args: argparse.Namespace) -> None:
    from planner.plan import fields_of_a_plan
    from planner.rows import UNITS, VARIED, plan_frame

    cases = read_cases(args.cases)
    plain = {name: _numbers(cases[name]) for name in cases.columns if name in VARIED}
    frame = plan_frame(cases.assign(**plain)).assign(**{name: cases[name] for name in plain})
    foreign = [name for name in cases.columns if name not in fields_of_a_plan()]
    if foreign:
        near = {name: get_close_matches(name, fields_of_a_plan(), n=1, cutoff=ALIKE) for name in foreign}
        said = (f"{name} (did you mean {known[0]!r}?)" if known else name for name, known in near.items())
        note(f"columns that say nothing of the plan: {', '.join(said)}")
    refused = int((frame["reason"] != "").sum())
    if refused:
        note(f"{refused:,} of {len(frame):,} rows lack figures; their reason says why")
    frame = frame.assign(**{name: _whole(frame[name]) for name, unit in UNITS.items() if unit in ("1", "B")})
    if args.form == "table":
        frame = frame[[*cases.columns, *BRIEF]]
    elif args.form != "csv":  # there a cell stays as it was written
        frame = frame.assign(**{name: _numbers(frame[name]) for name in cases.columns})
    frame.attrs["units"] = dict(UNITS)
    emit(args, frame, _assumed(cases), SPARE)


def read_cases(place: str) -> DataFrame:
    """A CSV file, its cells separated by commas, semicolons or tabs, as texts.

    Raises `InputError`, in one sentence, for what is no such file.
    """
    import pandas

    data = _bytes(place)
    shown = "standard input" if place == "-" else place
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{shown}: not text in UTF-8; save the table as CSV in UTF-8") from None
    if text.startswith("sep="):  # a line for Excel, which says what the next one shows
        text = text.partition("\n")[2]
    head = text.partition("\n")[0].strip("\r")
    if not head.strip():
        raise InputError(f"{shown}: is empty, or has no header row")
    if "\0" in text:
        raise InputError(f"{shown}: holds zero bytes, so it is no CSV file")
    separator = max(",;\t", key=head.count)
    try:
        names = [name.strip() for name in next(csv.reader([head], delimiter=separator))]
        if "model" not in names:
            near = suggest("model", names)
            its = f"; its columns are {', '.join(names):.200}"
            raise InputError(f"{shown}: has no column 'model'{near or its}")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{shown}: has {names.count(twice)} columns {twice!r}; rename them or keep one")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            cases = pandas.read_csv(
                io.StringIO(text), sep=separator, header=0, names=names, index_col=False, dtype=str, na_filter=False
            )
    except (csv.Error, ValueError, pandas.errors.ParserWarning) as error:
        if isinstance(error, InputError):
            raise
        told = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise InputError(f"{shown}: is no CSV table: {told:.200}") from None
    if separator == ";":
        _refuse_commas(cases, shown)
    return cases


def _refuse_commas(cases: DataFrame, shown: str) -> None:
    from planner.rows import VARIED

    for name in (name for name in cases.columns if name in VARIED):
        doubtful = cases[name][cases[name].str.fullmatch(DOUBTFUL)]
        if len(doubtful):
            place, cell = doubtful.index[0] + 1, doubtful.iloc[0].strip()
            raise InputError(
                f"{shown}: row {place}: {name} = {cell!r:.60} has a comma, which between semicolons may be a decimal "
                "comma or part thousands; write 2.5 or 2500"
            )


def _bytes(place: str) -> bytes:
    try:
        if place == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(place).open("rb") as file:
                data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST:
        raise InputError(f"{place}: is larger than {LARGEST:,} bytes; split it")
    return data


def _numbers(column: Any) -> Any:
    """A column of texts as numbers where each is one, its empty cells absent."""
    import pandas

    filled = column[column != ""]
    if filled.empty or not filled.str.fullmatch(PLAIN).all():
        return column
    return _whole(pandas.to_numeric(column.where(column != "")).astype(float))


def _whole(column: Any) -> Any:
    """A column of floats as whole numbers, if all of them are and none has more digits than a float tells apart."""
    known = column.dropna()
    return column.astype("Int64") if ((known % 1 == 0) & (abs(known) < 2**53)).all() else column


def _assumed(cases: DataFrame) -> dict[str, Any]:
    """What no column says and was taken for granted."""
    from planner.assumptions import assumptions

    assumed: dict[str, Any] = {}
    for name, known in assumptions().items():
        if name in cases.columns or (name == "context" and "isl" in cases.columns):
            continue
        if known.engines and "engine" in cases.columns:
            assumed[name] = "each engine's own"
        else:
            moe = None if known.moe is None else f"{known.value}, {known.moe} with routed experts"
            assumed[name] = moe or known.value
    assumed |= {name: "each contract's own" for name in ("weights", "kv") if name not in cases.columns}
    say(assumed, "assumed where no cell says otherwise")
    return assumed
