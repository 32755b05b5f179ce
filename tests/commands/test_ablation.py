"""planner ablate, as its users type it."""

import json

import pytest

import planner
from planner.cli import main
from planner.printing import WIDTH


@pytest.fixture
def run(capsys):
    def typed(*argv):
        status = main(["ablate", *map(str, argv)])
        out, err = capsys.readouterr()
        return status, out, err

    return typed


def rows(run, *argv, status=0):
    found, out, _ = run(*argv, "--json")
    assert found == status
    document = json.loads(out)
    assert (document["schema"], document["command"]) == (1, "ablate")
    return document


def test_variants_have_the_contracts_parameters_and_the_rest_stands_beside(run):
    document = rows(run, "llama-3.1-8b", "--vary", "mixer=mha,mqa", "--tokens", "15T")
    own, mha, mqa = document["rows"]
    assert document["assumed"] == {"match": "params", "by": "d_ff", "context": 4096, "batch": 1}
    # 2 d (d - d/4) more in keys and values is 3 d 2048 less in the feed-forward: no parameter is left over
    assert (mha["matched_by"], mha["mismatch"], mha["parameters"]) == ("d_ff 14336 → 12288", 0, own["parameters"])
    assert own["parameters"] == 8_030_261_248
    assert (mha["cache_bytes_change"], mqa["cache_bytes_change"]) == (3, -7 / 8)
    for row in document["rows"]:
        assert row["verified"] is True
        assert row["training_tokens"] == 15e12
        assert row["training_flops"] == 6 * row["active_parameters"] * 15e12
        spent = 6 * row["active_parameters"] * row["tokens_at_equal_compute"]
        assert spent == pytest.approx(own["training_flops"], rel=1e-12)
    assert 0 < abs(mqa["mismatch"]) < 0.002


def test_flops_are_matched_at_the_stated_context(run):
    own, mla = rows(run, "qwen3-8b", "--vary", "mixer=mla", "--match", "flops", "--context", "8k")["rows"]
    assert mla["flops_per_token"] == pytest.approx(own["flops_per_token"], rel=2e-3)
    edited = planner.load("qwen3-8b")
    assert own["flops_per_token"] == planner.flops(edited, new=8000, logits="all") / 8000
    assert own["decode_flops"] == planner.flops(edited, past=8000)
    assert mla["dropped"] == "qk_norm"


def test_a_cache_is_matched_by_sequences_or_by_what_is_tuned(run):
    argv = ("llama-3.1-8b", "--vary", "mixer=mqa,mla,window", "--match", "cache", "--batch", 16, "--context", "32k")
    own, mqa, mla, window = rows(run, *argv)["rows"]
    assert own["cache_bytes"] == 16 * 32_000 * 2 * 32 * 8 * 128 * 2
    assert (mqa["matched_by"], mqa["cache_bytes"]) == ("batch 16 → 128", own["cache_bytes"])
    assert (mla["matched_by"], mla["cache_bytes"]) == ("kv_lora_rank → 1984", own["cache_bytes"])
    assert (window["matched_by"], window["cache_bytes"]) == ("window → 32000", own["cache_bytes"])


def test_what_cannot_be_stays_with_its_reason_and_is_exit_status_1(run):
    document = rows(run, "gemma-3-1b", "--vary", "mixer=mla,gqa-3,mha", "--vary", "norm=layer", status=1)
    own, mla, gqa, mha, layer = document["rows"]
    assert mla["reason"] == "mixer=mla: latent attention has no window, no chunk and no other layer's keys"
    assert "n_kv_heads = 3 does not divide n_heads = 4" in gqa["reason"]
    assert (mla["parameters"], mla["verified"]) == (None, None)
    assert (own["reason"], mha["reason"], mha["verified"], layer["verified"]) == (None, None, True, True)


def test_a_terminal_shows_changes_and_the_caveat(run):
    status, out, err = run("mixtral-8x7b", "--vary", "mixer=mqa", "--set", "layers[0].count=2")
    assert status == 0
    assert "(-87.5%)" in out
    assert max(map(len, out.splitlines())) <= WIDTH
    assert "no room for sequences; --csv has every column" in err
    assert "equal parameters, FLOPs or cache bytes are not equal quality, and not equal run time" in err
    assert "assumed: match = params, by = d_ff, context = 4,096, batch = 1, training_tokens = " in err


def test_what_a_variant_lacks_is_said_below_the_table(run):
    status, out, err = run("gemma-3-1b", "--vary", "mixer=mla", "--vary", "norm=layer")
    assert status == 1
    assert "\nmixer=mla: latent attention has no window, no chunk and no other layer's keys\n" in err
    assert "no window" not in out
    assert "\nmixer=mla: without qk_norm\n" in run("qwen3-0.6b", "--vary", "mixer=mla")[2]


@pytest.mark.parametrize("form", ["--json", "--csv", "--md"])
def test_every_form(run, form):
    status, out, _ = run("gqa-8", "--vary", "ffn=gelu", form)
    assert status == 0
    assert "ffn=gelu" in out


def test_a_file_is_written(run, tmp_path):
    path = tmp_path / "variants.csv"
    assert run("gqa-8", "--vary", "position=alibi", "-o", path)[0] == 0
    assert "position=alibi" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "status", "sentence"),
    [
        (["--vary", "mixer"], 2, "--vary 'mixer' is not WHAT=OPTIONS, such as mixer=mha,gqa-8,mqa,mla"),
        (["--vary=--"], 2, "argument --vary: expected one argument"),
        (["--vary", "nrom=rms"], 2, "vary = 'nrom' is none of mixer, norm, ffn, position; did you mean 'norm'?"),
        (["--vary", "mixer=gqa"], 2, "mixer=gqa: key heads need their number, such as gqa-8, unless cache is matched"),
        (["--vary", "mixer=window"], 2, "mixer=window: a window needs its width, such as window-4096, unless cache"),
        (["--vary", "mixer=mqa", "--match", "cash"], 2, "match = 'cash' is none of params, flops, cache"),
        (["--vary", "mixer=mqa", "--by", "depth"], 2, "by = 'depth' is none of d_ff, layers"),
        (["--vary", "mixer=mqa", "--by", "layers", "--match", "cache"], 2, "by = 'layers' matches parameters or FLOPs"),
        (["--vary", "mixer=mqa", "--context", "0"], 2, "context = 0 is less than 1"),
        (["--vary", "mixer=mqa", "--batch", "0"], 2, "batch = 0 is less than 1"),
        (["--vary", "mixer=mqa", "--tokens", "0"], 2, "training_tokens = 0 is less than 1"),
        (["--vary", "mixer=mqa", "--multiple", "0"], 2, "multiple = 0 is less than 1"),
        (["--vary", "mixer=mqa", "--tokens", "many"], 3, "--tokens: 'many' is not a number"),
    ],
)
def test_a_question_that_cannot_be_asked(run, argv, status, sentence):
    found, out, err = run("gqa-8", *argv)
    assert (found, out) == (status, "")
    assert sentence in err
    assert err.count("\n") == 1
