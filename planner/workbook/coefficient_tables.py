"""The coefficients on Inputs, to the right of what can be changed: tables with a row for each decoder and format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xlsxwriter.utility import xl_rowcol_to_cell

from planner.arithmetic import Value, evaluate
from planner.notation import excel
from planner.summary import beyond
from planner.workbook import coefficients
from planner.workbook.book import OK, Sheet, column_of
from planner.workbook.condensed import rule_words
from planner.workbook.contents import Contents
from planner.workbook.ranked import OF_MODEL, OF_WEIGHTS
from planner.workbook.steps import Steps
from planner.workbook.subject import Subject

STEPS, STEP_COLUMN = 4, 200
"""The first row and the column of intermediate results, to the right of all tables."""
LEFT = ("model", "check", "warning", "key", "layout")
TITLES = {
    "Models": "Coefficients: parameters, widths of rules, multiply-adds for each unit of a domain",
    "WeightBytes": "Bytes of the weights in each format",
    "CacheBytes": "Cache bytes of a position by the rule that keeps it, in each cache format",
    "RankWeights": "A rank of the plan's layout: bytes stored and read, FLOPs for each unit, in each weight format",
}

Row = tuple[Subject, list[Any]]
"""A decoder, and its cells: numbers, texts, and formulas with the value that they have now."""


def write(sheet: Sheet, made: Contents, right: int) -> None:
    """Write the tables below each other, from a column on."""
    tables = _Tables(sheet, made)
    row = 3
    for name, heads, rows in tables.all():
        sheet.section(row, TITLES[name], len(heads), right)
        first = row + 1
        row = first + 1
        for one, cells in rows:
            for column, (head, cell) in enumerate(zip(heads, cells, strict=True), right):
                if isinstance(cell, tuple):
                    text, value = cell
                    sheet.formula(row, column, text, value, check="" if head == "check" else one.check)
                elif isinstance(cell, str):
                    sheet.text(row, column, cell, "indented")
                else:
                    sheet.number(row, column, cell)
            row += 1
        sheet.table(first, right, name, heads, row - first - 1, LEFT)
        sheet.made.set_column(right, right + len(heads) - 1, 26, sheet.book.style("text"))
        row += 1
    if tables.steps.trees:
        sheet.section(3, "Intermediate results of long coefficients", 2, STEP_COLUMN - 1)
        sheet.made.set_column(STEP_COLUMN - 1, STEP_COLUMN, 22)


class _Tables:
    """The rows of the tables, and the steps in which long coefficients of ranks are computed."""

    def __init__(self, sheet: Sheet, made: Contents) -> None:
        self.sheet, self.made, self.steps = sheet, made, Steps("rank_step")
        self.rank_slots, self.ranks = made.ranks

    def all(self) -> Iterator[tuple[str, tuple[str, ...], Iterator[Row]]]:
        """(name, heads, rows) of each table."""
        made, slots = self.made, self.rank_slots
        known = ("learned_positions", "max_positions", "warning", "parameters", "active_parameters")
        of_ranks = ("layout", *OF_MODEL) if self.ranks else ()
        sizes = (*known, *rule_words(made.slots), *made.slots.products)
        yield "Models", ("no", "model", "check", *sizes, *of_ranks), self._models()
        yield "WeightBytes", ("no", "model", *made.weights), self._weights()
        yield "CacheBytes", ("key", "no", *made.slots.cache, *slots.kept, *slots.reads), self._caches()
        if self.ranks:
            yield "RankWeights", ("key", "no", *OF_WEIGHTS, *slots.flops), self._rank_weights()

    def _models(self) -> Iterator[Row]:
        made = self.made
        for number, (one, condensed) in enumerate(zip(made.subjects, made.condensed, strict=True), 1):
            model = one.architecture
            warning = next((text for _, text in beyond(0, model.max_positions)), "")
            positions = (model.embedding.learned_positions or 0, model.max_positions or 0)
            cells: list[Any] = [number, one.name, (one.check, OK), *positions, warning]
            for column, tree in coefficients.sizes(one).items():
                cells.append((f"SUMIFS(Tensors[{column}],Tensors[no],{number})", evaluate(tree, one.values)))
            for tree in coefficients.widths(condensed, made.slots).values():
                cells.append((excel(tree, self.sheet.book.cell_of), evaluate(tree, one.values)))
            for slot, tree in coefficients.multiply_adds(condensed, made.slots).items():
                text = f'SUMIFS(Products[multiply_adds],Products[no],{number},Products[slot],"{slot}")'
                cells.append((text, evaluate(tree, one.values)))
            for mine in self.ranks[number - 1 : number]:
                cells += [mine.reason, *self._of_rank(one, mine.of_model, OF_MODEL)]
            yield one, cells

    def _weights(self) -> Iterator[Row]:
        for number, one in enumerate(self.made.subjects, 1):
            cells: list[Any] = [number, one.name]
            for weights in self.made.weights:
                tree = coefficients.weight_bytes(one, weights)
                text = f"SUMIFS({column_of('Tensors', weights)},Tensors[no],{number})"
                if one.architecture.stated_parameters is not None:
                    text = excel(tree, self.sheet.book.cell_of)
                cells.append((text, evaluate(tree, one.values)))
            yield one, cells

    def _caches(self) -> Iterator[Row]:
        made, slots = self.made, self.rank_slots
        for number, (one, condensed) in enumerate(zip(made.subjects, made.condensed, strict=True), 1):
            for kv in made.kv:
                cells: list[Any] = [f"{number}|{kv}", number]
                for slot, tree in coefficients.cache(one, condensed, made.slots, kv).items():
                    text = f'SUMIFS({column_of("Cache", kv)},Cache[no],{number},Cache[slot],"{slot}")'
                    cells.append((text, evaluate(tree, one.values)))
                for mine in self.ranks[number - 1 : number]:
                    cells += self._of_rank(one, mine.of_cache.get(kv, {}), (*slots.kept, *slots.reads))
                yield one, cells

    def _rank_weights(self) -> Iterator[Row]:
        for number, (one, mine) in enumerate(zip(self.made.subjects, self.ranks, strict=True), 1):
            for weights in self.made.weights:
                found = self._of_rank(one, mine.of_weights.get(weights, {}), (*OF_WEIGHTS, *self.rank_slots.flops))
                yield one, [f"{number}|{weights}", number, *found]

    def _of_rank(self, one: Subject, trees: Mapping[str, Value], heads: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Coefficients of a rank; a long formula is shared out over steps, which stand in rows of their own."""
        sheet, book, steps = self.sheet, self.sheet.book, self.steps
        for head in heads:
            known = len(steps.trees)
            tree = steps.split(trees.get(head, 0))
            for row, (name, step) in enumerate(list(steps.trees.items())[known:], STEPS + known):
                book.names[name] = xl_rowcol_to_cell(row, STEP_COLUMN, True, True)
                book.values[name] = sheet.live(row, STEP_COLUMN, step, check=one.check)
                sheet.text(row, STEP_COLUMN - 1, name, "unit")
            yield excel(tree, book.cell_of), evaluate(tree, book.values)
