"""Variants at an equal budget: how they are matched, and what is refused."""

import pytest

import planner
from planner import accounts
from planner.ablation import variants
from planner.components.state_space import Mamba
from planner.errors import UsageError
from planner.variations import Impossible
from tests.witness.builders import attention, decoder, layer


def one(model, vary, option, **options):
    (found,) = variants(planner.load(model) if isinstance(model, str) else model, vary, [option], **options)
    return found


@pytest.mark.parametrize(
    ("vary", "option", "options", "matched"),
    [
        ("mixer", "mha", {}, "d_ff 14336 → 12288"),  # 2 d (d - d / 4) = 3 d 2048: exact
        ("mixer", "mqa", {}, "d_ff 14336 → 14912"),
        ("mixer", "mha", {"match": "flops"}, "d_ff 14336 → 12288"),  # grouped heads share their scores' work
        ("ffn", "gelu", {}, "d_ff 14336 → 21504"),  # two matrices for three: half as wide again
        ("ffn", "gelu", {"by": "layers"}, "layers 32 → 44"),
        ("norm", "rms", {}, "d_ff 14336 → 14336"),
        ("position", "alibi", {}, "d_ff 14336 → 14336"),
        ("mixer", "mha", {"match": "cache", "batch": 16}, "batch 16 → 4"),
        ("mixer", "gqa", {"match": "cache"}, "n_kv_heads → 8"),
        ("mixer", "mla", {"match": "cache"}, "kv_lora_rank → 1984"),  # 2 x 8 x 128 elements, less the rotary 64
        ("mixer", "window", {"match": "cache", "context": 4096}, "window → 4096"),
        ("mixer", "window-64", {"match": "cache", "context": 4096}, "batch 1 → 64"),
    ],
)
def test_a_budget_is_matched_by_a_knob(vary, option, options, matched):
    assert one("llama-3.1-8b", vary, option, **options).matched_by == matched


@pytest.mark.parametrize("match", ["params", "flops"])
@pytest.mark.parametrize("option", ["mha", "gqa-4", "mqa", "mla"])
def test_what_is_left_over_is_less_than_half_a_step(match, option):
    found = one("llama-3.1-8b", "mixer", option, match=match)
    assert 2 * abs(found.spent - found.target) <= found.step
    width = found.architecture.layers[0].feed_forward.d_ff
    narrower = planner.edit(found.architecture, {"layers[*].feed_forward.d_ff": width - 64})
    measure = accounts.parameters if match == "params" else lambda m: accounts.flops(m, new=4096, logits="all")
    assert abs(found.spent - found.target) <= abs(measure(narrower) - found.target)


def test_a_row_for_each_variant_at_the_same_training_tokens():
    frame = planner.ablate(planner.load("gqa-8"), {"mixer": ["mha", "mqa"]}, training_tokens=10**9)
    assert list(frame["name"]) == ["gqa-8", "mixer=mha", "mixer=mqa"]
    assert frame["verified"].all()
    assert set(frame["training_tokens"]) == {10**9}
    active = frame["active_parameters"]
    assert frame["training_flops"].tolist() == [float(6 * int(n) * 10**9) for n in active]
    assert frame["tokens_at_equal_compute"].tolist() == pytest.approx((10**9 * active[0] / active).tolist())
    assert "not equal quality" in frame.attrs["note"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("mixers", "mha"), "vary = 'mixers' is none of mixer, norm, ffn, position; did you mean 'mixer'"),
        (("mixer", "gpa-8"), "mixer = 'gpa-8' is none of mha, gqa-8, mqa, mla, window-4096"),
        (("norm", "batch"), "norm = 'batch' is none of rms, layer"),
        (("ffn", "tanh"), "ffn = 'tanh' is none of swiglu"),
        (("position", "2d"), "position = '2d' is none of rope"),
        (("mixer", "gqa"), "mixer=gqa: key heads need their number, such as gqa-8, unless cache is matched"),
        (("mixer", "window"), "mixer=window: a window needs its width, such as window-4096, unless cache is matched"),
    ],
)
def test_unknown_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        one("gqa-8", *options)


def test_what_no_knob_can_match_is_refused():
    narrow = decoder(layer(attention(n_heads=8, n_kv_heads=1)))
    with pytest.raises(UsageError, match="mixer=mha: no width of the feed-forward brings the budget to"):
        one(narrow, "mixer", "mha")
    with pytest.raises(UsageError, match="one sequence takes 65,536 B of cache, more than the 8,192 B to match"):
        one(narrow, "mixer", "mha", match="cache", context=64)
    with pytest.raises(UsageError, match="has 2 kinds of layer; its depth is no single number"):
        one("gemma-2-2b", "ffn", "gelu", by="layers")
    state = decoder(layer(Mamba(d_inner=8, d_state=2, conv_kernel=4, dt_rank=2)))
    with pytest.raises(Impossible, match="toy has no softmax attention to vary"):
        one(state, "mixer", "mha")
    with pytest.raises(Impossible, match="toy has no dense attention, whose position may vary"):
        one(state, "position", "alibi")
    with pytest.raises(Impossible, match="toy states no longest sequence for a table; set max_positions"):
        one(decoder(layer(attention())), "position", "learned")
    with pytest.raises(Impossible, match="mixer=mla: latent attention has no window, no chunk"):
        one(decoder(layer(attention(window=3))), "mixer", "mla")
    with pytest.raises(Impossible, match=r"mixer=gqa-3: .*n_kv_heads = 3 does not divide n_heads = 4"):
        one(decoder(layer(attention())), "mixer", "gqa-3")


def test_a_latent_has_no_query_norms_and_says_so():
    assert one("qwen3-8b", "mixer", "mla").dropped == ("qk_norm",)
    assert one("gpt-oss-20b", "norm", "layer").dropped == ()


def test_a_row_that_cannot_be_has_a_reason():
    frame = planner.ablate(decoder(layer(attention()), name="toy"), {"mixer": ["gqa-3", "mqa"]}, context=64)
    assert frame["reason"].notna().tolist() == [False, True, False]
    assert frame["verified"].tolist()[::2] == [True, True]
    assert frame["cache_bytes_change"].tolist()[::2] == [0, -0.5]
