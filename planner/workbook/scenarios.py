"""The sheet Scenarios: an Excel table, a row for each scenario, every figure a formula over the row's coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.arithmetic import Value, evaluate, word
from planner.notation import excel
from planner.scenarios import TOO_LONG
from planner.summary import NEVER, NONE, UNITS, beyond
from planner.workbook import coefficients
from planner.workbook.book import A3, GIB, OK, Book, Sheet, number_format
from planner.workbook.cases import Case
from planner.workbook.condensed import Crossing, column_formulas, crossing, rule_words
from planner.workbook.contents import Contents
from planner.workbook.fleet import INPUTS, SHOWN, Fleet, fleet_of
from planner.workbook.ranges import choice, price, whole
from planner.workbook.ranked import unranked
from planner.workbook.steps import Steps

SPARE = 50
"""Blank rows at the end of the table, for programs that do not extend tables."""
IN_GIB = {"weight_gib": word("weight_bytes") / GIB, "cache_gib": word("cache_bytes") / GIB}
WIDTHS = {"model": 24, "weights": 14, "kv": 12, "accelerator": 18, "batch": 8}
WIDTHS |= {"reason": 46, "warning": 46, "crossover_note": 54}
WIDTHS |= dict.fromkeys(("prefill_flops", "decode_flops", "request_flops"), 26)
PAGE = 330
"""Characters that are still read where they stand on one printed page side by side."""
LOOK_UP = ("model_row", "cache_row", "weights_column")
LEFT = ("model", "weights", "kv", "accelerator", "verdict", "reason", "warning", "crossover_note")
HEAD = 4  # the row of the table's head


def reference(name: str) -> str:
    """A cell of the same row, as a file writes it; a program shows ``[@name]``."""
    return f"Scenarios[[#This Row],[{name}]]"


@dataclass(frozen=True)
class Table:
    """The formulas of the table: `figures` and `steps` over the words of a row, and how a row finds those words."""

    made: Contents
    figures: Mapping[str, Value]
    steps: Steps
    crossing: Crossing
    lines: tuple[str, ...]
    fleet: Fleet | None

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that a user fills in."""
        own = tuple(INPUTS) if self.fleet else ()
        return ("model", "weights", "kv", *own[:1], *self.made.axes, *own[1:])

    @property
    def coefficients(self) -> dict[str, str]:
        """Column -> the table on Inputs that holds it."""
        of_models = ("parameters", "active_parameters", *rule_words(self.made.slots), *self.made.slots.products)
        return {**dict.fromkeys(of_models, "Models"), **dict.fromkeys(self.made.slots.cache, "CacheBytes")}

    @property
    def shown(self) -> tuple[str, ...]:
        """The columns with answers, in their order."""
        names = list(self.figures)
        names.insert(names.index("cache_bytes") + 1, "crossover_note")
        names.insert(names.index("cache_bytes") + 1, "crossover_tokens")
        of_fleet = list(SHOWN) if self.fleet else []
        of_fleet.insert(1, "reason")  # beside the verdict
        return (*of_fleet, *IN_GIB, *names, "warning")

    @property
    def heads(self) -> tuple[str, ...]:
        """All columns; those behind the answers are hidden."""
        copied = tuple(name for name in self.coefficients if name not in self.figures)
        positions = ("learned_positions", "max_positions")
        behind = ("load_reason", "ok", *LOOK_UP, *positions, *copied, *self.steps.trees, *self.lines)
        fleet = self.fleet.hidden if self.fleet else ()
        return (*self.inputs, *self.shown, *behind, "cache_rate", "cache_limit", "weights_of_a_sequence", *fleet)


def table_of(made: Contents) -> Table:
    """The formulas of all columns."""
    steps = Steps("step")
    given = {"parameters", "active_parameters", "weight_bytes"}
    whole_ones = column_formulas(made.slots, made.load)
    figures = {name: tree if name in given else steps.split(tree) for name, tree in whole_ones.items()}
    found = crossing(made.slots, made.load)
    lines = tuple(f"line_{i}" for i in range(1, len(found.lines) + 1))
    return Table(made, figures, steps, found, lines, fleet_of(made))


