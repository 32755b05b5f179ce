"""Reading the header of a 734 GB checkpoint, 13 MB of JSON: budget 2 s and 500 MB (the memory is measured apart)."""

import json
import struct
import subprocess
import sys

import pytest

import planner
from planner.sources.checkpoint import read_checkpoint
from planner.witness.reconcile import held_to
from tests.sources.test_checkpoint import deepseek_v3, shards

N_MATRICES = 50_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """One file with the experts of a large model in fp8; its data are a hole."""
    table, end = {}, 0
    for expert in range(N_MATRICES):
        layer, number = divmod(expert, 768)
        name = f"model.layers.{layer}.mlp.experts.{number}.down_proj"
        for ending, dtype, shape, size in [
            (".weight", "F8_E4M3", [7168, 2048], 7168 * 2048),
            (".weight_scale_inv", "F32", [56, 16], 56 * 16 * 4),
        ]:
            table[name + ending] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
            end += size
    text = json.dumps(table).encode()
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return path


def test_read_a_large_header(benchmark, large):
    checkpoint = benchmark.pedantic(read_checkpoint, args=(large,), rounds=3)
    assert checkpoint.parameters == N_MATRICES * 7168 * 2048


def test_memory_of_a_large_header(large):
    code = f"""
from pathlib import Path
import planner
from planner.sources.checkpoint import read_checkpoint
from planner.witness.reconcile import held_to
from tests.sources.test_checkpoint import deepseek_v3, shards
read_checkpoint({str(large)!r})
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])  # of this process, not of its parent
"""
    used = 1024 * int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert used < 500e6


def test_hold_a_large_checkpoint_to_its_contract(benchmark, tmp_path):
    """DeepSeek-V3's 92 thousand tensors, looked up and compared one by one."""
    ends = [("model.embed_tokens.weight", "BF16", (129_280, 7168)), ("model.norm.weight", "BF16", (7168,))]
    ends.append(("lm_head.weight", "BF16", (129_280, 7168)))
    checkpoint = read_checkpoint(shards(tmp_path, ends, *(list(deepseek_v3(layer)) for layer in range(62))))
    model = planner.load("deepseek-v3")
    held = benchmark.pedantic(held_to, args=(model, checkpoint), rounds=3)
    assert held.differences.agree
