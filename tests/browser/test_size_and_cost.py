"""The pages about hardware and money as a person has them."""

import re
import urllib.parse
import zipfile
from pathlib import Path

from playwright.sync_api import expect

from planner.app.money import usd
from planner.cost import cost
from planner.memory import fit
from planner.plan_file import parse_plan
from planner.speed import estimate
from planner.units import show
from tests.browser.hands import gone_to, metric, note, rewritten, settled, typed, until

TITLES = {"Size": "Size a deployment", "Cost": "Cost"}
LOAD = "m=llama-3.1-70b&count=8&context=4k&batch=64&osl=512"
SAID = {"accelerator": "h100-sxm", "count": 8, "context": 4000, "sequences": 64, "osl": 512}


def verdict(page):
    return page.get_by_test_id("stAlert").first


def test_an_edit_moves_verdict_times_and_price(visit):
    page = visit(f"/?page=Size&{LOAD}")
    expect(verdict(page)).to_contain_text("It fits.")
    typed(page, "Batch", "4096")
    answer = fit("llama-3.1-70b", **{**SAID, "sequences": 4096})
    expect(verdict(page)).to_contain_text("It does not fit.")
    expect(metric(page, "Most sequences")).to_contain_text(f"{answer.most_sequences:,}")
    typed(page, "Batch", "64")
    typed(page, "Compute fraction", "0.5")
    expect(metric(page, "First token after")).to_contain_text(
        show(estimate("llama-3.1-70b", **SAID, compute_fraction=0.5).ttft_s, "s")
    )
    expect(page).to_have_url(re.compile("compute_fraction=0.5"))


def test_another_accelerator_is_chosen(visit):
    page = visit(f"/?page=Size&{LOAD}")
    page.get_by_role("combobox", name=re.compile("^Accelerator( · assumed)?")).fill("b200")
    page.get_by_role("option", name="b200", exact=True).click()
    expect(verdict(page)).to_contain_text("8 x b200")
    expect(page.get_by_role("table", name="ranked layouts")).to_contain_text("b200, tp")


def test_a_preset_is_chosen_by_keyboard_on_a_telephone(visit):
    page = visit("/?page=Size&context=4k", viewport={"width": 390, "height": 900})
    decoder = page.get_by_role("combobox", name="Decoder", exact=True)

    def choose():
        decoder.fill("llama-3.1-8b")
        decoder.press("Enter")

    until(choose, verdict(page).filter(has_text="llama-3.1-8b on 1 x h100-sxm"))
    expect(page).to_have_url(re.compile("edit=4.*m=llama-3.1-8b"))


def test_how_a_figure_came_about(visit):
    page = visit(f"/?page=Size&{LOAD}")
    metric(page, "Longest context").locator("xpath=ancestor::*[@data-testid='stVerticalBlock'][1]").get_by_role(
        "button", name="How"
    ).click()
    longest = fit("llama-3.1-70b", **SAID).longest_context
    expect(page.get_by_test_id("stPopoverBody")).to_contain_text(f"{longest + 1:,}")


def test_reasons_of_the_rejected_are_unfolded(visit):
    page = visit(f"/?page=Size&{LOAD}")
    page.get_by_text(re.compile("rejected, each with its reason")).click()
    expect(page.get_by_role("table", name="rejected layouts")).to_contain_text("one sequence lacks")


def test_a_price_is_edited_in_place_and_stands_in_the_link(visit):
    page = visit(f"/?page=Cost&{LOAD}")
    priced = metric(page, "Accelerator-hour").filter(has_text="1.25 USD/h")
    rewritten(page, row=1, across=0.4, text="1.25", outcome=priced)  # the price of an accelerator-hour
    answer = cost("llama-3.1-70b", **SAID, usd_per_hour=1.25)
    expect(metric(page, "Fleet, a month")).to_contain_text(usd(answer.fleet_usd_per_month))
    expect(page).to_have_url(re.compile("usd_per_hour=1.25"))
    settled(page)
    again = visit(page.url.removeprefix(re.match("http://[^/]*", page.url)[0]))
    expect(metric(again, "Accelerator-hour")).to_contain_text("1.25 USD/h")


def test_the_crossing_of_fleet_and_api_is_labelled(visit):
    page = visit("/?page=Cost&m=llama-3.1-8b&context=4k&batch=64&osl=512&usd_per_hour=0.2")
    said = {**SAID, "count": 1, "usd_per_hour": 0.2}
    answer = cost("llama-3.1-8b", **said, api="llama-3.1-8b")
    expect(note(page, f"{answer.api.break_even_requests_per_month:,.0f}")).to_be_visible()


def test_the_state_goes_between_the_pages(visit):
    page = visit(f"/?page=Size&{LOAD}")
    typed(page, "Output tokens", "100")
    gone_to(page, "Cost", TITLES["Cost"])
    expect(metric(page, "One request")).to_contain_text(
        usd(cost("llama-3.1-70b", **{**SAID, "osl": 100}).usd_per_request)
    )


def test_downloads(visit):
    page = visit(f"/?page=Size&{LOAD}")
    with page.expect_download() as text:
        page.get_by_role("button", name="Plan as TOML").click()
    plan = parse_plan(Path(text.value.path()).read_text(), "plan.toml")
    assert fit(plan).headroom_bytes == fit("llama-3.1-70b", **SAID).headroom_bytes
    with page.expect_download() as table:
        page.get_by_role("button", name="Table as CSV").click()
    assert Path(table.value.path()).read_text().startswith("rank,accelerator,count,tp,")
    with page.expect_download() as workbook:
        page.get_by_role("button", name="Live workbook").click()
    with zipfile.ZipFile(workbook.value.path()) as book:
        assert "xl/workbook.xml" in book.namelist()
    with page.expect_download() as chart:
        page.get_by_role("button", name="Roofline as HTML").click()
    assert "ridge 295" in Path(chart.value.path()).read_text()


def test_a_script_in_a_name_is_text(visit):
    token = urllib.parse.quote('mha{"name":"<img src=x onerror=alert(1)><script>alert(2)</script>"}')
    for where in TITLES:
        page = visit(f"/?page={where}&m={token}")
        expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_attached()
        assert page.locator("img[src=x]").count() == 0