def write(book: Book, made: Contents) -> None:
    """Write the sheet."""
    table = table_of(made)
    sheet = book.sheet("Scenarios", [_width(head) for head in table.heads], protect=False, paper=A3)
    first_hidden = len(table.inputs) + len(table.shown)
    sheet.made.set_column(first_hidden, len(table.heads) - 1, 14, None, {"level": 1, "hidden": True})
    sheet.text(0, 0, "Scenarios", "title")
    sheet.text(
        1,
        0,
        "A row is a scenario: fill in yellow cells, also in the blank rows at the end. The sheet is not",
        "subtitle",
    )
    sheet.text(2, 0, "protected, because a program extends only the tables of sheets that are not.", "subtitle")
    why = unranked(made.plan)
    about = f"Fit, floor and price are left out: {why}." if why else _about(made)
    sheet.text(1, len(table.inputs), about, "subtitle")
    for column, head in enumerate((*table.inputs, *table.shown)):
        unit = _unit(head)
        sheet.text(HEAD - 1, column, "" if unit == "1" else unit, "unit_right")
        if head in SHOWN:
            sheet.made.write_comment(HEAD, column, SHOWN[head][1], {"x_scale": 1.5, "y_scale": 0.6})
    rows = len(made.cases) + SPARE
    formulas = dict(_formulas(table))
    sheet.table(HEAD, 0, "Scenarios", table.heads, rows, LEFT, "head_left", autofilter=True, formulas=formulas)
    for row, case in enumerate([*made.cases, *[None] * SPARE], HEAD + 1):
        _row(sheet, table, row, case, formulas)
    last = HEAD + rows
    for column, head in enumerate(table.inputs):
        numbers = price(head) if head == "usd_per_hour" else whole()
        rule = choice(book.lists[head]) if head in book.lists else numbers.validation()
        sheet.made.data_validation(HEAD + 1, column, last, column, rule)
    if table.fleet:
        sheet.mark_verdicts(HEAD + 1, last, table.heads.index("verdict"))
    sheet.made.freeze_panes(HEAD + 1, 1)
    sheet.made.repeat_rows(HEAD - 1, HEAD)
    sheet.made.repeat_columns(0)
    sheet.made.fit_to_pages(math.ceil(sum(map(_width, (*table.inputs, *table.shown))) / PAGE), 0)
    sheet.made.print_area(0, 0, HEAD + len(made.cases), first_hidden - 1)


def _about(made: Contents) -> str:
    layout = made.plan.layout
    return f"Fit, floor and price of replicas with tp = {layout.tp}, with {made.plan.engine} and as Inputs assumes."


def _unit(head: str) -> str:
    of_fleet = INPUTS | {name: unit for name, (unit, _) in SHOWN.items()}
    return "GiB" if head in IN_GIB else of_fleet.get(head, UNITS.get(head, ""))


def _width(head: str) -> float:
    narrow = head in ("context", "isl", "osl", "count", "usd_per_hour", *IN_GIB)
    return WIDTHS.get(head, 13 if narrow else max(16, len(head) + 3))


def _row(sheet: Sheet, table: Table, row: int, case: Case | None, formulas: Mapping[str, str]) -> None:
    values = row_values(table, case)
    for column, head in enumerate(table.heads):
        if head in table.inputs:
            if case is None:
                style = "choice" if head in LEFT else "input"
                sheet.made.write_blank(row, column, None, sheet.book.style(style, number_format(_unit(head))))
            else:
                sheet.input(row, column, values[head] or None, _unit(head))
        else:
            unit = _unit(head)
            style = "indented" if head == "verdict" else "unit" if head in LEFT else "figure"
            sheet.formula(row, column, formulas[head].removeprefix("="), values[head], unit, style)


