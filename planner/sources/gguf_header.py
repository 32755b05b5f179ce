"""The header of a GGUF file: typed metadata and the list of tensors; the tensors themselves are never read.

Layout after the GGUF specification (ggml-org/ggml, docs/gguf.md) and its reader (src/gguf.cpp), versions 2 and 3,
little endian. Long metadata, such as the tokenizer's words, is walked over and not kept.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

from planner.sources.headers import MAX_HEADER_BYTES, MAX_SIDE, MAX_TENSORS, ByteRanges, StoredTensor, printable
from planner.spec import shown
from planner.storage import ggml_formats

VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_KEYS = 4_096
MAX_WORDS = 2_000_000
"""Entries of all text arrays together: several times the words and merges of the largest tokenizers."""
MAX_KEPT = 1_024
"""Bytes of a text and numbers of an array that are kept."""
MAX_DIMENSIONS = 4

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Long:
    """Metadata that is not kept: only how many bytes of text or entries of an array it has."""

    length: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata by key, and the tensors in the order in which they lie."""

    metadata: dict[str, Any]
    tensors: list[StoredTensor]


def read_gguf(file: ByteRanges) -> GgufHeader:
    """Metadata and tensors of a GGUF file, or of one part of a split one.

    Raises `InputError` for a header that is too long, cut off, of another version, or does not describe the file.
    """
    cursor = _Cursor(file)
    if cursor.take(4) != b"GGUF":
        raise file.refuse("not a GGUF file: it does not begin with GGUF")
    version = cursor.number("I")
    if version not in VERSIONS:
        kind = "big-endian GGUF" if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS else "GGUF"
        raise file.refuse(f"{kind} version {version} is not read; versions {VERSIONS[0]} and {VERSIONS[1]} are")
    n_tensors, n_keys = cursor.number("Q"), cursor.number("Q")
    if n_tensors > MAX_TENSORS:
        raise file.refuse(f"{n_tensors:,} tensors in one file; at most {MAX_TENSORS:,} are read")
    if n_keys > MAX_KEYS:
        raise file.refuse(f"{n_keys:,} metadata keys; at most {MAX_KEYS:,} are read")
    metadata: dict[str, Any] = {}
    for _ in range(n_keys):
        key = cursor.name()
        if key in metadata:
            raise file.refuse(f"the metadata key {shown(key)} is there twice")
        metadata[key] = cursor.value(cursor.number("I"), key)
    return GgufHeader(metadata, _tensors(cursor, n_tensors, _alignment(metadata, file)))


def _alignment(metadata: dict[str, Any], file: ByteRanges) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise file.refuse(f"general.alignment = {shown(alignment)} is not a power of 2")
    return alignment


def _tensors(cursor: _Cursor, count: int, alignment: int) -> list[StoredTensor]:
    """Read the list of tensors; each begins where the one before it ends, rounded up to the alignment."""
    file = cursor.file
    found: list[StoredTensor] = []
    names: set[str] = set()
    end = 0
    for _ in range(count):
        name = printable(cursor.name(), file.place)
        if name in names:
            raise file.refuse(f"the tensor {shown(name)} is there twice")
        names.add(name)
        tensor = _read_entry(name, cursor)
        if tensor.offset != end:
            raise file.refuse(f"tensor {shown(name)} begins at {tensor.offset:,} of the data, not at {end:,}")
        end = _aligned(end + tensor.stored_bytes, alignment)
        found.append(tensor)
    start = _aligned(cursor.position, alignment)
    last = start + found[-1].offset + found[-1].stored_bytes if found else 0
    if last > file.size:
        rule = f"the header describes {last:,} bytes, the file has {file.size:,}"
        raise file.refuse(f"{rule}; it is cut off, fetch it again")
    return [tensor._replace(offset=start + tensor.offset) for tensor in found]


