"""Does it fit: ladders that add up, verdicts, levers that help, assumptions that are said, refusals."""

import copy
import pickle

import pytest

import planner
from planner.capacity import longest_context
from planner.errors import PlannerError, UnknownName, UsageError
from planner.plan import make_plan
from tests.memory_builders import BARE, GIB, device, terms


def test_a_published_checkpoint_in_four_bits():
    """The files of gpt-oss-120b hold 60.8 GiB, scales included; one H100 runs it."""
    answer = planner.fit("gpt-oss-120b", accelerator="h100-sxm")
    assert answer.rungs[0].bytes / GIB == pytest.approx(60.8, abs=0.05)
    assert answer.fits
    assert not planner.fit("gpt-oss-120b", accelerator="h100-sxm", weights="bf16").fits


def test_ragged_lengths_are_dealt_the_longest_first():
    lengths = (100, 900, 300, 500, 400)
    one = terms("llama-3.1-8b", lengths=lengths)["kv cache"]
    assert one == planner.cache_bytes(planner.load("llama-3.1-8b"), lengths)
    answer = planner.fit("llama-3.1-8b", accelerator="h100-sxm", lengths=lengths, dp=2)
    assert answer.rungs[1].bytes == (900 + 300) * 131_072  # and 500 + 400 + 100 on the other
    assert answer.rank == "stage 0 (layers 0-31), group 0 of sequences"
    assert terms("llama-3.1-8b", lengths=(9, 1, 1, 1), dp=2)["logits"] == 3 * 128_256 * 40


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3", "gemma-3-27b", "zamba2-2.7b"])
@pytest.mark.parametrize("layout", [{}, {"tp": 4, "pp": 2}, {"tp": 8, "dp": 3}])
def test_a_ladder_adds_up_to_the_device(model, layout):
    answer = planner.fit(model, accelerator="h200", context=4096, sequences=8, **layout)
    assert answer.needed_bytes + answer.reserved_bytes + answer.headroom_bytes == answer.usable_bytes
    assert answer.budget_bytes - 3 * 2**28 - answer.needed_bytes == answer.headroom_bytes
    frame = answer.to_frame()
    assert list(frame.columns) == ["rank", "term", "bytes", "kind", "provenance", "formula"]
    assert frame.attrs["units"] == {"bytes": "B"}
    by_rank = frame[frame.kind == "needed"].groupby("rank")["bytes"].sum()
    assert by_rank.max() == by_rank[answer.rank] == answer.needed_bytes
    assert len(by_rank) == layout.get("pp", 1)


