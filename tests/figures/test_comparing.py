"""Figures say what their frames say: lines, levels, rings and labels, told apart by more than their colour."""

import itertools
import math
import re

import pytest

import planner
from planner import figures
from planner.curves import cache_by_layer, contexts, crossings, flops_by_group
from planner.figures.drawing import HEIGHT, MARGIN, STYLES, Drawing
from planner.scenarios import sweep

SET = ("mha", "gqa-8", "mqa", "mla")
FRAME = sweep(SET, context=contexts(1000, 1_000_000))


def texts(figure):
    return [re.sub("</?b>", "", note.text) for note in figure.layout.annotations]


def lines(figure):
    return [trace for trace in figure.data if trace.mode == "lines+markers"]


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("binary", [True, False])
def test_cache_over_context(log, binary):
    figure = figures.cache_over_context(FRAME, log=log, binary=binary)
    for trace, name in zip(lines(figure), SET, strict=True):
        part = FRAME[FRAME["name"] == name]
        assert list(trace.x) == part["context"].tolist()
        assert list(trace.y) == part["cache_bytes"].tolist()
    assert {"26,703", "106,812", "379,774", "854,492", *SET} <= set(texts(figure))
    assert ("weights 13.04 GiB" if binary else "weights 14 GB") in texts(figure)
    assert [shape.y0 for shape in figure.layout.shapes] == [14e9]
    rings = {trace.x[0]: trace.y[0] for trace in figure.data if trace.mode == "markers"}
    assert rings == {tokens: 14e9 for tokens in sorted(FRAME["crossover_tokens"].unique())}


def test_the_ring_lies_on_the_curve():
    rings = [trace for trace in figures.cache_over_context(FRAME).data if trace.mode == "markers"]
    assert rings
    for ring in rings:
        name = ring.name.partition(":")[0]
        slope = FRAME.loc[FRAME["name"] == name, "cache_bytes_per_token"].iloc[0]
        assert ring.x[0] * slope == pytest.approx(ring.y[0], rel=1e-12)


def test_weights_that_differ_have_a_line_each():
    figure = figures.cache_over_context(sweep(["llama-3.1-8b", "llama-3.1-70b"], context=[1000, 100_000]))
    assert len(figure.layout.shapes) == 2
    assert {"llama-3.1-8b weights 14.96 GiB", "llama-3.1-70b weights 131.4 GiB"} <= set(texts(figure))


def test_labels_on_lines_have_the_pages_colour_around_them_and_those_in_boxes_none():
    notes = [note for note in figures.cache_over_context(FRAME).layout.annotations if note.font.color]
    assert {bool(note.bgcolor) for note in notes} == {True, False}
    assert all(("Canvas" in note.font.shadow) == (not note.bgcolor) for note in notes)


def test_a_crossovers_label_at_the_right_end_leaves_room_for_the_lines_names():
    notes = figures.cache_over_context(FRAME).layout.annotations
    sides = {text: note.xanchor for note in notes if note.bgcolor for text in re.findall(r"[\d,]+", note.text)}
    assert sides == {"26,703": "left", "106,812": "left", "379,774": "right", "854,492": "right"}


def test_a_crossover_that_is_not_on_the_chart_is_said_but_not_drawn():
    figure = figures.cache_over_context(sweep("mha", context=[1000, 2000]))
    assert [trace.mode for trace in figure.data] == ["lines+markers"]
    assert "26,703 tokens" in figure.layout.meta["alt"]


def test_no_two_lines_look_alike():
    figure = figures.cache_over_context(FRAME)
    looks = [(trace.line.color, trace.line.dash, trace.marker.symbol) for trace in lines(figure)]
    for kind in zip(*looks, strict=True):
        assert len(set(kind)) == len(SET)


def test_work_over_context_is_marked_where_attention_overtakes():
    model = planner.load("llama-3.1-8b")
    frame, found = flops_by_group(model, "prefill", contexts(1000, 1_000_000)), crossings(model, "prefill")
    figure = figures.flops_over_context(frame, found, "Prefill")
    assert {"10,239", "43,007", "53,248", "projection", "attention", "feed-forward", "head"} <= set(texts(figure))
    for trace in lines(figure):
        assert list(trace.y) == frame[trace.name].tolist()
    assert "projection at 10,239 tokens" in figure.layout.meta["alt"]


