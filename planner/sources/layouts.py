"""How the tools that quantise lay out a matrix: from codes and what stands beside them to its shape and format.

Layouts are those of the tools that write them; the sources are in `presets/storage_formats.toml`. A header comes from
anybody: a layout that does not add up is none that we know, and its reader gives None.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple, TypeGuard

from planner.arithmetic import ceil_div
from planner.sources.headers import StoredTensor

Shape = tuple[int, ...]
Unpacked = tuple[Shape, str] | None  # shape and format; None where the layout is none that we know
Stated = Callable[[StoredTensor, StoredTensor, StoredTensor], tuple[int, int]]

MLX_GROUPS = (64, 32, 128)
"""The likeliest first."""


class Packed(NamedTuple):
    """The codes of a matrix, what stands beside them by its ending, and how to read two sides that a tensor states."""

    ending: str
    codes: StoredTensor
    beside: dict[str, StoredTensor]
    stated: Stated
    mlx_group: int = MLX_GROUPS[0]


def read(packed: Packed) -> Unpacked:
    """The shape of a packed matrix and its format's name, or None."""
    codes = packed.codes
    match packed.ending:
        case ".qweight":
            return _gptq_or_awq(packed) if ".qzeros" in packed.beside else _fp_quant(packed)
        case ".weight_packed" if codes.format.name == "int32":
            return _pack_quantized(packed)
        case ".weight" if codes.format.name == "int32":
            return _mlx(packed) if ".scales" in packed.beside else _quark(packed)
        case ".weight" if codes.format.name == "int16":
            return _higgs(packed)
        case ".weight" if ".weight_scales" in packed.beside:
            return _eetq(packed)
        case ".weight" | ".weight_packed":
            return _bytes(packed)
        case "._weight_qdata":
            return _torchao(packed)
        case ".W_q":
            return _hqq(packed)
        case ".codes":
            return _aqlm(packed)
        case ".trellis":
            return _exl3(packed)
        case ".q_weight":
            return _exl2(packed)
    return _mxfp4_blocks(packed)


# ---- groups along the inputs, codes in words -------------------------------------------------------------------------


def _gptq_or_awq(packed: Packed) -> Unpacked:
    """GPTQ packs codes along the inputs, AWQ along the outputs; scales are [groups, outputs] in both."""
    codes, scales, zeros = packed.codes, packed.beside.get(".scales"), packed.beside.get(".qzeros")
    if not (_is_matrix(codes) and _is_matrix(scales) and _is_matrix(zeros)):
        return None
    (rows, columns), (groups, outputs) = codes.shape, scales.shape
    bits, rest = divmod(32 * zeros.shape[1], outputs)
    if rest or bits not in (2, 3, 4, 8):
        return None
    if columns == outputs:
        inputs, rest = divmod(rows * 32, bits)
        family = "gptq" if bits == 4 else f"gptq-int{bits}"
        if ".g_idx" not in packed.beside:
            family = f"auto-round-int{bits}"
        return None if rest else ((outputs, inputs), family + _group(inputs, groups))
    if bits == 4 and 8 * columns == outputs:
        return (outputs, rows), "awq" + _group(rows, groups)
    return None


def _quark(packed: Packed) -> Unpacked:
    """As AWQ's, under other names."""
    codes, scales = packed.codes, packed.beside.get(".weight_scale")
    if not (_is_matrix(codes) and _is_matrix(scales)):
        return None
    (inputs, words), (groups, outputs) = codes.shape, scales.shape
    return ((outputs, inputs), "awq" + _group(inputs, groups)) if 8 * words == outputs else None


def _pack_quantized(packed: Packed) -> Unpacked:
    """compressed-tensors: codes along the inputs, [outputs, inputs x bits / 32]; scales [outputs, groups]."""
    codes, scales, shape = packed.codes, packed.beside.get(".weight_scale"), packed.beside.get(".weight_shape")
    if shape is None or not (_is_matrix(codes) and _is_matrix(scales)):
        return None
    outputs, words = codes.shape
    _, inputs = packed.stated(codes, scales, shape)
    bits = next((bits for bits in range(1, 9) if inputs > 0 and ceil_div(inputs * bits, 32) == words), None)
    if bits is None:
        return None
    groups = scales.shape[1]
    symmetry = "" if groups == 1 else "-asym" if ".weight_zero_point" in packed.beside else "-sym"
    return (outputs, inputs), f"int{bits}{symmetry}{_group(inputs, groups)}"


