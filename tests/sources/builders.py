"""Small checkpoint files as bytes, right or wrong on purpose; written without the code under test."""

import json
import struct

from planner.errors import InputError
from planner.sources.headers import ByteRanges

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "I8": 1, "BOOL": 1}
SIZES |= {"U32": 4, "I16": 2, "F8_E4M3": 1, "F8_E8M0": 1, "F4": 0.5}


def in_memory(data, size=None, place="x.safetensors"):
    """A file of bytes; one that is stated to be longer than what is there has zeros at its end."""
    size = len(data) if size is None else size

    def open_range(offset, length):
        held = data[offset : offset + length]
        return held + bytes(length - len(held))

    return ByteRanges(place, size, open_range)


def read_or_refuse(read, *inputs):
    """What a reader gives, or None where it refuses in one sentence; anything else that is raised is a failure."""
    try:
        return read(*inputs)
    except InputError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert 0 < len(sentence) < 600
    return None


def entries(tensors, metadata=None):
    """The header's table for [(name, dtype, shape)], and how many bytes of data it describes."""
    table, end = {} if metadata is None else {"__metadata__": metadata}, 0
    for name, dtype, shape in tensors:
        size = SIZES[dtype]
        for side in shape:
            size *= side
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + int(size)]}
        end += int(size)
    return table, end


def safetensors(tensors, metadata=None):
    """A safetensors file without its data, and the size that it has with it."""
    table, end = entries(tensors, metadata)
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text, 8 + len(text) + end


def safetensors_file(path, tensors, metadata=None):
    """The same on disk; the data are a hole in the file."""
    header, size = safetensors(tensors, metadata)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size)
    return path


def with_header(text, data=0):
    """A safetensors file with that text for a header."""
    text = text.encode() if isinstance(text, str) else text
    return in_memory(struct.pack("<Q", len(text)) + text, 8 + len(text) + data)


def gguf_text(text):
    text = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(text)) + text


def gguf_value(value):
    """A metadata value with its type; lists of texts and of whole numbers too."""
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<IQ", 10, value) if value > 2**32 - 1 else struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    if value and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_text, value))
    return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)


# GGML's number, elements and bytes of a block, from its own header.
GGML = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144)}
GGML |= {"Q6_K": (14, 256, 210), "I32": (26, 1, 4), "MXFP4": (39, 32, 17)}


def gguf(metadata, tensors, *, version=3, alignment=32):
    """A GGUF file without its data, and the size that it has with it; tensors are [(name, type, NumPy shape)]."""
    if alignment != 32:
        metadata = {**metadata, "general.alignment": alignment}
    text = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        text += gguf_text(key) + gguf_value(value)
    end = 0
    for name, kind, shape in tensors:
        number, block, size = GGML[kind]
        text += gguf_text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        text += struct.pack("<IQ", number, end)
        elements = 1
        for side in shape:
            elements *= side
        end = -(-(end + elements // block * size) // alignment) * alignment
    start = -(-len(text) // alignment) * alignment
    return text, start + end


def gguf_file(path, metadata, tensors, **settings):
    header, size = gguf(metadata, tensors, **settings)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(size)
    return path
