"""Money: published sums, identities between the figures, and prices that nobody knows."""

import csv
import math
from collections import defaultdict
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.cost import UNITS, against_api, cost, hour_price_of
from planner.errors import InputError, PlannerError, UsageError
from planner.phases import timings
from planner.plan import make_plan
from planner.plan_file import parse_plan
from planner.pricing import hour_price
from planner.sizing import size
from planner.textbook.cost import tokens_per_usd

CHAT = {"accelerator": "h100-sxm", "isl": 2048, "osl": 256, "sequences": 64, "usd_per_hour": 2.0}

V3_R1 = """
model = "deepseek-v3"
accelerator = "h800-sxm"
count = 1814                 # 226.75 nodes of eight, the day's average

[prices]
usd_per_hour = 2.0
"""


def test_what_the_service_of_deepseek_v3_and_r1_costs_in_a_day():
    """DeepSeek-AI, Inference System Overview (2025): 226.75 nodes x 8 x $2/h x 24 h = $87,072."""
    answer = cost(parse_plan(V3_R1, "v3-r1.toml"))
    assert answer.fleet_usd_per_day == 87_072
    assert answer.hour.provenance == "given"


def test_a_request_is_the_sum_of_its_tokens():
    answer = cost("llama-3.1-8b", **CHAT)
    tokens = answer.usd_per_mtok_input * 2048 + answer.usd_per_mtok_output * 256
    assert answer.usd_per_request == pytest.approx(tokens / 1e6, rel=1e-12)
    assert answer.usd_per_mtok_blended * (2048 + 256) / 1e6 == pytest.approx(answer.usd_per_request, rel=1e-12)


def test_what_is_cached_costs_what_its_presence_adds():
    answer = cost("llama-3.1-8b", **CHAT, cached_prefix=1024)
    tokens = (
        answer.usd_per_mtok_input * 1024 + answer.usd_per_mtok_cached_input * 1024 + answer.usd_per_mtok_output * 256
    )
    assert answer.usd_per_request == pytest.approx(tokens / 1e6, rel=1e-12)
    assert 0 < answer.usd_per_mtok_cached_input < answer.usd_per_mtok_input / 5
    assert cost("llama-3.1-8b", **CHAT).usd_per_mtok_cached_input is None


def test_the_price_of_a_token_is_the_rent_over_the_rate():
    """uq149: cost per hour / (tokens per second x 3600) x 1e6, at the steady rate of the replica."""
    answer = cost("llama-3.1-8b", **CHAT)
    rate = planner.estimate("llama-3.1-8b", **CHAT).total_tok_s
    assert answer.usd_per_mtok_blended == pytest.approx(2.0 / (rate * 3600) * 1e6, rel=1e-12)
    assert answer.usd_per_mtok_blended * tokens_per_usd(2.0, 1, rate) == pytest.approx(1e6, rel=1e-12)


@pytest.mark.parametrize(("sequences", "dp"), [(64, 3), (9, 8), (96, 3)])
def test_seats_that_uneven_replicas_leave_empty_are_paid_for(sequences, dp):
    """The fleet's rent over the fleet's rate, also where 9 sequences leave seven of eight replicas with one."""
    said = {**CHAT, "sequences": sequences, "dp": dp}
    answer, speed = cost("llama-3.1-8b", **said), planner.estimate("llama-3.1-8b", **said)
    assert answer.usd_per_mtok_blended == pytest.approx(2.0 * dp / (speed.total_tok_s * 3600) * 1e6, rel=1e-12)
    assert answer.requests_per_month == pytest.approx(speed.output_tok_s / 256 * 3600 * 24 * 30, rel=1e-12)
    assert answer.requests_per_month * answer.usd_per_request == pytest.approx(answer.fleet_usd_per_month, rel=1e-12)
    assert f"usd_per_mtok = {answer.usd_per_mtok_blended}" in answer.explain()
    assert ("stays empty" in str(answer)) == (sequences % dp > 0)


def test_a_user_pays_for_the_requests_of_a_month_and_for_what_lies_idle():
    answer = cost("llama-3.1-8b", **CHAT, utilisation=0.5, requests_per_user_day=20, days_per_month=22)
    assert answer.usd_per_user_month == pytest.approx(answer.usd_per_request * 20 * 22 / 0.5, rel=1e-12)


