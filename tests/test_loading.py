"""Contract files: what is read, what is refused and in which words, and that nothing is lost in writing."""

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from planner.contract import Architecture
from planner.errors import ContractError, InputError
from planner.loading import MAX_BYTES, from_table, parse_toml, to_table, to_toml, write_toml
from planner.sources.document import Loaded, read_document, write_document
from planner.spec import shown

TOY = """\
name = "toy"
vocab_size = 100
d_model = 64
final_norm = { kind = "rms", eps = 1e-5 }

[[layers]]
count = 2
norm = { kind = "rms", eps = 1e-5 }
feed_forward = { kind = "feed_forward", d_ff = 128 }

[layers.mixer]
kind = "dense_attention"
n_heads = 8
n_kv_heads = 2
head_dim = 8
position = { kind = "rope", base = 1e4 }
"""


def toy():
    return parse_toml(TOY, "toy.toml")


REFUSED = [
    # unknown and missing keys, and the nearest known one
    ("n_kv_heads = 2", "n_kv_head = 2", "layers[0].mixer: n_kv_head: unknown key; did you mean 'n_kv_heads'?"),
    ("[layers.mixer]", "[layers.mixr]", "layers[0]: mixr: unknown key; did you mean 'mixer'?"),
    ("[[layers]]", "[[layer]]", "layer: unknown key; did you mean 'layers'?"),
    ("d_model = 64", "d_model = 64\nwidth_of_everything = 5", "width_of_everything: unknown key"),
    ("count = 2", "count = 2\nwindow = 3", "layers[0]: window: unknown key"),
    ("d_model = 64", "d_model = 64\npublised = 3", "publised: unknown key; did you mean 'published'?"),
    ('name = "toy"', "", "name is missing"),
    ("n_heads = 8", "", "layers[0].mixer: n_heads is missing"),
    # kinds
    ('kind = "rope", ', "", "layers[0].mixer.position: kind is missing; it is one of alibi, rope"),
    ('"rope"', '"rop"', "layers[0].mixer.position: kind = 'rop' is none of alibi, rope; did you mean 'rope'?"),
    ('"rope"', "['rope']", "layers[0].mixer.position: kind = ['rope'] is none of alibi, rope"),
    # types and ranges
    ("n_heads = 8", "n_heads = 8.5", "layers[0].mixer: n_heads = 8.5 is not a whole number from 1 to 10^15"),
    ("n_heads = 8", "n_heads = 0", "layers[0].mixer: n_heads = 0 is not a whole number from 1 to 10^15"),
    ("n_heads = 8", "n_heads = -8", "layers[0].mixer: n_heads = -8 is not a whole number from 1 to 10^15"),
    ("n_heads = 8", "n_heads = nan", "layers[0].mixer: n_heads = nan is not a whole number from 1 to 10^15"),
    ("n_heads = 8", 'n_heads = "8"', "layers[0].mixer: n_heads = '8' is not a whole number from 1 to 10^15"),
    ("n_heads = 8", "n_heads = true", "layers[0].mixer: n_heads = True is not a whole number from 1 to 10^15"),
    ("d_model = 64", f"d_model = {10**16}", f"d_model = {10**16} is not a whole number from 1 to 10^15"),
    ("base = 1e4", "base = 0", "layers[0].mixer.position: base = 0 is not a positive, finite number"),
    ("base = 1e4", "base = 1e999", "layers[0].mixer.position: base = inf is not a positive, finite number"),
    ("eps = 1e-5 }\n\n", "eps = nan }\n\n", "final_norm: eps = nan is not a positive, finite number"),
    ('name = "toy"', "name = 3", "name = 3 is not a text"),
    ("count = 2", "count = 2\nlabel = 5", "layers[0]: label = 5 is not a text or left out"),
    ("d_model = 64", "d_model = 64\noutput = { tied = 1 }", "output: tied = 1 is not true or false"),
    ("d_model = 64", "d_model = 64\nembedding = 3", "embedding: 3 stands where a table of embedding is expected"),
    ("d_model = 64", "d_model = 64\npattern = 3", "pattern = 3 is not a list of a text or left out"),
    ("d_model = 64", "d_model = 64\ndocuments = 'seen'", "documents = 'seen' is not one of visible, isolated"),
    # rules between fields
    ("n_kv_heads = 2", "n_kv_heads = 3", "layers[0].mixer: n_kv_heads = 3 does not divide n_heads = 8"),
    ("base = 1e4", "base = 1e4, width = 16", "layers[0].mixer: position.width exceeds head_dim = 8"),
    (
        "base = 1e4",
        "base = 1e4, width = 7",
        "layers[0].mixer.position: width = 7 is odd, and rotation turns elements in pairs",
    ),
    (
        "head_dim = 8",
        "head_dim = 8\nwindow = 4\nchunk = 4",
        "layers[0].mixer: window = 4 and chunk = 4 exclude each other; leave one out",
    ),
    (
        "head_dim = 8",
        "head_dim = 8\nkv_source = '{x[0].y!z:}'",
        "kv_source = '{x[0].y!z:}' is not the label of an entry of layers",
    ),
    ("head_dim = 8", "head_dim = 8\nkv_source = 'x'", "kv_source = 'x' is not the label of an entry of layers"),
    ("count = 2", "count = 10_001", "n_layers = 10001 is more than a decoder has (at most 10,000)"),
    (
        'name = "toy"',
        'name = "toy"\npattern = ["a", "b"]',
        "pattern = ['a', 'b'] does not name the label of every entry of layers, and only those",
    ),
    # what stands beside the contract
    ("d_model = 64", "d_model = 64\nhub = 3", "hub = 3 is not a text or left out"),
    ("d_model = 64", "d_model = 64\nsources = { x = 3 }", "sources.x: 3 stands where a table of source is expected"),
    (
        "d_model = 64",
        "d_model = 64\npublished.parameters = { value = 3, source = 'w' }",
        "published.parameters: source = 'w' is no key of sources",
    ),
    (
        "d_model = 64",
        "d_model = 64\npublished.parameters = { value = 3, source = 'w', rel = 0.1 }\nsources.w = { title = 'w' }",
        "published.parameters: rel = 0.1 needs a note that explains it",
    ),
    (
        "d_model = 64",
        "d_model = 64\npublished.parameters = { value = 3, source = 'w', excess = 1 }\nsources.w = { title = 'w' }",
        "published.parameters: excess = 1 needs includes or omits that say of what, and they need it",
    ),
    # what is no TOML
    ("d_model = 64", "d_model = 64\nd_model = 64", "not valid TOML: Cannot overwrite a value (at line 4, column 13)"),
    ("d_model = 64", "d_model =", "not valid TOML: Invalid value (at line 3, column 10)"),
    ("d_model = 64", f"x = {'[' * 3000}", "not valid TOML: nested too deeply, or a number too long"),
    ("d_model = 64", f"x = 1{'0' * 5000}", "not valid TOML: nested too deeply, or a number too long"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), REFUSED)
