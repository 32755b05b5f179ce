"""`planner show` of a checkpoint: what its headers list, and how that compares with its contract, tensor by tensor."""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from planner.commands.options import edited, emit, note
from planner.errors import InputError, UsageError

if TYPE_CHECKING:
    from planner.contract import Architecture
    from planner.sources import Checkpoint, Loaded
    from planner.witness.reconcile import Reconciled

Row = dict[str, Any]

MAX_ROWS = 1_000  # where there are more tensors, a table on the terminal has equal ones together; --csv lists each
MAX_NAMED = 5  # tensors that a sentence names
SPARE = ("dtype", "format")  # columns that a terminal can go without
MISSING = "missing"
DOUBLED = "the input table again"


def show(args: argparse.Namespace, checkpoint: Checkpoint, loaded: Loaded | None, why_not: str) -> int:
    """Print the tensors and how they differ from the contract; exit status 1 if they do, 0 if there is no contract."""
    import pandas

    from planner.witness.reconcile import held_to

    if loaded is None and args.edits:
        raise UsageError(f"--set edits a contract, and there is none: {why_not}")
    model = None if loaded is None else edited(loaded.architecture, args.edits)
    held = None if model is None else held_to(model, checkpoint)
    rows = list(_rows(checkpoint, held))
    if args.form == "table":
        listed = list(_together(rows)) if len(rows) > MAX_ROWS else rows
        totals = _totals(rows, held.left_out if held else ())
        rows = [{**row, **_with_commas(row)} for row in (*listed, *totals)]
    emit(args, pandas.DataFrame(rows), {}, SPARE)
    for line in (_counted(checkpoint, held), *(loaded.notes if loaded else ())):
        note(line)
    if model is None or held is None:
        note(f"compared with no contract: {why_not}")
        return 0
    for line in _compared(model, held):
        note(line)
    return 0 if held.differences.agree else 1


def _rows(checkpoint: Checkpoint, held: Reconciled | None) -> Iterator[Row]:
    """A row for each stored tensor, in the file's order; a packed matrix's parameters stand at that of its elements.

    `contract` says how it compares; what the contract has besides comes last, without a type and bytes.
    """
    weights = {name: weight for weight in checkpoint.weights for name in weight.stored_as}
    verdicts = held.verdicts() if held else {}
    for tensor in checkpoint.tensors:
        weight = weights[tensor.name]
        verdict = verdicts.get(tensor.name, DOUBLED) if held else None
        counted = weight.counts == "parameter" and tensor.name == weight.stored_as[0] and verdict != DOUBLED
        yield {
            "name": tensor.name,
            "shape": tensor.shape,
            "dtype": tensor.dtype,
            "format": weight.format,
            "parameters": weight.elements if counted else 0,
            "stored_bytes": tensor.stored_bytes,
            "contract": verdict,
        }
    for name, shape in held.differences.missing if held else ():
        yield {"name": name, "shape": shape, "contract": MISSING}


def _together(rows: Iterable[Row]) -> Iterator[Row]:
    """Rows that differ in a number of their name alone as one, with how many they are and their sums."""
    groups: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        name = re.sub(r"(?<=\.)\d+(?=\.)", "*", row["name"])
        key = name, *(row.get(column) for column in ("shape", "dtype", "format", "contract"))
        group = groups.setdefault(key, {"name": name, "copies": 0, **{k: v for k, v in row.items() if k != "name"}})
        if group["copies"]:
            for column in ("parameters", "stored_bytes"):
                group[column] = None if group.get(column) is None else group[column] + row[column]
        group["copies"] += 1
    yield from groups.values()


def _totals(rows: Iterable[Row], parts: Iterable[str]) -> Iterator[Row]:
    """Parameters and bytes by format, of the parts that the contract leaves out, and of all."""
    by_format: dict[str, Counter[str]] = defaultdict(Counter)
    by_part: dict[str, Counter[str]] = {part: Counter() for part in parts}
    total: Counter[str] = Counter()
    for row in rows:
        if row["contract"] != MISSING:
            for sums in (total, by_format[row["format"]], by_part.get(row["contract"])):
                if sums is not None:
                    sums.update(parameters=row["parameters"], stored_bytes=row["stored_bytes"])
    formats = sorted(by_format.items(), key=lambda item: -item[1]["stored_bytes"])
    yield from ({"name": f"= {name}", **sums} for name, sums in formats)
    yield from ({"name": f"= {part}, left out by the contract", **sums} for part, sums in by_part.items())
    yield {"name": "= total", **total}


def _with_commas(row: Row) -> Row:
    return {name: f"{row[name]:,}" for name in ("copies", "parameters", "stored_bytes") if row.get(name) is not None}


def _counted(checkpoint: Checkpoint, held: Reconciled | None) -> str:
    """The sums of the header in words."""
    once = checkpoint.tied() if held and len(held.body.tensors) < len(checkpoint.tensors) else checkpoint
    try:
        parameters = f"{checkpoint.place}: {once.parameters:,} parameters"
    except InputError as error:
        parameters = str(error)
    again = f", one of them {DOUBLED} and counted once" if once is not checkpoint else ""
    return f"{parameters}; {checkpoint.stored_bytes:,} B in {len(checkpoint.tensors):,} tensors{again}"


def _compared(model: Architecture, held: Reconciled) -> Iterator[str]:
    """What differs from the contract, in words, and the bytes that both make of the weights."""
    from planner.accounts import weight_bytes

    for part, weights in held.left_out.items():
        size = f"{sum(w.elements for w in weights):,} parameters, {sum(w.stored_bytes for w in weights):,} B"
        yield f"left out: {part}, {len(weights):,} tensors, {size}"
    found = held.differences
    for what, names in [
        (MISSING, [f"{name} {list(shape)}" for name, shape in found.missing]),
        ("extra", [f"{name} {list(shape)}" for name, shape in found.extra]),
        ("shape differs", [f"{name} {list(has)}, not {list(side)}" for name, side, has in found.shape_differs]),
    ]:
        if names:
            more = f"; and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
            yield f"{what}: {'; '.join(names[:MAX_NAMED])}{more}"
    stored, counted = sum(weight.stored_bytes for weight in held.body.weights), weight_bytes(model)
    apart = "equal" if stored == counted else f"{stored - counted:+,}"
    yield f"stored {stored:,} B, weights = {model.weights} of the contract {counted:,} B: {apart}"
    if found.agree:
        yield f"tensor by tensor as {model.name} says: none missing, none extra, no shape differs"
