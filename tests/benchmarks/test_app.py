"""What the web app's server does for the first view and for an edit; the budgets: 1 s and 100 ms on an idle core."""

import itertools
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner.app.views import compare, size

MAIN = Path(__file__).parents[2] / "app" / "main.py"
LOAD = {"page": "Size", "count": "8", "context": "16k", "osl": "512"}
HEADS, BATCHES = (8, 1, 32, 16, 2, 4), tuple(map(str, range(16, 64)))


@pytest.mark.parametrize(
    ("view", "link", "label", "values"),
    [
        (compare, {}, "KV heads", HEADS),
        (size, {**LOAD, "m": "llama-3.1-70b"}, "Batch", BATCHES),
        (size, {**LOAD, "m": "deepseek-v3", "accelerator": "h200"}, "Batch", BATCHES),
    ],
    ids=["compare", "size-dense", "size-experts"],
)
def test_first_view_and_edits(monkeypatch, benchmark, view, link, label, values):
    taken, draw, values = [], view.draw, itertools.cycle(values)

    def timed():
        """Seconds of processor of each drawing, without what the test takes itself."""
        began = time.thread_time()
        draw()
        taken.append(time.thread_time() - began)

    monkeypatch.setattr(view, "draw", timed)
    app = AppTest.from_file(MAIN, default_timeout=60)
    app.query_params.update(link)
    app.run()

    def edit():
        fields = (*app.number_input, *app.text_input)
        next(each for each in fields if each.label.startswith(label)).set_value(next(values)).run()

    benchmark.pedantic(edit, rounds=20)
    first, *edits = taken
    benchmark.extra_info.update(first_view_s=first, edit_s=sorted(edits)[len(edits) // 2])
    print(f"first view {first * 1e3:.0f} ms, an edit {sorted(edits)[len(edits) // 2] * 1e3:.0f} ms")
