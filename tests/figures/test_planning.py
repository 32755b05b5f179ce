"""Figures of plans: every bar, point and line stands for a figure of the core, and no two labels lie on each other."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import figures
from planner.cost import cost
from planner.curves import GROUPS
from planner.figures.bars import Bar, waterfall
from planner.figures.drawing import Drawing
from planner.memory import fit
from planner.sizing import size, undominated
from planner.speed import estimate

LOAD = {"accelerator": "h100-sxm", "count": 8, "context": 4096, "sequences": 64, "osl": 512}
GIB = 2**30


def bars(figure):
    return {trace.name: (trace.base[0], trace.x[0]) for trace in figure.data}


def notes(figure):
    return [note.text for note in figure.layout.annotations]


@pytest.mark.parametrize("sequences", [64, 4096])
def test_the_waterfall_reaches_from_nothing_to_the_usable_memory(sequences):
    answer = fit("llama-3.1-70b", **{**LOAD, "sequences": sequences})
    frame = answer.to_frame()
    drawn = bars(figures.memory_waterfall(frame, answer.usable_bytes))
    assert {name: size for name, (_, size) in drawn.items() if name in set(frame["term"])} == dict(
        zip(frame["term"], frame["bytes"], strict=True)
    )
    at = 0
    for start, amount in list(drawn.values())[:-1]:
        assert start == at
        at += amount
    rest, (start, size) = list(drawn.items())[-1]
    if answer.fits:
        assert (rest, start, size) == ("free", at, answer.headroom_bytes)
    else:
        assert (rest, start, size) == ("missing", answer.usable_bytes, -answer.headroom_bytes)


def test_the_waterfall_says_its_amounts_in_the_units_asked_for():
    answer = fit("llama-3.1-70b", **LOAD)
    assert "16.43 GiB" in notes(figures.memory_waterfall(answer.to_frame(), answer.usable_bytes))
    figure = figures.memory_waterfall(answer.to_frame(), answer.usable_bytes, binary=False)
    assert "17.64 GB" in notes(figure)
    assert "weights 17.64 GB" in figure.layout.meta["alt"]


def test_every_product_lies_under_its_roof():
    answer = estimate("llama-3.1-70b", **LOAD)
    figure = figures.roofline(answer.products, answer.roofs)
    products = answer.products[answer.products["flops"] > 0]
    roof = answer.roofs.iloc[0]
    for phase in ("prefill", "decode"):
        part = products[products["phase"] == phase]
        trace = next(trace for trace in figure.data if trace.name == phase)
        assert len(trace.x) == len(part)
        for x, y in zip(trace.x, trace.y, strict=True):
            assert y == pytest.approx(min(roof["reached_flops_per_s"], x * roof["reached_bytes_per_s"]))
    assert {trace.marker.symbol for trace in figure.data if trace.name in ("prefill", "decode")} == {"circle", "square"}
    assert "bf16 ridge 295" in notes(figure)  # 989.4 TFLOP/s over 3.35 TB/s


def test_products_are_named_below_the_roof_in_the_words_of_the_comparison():
    answer = estimate("deepseek-v3", accelerator="h200", count=8, context=4096, sequences=8)
    tags = [
        note
        for note in figures.roofline(answer.products, answer.roofs).layout.annotations
        if note.text in set(GROUPS.values())
    ]
    assert {note.text for note in tags} == {"projection", "attention", "feed-forward"}
    assert all(note.yshift < 0 for note in tags)


def test_products_that_move_nothing_have_no_place_under_a_roof():
    answer = estimate("deepseek-v3", accelerator="h200", count=8, context=4096, sequences=8)
    assert (answer.products["bytes"] == 0).any()
    drawn = figures.roofline(answer.products, answer.roofs)
    assert all(math.isfinite(x) for trace in drawn.data for x in trace.x)


def test_a_phase_is_its_parts_above_its_floor():
    figure = figures.seconds_spent({"compute": 0.3, "bandwidth": 0.0, "link": 0.1}, 0.25, "Prefill")
    assert bars(figure) == {"compute": (0, 0.3), "link": (0.3, 0.1), "estimate": (0, 0.4), "floor": (0, 0.25)}
    assert figure.layout.meta["alt"] == "Prefill: estimate 400 ms (compute 300 ms, link 100 ms), floor 250 ms."


def test_bars_of_one_figure_are_told_apart_without_colour():
    figure = waterfall("t", "x", "B", [Bar("a", 0, 1, "1 B", ("#000000", "/"))], "alt")
    assert figure.data[0].marker.pattern.shape == "/"
    assert list(figure.data[0].y) == ["a"]


def test_the_month_of_a_fleet_and_of_an_api_cross_where_the_core_says():
    answer = cost("llama-3.1-8b", **{**LOAD, "count": 1}, usd_per_hour=0.2, api="llama-3.1-8b")
    crossing = answer.api.break_even_requests_per_month
    assert answer.api.reachable
    frame = answer.over_requests(crossing / 10, 2.5 * answer.requests_per_month)
    figure = figures.break_even(frame, answer.requests_per_month, crossing, "an API")
    fleet, api = figure.data[:2]
    assert fleet.y[0] == answer.fleet_usd_per_month
    assert fleet.y[-1] == 3 * answer.fleet_usd_per_month
    assert api.y[-1] == pytest.approx(api.x[-1] * answer.api.usd_per_request)
    assert crossing * answer.api.usd_per_request == pytest.approx(fleet.y[0])
    assert f"<b>{crossing:,.0f}</b>" in notes(figure)
    assert any(text.startswith("capacity ") for text in notes(figure))


def test_without_an_api_there_is_a_fleet_alone():
    answer = cost("llama-3.1-8b", **{**LOAD, "count": 1})
    figure = figures.break_even(answer.over_requests(1e3, 1e6), answer.requests_per_month, None, "an API")
    assert [trace.name for trace in figure.data] == ["fleet"]
    assert "cheaper than an API never" in figure.layout.meta["alt"]


def test_layouts_that_another_beats_are_pale_and_the_others_have_their_ranks():
    frame = size("llama-3.1-8b", accelerators=["h100-sxm", "l40s"], context=4096, sequences=64)
    carried = frame[frame["rank"].notna()]
    best = undominated(carried)
    figure = figures.pareto(carried, best.tolist())
    points = [(trace.marker.opacity, x) for trace in figure.data if trace.mode == "markers" for x in trace.x if x]
    assert sum(opacity == 1 for opacity, _ in points) == best.sum()
    assert sorted(x for opacity, x in points if opacity == 1) == sorted(carried[best]["output_tok_s_per_user"])
    assert {str(rank) for rank in carried[best]["rank"]} <= set(notes(figure))


rows = st.tuples(st.floats(1, 100), st.floats(0.1, 10))


@given(st.lists(rows, min_size=1, max_size=12))
def test_undominated_is_what_a_look_at_every_pair_finds(points):
    frame = pd.DataFrame(points, columns=["output_tok_s_per_user", "usd_per_mtok_blended"])
    found = undominated(frame)
    for row, best in zip(points, found, strict=True):
        beaten = any(rate >= row[0] and usd <= row[1] and (rate, usd) != row for rate, usd in points)
        assert not (best and beaten)
        assert best or beaten or points.count(row) > 1


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(1, 1e6)), min_size=1, max_size=8))
def test_tags_do_not_lie_on_each_other(points):
    drawing = Drawing("t", "x", "y", True, True)
    drawing.axis("x", [1, 1e6], "1")
    drawing.axis("y", [1, 1e6], "1")
    drawing.tags([(x, y, "#000000", "12") for x, y in points])
    places = []
    for (x, y), note in zip(sorted(points), drawing.notes, strict=True):
        left = drawing._across(math.log10(x)) + note["xshift"] - (16 if note["xanchor"] == "right" else 0)
        places.append((left, drawing._pixels(y) + note["yshift"]))
    for number, (left, height) in enumerate(places):
        assert all(abs(left - a) >= 16 or abs(height - b) >= 15 for a, b in places[:number])


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0.13, 3], [0.2, 0.5, 1, 2]),
        ([0.8, 1.4], [0.8, 1.0, 1.2, 1.4]),
        ([25, 60], [30, 40, 50, 60]),
        ([11, 46], [20, 30, 40]),  # of 1, 2 and 5 times a power only one lies there
        ([1.04, 5.43], [2, 3, 4, 5]),  # steps of 2 would be too few
        ([1, 1000], [1, 10, 100, 1000]),
    ],
)
def test_a_short_logarithmic_axis_has_ticks_too(values, ticks):
    drawing = Drawing("t", "x", "y", True, True)
    drawing.axis("x", values, "1")
    assert drawing.axes["x"]["tickvals"] == pytest.approx(ticks)


@given(st.floats(1e-3, 1e9), st.floats(1.01, 1000), st.sampled_from(["1", "B"]))
def test_a_logarithmic_axis_has_three_ticks_or_two_powers(low, ratio, unit):
    drawing = Drawing("t", "x", "y", True, True)
    drawing.axis("x", [low, low * ratio], unit, binary=unit == "B")
    ticks = drawing.axes["x"]["tickvals"]
    base = 16 if unit == "B" else 10
    assert 3 <= len(ticks) <= 9 or (len(ticks) == 2 and ticks[1] == ticks[0] * base)
    assert ticks == sorted(set(ticks))
    assert low * (1 - 1e-6) <= ticks[0] <= ticks[-1] <= low * ratio * (1 + 1e-6)
