"""What a plan takes, what it takes for granted, and that a plan file says the same thing."""

import math

import numpy as np
import pytest

import planner
from planner.assumptions import assumptions
from planner.errors import InputError, PlannerError, UsageError
from planner.parallel import Layout
from planner.plan import as_plan, fields_of_a_plan, make_plan
from planner.plan_file import parse_plan, plan_to_toml, read_plan
from planner.plan_parts import Workload


def test_what_is_not_said_is_assumed_and_shown():
    plan = make_plan("llama-3.1-8b", accelerator="h100-sxm", context=4096, memory_fraction=0.8)
    assert plan.assumed("sequences", "memory_fraction", "context", "osl") == {"sequences": 1, "osl": 256}
    assert plan.assume("memory_fraction") == 0.8
    assert (plan.weights, plan.kv) == ("bf16", "bf16")


def test_every_assumption_has_a_source_a_unit_and_a_meaning():
    for name, known in assumptions().items():
        assert known.source, name
        assert known.meaning, name
        assert known.unit, name
        assert math.isfinite(known.value), name


def test_a_layer_with_experts_takes_longer():
    dense, moe = make_plan("llama-3.1-8b"), make_plan("mixtral-8x7b")
    assert moe.assume("seconds_per_layer") > dense.assume("seconds_per_layer")


@pytest.mark.parametrize(
    ("said", "context", "isl", "osl"),
    [
        ({"isl": 2048, "osl": 256}, 2303, 2048, 256),  # the last token is never fed
        ({"context": 2303, "osl": 256}, 2303, 2048, 256),
        ({"context": 8192, "isl": 100, "osl": 10}, 8192, 100, 10),
        ({}, 8192, 7937, 256),
    ],
)
def test_a_request_and_its_context_follow_from_each_other(said, context, isl, osl):
    plan = make_plan("llama-3.1-8b", **said)
    assert (plan.context, plan.isl, plan.osl) == (context, isl, osl)


@pytest.mark.parametrize(
    ("model", "count", "layout"),
    [
        ("llama-3.1-70b", 8, Layout(tp=8)),
        ("llama-3.1-70b", 16, Layout(tp=8, dp=2)),  # a domain of eight
        ("qwen2.5-7b", 8, Layout(tp=4, dp=2)),  # 28 heads
        ("falcon-7b", 8, Layout(tp=1, dp=8)),  # 71 heads
    ],
)
def test_a_count_alone_takes_the_largest_legal_tensor_parallelism_in_a_domain(model, count, layout):
    assert make_plan(model, accelerator="h100-sxm", count=count).layout == layout


def test_lists_and_numbers_of_numpy_are_what_notebooks_hold():
    plan = make_plan("mha", lengths=[1000, np.int64(20)], usd_per_hour=np.float64(2.5))
    assert plan == make_plan("mha", lengths=(1000, 20), usd_per_hour=2.5)
    assert plan.changed(lengths=[7]) == plan.changed(lengths=(7,))
    assert make_plan("mha", context=np.int64(4096)) == make_plan("mha", context=4096)
    with pytest.raises(UsageError, match="context = True"):
        make_plan("mha", context=np.bool_(True))


def test_a_layout_that_is_smaller_than_the_count_is_replicated():
    assert make_plan("llama-3.1-70b", count=16, tp=4).layout == Layout(tp=4, dp=4)


def test_changing_a_plan_checks_it_again():
    plan = make_plan("llama-3.1-8b", context=4096)
    assert plan.changed(sequences=9, compute_fraction=0.5).assume("compute_fraction") == 0.5
    assert plan.changed(sequences=9).workload == Workload(context=4096, sequences=9)
    assert as_plan(plan) is plan
    assert as_plan(plan, kv=None) is plan
    with pytest.raises(PlannerError, match="sequences = 0"):
        plan.changed(sequences=0)
    with pytest.raises(UsageError, match="unknown"):
        plan.changed(nonsense=1)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"count": 0}, "count = 0"),
        ({"count": True}, "count = True"),
        ({"count": 8, "tp": 3}, "count = 8 is not the 3"),
        ({"isl": 3, "osl": 9, "context": 5}, "do not fit context = 5"),
        ({"isl": 6, "context": 5}, "isl = 6 does not fit context = 5"),
        ({"lengths": (1, 2), "sequences": 2}, "lengths"),
        ({"isl": 10, "cached_prefix": 10}, "leaves nothing"),
        ({"context": 10}, "no room for osl"),
        ({"sequences": -1}, "sequences = -1"),
        ({"context": 1.5}, "context = 1.5"),
        ({"memory_fraction": 0.0}, "memory_fraction = 0.0"),
        ({"memory_fraction": 1.5}, "memory_fraction = 1.5"),
        ({"link_fraction": math.nan}, "link_fraction = nan"),
        ({"seconds_per_layer": -1e-6}, "seconds_per_layer"),
        ({"usd_per_hour": 0.0}, "usd_per_hour = 0.0"),
        ({"usd_per_hour": math.inf}, "usd_per_hour = inf"),
        ({"usd_per_hour": 1e308}, "usd_per_hour = 1e+308 is not from 1e-06 to 1,000,000; is it in USD"),
        ({"purchase_usd": 3e13}, "purchase_usd = 30000000000000.0 is not from 0.001 to 1,000,000,000"),
        ({"utilisation": 1e-320}, "utilisation = 1e-320 is not a share"),
        ({"days_per_month": 0}, "days_per_month = 0 is not a number above 0"),
        ({"seconds_per_layer": 1e308}, "seconds_per_layer = 1e+308 is not a number from 0 to 10^30"),
        ({"weights": "fp3"}, "fp3"),
        ({"kv": "awq-g128"}, "awq-g128"),
        ({"engine": "vlm"}, "did you mean 'vllm'"),
        ({"accelerator": "h100-smx"}, "did you mean 'h100-sxm'"),
        ({"sequnces": 3}, "did you mean 'sequences'"),
        ({"offloaded_weights": 1.5}, "offloaded_weights = 1.5"),
        ({"ep": 3, "tp": 8}, "ep = 3 does not divide tp = 8"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_in_one_sentence(said, sentence):
    with pytest.raises(PlannerError) as caught:  # a request that has no room is noticed when it is asked for
        _ = make_plan("llama-3.1-8b", **said).isl
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


PLANS = [
    {"model": "llama-3.1-8b"},
    {"model": "deepseek-v3", "accelerator": "h200", "tp": 8, "weights": "fp8-block128", "kv": "fp8", "sequences": 64},
    {"model": "mixtral-8x7b", "accelerator": "a100-80gb-sxm", "count": 4, "isl": 2048, "osl": 256, "usd_per_hour": 2.0},
    {"model": "gemma-3-27b", "lengths": (100, 20_000, 3), "engine": "sglang", "bandwidth_fraction": 0.7},
    {"model": planner.edit(planner.load("gqa-8"), {"n_kv_heads": 4}), "context": 1024, "osl": 12, "beams": 4},
]


@pytest.mark.parametrize("said", PLANS, ids=lambda said: str(getattr(said["model"], "name", said["model"])))
def test_a_plan_file_gives_the_same_plan_back(said, tmp_path):
    plan = make_plan(**said)
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(plan), "utf-8")
    assert read_plan(path) == plan
    assert plan_to_toml(read_plan(path)) == plan_to_toml(plan)


