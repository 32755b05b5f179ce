"""Tensor names of GGUF files -> names that a contract knows, so that both kinds of checkpoint are held to it alike.

The names are llama.cpp's (ggml-org/llama.cpp, gguf-py/gguf/constants.py, TENSOR_NAMES). Most stand for one tensor of
the bill and get its name; norms and fused projections get the name that safetensors checkpoints have for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from planner.sources.packing import Weight

_ENDS = {
    "token_embd": "embedding.tokens",
    "output": "output",
    "output_norm": "final_norm",
}

_LAYER = {
    "attn_q": "mixer.q",
    "attn_k": "mixer.k",
    "attn_v": "mixer.v",
    "attn_output": "mixer.o",
    "attn_q_norm": "mixer.q_norm",
    "attn_k_norm": "mixer.k_norm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_a": "mixer.q_a",
    "attn_q_b": "mixer.q_b",
    "attn_q_a_norm": "mixer.q_a_norm",
    "attn_kv_a_mqa": "mixer.kv_a",
    "attn_kv_a_norm": "mixer.kv_a_norm",
    "attn_kv_b": "mixer.kv_b",
    "ffn_gate": "feed_forward.gate",
    "ffn_up": "feed_forward.up",
    "ffn_down": "feed_forward.down",
    "ffn_gate_inp": "feed_forward.router",
    "ffn_gate_inp_shexp": "feed_forward.shared_gate",
    "ffn_gate_exps": "feed_forward.experts.gate",
    "ffn_up_exps": "feed_forward.experts.up",
    "ffn_down_exps": "feed_forward.experts.down",
    "ffn_gate_shexp": "feed_forward.shared.gate",
    "ffn_up_shexp": "feed_forward.shared.up",
    "ffn_down_shexp": "feed_forward.shared.down",
    # the norms of a layer, under names whose order is that in which the data pass them
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_self_attn_layernorm",
    "ffn_norm": "ffn_norm",
    "post_ffw_norm": "post_feedforward_layernorm",
}

_WHOLE = {
    "attn_sinks.weight": "mixer.sinks",
    "exp_probs_b.bias": "feed_forward.router.correction",
}
"""Those that have no ``.weight`` or ``.bias`` in the bill."""

_IN_LAYER = re.compile(r"blk\.(\d{1,6})\.((\w+)\.(weight|bias))", re.ASCII)
_EXPERT = re.compile(r"blk\.(\d{1,6})\.ffn_(gate|up|down)\.(\d{1,6})\.weight", re.ASCII)
_LATENT_HALF = re.compile(r"(blk\.\d{1,6}\.)attn_([kv])_b\.weight", re.ASCII)


def contract_names(weights: Iterable[Weight], gated_up: bool = False) -> Iterator[tuple[str, Weight]]:
    """Each weight of a GGUF file with the name that a contract knows, or with its own where it knows none.

    `gated_up`: ``ffn_up`` holds gate and up in one, as Phi-3's does. The up-projection of the latent, which newer files
    store as a part for the keys, [heads, latent, width], and one for the values, [heads, width, latent], is one weight.
    """
    halves: dict[str, dict[str, Weight]] = {}
    for weight in weights:
        half = _LATENT_HALF.fullmatch(weight.name)
        if half is None:
            yield _name(weight.name, gated_up), weight
            continue
        pair = halves.setdefault(half[1], {})
        pair[half[2]] = weight
        if len(pair) == 2:
            yield _name(f"{half[1]}attn_kv_b.weight", gated_up), _joined(pair["k"], pair["v"])
    for pair in halves.values():
        if len(pair) == 1:
            yield from ((weight.name, weight) for weight in pair.values())


def _name(name: str, gated_up: bool) -> str:
    stem, _, suffix = name.partition(".")
    if stem in _ENDS:
        return f"{_ENDS[stem]}.{suffix}"
    if expert := _EXPERT.fullmatch(name):
        return f"layers.{expert[1]}.mlp.experts.{expert[3]}.{expert[2]}_proj.weight"
    inside = _IN_LAYER.fullmatch(name)
    if inside is None:
        return name
    number, whole, stem, suffix = inside.groups()
    if gated_up and stem == "ffn_up":
        return f"layers.{number}.mlp.gate_up_proj.{suffix}"
    known = _WHOLE.get(whole) or (f"{_LAYER[stem]}.{suffix}" if stem in _LAYER else None)
    return name if known is None else f"layers.{number}.{known}"


def _joined(keys: Weight, values: Weight) -> Weight:
    """Both parts as one matrix [heads (key width + value width), latent]; parts that do not fit keep what shows it."""
    shape = keys.shape
    if len(shape) == len(values.shape) == 3 and shape[:2] == (values.shape[0], values.shape[2]):
        shape = shape[0] * (shape[2] + values.shape[1]), shape[1]
    stored = keys.stored_bytes + values.stored_bytes
    return keys._replace(shape=shape, stored_bytes=stored, tensors=(keys.name, values.name))
