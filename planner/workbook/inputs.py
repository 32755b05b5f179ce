"""The sheet Inputs: what can be changed, in named yellow cells, and the coefficients of every decoder.

The coefficients stand to the right: a row for each decoder (sizes, widths of its rules, multiply-adds), one for its
weights in every format, and one for its cache in every cache format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from xlsxwriter.utility import xl_range_abs, xl_rowcol_to_cell

from planner.arithmetic import Value, evaluate
from planner.notation import excel
from planner.quantities import QUANTITIES
from planner.workbook import coefficients
from planner.workbook.book import ANY, SHARE, Book, Sheet, choice, column_of, whole
from planner.workbook.condensed import rule_words
from planner.workbook.contents import Contents
from planner.workbook.live_plan import DEVICE, HOUR, LOADS
from planner.workbook.ranked import OF_MODEL, OF_WEIGHTS
from planner.workbook.steps import Steps

WIDTHS = (34, 18, 10, 66, 62, 3, 3)
RIGHT = len(WIDTHS)
LIST = RIGHT - 1
STEPS, STEP_COLUMN = 4, 200
"""The first row and the column of intermediate results, to the right of all tables."""


def write(book: Book, made: Contents) -> None:
    """Write the sheet and name its cells."""
    sheet = book.sheet("Inputs", WIDTHS)
    sheet.text(0, 0, "Inputs", "title")
    sheet.text(1, 0, "Yellow cells are yours to change; every figure of this workbook follows.", "subtitle")
    row = _plan(sheet, made, 3)
    row = _numbers(sheet, made, row + 1)
    row = _device(sheet, made, row + 1)
    row = _contracts(sheet, made, row + 1)
    _coefficients(sheet, made)
    sheet.made.freeze_panes(3, 1)
    sheet.made.print_area(0, 0, row, 4)


def _plan(sheet: Sheet, made: Contents, row: int) -> int:
    plan, said = made.plan, made.plan.conventions
    sheet.section(row, "What is planned (fixed: these decide which formulas the workbook has)", 5)
    facts = {
        "model": (plan.model.name, plan.model.title or ""),
        "weights": (plan.weights, "storage format of the weights"),
        "kv": (plan.kv, "storage format of the cache"),
        "engine": (plan.engine, "serving engine, which has its own assumptions"),
        "layout": (str(plan.layout), f"{plan.layout.accelerators} accelerators"),
        "conventions": (f"{said.attention}, {said.logits}, {said.mla}", "attention pairs, logits, latent attention"),
    }
    if plan.workload.lengths is not None:
        facts["lengths"] = (f"{len(plan.workload.lengths)} sequences", "ragged lengths, fixed in this workbook")
    for name, (value, meaning) in facts.items():
        row += 1
        sheet.text(row, 0, name)
        sheet.text(row, 1, value, "strong")
        sheet.text(row, 3, meaning, "note")
    return row + 1


def _numbers(sheet: Sheet, made: Contents, row: int) -> int:
    sheet.section(row, "Load, prices and assumptions", 5)
    sheet.heads(row + 1, ("input", "value", "unit", "meaning", "given, or assumed because of"), right=("value",))
    row += 2
    plan = made.plan
    if plan.accelerator is not None:
        sheet.text(row, 0, "accelerator")
        sheet.input(row, 1, plan.accelerator.name, rule=choice(_list(sheet, made.live.movable())))
        sheet.text(row, 3, "one of those for which the same formulas hold", "wrap")
        sheet.text(row, 4, "given", "note")
        sheet.book.define("accelerator", sheet.name, row, 1, plan.accelerator.name)
        row += 1
    for entry in made.live.inputs:
        sheet.text(row, 0, entry.name)
        rule = whole() if entry.name in LOADS else SHARE if entry.name.endswith("_fraction") else ANY
        sheet.input(row, 1, entry.value, entry.unit, rule)
        sheet.text(row, 2, "" if entry.unit == "1" else entry.unit, "unit")
        sheet.text(row, 3, entry.meaning, "wrap")
        sheet.text(row, 4, entry.basis, "note")
        sheet.book.define(entry.name, sheet.name, row, 1, entry.value)
        row += 1
    return row


def _list(sheet: Sheet, texts: list[str]) -> str:
    """The area of the texts of a validation list, in a hidden column."""
    for row, text in enumerate(texts):
        sheet.text(row, LIST, text)
    sheet.made.set_column(LIST, LIST, None, None, {"hidden": True})
    return str(xl_range_abs(0, LIST, len(texts) - 1, LIST))


def _device(sheet: Sheet, made: Contents, row: int) -> int:
    live = made.live
    if live.plan.accelerator is None:
        return row
    sheet.section(row, "The accelerator (looked up on Hardware)", 5)
    for name, value in live.device.items():
        row += 1
        peak = "FLOP/s", f"dense peak of products with tensors stored in {live.bases.get(name)}"
        unit, meaning = DEVICE.get(name, peak)
        sheet.text(row, 0, name)
        sheet.formula(row, 1, f"INDEX(Accelerators[{name}],MATCH(accelerator,Accelerators[name],0))", value, unit)
        sheet.text(row, 2, unit, "unit")
        sheet.text(row, 3, meaning, "wrap")
        sheet.book.define(name, sheet.name, row, 1, value)
    row += 1
    listed = "INDEX(Accelerators[usd_per_hour],MATCH(accelerator,Accelerators[name],0))"
    known = f'IF(N({listed})>0,{listed},"unknown")'
    if live.owned is not None:
        known = excel(live.owned, sheet.book.cell_of)
    sheet.text(row, 0, HOUR)
    hour: Any = "unknown" if live.hour is None else live.hour
    sheet.formula(row, 1, f"IF(N(usd_per_hour)>0,usd_per_hour,{known})", hour, "USD/h")
    sheet.text(row, 2, "USD/h", "unit")
    sheet.text(row, 3, "what an hour of an accelerator costs: stated, of owning it, or listed", "wrap")
    sheet.book.define(HOUR, sheet.name, row, 1, live.hour)
    return row + 1


def _contracts(sheet: Sheet, made: Contents, row: int) -> int:
    sheet.made.set_h_pagebreaks([row])
    for one in made.subjects:
        sheet.section(row, f"Contract of {one.name}", 5)
        sheet.heads(row + 1, ("field", "value", "unit", "meaning", "name of the cell"), right=("value",))
        row += 2
        for field in one.fields:
            sheet.text(row, 0, field.path)
            sheet.input(row, 1, field.value, rule=whole())
            sheet.text(row, 3, _meaning(field.path), "wrap")
            sheet.text(row, 4, field.name, "note")
            sheet.book.define(field.name, sheet.name, row, 1, field.value)
            row += 1
        for field in one.fixed:
            sheet.text(row, 0, field.path, "subtitle")
            sheet.number(row, 1, field.value)
            sheet.text(row, 3, _meaning(field.path), "wrap")
            sheet.text(row, 4, "fixed in this workbook: it decides which formulas there are", "note")
            row += 1
        row += 1
    return row


def _meaning(path: str) -> str:
    leaf = path.rpartition(".")[2]
    if leaf == "count":
        return "layers of this kind"
    if leaf == "stated_parameters":
        return "parameters that the contract states, of which weight bytes are taken"
    return QUANTITIES[leaf].meaning if leaf in QUANTITIES else ""


def _coefficients(sheet: Sheet, made: Contents) -> None:
    widths, products = rule_words(made.slots), tuple(made.slots.products)
    steps = Steps("rank_step")
    of_models = ("no", "model", "learned_positions", "parameters", "active_parameters", *widths, *products)
    slots, ranks = made.ranks
    of_ranks = ("layout", *OF_MODEL) if ranks else ()
    tables: list[tuple[str, tuple[str, ...], Callable[[Contents, Sheet, Steps], Iterator[list[Any]]]]] = [
        ("Models", (*of_models, *of_ranks), _models),
        ("WeightBytes", ("no", "model", *made.weights), _weights),
        ("CacheBytes", ("key", "no", *made.slots.cache, *slots.kept, *slots.reads), _caches),
    ]
    if ranks:
        tables.append(("RankWeights", ("key", "no", *OF_WEIGHTS, *slots.flops), _rank_weights))
    row = 3
    for name, heads, rows in tables:
        sheet.section(row, _TITLES[name], len(heads), RIGHT)
        first = row + 1
        row = first + 1
        for cells in rows(made, sheet, steps):
            for column, cell in enumerate(cells, RIGHT):
                if isinstance(cell, tuple):
                    sheet.formula(row, column, *cell)
                elif isinstance(cell, str):
                    sheet.text(row, column, cell)
                else:
                    sheet.number(row, column, cell)
            row += 1
        sheet.table(first, RIGHT, name, heads, row - first - 1, left=("model", "key", "layout"))
        sheet.made.set_column(RIGHT, RIGHT + len(heads) - 1, 26, sheet.book.style("text"))
        row += 1
    if steps.trees:
        sheet.section(3, "Intermediate results of long coefficients", 2, STEP_COLUMN - 1)
        sheet.made.set_column(STEP_COLUMN - 1, STEP_COLUMN, 22)


_TITLES = {
    "Models": "Coefficients: parameters, widths of rules, multiply-adds for each unit of a domain",
    "WeightBytes": "Bytes of the weights in each format",
    "CacheBytes": "Cache bytes of a position by the rule that keeps it, in each cache format",
    "RankWeights": "A rank of the plan's layout: bytes stored and read, FLOPs for each unit, in each weight format",
}


def _models(made: Contents, sheet: Sheet, steps: Steps) -> Iterator[list[Any]]:
    for number, (one, condensed) in enumerate(zip(made.subjects, made.condensed, strict=True), 1):
        cells: list[Any] = [number, one.name, one.architecture.embedding.learned_positions or 0]
        for column, tree in coefficients.sizes(one).items():
            cells.append((f"SUMIFS(Tensors[{column}],Tensors[no],{number})", evaluate(tree, one.values)))
        for tree in coefficients.widths(condensed, made.slots).values():
            cells.append((excel(tree, sheet.book.cell_of), evaluate(tree, one.values)))
        for slot, tree in coefficients.multiply_adds(condensed, made.slots).items():
            text = f'SUMIFS(Products[multiply_adds],Products[no],{number},Products[slot],"{slot}")'
            cells.append((text, evaluate(tree, one.values)))
        for mine in made.ranks[1][number - 1 : number]:
            cells += [mine.reason, *_of_rank(sheet, steps, mine.of_model, OF_MODEL)]
        yield cells


def _of_rank(sheet: Sheet, steps: Steps, trees: Mapping[str, Value], heads: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Coefficients of a rank; a long formula is shared out over steps, which stand in rows of their own."""
    book = sheet.book
    for head in heads:
        known = len(steps.trees)
        tree = steps.split(trees.get(head, 0))
        for row, (name, step) in enumerate(list(steps.trees.items())[known:], STEPS + known):
            book.names[name] = xl_rowcol_to_cell(row, STEP_COLUMN, True, True)
            book.values[name] = sheet.live(row, STEP_COLUMN, step)
            sheet.text(row, STEP_COLUMN - 1, name, "unit")
        yield excel(tree, book.cell_of), evaluate(tree, book.values)


