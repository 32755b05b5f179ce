"""The header of a safetensors file: what the library writes is read, what is wrong or hostile is refused."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.sources.headers import MAX_TENSORS, local_file
from planner.sources.safetensors_header import read_safetensors
from tests.sources.builders import entries, in_memory, read_or_refuse, safetensors, with_header


def test_what_the_library_writes_is_read(tmp_path):
    library = pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    arrays = {
        "model.embed_tokens.weight": np.zeros((7, 4), np.float16),
        "model.norm.weight": np.zeros(4, np.float32),
        "counter": np.zeros((), np.int64),
        "empty": np.zeros((0, 3), np.uint8),
        "mask": np.zeros((2, 2), bool),
    }
    path = tmp_path / "x.safetensors"
    save_file(arrays, path, metadata={"format": "np"})
    found = {tensor.name: tensor for tensor in read_safetensors(local_file(path))}
    with library.safe_open(path, framework="np") as file:
        assert set(found) == set(file.keys())
        for name in file.keys():  # noqa: SIM118  (a file is no dict)
            assert found[name].shape == tuple(file.get_slice(name).get_shape())
            assert found[name].dtype == file.get_slice(name).get_dtype()
            assert found[name].stored_bytes == arrays[name].nbytes
    data = path.read_bytes()
    weight = found["model.norm.weight"]
    assert data[weight.offset : weight.offset + weight.stored_bytes] == arrays["model.norm.weight"].tobytes()


def test_tensors_come_in_the_order_in_which_they_lie():
    table, end = entries([("b", "F32", (2,)), ("a", "BF16", (3,))])
    file = with_header(json.dumps(dict(reversed(table.items()))), end)
    assert [tensor.name for tensor in read_safetensors(file)] == ["b", "a"]


def test_two_four_bit_elements_share_a_byte():
    header, size = safetensors([("w", "F4", (3, 4))])
    assert read_safetensors(in_memory(header, size))[0].stored_bytes == 6


def test_only_the_header_is_read():
    header, size = safetensors([("w", "BF16", (2**20, 2**20))])
    asked = []
    file = in_memory(header, size)
    counted = type(file)(file.place, file.size, lambda at, n: asked.append((at, n)) or file.open_range(at, n))
    read_safetensors(counted)
    assert asked == [(0, 8), (8, len(header) - 8)]


def entry(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets, **more}


def header(**tensors):
    return json.dumps(tensors)


HOSTILE = {
    "empty file": (in_memory(b""), "not a safetensors file: it has 0 bytes, and the length of its header takes 8"),
    "length of 2^63": (
        in_memory(struct.pack("<Q", 2**63) + b"{}"),
        "its first bytes state a header of 9,223,372,036,854,775,808 bytes, and at most 64,000,000 are read",
    ),
    "cut off in the header": (in_memory(struct.pack("<Q", 99) + b"{}"), "cut off: bytes 8 to 107 are needed of 10"),
    "no JSON": (with_header("{,}"), "not valid JSON: Expecting property name enclosed in double quotes"),
    "not JSON at all": (with_header("<html>"), "not a safetensors file: its header does not begin with {"),
    "not UTF-8": (with_header(b'{"\xff":1}'), "not UTF-8"),
    "too wide": (
        with_header('{"a":"' + "x" * 17_000_000 + 'é"}'),
        "17,000,010 bytes that are not ASCII; at most 16,000,000",
    ),
    "nested bomb": (with_header('{"a":' * 100_000), "nested too deeply"),
    "lists in lists": (with_header('{"a":' + "[" * 200_000), "nested too deeply"),
    "a million keys": (
        with_header(
            "{" + ",".join(f'"{i}":{{"dtype":"U8","shape":[],"data_offsets":[0,0]}}' for i in range(10**6)) + "}"
        ),
        f"more entries than {MAX_TENSORS:,} tensors need; such a header is refused",
    ),
    "too many tensors": (
        with_header("{" + ",".join(f'"{i}":0' for i in range(MAX_TENSORS + 1)) + "}"),
        "250,001 tensors in one file; at most 250,000 are read",
    ),
    "a number of 5,000 digits": (with_header('{"a":' + "9" * 5000 + "}"), "not valid JSON: Exceeds the limit"),
    "NaN": (with_header('{"a":NaN}'), "NaN is not a number of JSON"),
    "a name twice": (with_header('{"a":1,"a":2}'), "the key 'a' is there twice"),
    "a key twice": (with_header('{"a":{"dtype":"U8","dtype":"I8"}}'), "the key 'dtype' is there twice"),
    "an escape in a name": (
        with_header(header(**{"\x1b[2J": entry()})),
        "the tensor name '\\x1b[2J' is not printable text",
    ),
    "half a character": (with_header('{"\\ud800":1}'), "the tensor name '\\ud800' is not printable text"),
    "metadata": (with_header(header(__metadata__=[1])), "__metadata__ is not a table of texts"),
    "no table": (with_header(header(a=3)), "tensor 'a': 3 does not have the keys dtype, shape and data_offsets"),
    "a key more": (with_header(header(a=entry(x=1))), "and no other"),
    "unknown dtype": (with_header(header(a=entry("BF61"))), "dtype = 'BF61' is not known; did you mean 'BF16'?"),
    "dtype is a list": (with_header(header(a=entry([1]))), "dtype = [1] is not known"),
    "negative side": (
        with_header(header(a=entry(shape=[-1]))),
        "shape = [-1] is not a list of at most 16 whole numbers",
    ),
    "huge side": (
        with_header(header(a=entry(shape=[2**64]))),
        "shape = [18446744073709551616] is not a list of at most 16",
    ),
    "true side": (with_header(header(a=entry(shape=[True]))), "shape = [True] is not a list"),
    "broken side": (with_header(header(a=entry(shape=[1.0]))), "shape = [1.0] is not a list"),
    "rank 17": (with_header(header(a=entry(shape=[1] * 17))), "is not a list of at most 16"),
    "product overflows": (
        with_header(header(a=entry(shape=[2**62] * 16))),
        "of F32 does not fill the 4 bytes of data_offsets",
    ),
    "backwards": (with_header(header(a=entry(offsets=[4, 0]))), "data_offsets = [4, 0] are not a begin and an end"),
    "three offsets": (
        with_header(header(a=entry(offsets=[0, 4, 8]))),
        "data_offsets = [0, 4, 8] are not a begin and an end",
    ),
    "shape and bytes disagree": (
        with_header(header(a=entry(shape=[2]))),
        "shape = [2] of F32 does not fill the 4 bytes of data_offsets",
    ),
    "overlap": (
        with_header(header(a=entry(), b=entry(offsets=[2, 6])), 6),
        "tensor 'b' overlaps the tensor before it: it begins at ",
    ),
    "gap": (with_header(header(a=entry(), b=entry(offsets=[8, 12])), 12), "tensor 'b' leaves a gap before it"),
    "cut off in the data": (with_header(header(a=entry()), 3), "it is cut off or was changed, fetch it again"),
    "bytes left over": (with_header(header(a=entry()), 5), "it is cut off or was changed, fetch it again"),
}


@pytest.mark.parametrize(("file", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_a_wrong_header_is_refused_with_its_place_and_rule(file, sentence):
    with pytest.raises(InputError) as error:
        read_safetensors(file)
    assert str(error.value).startswith("x.safetensors: ")
    assert sentence in str(error.value)
    assert len(str(error.value)) < 400


def test_a_server_that_sends_less_than_it_was_asked_for():
    short = type(in_memory(b""))("x.safetensors", 100, lambda offset, length: bytes(length - 1))
    with pytest.raises(InputError, match="7 bytes came where 8 from 0 were asked for"):
        read_safetensors(short)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SIDE = st.integers(-2, 6) | st.integers() | JSON
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "I64", "f32"]) | JSON,
        "shape": st.lists(SIDE, max_size=4) | JSON,
        "data_offsets": st.lists(SIDE, min_size=2, max_size=2) | JSON,
    }
)
TABLE = st.dictionaries(st.sampled_from("abc") | st.text(max_size=4), ENTRY | JSON, max_size=4)


def check_garbage(table, data):
    tensors = read_or_refuse(read_safetensors, with_header(json.dumps(table), data))
    if tensors is not None:
        assert sum(tensor.stored_bytes for tensor in tensors) == data
        assert all(tensor.stored_bytes == tensor.format.stored_bytes(tensor.shape) for tensor in tensors)


@given(TABLE, st.integers(0, 64))
def test_garbage_is_read_or_refused(table, data):
    check_garbage(table, data)


@pytest.mark.fuzz
@settings(max_examples=10_000)
@given(TABLE, st.integers(0, 64))
def test_much_garbage_is_read_or_refused(table, data):
    check_garbage(table, data)


@st.composite
def mutated(draw):
    """A right file with some of its bytes changed, taken out or put in."""
    data, size = safetensors(
        [("model.a.weight", "F32", (2, 3)), ("b", "BF16", (4,)), ("c", "U8", ())], {"format": "pt"}
    )
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
        if not data:
            break
    return bytes(data), size + draw(st.integers(-4, 4))


def check_mutant(mutant):
    data, size = mutant
    tensors = read_or_refuse(read_safetensors, in_memory(data, max(size, 0)))
    assert tensors is None or sum(tensor.stored_bytes for tensor in tensors) <= size


@given(mutated())
def test_a_mutated_file_is_read_or_refused(mutant):
    check_mutant(mutant)


@pytest.mark.fuzz
@settings(max_examples=20_000)
@given(mutated())
def test_many_mutated_files_are_read_or_refused(mutant):
    check_mutant(mutant)
