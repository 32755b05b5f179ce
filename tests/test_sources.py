"""What `load` takes: names, paths, folders, tables and text; and what it says of what it cannot take."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import planner
from planner import PlannerError
from planner.errors import InputError
from planner.loading import to_toml
from planner.sources import load, read, read_headers, read_text
from tests.sources.builders import gguf_file, safetensors_file
from tests.sources.test_gguf_config import COMMON, DENSE, OUTPUT

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with one model as a config.json, as a TOML file and in a folder of its own; we stand in it."""
    monkeypatch.chdir(tmp_path)
    Path("checkpoint").mkdir()
    for path in ("tiny.json", "checkpoint/config.json"):
        Path(path).write_text(json.dumps(CONFIG), encoding="utf-8")
    Path("tiny.toml").write_text(to_toml(planner.edit(load(CONFIG), name="tiny")), encoding="utf-8")
    return tmp_path


def test_an_architecture_is_itself():
    model = planner.load("gpt2")
    assert load(model) is model
    assert read(model).published.parameters is None


def test_a_table_with_the_keys_of_a_config(folder):
    table = {**CONFIG, "made_up": 1}
    loaded = read(table)
    assert loaded.architecture.n_layers == 2
    assert loaded.notes == ("config: keys that are not understood and were left out: made_up",)
    assert table == {**CONFIG, "made_up": 1}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tiny.json", "tiny"),
        ("./tiny.json", "tiny"),
        ("tiny.toml", "tiny"),
        ("checkpoint", "checkpoint"),
        ("checkpoint/", "checkpoint"),
        ("checkpoint/config.json", "checkpoint"),
    ],
)
def test_paths(folder, path, name):
    for spelled in (path, Path(path), folder / path, str(folder / path)):
        assert planner.diff(load(spelled), load(CONFIG)).keys() <= {"name"}
        assert load(spelled).name == name


def test_weights_are_described_by_the_config_beside_them(folder):
    for name in ("model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors"):
        Path("checkpoint", name).write_bytes(b"not read")
        assert load(f"checkpoint/{name}") == load("checkpoint/config.json")
    assert load("checkpoint") == load("checkpoint/config.json")


def test_modelopt_says_beside_the_config_how_weights_are_quantised(folder):
    said = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    place = folder / "named"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG))
    assert load(place).weights == "bf16"
    (place / "hf_quant_config.json").write_text(json.dumps(said))
    assert load(place).weights == load(place / "config.json").weights == "nvfp4"
    (place / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": {"quant_method": "fp8"}}))
    assert load(place).weights == "fp8-tensor"  # the config's own word goes first
    (place / "config.json").write_text(json.dumps(CONFIG))
    (place / "hf_quant_config.json").write_text("[]")
    with pytest.raises(InputError, match=r"hf_quant_config\.json: a config\.json holds a table"):
        load(place)


def test_weights_alone_are_no_contract(folder):
    safetensors_file(folder / "x.safetensors", [("w", "F32", (2,))])
    rule = "a checkpoint's header says nothing of heads, masks and positions; put its config.json beside it"
    for place in ("x.safetensors", "."):
        with pytest.raises(InputError) as error:
            load(place)
        assert str(error.value) == f"{place}: {rule} (planner show lists its tensors)"


def test_gguf_files_speak_for_themselves_whatever_lies_beside_them(folder, monkeypatch):
    Path("quantised").mkdir()
    Path("quantised/config.json").write_text('{"model_type": "llama"}')  # all that many repositories have of it
    keys = {f"llama.{key}": value for key, value in (COMMON | DENSE[0]).items()}
    metadata = {"general.architecture": "llama", **keys}
    gguf_file(Path("quantised/tiny-Q8_0.gguf"), metadata, [("token_embd.weight", "Q8_0", (100, 64)), OUTPUT])
    file = load("quantised/tiny-Q8_0.gguf")
    assert load("quantised") == read_headers("quantised")[1].architecture == replace(file, name="quantised")
    monkeypatch.setattr("planner.sources.hub.cached", lambda name: Path("quantised"))  # there, a commit's number
    assert load("org/tiny").name == read_headers("org/tiny")[1].architecture.name == "org/tiny"
    safetensors_file(Path("quantised/model.safetensors"), [("w", "F32", (2,))])
    Path("quantised/config.json").write_text(json.dumps(CONFIG))
    assert load("quantised") == read_headers("quantised")[1].architecture == load("quantised/config.json")


def test_a_folder_whose_name_nobody_knows(folder, monkeypatch):
    monkeypatch.chdir("checkpoint")
    assert load("config.json").name == "checkpoint"
    assert load("./").name == "checkpoint"


@pytest.mark.parametrize("mark", ["", "\ufeff", "\n  "])
def test_text_is_told_apart_by_its_look(mark):
    model = load(CONFIG)
    assert read_text(mark + json.dumps(CONFIG), "standard input").architecture == model
    assert read_text(mark + to_toml(model), "standard input").architecture == model


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "here: name is missing"),
        ("{", "here: not valid JSON: "),
        ("name = ", "here: not valid TOML: "),
        ("[1, 2]", "here: not valid TOML: "),
        ("{}", "here: model_type is missing; it says which family the other keys belong to"),
    ],
)
def test_text_that_is_neither(text, sentence):
    with pytest.raises(InputError) as error:
        read_text(text, "here")
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("no.json", "no.json: no such file"),
        ("no.toml", "no.toml: no such file"),
        ("no.gguf", "no.gguf: cannot be read: No such file or directory"),
        ("no/no.safetensors", "no/no.safetensors: cannot be read: No such file or directory"),
        (Path("no"), "no: no such file"),
        ("./no", "unknown model or path './no'; planner models lists those that are known"),
        (".", ".: a folder without a config.json"),
        ("binary.toml", "binary.toml: not text in UTF-8"),
        ("big.json", "big.json: 10,000,000 bytes are more than a contract has (at most 4,000,000)"),
        ("pipe.toml", "pipe.toml: not a regular file"),
        ("a\0b.toml", "a?b.toml: no such file"),
        (f"{'x' * 5000}.toml", f"{'x' * 195}.toml: no such file"),
        (5, "5 is neither a model's name nor a path, a config or an Architecture"),
        (None, "None is neither a model's name nor a path, a config or an Architecture"),
        (["gpt2"], "['gpt2'] is neither a model's name nor a path, a config or an Architecture"),
    ],
    ids=lambda value: str(value)[:20].replace("\0", ""),
)
def test_what_cannot_be_read(folder, what, sentence):
    Path("binary.toml").write_bytes(b"\xff\xfe\x00")
    Path("big.json").write_bytes(b" " * 10_000_000)
    os.mkfifo("pipe.toml")
    with pytest.raises(PlannerError) as error:
        load(what)
    assert str(error.value) == sentence


def test_a_file_that_may_not_be_read(folder, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(InputError, match=r"^tiny\.toml: cannot be read: Permission denied$"):
        load("tiny.toml")


def test_quantised_weights_become_the_format_of_the_contract():
    block = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    loaded = read({**CONFIG, "quantization_config": block})
    assert (loaded.architecture.weights, loaded.architecture.kv, loaded.notes) == ("fp8-block128", "bf16", ())
    strange = read({**CONFIG, "quantization_config": {"quant_method": "zip"}})
    assert strange.architecture.weights == "bf16"
    assert strange.notes[0].startswith("config: quantization_config: quant_method = 'zip' is none of ")
    assert strange.notes[0].endswith("; weights are counted in bf16")
