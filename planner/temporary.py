"""What a pass needs for its own time: score matrices or the statistics of a tiled softmax, their traffic, the logits.

Folds over the softmax attentions of any stack, at the heads, widths and masks that its parts declare. A naive kernel
writes the scores of all queries with all keys at hand, and then masks them; a tiled one keeps two numbers for each
query. Both are told as if no two heads shared keys: each query head reads its own. An indexer's scores are not counted.

The layers of a pass run one after the other, so what lives in one counts once, for the largest; traffic adds up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from planner.arithmetic import ceil_div, maximum
from planner.bill import Part, Pass


@dataclass(frozen=True, slots=True)
class Core:
    """One softmax attention of a pass over one sequence: how many layers have it, and what it handles, in elements.

    `query` and `output` are those of one position, which are also its key's and its value's, over all query heads.
    """

    count: Any
    heads: Any
    query: Any
    output: Any
    keys: Any
    pairs: Any


def cores(parts: Sequence[Part], run: Pass, modules: Sequence[str] = ("body",)) -> Iterator[Core]:
    """Every softmax attention that runs in a pass."""
    for part in parts:
        if part.module not in modules:
            continue
        macs = {product.id: product.macs for product in part.bill.products if run.runs(product)}
        outputs = [id for id in macs if id.rpartition(".")[2] == "values"]
        softmaxes = [entry for entry in part.bill.operations if entry.id.rpartition(".")[2] == "softmax"]
        for values, softmax in zip(outputs, softmaxes, strict=True):  # a branch declares one of each
            scores = values.removesuffix("values") + "scores"
            keys, pairs = softmax.rule.at_hand(run.past, run.new), softmax.rule.square(run.past, run.new)
            yield Core(part.count, softmax.elements, macs[scores], macs[values], keys, pairs)


def score_bytes(parts: Sequence[Part], run: Pass, elem_bytes: Any, *, batch: Any = 1) -> Any:
    """Bytes of the largest score matrix of a pass, where a kernel writes it out.

    >>> import planner
    >>> score_bytes(planner.load("llama-3.1-8b").parts(), Pass.prefill(8192), 2)
    4294967296
    """
    return _largest(batch * core.heads * core.pairs * elem_bytes for core in cores(parts, run))


def statistics_bytes(parts: Sequence[Part], run: Pass, elem_bytes: Any, *, batch: Any = 1) -> Any:
    """Bytes that attention in tiles keeps beside its output: each query's largest score so far, and its sum.

    >>> import planner
    >>> statistics_bytes(planner.load("llama-3.1-8b").parts(), Pass.prefill(8192), 4)
    2097152
    """
    return _largest(2 * batch * core.heads * run.new * elem_bytes for core in cores(parts, run))


def naive_traffic(parts: Sequence[Part], run: Pass, elem_bytes: Any, *, batch: Any = 1) -> Any:
    """Bytes that the attentions of a pass read and write where scores are stored: Q, K, V, O once, scores four times.

    The scores are written, read by the softmax, and its weights written and read again (Dao et al. 2022, algorithm 0).
    """
    moved: Any = 0
    for core in cores(parts, run):
        ends = (core.query + core.output) * (run.new + core.keys)
        moved = moved + core.count * (ends + 4 * core.heads * core.pairs)
    return batch * moved * elem_bytes


def tiled_traffic(parts: Sequence[Part], run: Pass, on_chip_bytes: Any, elem_bytes: Any, *, batch: Any = 1) -> Any:
    """Bytes that the attentions of a pass read and write in tiles that fit on chip (Dao et al. 2022, algorithm 1).

    Keys and values go through once. For each block of keys, a quarter of the chip's memory, queries are read, and
    outputs and their two statistics are read and written. No block is skipped for the mask.
    """
    moved: Any = 0
    for core in cores(parts, run):
        block = ceil_div(on_chip_bytes * core.heads, 2 * (core.query + core.output) * elem_bytes)
        each_block = run.new * (core.query + 2 * core.output + 4 * core.heads)
        ends = (core.query + core.output) * core.keys
        moved = moved + core.count * (ends + ceil_div(core.keys, block) * each_block)
    return batch * moved * elem_bytes


def logits_bytes(parts: Sequence[Part], run: Pass, elem_bytes: Any, *, batch: Any = 1) -> Any:
    """Bytes of the logits of a pass: a number for each emitted position and entry of the vocabulary.

    >>> import planner
    >>> logits_bytes(planner.load("llama-3.1-8b").parts(), Pass(new=8192, emitted=8192), 4)
    4202692608
    """
    rows = {f"/{part.path}.{tensor.id}": tensor.shape[0] for part in parts for tensor in part.bill.tensors}
    total: Any = 0
    for part in parts:
        for product in part.bill.products if part.module == "body" else ():
            if product.domain == "emitted":
                (matrix,) = product.reads
                vocabulary = rows[matrix if matrix.startswith("/") else f"/{part.path}.{matrix}"]
                total = total + batch * part.count * run.emitted * vocabulary * elem_bytes
    return total


def _largest(sizes: Iterator[Any]) -> Any:
    return reduce(maximum, sizes, 0)
