"""Every page in both themes and widths: nothing cut, nothing on top of something else."""

import pytest
from playwright.sync_api import expect

from tests.browser import test_pages, test_size_and_cost
from tests.browser.hands import found

TITLES = test_pages.TITLES | test_size_and_cost.TITLES
WIDE = """[...document.querySelectorAll("[data-testid=stMain], .planner, [data-testid=stMetricValue] div")]
    .filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
OVERLAPS = """[...document.querySelectorAll("[data-testid=stPlotlyChart]")].flatMap(chart => {
    const notes = [...chart.querySelectorAll(".annotation-text")];
    const boxes = notes.map(e => [e.textContent, e.getBoundingClientRect()]);
    return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) =>
        p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 2 && q.top < p.bottom - 2
    ).map(([b]) => a + " on " + b)) })"""


CUT = """[...document.querySelectorAll("[data-testid=stPlotlyChart]")].flatMap(chart =>
    [...chart.querySelectorAll(".annotation-text")].map(e => [e.textContent, e.getBoundingClientRect()]).filter(
        ([, p]) => p.right > chart.getBoundingClientRect().right || p.left < chart.getBoundingClientRect().left
    ).map(([a]) => a))"""


@pytest.mark.parametrize("name", TITLES)
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_every_page_is_drawn_whole(visit, name, theme, width):
    load = f"&{test_size_and_cost.LOAD}" if name in test_size_and_cost.TITLES else ""
    page = visit(f"/?page={name}{load}", viewport={"width": width, "height": 900}, color_scheme=theme)
    expect(page.locator("h1")).to_have_text(TITLES[name])
    assert found(page, WIDE) == []
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scale", ["log", "linear"])
def test_long_names_are_neither_cut_nor_covered(visit, width, scale):
    page = visit(f"/?m=llama-3.1-8b&m=qwen3-235b-a22b&scale={scale}", viewport={"width": width, "height": 900})
    expect(page.get_by_test_id("stPlotlyChart")).to_have_count(4)
    assert found(page, CUT) == []
    assert found(page, OVERLAPS) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_labels_of_charts_do_not_lie_on_each_other(visit, width):
    page = visit(f"/?page=Size&{test_size_and_cost.LOAD}", viewport={"width": width, "height": 900})
    expect(page.get_by_test_id("stPlotlyChart")).to_have_count(5)
    assert found(page, OVERLAPS) == []