def mlx_inputs(packed: Packed, group: int) -> int | None:
    """The inputs of an affine MLX matrix if its groups are of that size; None for any other matrix."""
    scales = packed.beside.get(".scales")
    affine = ".biases" in packed.beside or ".qbiases" in packed.beside
    return group * scales.shape[-1] if affine and scales is not None and scales.shape else None


def _mlx(packed: Packed) -> Unpacked:
    """Codes along the inputs, [..., outputs, inputs x bits / 32]; scales, and biases where they are affine.

    Words for each group tell the format where scales are bytes; of affine codes they tell bits x group.
    """
    codes, scales = packed.codes, packed.beside[".scales"]
    words = _columns_per_scale(codes, scales)
    if words is None:
        return None
    if scales.dtype == "U8":
        group, name = {2: (16, "mlx-nvfp4"), 4: (32, "mlx-mxfp4"), 8: (32, "mlx-mxfp8")}.get(words, (0, ""))
        return ((*codes.shape[:-1], group * scales.shape[-1]), name) if group else None
    inputs = mlx_inputs(packed, packed.mlx_group)
    bits, rest = divmod(32 * words, packed.mlx_group)
    if inputs is None or rest or bits not in (2, 3, 4, 5, 6, 8):
        return None
    return (*codes.shape[:-1], inputs), f"mlx-int{bits}-g{packed.mlx_group}"


def _higgs(packed: Packed) -> Unpacked:
    """Codes along the outputs, [outputs x bits / 16, inputs]; scales [outputs, groups]."""
    codes, scales = packed.codes, packed.beside.get(".scales")
    if not (_is_matrix(codes) and _is_matrix(scales)):
        return None
    (rows, inputs), (outputs, groups) = codes.shape, scales.shape
    bits, rest = divmod(16 * rows, outputs)
    known = not rest and bits in (2, 3, 4)
    return ((outputs, inputs), f"higgs-int{bits}-g{ceil_div(inputs, groups)}") if known else None


def _hqq(packed: Packed) -> Unpacked:
    """Codes of all groups one after the other, whatever their shape; scales and zeros, one of each for a group."""
    codes, scales, shape = packed.codes, packed.beside.get(".scale"), packed.beside.get(".shape")
    if scales is None or shape is None or prod(scales.shape) < 1:
        return None
    outputs, inputs = packed.stated(codes, scales, shape)
    elements = outputs * inputs
    if outputs <= 0 or inputs <= 0 or elements % prod(scales.shape):
        return None
    group = elements // prod(scales.shape)
    if codes.format.name == "int32":  # ten to a word, padded
        known, bits = ceil_div(elements, 10) <= prod(codes.shape) <= ceil_div(elements, 10) + group, 3
    else:
        bits, rest = divmod(8 * prod(codes.shape), elements)
        known = not rest and bits in (1, 2, 4, 8)
    return ((outputs, inputs), f"hqq-int{bits}-g{group}") if known else None


# ---- two codes or one to a byte --------------------------------------------------------------------------------------


