"""Packed formats unpacked: names, shapes and bytes as the tools that write them lay them out."""

import pytest

from planner.sources.checkpoint import read_shards
from planner.storage import find
from tests.sources.builders import in_memory, safetensors


def weights(*tensors, data=b""):
    """What a file of these tensors amounts to; `data` are the first bytes of its tensors."""
    header, size = safetensors(tensors)
    return read_shards([in_memory(header + data, size)]).weights


def matrix(ending, name, *beside):
    """Tensors of one module: what is packed and what stands beside it."""
    return [("a.q_proj" + end, dtype, shape) for end, dtype, shape in [(ending, *name), *beside]]


OUT, IN = 1536, 4096
GROUPS = IN // 128

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
    "mxfp4": matrix(".weight", ("U8", (OUT, IN // 2)), (".weight_scale", "U8", (OUT, IN // 32))),
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


@pytest.mark.parametrize(("nested", "name"), [(False, "nf4"), (True, "nf4-dq")])
def test_bitsandbytes_tells_elements_but_no_shape(nested, name):
    blocks = OUT * IN // 64
    beside = [(".weight.quant_map", "F32", (16,))]
    if nested:
        beside += [(".weight.absmax", "U8", (blocks,)), (".weight.nested_absmax", "F32", (blocks // 256,))]
        beside += [(".weight.nested_quant_map", "F32", (256,))]
    else:
        beside += [(".weight.absmax", "F32", (blocks,))]
    beside += [(f".weight.quant_state.bitsandbytes__{'nf4' if nested else 'fp4'}", "U8", (90,))]
    (weight,) = weights(*matrix(".weight", ("U8", (OUT * IN // 2, 1)), *beside))
    assert (weight.name, weight.shape, weight.format) == ("a.q_proj.weight", (OUT * IN,), name)
    state_and_offset = 90 - (4 if nested else 0)  # a saved file has the offset in its state, a loaded model beside it
    assert weight.stored_bytes == find(name).stored_bytes((OUT, IN)) + state_and_offset


def test_the_order_of_rows_of_compressed_tensors_is_part_of_the_matrix():
    shape, *rest = reversed(compressed(4))
    order = ("a.q_proj.weight_g_idx", "I32", (IN,))
    (weight,) = weights(shape, *rest, order, data=OUT.to_bytes(8, "little") + IN.to_bytes(8, "little"))
    assert weight.stored_bytes == find("int4-sym-g128").stored_bytes((OUT, IN)) + 4 * IN


def compressed(bits, *, asymmetric=False, groups=GROUPS):
    beside = [(".weight_scale", "BF16", (OUT, groups))]
    if asymmetric:
        beside += [(".weight_zero_point", "I32", (OUT // 32 * bits, groups))]
    return matrix(".weight_packed", ("I32", (OUT, IN * bits // 32)), *beside, (".weight_shape", "I64", (2,)))


@pytest.mark.parametrize(
    ("tensors", "name"),
    [
        (compressed(4), "int4-sym-g128"),
        (compressed(4, groups=IN // 32), "int4-sym-g32"),
        (compressed(8), "int8-sym-g128"),
        (compressed(4, asymmetric=True), "int4-asym-g128"),
        (compressed(4, groups=1), "int4-channel"),
    ],
)
def test_the_width_of_compressed_tensors_is_read_from_two_integers(tensors, name):
    shape_first = [tensors[-1], *tensors[:-1]]
    data = OUT.to_bytes(8, "little") + IN.to_bytes(8, "little")
    (weight,) = weights(*shape_first, data=data)
    assert weight[:4] == ("a.q_proj.weight", (OUT, IN), name, find(name).stored_bytes((OUT, IN)))


@pytest.mark.parametrize("sides", [(0, 0), (OUT, -1), (OUT, 7), (OUT, 2**62)])
def test_a_stated_shape_that_no_width_explains_is_not_believed(sides):
    tensors = compressed(4)
    data = b"".join(side.to_bytes(8, "little", signed=True) for side in sides)
    (weight,) = weights(tensors[-1], *tensors[:-1], data=data)
    assert weight.counts == "unexplained"


@pytest.mark.parametrize(("blocks", "scales"), [("_blocks", "_scales"), (".blocks", ".scales")])
def test_experts_in_blocks_of_mxfp4(blocks, scales):
    (weight,) = weights(
        (f"e.gate_up_proj{blocks}", "U8", (32, 5760, 90, 16)), (f"e.gate_up_proj{scales}", "U8", (32, 5760, 90))
    )
    assert weight[:4] == ("e.gate_up_proj", (32, 5760, 2880), "mxfp4", find("mxfp4").stored_bytes((32, 5760, 2880)))


def test_scales_of_another_grain_are_named_as_such_and_elements_counted_right():
    (weight,) = weights(*matrix(".weight", ("F8_E4M3", (OUT, IN)), (".weight_scale", "F32", (OUT, IN // 64))))
    assert (weight.shape, weight.format) == ((OUT, IN), "fp8-scaled")


def test_what_is_no_parameter():
    found = weights(
        ("h.0.attn.bias", "U8", (1, 1, 8, 8)),
        ("a.rotary_emb.inv_freq", "F32", (64,)),
        ("a.self_attn.k_proj.k_scale", "F32", ()),
        ("position_ids", "I64", (1, 8)),
        ("counter", "I64", (3,)),
        ("mlp.gate.e_score_correction_bias", "F32", (256,)),
        ("a.q_proj.bias", "F16", (8,)),
        ("norm.scale", "BF16", (8,)),
    )
    assert [weight.counts for weight in found] == ["buffer"] * 5 + ["parameter"] * 3


def test_integers_in_no_known_packing_are_not_counted_as_anything():
    odd = [
        [("a.W_q", "U8", (4, 4))],
        [("a.q_weight", "I32", (4, 4))],
        matrix(".weight", ("U8", (4, 4)), (".scale", "F16", (4, 1))),
        matrix(".qweight", ("I32", (4, 8)), (".scales", "F16", (1, 8))),
        matrix(".qweight", ("I32", (4, 8)), (".qzeros", "I32", (1, 3)), (".scales", "F16", (1, 8))),
        matrix(".qweight", ("I32", (4, 8)), (".qzeros", "I32", (0, 0)), (".scales", "F16", (0, 0))),
        matrix(".weight_packed", ("I32", (4, 8)), (".weight_scale", "F16", (4, 1))),
        matrix(".weight_packed", ("I32", (4, 8)), (".weight_shape", "I64", (2,))),
        matrix(".weight_packed", ("I32", (4, 8)), (".weight_scale", "F16", (4, 1)), (".weight_shape", "I64", (3,))),
        matrix(".weight_packed", ("I32", (4, 8)), (".weight_scale", "F16", (4,)), (".weight_shape", "I64", (2,))),
        matrix(".weight", ("U8", (4, 16)), (".weight_scale", "U8", (3, 1))),
        matrix(".weight", ("U8", (16,)), (".weight_scale", "U8", (1,))),
        [("a_blocks", "U8", (2, 3, 8)), ("a_scales", "U8", (2, 3))],
    ]
    for tensors in odd:
        assert [weight.counts for weight in weights(*tensors)] == ["unexplained"], tensors


def test_a_plain_weight_keeps_what_stands_beside_it():
    found = weights(("a.weight", "BF16", (4, 4)), ("a.scale", "BF16", (4,)), ("a.weight_scale", "F32", ()))
    assert [weight.name for weight in found] == ["a.weight", "a.scale", "a.weight_scale"]
