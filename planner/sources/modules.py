"""Names of a checkpoint's modules -> roles of a bill, and which roles a list of names covers.

Lists of modules come as full names for each layer, as globs (``*.self_attn*``) and as regular expressions
(``re:.*mlp.gate$``). They are read for the words in them, never run as patterns: a foreign regular expression can
take for ever.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

# The first that a name contains decides; a word is a whole segment of the name. None: no part of the body, or a vector.
_ROLES = [
    (
        None,
        r"visual|vision\w*|image\w*|audio\w*|patch_\w+|\w*projector|mtp|nextn|eh_proj|draft\w*|\w*conv1d|shared_expert_gate",
    ),
    ("lm_head", r"lm_head|output_layer|embed_out|head"),
    ("embedding", r"embed\w*|wte|wpe|word_embeddings"),
    ("norms", r"\w*norm\w*|ln_\w+"),
    ("experts_shared", r"shared?_experts?|shared_mlp"),
    ("router", r"router|gate"),
    ("experts_routed", r"experts|switch_mlp|moe"),
    ("ssm_conv_mixer", r"linear_attn|mamba\d?|mixer|ssm|short_conv"),
    ("attention", r"\w*attn|\w*attention|[qkvo]_proj|qkv\w*|kv_[ab]\w*|q_[ab]\w*|indexer"),
    ("ffn_dense", r"mlp|ffn|feed_forward|(gate|up|down|gate_up)_proj|fc[12]|w[123]"),
]
_ROLE = [(role, re.compile(rf"(?:^|[.*])(?:{words})(?=$|[.*])", re.ASCII)) for role, words in _ROLES]

# A role is whole when these parts of its modules are: each set is one way of splitting it.
_PARTS = [
    {"q_proj", "k_proj", "v_proj", "o_proj"},
    {"qkv_proj", "o_proj"},
    {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"},
    {"in_proj_qkvz", "in_proj_ba", "out_proj"},
    {"gate_proj", "up_proj", "down_proj"},
    {"gate_up_proj", "down_proj"},
    {"w1", "w2", "w3"},
    {"fc1", "fc2"},
]
_PART = re.compile(r"(?:^|[.*])(indexer(?=$|[.*])|(?:\w+_proj\w*|w[123]|fc[12])(?=\.?\*?$))", re.ASCII)
_DEEP = re.compile(r"(?:^|[.*])(?:mlp|ffn|feed_forward)(?:\*|\.?$)", re.ASCII)  # whatever lies in the block
_FEED_FORWARDS = ("ffn_dense", "experts_routed", "experts_shared")
_LAYER = re.compile(r"(?:layers|blocks|h|block)\.(\d{1,6})(?=$|[.*])", re.ASCII)
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)", re.ASCII)
_EVERYWHERE = -1
_UNKNOWN = "unknown"

_LONGEST = 200
_ALTERNATIVES = re.compile(r"\((?:\?:)?([^()]*\|[^()]*)\)")
_MOST_ALTERNATIVES = 16
_MOST_SPELLED_OUT = 4_096  # alternatives of a whole list, of which published ones have a hundred: the bound of time
_NOISE = [(r"\\d\+|\[0-9\]\+|\(\?:|\(|\)|\^|\$", ""), (r"\\\.", "."), (r"\.\*", "*"), (r"\.{2,}", ".")]


def role_of(name: Any) -> str | None:
    """The role of a module's name, glob or expression; None for one that is no part of the decoder or not recognised.

    >>> role_of("model.layers.3.mlp.gate"), role_of("re:.*self_attn.*"), role_of("model.layers.0.mlp.gate_proj")
    ('router', 'attention', 'ffn_dense')
    """
    role = _read(_plain(name))[0] if isinstance(name, str) else None
    return None if role == _UNKNOWN else role


class Covered(NamedTuple):
    """What a list of modules is in roles: those that it covers whole, those that it covers in part, names unknown.

    `partly` has one of the names for each role.
    """

    whole: set[str]
    partly: dict[str, str]
    unknown: list[str]


def covered(names: Iterable[str], layers: Mapping[str, int]) -> Covered:
    """Which roles a list of modules covers.

    `layers` has the roles in question and how many layers have each; a name without a layer's number stands for all.

    >>> covered(["lm_head", "*.self_attn*", "model.layers.0.mlp.down_proj"], {"attention": 32, "ffn_dense": 32})
    Covered(whole={'attention'}, partly={'ffn_dense': 'model.layers.0.mlp.down_proj'}, unknown=[])
    """
    found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    examples: dict[str, str] = {}
    unknown: dict[str, None] = {}
    left = _MOST_SPELLED_OUT
    for name in dict.fromkeys(names):
        forms = _spelled_out(name) if left > 0 else [name]
        left -= len(forms) - 1
        for plain in map(_plain, forms):
            role, part = _read(_NUMBER.sub("0", plain))
            if role == _UNKNOWN:
                unknown[name] = None
                continue
            if role and role in layers:
                examples.setdefault(role, name)
            deep = role == "ffn_dense" and _DEEP.search(plain)
            layer = _LAYER.search(plain)
            for inner in _FEED_FORWARDS if deep else [role] if role else []:
                found[inner][part].add(int(layer[1]) if layer else _EVERYWHERE)
    whole = set()
    for role, n_layers in layers.items():
        parts = {part for part, at in found[role].items() if _covers(at, n_layers)}
        if "" in parts or any(split <= parts for split in _PARTS):
            whole.add(role)
    partly = {role: example for role, example in examples.items() if role not in whole}
    return Covered(whole, partly, list(unknown))


def _covers(at: set[int], n_layers: int) -> bool:
    return _EVERYWHERE in at or len(at) >= n_layers > 0


def _spelled_out(name: str) -> list[str]:
    """An expression without its alternatives: one for each.

    >>> _spelled_out(r"re:.*mlp.(gate|up)_proj")
    ['re:.*mlp.gate_proj', 're:.*mlp.up_proj']
    """
    names = [name[:_LONGEST]]
    while match := _ALTERNATIVES.search(names[0]):
        choices = match[1].split("|")
        names = [n.replace(match[0], choice, 1) for n in names for choice in choices][:_MOST_ALTERNATIVES]
    return names


def _plain(name: str) -> str:
    """A name without what makes it an expression, in lower case."""
    plain = name[:_LONGEST].removeprefix("re:").removesuffix(".weight").lower()
    for noise, clean in _NOISE:
        plain = re.sub(noise, clean, plain)
    return plain


@lru_cache(maxsize=1_000)
def _read(plain: str) -> tuple[str | None, str]:
    """The role, or that no rule knows the name, and the part of it; a list names thousands that differ in a number."""
    role = next((role for role, pattern in _ROLE if pattern.search(plain)), _UNKNOWN)
    part = _PART.search(plain)
    return role, part[1] if part else ""
