"""Whatever is typed, pasted, uploaded or linked: shown as text or refused in a sentence, and no file is opened."""

import io
import json

import pytest

import planner
from planner.app import controls, show
from tests.app.pages import config, enter, opened, press, run, sentences, table, widget

SCRIPT = "<script>alert(1)</script>"
IMAGE = "![x](http://example.org/x.png)"


def pasted(text):
    app = opened()
    widget(app.text_area, "Paste it here").set_value(text)
    return press(app, "Add it")


def uploaded(name, content):
    app = opened()
    app.file_uploader[0].set_value((name, content, "application/octet-stream"))
    run(app)
    return press(app, "Add it")


def last_row(app):
    return table(app, "all figures")[-1]


def test_a_pasted_config_is_compared():
    app = pasted(json.dumps(config("mixtral-8x22b")))
    assert sentences(app) == []
    assert last_row(app)[1].partition("\n")[0] == "140.6 G"
    assert widget(app.selectbox, "Edit").value == 4
    assert opened(**dict(app.query_params)).query_params == app.query_params


def test_an_uploaded_contract_is_compared():
    app = uploaded("mine.toml", CONTRACT.encode())
    assert sentences(app) == []
    assert last_row(app)[0].startswith("mine")


CONTRACT = """
name = "mine"
vocab_size = 1000
d_model = 64

[[layers]]
count = 2
norm = { kind = "rms", eps = 1e-5 }
feed_forward = { kind = "feed_forward", d_ff = 128 }
mixer = { kind = "dense_attention", n_heads = 4, n_kv_heads = 2, head_dim = 16 }
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid TOML"),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, "nested too deeply"),
        ('{"model_type": "no-such-model"}', "no-such-model"),
        ("/etc/passwd", "not valid TOML"),
        ("http://example.org/config.json", "not valid TOML"),
        (CONTRACT.replace("count = 2", "count = 99999999"), "at most 10,000"),
        (CONTRACT.replace("n_heads = 4", "n_heads = '=1+1'"), "is not a whole number"),
        (CONTRACT.replace("name", "__class__", 1), "unknown key"),
        (f"{SCRIPT} = 1", "not valid TOML"),
    ],
)
def test_what_is_no_contract_is_refused_in_a_sentence(text, said):
    app = pasted(text)
    assert said in sentences(app)[0]
    assert len(app.session_state["decoders"]) == 4
    assert len(table(app, "all figures")) == 5


def test_an_upload_that_is_no_text_is_refused():
    assert "not text in UTF-8" in sentences(uploaded("x.toml", b"\xff\xfe\x00"))[0]


def test_uploads_are_small():
    app = opened()
    assert app.file_uploader[0].proto.max_upload_size_mb == controls.UPLOAD_MB == 1


@pytest.mark.parametrize("name", [SCRIPT, IMAGE, "a|b", "$x$", "`code`", "**bold**", ":material/home:", "=1+1", "a\nb"])
def test_a_name_is_shown_as_text(name):
    app = pasted(CONTRACT.replace('"mine"', json.dumps(name)))
    assert sentences(app) == []
    assert last_row(app)[0] == name.replace("\n", " ")
    for page in ("Compare", "Formulas", "Contract"):
        widget(app.segmented_control, "Page").set_value(page)
        run(app)
        for each in (*app.markdown, *app.subheader, *app.caption):
            assert "<script" not in each.value.replace("\\<", "")
            assert "![" not in each.value
        for each in app.html:
            assert "<script>" not in each.value


@pytest.mark.parametrize("name", ["/etc/passwd", "../presets/models/mha.toml", "http://example.org/x", SCRIPT])
def test_no_file_that_a_link_names_is_opened(name, monkeypatch):
    opened()  # everything that is read once has been read
    touched = []
    monkeypatch.setattr(io, "open", lambda file, *a, **k: touched.append(file) or io.StringIO(""))
    app = opened(m=name)
    assert any("unknown model" in sentence for sentence in sentences(app))
    assert [file for file in touched if name in str(file)] == []


def test_what_a_link_says_is_shown_as_text():
    app = opened(m=IMAGE, kv=IMAGE, batch=IMAGE)
    assert len(app.error) == 3
    assert all("![" not in each.value for each in app.error)


def test_choices_and_numbers_of_a_link_are_checked():
    app = opened(weights=SCRIPT, kv="no-such", scale="x", edit="99", base="-1", context="x" * 500, formula="rm")
    said = sentences(app)
    for word in ("weights", "kv", "scale", "formula"):
        assert any(f"The link says {word} =" in sentence for sentence in said)
    assert any("context" in sentence and "is not a number" in sentence for sentence in said)


def test_at_most_eight_decoders_come_from_a_link():
    app = opened(m=[f'mha{{"vocab_size":{n}}}' for n in range(1000, 1020)])
    assert len(app.session_state["decoders"]) == 8


def test_a_decoder_too_long_for_the_link_is_said_and_left_out():
    token = "mha" + json.dumps({"name": "n" * 2000})
    app = opened(m=[token, "mqa"])
    assert app.query_params["m"] == "mqa"
    assert any("Too long for the link" in each.value for each in app.caption)


def test_csv_holds_no_formula():
    frame = planner.compare([planner.edit(planner.load("mha"), name="=1+1")], context=1000)
    assert show.csv(frame).splitlines()[1].startswith("'=1+1,")


def test_a_formula_in_a_field_is_text():
    app = opened(m="mha")
    enter(app, app.text_input, "Batch", "=2+2")
    assert "'=2+2' is not a number" in sentences(app)[0]