def test_cache_by_layer_leaves_full_windows_out_of_a_logarithmic_axis():
    frame = cache_by_layer([planner.load("gemma-3-12b")], 100_000)
    (linear,) = figures.cache_by_layer(frame).data
    (log,) = figures.cache_by_layer(frame, log=True).data
    assert list(linear.y) == frame["cache_bytes_per_token"].tolist()
    assert list(log.y) == [size or None for size in linear.y]
    assert set(linear.y) == {0, 8192}
    assert linear.line.dash == "solid"  # steps of one layer are shorter than a dash


@pytest.mark.parametrize("name", ["<b>x</b>", "<a href='javascript:alert(1)'>x</a>", "x\ny"])
def test_a_name_is_text(name):
    frame = FRAME.assign(name=[name] * len(FRAME)).drop_duplicates("context")
    figure = figures.cache_over_context(frame)
    for text in (*texts(figure), *(trace.name for trace in figure.data)):
        assert "<b>x" not in text
        assert "<a" not in text
        assert "\n" not in text


@pytest.mark.parametrize("models", [SET, ("llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b")])
def test_labels_of_crossovers_at_the_foot_lie_above_it_and_hide_no_other(models):
    figure = figures.cache_over_context(sweep(models, context=contexts(1000, 1_000_000)), log=False)
    low, high = figure.layout.yaxis.range
    pixels = (HEIGHT - MARGIN["t"] - MARGIN["b"]) / (high - low)
    heights = [note.y * pixels - note.ay for note in figure.layout.annotations if note.bgcolor]
    heights += [note.y * pixels + note.yshift + 7 for note in figure.layout.annotations if "weights" in note.text]
    assert min(heights) > 0
    assert all(b - a >= 14 for a, b in itertools.pairwise(sorted(heights)[:2]))


@pytest.mark.parametrize("heights", [[1e3, 1.01e3, 1.02e3, 5e8], [9e8, 8.9e8, 8.8e8, 8.7e8, 8.6e8]])
def test_labels_at_the_ends_of_lines_do_not_meet_nor_leave_the_plot(heights):
    drawing = Drawing("t", "x", "y", True, True)
    drawing.tokens_axis([1, 1000])
    drawing.bytes_axis([1, 1e9], True)
    low, high = drawing.axes["y"]["range"]
    pixels = (HEIGHT - MARGIN["t"] - MARGIN["b"]) / (high - low)
    placed = [(math.log10(y) - low) * pixels + up for y, up in zip(heights, drawing.apart(heights), strict=True)]
    assert all(b - a >= 15 - 1e-9 for a, b in itertools.pairwise(sorted(placed)))
    assert max(placed) <= HEIGHT - MARGIN["t"] - MARGIN["b"]
    assert sorted(range(len(heights)), key=placed.__getitem__) == sorted(range(len(heights)), key=heights.__getitem__)


@pytest.mark.parametrize("values", [[1], [5, 5], [1, 1e18], [0, 0], [math.nan, 3]])
@pytest.mark.parametrize("log", [True, False])
def test_axes_of_any_values(values, log):
    drawing = Drawing("t", "x", "y", log, log)
    drawing.bytes_axis(values, True)
    drawing.flops_axis(values)
    drawing.tokens_axis(values)
    assert all(low < high for low, high in (axis["range"] for axis in drawing.axes.values()))
    assert all(len(axis["tickvals"]) <= 12 for axis in drawing.axes.values())


def test_ticks_are_round_in_the_unit_that_is_shown():
    drawing = Drawing("t", "x", "y", True, False)
    drawing.bytes_axis([0, 3 * 2**30], True)
    assert drawing.axes["y"]["ticktext"] == ["0 B", "1 GiB", "2 GiB", "3 GiB"]
    drawing.bytes_axis([0, 3e9], False)
    assert drawing.axes["y"]["ticktext"] == ["0 B", "1 GB", "2 GB", "3 GB"]


def test_labels_of_crossovers_lie_above_the_threads_of_those_on_their_right():
    figure = figures.cache_over_context(FRAME)
    labels = [float(note.text[3:-4].replace(",", "")) for note in figure.layout.annotations if note.bgcolor]
    assert labels == sorted(labels, reverse=True)  # the last is drawn on top
    assert len(labels) == 4


def test_a_page_needs_nothing_else():
    page = figures.to_html(figures.cache_over_context(FRAME))
    assert "<script src=" not in page
    assert "Cache over context" in page
    assert '"plot_bgcolor":"white"' in page  # as the halo of its labels


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("page", ["#ffffff", "#11161d"])
def test_colours_stand_out_on_both_pages(style, page):
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(style[0]), light(page)), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 3  # WCAG 2.1, 1.4.11: graphical objects
