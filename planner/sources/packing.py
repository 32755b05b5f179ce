"""From the tensors of a file to the weights of a model: packed formats unpacked, scales put where they belong.

A quantised matrix lies in a checkpoint as several tensors: codes, eight to an int32 or two to a byte, and beside them
scales, zero points, an order of rows, code tables. Those are bytes of the matrix, not parameters. Names and layouts are
those of the tools that write them; the sources are in `presets/storage_formats.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import NamedTuple

from planner.arithmetic import ceil_div
from planner.sources.headers import StoredTensor

Values = Callable[[StoredTensor], bytes]
Beside = dict[str, StoredTensor]
Unpacked = tuple[tuple[int, ...], str] | None  # shape and format; None where the layout is none that we know
Sides = Callable[[StoredTensor, StoredTensor, StoredTensor], int]

# What stands beside a packed matrix: module name + one of these, where the matrix itself is module name + key.
_BESIDE: dict[str, tuple[str, ...]] = {
    ".qweight": (".qzeros", ".scales", ".g_idx"),
    ".weight_packed": (
        ".weight_scale",
        ".weight_zero_point",
        ".weight_shape",
        ".weight_g_idx",
        ".weight_global_scale",
        ".input_global_scale",
        ".input_scale",
    ),
    ".weight": (
        ".weight_scale",
        ".weight_scale_inv",
        ".weight_scale_2",
        ".weight_zero_point",
        ".scale",
        ".input_scale",
        ".SCB",
        ".weight_format",
        ".weight.absmax",
        ".weight.quant_map",
        ".weight.nested_absmax",
        ".weight.nested_quant_map",
        ".weight.quant_state.bitsandbytes__nf4",
        ".weight.quant_state.bitsandbytes__fp4",
    ),
    "_blocks": ("_scales",),
    ".blocks": (".scales",),
}
_ENDING = re.compile("(" + "|".join(map(re.escape, _BESIDE)) + ")$")

# What frameworks store though it is computed, not learned: positions, masks, scales of a cache, factors of RoPE.
_BUFFER = re.compile(
    r"(rotary_emb\.inv_freq|attn\.bias|attention\.bias|masked_bias|position_ids|[kvq]_scale|tid2eid|d2t|t2d"
    r"|^rope_freqs\.weight|^rope_factors_(long|short)\.weight|num_batches_tracked)$"
)


class Weight(NamedTuple):
    """A matrix or vector of the model: its shape unpacked, and all the bytes that a file spends on it.

    `format` is a storage format's name, or ends in ``-scaled`` where no named one has such scales. The shape of
    bitsandbytes' four-bit matrices is not in the header; theirs is the number of elements alone. `counts` is
    ``parameter``, ``buffer``, or ``unexplained`` for integers that no packing we know accounts for. `tensors` names the
    stored tensors of what is not one of its own name.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    stored_bytes: int
    counts: str = "parameter"
    tensors: tuple[str, ...] = ()

    @property
    def elements(self) -> int:
        """Elements when unpacked."""
        return prod(self.shape)

    @property
    def stored_as(self) -> tuple[str, ...]:
        """The stored tensors that it consists of, that of its elements first."""
        return self.tensors or (self.name,)