def _formulas(table: Table) -> Iterator[tuple[str, str]]:
    """Column -> its formula, the same in all rows."""
    at = reference
    model = at("model")
    if any(sign in one.name for one in table.made.subjects for sign in "~*?"):
        for sign in "~*?":  # which stand for other texts in a search
            model = f'SUBSTITUTE({model},"{sign}","~{sign}")'
    yield "model_row", f'=IF({at("model")}="",0,IFERROR(MATCH({model},Models[model],0),0))'
    yield "cache_row", f'=IFERROR(MATCH({at("model_row")}&"|"&{at("kv")},CacheBytes[key],0),0)'
    formats = f"WeightBytes[[#Headers],[{table.made.weights[0]}]:[{table.made.weights[-1]}]]"
    yield "weights_column", f"=IFERROR(MATCH({at('weights')},{formats},0),0)"
    for name in ("learned_positions", "max_positions"):
        yield name, f"=IF({at('model_row')}=0,0,INDEX(Models[{name}],{at('model_row')}))"
    yield "load_reason", f"={_reason(table)}"
    yield "ok", f'=IF(AND({at("load_reason")}="",{at("model_row")}>0),1,0)'
    other = at("rank_reason") if table.fleet else '""'
    yield "reason", f'=IF({at("load_reason")}<>"",{at("load_reason")},{other})'
    beyond_stated = f"AND({at('max_positions')}>0,{_length(table)}>{at('max_positions')})"
    said = f"INDEX(Models[warning],{at('model_row')})"
    yield "warning", f'=IF({at("ok")}=1,IF({beyond_stated},{said},""),"")'

    def when_ok(text: str, other: str = '""') -> str:
        return f"=IF({at('ok')}=1,{text},{other})"

    for name, source in table.coefficients.items():
        row = "model_row" if source == "Models" else "cache_row"
        yield name, when_ok(f"INDEX({source}[{name}],{at(row)})", '""' if name in table.figures else "0")
    first, last = table.made.weights[0], table.made.weights[-1]
    yield "weight_bytes", when_ok(f"INDEX(WeightBytes[[{first}]:[{last}]],{at('model_row')},{at('weights_column')})")
    given = {"parameters", "active_parameters", "weight_bytes"}
    for name, tree in {**table.figures, **table.steps.trees, **IN_GIB}.items():
        if name not in given:
            yield name, when_ok(excel(tree, at))
    for name, tree in zip(table.lines, table.crossing.lines, strict=True):
        yield name, when_ok(f"IFERROR({excel(tree, at)},0)")
    yield "cache_rate", when_ok(excel(table.crossing.rate, at))
    yield "cache_limit", when_ok(excel(table.crossing.limit, at))
    yield "weights_of_a_sequence", when_ok(excel(table.crossing.target, at))
    greatest = f"MAX({','.join(map(at, table.lines))})" if table.lines else "0"
    bounded = f"AND({at('cache_rate')}=0,{at('cache_limit')}<{at('weights_of_a_sequence')})"
    if table.fleet:
        yield from table.fleet.formulas(at, table.heads)
    yield "crossover_note", when_ok(f'IF({bounded},"{NEVER}",IF({greatest}<=0,"{NONE}",""))')
    yield "crossover_tokens", when_ok(f'IF({at("crossover_note")}="",{greatest},"")')


def _length(table: Table) -> str:
    """Positions of a sequence of the row."""
    return reference("context") if "context" in table.inputs else f"({reference('isl')}+{reference('osl')}-1)"


