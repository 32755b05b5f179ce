"""A GGUF file's metadata -> the keys of a config.json, so that one reader makes the contract of both."""

from __future__ import annotations

from typing import Any

from planner.errors import InputError, UnknownName, suggest
from planner.sources.checkpoint import Checkpoint
from planner.sources.gguf_architectures import ARCHITECTURES
from planner.sources.gguf_metadata import Metadata, rope_scaling
from planner.spec import shown
from planner.storage import weight_format


def gguf_config(checkpoint: Checkpoint) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The config.json keys that a GGUF checkpoint amounts to, and notes on what such a file does not say.

    None stands, as null does there, for a key that the family has and this model does not use.

    Raises `InputError` for an architecture that is not read, naming it, and for metadata that is missing or of the
    wrong type.
    """
    name = checkpoint.metadata.get("general.architecture")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        near = suggest(name, ARCHITECTURES) if isinstance(name, str) else ""
        rule = f"general.architecture = {shown(name)} is none of {', '.join(ARCHITECTURES)}{near}"
        raise InputError(f"{checkpoint.place}: {rule}; describe the decoder in TOML instead")
    keys = Metadata(checkpoint, name)
    config = {**_common(keys), **ARCHITECTURES[name](keys)}
    return config, tuple(keys.notes)


def _common(keys: Metadata) -> dict[str, Any]:
    """What every architecture states."""
    embedding = keys.shapes.get("token_embd.weight")
    if embedding is None or len(embedding) != 2:
        raise keys.refuse("token_embd.weight, whose rows are the vocabulary, is missing or no matrix")
    heads = keys.whole("attention.head_count")
    return {
        "vocab_size": embedding[0],
        "hidden_size": keys.whole("embedding_length"),
        "num_hidden_layers": _n_layers(keys),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.whole("attention.head_count_kv", heads),
        "max_position_embeddings": keys.whole("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10_000.0),
        "tie_word_embeddings": "output.weight" not in keys.shapes,
        "head_dim": keys.whole("attention.key_length", None),
        "intermediate_size": keys.whole("feed_forward_length", None),
        "rope_scaling": rope_scaling(keys),
    }


def _n_layers(keys: Metadata) -> int:
    """The layers of the decoder: llama.cpp counts modules for multi-token prediction among its blocks."""
    blocks, drafting = keys.whole("block_count"), keys.whole("nextn_predict_layers", 0)
    if drafting >= blocks:
        raise keys.refuse(f"nextn_predict_layers = {drafting:,} leaves no layer of block_count = {blocks:,}")
    return int(blocks - drafting)


def gguf_weights(checkpoint: Checkpoint) -> tuple[str, str]:
    """The weight format that a GGUF file names, or else that of most of its bytes; and a note on what it stores."""
    by_format = checkpoint.bytes_by_format()
    number = checkpoint.metadata.get("general.file_type")
    stated = FILE_TYPES[number] if type(number) is int and 0 <= number < len(FILE_TYPES) else None
    for name in filter(None, (stated, *by_format)):
        try:
            weight_format(name)
        except UnknownName:
            continue
        stored = ", ".join(f"{size:,} B of {fmt}" for fmt, size in by_format.items())
        return name, f"{checkpoint.place}: stores {stored}; weights are counted as {name}"
    return "bf16", f"{checkpoint.place}: stores no format that weights can be counted in; they are counted as bf16"


FILE_TYPES = """
    fp32 fp16 q4_0 q4_1 - - - q8_0 q5_0 q5_1 q2_k q3_k_s q3_k_m q3_k_l q4_k_s q4_k_m q5_k_s q5_k_m q6_k
    iq2_xxs iq2_xs q2_k_s iq3_xs iq3_xxs iq1_s iq4_nl iq3_s iq3_m iq2_s iq2_m iq4_xs iq1_m bf16 - - - tq1_0 tq2_0 mxfp4
""".split()
"""The weight formats in the order of general.file_type (ggml-org/llama.cpp, include/llama.h, llama_ftype)."""
