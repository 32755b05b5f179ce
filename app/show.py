"""Pieces that the pages share: a table for telephones too, a figure and its downloads, how a figure came about."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from planner.app.state import plain
from planner.figures import to_html
from planner.formula import Explanation
from planner.notation import latex_number
from planner.printing import as_text_cell
from planner.units import show, show_exact
from planner.workbook import write_workbook
from planner.workings import Working

STYLE = """
<style>
.stMainBlockContainer { padding-top: 4.5rem }
:has(> [data-testid=stMultiSelectTagsContainer]) { max-height: none }
.stMarkdown p:has(.katex) { overflow-x: auto; overflow-y: hidden; padding-block: .2rem }
.katex-display { overflow-x: auto; overflow-y: hidden; padding-block: .35rem }
.planner { width: 100%; border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums;
  --line: color-mix(in srgb, currentColor 20%, transparent) }
.planner th, .planner td { padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  text-align: right; vertical-align: top; overflow-wrap: break-word }
.planner td:not(.text) { white-space: nowrap }
.planner th { font-weight: 600 }
.planner th:first-child, .planner .text { text-align: left }
.planner small { display: block; font-weight: 400; opacity: .8 }
.planner tr.differs > * { background: color-mix(in srgb, #d17a00 14%, transparent) }
@media (max-width: 640px) {
  .katex { font-size: 1em }
  .st-key-page button { padding-inline: .45rem }
  .planner thead { position: absolute; clip-path: inset(50%); height: 1px; overflow: hidden }
  .planner tr { display: block; padding: .5rem 0; border-bottom: 2px solid var(--line) }
  .planner th { display: block; padding: .15rem 0; border: 0; text-align: left }
  .planner td, .planner td.text { display: flex; justify-content: space-between; gap: 1rem; border: 0;
    padding: .15rem 0; text-align: right; overflow-wrap: anywhere }
  .planner td:not(.text) { white-space: normal }
  .planner td::before { content: attr(data-label); opacity: .8; text-align: left; overflow-wrap: normal }
}
</style>
"""


def style() -> None:
    """What the pages need beside the theme."""
    st.html(STYLE)


def table(
    caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = 1, marked: Sequence[int] = ()
) -> None:
    """A table of texts whose first column names its rows; on a narrow screen each row becomes a list.

    The first `text` columns are words, the others figures. A line feed in a cell begins its small print. Rows in
    `marked` are tinted; what that means must stand in them too.
    """
    head = "".join(f'<th scope="col"{_kind(i, text)}>{html.escape(name)}</th>' for i, name in enumerate(headings))
    body = "".join(
        f'<tr{" class=differs" if number in marked else ""}><th scope="row">{_cell(row[0])}</th>'
        + "".join(
            f'<td data-label="{html.escape(name)}"{_kind(i, text)}><span>{_cell(cell)}</span></td>'
            for i, (name, cell) in enumerate(zip(headings[1:], row[1:], strict=True), start=1)
        )
        + "</tr>"
        for number, row in enumerate(rows)
    )
    parts = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    st.html(f'<table class="planner" aria-label="{html.escape(caption)}">{parts}</table>')


def _kind(index: int, text: int) -> str:
    return ' class="text"' if index < text else ""


def _cell(value: str) -> str:
    main, _, small = ("".join(c if c.isprintable() or c == "\n" else "?" for c in value)).partition("\n")
    return html.escape(main) + (f"<small>{html.escape(small)}</small>" if small else "")


def figure(drawn: go.Figure, key: str, *, reads: bool = False) -> Any:
    """A figure with its sentence for those who cannot see it; with `reads`, the points that are selected."""
    return st.plotly_chart(
        drawn,
        key=key,
        alt=drawn.layout.meta["alt"],
        on_select="rerun" if reads else "ignore",
        selection_mode="points",
        config={
            "displaylogo": False,
            "modeBarButtonsToRemove": ["select2d", "lasso2d"],
            "toImageButtonOptions": {"format": "svg"},
        },
    )


def downloads(frame: pd.DataFrame, name: str, drawn: Mapping[str, go.Figure], workbook: Any = None) -> None:
    """Buttons for a table as CSV and for figures as pages; the figure's own camera button gives an SVG.

    `workbook` is a plan, or contracts, of which a live workbook is offered too.
    """
    with st.container(horizontal=True):
        st.download_button(
            "Table as CSV",
            lambda: csv(frame),
            f"{name}.csv",
            "text/csv",
            on_click="ignore",
            icon=":material/download:",
        )
        if workbook is not None:
            st.download_button(
                "Live workbook",
                lambda: xlsx(workbook),
                f"{name}.xlsx",
                "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
                on_click="ignore",
                icon=":material/download:",
            )
        for word, each in drawn.items():
            st.download_button(
                f"{each.layout.meta['title']} as HTML",
                lambda each=each: to_html(each),
                f"{name}-{word}.html",
                "text/html",
                key=f"html {word}",
                on_click="ignore",
                icon=":material/download:",
            )


def csv(frame: pd.DataFrame) -> str:
    """A frame as CSV; a text that a spreadsheet would calculate is made a text for good."""
    return str(frame.map(as_text_cell).to_csv(index=False, lineterminator="\n"))


def xlsx(what: Any) -> bytes:
    """The live workbook of a plan or of contracts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "planner.xlsx")
        write_workbook(what, path)
        return path.read_bytes()


def how(working: Working, binary: bool) -> None:
    """How a figure came about: the formula, its letters, the numbers in it and its source, or the addends."""
    unit = {"1": "", "token": " tokens"}.get(working.unit, f" {working.unit}")
    whole, never = isinstance(working.value, int), working.value != working.value
    exact = show_exact(working.value) if whole else f"{working.value:,.2f}"
    st.markdown(f"**{'n/a' if never else exact + unit}**{', exact' if whole else ''}")
    if working.explanation is not None:
        explanation(working.explanation)
    elif working.addends:
        rows = [
            [what.replace("_", " "), amount(value, working.unit, binary), show_exact(value)]
            for what, value in working.addends.items()
        ]
        rows.append(["sum", amount(working.value, working.unit, binary), exact])
        table("addends", ["part", "amount", "exact"], rows)
        st.caption(
            "The sum of what the contract's bill declares: every tensor, product and cache entry, times its layers."
        )
    else:
        solved = "Never reached" if never else "Solved"
        st.caption(f"{solved} on the cache's true curve, which has a bend where a window is full.")


def explanation(found: Explanation, *, heading: bool = True) -> None:
    """A formula with its numbers, letters and source; without `heading` where it stands above already."""
    formula = found.formula
    if heading:
        st.latex(f"{formula.letter} = {formula.latex}")
    st.latex(f"= {found.line} = {result(found.value)}")
    letters = [
        f"| ${q.letter}$ | {q.meaning} | {found.values[q.word]:,}{'' if q.unit == '1' else f' {q.unit}'} |"
        for q in formula.quantities
    ]
    st.markdown("\n".join(["| letter | meaning | value |", "|---|---|--:|", *letters]))
    held = f" Holds for: {formula.validity}." if formula.validity else ""
    st.caption(plain(f"Source: {found.source}.{held}"))


def result(value: Any) -> str:
    """The LaTeX of a result: whole numbers in full, others to two places or six digits."""
    if isinstance(value, int):
        return str(latex_number(value))
    return (f"{value:,.2f}" if abs(value) >= 100 else f"{value:.6g}").replace(",", "{,}")


def amount(value: Any, unit: str, binary: bool) -> str:
    """A figure with the prefix that suits it; counts below ten million in full."""
    if value is None or value is pd.NA or value != value:
        return "n/a"
    if unit == "token" or (unit == "1" and value < 10**7):
        return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:,.4g}"
    return show(value, unit, binary=binary and unit == "B")
