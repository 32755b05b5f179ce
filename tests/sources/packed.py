"""A packed matrix as tensors of a file, and what is read of such a file."""

from planner.sources.checkpoint import read_shards
from tests.sources.builders import in_memory, safetensors

OUT, IN = 1536, 4096
GROUPS = IN // 128


def weights(*tensors, data=b""):
    """What a file of these tensors amounts to; `data` are the first bytes of its tensors."""
    header, size = safetensors(tensors)
    return read_shards([in_memory(header + data, size)]).weights


def matrix(ending, name, *beside):
    """Tensors of one module: what is packed and what stands beside it."""
    return [("a.q_proj" + end, dtype, shape) for end, dtype, shape in [(ending, *name), *beside]]
