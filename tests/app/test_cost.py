"""The cost page says what the core says, at listed prices and at edited ones, rented or bought."""

import pytest

from planner.app.money import usd
from planner.app.views.cost import edited
from planner.cost import UNITS, against_api, cost
from planner.plan import make_plan
from planner.pricing import api_prices
from planner.speed import estimate
from tests.app.pages import chart, enter, labels, opened, run, sentences, table, widget

LINK = {"page": "Cost", "m": "llama-3.1-8b", "context": "4k", "batch": "64", "osl": "512"}
SAID = {"accelerator": "h100-sxm", "count": 1, "context": 4000, "sequences": 64, "osl": 512}


def plan(**changes):
    return make_plan("llama-3.1-8b", **{**SAID, **changes})


def metric(app, label):
    return widget(app.metric, label).value


def test_every_figure_is_the_cores():
    app = opened(**LINK)
    answer = cost(plan())
    for label, name in (
        ("Million input tokens", "usd_per_mtok_input"),
        ("Million output tokens", "usd_per_mtok_output"),
        ("Million tokens, blended", "usd_per_mtok_blended"),
        ("One request", "usd_per_request"),
        ("Accelerator-hour", "usd_per_accelerator_hour"),
        ("Fleet, a month", "fleet_usd_per_month"),
        ("Idle, of the month", "idle_usd_per_month"),
        ("Requests a month", "requests_per_month"),
        ("One user, a month", "usd_per_user_month"),
    ):
        assert metric(app, label) == usd(getattr(answer, name), UNITS[name])
        unit = "" if UNITS[name] == "1" else f" {UNITS[name]}"
        assert f"**{getattr(answer, name):,.10g}{unit}**" in [each.value for each in app.markdown]


def test_how_the_price_of_a_token_follows_from_the_hour():
    app = opened(**LINK)
    times = estimate(plan())
    assert any("p_h" in each.value and r"\tau" in each.value for each in app.latex)
    assert any(f"{times.decode_s / times.sequences:,} s" in each.value for each in app.markdown)


