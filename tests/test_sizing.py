"""Layouts ranked by cost: the ranks are what the other answers say, and what is rejected says why."""

import pytest

import planner
from planner.errors import PlannerError, UsageError
from planner.plan import make_plan
from planner.sizing import UNITS, assumed, size

LOAD = {"context": 8192, "sequences": 64}


@pytest.fixture(scope="module")
def ranked():
    return size(
        "llama-3.1-70b", accelerators=["h100-sxm", "b200", "mi300x", "rtx-4090"], replica_sizes=(1, 2, 4, 8), **LOAD
    )


def test_the_cheapest_stands_first_and_the_rejected_last(ranked):
    good = ranked[ranked["rank"].notna()]
    assert good["rank"].tolist() == list(range(1, len(good) + 1))
    assert good["usd_per_mtok_blended"].is_monotonic_increasing
    assert ranked["rank"].isna().tolist() == [False] * len(good) + [True] * (len(ranked) - len(good))
    assert (good["reason"] == "").all()


def test_every_carried_row_is_what_fit_estimate_and_cost_say(ranked):
    for row in ranked[ranked["rank"].notna()].head(12).to_dict("records"):
        shape = {name: int(row[name]) for name in ("tp", "pp", "dp", "attention_dp", "ep")}
        said = {"accelerator": row["accelerator"], **shape, **LOAD}
        assert planner.fit("llama-3.1-70b", **said).headroom_bytes == row["headroom_bytes"]
        assert planner.estimate("llama-3.1-70b", **said).tpot_s == row["tpot_s"]
        assert row["count"] == shape["tp"] * shape["pp"] * shape["dp"]
        assert row["most_sequences"] * shape["dp"] >= 64


def test_what_is_rejected_says_why(ranked):
    reasons = ranked[ranked["rank"].isna()]
    assert (reasons["reason"] != "").all()
    assert reasons[reasons["accelerator"] == "mi300x"]["reason"].str.contains("no on_demand price of mi300x").all()
    short = reasons[(reasons["accelerator"] == "rtx-4090") & (reasons["count"] == 1)]["reason"].tolist()
    assert short
    assert short[0].startswith("one sequence lacks")


def test_as_many_replicas_as_the_load_needs():
    frame = size("llama-3.1-8b", accelerators=["l40s"], replica_sizes=(1,), **LOAD)
    row = frame.iloc[0]
    fewest = -(-64 // row["most_sequences"])
    assert row["dp"] == fewest == row["count"]


def test_a_rule_that_a_layout_breaks_is_its_reason():
    frame = size("qwen2.5-7b", accelerators=["h100-sxm"], replica_sizes=(8,), **LOAD)
    broken = frame[frame["reason"].str.contains("heads", na=False)]
    assert (broken["tp"] == 8).all()
    assert len(broken)


def test_one_accelerator_may_be_a_name_alone():
    frame = size("llama-3.1-8b", accelerators="l40s", replica_sizes=1, **LOAD)
    assert frame["accelerator"].tolist() == ["l40s"]


def test_experts_have_layouts_of_their_own():
    frame = size("qwen3-30b-a3b", accelerators=["h100-sxm"], replica_sizes=(4,), **LOAD)
    assert {(row.attention_dp, row.ep) for row in frame.itertuples()} >= {(1, 1), (1, 4), (4, 4)}


def test_bad_questions():
    with pytest.raises(UsageError, match="tp is what sizing finds"):
        size("llama-3.1-8b", tp=2)
    for sizes in [(0,), (), (1.5,), ("x",), 0, "2"]:
        with pytest.raises(UsageError, match="replica_sizes"):
            size("llama-3.1-8b", replica_sizes=sizes)
    with pytest.raises(UsageError, match="accelerator = 3 is neither a name"):
        size("llama-3.1-8b", accelerators=[3])
    with pytest.raises(PlannerError, match="h100-smx"):
        size("llama-3.1-8b", accelerators=["h100-smx"])


def test_of_context_and_request_only_what_does_not_follow_is_assumed():
    def said(**keywords):
        return assumed(make_plan("llama-3.1-8b", **keywords)).keys() & {"context", "isl", "osl", "sequences", "kv"}

    assert said() == {"context", "isl", "osl", "sequences", "kv"}
    assert said(isl=100, kv="fp8") == {"osl", "sequences"}
    assert said(context=1000) == {"osl", "sequences", "kv"}
    assert said(lengths=(1000, 20)) == {"osl", "kv"}


def test_owning_a_device_of_unknown_power_is_its_reason_and_no_refusal_of_the_others():
    owned = {"purchase_usd": 30_000, "amortisation_years": 4, "usd_per_kwh": 0.1}
    frame = size("llama-3.2-1b", accelerators=["h100-sxm", "tpu-v5e"], replica_sizes=(1,), **LOAD, **owned)
    reason = frame.set_index("accelerator")["reason"]
    assert reason["h100-sxm"] == ""
    assert reason["tpu-v5e"] == "purchase_usd = 30000 needs power_w of tpu-v5e, which is not known"
    assert "tpu-v5e" not in set(size("llama-3.2-1b", replica_sizes=(1,), **LOAD, **owned)["accelerator"])
    with pytest.raises(UsageError, match="needs usd_per_kwh"):
        size("llama-3.2-1b", replica_sizes=(1,), **LOAD, purchase_usd=30_000, amortisation_years=4)


def test_units_are_said(ranked):
    assert ranked.attrs["units"] == UNITS
