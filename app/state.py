"""The state of a session and the link that reproduces it.

Everything that decides what a page shows is a text in the session, under the word that stands for it in the link. A
link is read once, when the session begins; from then on each page writes it anew, with what differs from the defaults.
What a link says is as untrusted as what is typed: it is checked before a widget gets it, and a sentence says what is
wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from planner.app import decoders, words
from planner.contract import Architecture
from planner.errors import InputError, PlannerError, suggest
from planner.formula import formulas
from planner.scenarios import COMPARISON_SET
from planner.spec import LARGEST, shown
from planner.storage import formats
from planner.summary import Load
from planner.units import parse_count

MOST_DECODERS = 8
LONGEST_TEXT = 160  # characters of a text of the link
OWN = "as the contract says"

DEFAULTS = {
    "page": "Compare",
    "context": "128k",
    "batch": "1",
    "from": "1k",
    "to": "1M",
    "weights": OWN,
    "kv": OWN,
    "scale": "log",
    "bytes": "GiB",
    "derive": "no",
    "formula": "cache_equals_weights_context",
    **words.DEFAULTS,
}
"""Word of the link -> the text that holds where the link does not say."""

CHOICES = {
    "weights": (OWN, *(name for name, each in formats().items() if each.scheme)),
    "kv": (OWN, *(name for name, each in formats().items() if each.cache)),
    "scale": ("log", "linear"),
    "bytes": ("GiB", "GB"),
    "derive": ("no", "yes"),
    "formula": tuple(formulas),
    **words.CHOICES,
}
"""Words that have one of a few texts."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """One of the decoders on the page: its token, the name it is shown under, and its contract under that name."""

    token: str
    label: str
    architecture: Architecture


def begin(choices: Mapping[str, Sequence[str]]) -> None:
    """Fill a new session from its link, and say what in the link is wrong; `choices` has those of further words."""
    state, choices = st.session_state, {**CHOICES, **choices}
    if "decoders" not in state:
        state["decoders"], state["problems"] = [], []
        for token in st.query_params.get_all("m")[:MOST_DECODERS] or COMPARISON_SET:
            try:
                decoders.preset(decoders.split(token)[0])
                state["decoders"].append(token)
            except PlannerError as error:
                state["problems"].append(f"The link names a decoder that there is not: {error}.")
        state["decoders"] = list(dict.fromkeys(state["decoders"])) or list(COMPARISON_SET)
        for word, default in DEFAULTS.items():
            text = st.query_params.get(word, default)
            if word in choices and text not in choices[word]:
                near = suggest(text[:LONGEST_TEXT], choices[word]) or "."
                state["problems"].append(f"The link says {word} = {shown(text)}, which is none of the choices{near}")
                text = default
            state.setdefault(word, text[:LONGEST_TEXT])
        for word in ("edit", "base"):
            state.setdefault(word, at_most(st.query_params.get(word, ""), len(state["decoders"]) - 1))
    for problem in state["problems"]:
        problem_box(plain(problem))


def at_most(text: str, last: int) -> int:
    """The position of a decoder in the list, 0 where a text is none."""
    return min(int(text), last) if text.isascii() and text.isdigit() and len(text) < 4 else 0


def write_link() -> None:
    """Write the state into the address of the page, and say what is too long for it."""
    state = st.session_state
    link: dict[str, Any] = {word: state[word] for word, default in DEFAULTS.items() if state[word] != default}
    link |= {word: str(state[word]) for word in ("edit", "base") if state[word]}
    short = [token for token in state["decoders"] if len(token) <= decoders.LONGEST_LINK]
    if state["decoders"] != list(COMPARISON_SET):
        link["m"] = short
    if len(short) < len(state["decoders"]):
        names = decoders.labels(state["decoders"])
        left = ", ".join(plain(names[token]) for token in state["decoders"] if token not in short)
        st.caption(f"Too long for the link, so download its TOML on the Contract page: {left}.")
    current = {word: st.query_params.get_all(word) for word in st.query_params}
    if current != {word: text if isinstance(text, list) else [text] for word, text in link.items()}:
        st.query_params.from_dict(link)


def shown_decoders() -> list[Decoder]:
    """The decoders of the session whose contracts hold; what is wrong with another is said where this is called."""
    found = []
    for token, label in decoders.labels(st.session_state["decoders"]).items():
        try:
            architecture = decoders.contract(token)
        except PlannerError as error:
            problem_box(f"{plain(label)} is left out until this is mended: {plain(str(error))}.")
            continue
        found.append(Decoder(token, label, _named(architecture, label, st.session_state["derive"] == "yes")))
    return found


def _named(architecture: Architecture, label: str, count: bool) -> Architecture:
    stated = None if count else architecture.stated_parameters
    return replace(architecture, name=label, stated_parameters=stated)


def attempt(draw: Callable[..., Any], *args: Any) -> Any:
    """Draw a part of a page; what is wrong with it is said in its place, and the other parts stand."""
    try:
        return draw(*args)
    except PlannerError as error:
        problem_box(plain(str(error)))
        return None


def replace_decoder(old: str, new: str) -> None:
    """Put a decoder in another's place."""
    tokens = [new if token == old else token for token in st.session_state["decoders"]]
    st.session_state["decoders"] = list(dict.fromkeys(tokens))


def add_decoder(token: str) -> None:
    """Put a decoder at the end and make it the one that is edited."""
    tokens = [known for known in st.session_state["decoders"] if known != token]
    if len(tokens) >= MOST_DECODERS:
        raise InputError(f"{MOST_DECODERS} decoders stand here already; take one out first")
    st.session_state["decoders"] = [*tokens, token]
    st.session_state["edit"] = len(tokens)


def copy_decoder(token: str) -> None:
    """Put a copy under a name of its own at the end, and edit that one; where there is no room, it is said."""
    name, taken = decoders.best(token).name, decoders.labels(st.session_state["decoders"]).values()
    free = next(f"{name} {number}" for number in itertools.count(2) if f"{name} {number}" not in taken)
    attempt(add_decoder, decoders.changed(token, {"name": free}))


def number(word: str) -> int | None:
    """A count of the load as it was typed; where it is none, its sentence is shown and the answer is None."""
    try:
        value = parse_count(st.session_state[word], word)
        if not 1 <= value <= LARGEST:
            raise InputError(f"{word}: {st.session_state[word]} is not between 1 and {LARGEST:,}")
    except PlannerError as error:
        problem_box(plain(str(error)))
        return None
    return value


def formats_asked() -> dict[str, str]:
    """The storage formats that the user chose over the contracts' own."""
    return {word: st.session_state[word] for word in ("weights", "kv") if st.session_state[word] != OWN}


def assumed() -> Mapping[str, str]:
    """What nobody said and is taken for granted."""
    load = Load()
    own = {word: text for word, text in DEFAULTS.items() if word in ("context", "batch", "weights", "kv")}
    defaults = {word: text for word, text in own.items() if st.session_state[word] == text}
    return {**defaults, "attention": load.attention, "logits": load.logits, "MLA": load.mla}


def plain(text: str, longest: int = 400) -> str:
    """Any text as Markdown that shows exactly this text.

    >>> plain("[a](http://b) <script> *c*")
    '\\\\[a\\\\]\\\\(http\\\\:\\\\/\\\\/b\\\\) \\\\<script\\\\> \\\\*c\\\\*'
    """
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    shown = "".join(c if c.isprintable() else " " for c in text)
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#+!|~$:/^" else c for c in shown)


def problem_box(sentence: str) -> None:
    """A sentence about what is wrong, in its place."""
    st.error(sentence, icon=":material/error:")
