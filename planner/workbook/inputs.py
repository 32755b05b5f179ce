"""The sheet Inputs: what can be changed, in named yellow cells, and the coefficients of every decoder.

Hidden cells beside the yellow ones check them, each saying what is wrong with its own or else with the first below; so
the topmost speaks for all, and has a name. The coefficients of `coefficient_tables` stand to the right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from xlsxwriter.utility import xl_range_abs, xl_rowcol_to_cell

from planner.notation import excel
from planner.quantities import QUANTITIES
from planner.workbook import coefficient_tables, ranges
from planner.workbook.book import BAD, OK, Book, Sheet
from planner.workbook.contents import Contents
from planner.workbook.contract_rules import broken_rules
from planner.workbook.hardware import devices_of
from planner.workbook.live_plan import DEVICE, HOUR

WIDTHS = (34, 18, 10, 66, 62, 3, 3)
RIGHT = len(WIDTHS)
CHECKS, LISTS = RIGHT - 2, coefficient_tables.STEP_COLUMN + 2
"""Hidden columns."""
MEANINGS = {
    "count": "layers of this kind",
    "stated_parameters": "parameters that the contract states, of which weight bytes are taken",
    "d_ff_shared": "hidden width of all shared experts together",
    "q_lora_rank": "width of the query latent",
    "nope_head_dim": "width of the part of a head without rotary positions",
    "d_inner": "channels of the state-space mixer",
    "d_state": "state elements of a channel",
    "conv_kernel": "positions that the short convolution reads",
}
"""What fields of a contract mean that are no words of the formulas."""
CHECK_OF_INPUTS, CHECK_OF_PLAN = "check_of_inputs", "check_of_plan"
"""Names of the checks of all inputs but the contracts', and of all that the plan follows from."""


def write(book: Book, made: Contents) -> None:
    """Write the sheet and name its cells."""
    sheet = book.sheet("Inputs", WIDTHS)
    sheet.text(0, 0, "Inputs", "title")
    sheet.text(1, 0, "Yellow cells are yours to change; every figure of this workbook follows.", "subtitle")
    _lists(sheet, made)
    row = _plan(sheet, made, 3)
    row = _numbers(sheet, made, row + 1)
    row = _device(sheet, made, row + 1)
    row = _contracts(sheet, made, row + 1)
    _check_of_plan(sheet, made, 2)
    coefficient_tables.write(sheet, made, RIGHT)
    for column in (CHECKS, LISTS):
        sheet.made.set_column(column, column, None, None, {"hidden": True})
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
    plan, first, checks = made.plan, row, []
    if plan.accelerator is not None:
        sheet.text(row, 0, "accelerator")
        sheet.input(row, 1, plan.accelerator.name)
        sheet.made.data_validation(row, 1, row, 1, ranges.choice(sheet.book.lists["movable"]))
        sheet.text(row, 3, "one of those for which the same formulas hold", "wrap")
        sheet.text(row, 4, "given", "note")
        sheet.book.define("accelerator", sheet.name, row, 1, plan.accelerator.name)
        known = f"MATCH(accelerator,{sheet.book.lists['movable']},0)"
        checks.append((f"ISNUMBER({known})=FALSE", "accelerator is none of those for which the same formulas hold"))
        row += 1
    for entry in made.live.inputs:
        sheet.text(row, 0, entry.name)
        sheet.input(row, 1, entry.value, entry.unit, entry.allowed)
        sheet.text(row, 2, "" if entry.unit == "1" else entry.unit, "unit")
        sheet.text(row, 3, entry.meaning, "wrap")
        sheet.text(row, 4, entry.basis, "note")
        sheet.book.define(entry.name, sheet.name, row, 1, entry.value)
        checks.append((entry.allowed.broken(entry.name), f"{entry.name} is not {entry.allowed.rule}"))
        row += 1
    _checks(sheet, first, checks, CHECK_OF_INPUTS)
    return row


def _checks(
    sheet: Sheet, row: int, checks: list[tuple[str, str]], name: str, rules: Mapping[str, str] | None = None
) -> None:
    """Cells beside as many yellow ones that check them, and the last the `rules` too; the first has a name."""
    sheet.book.define(name, sheet.name, row, CHECKS, OK)
    last = f'"{OK}"'
    for sentence, broken in (rules or {}).items():
        last = f'IF({broken},"{sentence}",{last})'
    for at, (broken, sentence) in enumerate(checks, row):
        others = xl_rowcol_to_cell(at + 1, CHECKS) if at + 1 < row + len(checks) else last
        sheet.formula(at, CHECKS, f'IF({broken},"{sentence}",{others})', OK, style="unit")


