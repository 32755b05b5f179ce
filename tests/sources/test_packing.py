"""Packed weights put together: what belongs to which matrix, what has to be looked up, and what is no parameter."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.sources.checkpoint import read_shards
from planner.storage import find
from tests.sources.builders import entries, in_memory, read_or_refuse, safetensors
from tests.sources.packed import GROUPS, IN, OUT, matrix, weights


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


def mlx(size, bits, inputs=IN):
    return matrix(
        ".weight",
        ("U32", (OUT, inputs * bits // 32)),
        (".scales", "BF16", (OUT, inputs // size)),
        (".biases", "BF16", (OUT, inputs // size)),
    )


@pytest.mark.parametrize(("size", "bits"), [(64, 4), (32, 8), (128, 2), (32, 4), (128, 6), (64, 5)])
def test_how_wide_the_codes_of_mlx_are_is_told_by_the_norms(size, bits):
    """Four bits by 64, eight by 32 and two by 128 have the same words and scales; only the length of a row differs."""
    matrix, norm = weights(*mlx(size, bits), ("norm.weight", "BF16", (IN,)))
    name = f"mlx-int{bits}-g{size}"
    assert matrix[:4] == ("a.q_proj.weight", (OUT, IN), name, find(name).stored_bytes((OUT, IN)))
    assert norm.shape == (IN,)


def test_without_a_norm_groups_of_mlx_are_of_64():
    (matrix,) = weights(*mlx(64, 4))
    assert (matrix.shape, matrix.format) == ((OUT, IN), "mlx-int4-g64")


def test_a_matrix_of_several_widths_has_a_shape_and_bytes_and_no_named_format():
    (weight,) = weights(
        *matrix(
            ".q_weight",
            ("I32", (IN // 7, OUT)),
            (".q_scale", "I32", (IN // 128, OUT // 8)),
            (".q_scale_max", "F16", (IN // 128,)),
            (".q_groups", "I16", (IN // 64,)),
            (".q_invperm", "I16", (IN,)),
        )
    )
    assert (weight.shape, weight.format) == ((OUT, IN), "exl2-mixed")
    assert weight.stored_bytes == 4 * (IN // 7) * OUT + GROUPS * (OUT // 2 + 2) + IN // 64 * 2 + 2 * IN


def test_what_is_read_of_a_shape_is_read_once_for_each_kind_of_module():
    """HQQ stores codes as they come: a matrix and its transpose differ in nothing but the shape that they state."""
    tensors, values = [], {}
    for name, sides in [("0.up", (64, 32)), ("1.up", (64, 32)), ("0.down", (32, 64)), ("1.down", (32, 64))]:
        tensors += [
            (f"{name}.W_q", "U8", (16, 64)),
            (f"{name}.scale", "F16", (32, 1)),
            (f"{name}.zero", "F16", (32, 1)),
        ]
        tensors += [(f"{name}.shape", "I64", (2,))]
        values[f"{name}.shape"] = sides
    header, size = safetensors(tensors)
    table, _ = entries(tensors)
    data, asked = bytearray(header + bytes(size - len(header))), []
    for name, sides in values.items():
        at = len(header) + table[name]["data_offsets"][0]
        data[at : at + 16] = b"".join(side.to_bytes(8, "little") for side in sides)
    file = in_memory(bytes(data))
    spied = type(file)(file.place, file.size, lambda at, n: asked.append(n) or file.open_range(at, n))
    found = read_shards([spied]).weights
    assert {weight.name: weight.shape for weight in found} == {
        name.replace(".shape", ".weight"): sides for name, sides in values.items()
    }
    assert {weight.format for weight in found} == {"hqq-int4-g64"}
    assert asked.count(16) == 2


@pytest.mark.parametrize(("blocks", "scales"), [("_blocks", "_scales"), (".blocks", ".scales")])
def test_experts_in_blocks_of_mxfp4(blocks, scales):
    (weight,) = weights(
        (f"e.gate_up_proj{blocks}", "U8", (32, 5760, 90, 16)), (f"e.gate_up_proj{scales}", "U8", (32, 5760, 90))
    )
    assert weight[:4] == ("e.gate_up_proj", (32, 5760, 2880), "mxfp4", find("mxfp4").stored_bytes((32, 5760, 2880)))


def test_the_halves_of_a_latent_are_one_weight_where_they_fit():
    halves = [("a.embed_q.weight", "BF16", (4, 64, 16)), ("a.unembed_out.weight", "BF16", (4, 32, 64))]
    (weight,) = weights(*halves)
    assert weight[:4] == ("a.kv_b_proj.weight", (4 * (16 + 32), 64), "bf16", 2 * 4 * 48 * 64)
    assert weight.stored_as == ("a.embed_q.weight", "a.unembed_out.weight")
    for other in (4, 32, 63), (3, 32, 64), (32, 64):
        apart = weights(halves[0], ("a.unembed_out.weight", "BF16", other))
        assert [weight.name for weight in apart] == ["a.embed_q.weight", "a.unembed_out.weight"]


def test_a_query_and_the_gate_beside_it_are_one_weight_if_they_are_alike():
    """As Trinity stores them."""
    query, gate = (f"layers.0.self_attn.{part}_proj.weight" for part in ("q", "gate"))
    (weight,) = weights((query, "BF16", (32, 64)), (gate, "BF16", (32, 64)))
    assert weight[:4] == (query, (64, 64), "bf16", 2 * 64 * 64)
    assert weight.stored_as == (query, gate)
    assert [w.name for w in weights((query, "BF16", (32, 64)), (gate, "BF16", (4, 64)))] == [query, gate]
    assert [w.name for w in weights((gate, "BF16", (32, 64)))] == [gate]


@pytest.mark.parametrize("name", ["a.conv1d.weight", "a.conv.conv.weight"])
def test_a_convolution_of_each_channel_has_its_width_last(name):
    """As MLX stores it, and as others do."""
    for shape in (64, 4, 1), (64, 1, 4):
        assert weights((name, "BF16", shape))[0].shape == (64, 1, 4)
    assert weights(("a.other.weight", "BF16", (64, 4, 1)))[0].shape == (64, 4, 1)


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
        matrix(".trellis", ("I16", (2, 2, 160)), (".suh", "F16", (32,))),
        matrix(".trellis", ("I16", (2, 2, 17)), (".suh", "F16", (32,))),
        matrix(".weight", ("U32", (4, 8)), (".scales", "BF16", (4, 3)), (".biases", "BF16", (4, 3))),
        matrix(".weight", ("U32", (4, 7)), (".scales", "BF16", (4, 1)), (".biases", "BF16", (4, 1))),
        matrix(".weight", ("U32", (4, 8)), (".scales", "BF16", (4, 1))),
        matrix(".weight", ("U32", (4, 8)), (".scales", "U8", (4, 8))),
        matrix(".weight", ("I16", (5, 64)), (".scales", "F16", (16, 1))),
        matrix(".W_q", ("U8", (4, 4)), (".scale", "F16", (4, 1))),
        matrix(".W_q", ("U8", (4, 4)), (".scale", "F16", (4, 1)), (".shape", "I64", (2,))),
        matrix(".codes", ("I16", (4, 4, 2)), (".codebooks", "F16", (1, 256, 1, 8))),
        matrix("._weight_qdata", ("I8", (4, 8)), ("._weight_zero_point", "I8", (4, 1))),
        matrix("._weight_qdata", ("I32", (1, 1, 32, 4)), ("._weight_scale_and_zero", "BF16", (1, 0, 2))),
        matrix(
            "._weight_qdata", ("I8", (4, 8)), ("._weight_scale", "BF16", (3, 1)), ("._weight_zero_point", "I8", (3, 1))
        ),
        matrix(".q_weight", ("I32", (4, 8)), (".q_scale", "I32", (1, 1))),
    ]
    for tensors in odd:
        assert [weight.counts for weight in weights(*tensors)] == ["unexplained"], tensors


def test_a_plain_weight_keeps_what_stands_beside_it():
    found = weights(("a.weight", "BF16", (4, 4)), ("a.scale", "BF16", (4,)), ("a.weight_scale", "F32", ()))
    assert [weight.name for weight in found] == ["a.weight", "a.scale", "a.weight_scale"]


ENDINGS = """
    .qweight .qzeros .scales .g_idx .weight .weight_scale .weight_packed .weight_shape .SCB .scale .weight.absmax
    .biases .qbiases .weight_scales .weight_zero_point .tables .forward_hadamard_matrix ._weight_qdata
    ._weight_scale ._weight_zero_point ._weight_scale_and_zero ._weight_per_tensor_scale .W_q .zero .shape .codes
    .codebooks .trellis .suh .q_weight .q_invperm _blocks _scales .blocks
