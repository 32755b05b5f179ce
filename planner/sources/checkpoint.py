"""A checkpoint seen through its headers: every tensor, parameters, stored bytes; and how a contract differs from it.

One safetensors file, a folder with an index, a set of shards, or a GGUF file, split or not. A 700 GB checkpoint costs a
few megabytes of reading.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.sources.gguf_header import read_gguf
from planner.sources.headers import (
    MAX_HEADER_BYTES,
    ByteRanges,
    StoredTensor,
    local_file,
    parse_json,
    place_of,
    uncollected,
)
from planner.sources.packing import Weight, unpack
from planner.sources.safetensors_header import read_safetensors
from planner.spec import shown

INDEX = "model.safetensors.index.json"
WEIGHTS = (".safetensors", ".gguf")
ENDINGS = (*WEIGHTS, ".safetensors.index.json")
MAX_CHECKPOINT_TENSORS = 1_000_000

_SHARD = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})(?P<ending>\.safetensors|\.gguf)", re.DOTALL | re.ASCII)
_HEADS = ("lm_head.weight", "output.weight", "embed_out.weight")
_EMBEDDINGS = ("embed_tokens.weight", "token_embd.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the headers of a checkpoint say.

    `tensors` are those of the files, `weights` what they amount to when unpacked, `metadata` a GGUF file's own.
    """

    place: str
    tensors: tuple[StoredTensor, ...]
    weights: tuple[Weight, ...]
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors; headers and alignment are not in it."""
        return sum(tensor.stored_bytes for tensor in self.tensors)

    @property
    def parameters(self) -> int:
        """Elements of all weights when unpacked; scales, zero points, orders of rows and buffers are none.

        Raises `InputError` if there are integers that no packing we know accounts for.
        """
        odd = next((weight for weight in self.weights if weight.counts == "unexplained"), None)
        if odd is not None:
            rule = (
                f"tensor {shown(odd.name)} of {odd.format} and shape {shown(odd.shape)} is in no packing that we know"
            )
            raise InputError(f"{self.place}: {rule}, so parameters cannot be counted")
        return sum(weight.elements for weight in self.weights if weight.counts == "parameter")

    def bytes_by_format(self) -> dict[str, int]:
        """Stored bytes by storage format, each matrix with its scales; the largest first."""
        total: Counter[str] = Counter()
        for weight in self.weights:
            total[weight.format] += weight.stored_bytes
        return dict(total.most_common())

    def tied(self) -> Checkpoint:
        """The same checkpoint without an output matrix that is as large as the embedding.

        Some checkpoints of models whose config ties the two store the matrix twice; a header cannot tell that from
        two matrices, so only who knows the config may ask for this.
        """
        embeddings = {weight.shape for weight in self.weights if weight.name.endswith(_EMBEDDINGS)}
        doubled = {w.name for w in self.weights if w.name.endswith(_HEADS) and w.shape in embeddings}
        kept = tuple(tensor for tensor in self.tensors if tensor.name not in doubled)
        return Checkpoint(self.place, kept, tuple(w for w in self.weights if w.name not in doubled), self.metadata)


@dataclass(frozen=True, slots=True)
class Differences:
    """Where the weights of a checkpoint are not those that a contract expects; names with shapes."""

    missing: tuple[tuple[str, tuple[int, ...]], ...]
    extra: tuple[tuple[str, tuple[int, ...]], ...]
    shape_differs: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]  # name, expected, found

    @property
    def agree(self) -> bool:
        """Whether there are none."""
        return not (self.missing or self.extra or self.shape_differs)


def reconcile(checkpoint: Checkpoint, expected: Iterable[tuple[str, tuple[int, ...]]]) -> Differences:
    """Compare a checkpoint's weights with the names and shapes that are expected, in the checkpoint's own names.

    Buffers that nobody expects are not extra. Where the header knows only how many elements a matrix has
    (bitsandbytes), that number is compared.
    """
    found = {weight.name: weight for weight in checkpoint.weights}
    wanted = dict(expected)
    return Differences(
        missing=tuple((name, shape) for name, shape in wanted.items() if name not in found),
        extra=tuple((w.name, w.shape) for w in found.values() if w.name not in wanted and w.counts != "buffer"),
        shape_differs=tuple(
            (name, shape, found[name].shape)
            for name, shape in wanted.items()
            if name in found and not _same_shape(found[name], shape)
        ),
    )


def _same_shape(weight: Weight, shape: tuple[int, ...]) -> bool:
    return weight.elements == prod(shape) if weight.format in ("nf4", "nf4-dq") else weight.shape == tuple(shape)


def is_checkpoint(path: Path) -> bool:
    """Whether a path is called like a checkpoint, or is a folder with weights in it: an index alone is none."""
    return bool(_checkpoint_files(path))


def is_gguf(path: Path) -> bool:
    """Whether it is a GGUF file, or a folder without other weights: such a checkpoint describes its own decoder."""
    files = _checkpoint_files(path)
    return bool(files) and all(name.endswith(".gguf") for name in files)


def _checkpoint_files(path: Path) -> list[str]:
    if not os.path.isdir(path):
        return [path.name] if path.name.endswith(ENDINGS) else []
    try:
        return [entry.name for entry in path.iterdir() if entry.name.endswith(WEIGHTS)]
    except OSError:
        return []


def read_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint at a path: a file, any one of its shards, or the folder that holds it.

    Raises `InputError` with file, value, rule and remedy for whatever is missing, cut off, contradictory or hostile.
    """
    path = Path(path)
    if os.path.isdir(path):
        path = _of_folder(path)
    if path.name.endswith(".safetensors.index.json"):
        return read_indexed(local_file(path), lambda names: (local_file(path.parent / name) for name in names))
    files = [local_file(path.parent / name) for name in _shard_names(path.name)]
    if path.suffix == ".safetensors":
        return read_shards(files)
    if path.suffix == ".gguf":
        return read_gguf_parts(files)
    raise InputError(f"{place_of(path)}: neither .safetensors, .gguf, an index of shards nor a folder of these")