def _check_of_plan(sheet: Sheet, made: Contents, row: int) -> None:
    """The check of everything that the plan follows from, where it is always seen."""
    text, now = f'"{OK}"', OK
    for broken, sentence, held in reversed(list(_load_rules(made))):
        text, now = f'IF({broken},"{sentence}",{text})', now if held else sentence
    for check in (made.live.subject.check, CHECK_OF_INPUTS):
        text = f'IF({check}<>"{OK}",{check},{text})'
    sheet.text(row, 0, "check of the yellow cells", "subtitle")
    sheet.formula(row, 1, text, now, style="number")
    sheet.book.define(CHECK_OF_PLAN, sheet.name, row, 1, now)
    sheet.mark(row, row, 1, f'{CHECK_OF_PLAN}<>"{OK}"', BAD)


def _load_rules(made: Contents) -> Iterator[tuple[str, str, bool]]:
    """(formula of what must not be, sentence, whether the plan as written is free of it) of `planner.plan`'s rules."""
    plan, said = made.plan, made.plan.workload
    cached, shared, learned = said.cached_prefix, plan.holders.shared_prefix, plan.model.embedding.learned_positions
    if said.lengths is not None:  # fixed in this workbook
        return
    if said.isl is None:
        yield f"context-osl+1<={cached}", "context has no room for osl", True
    elif cached:
        yield f"isl<={cached}", f"cached_prefix = {cached:,} leaves nothing of isl", True
    if said.isl is not None and said.osl is not None and said.context is not None:
        yield "isl+osl-1>context", "isl and osl do not fit context", True
    length = excel(made.live.longest, str)
    if shared:
        yield f"{length}<{shared}", f"shared_prefix = {shared:,} exceeds the positions of a sequence", True
    if learned is not None:
        yield f"{length}>{learned}", f"more positions than the {learned:,} learned ones", plan.longest <= learned


def _lists(sheet: Sheet, made: Contents) -> None:
    """The texts of validation lists, in a hidden column of this sheet: nobody deletes its rows."""
    device = {"movable": made.live.movable()} if made.plan.accelerator else {}
    row = 0
    for name, texts in {
        **device,
        "model": [one.name for one in made.subjects],
        "weights": made.weights,
        "kv": made.kv,
        "accelerator": [each.name for each in devices_of(made.plan)],
    }.items():
        sheet.book.lists[name] = f"{sheet.name}!{xl_range_abs(row, LISTS, row + len(texts) - 1, LISTS)}"
        for text in texts:
            sheet.text(row, LISTS, text)
            row += 1


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
        found = f"INDEX(Accelerators[{name}],MATCH(accelerator,Accelerators[name],0))"
        sheet.formula(row, 1, found, value, unit, check=CHECK_OF_INPUTS)
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
    sheet.formula(row, 1, f"IF(N(usd_per_hour)>0,usd_per_hour,{known})", hour, "USD/h", check=CHECK_OF_INPUTS)
    sheet.text(row, 2, "USD/h", "unit")
    sheet.text(row, 3, "what an hour of an accelerator costs: stated, of owning it, or listed", "wrap")
    sheet.book.define(HOUR, sheet.name, row, 1, live.hour)
    return row + 1


def _contracts(sheet: Sheet, made: Contents, row: int) -> int:
    sheet.made.set_h_pagebreaks([row])
    allowed = ranges.whole()
    for one in made.subjects:
        sheet.section(row, f"Contract of {one.name}", 5)
        sheet.heads(row + 1, ("field", "value", "unit", "meaning", "name of the cell"), right=("value",))
        row += 2
        checks = [(allowed.broken(field.name), f"{field.path} is not {allowed.rule}") for field in one.fields]
        _checks(sheet, row, checks, one.check, broken_rules(one))
        sheet.formula(row - 2, 3, one.check, OK, style="section_check")
        sheet.mark(row - 2, row - 2, 3, f'{one.check}<>"{OK}"', BAD)
        for field in one.fields:
            sheet.text(row, 0, field.path)
            sheet.input(row, 1, field.value, allowed=allowed)
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
    return QUANTITIES[leaf].meaning if leaf in QUANTITIES else MEANINGS.get(leaf, "")