def test_verdicts():
    need = sum(terms("llama-3.1-8b", context=1000, **BARE).values())
    for memory, verdict in (
        (need - 1, "does not fit"),
        (need, "tight"),
        (need * 20 // 19 - 1, "tight"),  # a hair under 5 % left
        (need * 20 // 19 + 1, "fits"),
    ):
        answer = planner.fit("llama-3.1-8b", accelerator=device(memory), context=1000, **BARE)
        assert (answer.verdict, answer.headroom_bytes) == (verdict, memory - need)
    assert answer.binding == "weights"


def test_an_unknown_device_gives_no_figure_of_it():
    answer = planner.fit("llama-3.1-8b", context=1000)
    assert (answer.verdict, answer.fits) == ("unknown", False)
    unknown = (answer.usable_bytes, answer.reserved_bytes, answer.headroom_bytes, answer.longest_context)
    assert unknown == (None, None, None, None)
    assert answer.needed_bytes > 16_060_522_496
    with pytest.raises(UsageError, match="names no accelerator"):
        longest_context(answer.plan)


def test_every_lever_really_helps():
    plan = make_plan("llama-3.1-8b", accelerator="h100-sxm", context=65_536, sequences=9)
    answer = planner.fit(plan)
    assert answer.verdict == "does not fit"
    assert answer.binding == "kv cache"
    kv, tp, sequences, context = answer.levers
    assert kv == "kv = fp8 saves 36 GiB and fits"
    assert planner.fit(plan, kv="fp8").verdict == "fits"
    assert tp == "tp = 2"
    assert planner.fit(plan, tp=2).fits
    most, longest = int(sequences.split()[0]), int(context.split()[3].replace(",", ""))
    assert planner.fit(plan, sequences=most).fits > planner.fit(plan, sequences=most + 1).fits
    assert planner.fit(plan, context=longest).fits > planner.fit(plan, context=longest + 1).fits
    assert answer.lever == "; or ".join(answer.levers) == answer.lever_in(binary=True)
    assert answer.lever_in(binary=False) == answer.lever.replace("36 GiB", "38.65 GB")  # 36 x 1.024^3


def test_where_tensors_are_divided_as_far_as_they_can_be_stages_help():
    plan = make_plan("kimi-k2", accelerator="h200", count=8, context=32_000, sequences=16)
    assert "pp = 2" in planner.fit(plan).levers
    assert planner.fit(plan, pp=2).fits
    two = make_plan("kimi-k2", accelerator="h200", count=16, context=32_000, sequences=16)
    assert (two.layout.dp, "pp = 2 and dp = 1" in planner.fit(two).levers) == (2, True)  # no more accelerators
    assert planner.fit(two, pp=2, dp=1).fits
    assert "1 sequence" in planner.fit(plan).levers


def test_an_explanation_has_the_lever():
    answer = planner.fit("llama-3.1-70b", accelerator="h100-sxm")
    assert answer.explain().startswith(f"{answer!r}\n  {answer.lever}\n")


def test_of_several_accelerators_the_fullest_is_shown():
    answer = planner.fit("llama-3.1-70b", accelerator="h100-sxm", count=4)
    assert repr(answer).splitlines()[0].endswith("4 x h100-sxm, tp4 pp1 dp1: fits; the fullest of the 4 holds")


def test_without_an_accelerator_there_is_none_in_the_title():
    assert repr(planner.fit("llama-3.1-8b", context=1000)).startswith("llama-3.1-8b, tp1 pp1 dp1: unknown\n")


def test_where_nothing_helps_the_largest_term_is_named():
    answer = planner.fit("deepseek-v3", accelerator="rtx-4090")
    assert answer.lever == "no single change of formats, tp or load makes it fit; most of it is weights, 626.9 GiB"
    assert answer.lever_in(binary=False).endswith("most of it is weights, 673.2 GB")
    assert planner.fit("gpt-oss-120b", accelerator="h100-sxm").lever.endswith(
        "the stated maximum of 131,072 positions; memory alone would hold 277,754"
    )


def test_what_is_free_is_said_in_words():
    answer = planner.fit("llama-3.1-70b", accelerator="h100-sxm", count=4, context=32_768, sequences=8)
    assert answer.lever == f"room for {answer.most_sequences} sequences in all, or for a context of 61,349"
    states = planner.fit("mamba-130m", accelerator="h100-sxm").lever
    assert states.endswith("sequences in all, or for a context of any length")


def test_what_is_assumed_is_said_with_its_source():
    answer = planner.fit("llama-3.1-8b", accelerator="h100-sxm", context=1000, engine="sglang")
    assert answer.assumed["memory_fraction"] == 0.88
    assert "context" not in answer.assumed
    assert "sequences" in answer.assumed
    provenance = {rung.term: rung.provenance for rung in answer.rungs}
    assert provenance["weights"] == "exact"
    assert provenance["reserve"] == "assumed"
    assert "mem_fraction_static" in answer.explain()
    sure = planner.fit(answer.plan, memory_fraction=0.8, sequences=3)
    assert {rung.term: rung.provenance for rung in sure.rungs}["outside the fraction"] == "measured"  # the memory is
    assert {rung.term: rung.provenance for rung in sure.rungs}["kv cache"] == "exact"
    assert not {"memory_fraction", "sequences"} & sure.assumed.keys()


def test_an_answer_shows_itself_and_can_be_kept():
    answer = planner.fit("llama-3.1-8b", accelerator="h100-sxm", context=8192, sequences=16)
    assert repr(answer).splitlines()[:3] == [
        "llama-3.1-8b on 1 x h100-sxm, tp1 pp1 dp1: fits",
        "  weights                  14.96 GiB  needed",
        "  kv cache                    16 GiB  needed",
    ]
    assert answer._repr_html_().startswith("<table><caption>llama-3.1-8b on 1 x h100-sxm")
    assert pickle.loads(pickle.dumps(answer)) == copy.deepcopy(answer) == answer  # noqa: S301 - our own
    assert planner.fit("llama-3.1-8b", accelerator="m3-max").usable_bytes < 128e9  # unified: what a graphics chip gets


@pytest.mark.parametrize(
    ("model", "how", "sentence"),
    [
        ("opt-13b", {"context": 4096}, "4,096 positions exceed the 2,048 learned ones of opt-13b"),
        ("opt-13b", {"lengths": (5, 2049)}, "2,049 positions exceed the 2,048 learned ones of opt-13b"),
        ("mha", {"shared_prefix": 9, "context": 8}, "shared_prefix = 9 exceeds the 8 positions of a sequence"),
        ("mha", {"draft": "falcon-7b", "tp": 2}, "draft = falcon-7b: layers[0].mixer: 71 heads cannot be divided"),
        ("mha", {"draft": "lama"}, "lama"),
        ("mha", {"accelerator": "h100-smx"}, "did you mean"),
        ("mha", {"memory_fraction": 1.5}, "memory_fraction = 1.5 is not a share"),
        ("mha", {"offloaded_cache": 2.0}, "offloaded_cache = 2.0 is not a share from 0 to 1"),
        ("mha", {"kv": "fp9"}, "unknown cache format 'fp9'"),
        ("mha", {"contxt": 8}, "unknown field of a plan 'contxt'; did you mean 'context'?"),
        ("mha", {"sequences": 0}, "sequences = 0 is not a whole number from 1"),
    ],
)
def test_bad_input_gets_one_sentence(model, how, sentence):
    with pytest.raises(PlannerError) as refused:
        planner.fit(model, **how)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(PlannerError):
        planner.fit(make_plan(model), **how)


def test_a_changed_plan_keeps_its_rules():
    plan = make_plan("llama-3.1-8b")
    assert plan.changed(accelerator="h100-sxm").device.name == "h100-sxm"
    with pytest.raises(UsageError, match="neither divide"):
        planner.fit(plan, tp=3)
    with pytest.raises(UnknownName):
        planner.fit(plan, engine="vlm")
