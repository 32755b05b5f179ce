"""The comparison page says what the core says, moves with every edit, and keeps standing when something is wrong."""

import io
import json
import re
import zipfile
from types import SimpleNamespace

import pytest

import planner
from planner.app import show
from planner.scenarios import sweep
from tests.app.pages import chart, enter, labels, opened, press, sentences, table, widget


def test_the_first_view_shows_the_comparison_set_and_its_crossovers():
    app = opened()
    rows = {row[0].partition("\n")[0]: row[1:] for row in table(app, "all figures")[1:]}
    assert list(rows) == ["mha", "gqa-8", "mqa", "mla"]
    assert rows["mha"][2:6] == ["13.04 GiB", "512 KiB", "62.5 GiB", "26,703"]
    assert rows["mqa"][3:6] == ["16 KiB\n× 0.03125", "1.953 GiB\n× 0.03125", "854,492\n× 32"]
    assert {"26,703", "106,812", "379,774", "854,492", "weights 13.04 GiB"} <= set(labels(chart(app, "cache")))
    assert dict(app.query_params) == {}


def test_editing_kv_heads_moves_the_crossover():
    app = opened(m="mha")
    assert "26,703" in labels(chart(app, "cache"))
    for heads, crossover in ((8, "106,812"), (1, "854,492"), (32, "26,703")):
        enter(app, app.number_input, "KV heads", heads)
        assert crossover in labels(chart(app, "cache"))
        assert widget(app.metric, "Cache = weights at").value == crossover


@pytest.mark.parametrize(
    ("label", "path", "value"),
    [
        ("Layers", "layers[0].count", 40),
        ("Width", "d_model", 2048),
        ("Query heads", "layers[0].mixer.n_heads", 64),
        ("Head width", "layers[0].mixer.head_dim", 64),
        ("Window", "layers[0].mixer.window", 4096),
        ("FFN width", "layers[0].feed_forward.d_ff", 8192),
        ("Vocabulary", "vocab_size", 64_000),
    ],
)
def test_every_field_is_the_contracts_field(label, path, value):
    app = opened(m="llama-2-7b")
    enter(app, app.number_input, label, value)
    expected = planner.compare([planner.edit(planner.load("llama-2-7b"), {path: value})], context=128_000)
    assert exact(app, "Prefill") == f"{expected['prefill_flops'][0]:,} FLOP"
    assert exact(app, "Cache of the batch") == f"{expected['cache_bytes'][0]:,} B"
    assert exact(app, "Parameters") == f"{expected['parameters'][0]:,}"


@pytest.mark.parametrize(("label", "field"), [("Latent width", "kv_lora_rank"), ("Rotary width", "rope_head_dim")])
def test_fields_of_latent_attention(label, field):
    app = opened(m="mla")
    enter(app, app.number_input, label, 256)
    expected = planner.compare([planner.edit(planner.load("mla"), {field: 256})], context=128_000)
    assert exact(app, "Cache of one token") == f"{expected['cache_bytes_per_token'][0]:,} B"


def test_fields_of_a_mixture():
    app = opened(m="mixtral-8x7b")
    enter(app, app.number_input, "Experts", 16)
    assert (
        exact(app, "Parameters") == f"{planner.parameters(planner.edit(planner.load('mixtral-8x7b'), n_experts=16)):,}"
    )


def test_a_field_that_differs_between_layers_is_edited_for_each_kind():
    app = opened(m="gemma-3-12b")
    enter(app, app.number_input, "Window (local)", 512)
    edited = planner.edit(planner.load("gemma-3-12b"), {"layers[0].mixer.window": 512})
    assert exact(app, "Cache of the batch") == f"{planner.cache_bytes(edited, 128_000):,} B"


