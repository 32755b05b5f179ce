"""A page of the web app as a test sees it: opened from a link, its texts, tables and figures."""

import html
import json
import re
from pathlib import Path

import plotly.graph_objects as go
from streamlit.testing.v1 import AppTest

CONFIGS = Path(__file__).parents[1] / "data" / "configs.jsonl"
MAIN = Path(__file__).parents[2] / "app" / "main.py"


def config(preset):
    """The config.json of a preset, as its makers published it."""
    rows = map(json.loads, CONFIGS.read_text(encoding="utf-8").splitlines())
    return next(row["config"] for row in rows if row["preset"] == preset)


def opened(**link):
    """The app as that link opens it; a traceback on the page is a failure."""
    app = AppTest.from_file(MAIN, default_timeout=60)
    for word, text in link.items():
        app.query_params[word] = text
    return run(app)


def run(app):
    """The app once more, as after a click."""
    app.run()
    assert [each.value for each in app.exception] == []
    return app


def widget(widgets, label):
    """The one widget of that label, an "assumed" behind it or not."""
    found = [each for each in widgets if each.label.removesuffix(" · assumed") == label]
    assert len(found) == 1, (label, [each.label for each in widgets])
    return found[0]


def enter(app, widgets, label, value):
    """Enter a value and run."""
    widget(widgets, label).set_value(value)
    return run(app)


def press(app, label):
    """Press a button and run."""
    widget(app.button, label).click()
    return run(app)


def table(app, name):
    """The rows of a table on the page, its cells as texts with a line feed before their small print."""
    body = next(each.value for each in app.html if f'aria-label="{name}"' in each.value)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?>(.*?)</tr>", body)]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell.replace("<small>", "\n"))) for cell in row] for row in rows]


def chart(app, key):
    """A chart of the page as Plotly's tables, which Plotly finds nothing wrong with."""
    spec = next(json.loads(each.proto.spec) for each in app.get("plotly_chart") if each.proto.id.endswith(f"-{key}"))
    go.Figure(spec)
    return spec


def labels(figure):
    """The annotations of a chart."""
    return [re.sub("</?b>", "", note["text"]) for note in figure["layout"]["annotations"]]


def sentences(app):
    """What the page says is wrong, without Markdown's backslashes."""
    return [re.sub(r"\\(.)", r"\1", each.value) for each in app.error]