def test_self_host_against_an_api_by_class_of_tokens():
    app = opened(**LINK, cached="25", utilisation="50", api="deepseek-v3.1")
    whole = plan()
    asked = whole.changed(cached_prefix=whole.isl // 4, utilisation=0.5)
    answer = cost(asked, api="deepseek-v3.1")
    rows = {row[0]: row[1:] for row in table(app, "self-host against API")[1:]}
    for kind in ("input", "cached_input", "output"):
        own, api = answer.figures[f"usd_per_mtok_{kind}"], answer.api.usd_per_mtok.get(kind)
        rate = answer.api.usd_per_mtok["input"] if api is None else api
        expected = [usd(own), usd(own / 0.5), usd(rate), f"{own / 0.5 / rate:,.2f}"]
        assert rows[f"million {kind.replace('_', ' ')} tokens"] == expected
    assert rows["one request"][2] == usd(answer.api.usd_per_request)
    assert metric(app, "Idle, of the month") == usd(answer.idle_usd_per_month)


def test_break_even_is_the_cores():
    app = opened(**LINK, usd_per_hour="0.2")
    answer = cost(plan(usd_per_hour=0.2), api="llama-3.1-8b")
    assert answer.api.reachable
    crossing = f"{answer.api.break_even_requests_per_month:,.0f}"
    drawn = chart(app, "months")
    assert crossing in labels(drawn)
    assert any(text.startswith("capacity ") for text in labels(drawn))
    assert any(f"The fleet is cheaper from {crossing} requests a month." in each.value for each in app.markdown)
    frame = answer.over_requests(drawn["data"][0]["x"][0], drawn["data"][0]["x"][-1])
    assert [trace["y"] for trace in drawn["data"][:2]] == [frame["fleet_usd"].tolist(), frame["api_usd"].tolist()]


def test_an_api_that_stays_cheaper_is_said_so():
    app = opened(**LINK, usd_per_hour="50")
    assert any("requests a month, more than it can serve" in each.value for each in app.markdown)
    assert not any("costs what the fleet does" in trace["name"] for trace in chart(app, "months")["data"])


def test_the_api_is_the_decoders_own_or_one_in_its_place():
    assert table(opened(**LINK), "self-host against API")[0][3].startswith("llama-3.1-8b at ")
    app = opened(**{**LINK, "m": "mha"})
    assert any("No API price of mha is known" in each.value for each in app.caption)
    providers = set(api_prices(model="qwen3-32b")["provider"])
    app = opened(**LINK, api="qwen3-32b", api_provider=sorted(providers)[0])
    assert table(app, "self-host against API")[0][3] == f"qwen3-32b at {sorted(providers)[0]}"


def test_prices_are_dated():
    frame = opened(**LINK).data_editor[0].value
    answer = cost(plan(), api="llama-3.1-8b")
    assert frame["price of"].tolist() == ["accelerator-hour", "Mtok input", "Mtok cached input", "Mtok output"]
    assert frame["USD"][0] == answer.usd_per_accelerator_hour
    assert frame["USD"][3] == answer.api.usd_per_mtok["output"]
    assert frame["as of"][0] in answer.hour.source
    assert frame["as of"][3] == answer.api.date


def test_an_edited_price_takes_the_place_of_the_listed_one():
    app = opened(**LINK, usd_per_hour="1.25", api_output="9")
    answer = cost(plan(usd_per_hour=1.25))
    assert metric(app, "Accelerator-hour") == "1.25 USD/h"
    assert metric(app, "Fleet, a month") == usd(answer.fleet_usd_per_month)
    api = against_api(answer.plan, answer.figures, "llama-3.1-8b", given={"output": 9.0})
    assert table(app, "self-host against API")[-1][3] == usd(api.usd_per_request)
    frame = app.data_editor[0].value
    assert frame["USD"].tolist()[::3] == [1.25, 9.0]
    assert frame["from"].tolist()[::3] == ["you", "you"]


def test_a_cell_becomes_a_word_of_the_link_and_an_emptied_one_none():
    said = edited({"0": {"USD": 1.25}, "1": {"USD": None}, "2": {}}, ["usd_per_hour", "api_input", "api_output"])
    assert said == {"usd_per_hour": "1.25", "api_input": ""}
    assert list(edited({0: {"USD": 1e-07}}, ["usd_per_hour"]).values()) == ["1e-07"]


def test_an_unknown_price_has_an_empty_cell_that_can_be_filled():
    app = opened(**{**LINK, "accelerator": "mi355x"})
    assert sentences(app) == ["no on_demand price of mi355x is known; state usd_per_hour"]
    assert app.data_editor[0].value["USD"].isna()[0]
    app = opened(**{**LINK, "accelerator": "mi355x"}, usd_per_hour="2")
    assert sentences(app) == []
    expected = cost(plan(accelerator="mi355x", usd_per_hour=2.0))
    assert metric(app, "Million output tokens") == usd(expected.usd_per_mtok_output)


def test_a_price_that_is_none_can_be_mended_in_its_cell():
    app = opened(**LINK, usd_per_hour="-3")
    listed = cost(plan()).usd_per_accelerator_hour
    assert app.data_editor[0].value["USD"][0] == listed


def test_the_price_of_what_does_not_fit_is_no_price():
    warned = [each.value for each in opened(**{**LINK, "m": "llama-3.1-70b"}).warning]
    assert len(warned) == 1
    assert warned[0].startswith("The plan does not fit;")
    assert not opened(**LINK).warning


def test_the_memory_of_the_size_page_counts_here_too():
    app = opened(**LINK, prefill_tokens="16384")
    assert metric(app, "Million input tokens") == usd(cost(plan(prefill_tokens=16_384)).usd_per_mtok_input)


def test_prices_as_they_were_and_from_one_provider():
    app = opened(**LINK, as_of="2026-02-01", provider="Nebius")
    expected = cost(plan(as_of="2026-02-01", provider="Nebius"))
    assert metric(app, "Accelerator-hour") == usd(expected.usd_per_accelerator_hour, "USD/h")
    enter(app, app.selectbox, "Rent from", "any")
    enter(app, app.selectbox, "Basis", "spot")
    expected = cost(plan(as_of="2026-02-01", basis="spot"))
    assert metric(app, "Accelerator-hour") == usd(expected.usd_per_accelerator_hour, "USD/h")


def test_bought_instead_of_rented():
    bought = {"purchase_usd": 30_000, "amortisation_years": 4, "usd_per_kwh": 0.12}
    app = opened(**LINK, pay="own", **{word: str(value) for word, value in bought.items()})
    answer = cost(plan(**bought))
    assert metric(app, "Accelerator-hour") == usd(answer.usd_per_accelerator_hour, "USD/h")
    assert any("8{,}766" in each.value for each in app.latex)
    assert "accelerator-hour" not in app.data_editor[0].value["price of"].tolist()
    enter(app, app.text_input, "Power of the site per watt", "2")
    dearer = cost(plan(**bought, pue=2)).usd_per_accelerator_hour
    assert metric(app, "Accelerator-hour") == usd(dearer, "USD/h")


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"pay": "own"}, "Purchase: state what an accelerator costs to buy"),
        ({"pay": "own", "purchase_usd": "30000"}, "needs amortisation_years and usd_per_kwh"),
        ({"usd_per_hour": "-3"}, "is negative"),
        ({"usd_per_hour": "0"}, "usd_per_hour = 0 is not a positive, finite number"),
        ({"api_output": "0"}, "is no price; state a number above 0"),
        ({"api_output": "x"}, "is not a number"),
        ({"api": "../../etc"}, "which is none of the choices"),
        ({"provider": "<script>"}, "Rent from: <script> has no such price"),
        ({"api_provider": "nobody"}, "API from: nobody has no such price"),
        ({"as_of": "1999-01-01"}, "is known as of 1999-01-01"),
    ],
)
def test_what_cannot_be_is_said_once_in_place(link, said):
    app = opened(**LINK, **link)
    assert [said in sentence for sentence in sentences(app)] == [True]
    assert app.title[0].value == "Cost"


def test_another_api_has_prices_of_its_own():
    app = opened(**LINK, api_output="9")
    enter(app, app.selectbox, "API model", "qwen3-32b")
    assert "api_output" not in app.query_params


def test_utilisation_is_slid():
    app = opened(**LINK)
    widget(app.select_slider, "Utilisation").set_value("40")
    run(app)
    answer = cost(plan(utilisation=0.4))
    assert metric(app, "Blended, idle paid") == usd(answer.usd_per_mtok_blended_reserved)
    assert app.query_params["utilisation"] == "40"
    assert table(app, "self-host against API")[0][2] == "self-host, 40% utilised"


def test_the_link_reproduces_the_view():
    app = opened(**LINK, utilisation="60", cached="20", usd_per_hour="3.5")
    enter(app, app.selectbox, "API model", "qwen3-32b")
    link = dict(app.query_params)
    again = opened(**link)
    assert [(each.label, each.value) for each in again.metric] == [(each.label, each.value) for each in app.metric]
    assert dict(again.query_params) == link
