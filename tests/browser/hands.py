"""What a person does on a page and looks at. The page is drawn anew while it settles, so every act is tried again."""

import contextlib
import re

from playwright.sync_api import Error, expect

ROW = 35  # pixels of a row of an editable table
TRIES = 10
PAUSE_MS = 3000  # before an act is tried again


def settled(page):
    """Wait until the page is drawn whole."""
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("[data-test-script-state=notRunning]")).to_be_attached()
    expect(page.locator("[data-testid=stSkeleton]")).to_have_count(0)


def typed(page, label, text):
    """Type into a field and leave it with Enter; a page that is drawn anew meanwhile may give an older text back."""
    field = page.get_by_label(re.compile(rf"^{label}( · assumed)?$"))
    for _ in range(TRIES):
        field.fill(text)
        field.press("Enter")
        settled(page)
        if field.count() != 1 or field.input_value() == text:
            return


def note(page, text):
    """An annotation of a chart."""
    return page.locator("svg .annotation-text", has_text=re.compile(f"^{re.escape(text)}$")).first


def metric(page, label):
    return page.get_by_test_id("stMetric").filter(has_text=re.compile(f"^{re.escape(label)}"))


def gone_to(page, name, title):
    """Another page, chosen in the navigation."""
    page.get_by_role("radio", name=name).or_(page.get_by_role("button", name=name, exact=True)).first.click()
    expect(page.locator("h1")).to_have_text(title)
    settled(page)


def until(act, outcome):
    """Act, again and again, until what is expected is seen; an act that the page does not let through is no end."""
    for _ in range(TRIES):
        with contextlib.suppress(AssertionError, Error):
            act()
            expect(outcome).to_be_visible(timeout=PAUSE_MS)
            return
    expect(outcome).to_be_visible()


def rewritten(page, row, across, text, outcome):
    """Write into a cell of an editable table, by its row from the head and how far across it lies, until it counts."""
    editor = page.get_by_test_id("stDataFrame").locator("canvas").first
    cell = page.locator("#portal").locator("textarea, input").first

    def write():
        editor.scroll_into_view_if_needed()
        page.wait_for_timeout(1000)  # the table takes its width from the page after it is drawn
        box = editor.bounding_box()
        page.mouse.click(box["x"] + across * box["width"], box["y"] + ROW * (row + 0.5))
        page.keyboard.press("Enter")
        cell.fill(text, timeout=PAUSE_MS)  # the table may be drawn anew, and its open cell be gone
        page.keyboard.press("Enter")

    until(write, outcome)


def found(page, script):
    """What a script still finds on the page when it has had some seconds to settle."""
    for _ in range(TRIES):
        if not (finds := page.evaluate(script)):
            break
        page.wait_for_timeout(500)
    return finds