def test_every_accelerator_of_a_replica_is_paid_for():
    """Two replicas of 2 x 2 at $2 an hour: $8 and $16, over the rate of both."""
    said = {**CHAT, "tp": 2, "pp": 2, "dp": 2}
    answer, speed = cost("llama-3.1-8b", **said), planner.estimate("llama-3.1-8b", **said)
    assert (answer.replica_usd_per_hour, answer.fleet_usd_per_hour) == (8.0, 16.0)
    assert answer.usd_per_mtok_blended == pytest.approx(16.0 / (speed.total_tok_s * 3600) * 1e6, rel=1e-12)


@given(used=st.floats(0.01, 1.0), rent=st.floats(0.01, 100.0))
def test_reserved_and_used(used, rent):
    answer = cost("llama-3.1-8b", **{**CHAT, "usd_per_hour": rent}, utilisation=used)
    assert answer.usd_per_mtok_blended_reserved == pytest.approx(answer.usd_per_mtok_blended / used)
    assert answer.idle_usd_per_month == pytest.approx(answer.fleet_usd_per_month * (1 - used))
    paid = answer.requests_per_month * answer.usd_per_request
    assert paid + answer.idle_usd_per_month == pytest.approx(answer.fleet_usd_per_month)


def test_twice_the_rent_is_twice_the_price_and_replicas_share_it():
    one, dear = cost("llama-3.1-8b", **CHAT), cost("llama-3.1-8b", **{**CHAT, "usd_per_hour": 4.0})
    two = cost("llama-3.1-8b", **{**CHAT, "sequences": 128}, dp=2)
    for name, unit in UNITS.items():
        if unit.startswith("USD") and one.figures[name] is not None:
            assert dear.figures[name] == pytest.approx(2 * one.figures[name])
    assert two.usd_per_mtok_output == pytest.approx(one.usd_per_mtok_output)
    assert two.requests_per_month == pytest.approx(2 * one.requests_per_month)


def test_owning_is_purchase_and_power():
    owned = {"purchase_usd": 30_000.0, "amortisation_years": 4.0, "usd_per_kwh": 0.12, "pue": 1.3}
    plan = make_plan("llama-3.1-8b", accelerator="h100-sxm", **owned)
    assert hour_price_of(plan).usd == pytest.approx(30_000 / (4 * 8766) + 0.7 * 1.3 * 0.12)
    with pytest.raises(UsageError, match="amortisation_years and usd_per_kwh"):
        hour_price_of(make_plan("llama-3.1-8b", accelerator="h100-sxm", purchase_usd=30_000.0))


def test_an_unknown_price_stays_unknown():
    with pytest.raises(InputError, match="no on_demand price of mi355x"):
        cost("llama-3.1-8b", accelerator="mi355x")
    with pytest.raises(PlannerError, match="as of 1999-01-01"):
        cost("llama-3.1-8b", accelerator="h100-sxm", as_of="1999-01-01")


def test_a_price_is_looked_up_once(monkeypatch):
    asked = []

    def looked_up(name, *rest):
        asked.append(name)
        return hour_price(name, *rest)

    monkeypatch.setattr("planner.cost.hour_price", looked_up)
    cost("llama-3.1-8b", accelerator="h100-sxm", isl=2048, osl=256)
    assert asked == ["h100-sxm"]
    size("llama-3.1-8b", accelerators=["l40s", "h100-sxm", "mi355x"], context=8192)
    assert asked[1:] == ["l40s", "h100-sxm", "mi355x"]  # once for all layouts, also where none is known


def test_a_listed_price_says_whose_and_when():
    hour = cost("llama-3.1-8b", accelerator="h100-sxm", as_of="2026-10-01").hour
    assert hour.provenance == "listed"
    assert "2026" in hour.source


def test_breaking_even_with_an_api():
    answer = cost(
        "llama-3.1-70b", accelerator="h100-sxm", count=4, isl=2048, osl=256, sequences=64, api="llama-3.3-70b"
    )
    api = answer.api
    assert api.usd_per_request == pytest.approx(
        (2048 * api.usd_per_mtok["input"] + 256 * api.usd_per_mtok["output"]) / 1e6
    )
    volume = api.break_even_requests_per_month
    assert volume * api.usd_per_request == pytest.approx(answer.fleet_usd_per_month)
    assert api.reachable == (volume <= answer.requests_per_month)
    with pytest.raises(PlannerError, match="llama-99"):
        cost("llama-3.1-70b", **CHAT, api="llama-99")


