"""The metadata of a GGUF file, each key read as what it must be, and the names of its tensors."""

from __future__ import annotations

import math
from typing import Any

from planner.errors import InputError
from planner.sources.checkpoint import Checkpoint
from planner.spec import shown

_REQUIRED = object()


class Metadata:
    """The metadata of one architecture, each key read as what it must be, and the names of the tensors."""

    def __init__(self, checkpoint: Checkpoint, architecture: str) -> None:
        self.metadata = checkpoint.metadata
        self.architecture = architecture
        self.place = checkpoint.place
        self.shapes = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
        self.notes: list[str] = []

    def whole(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self._value(key, default)
        if value is not default and (type(value) is not int or value < 0):
            raise self.refuse(f"{self.architecture}.{key} = {shown(value)} is not a whole number of at least 0")
        return value

    def number(self, key: str, default: Any = _REQUIRED) -> Any:
        value = self._value(key, default)
        if value is default:
            return value
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.refuse(f"{self.architecture}.{key} = {shown(value)} is not a finite number")
        return float(f"{value:.7g}")  # what was rounded to a float32: 1e-05, not 9.999999747378752e-06

    def flag(self, key: str) -> bool:
        """Whether a key is there and true."""
        return self.metadata.get(f"{self.architecture}.{key}") is True

    def has(self, tensor: str) -> bool:
        """Whether a layer has a tensor that is called so."""
        return any(name.startswith("blk.") and name.endswith(f".{tensor}") for name in self.shapes)

    def width_over_heads(self) -> int:
        width, heads = self.whole("embedding_length"), self.whole("attention.head_count")
        if not width or not heads or width % heads:
            raise self.refuse(f"attention.head_count = {heads:,} does not divide embedding_length = {width:,}")
        return int(width // heads)

    def refuse(self, rule: str) -> InputError:
        return InputError(f"{self.place}: {rule}")

    def _value(self, key: str, default: Any) -> Any:
        value = self.metadata.get(f"{self.architecture}.{key}")
        if value is None:
            if default is _REQUIRED:
                raise self.refuse(f"the metadata key {self.architecture}.{key} is missing")
            return default
        if isinstance(value, list) and value:
            if value.count(value[0]) != len(value):
                raise self.refuse(
                    f"{self.architecture}.{key} = {shown(value)} differs between layers, which is not read"
                )
            return value[0]
        return value


def rope_scaling(keys: Metadata) -> dict[str, Any] | None:
    """The rule of RoPE as a config.json has it, or None; a rule that only its factors tell is noted."""
    kind = keys.metadata.get(f"{keys.architecture}.rope.scaling.type")
    if kind in ("linear", "yarn"):
        table = {
            "rope_type": kind,
            "factor": keys.number("rope.scaling.factor"),
            "original_max_position_embeddings": keys.whole("rope.scaling.original_context_length", None),
            "beta_fast": keys.number("rope.scaling.yarn_beta_fast", None),
            "beta_slow": keys.number("rope.scaling.yarn_beta_slow", None),
        }
        return {key: value for key, value in table.items() if value is not None}
    if {"rope_freqs.weight", "rope_factors_long.weight"} & keys.shapes.keys():
        keys.notes.append("RoPE is scaled by factors that the file stores as a tensor: their rule is not known")
    return None
