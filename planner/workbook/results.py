"""The sheet Results: memory, FLOPs, time and cost of the plan, live, with its verdict."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import reduce
from typing import Any

from planner import cost, speed
from planner.arithmetic import Value, evaluate, minimum, word, words
from planner.ladder import TERMS
from planner.memory import TIGHT
from planner.notation import excel
from planner.parallel import ranks
from planner.phases import Timing
from planner.summary import UNITS, beyond
from planner.workbook.book import BAD, GIB, OK, Book, Sheet
from planner.workbook.contents import Contents
from planner.workbook.inputs import CHECK_OF_PLAN
from planner.workbook.live_plan import HOUR
from planner.workbook.steps import Steps

WIDTHS = (34, 24, 10, 18, 84)
SUMMARY = (
    ("headroom", "B", "usable memory less reserved and needed"),
    ("ttft_s", "s", "time to the first token of a request, estimated"),
    ("tpot_s", "s", "time of one further token, estimated"),
    ("output_tok_s", "token/s", "output of all replicas in the steady state, estimated"),
    ("usd_per_mtok_output", "USD", "a million output tokens, at the planned load"),
    ("fleet_usd_per_month", "USD", "all accelerators, used or not"),
)
MEANINGS = {
    "parameters": "all that a checkpoint stores",
    "active_parameters": "those that one token uses",
    "weight_bytes": "of the whole decoder, in the plan's format",
    "cache_bytes_per_token": "that one more position adds, of one sequence",
    "cache_fixed_bytes": "of one sequence, whatever its length",
    "cache_bytes": "of all sequences",
    "prefill_flops": "prompts of all sequences",
    "decode_flops": "all output tokens but the first",
    "request_flops": "prompts and output of all sequences",
}
COSTS = {
    "usd_per_accelerator_hour": "stated, of owning, or listed",
    "replica_usd_per_hour": "accelerators of one replica",
    "fleet_usd_per_hour": "all accelerators",
    "fleet_usd_per_day": "all accelerators, used or not",
    "fleet_usd_per_month": "all accelerators, used or not",
    "usd_per_request": "one prefill and a share of the decode steps",
    "usd_per_mtok_input": "a million input tokens, at the planned load",
    "usd_per_mtok_cached_input": "a million input tokens that are cached already",
    "usd_per_mtok_output": "a million output tokens, at the planned load",
    "usd_per_mtok_blended": "a million tokens of either kind",
    "usd_per_mtok_blended_reserved": "the same with idle hours paid for",
    "usd_per_user_month": "requests of one user, as many a day as Inputs assumes",
    "idle_usd_per_month": "paid hours without the planned load",
    "requests_per_month": "at the planned load and utilisation",
}


def write(book: Book, made: Contents) -> None:
    """Write the sheet."""
    sheet = book.sheet("Results", WIDTHS)
    _Results(sheet, made).write()
    sheet.made.freeze_panes(3, 1)


class _Results:
    """The rows of the sheet, and the steps below them that long formulas are computed in."""

    def __init__(self, sheet: Sheet, made: Contents) -> None:
        self.sheet, self.made, self.live = sheet, made, made.live
        self.steps = Steps("step")
        self.values = dict(made.live.values)
        self.row = 3 + len(SUMMARY) + 4  # below the summary
        self.waiting: list[tuple[int, int, Value, str, str]] = []
        self.shown: dict[str, Value] = {}
        self.headrooms: list[Value] = []
        self.priced = {HOUR}

    def write(self) -> None:
        sheet, layout = self.sheet, self.made.plan.layout
        sheet.text(0, 0, "Results", "title")
        accelerators = "1 accelerator" if layout.accelerators == 1 else f"{layout.accelerators} accelerators"
        sheet.text(1, 0, f"{self.made.plan.model.name}, {layout} ({accelerators})", "subtitle")
        self._memory()
        self._work()
        self._time()
        self._cost()
        self._summary(3)
        last = self.row
        self._write_cells()
        sheet.made.print_area(0, 0, last, len(WIDTHS) - 1)

    def _summary(self, row: int) -> None:
        """The answers in short, taken from the rows below."""
        sheet = self.sheet
        sheet.section(row, "In short", len(WIDTHS))
        sheet.heads(row + 1, ("figure", "value", "unit", "GiB", "of what"), right=("value", "GiB"))
        row += 2
        sheet.text(row, 0, "verdict", "strong")
        text, value = self._verdict()
        sheet.formula(row, 1, text, value, style="verdict")
        sheet.book.define("verdict", sheet.name, row, 1, value)
        sheet.mark_verdicts(row, row, 1)
        text, value = self._remark()
        sheet.formula(row, 4, text, value, style="note")
        sheet.mark(row, row, 4, f'{CHECK_OF_PLAN}<>"{OK}"', BAD)
        for name, unit, meaning in SUMMARY:
            row += 1
            sheet.text(row, 0, name, "strong")
            if name in self.shown:
                self._figure_at(row, self.shown[name], unit, None, "verdict")
            else:
                sheet.text(row, 1, "unknown", "verdict")
            sheet.text(row, 2, unit, "unit")
            sheet.text(row, 4, meaning, "note")

    def _verdict(self) -> tuple[str, str]:
        """The verdict over all ranks as a formula, and what it is now."""
        if not self.headrooms:
            return '"unknown"', "unknown"
        cell = self.sheet.book.cell_of
        tight, least = TIGHT * word("memory_bytes"), self.shown["headroom"]
        text = f'IF({excel(least, cell)}<0,"does not fit",IF({excel(least, cell)}<{excel(tight, cell)},"tight","fits"))'
        left = self._value(least)
        value = "does not fit" if left < 0 else "tight" if left < self._value(tight) else "fits"
        known = self.sheet.book.values[CHECK_OF_PLAN] == OK
        return f'IF({CHECK_OF_PLAN}="{OK}",{text},"unknown")', value if known else "unknown"

    def _remark(self) -> tuple[str, str]:
        """What stands beside the verdict, as a formula and now: what is wrong with the inputs, or a warning."""
        text, now = '"of the rank with the least headroom"', "of the rank with the least headroom"
        stated, check = self.made.plan.model.max_positions, self.sheet.book.values[CHECK_OF_PLAN]
        for held, sentence in beyond(self.made.plan.longest, stated):
            text = f'IF({excel(self.live.longest, str)}>{stated},"{sentence}",{text})'
            now = sentence if held else now
        return f'IF({CHECK_OF_PLAN}="{OK}",{text},{CHECK_OF_PLAN})', now if check == OK else check

    def _section(self, title: str, heads: tuple[str, ...]) -> None:
        self.sheet.section(self.row, title, len(WIDTHS))
        self.sheet.heads(self.row + 1, heads, right=(heads[1], heads[3]))
        self.row += 2

    def _figure(
        self, name: str, tree: Value, unit: str, meaning: str, second: Value | None = None, style: str = "figure"
    ) -> Value:
        """A row with a figure; returns the word of its cell."""
        sheet, row, cell = self.sheet, self.row, f"row_{self.row + 1}"
        sheet.text(row, 0, name)
        self._figure_at(row, tree, unit, second, style)
        sheet.text(row, 2, "" if unit == "1" else unit, "unit")
        sheet.text(row, 4, meaning, "note")
        self.values[cell] = self._value(tree)
        sheet.book.names[cell] = f"$B${row + 1}"
        if self._is_priced(tree):
            self.priced.add(cell)
        self.shown[name] = word(cell)
        self.row += 1
        return self.shown[name]

    def _figure_at(self, row: int, tree: Value, unit: str, second: Value | None, style: str) -> None:
        self.waiting.append((row, 1, self.steps.split(tree), unit, style))
        if second is not None:
            self.waiting.append((row, 3, self.steps.split(second), unit, style))
        elif unit == "B":
            gib = float(self._value(tree)) / GIB
            self.sheet.formula(row, 3, f"B{row + 1}/{GIB}", gib, "GiB", style, check=CHECK_OF_PLAN)

    def _value(self, tree: Value) -> Any:
        return "unknown" if self._is_priced(tree) and self.live.hour is None else evaluate(tree, self.values)

    def _is_priced(self, tree: Value) -> bool:
        return not self.priced.isdisjoint(words(tree))

    def _memory(self) -> None:
        names = [rank.name for rank in ranks(self.made.plan.model, self.made.plan.layout)]
        for name, (_, needed, reserved) in zip(names, self.live.answers.ladder, strict=True):
            self._section(f"Memory of a rank: {name}", ("term", "bytes", "unit", "GiB", "how"))
            own = [self._term(term, tree) for term, tree in needed.items()]
            outside = [self._term(term, tree) for term, tree in reserved.items()]
            total = self._figure("needed", sum(own), "B", "sum of the needed terms", style="verdict")
            if reserved:
                left: Value = word("memory_bytes") - sum(outside) - total
                meaning = "usable memory less reserved and needed; negative where it is too little"
                self.headrooms.append(self._figure("headroom", left, "B", meaning, style="verdict"))
            self.row += 1
        if self.headrooms:
            self.shown["headroom"] = reduce(minimum, self.headrooms)

    def _term(self, term: str, tree: Value) -> Value:
        return self._figure(term, tree, "B", f"{TERMS[term].kind}: {TERMS[term].formula}")

    def _work(self) -> None:
        self._section("Sizes and FLOPs", ("figure", "value", "unit", "GiB", "of what"))
        book = self.sheet.book
        for name, tree in self.live.answers.summary.items():
            book.names[f"plan_{name}"] = f"Results!$B${self.row + 1}"
            book.values[f"plan_{name}"] = self._value(tree)
            self._figure(name, tree, UNITS.get(name, "1"), MEANINGS.get(name, ""))
        self.row += 1

    def _time(self) -> None:
        answers = self.live.answers
        if answers.floor is None or answers.estimate is None:
            self.sheet.text(self.row, 0, f"Time and cost are unknown: {answers.reason}", "strong")
            self.row += 2
            return
        self._section("Time and throughput", ("figure", "estimate", "unit", "floor", "of what"))
        for name, unit in speed.UNITS.items():
            floor, estimate = getattr(answers.floor, name), getattr(answers.estimate, name)
            self._figure(name, estimate, unit, _meaning(name), floor)
        self.row += 1

    def _cost(self) -> None:
        money = self.live.answers.cost
        if money is not None:
            self.sheet.made.set_h_pagebreaks([self.row])
            self._section("Cost", ("figure", "value", "unit", "", "of what"))
            for name, unit in cost.UNITS.items():
                if money[name] is not None:
                    self._figure(name, money[name], unit, COSTS.get(name, ""))
            self.row += 1

    def _write_cells(self) -> None:
        """The cells of the rows, over the steps that all of them share."""
        sheet, hidden = self.sheet, {"level": 1, "hidden": True}
        self.row += 1
        sheet.text(self.row, 0, "Intermediate results", "unit")
        sheet.made.set_row(self.row, None, None, hidden)
        first = self.row + 1
        for at, name in enumerate(self.steps.trees, first):
            sheet.book.names[name] = f"$B${at + 1}"
        for at, (name, tree) in enumerate(self.steps.trees.items(), first):
            if self._is_priced(tree):
                self.priced.add(name)
            self.values[name] = self._value(tree)
            sheet.text(at, 0, name, "unit")
            self._cell(at, 1, tree, "1", "figure")
            sheet.made.set_row(at, None, None, hidden)
        for cell in self.waiting:
            self._cell(*cell)

    def _cell(self, row: int, column: int, tree: Value, unit: str, style: str) -> None:
        text = excel(tree, self.sheet.book.cell_of)
        if self._is_priced(tree):
            text = f'IF(ISNUMBER({HOUR}),{text},"unknown")'
        self.sheet.formula(row, column, text, self._value(tree), unit, style, check=CHECK_OF_PLAN)


def _meaning(name: str) -> str:
    member: Any = Timing.__dict__.get(name)
    written: Mapping[str, str] = {
        "ttft_s": "prefill of a request from end to end",
        "tpot_s": "mean of the decode steps",
        "prefill_s": "how long a prefill keeps the replica from other work",
        "burst_ttft_s": "TTFT of the last of all sequences of a replica, whose prompts arrive at once",
    }
    sentence = (inspect.getdoc(member) or "").partition("\n")[0].rstrip(".")
    return written.get(name) or (sentence if sentence[1:2].isupper() else sentence[:1].lower() + sentence[1:])
