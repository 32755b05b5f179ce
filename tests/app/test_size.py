"""The sizing page says what the core says, for every part of it, and keeps standing when something is wrong."""

import pytest

import planner
from planner.app import words
from planner.app.money import usd
from planner.cost import cost
from planner.figures.cost import layout_of
from planner.memory import fit
from planner.plan import make_plan
from planner.plan_fields import parse_field
from planner.sizing import size, undominated
from planner.speed import estimate
from planner.units import show
from tests.app.pages import chart, enter, opened, run, sentences, table, widget

LINK = {"page": "Size", "m": "llama-3.1-70b", "count": "8", "context": "4k", "batch": "64", "osl": "512"}
SAID = {"accelerator": "h100-sxm", "count": 8, "context": 4000, "sequences": 64, "osl": 512}


def plan(model="llama-3.1-70b", **changes):
    return make_plan(model, **{**SAID, **changes})


def metric(app, label):
    return widget(app.metric, label).value


def verdict(app):
    """The verdict in words, whichever box it stands in."""
    boxes = [*app.success, *app.warning, *app.error, *app.info]
    return next(each.value.replace("\\", "") for each in boxes if each.value.startswith("**"))


@pytest.fixture(scope="module")
def app():
    """The page of the plan that most tests ask for; they only look at it."""
    return opened(**LINK)


def test_the_verdict_with_what_binds_and_the_lever(app):
    answer = fit(plan())
    assert verdict(app).startswith("**It fits.** llama-3.1-70b on 8 x h100-sxm (tp8 pp1 dp1).")
    assert f"Most of the memory is {answer.binding}." in verdict(app)
    assert answer.lever[1:] in verdict(app)


def test_speed_and_price_stand_beside_the_verdict(app):
    times, money = estimate(plan()), cost(plan())
    user, everyone = (show(rate, "token/s") for rate in (times.output_tok_s_per_user, times.output_tok_s))
    token, month = usd(money.usd_per_mtok_blended), usd(money.fleet_usd_per_month)
    said = next(each.value for each in app.markdown if each.value.startswith("First token after"))
    assert said.replace("**", "") == (
        f"First token after {show(times.ttft_s, 's')}, then {user} for each user, {everyone} in all; "
        f"{token} for a million tokens, {month} a month for the fleet."
    )
    assert not any(each.value.startswith("First token after") for each in opened(**LINK, tp="1", dp="8").markdown)


def test_memory_is_the_ladders(app):
    answer = fit(plan())
    assert metric(app, "Free on the fullest rank") == show(answer.headroom_bytes, "B", binary=True)
    assert metric(app, "Longest context") == f"{answer.longest_context:,}"
    assert metric(app, "Most sequences") == f"{answer.most_sequences:,}"
    drawn = {trace["name"]: trace["x"][0] for trace in chart(app, "memory")["data"]}
    assert drawn == {**{rung.term: rung.bytes for rung in answer.rungs}, "free": answer.headroom_bytes}
    assert [row[-1] for row in table(app, "terms of the rank")[1:]] == [f"{rung.bytes:,}" for rung in answer.rungs]


@pytest.mark.parametrize("field", ["context", "sequences"])
def test_a_limit_is_shown_with_what_is_left_on_both_sides(app, field):
    inside, beyond = table(app, f"limit of {field}")[1:]
    assert int(beyond[0].replace(",", "")) == int(inside[0].replace(",", "")) + 1
    assert int(inside[1].replace(",", "")) >= 0 > int(beyond[1].replace(",", ""))


def test_times_are_floor_and_estimate(app):
    answer = estimate(plan())
    first = widget(app.metric, "First token after")
    assert (first.value, first.delta) == (show(answer.ttft_s, "s"), f"floor {show(answer.floor.ttft_s, 's')}")
    each = widget(app.metric, "Each output token")
    assert (each.value, each.delta) == (show(answer.tpot_s, "s"), f"floor {show(answer.floor.tpot_s, 's')}")
    assert metric(app, "Token/s in all") == show(answer.output_tok_s, "token/s")
    assert metric(app, "Token/s of a card") == show(answer.output_tok_s_per_accelerator, "token/s")
    for name, seconds in (("ttft_s", answer.ttft_s), ("tpot_s", answer.tpot_s)):
        assert table(app, f"seconds of {name}")[-1] == ["sum", show(seconds, "s")]


