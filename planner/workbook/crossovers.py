"""The sheet Crossovers: closed forms over the plan's figures, and a chart of cache and weights over the context."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner.accounts import cache_bytes, weight_bytes
from planner.arithmetic import Value, evaluate, word
from planner.formula import Formula, formulas
from planner.notation import excel
from planner.quantities import quantity
from planner.storage import cache_format, weight_format
from planner.workbook.book import GIB, Book, Sheet
from planner.workbook.condensed import cache_curve
from planner.workbook.contents import Contents
from planner.workbook.inputs import CHECK_OF_PLAN
from planner.workbook.ranges import whole

WIDTHS = (38, 20, 10, 60, 44)
CURVES = 8
"""Decoders in the chart; more lines cannot be told apart."""
POINTS = 33
FIRST_CURVE = 7  # the column of the contexts; the tables stand to the left of it


def write(book: Book, made: Contents) -> None:
    """Write the sheet."""
    sheet = book.sheet("Crossovers", (*WIDTHS, 3, 3, 14, *(20 for _ in range(2 * CURVES))))
    sheet.text(0, 0, "Crossovers", "title")
    sheet.text(1, 0, "None is a property of the Transformer: each moves with its inputs.", "subtitle")
    row = _closed_forms(sheet, made, 3)
    row = _curves(sheet, made, row + 1)
    sheet.made.print_area(0, 0, row, 4)
    sheet.made.fit_to_pages(1, 1)


def _closed_forms(sheet: Sheet, made: Contents, row: int) -> int:
    known = dict(_known(sheet.book, made))
    chosen = [entry for entry in _crossovers() if set(entry.words) <= known.keys()]
    words = list(dict.fromkeys(name for entry in chosen for name in entry.words))
    sheet.section(row, "What the closed forms take (from Inputs and Results)", 5)
    sheet.heads(row + 1, ("word", "value", "unit", "meaning", ""), right=("value",))
    row += 2
    cells, values = {}, {}
    for name in words:
        tree = known[name]
        said = quantity(name)
        values[name] = evaluate(tree, sheet.book.values)
        cells[name] = f"$B${row + 1}"
        sheet.text(row, 0, name)
        sheet.live(row, 1, tree, said.unit, check=CHECK_OF_PLAN)
        sheet.text(row, 2, "" if said.unit == "1" else said.unit, "unit")
        sheet.text(row, 3, said.meaning, "note")
        row += 1
    row += 1
    sheet.section(row, "Closed forms", 5)
    sheet.heads(row + 1, ("crossover", "value", "unit", "where", "holds for"), right=("value",))
    row += 2
    for entry in chosen:
        sheet.text(row, 0, entry.name)
        try:
            value: Any = float(evaluate(entry.tree, values))
        except ZeroDivisionError:
            value = "never"
        text = f'IFERROR({excel(entry.tree, cells.__getitem__)},"never")'
        sheet.formula(row, 1, text, value, "crossover", check=CHECK_OF_PLAN)
        sheet.text(row, 2, "" if entry.unit == "1" else entry.unit, "unit")
        sheet.text(row, 3, entry.summary, "wrap")
        sheet.text(row, 4, entry.validity, "note")
        row += 1
    return row


def _crossovers() -> list[Formula]:
    return [entry for entry in formulas.values() if entry.function.__module__.endswith("crossovers")]


def _known(book: Book, made: Contents) -> Iterator[tuple[str, Value]]:
    """Word of the vocabulary -> its formula over named cells and figures of the plan."""
    live = made.live
    for name in ("weight_bytes", "active_parameters"):
        yield name, word(f"plan_{name}")
    yield "kv_bytes_per_token", word("plan_cache_bytes_per_token")
    yield "weight_elem_bytes", word("plan_weight_bytes") / word("plan_parameters")
    if live.plan.workload.lengths is None:
        yield "batch", word("sequences")
        yield "context", live.longest
    yield "n_layers", live.subject.live.n_layers
    for field in live.subject.fields:
        leaf = field.path.rpartition(".")[2]
        alone = sum(other.path.rpartition(".")[2] == leaf for other in live.subject.fields) == 1
        if alone and leaf != "count":
            yield leaf, word(field.name)
    rates = {"memory_bytes_per_s": "bandwidth_bytes_per_s", "link_bytes_per_s": "link_bytes_per_s"}
    first = next(iter(live.bases), None)
    for name, cell in {**rates, **({"flops_per_s": first} if first else {})}.items():
        if cell in live.device:
            yield name, word(str(cell))


def _curves(sheet: Sheet, made: Contents, row: int) -> int:
    """The table of the chart, to the right, and the chart, below."""
    tree = cache_curve(made.slots)
    shown = list(zip(made.subjects, made.condensed, strict=True))[:CURVES]
    most = max((one.architecture.max_positions or 131_072) for one, _ in shown)
    most = min(most, 1_048_576)
    sheet.section(row, "Cache of one sequence and weights over the context", 5)
    top = 3
    sheet.section(top, "Data of the chart, in GiB", 1 + 2 * len(shown), FIRST_CURVE)
    sheet.text(top + 1, FIRST_CURVE, "context", "head")
    step = max(1, -(-most // (POINTS - 1)))
    for at, (one, _) in enumerate(shown):
        sheet.text(top + 1, FIRST_CURVE + 1 + 2 * at, f"{one.name}: cache", "head")
        sheet.text(top + 1, FIRST_CURVE + 2 + 2 * at, f"{one.name}: weights", "head")
    for point in range(POINTS):
        place = top + 2 + point
        if point == 0:
            sheet.number(place, FIRST_CURVE, 0)
        elif point == 1:
            sheet.input(place, FIRST_CURVE, step, allowed=whole())
        else:
            sheet.formula(place, FIRST_CURVE, f"H{place}+N($H${top + 4})", step * point)
        for at in range(len(shown)):
            _point(sheet, made, at, place, step * point, tree)
    chart = sheet.book.file.add_chart({"type": "scatter", "subtype": "straight"})
    colours = ("#1D5F9E", "#C4521B", "#2E7D4F", "#7A4FA3", "#B8860B", "#B03A5B", "#3A8F9E", "#6B7780")
    for at, colour in enumerate(colours[: len(shown)]):
        for column, dash in enumerate(("solid", "dash"), FIRST_CURVE + 1 + 2 * at):
            chart.add_series(
                {
                    "name": ["Crossovers", top + 1, column],
                    "categories": ["Crossovers", top + 2, FIRST_CURVE, top + 1 + POINTS, FIRST_CURVE],
                    "values": ["Crossovers", top + 2, column, top + 1 + POINTS, column],
                    "line": {"color": colour, "width": 2, "dash_type": dash},
                }
            )
    font = {"name": "Arial", "size": 9, "color": "#1F2933"}
    grid = {"visible": True, "line": {"color": "#E8EDF2"}}
    axis = {"num_format": "#,##0", "min": 0, "num_font": font, "name_font": font}
    chart.set_x_axis({"name": "context (tokens)", **axis})
    chart.set_y_axis({"name": "GiB", "major_gridlines": grid, **axis})
    chart.set_legend({"position": "right", "font": font})
    chart.set_title({"none": True})
    chart.set_size({"width": 1180, "height": 420})
    sheet.made.insert_chart(row + 1, 0, chart)
    return row + 24


def _point(sheet: Sheet, made: Contents, at: int, row: int, context: int, tree: Value) -> None:
    """Cache and weights of a decoder, in its own formats, at the context of the row."""
    one = made.subjects[at]
    weights, kv = (made.plan.weights, made.plan.kv) if at == 0 else (one.architecture.weights, one.architecture.kv)
    weights, kv = weight_format(weights).name, cache_format(kv).name
    kv_row = at * len(made.kv) + made.kv.index(kv) + 1

    def cell(name: str) -> str:
        if name == "context":
            return f"N($H{row + 1})"
        if name in made.slots.cache:
            return f"INDEX(CacheBytes[{name}],{kv_row})"
        return f"INDEX(Models[{name}],{at + 1})"

    cached = cache_bytes(one.architecture, [context], kv=kv)
    text = f"({excel(tree, cell)})/{GIB}"
    sheet.formula(row, FIRST_CURVE + 1 + 2 * at, text, cached / GIB, "GiB", check=one.check)
    column = made.weights.index(weights) + 1
    first, last = made.weights[0], made.weights[-1]
    stored = weight_bytes(one.architecture, weights)
    text = f"INDEX(WeightBytes[[{first}]:[{last}]],{at + 1},{column})/{GIB}"
    sheet.formula(row, FIRST_CURVE + 2 + 2 * at, text, stored / GIB, "GiB", check=one.check)
