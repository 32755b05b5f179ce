"""Ten people edit at once for a minute: everyone sees their own figures, nothing fails, and memory stays bounded."""

import os
import re
import time
from pathlib import Path

from playwright.sync_api import expect

SESSIONS = 10
SECONDS = float(os.environ.get("PLANNER_SOAK_SECONDS", "60"))
LARGEST_GROWTH = 400 * 2**20  # bytes; ten sessions with their figures take about a quarter of it
WEIGHTS = 14_000_000_000
BYTES_PER_HEAD = 2 * 32 * 128 * 2  # key and value, layers, width, bytes
DIVISORS = (1, 2, 4, 8, 16, 32)


def resident(process):
    """Bytes of memory that the server holds."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


def test_ten_sessions_edit_at_once(server, visit):
    pages = [visit("/?m=mha") for _ in range(SESSIONS)]
    before, waits, end = resident(server), [], time.monotonic() + SECONDS
    rounds = 0
    while time.monotonic() < end or rounds < 2:
        chosen = [DIVISORS[(number + rounds) % len(DIVISORS)] for number in range(SESSIONS)]
        for page, heads in zip(pages, chosen, strict=True):
            field = page.get_by_label("KV heads")
            field.fill(str(heads))
            field.press("Enter")
        asked = time.monotonic()
        for page, heads in zip(pages, chosen, strict=True):
            crossover = f"{WEIGHTS / (BYTES_PER_HEAD * heads):,.0f}"
            expect(page.get_by_text(f"cache = weights at {crossover} tokens")).to_be_visible()
            waits.append(time.monotonic() - asked)
        rounds += 1
    grown = resident(server) - before
    print(f"{rounds * SESSIONS} edits, slowest {max(waits):.2f} s, memory grown by {grown / 2**20:,.0f} MiB")
    assert grown < LARGEST_GROWTH
