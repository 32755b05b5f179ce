"""Tables for people and for programs: a frame as an aligned table, JSON, CSV, Markdown, Parquet or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import UsageError
from planner.units import show, show_exact

if TYPE_CHECKING:
    from pandas import DataFrame

SCHEMA = 1
SUFFIXES = {".json": "json", ".csv": "csv", ".md": "md", ".parquet": "parquet", ".xlsx": "xlsx"}
HEADINGS = {
    "parameters": "parameters",
    "active_parameters": "active",
    "weights_basis": "basis",
    "weight_bytes": "weights",
    "cache_bytes_per_token": "cache\nper token",
    "cache_fixed_bytes": "cache\nfixed",
    "cache_bytes": "cache",
    "crossover_tokens": "cache =\nweights\nat tokens",
    "crossover_note": "note",
    "prefill_flops": "prefill",
    "decode_flops": "decode",
    "request_flops": "request",
    "cache_ratio": "first\ncache\n÷ this",
    "n_layers": "layers",
    "d_model": "width",
    "vocab_size": "vocabulary",
    "memory_bytes": "memory",
    "bandwidth_bytes_per_s": "bandwidth",
    "link_bytes_per_s": "link,\none way",
    "domain_size": "link\njoins",
    "power_w": "power",
    "bf16_flops": "bf16\nFLOP/s",
    "fp16_flops": "fp16\nFLOP/s",
    "fp8_flops": "fp8\nFLOP/s",
    "nvfp4_flops": "nvfp4\nFLOP/s",
    "mxfp4_flops": "mxfp4\nFLOP/s",
    "confidence": "grade",
    "weights_bytes": "weights",
    "kv_cache_bytes": "kv cache",
    "needed_bytes": "needed",
    "usable_bytes": "usable",
    "headroom_bytes": "headroom",
    "most_sequences": "sequences\nof a replica",
    "longest_context": "longest\ncontext",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "request_s": "request\ntakes",
    "floor_ttft_s": "TTFT,\nfloor",
    "floor_tpot_s": "TPOT,\nfloor",
    "requests_per_s": "requests\na second",
    "output_tok_s": "output\ntoken/s",
    "output_tok_s_per_user": "token/s\nof a user",
    "output_tok_s_per_accelerator": "token/s of an\naccelerator",
    "total_tok_s": "in + out\ntoken/s",
    "compute_s": "compute",
    "memory_s": "memory",
    "seconds": "takes",
    "usd_per_accelerator_hour": "accelerator\nUSD/h",
    "fleet_usd_per_hour": "fleet\nUSD/h",
    "fleet_usd_per_month": "fleet\nUSD/month",
    "usd_per_request": "USD per\nrequest",
    "usd_per_mtok_input": "input\nUSD/Mtok",
    "usd_per_mtok_output": "output\nUSD/Mtok",
    "usd_per_mtok_blended": "blended\nUSD/Mtok",
    "usd_per_hour": "USD/h",
    "usd_per_mtok": "USD/Mtok",
    "weights_bits": "bits of\na weight",
    "kv_bits": "of a cached\nelement",
    "moe": "with routed\nexperts",
    "engines": "engines that differ",
    "matched_by": "matched\nby",
    "flops_per_token": "FLOPs of\na token",
    "tokens_at_equal_compute": "tokens at\nequal\ncompute",
    "token_class": "class",
    "above_tokens": "above\ntokens",
    "over": "attention\novertakes",
}


WIDTH = 120
"""Characters of a line where no terminal says how many it has. A table keeps to them by folding its texts and by what
it can spare."""

FOLDS = (56, 40, 24, 14, 12)
"""Characters of a line of text in a table, as few as are needed; more of it goes on below."""

_NUMBER = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def emit(
    frame: DataFrame,
    *,
    command: str,
    form: str,
    to: str | None = None,
    assumed: Mapping[str, Any] | None = None,
    spare: Sequence[str] = (),
) -> list[str]:
    """Print a frame to standard output, or write it to a file, in a form such as `form_of` says.

    Returns the columns, of those that a terminal can `spare` and in their order, for which it had no room.
    Raises `UsageError` for a file that cannot be written.
    """
    if form == "table":
        text, left_out = _table(frame, spare)
        sys.stdout.write(text)
        return left_out
    forms = {"json": _json, "csv": _csv, "md": _markdown}
    if to is None:
        sys.stdout.write(forms[form](frame, command, assumed or {}))
        return []
    try:
        if form == "parquet":
            frame.assign(**{name: _of_one_type(frame[name]) for name in frame.columns}).to_parquet(to, index=False)
        elif form == "xlsx":
            from planner.workbook.frames import write_frame

            write_frame(frame, to, command)
        else:
            Path(to).write_text(forms[form](frame, command, assumed or {}), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"-o {to}: cannot be written: {error.strerror}") from None
    except ImportError:
        raise UsageError(f"-o {to}: Parquet needs pyarrow, which is not installed; take .csv or install it") from None
    return []


def form_of(to: str) -> str:
    """The form that a file's suffix says. Raises `UsageError` for a suffix that is not known."""
    form = SUFFIXES.get(Path(to).suffix.lower())
    if form is None or "\0" in to:
        raise UsageError(f"-o {to}: the suffix is none of {', '.join(SUFFIXES)}")
    return form