def _reason(table: Table) -> str:
    at, length = reference, _length(table)
    before, _, after = TOO_LONG.partition("{value}")
    middle, _, end = after.partition("{learned}")
    learned = at("learned_positions")
    too_long = f'"{before}"&TEXT({length},"0")&"{middle}"&TEXT({learned},"0")&"{end}"'
    checks = [
        (f'{at("model")}=""', '""'),
        (f"{at('model_row')}=0", '"unknown model"'),
        (f'INDEX(Models[check],{at("model_row")})<>"{OK}"', f"INDEX(Models[check],{at('model_row')})"),
        (f"{at('weights_column')}=0", '"unknown weight format"'),
        (f"{at('cache_row')}=0", '"unknown cache format"'),
    ]
    checks += [(whole().broken(at(name)), f'"{name} is not {whole().rule}"') for name in table.made.axes]
    checks.append((f"AND({learned}>0,{length}>{learned})", too_long))
    text = '""'
    for condition, answer in reversed(checks):
        text = f"IF({condition},{answer},{text})"
    return text


def row_values(table: Table, case: Case | None) -> dict[str, Any]:
    """Every value of a row, as the formulas give it."""
    values = _values(table, case)
    return values | (table.fleet.values(case, values) if table.fleet else {})


def _values(table: Table, case: Case | None) -> dict[str, Any]:
    if case is None:
        zero = {name: 0 for name in (*LOOK_UP, "ok", "learned_positions", "max_positions")}
        copied = {name: 0 for name in table.coefficients if name not in table.figures}
        return {**dict.fromkeys(table.heads, ""), **zero, **copied}
    made = table.made
    row = [one.name for one in made.subjects].index(case.model)
    one, condensed = made.subjects[row], made.condensed[row]
    learned = one.architecture.embedding.learned_positions or 0
    values: dict[str, Any] = {"model": case.model, "weights": case.weights, "kv": case.kv, **case.numbers}
    length = case.numbers["context"] if "context" in values else values["isl"] + values["osl"] - 1
    values |= {
        "model_row": row + 1,
        "cache_row": row * len(made.kv) + made.kv.index(case.kv) + 1,
        "weights_column": made.weights.index(case.weights) + 1,
        "learned_positions": learned,
        "max_positions": one.architecture.max_positions or 0,
    }
    if learned and length > learned:
        blank = {name: 0 for name in ("ok", *(n for n in table.coefficients if n not in table.figures))}
        reason = TOO_LONG.format(value=length, learned=learned)
        return {**dict.fromkeys(table.heads, ""), **values, **blank, "load_reason": reason, "reason": reason}
    trees = {
        **coefficients.sizes(one),
        "weight_bytes": coefficients.weight_bytes(one, case.weights),
        **coefficients.widths(condensed, made.slots),
        **coefficients.multiply_adds(condensed, made.slots),
        **coefficients.cache(one, condensed, made.slots, case.kv),
    }
    numbers = {**case.numbers, **{name: evaluate(tree, one.values) for name, tree in trees.items()}}
    for name, tree in {**table.steps.trees, **table.figures, **IN_GIB}.items():
        if name not in numbers:
            numbers[name] = evaluate(tree, numbers)
    lines = {name: _or_zero(tree, numbers) for name, tree in zip(table.lines, table.crossing.lines, strict=True)}
    rate, limit, target = (
        evaluate(tree, numbers) for tree in (table.crossing.rate, table.crossing.limit, table.crossing.target)
    )
    greatest = max(lines.values(), default=0)
    note = NEVER if rate == 0 and limit < target else NONE if greatest <= 0 else ""
    return {
        **values,
        **numbers,
        **lines,
        "cache_rate": rate,
        "cache_limit": limit,
        "weights_of_a_sequence": target,
        "crossover_note": note,
        "crossover_tokens": "" if note else greatest,
        "load_reason": "",
        "reason": "",
        "warning": next((text for held, text in beyond(length, one.architecture.max_positions) if held), ""),
        "ok": 1,
    }


def _or_zero(tree: Value, numbers: Mapping[str, Value]) -> float:
    try:
        found = float(evaluate(tree, numbers))
    except ZeroDivisionError:
        return 0.0
    return found if math.isfinite(found) else 0.0