def test_a_plan_file_states_an_accelerator_of_one_s_own():
    text = 'model = "mha"\n[accelerator]\nname = "ours"\nbase = "h100-sxm"\nmemory_bytes = "94 GiB"\n'
    plan = parse_plan(text, "ours.toml")
    assert (plan.device.name, plan.device.memory_bytes) == ("ours", 94 * 2**30)
    assert parse_plan(plan_to_toml(plan), "again.toml") == plan
    with pytest.raises(InputError, match=r"ours.toml: accelerator: memory_bytes = 94 B is not between"):
        parse_plan(text.replace('"94 GiB"', "94"), "ours.toml")
    with pytest.raises(InputError, match=r"ours.toml: accelerator: name is missing"):
        parse_plan(text.replace('name = "ours"\n', ""), "ours.toml")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "model is missing"),
        ('model = "llama-3.1-8b"\nbogus = 1', "bogus"),
        ('model = "llama-3.1-8b"\n[workload]\ncontext = "long"', "context: 'long' is not a number"),
        ('model = "llama-9"', "llama-9"),
        ("model = 3", "3"),
        ("[model]\nname = 'x'", "missing"),
        ("model = ", "TOML"),
        ('model = "llama-3.1-8b"\n[prices]\nusd_per_hour = nan', "usd_per_hour = nan"),
        ('model = "mha"\ncontext = 100\n[workload]\ncontext = 200', "context is said twice, as 100 and as 200"),
        ('model = "mha"\n[workload]\ntp = 2', "[workload] has no field 'tp'; it stands in [layout]"),
        ('model = "mha"\n[workload]\ncontxt = 2', "[workload] has no field 'contxt'; did you mean 'context'?"),
        ('model = "mha"\n[workloads]\ncontext = 2', "did you mean 'workload'?"),
        ('model = "mha"\nlayout = 3', "layout = 3 is no table; write [layout]"),
        ('model = "mha"\nother_bytes = "2"', "other_bytes: '2' has no unit"),
    ],
)
def test_a_damaged_plan_file_gets_one_sentence_with_its_place(text, sentence):
    with pytest.raises(InputError) as caught:
        parse_plan(text, "plan.toml")
    assert str(caught.value).startswith("plan.toml")
    assert sentence in str(caught.value)


def test_a_plan_file_that_is_not_there():
    with pytest.raises(InputError, match="cannot be read"):
        read_plan("no/such/plan.toml")


def test_a_plan_file_that_is_no_text(tmp_path):
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"plan\.toml: not text in UTF-8"):
        read_plan(tmp_path / "plan.toml")


def test_a_plan_file_is_written_as_people_write_it():
    text = """model = "mha"
    [workload]
    context = "32Ki"
    [holders]
    other_bytes = "2GiB"
    [prices]
    as_of = 2026-06-01
    [assumptions]
    reserve_bytes = "1GB"
    """
    said = {"context": 32_768, "other_bytes": 2 * 2**30, "as_of": "2026-06-01", "reserve_bytes": 10**9}
    assert parse_plan(text, "plan.toml") == make_plan("mha", **said)


def test_fields_are_words_once():
    assert len({*fields_of_a_plan()}) >= 40


def test_a_count_without_end_is_refused_at_once():
    with pytest.raises(UsageError, match="from 1 to 1,000,000"):
        make_plan("llama-3.1-8b", accelerator="h100-sxm", count=10**15)
    assert make_plan("llama-3.1-8b", accelerator="h100-sxm", count=1_000_000).layout.dp == 125_000