def _read_entry(name: str, cursor: _Cursor) -> StoredTensor:
    refuse = cursor.file.refuse
    n_dims = cursor.number("I")
    if n_dims > MAX_DIMENSIONS:
        raise refuse(f"tensor {shown(name)}: {n_dims:,} dimensions; GGML has at most {MAX_DIMENSIONS}")
    sides = cursor.numbers("Q", n_dims)
    number, offset = cursor.number("I"), cursor.number("Q")
    fmt = ggml_formats().get(number)
    if fmt is None:
        raise refuse(f"tensor {shown(name)}: GGML type {number} is not known")
    if prod(sides) > MAX_SIDE:
        raise refuse(f"tensor {shown(name)}: shape {shown(sides)} is larger than any file")
    shape = sides[::-1]  # GGML names the innermost side first
    block = fmt.packed.per[1] if fmt.packed and isinstance(fmt.packed.per, tuple) else 1
    if sides and sides[0] % block:
        raise refuse(f"tensor {shown(name)}: rows of {sides[0]:,} are not whole blocks of {block} of {fmt.name}")
    return StoredTensor(name, shape, fmt, fmt.name, offset, fmt.stored_bytes(shape))


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment


class _Cursor:
    """Reads a file from its start, a chunk at a time, and never past what a header may have."""

    def __init__(self, file: ByteRanges) -> None:
        self.file = file
        self.chunk = b""
        self.start = 0  # where the chunk lies in the file
        self.at = 0  # where in the chunk the next byte is
        self.words = 0

    @property
    def position(self) -> int:
        return self.start + self.at

    def take(self, length: int) -> bytes:
        self._have(length)
        data = self.chunk[self.at : self.at + length]
        self.at += length
        return data

    def number(self, code: str) -> Any:
        return self.numbers(code, 1)[0]

    def numbers(self, code: str, count: int) -> tuple[Any, ...]:
        layout = f"<{count}{code}"
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def name(self) -> str:
        length = self.number("Q")
        if length > MAX_KEPT:
            raise self.file.refuse(f"a name of {length:,} bytes at {self.position:,}; at most {MAX_KEPT:,} are read")
        return self.text(length)

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise self.file.refuse(f"the text at {self.position - length:,} is not UTF-8") from None

    def value(self, kind: int, key: str) -> Any:
        """The value of a metadata key; one that is long, or an array of texts, becomes a `Long`."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind not in (_TEXT, _ARRAY):
            raise self.file.refuse(f"metadata {shown(key)}: value type {kind} is not known")
        element = self.number("I") if kind == _ARRAY else None
        length = self.number("Q")
        if element == _TEXT:
            self._pass_texts(length, key)
            return Long(length)
        if element is not None and element not in _SCALARS:
            raise self.file.refuse(f"metadata {shown(key)}: arrays of type {element} are not read")
        if length > MAX_KEPT:
            self._pass(length * (struct.calcsize(_SCALARS[element]) if element is not None else 1))
            return Long(length)
        return self.text(length) if element is None else list(self.numbers(_SCALARS[element], length))

    def _pass_texts(self, count: int, key: str) -> None:
        self.words += count
        if self.words > MAX_WORDS:
            raise self.file.refuse(f"metadata {shown(key)}: {count:,} texts; at most {MAX_WORDS:,} are read")
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            self._have(8)
            length = length_at(self.chunk, self.at)[0]
            self.at += 8
            self._pass(length)

    def _pass(self, length: int) -> None:
        """Go on without reading, if need be past the chunk."""
        self.at += length
        if self.at > len(self.chunk):
            position = self.position
            self._check(position)
            self.chunk, self.start, self.at = b"", position, 0

    def _have(self, length: int) -> None:
        """Make sure that the chunk holds the next `length` bytes."""
        if self.at + length <= len(self.chunk):
            return
        position = self.position
        self._check(position + length)
        more = min(max(length, _CHUNK), self.file.size - position)
        self.chunk, self.start, self.at = self.file.read(position, more), position, 0

    def _check(self, end: int) -> None:
        if end > self.file.size:
            raise self.file.refuse(f"cut off: its header needs {end:,} bytes, the file has {self.file.size:,}")
        if end > MAX_HEADER_BYTES:
            raise self.file.refuse(f"a header of more than {MAX_HEADER_BYTES:,} bytes is refused")