def unpack(tensors: Iterable[StoredTensor], values: Values) -> Iterator[Weight]:
    """Yield the weights that the stored tensors amount to, in their order.

    ``values(tensor)`` reads a tensor's bytes. It is asked only for `weight_shape`, two integers, once for each kind of
    matrix: how many bits wide compressed-tensors packed is not in the header.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    packed: dict[str, tuple[str, Beside]] = {}
    taken: set[str] = set()
    for tensor in by_name.values():
        match = _ENDING.search(tensor.name)
        if match and tensor.format.bits <= (32 if match[0] in (".qweight", ".weight_packed") else 8):
            module = tensor.name[: match.start()]
            names = {end: module + end for end in _BESIDE[match[0]]}
            beside = {end: by_name[name] for end, name in names.items() if name in by_name and name not in taken}
            if beside:
                packed[tensor.name] = match[0], beside
                taken.update(side.name for side in beside.values())
    sides = _side_reader(values)
    for tensor in by_name.values():
        if tensor.name in packed:
            yield _weight(tensor, *packed[tensor.name], sides)
        elif tensor.name not in taken:
            yield Weight(tensor.name, tensor.shape, tensor.format.name, tensor.stored_bytes, _counts(tensor))


def _counts(tensor: StoredTensor) -> str:
    if _BUFFER.search(tensor.name):
        return "buffer"
    if tensor.format.name.startswith("int"):
        return "unexplained" if len(tensor.shape) > 1 else "buffer"
    return "parameter"


def _weight(tensor: StoredTensor, ending: str, beside: Beside, sides: Sides) -> Weight:
    stored = tensor.stored_bytes + sum(side.stored_bytes for side in beside.values())
    names = (tensor.name, *(side.name for side in beside.values()))
    unpacked: Unpacked
    if ending in ("_blocks", ".blocks"):
        unpacked, name = _mxfp4_blocks(tensor, beside), tensor.name.removesuffix(ending)
    else:
        name = tensor.name.removesuffix(ending) + ".weight"
        if ending == ".qweight":
            unpacked = _gptq_or_awq(tensor, beside)
        elif tensor.format.name == "int32":
            unpacked = _pack_quantized(tensor, beside, sides)
        else:
            unpacked = _bytes(tensor, beside)
    if unpacked is None:
        return Weight(tensor.name, tensor.shape, tensor.format.name, stored, "unexplained", names)
    return Weight(name, *unpacked, stored, tensors=names)


def _gptq_or_awq(tensor: StoredTensor, beside: Beside) -> Unpacked:
    """GPTQ packs codes along the inputs, AWQ along the outputs; scales are [groups, outputs] in both."""
    scales, zeros = beside.get(".scales"), beside.get(".qzeros")
    if scales is None or zeros is None or not (_is_matrix(tensor) and _is_matrix(scales) and _is_matrix(zeros)):
        return None
    (rows, columns), (groups, outputs) = tensor.shape, scales.shape
    bits, rest = divmod(32 * zeros.shape[1], outputs)
    if rest or bits not in (2, 3, 4, 8):
        return None
    if columns == outputs:
        inputs, rest = divmod(rows * 32, bits)
        return (
            None if rest else ((outputs, inputs), ("gptq" if bits == 4 else f"gptq-int{bits}") + _group(inputs, groups))
        )
    if bits == 4 and 8 * columns == outputs:
        return (outputs, rows), "awq" + _group(rows, groups)
    return None


def _side_reader(values: Values) -> Sides:
    """The inputs of a packed matrix, read from `weight_shape` once for each kind of matrix."""
    known: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}

    def inputs(packed: StoredTensor, scales: StoredTensor, shape: StoredTensor) -> int:
        kind = packed.shape, scales.shape
        if kind not in known:
            if (shape.shape, shape.dtype) != ((2,), "I64"):
                return 0
            known[kind] = int.from_bytes(values(shape)[8:], "little", signed=True)
        return known[kind]

    return inputs


def _pack_quantized(tensor: StoredTensor, beside: Beside, sides: Sides) -> Unpacked:
    """compressed-tensors: codes along the inputs, [outputs, inputs x bits / 32]; scales [outputs, groups]."""
    scales, shape = beside.get(".weight_scale"), beside.get(".weight_shape")
    if scales is None or shape is None or not (_is_matrix(tensor) and _is_matrix(scales)):
        return None
    outputs, words = tensor.shape
    inputs = sides(tensor, scales, shape)
    bits = next((bits for bits in range(1, 9) if inputs > 0 and ceil_div(inputs * bits, 32) == words), None)
    if bits is None:
        return None
    groups = scales.shape[1]
    symmetry = "" if groups == 1 else "-asym" if ".weight_zero_point" in beside else "-sym"
    return (outputs, inputs), f"int{bits}{symmetry}{_group(inputs, groups)}"


def _mxfp4_blocks(tensor: StoredTensor, beside: Beside) -> Unpacked:
    """gpt-oss: blocks of 16 bytes, 32 elements, with one exponent each."""
    (scales,) = beside.values()
    *stack, blocks, size = (0, 0, *tensor.shape)
    if size != 16 or tensor.shape[:-1] != scales.shape:
        return None
    return (*stack[2:], 32 * blocks), "mxfp4"


def _bytes(tensor: StoredTensor, beside: Beside) -> Unpacked:
    """Elements of eight bits, or two of four bits to a byte, with scales beside them."""
    shape = tensor.shape
    if ".weight.absmax" in beside:
        return (2 * tensor.stored_bytes,), "nf4-dq" if ".weight.nested_absmax" in beside else "nf4"
    if tensor.format.packed is not None:  # a block type of GGML, with a scale for the whole tensor
        return shape, tensor.format.name
    scales = next(
        (beside[end] for end in (".weight_scale", ".weight_scale_inv", ".scale", ".SCB") if end in beside), None
    )
    if scales is None:
        return (shape, "fp8") if tensor.format.name == "fp8" else None
    if tensor.dtype in ("U8", "I8") and _is_float8(scales):
        bytes_per_scale = 16 if _is_exponent(scales) else 8
        fmt = "mxfp4" if _is_exponent(scales) else "nvfp4"
        return ((*shape[:-1], 2 * shape[-1]), fmt) if _columns_per_scale(tensor, scales) == bytes_per_scale else None
    if tensor.dtype == "U8":
        return None
    return shape, _scaled(tensor, scales, "-static" if ".input_scale" in beside else "")


def _scaled(tensor: StoredTensor, scales: StoredTensor, static: str) -> str:
    kind = "fp8" if tensor.format.name == "fp8" else "int8"
    rows, columns = (1, 1, *tensor.shape)[-2:]
    if scales.shape in (tensor.shape[:-1], (*tensor.shape[:-1], 1)):
        return f"{kind}-channel"
    if kind == "fp8":
        if prod(scales.shape) == 1:
            return f"fp8-tensor{static}"
        if scales.shape[-2:] == (ceil_div(rows, 128), ceil_div(columns, 128)):
            return "fp8-block128-ue8m0" if _is_exponent(scales) else "fp8-block128"
        if _is_exponent(scales) and _columns_per_scale(tensor, scales) == 32:
            return "mxfp8"
    return f"{kind}-scaled"


def _is_matrix(tensor: StoredTensor) -> bool:
    return len(tensor.shape) == 2 and prod(tensor.shape) > 0


def _is_exponent(scales: StoredTensor) -> bool:
    return scales.dtype in ("F8_E8M0", "U8")


def _is_float8(scales: StoredTensor) -> bool:
    return _is_exponent(scales) or scales.dtype == "F8_E4M3"


def _columns_per_scale(tensor: StoredTensor, scales: StoredTensor) -> int | None:
    if len(tensor.shape) < 2 or tensor.shape[:-1] != scales.shape[:-1] or not scales.shape[-1]:
        return None
    columns, rest = divmod(tensor.shape[-1], scales.shape[-1])
    return None if rest else columns


def _group(inputs: int, groups: int) -> str:
    return "-channel" if groups == 1 else f"-g{ceil_div(inputs, groups)}"
