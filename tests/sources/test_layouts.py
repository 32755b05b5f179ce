"""The layouts of the tools that quantise: shape, format and bytes of the same matrix as each of them writes it."""

import pytest

from planner.storage import find
from tests.sources.packed import GROUPS, IN, OUT, matrix, weights

LAYOUTS = {
    "awq-g128": matrix(
        ".qweight",
        ("I32", (IN, OUT // 8)),
        (".qzeros", "I32", (GROUPS, OUT // 8)),
        (".scales", "F16", (GROUPS, OUT)),
    ),
    "awq-g64": matrix(
        ".qweight",
        ("I32", (IN, OUT // 8)),
        (".qzeros", "I32", (IN // 64, OUT // 8)),
        (".scales", "F16", (IN // 64, OUT)),
    ),
    "gptq-g128": matrix(
        ".qweight",
        ("I32", (IN // 8, OUT)),
        (".qzeros", "I32", (GROUPS, OUT // 8)),
        (".scales", "F16", (GROUPS, OUT)),
        (".g_idx", "I32", (IN,)),
    ),
    "gptq-channel": matrix(
        ".qweight",
        ("I32", (IN // 8, OUT)),
        (".qzeros", "I32", (1, OUT // 8)),
        (".scales", "F16", (1, OUT)),
        (".g_idx", "I32", (IN,)),
    ),
    "gptq-int8-g128": matrix(
        ".qweight",
        ("I32", (IN // 4, OUT)),
        (".qzeros", "I32", (GROUPS, OUT // 4)),
        (".scales", "F16", (GROUPS, OUT)),
        (".g_idx", "I32", (IN,)),
    ),
    "gptq-int3-g128": matrix(
        ".qweight",
        ("I32", (IN * 3 // 32, OUT)),
        (".qzeros", "I32", (GROUPS, OUT * 3 // 32)),
        (".scales", "F16", (GROUPS, OUT)),
        (".g_idx", "I32", (IN,)),
    ),
    "fp8-block128": matrix(".weight", ("F8_E4M3", (OUT, IN)), (".weight_scale_inv", "F32", (OUT // 128, IN // 128))),
    "fp8-block128-ue8m0": matrix(".weight", ("F8_E4M3", (OUT, IN)), (".scale", "F8_E8M0", (OUT // 128, IN // 128))),
    "fp8-block32-ue8m0": matrix(
        ".weight", ("F8_E4M3", (OUT, IN)), (".weight_scale_inv", "F8_E8M0", (OUT // 32, IN // 32))
    ),
    "fp8-channel": matrix(".weight", ("F8_E4M3", (OUT, IN)), (".weight_scale", "F32", (OUT, 1))),
    "fp8-tensor": matrix(".weight", ("F8_E4M3", (OUT, IN)), (".weight_scale", "F32", ())),
    "fp8-tensor-static": matrix(
        ".weight", ("F8_E4M3", (OUT, IN)), (".weight_scale", "F32", ()), (".input_scale", "F32", ())
    ),
    "mxfp8": matrix(".weight", ("F8_E4M3", (OUT, IN)), (".weight_scale", "U8", (OUT, IN // 32))),
    "int8-channel": matrix(".weight", ("I8", (OUT, IN)), (".SCB", "F32", (OUT,))),
    "nvfp4": matrix(
        ".weight",
        ("U8", (OUT, IN // 2)),
        (".weight_scale", "F8_E4M3", (OUT, IN // 16)),
        (".weight_scale_2", "F32", ()),
        (".input_scale", "F32", ()),
    ),
    "nvfp4a16": matrix(
        ".weight_packed",
        ("U8", (OUT, IN // 2)),
        (".weight_scale", "F8_E4M3", (OUT, IN // 16)),
        (".weight_global_scale", "F32", (1,)),
    ),
    "mxfp4": matrix(".weight", ("U8", (OUT, IN // 2)), (".weight_scale", "U8", (OUT, IN // 32))),
    "auto-round-int4-g128": matrix(
        ".qweight",
        ("I32", (IN // 8, OUT)),
        (".qzeros", "I32", (GROUPS, OUT // 8)),
        (".scales", "F16", (GROUPS, OUT)),
    ),
    "auto-round-int2-g32": matrix(
        ".qweight",
        ("I32", (IN // 16, OUT)),
        (".qzeros", "I32", (IN // 32, OUT // 16)),
        (".scales", "F16", (IN // 32, OUT)),
    ),
    "fp-quant-mxfp4": matrix(
        ".qweight",
        ("U8", (OUT, IN // 2)),
        (".scales", "U8", (OUT, IN // 32)),
        (".forward_hadamard_matrix", "BF16", (32, 32)),
        (".backward_hadamard_matrix", "BF16", (32, 32)),
        (".weight_global_scale", "F32", (1,)),
        (".act_global_scale", "F32", (1,)),
    ),
    "fp-quant-nvfp4": matrix(
        ".qweight",
        ("U8", (OUT, IN // 2)),
        (".scales", "F8_E4M3", (OUT, IN // 16)),
        (".forward_hadamard_matrix", "BF16", (16, 16)),
        (".backward_hadamard_matrix", "BF16", (16, 16)),
        (".weight_global_scale", "F32", (1,)),
        (".act_global_scale", "F32", (1,)),
    ),
    "torchao-int4-g128": matrix(
        "._weight_qdata",
        ("U8", (OUT, IN // 2)),
        ("._weight_scale", "BF16", (GROUPS, OUT)),
        ("._weight_zero_point", "BF16", (GROUPS, OUT)),
    ),
    "aqlm-1x16-v8": matrix(
        ".codes",
        ("I16", (OUT, IN // 8, 1)),
        (".codebooks", "F16", (1, 65_536, 1, 8)),
        (".scales", "F16", (OUT, 1, 1, 1)),
    ),
    "aqlm-2x8-v8": matrix(
        ".codes",
        ("I8", (OUT, IN // 8, 2)),
        (".codebooks", "F16", (2, 256, 1, 8)),
        (".scales", "F16", (OUT, 1, 1, 1)),
    ),
    "exl3-5bpw": matrix(
        ".trellis", ("I16", (IN // 16, OUT // 16, 80)), (".suh", "F16", (IN,)), (".svh", "F16", (OUT,))
    ),
}


# Layouts of other tools that amount to the same format, some with a few bytes more beside the matrix.
VARIANTS = [
    ("mxfp4", 0, matrix(".weight", ("I8", (OUT, IN // 2)), (".scale", "F8_E8M0", (OUT, IN // 32)))),
    ("mxfp4", 0, matrix(".weight_packed", ("U8", (OUT, IN // 2)), (".weight_scale", "U8", (OUT, IN // 32)))),
    (
        "nvfp4",
        4,
        matrix(
            ".weight_packed",
            ("U8", (OUT, IN // 2)),
            (".weight_scale", "F8_E4M3", (OUT, IN // 16)),
            (".weight_global_scale", "F32", (1,)),
            (".input_global_scale", "F32", (1,)),
            (".input_scale", "F32", ()),
        ),
    ),
    (
        "int8-channel",
        OUT + 1,
        matrix(
            ".weight",
            ("I8", (OUT, IN)),
            (".weight_scale", "F32", (OUT, 1)),
            (".weight_zero_point", "I8", (OUT, 1)),
            (".weight_format", "U8", ()),
        ),
    ),
    (
        "awq-g128",
        0,
        matrix(
            ".weight",
            ("I32", (IN, OUT // 8)),
            (".weight_scale", "F16", (GROUPS, OUT)),
            (".weight_zero_point", "I32", (GROUPS, OUT // 8)),
        ),
    ),
    (
        "torchao-int4-g128",
        0,
        matrix(
            "._weight_qdata",
            ("I32", (OUT, IN // 8)),
            ("._weight_scale", "BF16", (GROUPS, OUT)),
            ("._weight_zero_point", "BF16", (GROUPS, OUT)),
        ),
    ),
    (
        "torchao-int4-tiled-g128",
        0,
        matrix(
            "._weight_qdata",
            ("I32", (OUT // 8, IN // 128, 32, 4)),
            ("._weight_scale_and_zero", "BF16", (GROUPS, OUT, 2)),
        ),
    ),
    (  # scales in tiles
        "mxfp4",
        0,
        matrix("._weight_qdata", ("U8", (OUT, IN // 2)), ("._weight_scale", "F8_E8M0", (OUT // 4, IN // 8))),
    ),
    (
        "exl3-4bpw",
        4,
        matrix(
            ".trellis",
            ("I16", (IN // 16, OUT // 16, 64)),
            (".suh", "F16", (IN,)),
            (".svh", "F16", (OUT,)),
            (".mcg", "I32", ()),
        ),
    ),
]


@pytest.mark.parametrize(("name", "more", "tensors"), VARIANTS, ids=[name for name, *_ in VARIANTS])
def test_other_layouts_of_the_same_format(name, more, tensors):
    (weight,) = weights(*tensors)
    assert weight[:4] == ("a.q_proj.weight", (OUT, IN), name, find(name).stored_bytes((OUT, IN)) + more)


def test_tiles_are_of_128_whatever_the_size():
    shape = (130 * 128, 3 * 128 + 1)
    (weight,) = weights(*matrix(".weight", ("F8_E4M3", shape), (".weight_scale_inv", "F32", (130, 4))))
    assert weight.format == "fp8-block128"
    assert weight.stored_bytes == find("fp8-block128").stored_bytes(shape)


def test_as_many_tiles_as_rows_are_still_tiles():
    """DeepSeek-V3's output projections: 56 x 128 scales for 7168 rows."""
    tensors = matrix(".weight", ("F8_E4M3", (7168, 16_384)), (".weight_scale_inv", "F32", (56, 128)))
    assert weights(*tensors)[0].format == "fp8-block128"


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_packed_matrix_is_one_weight_with_the_bytes_of_its_format(name):
    (weight,) = weights(*LAYOUTS[name])
    assert weight[:4] == ("a.q_proj.weight", (OUT, IN), name, find(name).stored_bytes((OUT, IN)))