def _bytes(packed: Packed) -> Unpacked:
    """Elements of eight bits, or several to a byte, with scales beside them."""
    codes, beside = packed.codes, packed.beside
    shape = codes.shape
    if ".weight.absmax" in beside:
        return (2 * codes.stored_bytes,), "nf4-dq" if ".weight.nested_absmax" in beside else "nf4"
    if codes.format.packed is not None:  # a block type of GGML, with a scale for the whole tensor
        return shape, codes.format.name
    scales = next(
        (beside[end] for end in (".weight_scale", ".weight_scale_inv", ".scale", ".SCB") if end in beside), None
    )
    if scales is None:
        return (shape, "fp8") if codes.format.name == "fp8" else None
    if codes.dtype in ("U8", "I8") and _is_float8(scales):
        no_input_scale = ".input_scale" not in beside and ".input_global_scale" not in beside
        return _four_bits(codes, scales, "nvfp4a16" if no_input_scale else "nvfp4")
    if codes.dtype == "U8" and len(shape) == 2 and scales.shape in ((), (1,)):
        return (4 * shape[0], shape[1]), "bitnet"
    if codes.dtype == "U8":
        return None
    return shape, _scaled(codes, scales, "-static" if ".input_scale" in beside else "")


def _four_bits(codes: StoredTensor, scales: StoredTensor, nvfp4: str) -> Unpacked:
    """Two codes to a byte along the inputs, a scale for every 16 or 32 of them."""
    bytes_per_scale, name = (16, "mxfp4") if _is_exponent(scales) else (8, nvfp4)
    fits = _columns_per_scale(codes, scales) == bytes_per_scale
    return ((*codes.shape[:-1], 2 * codes.shape[-1]), name) if fits else None


def _scaled(codes: StoredTensor, scales: StoredTensor, static: str) -> str:
    kind = "fp8" if codes.format.name == "fp8" else "int8"
    rows, columns = (1, 1, *codes.shape)[-2:]
    if scales.shape in (codes.shape[:-1], (*codes.shape[:-1], 1)):
        return f"{kind}-channel"
    if kind == "fp8":
        if prod(scales.shape) == 1:
            return f"fp8-tensor{static}"
        if scales.shape[-2:] == (ceil_div(rows, 128), ceil_div(columns, 128)):
            return "fp8-block128-ue8m0" if _is_exponent(scales) else "fp8-block128"
        if _is_exponent(scales) and scales.shape[-2:] == (ceil_div(rows, 32), ceil_div(columns, 32)):
            return "fp8-block32-ue8m0"
        if _is_exponent(scales) and _columns_per_scale(codes, scales) == 32:
            return "mxfp8"
    return f"{kind}-scaled"


def _eetq(packed: Packed) -> Unpacked:
    """Bytes of [inputs, outputs], a scale for each output."""
    codes, scales = packed.codes, packed.beside[".weight_scales"]
    turned = _is_matrix(codes) and scales.shape == codes.shape[1:]
    return (codes.shape[::-1], "eetq") if turned and codes.dtype == "I8" else None


def _fp_quant(packed: Packed) -> Unpacked:
    codes, scales = packed.codes, packed.beside.get(".scales")
    if scales is None or ".forward_hadamard_matrix" not in packed.beside or codes.dtype != "U8":
        return None
    found = _four_bits(codes, scales, "nvfp4")
    return found and (found[0], f"fp-quant-{found[1]}")


def _torchao(packed: Packed) -> Unpacked:
    """The data of torchao's tensor classes, told apart by what they have beside them."""
    codes, beside = packed.codes, packed.beside
    scales = beside.get("._weight_scale")
    if scales is None:
        return _tiled(codes, beside.get("._weight_scale_and_zero"))
    if "._weight_per_tensor_scale" in beside or (_is_exponent(scales) and codes.dtype == "U8"):
        # Scales of micro-scaled formats may lie in tiles, so only how many there are can be told.
        elements, name = (32, "mxfp4") if _is_exponent(scales) else (16, "nvfp4a16")
        fits = len(codes.shape) > 1 and 2 * prod(codes.shape) == elements * prod(scales.shape)
        return ((*codes.shape[:-1], 2 * codes.shape[-1]), name) if fits else None
    if codes.format.name == "fp8":
        tiled = _is_exponent(scales) and prod(codes.shape) == 32 * prod(scales.shape)
        return codes.shape, "mxfp8" if tiled else _scaled(codes, scales, "")
    if "._weight_zero_point" not in beside or not (_is_matrix(codes) and _is_matrix(scales)):
        return None
    if scales.shape[0] == codes.shape[0] and codes.dtype == "I8":
        groups = scales.shape[1]
        whole = scales.format.name == "fp32" and groups == 1
        return codes.shape, "torchao-int8" if whole else "torchao-intx" + _group(codes.shape[1], groups)
    inputs = codes.shape[1] * (8 if codes.format.name == "int32" else 2)
    fits = scales.shape[1] == codes.shape[0]
    return ((codes.shape[0], inputs), "torchao-int4" + _group(inputs, scales.shape[0])) if fits else None


