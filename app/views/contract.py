"""One decoder's whole contract: every field, what differs from its preset, its TOML, and the checklist run on it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from planner.app import controls, decoders, show, state
from planner.editing import diff, edit, flatten
from planner.equations import contract_document
from planner.errors import PlannerError
from planner.loading import from_table, parse_toml, to_toml
from planner.witness.report import Report
from planner.witness.verify import verify

MARKS = {True: "pass", False: "FAIL", None: "does not apply"}


def draw() -> None:
    """Draw the page."""
    st.title("Contract")
    token = controls.which_decoder("Decoder")
    if any(each.token == token for each in state.shown_decoders()):
        architecture = decoders.contract(token)
        _differences(token)
        _downloads(architecture)
        fields, toml, checks = st.tabs(["Fields", "TOML", "Verify"])
        with fields:
            _fields(token)
        with toml:
            _toml(token, to_toml(architecture))
        with checks:
            _verify(token)
    elif st.button("Take the edits back", icon=":material/undo:"):
        name, _ = decoders.split(token)
        state.replace_decoder(token, name)
        st.rerun()


def _differences(token: str) -> None:
    name, _ = decoders.split(token)
    found = diff(decoders.preset(name), decoders.contract(token))
    if not found:
        st.caption(f"The same as the preset {state.plain(name)}.")
        return
    st.subheader(f"Differences from the preset {state.plain(name)}")
    rows = [[path, _text(before), _text(after)] for path, (before, after) in found.items()]
    show.table("differences", ["field", "preset", "here"], rows, text=3, marked=range(len(rows)))


def _fields(token: str) -> None:
    name, _ = decoders.split(token)
    here, there = dict(flatten(decoders.contract(token))), dict(flatten(decoders.preset(name)))
    fields = list(here)
    before = [_text(there[path]) if path in there else "absent" for path in fields]
    values = [_text(here[path]) for path in fields]
    names = [path if a == b else f"◆ {path}" for path, a, b in zip(fields, values, before, strict=True)]
    frame = pd.DataFrame({"field": names, "value": values, "preset": before})
    key = f"fields of {token}"

    def change() -> None:
        rows = st.session_state[key]["edited_rows"]
        edits = {fields[int(row)]: _read(cells["value"]) for row, cells in rows.items() if "value" in cells}
        try:
            edit(decoders.contract(token), edits)
        except PlannerError as error:
            st.session_state["refused"] = str(error)
            return
        state.replace_decoder(token, decoders.changed(token, edits))

    st.caption("A field marked ◆ differs from the preset. A value is edited in its cell; none leaves a field out.")
    refused = st.session_state.pop("refused", None)
    if refused is not None:
        state.problem_box(state.plain(refused))
    st.data_editor(
        frame,
        key=key,
        on_change=change,
        disabled=["field", "preset"],
        hide_index=True,
        height="content",
        column_config={"value": st.column_config.TextColumn(max_chars=2000)},
        alt="Every field of the contract with its value here and in the preset; the values can be edited",
    )


def _read(text: str | None) -> Any:
    """A cell as `edit` reads it; an empty one leaves the field out."""
    return None if text is None or not text.strip() else text.strip()


def _text(value: Any) -> str:
    """A field's value as it is typed in."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(_text, value)) if isinstance(value, tuple) else str(value)


def _toml(token: str, text: str) -> None:
    key = f"toml of {token}"
    st.session_state.setdefault(key, text)
    st.text_area("The contract as TOML", key=key, height=520, max_chars=400_000)
    if not st.button("Take this contract", key="take"):
        return
    try:
        architecture = from_table(parse_toml(st.session_state[key], "TOML"), "TOML")
    except PlannerError as error:
        state.problem_box(state.plain(str(error)))
        return
    name, _ = decoders.split(token)
    state.replace_decoder(token, decoders.token_of(name, architecture))
    st.rerun()


def _downloads(architecture: Any) -> None:
    with st.container(horizontal=True):
        st.download_button(
            "Contract as TOML",
            to_toml(architecture),
            "contract.toml",
            "application/toml",
            on_click="ignore",
            icon=":material/download:",
        )
        st.download_button(
            "Contract as a page of Markdown",
            lambda: contract_document(architecture),
            "contract.md",
            "text/markdown",
            on_click="ignore",
            icon=":material/download:",
        )


def _verify(token: str) -> None:
    st.caption("Runs the contract in NumPy, made small, and holds every count to what was measured.")
    full = st.toggle("Keep the depth and read longer sequences", key="full")
    if st.button("Run the checklist", icon=":material/play_arrow:"):
        bar = st.progress(0.0, "starts")
        report = verify(
            decoders.contract(token), full, progress=lambda share, next_: bar.progress(share, next_.replace("_", " "))
        )
        bar.empty()
        st.session_state["report"] = (token, report)
    known, report = st.session_state.get("report", (None, None))
    if known == token and report is not None:
        _report(report)


def _report(report: Report) -> None:
    held = sum(check.passed is True for check in report.checks)
    if report.passed:
        st.success(f"All {held} checks that apply hold.", icon=":material/check:")
    else:
        state.problem_box(f"{len(report.failed)} of {len(report.checks)} checks fail.")
    frame = report.to_frame()
    rows = [
        [row["check"], MARKS[check.passed], row["measured"], row["expected"]]
        for check, (_, row) in zip(report.checks, frame.iterrows(), strict=True)
    ]
    failed = [number for number, check in enumerate(report.checks) if check.passed is False]
    show.table("checklist", ["check", "result", "measured", "expected"], rows, text=2, marked=failed)
    with st.expander("What was made smaller"):
        rows = [[path, _text(before), _text(after)] for path, (before, after) in report.scaled.items()]
        show.table("made smaller", ["field", "contract", "run"], rows)
