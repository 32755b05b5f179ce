"""The header of a GGUF file: what the gguf package writes is read, what is wrong or hostile is refused."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.sources.gguf_header import MAX_KEPT, MAX_KEYS, MAX_WORDS, Long, read_gguf
from planner.sources.headers import ByteRanges, local_file
from tests.sources.builders import gguf, gguf_text, gguf_value, in_memory, read_or_refuse


def file_of(metadata, tensors, **settings):
    data, size = gguf(metadata, tensors, **settings)
    return in_memory(data, size, "x.gguf")


def raw(data, size=None):
    return in_memory(data, size, "x.gguf")


def head(n_tensors=0, n_keys=0, version=3):
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys)


@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_what_the_package_writes_is_read(tmp_path, alignment):
    library = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    writer = library.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    writer.add_block_count(2)
    writer.add_head_count_kv([8, 8])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"word {i}" for i in range(3000)])
    writer.add_token_types([1] * 3000)
    writer.add_chat_template("x" * 5000)
    writer.add_tensor("token_embd.weight", np.zeros((10, 256), np.float16))
    packed = library.quants.quantize(np.zeros((3, 7, 512), np.float32), library.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.ffn_up_exps.weight", packed, raw_dtype=library.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.0.attn_norm.weight", np.zeros(256, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_gguf(local_file(path))
    assert header.metadata["general.architecture"] == "llama"
    assert header.metadata["llama.block_count"] == 2
    assert header.metadata["llama.attention.head_count_kv"] == [8, 8]
    assert header.metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-5)
    assert header.metadata["tokenizer.ggml.tokens"] == Long(3000)
    assert header.metadata["tokenizer.ggml.token_type"] == Long(3000)
    assert header.metadata["tokenizer.chat_template"] == Long(5000)
    theirs = library.GGUFReader(path)
    for ours, other in zip(header.tensors, theirs.tensors, strict=True):
        assert ours.name == other.name
        assert ours.shape == tuple(int(side) for side in reversed(other.shape))
        assert ours.format.ggml == int(other.tensor_type)
        assert ours.stored_bytes == other.n_bytes
        assert ours.offset == other.data_offset


def test_every_scalar_type_is_read():
    codes = {0: ("B", 7), 1: ("b", -7), 2: ("H", 9), 3: ("h", -9), 4: ("I", 2**31), 5: ("i", -1), 6: ("f", 0.5)}
    codes |= {7: ("?", True), 10: ("Q", 2**63), 11: ("q", -(2**62)), 12: ("d", 0.1)}
    data = head(n_keys=len(codes))
    for kind, (code, value) in codes.items():
        data += gguf_text(str(kind)) + struct.pack(f"<I{code}", kind, value)
    assert read_gguf(raw(data)).metadata == {str(kind): value for kind, (_, value) in codes.items()}


def test_only_the_header_is_read_and_long_metadata_is_passed_over():
    metadata = {"a": "x" * 30_000_000, "general.architecture": "llama"}
    data, size = gguf(metadata, [("w", "Q4_K", (2**20, 2**20))])
    asked = []

    def open_range(offset, length):
        asked.append(length)
        return data[offset : offset + length] + bytes(max(0, offset + length - len(data)))

    header = read_gguf(ByteRanges("x.gguf", size, open_range))
    assert header.metadata == {"a": Long(30_000_000), "general.architecture": "llama"}
    assert sum(asked) <= 3 * 2**20


def test_a_header_of_many_chunks_gives_what_one_chunk_gives():
    words = ["word" * (i % 9) for i in range(400_000)]
    found = read_gguf(file_of({"tokenizer.ggml.tokens": words, "b": 3}, [("w", "F32", (5,))]))
    assert found.metadata == {"tokenizer.ggml.tokens": Long(400_000), "b": 3}
    assert found.tensors[0].shape == (5,)


def one_tensor(name="w", sides=(4,), number=0, offset=0, n_dims=None):
    text = gguf_text(name) + struct.pack("<I", len(sides) if n_dims is None else n_dims)
    return head(1) + text + struct.pack(f"<{len(sides)}Q", *sides) + struct.pack("<IQ", number, offset)


def one_key(value, key="k"):
    return head(n_keys=1) + gguf_text(key) + value


HOSTILE = {
    "empty file": (raw(b""), "cut off: its header needs 4 bytes, the file has 0"),
    "another file": (raw(b"PK\3\4" + bytes(60)), "not a GGUF file: it does not begin with GGUF"),
    "version 1": (raw(head(version=1)), "GGUF version 1 is not read; versions 2 and 3 are"),
    "big endian": (raw(head(version=3 << 24)), "big-endian GGUF version 50331648 is not read"),
    "2^63 tensors": (raw(head(2**63)), "9,223,372,036,854,775,808 tensors in one file; at most 250,000 are read"),
    "2^63 keys": (raw(head(0, 2**63)), f"metadata keys; at most {MAX_KEYS:,} are read"),
    "cut off in the keys": (raw(head(0, 1)), "cut off: its header needs 32 bytes, the file has 24"),
    "a name of 2^63": (raw(head(0, 1) + struct.pack("<Q", 2**63)), f"bytes at 32; at most {MAX_KEPT:,} are read"),
    "a text of 2^63": (raw(one_key(struct.pack("<IQ", 8, 2**63))), "cut off: its header needs"),
    "an array of 2^63": (raw(one_key(struct.pack("<IIQ", 9, 4, 2**63))), "cut off: its header needs"),
    "2^63 words": (raw(one_key(struct.pack("<IIQ", 9, 8, 2**63))), f"texts; at most {MAX_WORDS:,} are read"),
    "words that end nowhere": (
        raw(one_key(struct.pack("<IIQ", 9, 8, 2) + gguf_text("a"))),
        "cut off: its header needs",
    ),
    "a header in a hole": (
        raw(one_key(struct.pack("<IQ", 8, 2 * 10**8)), 10**9),
        "a header of more than 64,000,000 bytes is refused",
    ),
    "arrays in arrays": (raw(one_key(struct.pack("<IIQ", 9, 9, 1))), "metadata 'k': arrays of type 9 are not read"),
    "an unknown type": (raw(one_key(struct.pack("<I", 13))), "metadata 'k': value type 13 is not known"),
    "not UTF-8": (raw(one_key(struct.pack("<I", 8) + gguf_text(b"\xff"))), "is not UTF-8"),
    "a key twice": (
        raw(head(0, 2) + 2 * (gguf_text("k") + struct.pack("<II", 4, 1))),
        "the metadata key 'k' is there twice",
    ),
    "alignment 0": (file_of({"general.alignment": 0}, []), "general.alignment = 0 is not a power of 2"),
    "alignment 48": (file_of({"general.alignment": 48}, []), "general.alignment = 48 is not a power of 2"),
    "alignment a text": (file_of({"general.alignment": "32"}, []), "general.alignment = '32' is not a power of 2"),
    "a tensor twice": (file_of({}, [("w", "F32", (8,)), ("w", "F32", (8,))]), "the tensor 'w' is there twice"),
    "an escape in a name": (file_of({}, [("\x1b[2J", "F32", (8,))]), "the tensor name '\\x1b[2J' is not printable"),
    "five dimensions": (raw(one_tensor(n_dims=5)), "tensor 'w': 5 dimensions; GGML has at most 4"),
    "2^32 dimensions": (raw(one_tensor(n_dims=2**32 - 1)), "4,294,967,295 dimensions; GGML has at most 4"),
    "a removed type": (raw(one_tensor(number=4)), "tensor 'w': GGML type 4 is not known"),
    "a huge side": (raw(one_tensor(sides=(2**63,))), "is larger than any file"),
    "product overflows": (raw(one_tensor(sides=(2**60,) * 4)), "is larger than any file"),
    "half a block": (raw(one_tensor(sides=(100,), number=12)), "rows of 100 are not whole blocks of 256 of q4_k"),
    "overlap": (raw(one_tensor(offset=32)), "tensor 'w' begins at 32 of the data, not at 0"),
    "cut off in the data": (raw(one_tensor(), 79), "the header describes 80 bytes, the file has 79; it is cut off"),
}


@pytest.mark.parametrize(("file", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_a_wrong_header_is_refused_with_its_place_and_rule(file, sentence):
    with pytest.raises(InputError) as error:
        read_gguf(file)
    assert str(error.value).startswith("x.gguf: ")
    assert sentence in str(error.value)
    assert len(str(error.value)) < 400


METADATA = {
    "general.architecture": "llama",
    "n": 3,
    "e": 1e-5,
    "heads": [8, 8, 8],
    "words": ["a", "bc", "d"],
    "b": True,
}
TENSORS = [("token_embd.weight", "Q8_0", (3, 64)), ("n", "F32", (5,)), ("blk.0.w", "Q4_K", (2, 2, 256))]


@st.composite
def mutated(draw):
    """A right file with some of its bytes changed, taken out or put in."""
    data, size = gguf(METADATA, TENSORS)
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8) | st.sampled_from([b"\xff" * 8, bytes(8)]))
    return bytes(data), max(size + draw(st.integers(-40, 4)), 0)


def check_mutant(mutant):
    data, size = mutant
    header = read_or_refuse(read_gguf, raw(data, max(len(data), size)))
    if header is not None:
        assert sum(tensor.stored_bytes for tensor in header.tensors) <= max(len(data), size)
        assert all(tensor.stored_bytes == tensor.format.stored_bytes(tensor.shape) for tensor in header.tensors)


@given(mutated())
def test_a_mutated_file_is_read_or_refused(mutant):
    check_mutant(mutant)


@pytest.mark.fuzz
@settings(max_examples=20_000)
@given(mutated())
def test_many_mutated_files_are_read_or_refused(mutant):
    check_mutant(mutant)


@given(
    st.dictionaries(st.text(max_size=4), st.integers(0, 2**63) | st.text() | st.lists(st.integers(-9, 9), min_size=1))
)
def test_metadata_come_back(metadata):
    metadata.pop("general.alignment", None)
    data = head(n_keys=len(metadata)) + b"".join(gguf_text(key) + gguf_value(value) for key, value in metadata.items())
    assert read_gguf(raw(data)).metadata == metadata
