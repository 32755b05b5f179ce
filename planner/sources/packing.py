"""From the tensors of a file to the weights of a model: packed formats unpacked, scales put where they belong.

A quantised matrix lies in a checkpoint as several tensors: codes, eight to an int32 or two to a byte, and beside them
scales, zero points, an order of rows, code tables. Those are bytes of the matrix, not parameters. What shape the codes
amount to is in `layouts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import NamedTuple

from planner.sources import layouts
from planner.sources.headers import StoredTensor
from planner.sources.layouts import Packed

Values = Callable[[StoredTensor], bytes]

# What holds the codes of a matrix -> what may stand beside it: module name + one of these, for module name + key.
_BESIDE: dict[str, tuple[str, ...]] = {
    ".qweight": (  # AWQ, GPTQ, AutoRound; FP-Quant
        ".qzeros",
        ".scales",
        ".g_idx",
        ".weight_global_scale",
        ".act_global_scale",
        ".forward_hadamard_matrix",
        ".backward_hadamard_matrix",
    ),
    ".weight_packed": (  # compressed-tensors
        ".weight_scale",
        ".weight_zero_point",
        ".weight_shape",
        ".weight_g_idx",
        ".weight_global_scale",
        ".input_global_scale",
        ".input_scale",
    ),
    ".weight": (  # fp8, int8, ModelOpt, Quark, bitsandbytes, BitNet, EETQ, MLX, HIGGS
        ".weight_scale",
        ".weight_scale_inv",
        ".weight_scale_2",
        ".weight_zero_point",
        ".weight_scales",
        ".scale",
        ".scales",
        ".biases",
        ".qbiases",
        ".tables",
        ".tables2",
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
    "._weight_qdata": (  # torchao
        "._weight_scale",
        "._weight_zero_point",
        "._weight_scale_and_zero",
        "._weight_per_tensor_scale",
        "._weight_act_per_tensor_scale",
        "._weight_act_pre_scale",
        "._weight_act_quant_scale",
        "._weight_act_quant_zero_point",
    ),
    ".W_q": tuple(  # HQQ: what a layer needs to be made again is stored with it
        f".{word}"
        for word in (
            "scale zero shape nbits group_size axis packing unpack_view_dtype view_as_float quant_scale quant_zero "
            "compute_dtype offload_meta encoded_state_dict stores_quant_config channel_wise optimize round_zero"
        ).split()
    ),
    ".codes": (".codebooks", ".scales"),  # AQLM
    ".trellis": (".suh", ".svh", ".su", ".sv", ".mcg", ".mul1"),  # EXL3
    ".q_weight": (".q_scale", ".q_scale_max", ".q_groups", ".q_group_map", ".q_invperm", ".q_perm"),  # EXL2
    "_blocks": ("_scales",),  # gpt-oss
    ".blocks": (".scales",),
}
_ENDING = re.compile("(" + "|".join(map(re.escape, _BESIDE)) + ")$")
_CONVOLUTION = re.compile(r"\.(?:[qkv]_conv1d|conv1d|conv\.conv)\.weight$")
_KEYS, _VALUES = ".embed_q.weight", ".unembed_out.weight"
_QUERY, _GATE = ".self_attn.q_proj.weight", ".self_attn.gate_proj.weight"
_WORDS = ("int32", "int16")  # formats whose elements hold several codes

# What frameworks store though it is computed, not learned: positions, masks, scales of a cache, factors of RoPE.
_BUFFER = re.compile(
    r"(rotary_emb\.inv_freq|attn\.bias|attention\.bias|masked_bias|position_ids|[kvq]_scale|tid2eid|d2t|t2d"
    r"|^rope_freqs\.weight|^rope_factors_(long|short)\.weight|num_batches_tracked)$"
)


class Weight(NamedTuple):
    """A matrix or vector of the model: its shape unpacked, and all the bytes that a file spends on it.

    `format` is a storage format's name, or ends in ``-scaled`` or ``-mixed`` where no named one is so. The shape of
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

    ``values(tensor)`` reads a tensor's bytes. It is asked only for two integers that state a matrix's shape, once for
    each kind of matrix, where a header cannot tell how wide its codes are (compressed-tensors, HQQ).
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    packed: dict[str, Packed] = {}
    taken: set[str] = set()
    stated = _stated_sides(values)
    for tensor in by_name.values():
        match = _ENDING.search(tensor.name)
        if match and (tensor.format.bits <= 8 or tensor.format.name in _WORDS):
            module = tensor.name[: match.start()]
            names = {end: module + end for end in _BESIDE[match[0]]}
            beside = {end: by_name[name] for end, name in names.items() if name in by_name and name not in taken}
            if beside:
                packed[tensor.name] = Packed(match[0], tensor, beside, stated)
                taken.update(side.name for side in beside.values())
    group = _mlx_group(by_name.values(), packed.values())
    yield from _joined(
        _weight(packed[tensor.name]._replace(mlx_group=group))
        if tensor.name in packed
        else Weight(tensor.name, _plain_shape(tensor), tensor.format.name, tensor.stored_bytes, _counts(tensor))
        for tensor in by_name.values()
        if tensor.name not in taken
    )


