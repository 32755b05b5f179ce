"""Ranks: what published layouts store on one of them, what must add up whatever the layout, and what is refused."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner import folds
from planner.bill import Pass
from planner.components.position import Rope
from planner.components.sparse_attention import NativeSparseAttention
from planner.errors import ContractError, UsageError
from planner.parallel import Layout, legal_layouts, ranks, stage_layers
from planner.sources.presets import names
from planner.storage import cache_format

DECODE = Pass.decode(1000)

LARGE = ("llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b", "gemma-3-27b", "mixtral-8x7b", "jamba-v0.1")


def cache_per_token(parts, kv="bf16"):
    """Bytes that the first position adds on a rank, constant states aside."""
    return sum(
        count * cache_format(kv).bytes_per_position(entry.heads, entry.width)
        for count, entry in folds.cache(parts)
        if entry.rule.growth is not None
    )


def cache_elements(parts, length=1000):
    return folds.cache_total(parts, [length], lambda entry, positions: entry.elements * positions)


@pytest.mark.parametrize("name", names())
def test_one_rank_is_the_whole_decoder(name):
    model = planner.load(name)
    (rank,) = ranks(model, Layout())
    assert rank.parts == model.parts()
    assert rank.collectives == ()
    assert rank.layers == (0, model.n_layers - 1)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_a_latent_is_whole_on_every_rank(tp):
    """Engines print 70,272 B per token on each of eight ranks: 61 layers x 576 x 2 bytes."""
    (rank,) = ranks(planner.load("deepseek-v3"), Layout(tp=tp))
    assert cache_per_token(rank.parts) == 70_272


def test_key_value_heads_are_replicated_where_ranks_outnumber_them():
    """Qwen3-235B-A22B has 4: vLLM's logs at tp 4 and tp 8 both give 48,128 B per token and rank (94 x 2 x 128 x 2)."""
    model = planner.load("qwen3-235b-a22b")
    at = {tp: ranks(model, Layout(tp=tp))[0].parts for tp in (1, 2, 4, 8)}
    assert [cache_per_token(parts) for parts in at.values()] == [192_512, 96_256, 48_128, 48_128]
    assert {entry.heads for _, entry in folds.cache(at[8])} == {1}
    keys = {t.id: t.shape for _, _, t in folds.tensors(at[8]) if t.shard == "kv_heads"}
    assert set(keys.values()) == {(128, 4096)}  # one head's key or value rows, of the model's width
    assert 8 * cache_elements(at[8]) == 2 * cache_elements(at[1])  # each head lies on two ranks


def test_a_rank_of_llama_70b_counted_by_hand():
    """Megatron-LM's rule on eight ranks: columns, then rows; norms whole; both tables by the vocabulary."""
    (rank,) = ranks(planner.load("llama-3.1-70b"), Layout(tp=8))
    d, q, kv, ff, vocab = 8192, 8192 // 8, 1024 // 8, 28_672 // 8, 128_256 // 8
    layer = 2 * d * q + 2 * d * kv + 3 * d * ff + 2 * d
    assert folds.parameters(rank.parts) == 80 * layer + d + 2 * vocab * d == 8_820_367_360
    assert cache_per_token(rank.parts) == 327_680 // 8
    assert 8 * folds.flops(rank.parts, DECODE) == planner.flops(planner.load("llama-3.1-70b"), past=1000)


def test_weights_of_a_rank_as_an_engine_logs_them():
    """Qwen2.5-7B on two ranks: vLLM logs 7.1217 GiB, its rotary table and what the allocator rounds up included."""
    (rank,) = ranks(planner.load("qwen2.5-7b"), Layout(tp=2))
    assert 7.1217 * 0.995 < 2 * folds.parameters(rank.parts) / 2**30 < 7.1217