def test_the_bars_of_a_phase_are_its_shares(app):
    answer = estimate(plan())
    for phase, floor in (("prefill", answer.floor.ttft_s), ("decode", answer.floor.tpot_s)):
        drawn = {trace["name"]: trace["x"][0] for trace in chart(app, phase)["data"]}
        shares = {what: seconds for what, seconds in answer.shares(phase).items() if seconds}
        assert {name: drawn[name] for name in shares} == shares
        assert drawn["floor"] == floor


def test_every_product_is_a_point_under_the_roof(app):
    products = estimate(plan()).products
    drawn = {trace["name"]: trace for trace in chart(app, "roofline")["data"]}
    for phase in ("prefill", "decode"):
        part = products[(products["phase"] == phase) & (products["flops"] > 0)]
        part = part.sort_values("seconds", ascending=False)
        assert drawn[phase]["x"] == (part["flops"] / part["bytes"]).tolist()
        assert drawn[phase]["y"] == (part["flops"] / part["seconds"]).tolist()
    assert len(table(app, "products")) == 1 + len(products)


def test_cost_is_the_cores(app):
    answer = cost(plan())
    for label, name in (
        ("Million input tokens", "usd_per_mtok_input"),
        ("Million output tokens", "usd_per_mtok_output"),
    ):
        assert metric(app, label) == usd(getattr(answer, name))
        assert f"**{getattr(answer, name):,.10g} USD**" in [each.value for each in app.markdown]
    assert metric(app, "Fleet, a month") == f"{answer.fleet_usd_per_month:,.2f} USD"


def test_the_ranking_is_the_cores_with_a_reason_for_each_rejected_layout(app):
    frame = size("llama-3.1-70b", accelerators=["h100-sxm"], context=4000, sequences=64, osl=512)
    carried, rejected = frame[frame["rank"].notna()], frame[frame["rank"].isna()]
    rows = table(app, "ranked layouts")[1:]
    assert [row[0].partition("\n")[0] for row in rows] == [
        f"{row['rank']}. {layout_of(row)}" for _, row in carried.head(10).iterrows()
    ]
    assert [row[3] for row in rows] == [show(seconds, "s") for seconds in carried["ttft_s"].head(10)]
    assert sum("the plan above" in row[0] for row in rows) == 1
    assert table(app, "rejected layouts")[1:] == [[layout_of(row), row["reason"]] for _, row in rejected.iterrows()]
    drawn = [trace for trace in chart(app, "pareto")["data"] if trace["mode"] == "markers"]
    best = {x for trace in drawn if trace["marker"]["opacity"] == 1 for x in trace["x"]}
    assert best == set(carried[undominated(carried)]["output_tok_s_per_user"])


def test_other_accelerators_are_ranked_beside_it_and_stand_in_the_link():
    app = opened(**LINK)
    widget(app.multiselect, "Beside h100-sxm, try (at most 6)").set_value(["h200"])
    run(app)
    assert app.query_params["others"] == "h200"
    frame = size("llama-3.1-70b", accelerators=["h100-sxm", "h200"], context=4000, sequences=64, osl=512)
    assert table(app, "ranked layouts")[1][0].startswith(f"1. {layout_of(frame.iloc[0])}")
    again = opened(**LINK, others="h200,/etc/passwd,h200,h100-sxm")
    assert table(again, "ranked layouts") == table(app, "ranked layouts")


@pytest.mark.parametrize(
    ("label", "word", "text"),
    [
        ("Accelerators", "count", "16"),
        ("TP", "tp", "4"),
        ("PP", "pp", "2"),
        ("Input tokens", "isl", "2k"),
        ("Output tokens", "osl", "64"),
        ("Memory fraction", "memory_fraction", "0.7"),
        ("Reserve", "reserve_bytes", "4GiB"),
        ("Tokens of a pass", "prefill_tokens", "2048"),
        ("Compute fraction", "compute_fraction", "0.5"),
        ("Bandwidth fraction", "bandwidth_fraction", "0.8"),
        ("Link fraction", "link_fraction", "0.4"),
        ("Latency of a collective", "collective_latency_s", "0.00002"),
        ("Fixed time of a layer", "seconds_per_layer", "0"),
    ],
)
def test_every_field_is_the_plans(label, word, text):
    app = opened(**LINK)
    enter(app, app.text_input, label, text)
    expected = plan(**{word: parse_field(word, text)})
    answer, times = fit(expected), estimate(expected)
    assert metric(app, "Free on the fullest rank") == show(answer.headroom_bytes, "B", binary=True)
    assert metric(app, "First token after") == show(times.ttft_s, "s")
    assert metric(app, "Each output token") == show(times.tpot_s, "s")
    assert app.query_params[word] == text