def _joined(weights: Iterable[Weight]) -> Iterator[Weight]:
    """Make the halves whole that a contract has as one matrix.

    MLX keeps those of a latent's `kv_b_proj`, [heads, latent, key] and [heads, value, latent]; Trinity keeps the gate
    on the heads' output apart from the query that it is computed beside.
    """
    weights = list(weights)
    seconds = [weight for weight in weights if weight.name.endswith((_VALUES, _GATE)) and weight.counts == "parameter"]
    firsts = {weight.name: weight for weight in weights} if seconds else {}
    joined: dict[str, Weight | None] = {}
    for second in seconds:
        stem = second.name.removesuffix(_VALUES).removesuffix(_GATE)
        first = firsts.get(stem + (_KEYS if second.name.endswith(_VALUES) else _QUERY))
        whole = first and _whole(stem, first, second)
        if first and whole:
            joined |= {first.name: whole, second.name: None}
    yield from (whole for weight in weights if (whole := joined.get(weight.name, weight)))


def _whole(stem: str, first: Weight, second: Weight) -> Weight | None:
    """The matrix of which two weights are halves, or None if they do not fit together."""
    name, shape = first.name, None
    if name.endswith(_QUERY) and first.shape == second.shape and len(first.shape) == 2:
        shape = (2 * first.shape[0], first.shape[1])
    elif name.endswith(_KEYS) and len(first.shape) == len(second.shape) == 3 and second.shape[::2] == first.shape[:2]:
        heads, latent, key = first.shape
        name, shape = stem + ".kv_b_proj.weight", (heads * (key + second.shape[1]), latent)
    stored, tensors = first.stored_bytes + second.stored_bytes, first.stored_as + second.stored_as
    return Weight(name, shape, first.format, stored, tensors=tensors) if shape else None


def _plain_shape(tensor: StoredTensor) -> tuple[int, ...]:
    """The shape of a tensor that is not packed; MLX has the width of a convolution of each channel in the middle."""
    if _CONVOLUTION.search(tensor.name) and len(tensor.shape) == 3 and tensor.shape[2] == 1:
        return tensor.shape[0], 1, tensor.shape[1]
    return tensor.shape


def _counts(tensor: StoredTensor) -> str:
    if _BUFFER.search(tensor.name):
        return "buffer"
    if tensor.format.name.startswith("int"):
        return "unexplained" if len(tensor.shape) > 1 else "buffer"
    return "parameter"


def _weight(packed: Packed) -> Weight:
    codes, sides = packed.codes, packed.beside.values()
    stored = codes.stored_bytes + sum(side.stored_bytes for side in sides)
    names = (codes.name, *(side.name for side in sides))
    unpacked = layouts.read(packed)
    if unpacked is None:
        return Weight(codes.name, codes.shape, codes.format.name, stored, "unexplained", names)
    module = codes.name.removesuffix(packed.ending)
    name = module if packed.ending in ("_blocks", ".blocks") else f"{module}.weight"
    return Weight(name, *unpacked, stored, tensors=names)


def _stated_sides(values: Values) -> layouts.Stated:
    """Reads the two sides that a tensor states, once for each kind of matrix: those of equal modules are equal."""
    known: dict[tuple[str, tuple[int, ...], tuple[int, ...]], tuple[int, int]] = {}

    def sides(codes: StoredTensor, scales: StoredTensor, shape: StoredTensor) -> tuple[int, int]:
        kind = re.sub(r"\d+", "", shape.name), codes.shape, scales.shape
        if kind not in known:
            if (shape.shape, shape.dtype) != ((2,), "I64"):
                return 0, 0
            data = values(shape)
            rows, columns = (int.from_bytes(data[at : at + 8], "little", signed=True) for at in (0, 8))
            known[kind] = rows, columns
        return known[kind]

    return sides


def _mlx_group(tensors: Iterable[StoredTensor], packed: Iterable[Packed]) -> int:
    """The group size of MLX's matrices, which no header says: that by which most rows are as long as a norm is."""
    vectors = {tensor.shape[0] for tensor in tensors if len(tensor.shape) == 1 and tensor.format.plain}
    groups = [count for matrix in packed if (count := layouts.mlx_inputs(matrix, 1))]
    return max(layouts.MLX_GROUPS, key=lambda size: sum(size * count in vectors for count in groups))