def _tiled(codes: StoredTensor, scales: StoredTensor | None) -> Unpacked:
    """Words in tiles [outputs / 8, inputs / 16 k, 32, k / 2]; scales and zeros [groups, outputs, 2]."""
    if scales is None or len(codes.shape) != 4 or len(scales.shape) != 3 or not prod((*codes.shape, *scales.shape)):
        return None
    outputs, inputs = 8 * codes.shape[0], 32 * codes.shape[1] * codes.shape[3]
    return (outputs, inputs), f"torchao-int4-tiled-g{ceil_div(inputs, scales.shape[0])}"


def _mxfp4_blocks(packed: Packed) -> Unpacked:
    """gpt-oss: blocks of 16 bytes, 32 elements, with one exponent each."""
    codes, (scales,) = packed.codes, packed.beside.values()
    *stack, blocks, size = (0, 0, *codes.shape)
    if size != 16 or codes.shape[:-1] != scales.shape:
        return None
    return (*stack[2:], 32 * blocks), "mxfp4"


# ---- code books and trellises ----------------------------------------------------------------------------------------


def _aqlm(packed: Packed) -> Unpacked:
    """Codes [outputs / o, inputs / i, books] into code books [books, entries, o, i]."""
    codes, books = packed.codes, packed.beside.get(".codebooks")
    if books is None or len(codes.shape) != 3 or len(books.shape) != 4 or codes.shape[2] != books.shape[0]:
        return None
    count, entries, rows, columns = books.shape
    bits = entries.bit_length() - 1
    return (codes.shape[0] * rows, codes.shape[1] * columns), f"aqlm-{count}x{bits}-v{columns}"


def _exl3(packed: Packed) -> Unpacked:
    """Tiles of 16 x 16 elements, each of 16 x bits words: [inputs / 16, outputs / 16, 16 x bits]."""
    if len(packed.codes.shape) != 3 or packed.codes.format.name != "int16":
        return None
    inputs, outputs, words = packed.codes.shape
    bits, rest = divmod(words, 16)
    return ((16 * outputs, 16 * inputs), f"exl3-{bits}bpw") if not rest and 0 < bits <= 8 else None


def _exl2(packed: Packed) -> Unpacked:
    """Rows of several widths one after the other; the permutation has an entry for each input."""
    order = packed.beside.get(".q_invperm") or packed.beside.get(".q_perm")
    if order is None or len(order.shape) != 1 or not _is_matrix(packed.codes):
        return None
    return (packed.codes.shape[1], order.shape[0]), "exl2-mixed"


# ---- what a tensor is ------------------------------------------------------------------------------------------------


def _is_matrix(tensor: StoredTensor | None) -> TypeGuard[StoredTensor]:
    return tensor is not None and len(tensor.shape) == 2 and prod(tensor.shape) > 0


def _is_exponent(scales: StoredTensor) -> bool:
    return scales.dtype in ("F8_E8M0", "U8")


def _is_float8(scales: StoredTensor) -> bool:
    return _is_exponent(scales) or scales.dtype == "F8_E4M3"


def _columns_per_scale(codes: StoredTensor, scales: StoredTensor) -> int | None:
    if len(codes.shape) < 2 or codes.shape[:-1] != scales.shape[:-1] or not scales.shape[-1]:
        return None
    columns, rest = divmod(codes.shape[-1], scales.shape[-1])
    return None if rest else columns


def _group(inputs: int, groups: int) -> str:
    return "-channel" if groups == 1 else f"-g{ceil_div(inputs, groups)}"