@pytest.mark.parametrize(
    ("label", "field", "choice"),
    [
        ("Accelerator", "accelerator", "b200"),
        ("Engine", "engine", "sglang"),
        ("Weights stored as", "weights", "fp8"),
        ("Cache stored as", "kv", "fp8"),
    ],
)
def test_every_choice_is_the_plans(label, field, choice):
    app = opened(**LINK)
    enter(app, app.selectbox, label, choice)
    expected = plan(**{field: choice})
    assert metric(app, "Free on the fullest rank") == show(fit(expected).headroom_bytes, "B", binary=True)
    assert metric(app, "First token after") == show(estimate(expected).ttft_s, "s")


def test_a_cached_share_of_the_input():
    app = opened(**LINK, cached="50")
    expected = plan()
    expected = expected.changed(cached_prefix=expected.isl // 2)
    assert metric(app, "First token after") == show(estimate(expected).ttft_s, "s")
    assert any(f"{expected.isl // 2:,} of them cached" in each.value for each in app.caption)


def test_a_layout_says_how_many_accelerators_there_are():
    app = opened(**{**LINK, "count": ""}, tp="4", pp="2")
    assert "on 8 x h100-sxm (tp4 pp2 dp1)" in verdict(app)
    assert metric(app, "First token after") == show(estimate(plan(tp=4, pp=2)).ttft_s, "s")
    assert "on 1 x h100-sxm" in verdict(opened(**{**LINK, "count": ""}))


def test_experts_and_attention_in_parallel():
    link = {"page": "Size", "m": "deepseek-v3", "accelerator": "h200", "count": "8", "context": "4k", "batch": "16"}
    app = opened(**link, tp="8", ep="8", attention_dp="8")
    expected = make_plan(
        "deepseek-v3", accelerator="h200", count=8, context=4000, sequences=16, tp=8, ep=8, attention_dp=8
    )
    assert "(tp8 pp1 dp1 attention_dp8 ep8)" in verdict(app)
    assert metric(app, "Each output token") == show(estimate(expected).tpot_s, "s")


def test_each_stage_of_a_pipeline_has_its_memory():
    app = opened(**LINK, pp="8")
    answer = fit(plan(pp=8))
    frame = answer.to_frame()
    for choice, rank in (("fullest", answer.rank), ("0", frame["rank"].iloc[0]), ("7", frame["rank"].iloc[-1])):
        enter(app, app.selectbox, "Stage", choice)
        drawn = {trace["name"]: trace["x"][0] for trace in chart(app, "memory")["data"]}
        rungs = frame[frame["rank"] == rank]
        assert {term: drawn[term] for term in rungs["term"]} == dict(zip(rungs["term"], rungs["bytes"], strict=True))
    assert app.query_params["stage"] == "7"
    assert widget(opened(**LINK, pp="2", stage="7").selectbox, "Stage").value == "fullest"


def test_what_does_not_fit_says_what_would_help():
    app = opened(page="Size", m="llama-3.1-70b")
    answer = fit(make_plan("llama-3.1-70b", accelerator="h100-sxm", count=1, context=128_000, sequences=1))
    assert verdict(app).startswith("**It does not fit.**")
    assert f"What would help: {answer.lever}." in verdict(app)
    assert "missing" in [trace["name"] for trace in chart(app, "memory")["data"]]
    assert any("would be as fast as this if it did" in each.value for each in app.warning)


def test_what_would_help_is_said_in_powers_of_a_thousand():
    app = opened(page="Size", m="llama-3.1-70b", context="8k", bytes="GB")
    assert "What would help: weights = fp8 saves 70.55 GB and fits tightly; or tp = 2." in verdict(app)  # 65.71 GiB


def test_bytes_in_powers_of_a_thousand():
    app = opened(**LINK, bytes="GB")
    assert metric(app, "Free on the fullest rank") == show(fit(plan()).headroom_bytes, "B")
    traffic = [show(n, "B") for n in estimate(plan()).products["bytes"]]
    assert [row[2] for row in table(app, "products")[1:]] == traffic
    points = [text for trace in chart(app, "roofline")["data"] for text in trace["text"]]
    assert any(" GB, " in text for text in points)
    assert not any("iB, " in text for text in points)


def test_an_unknown_price_is_said_once_and_the_rest_stands():
    app = opened(**{**LINK, "accelerator": "mi355x"})
    assert sentences(app) == ["no on_demand price of mi355x is known; state usd_per_hour"]
    assert metric(app, "First token after") == show(estimate(plan(accelerator="mi355x")).ttft_s, "s")
    assert any("The Cost page takes a price of your own" in each.value for each in app.caption)
    assert all(row[1] for row in table(app, "rejected layouts")[1:])
    assert "Million input tokens" not in [each.label for each in app.metric]


@pytest.mark.parametrize(
    ("word", "text", "said"),
    [
        ("count", "0", "count = 0 is not a number of accelerators"),
        ("count", "1e15", "from 1 to 1,000,000"),
        ("count", "=1+1", "is not a number"),
        ("tp", "3", "make them agree"),
        ("isl", "5k", "isl = 5000 and osl = 512 do not fit context = 4000"),
        ("memory_fraction", "2", "a share above 0 and up to 1"),
        ("compute_fraction", "0", "a share above 0 and up to 1"),
        ("accelerator", "/etc/passwd", "which is none of the choices"),
        ("accelerator", "mine.toml", "which is none of the choices"),
        ("accelerator", "h100-smx", "which is none of the choices; did you mean 'h100-sxm'?"),
        ("provider", "<b>nobody</b>", "unknown provider '<b>nobody</b>'"),
        ("as_of", "yesterday", "is no date"),
    ],
)
def test_what_cannot_be_is_said_once_in_place(word, text, said):
    app = opened(**{**LINK, word: text})
    assert [said in sentence for sentence in sentences(app)] == [True]
    assert app.title[0].value == "Size a deployment"


@pytest.mark.parametrize(
    ("label", "word"), [("Memory fraction", "memory_fraction"), ("Compute fraction", "compute_fraction")]
)
def test_what_is_typed_wrong_can_be_mended_where_it_stands(label, word):
    app = opened(**LINK, **{word: "2"})
    assert widget(app.text_input, label).value == "2"
    enter(app, app.text_input, label, "0.8")
    assert sentences(app) == []
    assert metric(app, "First token after") == show(estimate(plan(**{word: 0.8})).ttft_s, "s")


def test_markup_in_a_name_is_text():
    app = opened(**{**LINK, "m": 'mha{"name":"<script>alert(1)</script> [x](y)"}'})
    assert "<script>alert(1)</script> [x](y) on 8 x h100-sxm" in verdict(app)


def test_what_is_assumed_is_marked_until_it_is_said():
    app = opened(page="Size", m="llama-3.1-8b", context="4k")
    assert "Accelerator · assumed" in [each.label for each in app.selectbox]
    assert "Compute fraction · assumed" in [each.label for each in app.text_input]
    assert widget(app.text_input, "Compute fraction").placeholder.startswith("0.7")
    enter(app, app.text_input, "Compute fraction", "0.6")
    assert "Compute fraction" in [each.label for each in app.text_input]
    said = " ".join(each.value for each in app.caption if "assumed" in each.value)
    assert "bandwidth\\_fraction" in said
    assert "compute\\_fraction" not in said


def test_the_link_reproduces_the_view():
    app = opened(**LINK)
    enter(app, app.text_input, "PP", "2")
    enter(app, app.text_input, "Link fraction", "0.5")
    link = dict(app.query_params)
    again = opened(**link)
    assert [(each.label, each.value) for each in again.metric] == [(each.label, each.value) for each in app.metric]
    assert table(again, "ranked layouts") == table(app, "ranked layouts")
    assert dict(again.query_params) == link


def test_the_ranking_does_not_wait_for_itself():
    """The same plan is not ranked again; another price is another ranking."""
    app = opened(**LINK)
    dearer = opened(**LINK, usd_per_hour="100")
    assert table(dearer, "ranked layouts")[1][1] != table(app, "ranked layouts")[1][1]


def test_words_of_a_plan_are_its_fields():
    known = planner.plan.fields_of_a_plan()
    assert set((*words.LAYOUT, *words.MEMORY, *words.TIMES, *words.OWNING)) <= set(known)
