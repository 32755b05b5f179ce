"""What the web app's server does for the first view and for an edit; the budgets: 1 s and 100 ms on an idle core."""

import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from planner.app.views import compare

MAIN = Path(__file__).parents[2] / "app" / "main.py"


@pytest.fixture
def spent(monkeypatch):
    """Seconds of processor that each drawing of the comparison took, without what the test takes itself."""
    taken, draw = [], compare.draw

    def timed():
        began = time.thread_time()
        draw()
        taken.append(time.thread_time() - began)

    monkeypatch.setattr(compare, "draw", timed)
    return taken


def test_first_view_and_edits(spent, benchmark):
    app = AppTest.from_file(MAIN, default_timeout=60).run()
    heads = iter([8, 1, 32, 16, 2, 4] * 100)

    def edit():
        next(each for each in app.number_input if each.label == "KV heads").set_value(next(heads)).run()

    benchmark.pedantic(edit, rounds=20)
    first, *edits = spent
    benchmark.extra_info.update(first_view_s=first, edit_s=sorted(edits)[len(edits) // 2])
    print(f"first view {first * 1e3:.0f} ms, an edit {sorted(edits)[len(edits) // 2] * 1e3:.0f} ms")