@pytest.mark.parametrize("provider", ["deepinfra", "novita", None])
def test_an_offer_is_not_mixed_with_a_faster_one_of_the_same_model(provider):
    """One provider sells DeepSeek-R1 twice, as itself and as a dearer Turbo; each has prices of its own."""
    rows = csv.DictReader((files("planner.presets.prices") / "api.csv").read_text("utf-8").splitlines())
    offers = defaultdict(dict)
    for row in rows:
        if row["model"] == "deepseek-r1" and provider in (None, row["provider"]):
            offers[row["provider"], row["model_id"]][row["token_class"]] = float(row["usd_per_mtok"])
    asked = {
        name: (2048 * offer["input"] + 256 * offer["output"]) / 1e6
        for name, offer in offers.items()
        if {"input", "output"} <= offer.keys()
    }
    api = cost("deepseek-r1", **{**CHAT, "accelerator": "h200"}, count=8, api="deepseek-r1", api_provider=provider).api
    assert len(asked) > 1
    assert api.usd_per_request == pytest.approx(min(asked.values()), rel=1e-12)
    assert asked[api.provider, api.model_id] == pytest.approx(api.usd_per_request)


def test_cached_tokens_change_the_bill_of_the_api_and_not_that_of_the_fleet():
    """uq153: the API's bill is blended over its classes; the fleet costs the same whatever is cached."""
    said = {"accelerator": "b200", "count": 8, "isl": 8000, "osl": 256, "sequences": 32, "api": "deepseek-v3.2"}
    plain, cached = (cost("deepseek-v3.2", **said, cached_prefix=n) for n in (0, 7000))
    assert cached.api.usd_per_request < plain.api.usd_per_request
    assert cached.fleet_usd_per_month == plain.fleet_usd_per_month


def test_every_figure_is_finite_or_absent():
    for osl in (1, 2, 1000):
        answer = cost("mixtral-8x7b", accelerator="a100-80gb-sxm", count=2, isl=100, osl=osl, sequences=3)
        assert all(value is None or math.isfinite(value) for value in answer.figures.values())
        assert set(answer.figures) == set(UNITS)


def test_the_figures_stand_on_the_estimate():
    plan = make_plan("llama-3.1-8b", **CHAT)
    timing = timings(plan)[1]
    assert cost(plan).requests_per_month == pytest.approx(timing.requests_per_s * 30 * 86_400, rel=1e-12)
    assert str(cost(plan)).count("\n") >= 10
    assert cost(plan).to_frame()["figure"].tolist()[0] == "usd_per_accelerator_hour"


def test_prices_of_an_api_that_the_user_gives_stand_in_the_place_of_listed_ones():
    answer = cost("llama-3.1-8b", accelerator="h100-sxm", isl=1000, osl=100, usd_per_hour=2.0)
    api = against_api(answer.plan, answer.figures, "llama-3.1-8b", given={"input": 3.0, "output": 5.0})
    assert api.usd_per_request == pytest.approx(0.0035)
    for bad in (0, -1, math.inf, math.nan):
        with pytest.raises(UsageError, match="is no price; state a number above 0"):
            against_api(answer.plan, answer.figures, "llama-3.1-8b", given={"input": bad})


def test_the_months_of_a_growing_fleet():
    answer = cost("llama-3.1-8b", accelerator="h100-sxm", count=2, tp=1, sequences=16, usd_per_hour=2.0)
    capacity, replica = answer.requests_per_month, 720 * 2.0
    frame = answer.over_requests(capacity / 10, 1.9 * capacity)  # 2 planned replicas carry 1, 4 carry 2
    assert frame["fleet_usd"].tolist() == [n * replica for n in (2, 2, 3, 3, 4, 4)]
    edges = [0.1, 1, 1, 1.5, 1.5, 1.9]
    assert frame["requests"].tolist() == pytest.approx([capacity * edge for edge in edges])
    assert frame["api_usd"].isna().all()


def test_a_fleet_of_a_million_has_no_million_corners():
    answer = cost("llama-3.1-8b", accelerator="h100-sxm", count=1_000_000, tp=1, usd_per_hour=2.0)
    frame = answer.over_requests(1, 2.5 * answer.requests_per_month)
    assert len(frame) < 500
    assert frame["fleet_usd"].iloc[-1] == 2.5 * answer.fleet_usd_per_month
