"""Models of the hub: from its cache by layout, and over the network, headers only; each refusal is one sentence."""

import json
import threading

import pytest

import planner
from planner import PlannerError
from planner.cli import main
from planner.errors import InputError
from planner.sources import hub
from planner.sources.checkpoint import INDEX
from tests.sources.builders import safetensors
from tests.sources.hub_server import Hub
from tests.test_sources import CONFIG

pytest.importorskip("huggingface_hub")

D, KV, F, V = 64, 32, 128, 100
LAYER = {
    "self_attn.q_proj": (D, D),
    "self_attn.k_proj": (KV, D),
    "self_attn.v_proj": (KV, D),
    "self_attn.o_proj": (D, D),
    "mlp.gate_proj": (F, D),
    "mlp.up_proj": (F, D),
    "mlp.down_proj": (D, F),
    "input_layernorm": (D,),
    "post_attention_layernorm": (D,),
}
ENDS = [
    ("model.embed_tokens.weight", "BF16", (V, D)),
    ("model.norm.weight", "BF16", (D,)),
    ("lm_head.weight", "BF16", (V, D)),
]


def layer(number):
    return [(f"model.layers.{number}.{name}.weight", "BF16", shape) for name, shape in LAYER.items()]


def whole(tensors):
    data, size = safetensors(tensors)
    return data + bytes(size - len(data))


PARTS = {f"model-0000{n}-of-00003.safetensors": part for n, part in enumerate([ENDS, layer(0), layer(1)], 1)}
SHARDED = {name: whole(tensors) for name, tensors in PARTS.items()}
WEIGHT_MAP = {tensor[0]: name for name, tensors in PARTS.items() for tensor in tensors}
SHARDED[INDEX] = json.dumps({"metadata": {}, "weight_map": WEIGHT_MAP}).encode()
TEXT = json.dumps(CONFIG).encode()


@pytest.fixture(scope="module")
def server():
    import huggingface_hub

    server = Hub()
    server.files = {
        "acme/sharded": {"config.json": TEXT, **SHARDED},
        "acme/single": {"config.json": TEXT, "model.safetensors": whole([*ENDS, *layer(0), *layer(1)])},
        "acme/bare": {"model.safetensors": whole(ENDS)},
        "acme/no-weights": {"config.json": TEXT},
        "acme/no-ranges": {"config.json": TEXT, "model.safetensors": whole(ENDS)},
        "acme/modelopt": {"config.json": TEXT, "hf_quant_config.json": b'{"quantization": {"quant_algo": "FP8"}}'},
        "acme/no-text": {"config.json": b"\xff\xfe"},
        "acme/no-json": {"config.json": b"{"},
        "acme/long": {"config.json": b" " * 5_000_000},
    }
    server.refusals = {
        "acme/gated": (401, "GatedRepo"),
        "acme/private": (403, None),
        "acme/busy": (429, None),
        "acme/broken": (500, None),
        "acme/nowhere": (404, "RepoNotFound"),
    }
    server.ignores_ranges = {"acme/no-ranges"}
    yield server
    huggingface_hub.close_session()
    server.close()


@pytest.fixture
def online(server, monkeypatch, tmp_path):
    """The stand-in is the hub, and nothing is cached."""
    server.requests = []
    server.delay_s = 0.0
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", hub.PERMISSION):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    return server