""".split()
WHOLE = ["lm_head.weight", "norm.weight", "a.embed_q.weight", "a.unembed_out.weight", "a.kv_b_proj.weight"]
WHOLE += ["a.self_attn.q_proj.weight", "a.self_attn.gate_proj.weight"]
NAMES = st.sampled_from(ENDINGS).map("a{}".format) | st.sampled_from(WHOLE)
TENSORS = st.dictionaries(
    NAMES,
    st.tuples(
        st.sampled_from(["I32", "U32", "I16", "F16", "F32", "U8", "I8", "F8_E4M3", "F8_E8M0", "I64", "BF16"]),
        st.lists(st.sampled_from([0, 1, 2, 4, 8, 16, 32, 128, 256]), max_size=4).map(tuple),
    ),
    min_size=1,
)


def check_mixture(tensors, data):
    header, size = safetensors([(name, *tensor) for name, tensor in tensors.items()])
    file = in_memory(header + data, size)
    checkpoint = read_shards([file])
    assert sum(weight.stored_bytes for weight in checkpoint.weights) == checkpoint.stored_bytes
    assert len({weight.name for weight in checkpoint.weights}) <= len(checkpoint.tensors)
    parameters = read_or_refuse(lambda: checkpoint.parameters)
    assert parameters is None or parameters >= 0


@given(TENSORS, st.binary(max_size=64))
def test_every_byte_of_any_mixture_of_tensors_belongs_to_one_weight(tensors, data):
    check_mixture(tensors, data)


@pytest.mark.fuzz
@settings(max_examples=20_000)
@given(TENSORS, st.binary(max_size=64))
def test_every_byte_of_many_mixtures_belongs_to_one_weight(tensors, data):
    check_mixture(tensors, data)
