"""The terms of a rank against counts by hand, and the same ladder on columns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.arithmetic import word
from planner.columns import compile_columns
from planner.ladder import needed, rank_terms
from planner.parallel import ranks
from planner.plan import make_plan
from planner.rules import CAUSAL, Window
from tests.memory_builders import GIB, terms


@pytest.mark.parametrize(
    ("model", "how", "weights", "kv"),
    [
        ("llama-3.1-8b", {}, 16_060_522_496, 131_072),
        ("llama-3.1-70b", {"tp": 8}, 2 * 8_820_367_360, 327_680 // 8),
        ("llama-3.1-405b", {"kv": "fp8"}, 2 * 405_853_388_800, 126 * 2 * 8 * 128),
        ("qwen3-235b-a22b", {"tp": 8}, None, 48_128),
        ("deepseek-v3", {"tp": 8}, None, 70_272),
        ("mixtral-8x7b", {}, 2 * 46_702_792_704, 32 * 2 * 8 * 128 * 2),
        ("gemma-3-27b", {}, None, 62 * 2 * 16 * 128 * 2),
        ("mha", {"tp": 2, "pp": 4}, 2 * 7_000_000_000 // 8, 8 * 2 * 16 * 128 * 2),  # its parameters are stated
    ],
)
def test_weights_and_the_cache_of_one_position(model, how, weights, kv):
    found = terms(model, context=1, **how)
    assert found["kv cache"] == kv
    assert weights in (None, found["weights"])


def test_states_are_fixed_and_windows_end():
    """Jamba: 4 attention layers of 8 heads x 128 grow. Its 28 Mamba layers keep their states whatever the length.
    Gemma 3: 52 of 62 layers stop at 1,024 positions."""
    jamba = [terms("jamba-v0.1", context=length)["kv cache"] for length in (1000, 2000)]
    assert jamba[1] - jamba[0] == 1000 * 4 * 2 * 8 * 128 * 2
    gemma = [terms("gemma-3-27b", context=length)["kv cache"] for length in (1024, 2048)]
    assert gemma[1] - gemma[0] == 1024 * 10 * 2 * 16 * 128 * 2
    assert terms("zamba2-2.7b", context=3000)["kv cache"] == planner.cache_bytes(planner.load("zamba2-2.7b"), 3000)


HOLDERS = [
    ("kv cache", {"beams": 3}, 3 * 1000 * 131_072),
    ("kv cache", {"sequences": 5, "shared_prefix": 600}, (600 + 5 * 400) * 131_072),
    ("kv cache", {"offloaded_cache": 0.3}, 700 * 131_072),
    ("weights", {"offloaded_weights": 0.1}, -(-16_060_522_496 * 9 // 10)),
    ("adapters", {"adapters": 4, "adapter_rank": 8}, 4 * 2 * 20_971_520),
    ("other", {"other_bytes": 5 * GIB}, 5 * GIB),
    ("draft model", {"draft": "llama-3.2-1b", "sequences": 2}, 2_471_628_800 + 2 * 1000 * 32_768),
    ("logits", {"sequences": 7}, 7 * 128_256 * 40),
    ("logits", {"sequences": 7, "engine": "sglang"}, 7 * 128_256 * 4),
    ("logits", {"sequences": 7, "logits_elem_bytes": 2, "beams": 2}, 14 * 128_256 * 2),
    ("working memory", {"prefill_tokens": 100}, 100 * (2 * 14_336 + 4096 + 2 * 4096) * 2),
    ("working memory", {"prefill_tokens": 100, "chunk": 300}, 300 * (2 * 14_336 + 4096 + 2 * 4096) * 2),
]


@pytest.mark.parametrize(("term", "how", "bytes"), HOLDERS)
def test_holders_each_by_its_name(term, how, bytes):
    """Llama-3.1-8B at 1,000 positions. Adapters of rank 8 on all its matrices have 20,971,520 parameters, as PEFT
    prints them."""
    assert terms("llama-3.1-8b", context=1000, **how)[term] == bytes


def test_prediction_layers_hold_weights_and_a_cache():
    without, found = terms("deepseek-v3", context=1000), terms("deepseek-v3", context=1000, mtp=True)
    assert "mtp layers" not in without
    body = {name: bytes for name, bytes in found.items() if name != "mtp layers"}
    assert body == without
    stored = planner.weight_bytes(planner.load("deepseek-v3"), modules=("mtp",))
    assert found["mtp layers"] == stored + 1000 * 576 * 2
    assert "mtp layers" not in terms("deepseek-v3", rank=0, pp=2, mtp=True)
    assert "mtp layers" in terms("deepseek-v3", rank=1, pp=2, mtp=True)


def kept_by_hand(rule, lengths, prefix):
    """Entries that lie in memory, one by one: (sequence or None where all share it, position)."""
    width = rule.limit or max(lengths)
    found = {(None, at) for at in range(max(0, prefix - width), prefix)}
    for sequence, length in enumerate(lengths):
        window = range(max(0, length - width), length)
        found |= {(sequence, at) for at in window if at >= prefix}
    return len(found)


@given(
    lengths=st.lists(st.integers(5, 60), min_size=1, max_size=5),
    prefix=st.integers(0, 5),
    window=st.sampled_from([None, 1, 3, 20]),
)
def test_a_shared_prefix_lies_there_once(lengths, prefix, window):
    """The window of a sequence may reach back into the prefix, whose own last positions are kept for whoever comes."""
    model = planner.edit(planner.load("gqa-8"), {"layers[0].mixer.window": window})
    rule = CAUSAL if window is None else Window(window)
    found = terms(model, lengths=tuple(lengths), shared_prefix=prefix)["kv cache"]
    assert found == kept_by_hand(rule, lengths, prefix) * 32 * 2 * 8 * 128 * 2


def test_sequences_are_shared_out():
    each = planner.cache_bytes(planner.load("llama-3.1-8b"), 1000)
    assert terms("llama-3.1-8b", context=1000, sequences=10, dp=4)["kv cache"] == 3 * each
    assert terms("llama-3.1-8b", context=1000, sequences=10, tp=4, attention_dp=4)["kv cache"] == 3 * each
    assert terms("llama-3.1-8b", context=1000, sequences=10, dp=10)["kv cache"] == each  # replicas: bytes per request
    latent = terms("deepseek-v3", context=1001, tp=8, dcp=8)["kv cache"]
    assert latent == -(-1001 // 8) * 70_272  # decode-context ranks share the positions of what they would all hold


@pytest.mark.parametrize("model", ["llama-3.1-70b", "gemma-3-27b", "deepseek-v3", "jamba-v0.1", "deepseek-v4-flash"])
@pytest.mark.parametrize(
    "how", [{}, {"tp": 4, "dp": 3}, {"pp": 2, "beams": 2, "shared_prefix": 128}, {"tp": 8, "attention_dp": 2}]
)
def test_one_ladder_serves_numbers_and_columns(model, how):
    rows = {"context": [128, 1024, 5000, 131_072], "sequences": [1, 5, 64, 1000]}
    plan = make_plan(model, **how)
    asked = plan.changed(context=word("context"), sequences=word("sequences"))
    for rank in ranks(plan.model, plan.layout):
        columns = compile_columns(rank_terms(asked, rank))(rows, 4)
        for at, (context, sequences) in enumerate(zip(*rows.values(), strict=True)):
            exact = rank_terms(plan.changed(context=context, sequences=sequences), rank)
            assert {name: column[at] for name, column in columns.items()} == exact


def test_needs_grow_with_the_load():
    plan = make_plan("gemma-3-27b", tp=2, pp=2)
    loads = [(1, 1), (1, 2), (1000, 2), (1025, 2), (5000, 2), (5000, 3)]
    totals = [needed(plan.changed(context=context, sequences=sequences)) for context, sequences in loads]
    assert totals == sorted(totals)