def test_experts_are_divided_or_kept_whole():
    model = planner.load("mixtral-8x7b")
    parts = {ep: ranks(model, Layout(tp=8, ep=ep))[0].parts for ep in (1, 4, 8)}
    shapes = {
        ep: {(t.copies, *t.shape) for _, _, t in folds.tensors(found) if t.access == "routed"}
        for ep, found in parts.items()
    }
    assert shapes[1] == {(8, 14_336 // 8, 4096), (8, 4096, 14_336 // 8)}
    assert shapes[4] == {(2, 14_336 // 2, 4096), (2, 4096, 14_336 // 2)}
    assert shapes[8] == {(1, 14_336, 4096), (1, 4096, 14_336)}
    assert {folds.parameters(found) for found in parts.values()} == {folds.parameters(parts[1])}
    assert {t.used for _, _, t in folds.tensors(parts[8]) if t.access == "routed"} == {Fraction(1, 4)}  # 2 of 8, shared


def test_attention_data_parallelism_keeps_the_mixers_whole():
    (rank,) = ranks(planner.load("deepseek-v3"), Layout(tp=8, attention_dp=8))
    whole = {part.path: part for part in planner.load("deepseek-v3").parts()}
    mixers = [part for part in rank.parts if part.path.endswith(".mixer")]
    assert len(mixers) == 3  # dense layers, layers of experts, and the one of multi-token prediction
    assert all(part.bill == whole[part.path].bill for part in mixers)
    assert rank.parts[0].bill != whole["embedding"].bill


@pytest.mark.parametrize(("attention_dp", "ways"), [(8, 1), (4, 2)])
def test_where_tokens_are_sent_to_experts_all_else_is_divided_inside_a_group(attention_dp, ways):
    """As data parallelism with expert parallelism in vLLM: each rank has all layers, and 32 of the 256 experts."""
    model = planner.load("deepseek-v3")
    (rank,) = ranks(model, Layout(tp=8, attention_dp=attention_dp, ep=8))
    (inside,) = ranks(model, Layout(tp=ways))
    for mine, theirs, whole in zip(rank.parts, inside.parts, model.parts(), strict=True):
        for tensor, other, undivided in zip(mine.bill.tensors, theirs.bill.tensors, whole.bill.tensors, strict=True):
            if tensor.access == "routed":
                assert (tensor.copies, tensor.shape) == (32, undivided.shape)
            else:
                assert tensor == other


@pytest.mark.parametrize(
    ("layers", "pp", "sizes"),
    [("deepseek-v3", 2, (31, 30)), ("deepseek-v3", 4, (15, 15, 16, 15)), ("llama-3.1-405b", 4, (31, 32, 32, 31))],
)
def test_layers_of_stages_are_those_of_an_engine(layers, pp, sizes):
    """What is left over goes to the stages before the last, from behind (vLLM, get_pp_indices)."""
    assert stage_layers(planner.load(layers), Layout(pp=pp)) == sizes


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("pp", [2, 4])
def test_stages_sum_to_the_whole(name, pp):
    model = planner.load(name)
    found = ranks(model, Layout(pp=pp))
    table = model.vocab_size * model.d_model if model.output.tied else 0  # the last stage has a tied table once more
    assert sum(folds.parameters(rank.parts) for rank in found) == folds.parameters(model.parts()) + table
    assert sum(cache_elements(rank.parts) for rank in found) == cache_elements(model.parts())
    assert sum(folds.flops(rank.parts, DECODE) for rank in found) == folds.flops(model.parts(), DECODE)
    assert [rank.layers[0] for rank in found[1:]] == [rank.layers[1] + 1 for rank in found[:-1]]


def test_hybrid_stages_hold_the_layers_that_stand_there():
    """Jamba has one attention layer in eight: a stage of eight layers keeps the cache of one, wherever it lies."""
    found = ranks(planner.load("jamba-v0.1"), Layout(pp=4))
    assert [cache_per_token(rank.parts) for rank in found] == [2 * 8 * 128 * 2] * 4
    model = planner.load("gemma-3-27b")
    kinds = [model.layers[index].label for index in model.indices()]
    first, second = ranks(model, Layout(pp=2, stage_layers=(5, 57)))
    assert kinds[:5] == ["local"] * 5
    assert {entry.rule.limit for _, entry in folds.cache(first.parts)} == {1024}
    assert {entry.rule.limit for _, entry in folds.cache(second.parts)} == {None, 1024}


def test_a_rank_of_deepseek_v4_has_its_heads_and_its_rows():
    """Columns of wq_b and wo_a, rows of wo_b, attention on the rank's own heads: vLLM's deepseek_v4.py."""
    model = planner.load("deepseek-v4-flash")
    (rank,) = ranks(model, Layout(tp=8))
    step = folds.flops(rank.parts, DECODE, by="product")
    ours = {id.rpartition(".mixer.")[2]: work for id, work in step.items() if id.startswith("layers[0].mixer")}
    d, heads, width, rank_q, groups, rank_o = 4096, 64 // 8, 512, 1024, 8 // 8, 1024
    assert ours == {
        "q_a": 2 * 2 * d * rank_q,  # two such layers, two FLOPs for a multiply-add
        "q_b": 2 * 2 * rank_q * heads * width,
        "kv": 2 * 2 * d * width,
        "window.scores": 2 * 2 * heads * width * 128,
        "window.values": 2 * 2 * heads * width * 128,
        "o_a": 2 * 2 * heads * width * rank_o,  # one group of eight heads
        "o_b": 2 * 2 * groups * rank_o * d,
    }


def test_native_sparse_attention_compresses_the_key_heads_of_its_rank():
    rope = Rope(base=1e4)
    sizes = {"block": 32, "stride": 16, "selected_block": 64, "n_selected": 16, "window": 512}
    mixer = NativeSparseAttention(n_heads=64, n_kv_heads=4, head_dim=192, v_head_dim=128, position=rope, **sizes)
    model = planner.load("gqa-8")
    model = replace(model, layers=(replace(model.layers[0], mixer=mixer),))
    (rank,) = ranks(model, Layout(tp=4))
    prompt = Pass.prefill(1024)
    whole, ours = (folds.flops(parts, prompt, by="product") for parts in (model.parts(), rank.parts))
    for id in ("compress_k.map", "compress_v.map"):
        assert ours[f"layers[0].mixer.{id}"] * 4 == whole[f"layers[0].mixer.{id}"] > 0


@pytest.mark.parametrize("name", names())
def test_what_ranks_divide_they_sum(name):
    """A branch whose columns or heads are divided ends in divided rows; scores and values go with their softmax."""
    for part in planner.load(name).parts():
        shards = {product.id: product.shard for product in part.bill.products}
        if part.path.startswith("layers["):
            assert ("row" in shards.values()) == bool({"column", "heads", "kv_heads"} & {*shards.values()}), part.path
        softmaxes = [operation for operation in part.bill.operations if operation.id.endswith("softmax")]
        values = [shard for id, shard in shards.items() if id.endswith("values")]
        assert values == [softmax.shard for softmax in softmaxes], part.path


REFUSED = [
    ("falcon-7b", {"tp": 2}, "layers[0].mixer: 71 heads cannot be divided over 2 ranks; take a divisor"),
    ("llama-3.1-8b", {"tp": 3}, "layers[0].mixer: 8 key-value heads neither divide nor are divided by 3 ranks"),
    ("qwen2.5-7b", {"tp": 8}, "28 heads cannot be divided over 8 ranks"),
    ("gpt-oss-120b", {"tp": 256}, "cannot be divided over 256 ranks"),
    ("llama-3.1-8b", {"tp": 4, "ep": 4}, "ep = 4: llama-3.1-8b has no routed experts to share out; take ep = 1"),
    ("llama-3.1-8b", {"pp": 33}, "pp = 33 stages exceed the 32 layers of llama-3.1-8b"),
    ("llama-3.1-8b", {"pp": 2, "stage_layers": (10, 10)}, "stage_layers has 20 layers; llama-3.1-8b has 32"),
    ("gemma-3n-e4b", {"pp": 5}, "pp = 5: layers that read another layer's cache stay on its stage; take pp = 1"),
    ("qwen3-235b-a22b", {"tp": 8, "dcp": 4}, "dcp = 4 does not divide the 2 ranks that hold the same heads"),
]


@pytest.mark.parametrize(("name", "fields", "sentence"), REFUSED)
def test_an_illegal_layout_says_its_rule(name, fields, sentence):
    with pytest.raises(UsageError) as refused:
        ranks(planner.load(name), Layout(**fields))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tp": 8, "ep": 3}, "ep = 3 does not divide tp = 8"),
        ({"tp": 8, "attention_dp": 3}, "attention_dp = 3 does not divide tp = 8"),
        ({"tp": 4, "dcp": 3}, "dcp = 3 does not divide tp / attention_dp = 4"),
        ({"pp": 2, "stage_layers": (80,)}, "does not list pp = 2 stages"),
        ({"tp": 0}, "tp = 0 is not a whole number from 1"),
    ],
)
def test_a_layout_checks_itself(fields, sentence):
    with pytest.raises(ContractError) as refused:
        Layout(**fields)
    assert sentence in str(refused.value)


def test_legal_layouts_fill_the_accelerators_and_say_what_is_broken():
    found = list(legal_layouts(planner.load("mixtral-8x7b"), 8))
    assert {layout.accelerators for layout, _ in found} == {8}
    assert not any(broken for _, broken in found)
    assert {(x.tp, x.pp, x.dp) for x, _ in found} == {
        (tp, pp, 8 // tp // pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4, 8) if tp * pp <= 8
    }
    assert {x.ep for x, _ in found if x.tp == 8} == {1, 8}
    dense = list(legal_layouts(planner.load("qwen2.5-7b"), 8))
    assert {layout.ep for layout, _ in dense} == {1}
    assert [broken for layout, broken in dense if layout.tp == 8] == [
        "layers[0].mixer: 28 heads cannot be divided over 8 ranks; take a divisor"
    ]


layouts = st.builds(
    lambda tp, pp, dp: Layout(tp=tp, pp=pp, dp=dp),
    st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]),
    st.integers(1, 4),
    st.integers(1, 3),
)


@settings(max_examples=150)
@given(name=st.sampled_from(names()), layout=layouts, length=st.integers(0, 10_000))
def test_ranks_hold_at_least_the_whole(name, layout, length):
    """Nothing gets lost; what is replicated counts again, and replicas change nothing for a request."""
    model = planner.load(name)
    try:
        found = ranks(model, layout)
    except UsageError:
        return
    whole = model.parts()
    for measure in (
        lambda parts: folds.parameters(parts, modules=("body", "mtp")),
        lambda parts: cache_elements(parts, length),
        lambda parts: folds.flops(parts, Pass.decode(length)),
    ):
        held = layout.tp * sum(measure(rank.parts) for rank in found)
        assert held >= measure(whole)
        assert all(measure(rank.parts) <= measure(whole) for rank in found)
    alone = ranks(model, Layout(tp=layout.tp, pp=layout.pp))
    assert [rank.parts for rank in found] == [rank.parts for rank in alone]
    assert [rank.collectives for rank in found] == [rank.collectives for rank in alone]