def cached(home, name, files, *, commit="abc123", refs=True):
    """A snapshot in the layout of the hub's cache."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    if refs:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(commit)
    for file, data in files.items():
        (snapshot / file).write_bytes(data)
    return snapshot


def refusal(name):
    with pytest.raises(PlannerError) as error:
        planner.load(name, online=True)
    sentence = str(error.value)
    assert sentence.isprintable()
    return sentence


# ---- over the network ------------------------------------------------------------------------------------------------


def test_a_config_comes_over_the_network_where_that_is_allowed(online, monkeypatch):
    with pytest.raises(
        PlannerError, match=r"unknown model or path 'acme/sharded'; .*it is not in the hub's cache, --online"
    ):
        planner.load("acme/sharded")
    assert online.requests == []
    model = planner.load("acme/sharded", online=True)
    assert planner.diff(model, planner.load(CONFIG)).keys() == {"name"}
    assert model.name == "acme/sharded"
    assert online.requests == [("config.json", None, len(TEXT)), ("hf_quant_config.json", None, 0)]
    monkeypatch.setenv(hub.PERMISSION, "1")
    assert planner.load("acme/sharded") == model
    assert (model.weights, planner.load("acme/modelopt").weights) == ("bf16", "fp8-tensor-static")


def test_a_preset_needs_no_network(online):
    assert planner.load("meta-llama/Llama-3.1-8B", online=True) == planner.load("llama-3.1-8b")
    assert online.requests == []


@pytest.mark.parametrize("name", ["acme/sharded", "acme/single"])
def test_of_the_weights_only_headers_are_asked_for_and_by_ranges(online, name):
    """Eight bytes that say how long the header is, then the header, of every file; not one byte of a weight."""
    checkpoint = hub.fetch_checkpoint(name)
    assert checkpoint.parameters == planner.parameters(planner.load(CONFIG))
    assert checkpoint.stored_bytes == 2 * checkpoint.parameters
    asked = [request for request in online.requests if request[0].endswith(".safetensors") and request[2]]
    for file in {file for file, *_ in asked}:
        data = online.files[name][file]
        header = int.from_bytes(data[:8], "little")
        assert [r[1:] for r in asked if r[0] == file] == [("bytes=0-7", 8), (f"bytes=8-{header + 7}", header)]
        assert 8 + header < len(data)
    assert len({file for file, *_ in asked}) == (3 if name == "acme/sharded" else 1)


MANY = [f"model-{number:05}-of-00040.safetensors" for number in range(1, 41)]


@pytest.fixture
def many(online):
    """A model of forty shards, with a tensor each."""
    online.files["acme/many"] = {file: whole([(file, "BF16", (2,))]) for file in MANY}
    online.files["acme/many"][INDEX] = json.dumps({"weight_map": {file: file for file in MANY}}).encode()
    yield online
    del online.files["acme/many"]


def test_headers_come_several_at_a_time_and_in_order(many):
    many.delay_s, many.most_under_way = 0.02, 0
    checkpoint = hub.fetch_checkpoint("acme/many")
    assert [tensor.name for tensor in checkpoint.tensors] == MANY
    assert 1 < many.most_under_way <= hub.WORKERS


def test_of_shards_that_fail_the_first_is_said(many):
    for file in MANY[7], MANY[4], MANY[30]:
        del many.files["acme/many"][file]
    with pytest.raises(InputError, match=rf"^acme/many: has no {MANY[4]} at http\S+; name a file that you have$"):
        hub.fetch_checkpoint("acme/many")
    assert MANY[20] not in {file for file, *_ in many.requests}


@pytest.mark.parametrize(("most", "ahead"), [(10, False), (8_000_000, True)])
def test_a_header_longer_than_any_waits_for_its_turn(many, monkeypatch, most, ahead):
    fetch, by_workers = hub._fetch, []

    def spied(name, file, length, offset=None):
        if offset == 8:
            by_workers.append(threading.current_thread() is not threading.main_thread())
        return fetch(name, file, length, offset)

    monkeypatch.setattr(hub, "_fetch", spied)
    monkeypatch.setattr(hub, "MAX_AHEAD_BYTES", most)
    assert [tensor.name for tensor in hub.fetch_checkpoint("acme/many").tensors] == MANY
    assert by_workers == [ahead] * len(MANY)


def test_show_lists_the_header_and_holds_it_to_the_contract(online, capsys):
    assert main(["show", "acme/sharded", "--online", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)["rows"]
    assert {row["name"] for row in rows} == set(WEIGHT_MAP)
    assert {row["contract"] for row in rows} == {"equal"}
    assert "none missing, none extra, no shape differs" in err


def test_show_without_a_config(online, capsys):
    assert main(["show", "acme/bare", "--online"]) == 0
    out, err = capsys.readouterr()
    assert "lm_head.weight" in out
    assert "compared with no contract: acme/bare: has no config.json" in err


def test_compare_takes_a_model_of_the_hub(online, capsys):
    assert main(["compare", "acme/single", "mqa", "--online", "--json"]) == 0
    first, _ = json.loads(capsys.readouterr().out)["rows"]
    assert first["name"] == "acme/single"
    assert first["parameters"] == planner.parameters(planner.load(CONFIG))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "acme/gated",
            "acme/gated: the hub refuses it (HTTP 401): it is gated, private or not there; accept its terms at",
        ),
        ("acme/private", "acme/private: the hub refuses it (HTTP 403): it is gated, private or not there; accept"),
        ("acme/misspelt", "acme/misspelt: the hub refuses it (HTTP 401): it is gated, private or not there"),
        ("acme/nowhere", "acme/nowhere: neither it nor its config.json is at http://127.0.0.1:"),
        ("acme/bare", "acme/bare: has no config.json at http://127.0.0.1:"),
        ("acme/busy", "has had too many requests (HTTP 429); wait a while, or set HF_TOKEN"),
        ("acme/broken", "answers HTTP 500; try again later"),
        ("acme/no-text", "acme/no-text/config.json: not text in UTF-8"),
        ("acme/no-json", "acme/no-json/config.json: not valid JSON: "),
        ("acme/long", "acme/long/config.json: more than the 4,000,000 bytes that were asked for or are read"),
    ],
)
def test_what_the_hub_does_not_give_is_one_sentence(online, name, sentence):
    assert sentence in refusal(name)


def test_a_hub_that_is_slow(online, monkeypatch):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    online.delay_s = 1.0
    sentence = refusal("acme/single")
    assert "did not answer within 0.1 s; try again, or set HF_HUB_DOWNLOAD_TIMEOUT" in sentence


def test_a_hub_that_trickles(online, monkeypatch):
    monkeypatch.setattr(hub, "MAX_S", -1.0)
    assert refusal("acme/single").endswith("not all there after -1 s; try again over a faster connection")


def test_a_hub_that_is_not_there(online, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 cannot be reached (" in (sentence := refusal("acme/single"))
    assert sentence.endswith("); check the connection, or name a config.json that you have")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE"])
def test_offline(online, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    sentence = refusal("acme/single")
    assert "acme/single: not in the cache " in sentence
    assert "and HF_HUB_OFFLINE forbids to ask the hub; unset it, or name a config.json" in sentence
    assert online.requests == []


@pytest.mark.parametrize("address", ["huggingface.co", "http://[", "ftp://x", "http://x:99999"])
def test_an_endpoint_that_is_no_address(online, monkeypatch, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    assert refusal("acme/single").startswith(f"HF_ENDPOINT = {address!r} is not an address such as")


def test_without_the_library(online, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    sentence = "acme/single: asking the hub needs the package huggingface_hub; install the planner with its extra [hub]"
    assert refusal("acme/single") == sentence


def test_a_server_that_knows_no_ranges_is_not_made_to_send_everything(online):
    with pytest.raises(InputError, match="sends whole files only; download it and name its path"):
        hub.fetch_checkpoint("acme/no-ranges")


def test_a_model_without_safetensors(online):
    with pytest.raises(
        InputError, match=r"acme/no-weights: neither model\.safetensors\.index\.json nor model\.safetensors"
    ):
        hub.fetch_checkpoint("acme/no-weights")


# ---- the cache -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refs", [True, False])
def test_a_model_in_the_cache_needs_no_network_and_no_library(online, tmp_path, monkeypatch, refs):
    cached(tmp_path / "home", "acme/cached", {"config.json": TEXT}, refs=refs)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    assert planner.load("acme/cached").name == "acme/cached"
    assert online.requests == []


def test_the_snapshot_of_the_main_branch_counts(online, tmp_path):
    cached(tmp_path / "home", "acme/two", {"config.json": TEXT}, commit="new")
    old = tmp_path / "home/hub/models--acme--two/snapshots/old"
    old.mkdir()
    (old / "config.json").write_text("{")
    assert planner.load("acme/two").n_layers == 2
    (tmp_path / "home/hub/models--acme--two/refs/main").unlink()
    assert hub.cached("acme/two") is None  # which of two?


def test_a_snapshot_of_other_files_is_none(online, tmp_path):
    """Somebody fetched the tokenizer alone."""
    cached(tmp_path / "home", "acme/single", {"tokenizer.json": b"{}"})
    with pytest.raises(PlannerError, match=r"unknown model or path 'acme/single'"):
        planner.load("acme/single")
    assert planner.load("acme/single", online=True).n_layers == 2


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"])
def test_where_the_cache_is(online, tmp_path, monkeypatch, variable):
    monkeypatch.delenv("HF_HOME")
    place = tmp_path / "there" / "huggingface"
    cached(place, "acme/cached", {"config.json": TEXT})
    monkeypatch.setenv(variable, str(tmp_path / "there" if variable.startswith("XDG") else place / "hub"))
    assert planner.load("acme/cached").n_layers == 2


@pytest.mark.parametrize("commit", ["../../../etc", "", "a/b", "x" * 500, "\0"])
def test_a_reference_that_leads_elsewhere_is_not_followed(online, tmp_path, commit):
    cached(tmp_path / "home", "acme/odd", {"config.json": TEXT})
    (tmp_path / "home/hub/models--acme--odd/refs/main").write_text(commit)
    assert hub.cached("acme/odd") is None


def test_show_of_a_model_whose_weights_are_cached(online, tmp_path, capsys):
    files = {"config.json": TEXT, **SHARDED}
    cached(tmp_path / "home", "acme/cached", files)
    assert main(["show", "acme/cached", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == len(WEIGHT_MAP)
    assert online.requests == []


def test_show_of_a_model_whose_config_and_index_alone_are_cached(online, tmp_path, capsys):
    cached(tmp_path / "home", "acme/cached", {"config.json": TEXT, INDEX: SHARDED[INDEX]})
    assert main(["show", "acme/cached"]) == 0
    assert "layers[0].mixer.q.weight" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["a/b/c", "./a", "../a", "a/..", "/a", "a/", "a b/c", "a/b..c", "gpt2", "a/" + "b" * 200]
)
def test_what_is_no_name_of_the_hub(text):
    assert not hub.is_name(text)