def test_refused_with_file_path_value_and_rule(old, new, sentence):
    assert old in TOY
    with pytest.raises(InputError) as error:
        read_document(TOY.replace(old, new, 1), "toy.toml")
    assert str(error.value) == f"toy.toml: {sentence}"


def test_too_much_text():
    with pytest.raises(InputError, match=r"^big\.toml: 10,000,000 characters are more than a contract has"):
        parse_toml("#" * 10_000_000, "big.toml")


def test_garbage():
    with pytest.raises(InputError, match=r"^noise: not valid TOML: "):
        parse_toml("\x00\x01" * (MAX_BYTES // 4), "noise")


def test_keys_nested_a_thousand_deep():
    with pytest.raises(ContractError, match=r"width = deeply nested tables is not a whole number"):
        read_document(TOY + f"[embedding.width{'.a' * 3000}]\n", "toy.toml")


def test_layers_may_not_be_empty():
    with pytest.raises(ContractError, match=r"^toy: layers is empty; a decoder has at least one layer$"):
        from_table({**toy(), "layers": []}, "toy")


MISNAMED = "does not name the label of every entry of layers, and only those"


def two_kinds(pattern, counts):
    layer = toy()["layers"][0]
    layers = [{**layer, "label": label, "count": count} for label, count in counts.items()]
    return from_table({**toy(), "layers": layers, "pattern": pattern}, "toy")


def test_a_pattern_repeats_until_every_layer_has_its_kind():
    model = two_kinds(["local", "local", "global"], {"local": 5, "global": 2})
    assert [layer.label[0] for layer in model.order()] == list("llgllgl")


@pytest.mark.parametrize(
    ("pattern", "counts", "sentence"),
    [
        (["a", "b"], {"a": 3, "b": 1}, "toy: pattern gives 2 a, 2 b, but the counts are 3 a, 1 b"),
        (["{"], {"{": 10**6}, "toy: n_layers = 1000000 is more than a decoder has (at most 10,000)"),
        (["{", "b"], {"{": 3, "b": 1}, "toy: pattern gives 2 {, 2 b, but the counts are 3 {, 1 b"),
        (["a"], {"a": 3, "b": 1}, f"toy: pattern = ['a'] {MISNAMED}"),
        ([], {"a": 3}, f"toy: pattern = [] {MISNAMED}"),
        (["a"], {"a": 10**15}, f"toy: n_layers = {10**15} is more than a decoder has (at most 10,000)"),
    ],
)
def test_a_pattern_that_does_not_fit(pattern, counts, sentence):
    with pytest.raises(ContractError) as error:
        two_kinds(pattern, counts)
    assert str(error.value) == sentence


def test_equal_labels():
    layer = {**toy()["layers"][0], "label": "a"}
    with pytest.raises(ContractError, match=r"^toy: two entries of layers have the same label$"):
        from_table({**toy(), "layers": [layer, layer]}, "toy")


def test_defaults_are_left_out_in_writing():
    model = from_table(toy(), "toy")
    assert to_table(model) == toy()
    assert "gated" not in to_toml(model)
    ungated = dataclasses.replace(model.layers[0].feed_forward, gated=False)
    assert to_table(ungated) == {"kind": "feed_forward", "d_ff": 128, "gated": False}


def test_what_stands_beside_the_contract_is_kept():
    text = TOY.replace("\n\n[[layers]]", '\nhub = "org/toy"\nnotes = ["one", "two"]\n\n[[layers]]') + (
        '[published]\nparameters = { value = 3, source = "w" }\n'
        '[sources]\nw = { title = "w", retrieved = 2026-01-31 }\n'
    )
    loaded = read_document(text, "toy.toml")
    assert (loaded.hub, loaded.notes, loaded.sources["w"].retrieved.year) == ("org/toy", ("one", "two"), 2026)
    assert read_document(write_document(loaded), "written") == loaded


@example('quote " and \\ and \n and \x7f and é')
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_written(text):
    loaded = Loaded(architecture=from_table({**toy(), "name": text}, "toy"), hub=text, notes=(text,) * 9)
    assert read_document(write_document(loaded), "written") == loaded


def test_long_lists_are_broken_between_their_items():
    texts = ["a text, with - all sorts of things"] * 9
    lists = {"numbers": [1.0, 2e-7, 12_345] * 40, "texts": texts, "plain": ["a", "b"]}
    written = write_toml(lists)
    assert max(map(len, written.splitlines())) <= 120
    assert parse_toml(written, "written") == lists


def test_keys_that_are_not_bare_are_quoted():
    tables = {"a b": {"x.y": 1, "t": {"": 2}}}
    assert parse_toml(write_toml(tables), "written") == tables


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["rope", 0, 1])
KEYS = st.sampled_from(["kind", "eps", "x", "count"])
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=5
)


@given(st.data())
def test_any_table_is_read_or_refused_with_one_sentence(data):
    table = toy()
    place = table
    while data.draw(st.booleans()) and isinstance(place, (dict, list)) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if isinstance(place[key], (dict, list)):
            place = place[key]
    if isinstance(place, dict):
        place[data.draw(st.sampled_from([*place, "window", "scale"]))] = data.draw(VALUES)
    elif place:
        place[0] = data.draw(VALUES)
    sentence = None
    try:
        model = from_table(table, "toy")
    except ContractError as error:
        sentence = str(error)
    if sentence is None:
        assert from_table(to_table(model), "toy") == model
    else:
        assert sentence.startswith("toy: ")
        assert "\n" not in sentence


def test_a_value_is_shown_short():
    assert len(shown("x" * 10_000)) == 60
    assert shown(from_table(toy(), "toy")) == "a architecture"
    assert isinstance(from_table(toy(), "toy"), Architecture)
