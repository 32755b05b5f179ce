"""What ranks exchange, as the model code of a serving engine does it."""

from collections import Counter

import pytest

import planner
from planner.parallel import Layout, ranks


def test_collectives_of_a_dense_decoder():
    """Megatron-LM: two sums in each layer, one of the embedding, and the logits gathered."""
    (rank,) = ranks(planner.load("llama-3.1-70b"), Layout(tp=8))
    sums = [one for one in rank.collectives if one.kind == "all_reduce"]
    assert sum(one.count for one in sums) == 2 * 80 + 1
    assert {(one.ranks, one.elements, one.domain) for one in sums} == {(8, 8192, "new")}
    (gather,) = (one for one in rank.collectives if one.kind == "all_gather")
    assert (gather.elements, gather.domain) == (128_256, "emitted")
    first, last = ranks(planner.load("llama-3.1-70b"), Layout(pp=2))
    assert [one.kind for one in first.collectives] == ["send"]
    assert last.collectives == ()


@pytest.mark.parametrize(
    ("name", "tp", "sums"),
    [
        ("deepseek-v3", 8, {7168: 1 + 2 * 61}),  # shared experts are added to the routed ones before the sum
        ("jamba-v0.1", 8, {4096: 1 + 2 * 32, 256 + 2 * 16: 28}),  # step width, B and C of a Mamba layer are a sum
        ("falcon-h1-7b", 4, {3072: 1 + 3 * 44}),  # attention and state side by side
        ("gemma-4-26b-a4b", 8, {2816: 1 + 3 * 30}),  # dense and routed feed-forward, each behind a norm of its own
        ("zamba2-2.7b", 8, {2560: 1 + 54 + 2 * 9}),  # nine uses of attention and feed-forward behind each other
        ("deepseek-v4-flash", 8, {4096: 1 + 2 * 43}),
    ],
)
def test_every_matrix_of_divided_rows_is_summed(name, tp, sums):
    """As vLLM's RowParallelLinear stands in model_executor/models: width of the sum -> how many in a pass."""
    (rank,) = ranks(planner.load(name), Layout(tp=tp))
    found = Counter()
    for one in rank.collectives:
        if one.kind == "all_reduce":
            found[one.elements] += one.count
    assert found == sums


@pytest.mark.parametrize(
    ("name", "dcp", "exchanged"),
    [
        ("deepseek-v3", 8, {("all_gather", 128 * (512 + 64)), ("reduce_scatter", 128 * 512)}),  # latent, all heads
        ("qwen3-235b-a22b", 2, {("all_gather", 16 * 128), ("reduce_scatter", 16 * 128)}),  # the heads of two ranks
    ],
)
def test_decode_context_ranks_gather_queries_and_scatter_outputs(name, dcp, exchanged):
    """The query by all_gather, the output by cp_lse_ag_out_rs, as vLLM does; of MLA on the latent."""
    (rank,) = ranks(planner.load(name), Layout(tp=8, dcp=dcp))
    merges = [one for one in rank.collectives if one.ranks == dcp and one.kind in ("all_gather", "reduce_scatter")]
    merges = [one for one in merges if one.path.endswith("mixer")]
    assert {(one.kind, one.elements) for one in merges} == exchanged
    assert sum(one.count for one in merges) == 2 * planner.load(name).n_layers


@pytest.mark.parametrize(("name", "full"), [("jamba-v0.1", 4), ("gpt-oss-120b", 18)])
def test_states_and_windows_are_not_shared_out_over_decode_context_ranks(name, full):
    """Jamba has 28 layers of Mamba beside 4 of attention, gpt-oss 18 of a window beside 18 of full attention."""
    (rank,) = ranks(planner.load(name), Layout(tp=16, dcp=2))
    assert sum(one.count for one in rank.collectives if one.kind == "reduce_scatter") == full
