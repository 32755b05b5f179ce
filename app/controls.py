"""The widgets that decide what the pages show: which decoders, which load, in which units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import streamlit as st

from planner.app import decoders, state
from planner.app.state import CHOICES, DEFAULTS, MOST_DECODERS
from planner.editing import flatten
from planner.errors import InputError, PlannerError
from planner.sources import presets

UPLOAD_MB = 1

FIELDS = {
    "count": "Layers",
    "d_model": "Width",
    "n_heads": "Query heads",
    "n_kv_heads": "KV heads",
    "head_dim": "Head width",
    "kv_lora_rank": "Latent width",
    "nope_head_dim": "Unrotated width",
    "rope_head_dim": "Rotary width",
    "v_head_dim": "Value width",
    "window": "Window",
    "d_ff": "FFN width",
    "n_experts": "Experts",
    "top_k": "Experts a token",
    "vocab_size": "Vocabulary",
}
"""Field of the contract -> its name on the page."""


def pages(names: Iterable[str]) -> None:
    """Choose the page."""
    st.segmented_control(
        "Page", list(names), key="page", label_visibility="collapsed", required=True, persist_state="session"
    )


def sidebar() -> None:
    """Decoders, load and units, the same on every page."""
    with st.sidebar:
        _choose_decoders()
        _add_decoder()
        st.subheader("Load", divider="gray")
        for pair in ({"context": "Context", "batch": "Batch"}, {"from": "Chart from", "to": "Chart to"}):
            for column, (word, label) in zip(st.columns(2), pair.items(), strict=True):
                with column:
                    _text(word, label)
        _choice("weights", "Weights stored as")
        _choice("kv", "Cache stored as")
        st.caption("128k = 128,000 and 128Ki = 131,072.")
        st.subheader("Show", divider="gray")
        for word, label, texts in (
            ("scale", "Axes", {"log": "logarithmic", "linear": "linear"}),
            ("bytes", "Bytes in", {"GiB": "GiB (1,024s)", "GB": "GB (1,000s)"}),
            ("derive", "Stated parameters", {"no": "as stated", "yes": "count them"}),
        ):
            st.segmented_control(
                label, CHOICES[word], key=word, format_func=texts.__getitem__, required=True, persist_state="session"
            )


def _choose_decoders() -> None:
    tokens = st.session_state["decoders"]
    names = decoders.labels(tokens)
    st.session_state["chosen"] = tokens

    def choose() -> None:
        st.session_state["decoders"] = list(st.session_state["chosen"]) or tokens
        for word in ("edit", "base"):
            st.session_state[word] = min(st.session_state[word], len(st.session_state["decoders"]) - 1)

    st.multiselect(
        f"Decoders (at most {MOST_DECODERS})",
        [*tokens, *(name for name in presets.names() if name not in tokens)],
        key="chosen",
        format_func=lambda token: names.get(token, token),
        max_selections=MOST_DECODERS,
        on_change=choose,
    )
    if len(tokens) > 1:
        st.session_state["base"] = min(st.session_state["base"], len(tokens) - 1)
        st.selectbox(
            "Baseline of the ratios",
            range(len(tokens)),
            key="base",
            format_func=list(names.values()).__getitem__,
            persist_state="session",
        )


def which_decoder(label: str) -> str:
    """Choose the decoder that the page is about, or a preset that is then added to them; its token."""
    tokens = st.session_state["decoders"]
    names = dict(enumerate(decoders.labels(tokens).values()))
    st.session_state["edit"] = min(st.session_state["edit"], len(tokens) - 1)

    def choose() -> None:
        chosen = st.session_state["edit"]
        if chosen not in names:
            st.session_state["edit"] = 0
            state.attempt(state.add_decoder, chosen)

    st.selectbox(
        label,
        [*names, *(name for name in presets.names() if name not in tokens)],
        key="edit",
        format_func=lambda choice: names.get(choice, choice),
        on_change=choose,
        persist_state="session",
    )
    return str(tokens[st.session_state["edit"]])


def _add_decoder() -> None:
    with st.expander("Add from config.json or TOML", icon=":material/add:"):
        pasted = st.text_area("Paste it here", key="pasted", height=120, max_chars=400_000)
        uploaded = st.file_uploader("or upload it", type=["json", "toml"], max_upload_size=UPLOAD_MB, key="uploaded")
        if st.button("Add it", key="add") and (pasted or uploaded):
            try:
                text, source = (_decoded(uploaded), uploaded.name[-60:]) if uploaded else (pasted, "pasted text")
                token, notes = decoders.read(text, source)
                state.add_decoder(token)
            except PlannerError as error:
                state.problem_box(state.plain(str(error)))
                return
            st.session_state["notes"] = notes
            st.rerun()
        for note in st.session_state.get("notes", ()):
            st.caption(state.plain(note))


def _decoded(uploaded: Any) -> str:
    try:
        return str(uploaded.getvalue().decode())
    except UnicodeDecodeError:
        raise InputError(f"{uploaded.name[-60:]}: not text in UTF-8") from None


def _text(word: str, label: str) -> None:
    mark = "" if st.session_state[word] != DEFAULTS[word] or word in ("from", "to") else " · assumed"
    st.text_input(label + mark, key=word, max_chars=30, persist_state="session")


def _choice(word: str, label: str) -> None:
    mark = "" if st.session_state[word] != DEFAULTS[word] else " · assumed"
    st.selectbox(label + mark, CHOICES[word], key=word, persist_state="session")


def editor() -> str:
    """Choose a decoder and edit its fields; its token."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        token = which_decoder("Edit")
        st.button("Edit a copy", icon=":material/content_copy:", on_click=state.copy_decoder, args=(token,))
    values = dict(flatten(decoders.best(token)))
    pending = decoders.split(token)[1]
    left_out = []
    with st.container(horizontal=True, gap="small"):
        for field, label in FIELDS.items():
            groups = [group for group in _groups(values, field) if field == "window" or group[2] is not None]
            if len(groups) > 3:
                left_out.append(label)
                continue
            for where, places, value in groups:
                _number(token, f"{label}{where}", places, pending.get(places[0], value))
    if left_out:
        st.caption(f"{', '.join(left_out)}: different in many kinds of layer; the Contract page has every one of them.")
    return token


def _groups(values: dict[str, Any], field: str) -> Iterator[tuple[str, list[str], Any]]:
    """(which layers, paths, value) for each value that a field has in the layers, or in the decoder itself."""
    found: dict[Any, list[str]] = {}
    for path, value in values.items():
        if path.rpartition(".")[2] == field and (path == field or path.startswith("layers[")) and ".extras" not in path:
            found.setdefault(value, []).append(path)
    for value, places in found.items():
        kind = places[0].partition(".")[0]
        label = values.get(f"{kind}.label") or kind
        yield (f" ({state.plain(str(label))})" if len(found) > 1 else ""), places, value


def _number(token: str, label: str, places: list[str], value: Any) -> None:
    key = f"field {places[0]}"
    wanted = value if isinstance(value, int) else None
    if st.session_state.get(key, "unset") != wanted:
        st.session_state[key] = wanted

    def change() -> None:
        edits = dict.fromkeys(places, st.session_state[key])
        state.replace_decoder(token, decoders.changed(token, edits))

    st.number_input(label, min_value=1, step=1, key=key, width=108, placeholder="none", on_change=change)