def test_load_and_formats():
    app = opened(m="llama-3.1-8b")
    enter(app, app.text_input, "Batch", "4")
    enter(app, app.text_input, "Context", "32Ki")
    enter(app, app.selectbox, "Weights stored as", "awq-g128")
    enter(app, app.selectbox, "Cache stored as", "fp8")
    expected = planner.compare(["llama-3.1-8b"], context=32_768, batch=4, weights="awq-g128", kv="fp8").iloc[0]
    assert exact(app, "Weights") == f"{expected['weight_bytes']:,} B"
    assert exact(app, "Cache of the batch") == f"{expected['cache_bytes']:,} B"
    assert widget(app.metric, "Cache = weights at").value == f"{expected['crossover_tokens']:,.0f}"
    assert exact(app, "Decode step") == f"{expected['decode_flops']:,} FLOP"
    link = {"m": "llama-3.1-8b", "batch": "4", "context": "32Ki", "weights": "awq-g128", "kv": "fp8"}
    assert dict(app.query_params) == link


def test_charts_are_drawn_from_the_core():
    app = opened(m=["mha", "mla"])
    figure = chart(app, "cache")
    traces = [trace for trace in figure["data"] if trace["mode"] == "lines+markers"]
    frame = sweep(["mha", "mla"], context=[int(x) for x in traces[0]["x"]])
    for trace in traces:
        assert trace["y"] == frame.loc[frame["name"] == trace["name"], "cache_bytes"].tolist()
    prefill = {trace["name"]: trace for trace in chart(app, "prefill")["data"]}
    by_component = planner.flops(planner.load("mha"), new=1000, by="component")
    assert prefill["attention"]["y"][0] == by_component["attention_core"]
    assert prefill["projection"]["y"][0] == by_component["attention"]
    assert prefill["head"]["y"][0] == by_component["lm_head"]
    layers = {trace["name"]: trace["y"] for trace in chart(app, "layers")["data"]}
    assert layers == {"mha": [16_384] * 32, "mla": [1152] * 32}


def test_a_click_reads_every_decoder_there(monkeypatch):
    click = SimpleNamespace(selection=SimpleNamespace(points=[{"x": 1000}]))
    monkeypatch.setattr(show, "figure", lambda *args, **named: click)
    app = opened()
    rows = table(app, "figures at 1,000 tokens")[1:]
    assert [row[:2] for row in rows] == [
        ["mha", "500 MiB"],
        ["gqa-8", "125 MiB"],
        ["mqa", "15.62 MiB"],
        ["mla", "35.16 MiB"],
    ]


def test_units_axes_and_baseline():
    app = opened(bytes="GB", scale="linear", base="1")
    rows = table(app, "all figures")[1:]
    assert rows[0][5] == "67.11 GB\n× 4"
    assert rows[1][0] == "gqa-8\nbaseline; parameters as stated"
    assert chart(app, "cache")["layout"]["xaxis"]["type"] == "linear"


def test_the_baseline_stays_where_another_decoder_falls_out():
    app = opened(m=['mha{"layers[0].mixer.n_kv_heads":7}', "gqa-8", "mla"], base="2")
    rows = table(app, "all figures")[1:]
    assert [row[0] for row in rows] == ["gqa-8\nparameters as stated", "mla\nbaseline; parameters as stated"]


def test_parameters_can_be_counted_where_a_contract_states_them():
    app = opened(m="mha", derive="yes")
    assert exact(app, "Weights") == f"{planner.compare(['mha'], derive=True)['weight_bytes'][0]:,} B"


def test_what_is_assumed_is_marked():
    app = opened()
    assert "Context · assumed" in [each.label for each in app.text_input]
    enter(app, app.text_input, "Context", "1k")
    assert "Context" in [each.label for each in app.text_input]
    said = next(each.value for each in app.caption if "assumed" in each.value)
    assert "context" not in said
    assert "batch" in said


def test_a_rule_that_is_broken_is_said_in_place_and_the_others_stand():
    app = opened()
    enter(app, app.number_input, "KV heads", 7)
    assert "n_kv_heads = 7 does not divide n_heads = 32" in sentences(app)[0]
    assert [row[0].partition("\n")[0] for row in table(app, "all figures")[1:]] == ["gqa-8", "mqa", "mla"]
    assert widget(app.number_input, "KV heads").value == 7
    enter(app, app.number_input, "Query heads", 35)
    assert sentences(app) == []
    edited = planner.edit(planner.load("mha"), n_heads=35, n_kv_heads=7)
    assert exact(app, "Cache of the batch") == f"{planner.cache_bytes(edited, 128_000):,} B"