@uncollected()
def read_indexed(index: ByteRanges, open_shards: Callable[[Iterable[str]], Iterable[ByteRanges]]) -> Checkpoint:
    """The checkpoint that an index of safetensors shards describes; `open_shards` finds them, in the names' order."""
    if index.size > MAX_HEADER_BYTES:
        raise index.refuse(f"an index of {index.size:,} bytes is refused; at most {MAX_HEADER_BYTES:,} are read")
    weight_map = parse_json(index.read(0, index.size), index.place).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise index.refuse("weight_map, the table of tensors and their shards, is missing or empty")
    by_shard: dict[str, set[str]] = {}
    for tensor, shard in weight_map.items():
        by_shard.setdefault(str(shard), set()).add(tensor)
    for shard in by_shard:
        if not re.fullmatch(r"[\w.-]+\.safetensors", shard):
            rule = f"weight_map names the shard {shown(shard)}, which is not the name of a safetensors file"
            raise index.refuse(rule)
    parts = _in_turn(open_shards(by_shard), read_safetensors)
    for (name, stated), (_, tensors) in zip(by_shard.items(), parts, strict=True):
        if stated != (held := {tensor.name for tensor in tensors}):
            odd = min(stated ^ held)
            rule = "which the shard does not have" if odd in stated else "which the index does not name"
            raise index.refuse(f"{name}: tensor {shown(odd)}, {rule}")
    return _checkpoint(index.place, parts)


@uncollected()
def read_shards(files: list[ByteRanges]) -> Checkpoint:
    """The checkpoint that safetensors files hold together."""
    return _checkpoint(files[0].place, _in_turn(files, read_safetensors))


@uncollected()
def read_gguf_parts(files: list[ByteRanges]) -> Checkpoint:
    """The checkpoint of a GGUF file, or of all parts of a split one in their order."""
    metadata: list[dict[str, Any]] = []

    def read(file: ByteRanges) -> list[StoredTensor]:
        header = read_gguf(file)
        stated = header.metadata.get("split.no", 0), header.metadata.get("split.count", 1) or 1
        if stated != (len(metadata), len(files)):
            rule = f"its metadata say part {shown(stated[0])} of {shown(stated[1])}"
            raise file.refuse(f"{rule}, but it stands as part {len(metadata)} of {len(files)}")
        metadata.append(header.metadata)
        return header.tensors

    parts = _in_turn(files, read)
    n_tensors = sum(len(tensors) for _, tensors in parts)
    stated_count = metadata[0].get("split.tensors.count", n_tensors)
    if stated_count != n_tensors:
        rule = f"split.tensors.count = {shown(stated_count)}, but the parts have {n_tensors:,} tensors"
        raise files[0].refuse(rule)
    return _checkpoint(files[0].place, parts, metadata[0])


def _in_turn(
    files: Iterable[ByteRanges], read: Callable[[ByteRanges], list[StoredTensor]]
) -> list[tuple[ByteRanges, list[StoredTensor]]]:
    """The files with their tensors, read one after the other until there are too many."""
    parts, n_tensors = [], 0
    for file in files:
        tensors = read(file)
        n_tensors += len(tensors)
        if n_tensors > MAX_CHECKPOINT_TENSORS:
            raise file.refuse(f"with it there are more than {MAX_CHECKPOINT_TENSORS:,} tensors, which is refused")
        parts.append((file, tensors))
    return parts


def _checkpoint(
    place: str, parts: list[tuple[ByteRanges, list[StoredTensor]]], metadata: dict[str, Any] | None = None
) -> Checkpoint:
    file_of: dict[str, ByteRanges] = {}
    for file, tensors in parts:
        for tensor in tensors:
            if tensor.name in file_of:
                raise file.refuse(f"tensor {shown(tensor.name)} is in {file_of[tensor.name].place} too")
            file_of[tensor.name] = file

    def values(tensor: StoredTensor) -> bytes:
        return file_of[tensor.name].read(tensor.offset, tensor.stored_bytes)

    found = tuple(tensor for _, tensors in parts for tensor in tensors)
    return Checkpoint(place, found, tuple(unpack(found, values)), metadata or {})


def _of_folder(folder: Path) -> Path:
    """The index, the one file or the first shard of the one set that a folder holds."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise InputError(f"{place_of(folder)}: cannot be read: {error.strerror}") from None
    if INDEX in names:
        return folder / INDEX
    for ending in WEIGHTS:
        firsts = sorted({_shard(name, 1) for name in names if name.endswith(ending)})
        if len(firsts) > 1:
            raise InputError(
                f"{place_of(folder)}: {len(firsts)} checkpoints, among them {firsts[0]} and {firsts[1]}; name one"
            )
        if firsts:
            return folder / firsts[0]
    raise InputError(f"{place_of(folder)}: no .safetensors and no .gguf file in this folder")


def _shard(name: str, number: int) -> str:
    """The name of another shard of the set that a file belongs to; of a file that stands alone, its own."""
    return _SHARD.sub(rf"\g<stem>-{number:05}-of-\g<count>\g<ending>", name)


def _shard_names(name: str) -> list[str]:
    """The names of all shards of the set that a file belongs to, or its own."""
    match = _SHARD.fullmatch(name)
    count = int(match["count"]) if match else 0
    return [_shard(name, number) for number in range(1, count + 1)] or [name]
