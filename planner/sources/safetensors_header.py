"""The header of a safetensors file: 8 bytes of length, then JSON; the tensors themselves are never read.

Read by ourselves, because the library opens the whole file (a range request cannot give it that) and does not refuse
duplicate names. The rules are the library's (huggingface/safetensors, safetensors/src/tensor.rs: `Metadata::validate`):
tensors lie without gap or overlap from the end of the header to the end of the file.
"""

from __future__ import annotations

from math import prod
from typing import Any

from planner.errors import InputError, suggest
from planner.sources.headers import (
    MAX_HEADER_BYTES,
    MAX_RANK,
    MAX_SIDE,
    MAX_TENSORS,
    ByteRanges,
    StoredTensor,
    parse_json,
    printable,
)
from planner.spec import shown
from planner.storage import dtype_formats

_LENGTH_BYTES = 8
_KEYS = {"dtype", "shape", "data_offsets"}


def read_safetensors(file: ByteRanges) -> list[StoredTensor]:
    """The tensors of a safetensors file, in the order in which they lie.

    Raises `InputError` for a header that is too long, cut off, no valid JSON, or does not describe the file's bytes.
    """
    if file.size < _LENGTH_BYTES:
        raise file.refuse(f"not a safetensors file: it has {file.size} bytes, and the length of its header takes 8")
    length = int.from_bytes(file.read(0, _LENGTH_BYTES), "little")
    if length > MAX_HEADER_BYTES:
        rule = f"its first bytes state a header of {length:,} bytes, and at most {MAX_HEADER_BYTES:,} are read"
        raise file.refuse(f"damaged, or not a safetensors file: {rule}")
    text = file.read(_LENGTH_BYTES, length)
    if not text.startswith(b"{"):
        raise file.refuse("not a safetensors file: its header does not begin with {")
    entries = parse_json(text, file.place)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise file.refuse("__metadata__ is not a table of texts")
    if len(entries) > MAX_TENSORS:
        raise file.refuse(f"{len(entries):,} tensors in one file; at most {MAX_TENSORS:,} are read")
    start = _LENGTH_BYTES + length
    tensors = sorted((_tensor(name, entry, start, file.place) for name, entry in entries.items()), key=_place)
    _check_layout(tensors, start, file)
    return tensors


def _tensor(name: str, entry: Any, start: int, place: str) -> StoredTensor:
    try:
        return _read_entry(printable(name, place), entry, start)
    except _Broken as broken:
        raise InputError(f"{place}: tensor {shown(name)}: {broken}") from None


class _Broken(Exception):
    """A rule that an entry breaks; its tensor's name is added on the way up."""


def _read_entry(name: str, entry: Any, start: int) -> StoredTensor:
    if not isinstance(entry, dict) or entry.keys() != _KEYS:
        raise _Broken(f"{shown(entry)} does not have the keys dtype, shape and data_offsets and no other")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    fmt = dtype_formats().get(dtype) if isinstance(dtype, str) else None
    if fmt is None:
        near = suggest(dtype, dtype_formats()) if isinstance(dtype, str) else ""
        raise _Broken(f"dtype = {shown(dtype)} is not known{near}")
    if not _are_sizes(shape) or len(shape) > MAX_RANK:
        raise _Broken(f"shape = {shown(shape)} is not a list of at most {MAX_RANK} whole numbers of at least 0")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _Broken(f"data_offsets = {shown(offsets)} are not a begin and an end")
    begin, end = offsets
    elements = prod(shape)
    if elements > MAX_SIDE or elements * int(fmt.bits) != 8 * (end - begin):
        raise _Broken(f"shape = {shown(shape)} of {dtype} does not fill the {end - begin:,} bytes of data_offsets")
    return StoredTensor(name, tuple(shape), fmt, dtype, start + begin, end - begin)


def _are_sizes(value: Any) -> bool:
    return (
        isinstance(value, list)
        and {*map(type, value)} <= {int}
        and (not value or (min(value) >= 0 and max(value) <= MAX_SIDE))
    )


def _place(tensor: StoredTensor) -> tuple[int, int]:
    return tensor.offset, tensor.stored_bytes


def _check_layout(tensors: list[StoredTensor], start: int, file: ByteRanges) -> None:
    end = start
    for tensor in tensors:
        if tensor.offset != end:
            what = "overlaps the tensor before it" if tensor.offset < end else "leaves a gap before it"
            raise file.refuse(f"tensor {shown(tensor.name)} {what}: it begins at {tensor.offset:,}, not at {end:,}")
        end += tensor.stored_bytes
    if end != file.size:
        rule = f"the header describes {end:,} bytes, the file has {file.size:,}"
        raise file.refuse(f"{rule}; it is cut off or was changed, fetch it again")
