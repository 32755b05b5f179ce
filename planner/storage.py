"""Storage formats: the bytes of a tensor of known shape, with its scales, zero points, blocks and code tables.

A format is data (`presets/storage_formats.toml`): bits for each element, and tables laid over the matrix, such as one
16-bit scale for each tile of 1 row and 128 columns. *Payload* is elements x bits; *stored* is what lies in memory. A
`Scheme` says which roles of a decoder have which format, since embeddings, norms and routers usually stay as they were.

Arithmetic is generic: sides may be ints (and the bytes are an exact int), NumPy columns or symbols.

>>> find("awq-g128").stored_bytes((4096, 4096)), find("bf16").stored_bytes((4096, 4096))
(8716288, 33554432)
>>> weight_format("awq-g128").stored_bytes("norms", (4096,))
8192
>>> cache_format("q8_0").bytes_per_position(8, 128)
1088
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from typing import Any

from planner.arithmetic import Value, ceil_div, plain
from planner.errors import UnknownName, UsageError

Shape = Sequence[Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One entry of `bits` for each tile of `per` = (rows, columns), 0 for a whole side, or for each `per` elements."""

    what: str
    bits: int
    per: tuple[int, int] | int

    def stored_bytes(self, shape: Shape) -> Value:
        """Bytes of the table over a tensor, or over each matrix of a stack."""
        return _bytes(self._entries(shape), self.bits)

    @property
    def once(self) -> bool:
        """Whether there is one entry for the whole matrix."""
        return self.per == (0, 0)

    def _entries(self, shape: Shape) -> Value:
        if isinstance(self.per, int):
            return ceil_div(_product(shape), self.per)
        *stack, rows, columns = (1, 1, *shape)
        return _product(stack) * _tiles(rows, self.per[0]) * _tiles(columns, self.per[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFormat:
    """How elements lie in memory: `bits` each, and `tables` beside them; `packed` where a block holds both.

    `source` is a key of the preset's sources.
    """

    name: str
    bits: int | Fraction
    source: str
    packed: Table | None = None
    tables: tuple[Table, ...] = ()
    scheme: str | None = None
    fallback: str | None = None
    ggml: int | None = None
    safetensors: tuple[str, ...] = ()
    cache: bool = False

    @property
    def plain(self) -> bool:
        """Whether nothing is stored but the elements."""
        return self.packed is None and not self.tables

    def payload_bytes(self, shape: Shape) -> Value:
        """Bytes of the elements alone.

        >>> find("q4_k").payload_bytes((4096, 4096))
        8388608
        """
        return _bytes(_product(map(plain, shape)), self.bits)

    def stored_bytes(self, shape: Shape) -> Value:
        """Bytes of the elements with everything stored beside them.

        A tensor of more than two sides is a stack of matrices of (outputs, inputs), each with tables of its own; one of
        one side is a row. Rows are stored in whole blocks.

        >>> find("fp8-block128").stored_bytes((7168, 2048))
        14683648
        """
        return self._stored(shape, self.tables)

    def bytes_per_position(self, n_heads: Value, width: Value) -> Value:
        """Bytes that a cache keeps for one position: a row of `width` elements for each head.

        A scale that holds for a whole layer is no part of a position.

        >>> find("nvfp4").bytes_per_position(8, 128)
        576
        """
        return self._stored((n_heads, width), [table for table in self.tables if not table.once])

    def effective_bits(self, shape: Shape) -> Value:
        """Stored bits of one element.

        >>> find("gptq-g128").effective_bits((4096, 4096))
        4.1640625
        """
        return 8 * self.stored_bytes(shape) / _product(map(plain, shape))

    def _stored(self, shape: Shape, tables: Sequence[Table]) -> Value:
        shape = tuple(map(plain, shape))
        total = self.packed.stored_bytes(shape) if self.packed else self.payload_bytes(shape)
        for table in tables:
            total = total + table.stored_bytes(shape)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Which format the tensors of a decoder have: `by_role`, and `rest` for all other roles and for vectors.

    `notes` are sentences to show beside the figures: what the scheme could not be exact about.
    """

    name: str
    rest: StorageFormat
    by_role: Mapping[str, StorageFormat] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def format_of(self, role: str, shape: Shape) -> StorageFormat:
        """The format of a tensor.

        A vector keeps the format of the rest unless that of its role is plain, and rows that are not whole blocks get
        what llama.cpp and MLX fall back to.

        >>> weight_format("q4_k").format_of("attention", (896, 896)).name
        'q5_0'
        """
        chosen = self.by_role.get(role, self.rest)
        if not chosen.plain and _is_vector(shape):
            return self.rest
        while chosen.fallback and not _whole_blocks(chosen, shape[-1]):
            chosen = find(chosen.fallback)
        return chosen

    def stored_bytes(self, role: str, shape: Shape, copies: Value = 1) -> Value:
        """Bytes of `copies` equal tensors of that role and shape."""
        return copies * self.format_of(role, shape).stored_bytes(shape)

    def payload_bytes(self, role: str, shape: Shape, copies: Value = 1) -> Value:
        """Bytes of the elements alone of `copies` equal tensors of that role and shape."""
        return copies * self.format_of(role, shape).payload_bytes(shape)

    def override(self, **formats: str) -> Scheme:
        """The same scheme with other formats by role, and for `rest`: ``override(lm_head="q6_k", rest="fp16")``.

        Raises `UnknownName` for a role or a format that is not known.
        """
        for role in formats:
            if role not in (*ROLES, "rest"):
                raise UnknownName("role", role, (*ROLES, "rest"))
        chosen = {role: find(name) for role, name in formats.items()}
        rest = chosen.pop("rest", self.rest)
        return replace(self, rest=rest, by_role={**self.by_role, **chosen})


def find(name: str) -> StorageFormat:
    """A storage format by its name, in any case, or by one of the names that others give it.

    Raises `UnknownName` with the nearest one that is known.
    """
    return _chosen("storage format", name, formats())


@cache
def weight_format(name: str) -> Scheme:
    """The scheme that a name stands for in ``--weights``: what the tools of a format quantise by default.

    A plain format holds for every tensor. A GGUF file type that mixes block types (`q4_k_m`, `iq2_xs`) is a published
    average, which its note says. Behind the name may stand what differs by role, or in the rest. Raises `UnknownName`.

    >>> weight_format("awq-g128+lm_head=int8-channel").format_of("lm_head", (64, 64)).name
    'int8-channel'
    """
    first, *changes = name.split("+")
    scheme = _by_default(first)
    if not changes:
        return scheme
    pairs = [change.partition("=") for change in changes]
    if not all(equals for _, equals, _ in pairs):
        raise UsageError(f"{name!r} is no weight format: behind + stands role=format, such as lm_head=bf16")
    formats = {role.strip(): find(changed).name for role, _, changed in pairs}
    spelled = "+".join([scheme.name, *(f"{role}={changed}" for role, changed in sorted(formats.items()))])
    return replace(scheme.override(**formats), name=spelled)


def _by_default(name: str) -> Scheme:
    presets = _presets()
    spelled = _canonical(name)
    if spelled in presets["averages"]:
        mixed = StorageFormat(name=spelled, bits=Fraction(presets["averages"][spelled]), source="llama-quantize")
        note = f"{spelled} mixes block types: {float(mixed.bits):g} bits per weight is the average of Llama-3.1-8B"
        return Scheme(name=spelled, rest=mixed, notes=(note,))
    offered = {known: fmt for known, fmt in formats().items() if fmt.scheme}
    chosen = _chosen("weight format", name, offered, *presets["averages"])
    if chosen.plain:
        return Scheme(name=chosen.name, rest=chosen)
    scheme = presets["schemes"][chosen.scheme]
    by_role = dict.fromkeys(scheme["roles"], chosen)
    return Scheme(name=chosen.name, rest=find(scheme["rest"]), by_role=by_role).override(**scheme.get("override", {}))


@cache
def cache_format(name: str) -> StorageFormat:
    """The format of a KV cache by its name in ``--kv``. Raises `UnknownName`."""
    return _chosen("cache format", name, {known: fmt for known, fmt in formats().items() if fmt.cache})


def roles_of(scheme: str) -> tuple[str, ...]:
    """The roles that a scheme of the preset quantises.

    >>> roles_of("experts")
    ('experts_routed',)
    """
    return tuple(_presets()["schemes"][scheme]["roles"])


@cache
def formats() -> dict[str, StorageFormat]:
    """Every storage format by name; a family such as ``awq`` stands there once for each group size."""
    return {fmt.name: fmt for name, entry in _presets()["formats"].items() for fmt in _family(name, entry)}


@cache
def dtype_formats() -> dict[str, StorageFormat]:
    """The plain formats by the dtype names of safetensors headers."""
    return {dtype: fmt for fmt in formats().values() for dtype in fmt.safetensors}


@cache
def ggml_formats() -> dict[int, StorageFormat]:
    """The formats of GGUF files by GGML's type number."""
    return {fmt.ggml: fmt for fmt in formats().values() if fmt.ggml is not None}


ROLES: tuple[str, ...] = (
    "attention",
    "biases",
    "embedding",
    "experts_routed",
    "experts_shared",
    "ffn_dense",
    "lm_head",
    "norms",
    "other",
    "router",
    "ssm_conv_mixer",
)
"""What the tensor of a bill can be."""


@cache
def _presets() -> dict[str, Any]:
    text = files("planner.presets").joinpath("storage_formats.toml").read_text("utf-8")
    return tomllib.loads(text, parse_float=Fraction)


def _family(name: str, entry: dict[str, Any]) -> list[StorageFormat]:
    """One format for each width and each group size, with those in its name."""
    return [
        _member(name.format(width) + (f"-g{group}" if group else ""), entry, {"width": width, "group": group})
        for width in entry.get("widths", [0])
        for group in entry.get("groups", [0])
    ]


def _member(name: str, entry: dict[str, Any], sizes: dict[str, int]) -> StorageFormat:
    def size(word: Any) -> Any:
        return [size(side) for side in word] if isinstance(word, list) else sizes.get(word, word)

    def table(row: dict[str, Any]) -> Table:
        per = size(row["per"])
        return Table(what=row["what"], bits=size(row["bits"]), per=tuple(per) if isinstance(per, list) else per)

    families = ("widths", "groups", "bits", "packed", "tables", "safetensors")
    return StorageFormat(
        name=name,
        bits=size(entry["bits"]),
        packed=table(entry["packed"]) if "packed" in entry else None,
        tables=tuple(map(table, entry.get("tables", []))),
        safetensors=tuple(entry.get("safetensors", [])),
        **{key: value for key, value in entry.items() if key not in families},
    )


def _canonical(name: str) -> str:
    spelled = name.strip().casefold()
    return str(_presets()["aliases"].get(spelled, spelled))


def _chosen(kind: str, name: str, known: Mapping[str, StorageFormat], *others: str) -> StorageFormat:
    chosen = known.get(_canonical(name))
    if chosen is None:
        raise UnknownName(kind, name, [*known, *others, *_presets()["aliases"]])
    return chosen


def _product(sides: Any) -> Value:
    total: Value = 1
    for side in sides:
        total = total * side
    return total


def _bytes(count: Value, bits: int | Fraction) -> Value:
    """Whole bytes of `count` entries of `bits`."""
    if bits % 8 == 0:
        return count * int(bits // 8)
    return ceil_div(count * bits.numerator, 8 * bits.denominator)


def _tiles(side: Value, tile: int) -> Value:
    if tile == 0:
        return 1
    return side if tile == 1 else ceil_div(side, tile)


def _is_vector(shape: Shape) -> bool:
    """A single row is a vector too: a convolution's [channels, 1, width], a gate of one output."""
    return len(shape) < 2 or (isinstance(shape[-2], int) and shape[-2] == 1)


def _whole_blocks(fmt: StorageFormat, columns: Value) -> bool:
    """Whether rows are whole blocks or groups; a column or a symbol is taken to be."""
    per = (fmt.packed or fmt.tables[0]).per
    return not (isinstance(columns, int) and isinstance(per, tuple) and columns % per[1])