def _of_one_type(column: Any) -> Any:
    """A column as Parquet keeps it: numbers beyond 64 bits as floats, numbers among texts as texts."""
    kinds = {type(value) for value in column.tolist() if not is_absent(value)}
    if kinds == {int} and not _is_number(column):
        return column.astype(float)
    return column if len(kinds) < 2 else [None if is_absent(value) else str(value) for value in column.tolist()]


def _json(frame: DataFrame, command: str, assumed: Mapping[str, Any]) -> str:
    rows = [{name: json_value(value) for name, value in row.items()} for row in records(frame)]
    document = {"schema": SCHEMA, "command": command, "assumed": dict(assumed), "rows": rows}
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def records(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows as dicts of Python values."""
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def json_value(value: Any) -> Any:
    """A value as JSON holds it: NaN and what is absent as null, tuples as lists."""
    if is_absent(value):
        return None
    return list(value) if isinstance(value, tuple) else value


def is_absent(value: Any) -> bool:
    """Whether a cell is empty: None, NaN or pandas' NA."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or type(value).__name__ in ("NAType", "NaTType")
    )


def as_text_cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula, made a text for good; a number is none."""
    risky = isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r")
    return f"'{value}" if risky and not _NUMBER.fullmatch(value) else value


def _csv(frame: DataFrame, command: str, assumed: Mapping[str, Any]) -> str:
    """What pandas writes, in two thirds of its time, which matters for a million rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(frame.columns)
    writer.writerows(zip(*(_csv_cells(frame[name]) for name in frame.columns), strict=True))
    return text.getvalue()


def _csv_cells(column: Any) -> list[Any]:
    values = column.tolist()
    if not _is_number(column):
        return ["" if is_absent(value) else as_text_cell(value) for value in values]
    if column.hasnans:
        return ["" if empty else value for value, empty in zip(values, column.isna(), strict=True)]
    return list(values)


def _is_number(column: Any) -> bool:
    import pandas

    return bool(pandas.api.types.is_numeric_dtype(column))


def _markdown(frame: DataFrame, command: str, assumed: Mapping[str, Any]) -> str:
    columns = {name: [text.replace("|", "\\|") for text in texts] for name, texts in _texts(frame).items()}
    return _tabulated(frame, columns, "pipe")


def _table(frame: DataFrame, spare: Sequence[str]) -> tuple[str, list[str]]:
    """The frame as wide as the terminal, if it can be, and the columns left out for that."""
    width = shutil.get_terminal_size((WIDTH, 0)).columns
    texts = _texts(frame)
    spare = [name for name in spare if name in texts]
    for left_out in (spare[:count] for count in range(len(spare) + 1)):
        for fold in FOLDS:
            columns = {name: [_folded(text, fold) for text in texts[name]] for name in texts if name not in left_out}
            if sum(2 + _width(name, lines) for name, lines in columns.items()) - 2 <= width:
                return _tabulated(frame, columns, "simple"), left_out
    return _tabulated(frame, columns, "simple"), left_out


def _texts(frame: DataFrame) -> dict[str, list[str]]:
    """The cells of each column that has any, as texts."""
    units = frame.attrs.get("units", {})
    columns = {str(name): [cell(value, units.get(name)) for value in frame[name].tolist()] for name in frame.columns}
    return {name: texts for name, texts in columns.items() if any(texts) or not texts}


def _width(name: str, texts: Sequence[str]) -> int:
    """Characters of the longest line of a column."""
    return max(len(line) for text in (HEADINGS.get(name, name), *texts) for line in text.split("\n"))


def _tabulated(frame: DataFrame, columns: Mapping[str, Sequence[str]], style: str) -> str:
    import tabulate

    tabulate.MIN_PADDING = 0  # columns as wide as what they hold
    headings = [HEADINGS.get(name, name) for name in columns]
    if style == "pipe":
        headings = [heading.replace("\n", " ") for heading in headings]
    rows = list(zip(*columns.values(), strict=True))
    align = ["right" if _is_number(frame[name]) else "left" for name in columns] if rows else None
    return str(tabulate.tabulate(rows, headings, style, colalign=align, disable_numparse=True)) + "\n"


def _folded(text: str, width: int) -> str:
    """A text on lines of a width that people read, no word broken."""
    if len(text) <= width:
        return text
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def cell(value: Any, unit: str | None) -> str:
    """A value as a table shows it: sizes in GiB, counts and FLOPs with a prefix, small whole numbers in full."""
    if is_absent(value):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        if unit == "B" and abs(value) >= 2**20:
            return show(value, "B", binary=True)
        if unit == "B":
            return f"{show_exact(round(value))} B"
        if unit in ("B/s", "FLOP", "FLOP/s", "W", "s"):
            return show(value, unit)
        if unit == "1" and value >= 10**7:
            return show(value, "1")
        return (
            show_exact(value) if isinstance(value, int) else f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
        )
    if isinstance(value, tuple):
        return " × ".join(f"{side}" for side in value)
    return "".join(character if character.isprintable() else "?" for character in str(value))
