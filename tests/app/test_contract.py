"""The contract page: every field, what differs, the TOML both ways, and the checklist run in place."""

import json

import pytest

import planner
from planner.app import decoders
from planner.editing import flatten
from planner.loading import to_toml
from tests.app.pages import opened, press, run, sentences, table, widget

EDITED = 'mha{"layers[0].mixer.n_kv_heads":8}'


def test_every_field_stands_in_the_table():
    app = opened(page="Contract", m=EDITED)
    frame = app.data_editor[0].value
    here = dict(flatten(planner.edit(planner.load("mha"), n_kv_heads=8)))
    assert [name.removeprefix("◆ ") for name in frame["field"]] == list(here)
    row = frame[frame["field"] == "◆ layers[0].mixer.n_kv_heads"].iloc[0]
    assert (row["value"], row["preset"]) == ("8", "32")
    assert table(app, "differences")[1:] == [["layers[0].mixer.n_kv_heads", "32", "8"]]


def test_the_toml_is_the_contracts():
    app = opened(page="Contract", m=EDITED)
    assert widget(app.text_area, "The contract as TOML").value == to_toml(
        planner.edit(planner.load("mha"), n_kv_heads=8)
    )


def test_edited_toml_is_taken():
    app = opened(page="Contract", m="mha")
    area = widget(app.text_area, "The contract as TOML")
    area.set_value(area.value.replace("n_kv_heads = 32", "n_kv_heads = 4"))
    press(app, "Take this contract")
    assert table(app, "differences")[1:] == [["layers[0].mixer.n_kv_heads", "32", "4"]]
    assert json.loads(app.query_params["m"].removeprefix("mha")) == {"layers[0].mixer.n_kv_heads": 4}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("n_kv_heads = 32", "n_kv_heads = 7", "layers[0].mixer: n_kv_heads = 7 does not divide n_heads = 32"),
        ("n_kv_heads = 32", "n_kv_head = 32", "did you mean 'n_kv_heads'?"),
        ("n_kv_heads = 32", "n_kv_heads = ", "not valid TOML"),
    ],
)
def test_toml_that_is_wrong_is_said_and_changes_nothing(old, new, said):
    app = opened(page="Contract", m="mha")
    area = widget(app.text_area, "The contract as TOML")
    area.set_value(area.value.replace(old, new))
    press(app, "Take this contract")
    assert said in sentences(app)[0]
    assert "m" not in app.query_params or app.query_params["m"] == "mha"


def test_the_checklist_runs_in_place():
    app = opened(page="Contract", m=EDITED)
    press(app, "Run the checklist")
    report = planner.verify(decoders.contract(EDITED))
    assert [row[0] for row in table(app, "checklist")[1:]] == [check.name for check in report.checks]
    words = {True: "pass", False: "FAIL", None: "does not apply"}
    assert [row[1] for row in table(app, "checklist")[1:]] == [words[check.passed] for check in report.checks]
    assert f"All {sum(check.passed is True for check in report.checks)} checks" in app.success[0].value
    assert ["layers[0].count", "32", "2"] in table(app, "made smaller")


def test_a_contract_that_does_not_hold_can_be_taken_back():
    app = opened(page="Contract", m='mha{"layers[0].mixer.n_kv_heads":7}')
    assert "n_kv_heads = 7 does not divide" in sentences(app)[0]
    press(app, "Take the edits back")
    assert sentences(app) == []
    assert run(app).data_editor