def _rank_weights(made: Contents, sheet: Sheet, steps: Steps) -> Iterator[list[Any]]:
    slots, ranks = made.ranks
    for number, mine in enumerate(ranks, 1):
        for weights in made.weights:
            trees = mine.of_weights.get(weights, {})
            yield [f"{number}|{weights}", number, *_of_rank(sheet, steps, trees, (*OF_WEIGHTS, *slots.flops))]


def _weights(made: Contents, sheet: Sheet, steps: Steps) -> Iterator[list[Any]]:
    for number, one in enumerate(made.subjects, 1):
        cells: list[Any] = [number, one.name]
        for weights in made.weights:
            tree = coefficients.weight_bytes(one, weights)
            stated = one.architecture.stated_parameters is not None
            text = f"SUMIFS({column_of('Tensors', weights)},Tensors[no],{number})"
            if stated:
                text = excel(tree, sheet.book.cell_of)
            cells.append((text, evaluate(tree, one.values)))
        yield cells


def _caches(made: Contents, sheet: Sheet, steps: Steps) -> Iterator[list[Any]]:
    slots, ranks = made.ranks
    for number, (one, condensed) in enumerate(zip(made.subjects, made.condensed, strict=True), 1):
        for kv in made.kv:
            cells: list[Any] = [f"{number}|{kv}", number]
            for slot, tree in coefficients.cache(one, condensed, made.slots, kv).items():
                text = f'SUMIFS({column_of("Cache", kv)},Cache[no],{number},Cache[slot],"{slot}")'
                cells.append((text, evaluate(tree, one.values)))
            for mine in ranks[number - 1 : number]:
                cells += _of_rank(sheet, steps, mine.of_cache.get(kv, {}), (*slots.kept, *slots.reads))
            yield cells
