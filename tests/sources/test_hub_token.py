"""Whether the hub is told who asks: with the token that its own library would send, unless that is switched off."""

import json

import pytest

import planner
from planner.sources import hub
from tests.sources.hub_server import Hub
from tests.test_sources import CONFIG

library = pytest.importorskip("huggingface_hub")


@pytest.fixture
def headers(monkeypatch, tmp_path):
    """The Authorization of every request that loading a model over the network makes."""
    server, seen = Hub(), []
    server.files = {"acme/single": {"config.json": json.dumps(CONFIG).encode()}}
    answer = server.answer

    def noted(request):
        seen.append(request.headers.get("Authorization"))
        return answer(request)

    server.answer = noted
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", hub.PERMISSION):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", server.address)

    def asked():
        planner.load("acme/single", online=True)
        return set(seen)

    yield asked
    library.close_session()
    server.close()


@pytest.mark.parametrize(("switched_off", "sent"), [(False, "Bearer hf_mine"), (True, None)])
def test_a_token_is_sent_unless_that_is_switched_off(headers, monkeypatch, switched_off, sent):
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_IMPLICIT_TOKEN", switched_off)
    assert headers() == {sent}


def test_nobody_is_named_without_a_token(headers, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(library, "get_token", lambda: None)  # nor what this machine may keep in a file
    assert headers() == {None}
