"""A decoder as a text: what differs from a preset, and back; whatever else stands there is refused in a sentence."""

import json

import pytest

import planner
from planner.app import decoders
from planner.errors import PlannerError
from planner.sources import presets
from tests.app.pages import config


@pytest.mark.parametrize("base", ["mha", "gemma-3-12b", "jamba-v0.1"])
def test_any_contract_can_be_told_from_any_preset(base):
    for name in presets.names():
        architecture = planner.load(name)
        assert decoders.contract(decoders.token_of(base, architecture)) == architecture


def test_a_preset_is_its_name():
    assert decoders.token_of("mha", planner.load("mha")) == "mha"
    assert decoders.contract("Llama-3.1-8B") == planner.load("llama-3.1-8b")


def test_a_field_is_edited_and_edited_back():
    token = decoders.changed("mha", {"layers[0].mixer.n_kv_heads": 8})
    assert token == 'mha{"layers[0].mixer.n_kv_heads":8}'
    assert decoders.changed(token, {"layers[0].mixer.n_kv_heads": 32}) == "mha"


def test_edits_that_only_hold_together_may_come_one_after_the_other():
    token = decoders.changed("mha", {"layers[0].mixer.n_heads": 48})
    with pytest.raises(PlannerError, match="n_kv_heads = 32 does not divide n_heads = 48"):
        decoders.contract(token)
    token = decoders.changed(token, {"layers[0].mixer.n_kv_heads": 12})
    assert decoders.contract(token) == planner.edit(planner.load("mha"), n_heads=48, n_kv_heads=12)


def test_labels_are_all_different():
    tokens = ["mha", 'mha{"d_model":2048}', 'mha{"d_model":1024}', 'mqa{"name":"mha"}', "no-such-model"]
    labels = list(decoders.labels(tokens).values())
    assert labels == ["mha", "mha (edited)", "mha (edited) 2", "mha 2", "no-such-model"]


def test_a_real_config_is_told_from_its_nearest_preset():
    token, _ = decoders.read(json.dumps(config("mixtral-8x22b")), "pasted text")
    assert decoders.contract(token) == planner.load(config("mixtral-8x22b"))
    assert decoders.split(token)[0] == "mixtral-8x22b"
    assert len(token) < decoders.LONGEST_LINK


@pytest.mark.parametrize(
    "token",
    [
        "/etc/passwd",
        "../../etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1/config.json",
        "presets/models/mha.toml",
        "mha.toml",
        "",
        "{}",
        "mha{",
        'mha{"a":1}x',
        "mha" + "{" * 50_000,
        'mha{"x":' + "[" * 90_000,
        'mha{"layers":5}',
        'mha{"layers":[]}',
        'mha{"layers[0]":{}}',
        'mha{"layers[0].mixer":"dense_attention"}',
        'mha{"d_model":-1}',
        'mha{"d_model":1e400}',
        'mha{"d_model":true}',
        'mha{"d_model":"=1+1"}',
        "mha{\"d_model\":\"__import__('os').system('true')\"}",
        'mha{"__class__":1}',
        'mha{"layers[0].mixer.__class__":1}',
        'mha{"layers[999999].count":1}',
        'mha{"name":5}',
        'mha{"weights":{}}',
        "m" * 1_000_000,
    ],
)
def test_what_is_no_decoder_is_refused_in_a_sentence(token):
    with pytest.raises(PlannerError) as refused:
        decoders.contract(token)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("where", ["layers[0].mixer.position", "embedding", "output", "final_norm", "mtp", "streams"])
@pytest.mark.parametrize("value", ["null", "0", '"x"', "[]", "{}", '{"kind":"x"}', "[[[]]]", "1e308"])
def test_an_edit_either_holds_or_is_refused(where, value):
    try:
        architecture = decoders.contract(f'mha{{"{where}":{value}}}')
    except PlannerError:
        return
    assert planner.parameters(architecture) > 0
