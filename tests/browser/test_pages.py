"""The pages about decoders as a person has them: edited, clicked, pasted into, shared."""

import json
import re
import urllib.parse
import zipfile
from pathlib import Path

from playwright.sync_api import expect

from tests.app.pages import config
from tests.browser.hands import gone_to, note, rewritten, typed, until

TITLES = {"Compare": "Compare decoders", "Formulas": "Formulas", "Contract": "Contract"}


def test_editing_kv_heads_moves_the_label(visit):
    page = visit("/?m=mha")
    for heads, crossover in (("32", "26,703"), ("8", "106,812"), ("1", "854,492")):
        typed(page, "KV heads", heads)
        expect(note(page, crossover)).to_be_visible()


def test_batch_and_format_move_the_label(visit):
    page = visit("/?m=mha")
    typed(page, "Batch", "10")
    expect(note(page, "2,670")).to_be_visible()
    page.get_by_label(re.compile("Cache stored as")).click()
    page.get_by_role("option", name="fp8", exact=True).click()
    expect(note(page, "5,341")).to_be_visible()


def test_a_click_on_the_chart_reads_the_values_there(visit):
    page = visit("/?m=mha&m=mla")
    chart = page.locator("[data-testid=stPlotlyChart]").first
    values = page.get_by_role("table", name="figures at 1,000 tokens")

    def click():
        chart.scroll_into_view_if_needed()
        box = chart.locator(".scatterlayer .trace").first.locator(".point").first.bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    until(click, values)
    expect(values).to_contain_text("500 MiB")


def test_how_a_figure_came_about(visit):
    page = visit("/?m=mha")
    page.get_by_role("button", name="How").nth(2).click()  # the third figure is the weights
    expect(page.get_by_test_id("stPopoverBody")).to_contain_text("14,000,000,000 B, exact")


def test_a_real_config_is_pasted(visit):
    page = visit()
    page.get_by_text("Add from config.json or TOML").click()
    page.get_by_label("Paste it here").fill(json.dumps(config("mixtral-8x22b")))
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("table", name="all figures")).to_contain_text("140.6 G")


def test_a_broken_upload_is_a_sentence(visit, tmp_path):
    broken = tmp_path / "config.json"
    broken.write_text('{"model_type": "llama", "hidden_size": ')
    page = visit()
    page.get_by_text("Add from config.json or TOML").click()
    page.locator("input[type=file]").set_input_files(broken)
    page.get_by_role("button", name="Add it").click()
    expect(page.get_by_role("alert").first).to_contain_text("config.json: not valid JSON")
    expect(page.get_by_role("table", name="all figures")).to_be_visible()


def test_a_large_upload_is_refused(visit, tmp_path):
    large = tmp_path / "config.json"
    with large.open("wb") as file:
        file.truncate(50_000_000)
    page = visit()
    page.get_by_text("Add from config.json or TOML").click()
    page.locator("input[type=file]").set_input_files(large)
    expect(page.get_by_test_id("stFileUploader")).to_contain_text(re.compile("must be 1.*or smaller"))


def test_a_script_in_a_name_is_text(visit):
    name = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    token = "mha" + json.dumps({"name": name, "layers[0].label": "$<img src=x onerror=alert(3)>$"})
    for where in TITLES:
        page = visit(f"/?page={where}&m={urllib.parse.quote(token)}")
        expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_attached()
        assert page.locator("img[src=x]").count() == 0


def test_a_link_shows_the_same_in_a_fresh_browser(visit):
    page = visit()
    typed(page, "KV heads", "4")
    typed(page, "Batch", "3")
    table = page.get_by_role("table", name="all figures")
    expect(table).to_contain_text("71,208")
    expect(page).to_have_url(re.compile("batch=3"))  # the link is written when everything else is drawn
    again = visit(page.url.removeprefix(re.match("http://[^/]*", page.url)[0]))
    same = again.get_by_role("table", name="all figures")
    expect(same).to_contain_text("71,208")
    assert same.inner_text() == table.inner_text()


def test_the_state_goes_from_page_to_page(visit):
    page = visit()
    typed(page, "KV heads", "8")
    for name in ("Formulas", "Contract", "Compare"):
        gone_to(page, name, TITLES[name])
        expect(page).to_have_url(re.compile("n_kv_heads"))
    expect(note(page, "106,812")).to_be_visible()


def test_downloads(visit):
    page = visit("/?m=mha")
    with page.expect_download() as table:
        page.get_by_role("button", name="Table as CSV").click()
    assert Path(table.value.path()).read_text().splitlines()[1].startswith("mha,6738415616,")
    with page.expect_download() as chart:
        page.get_by_role("button", name="Cache over context as HTML").click()
    assert "26,703" in Path(chart.value.path()).read_text()
    with page.expect_download() as workbook:
        page.get_by_role("button", name="Live workbook").click()
    with zipfile.ZipFile(workbook.value.path()) as book:
        assert "xl/workbook.xml" in book.namelist()
    page = visit("/?m=mha&page=Contract")
    with page.expect_download() as contract:
        page.get_by_role("button", name="Contract as TOML").click()
    assert "n_kv_heads = 32" in Path(contract.value.path()).read_text()


def test_a_field_of_the_contract_is_edited_by_keyboard(visit):
    page = visit("/?m=mha&page=Contract")
    changed = page.get_by_role("table", name="differences").filter(has_text="64000")
    rewritten(page, row=3, across=0.5, text="64000", outcome=changed)  # the value of vocab_size


def test_verify_runs_in_place(visit):
    page = visit("/?m=gqa-8&page=Contract")
    page.get_by_role("tab", name="Verify").click()
    page.get_by_role("button", name="Run the checklist").click()
    expect(page.get_by_role("table", name="checklist")).to_contain_text("cache bytes after prefill")


def test_charts_have_a_sentence_for_those_who_cannot_see_them(visit):
    page = visit("/?m=mha")
    expect(page.locator("[aria-label*='mha: cache = weights at 26,703 tokens']").first).to_be_attached()