@pytest.mark.parametrize(
    ("label", "text", "said"),
    [
        ("Context", "128K", "has the unknown unit"),
        ("Batch", "0", "not between 1 and"),
        ("Chart from", "=1+1", "is not a number"),
        ("Chart to", "10", "the context runs from 1,000 to 10"),
    ],
)
def test_a_load_that_is_none_is_said_in_place(label, text, said):
    app = opened()
    enter(app, app.text_input, label, text)
    assert any(said in sentence for sentence in sentences(app))
    assert app.title[0].value == "Compare decoders"


def test_a_context_beyond_learned_positions_is_said():
    app = opened(m=["gpt2", "mha"])
    assert any("exceed the 1024 learned ones" in each.value.replace("\\", "") for each in app.warning)
    assert table(app, "all figures")[1][5] == "n/a"


def exact(app, metric):
    """The figure in full, as the popover beside a metric has it."""
    names = [each.label for each in app.metric]
    shown = [re.fullmatch(r"\*\*(\d.*|n/a)\*\*(, exact)?", each.value) for each in app.markdown]
    return [match[1] for match in shown if match][names.index(metric)]


def test_a_crossover_that_never_comes_has_no_figure():
    app = opened(m="mistral-7b-v0.1")
    assert widget(app.metric, "Cache = weights at").value == "n/a"
    assert exact(app, "Cache = weights at") == "n/a"
    assert any("Never reached on the cache's true curve" in each.value for each in app.caption)


def test_a_context_beyond_learned_positions_has_its_reason():
    app = opened(m="gpt2")
    (row,) = table(app, "all figures")[1:]
    assert row[0] == "gpt2\nbaseline; 128000 positions exceed the 1024 learned ones"
    assert row[1:] == ["124.4 M", "124.4 M", "237.4 MiB", *["n/a"] * 5]


def test_how_a_figure_came_about():
    app = opened(m="mha")
    assert any(r"\frac{14{,}000{,}000{,}000}{1 \cdot 524{,}288} = 26{,}702.88" in each.value for each in app.latex)
    addends = table(app, "addends")
    parts = planner.flops(planner.load("mha"), new=128_000, by="component")
    assert [row[2] for row in addends[1:-1]] == [f"{work:,}" for work in parts.values()]
    assert addends[-1][2] == f"{sum(parts.values()):,}"


def test_a_preset_is_chosen_where_the_page_needs_it():
    app = opened(page="Size", context="4k")
    enter(app, app.selectbox, "Decoder", "llama-3.1-8b")
    assert app.query_params["edit"] == "4"
    assert app.query_params["m"][-1] == "llama-3.1-8b"
    assert any("llama\\-3.1\\-8b on" in each.value or "llama-3.1-8b on" in each.value for each in app.success)
    for name in ("gpt2", "gpt2-medium", "gpt2-large"):
        enter(app, app.selectbox, "Decoder", name)
    enter(app, app.selectbox, "Decoder", "gpt2-xl")
    assert sentences(app)[0] == "8 decoders stand here already; take one out first"
    assert widget(app.selectbox, "Decoder").value == 0


def test_a_copy_is_edited_beside_the_original():
    app = opened(m="mha")
    press(app, "Edit a copy")
    enter(app, app.number_input, "KV heads", 8)
    rows = table(app, "all figures")[1:]
    assert [(row[0].partition("\n")[0], row[6].partition("\n")[0]) for row in rows] == [
        ("mha", "26,703"),
        ("mha 2", "106,812"),
    ]


def test_the_workbook_is_of_the_decoders_on_the_page():
    models = [planner.edit(planner.load("mha"), name="=1+1"), planner.load("mla")]
    with zipfile.ZipFile(io.BytesIO(show.xlsx(models))) as book:
        assert "xl/workbook.xml" in book.namelist()


def test_the_link_reproduces_the_view():
    app = opened()
    enter(app, app.number_input, "KV heads", 4)
    enter(app, app.text_input, "Batch", "3")
    link = dict(app.query_params)
    assert json.loads(link["m"][0].removeprefix("mha")) == {"layers[0].mixer.n_kv_heads": 4}
    again = opened(**link)
    assert table(again, "all figures") == table(app, "all figures")
    assert dict(again.query_params) == link
