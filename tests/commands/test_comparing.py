"""sweep, crossings and diff as their users type them; compare is in tests/test_cli.py."""

import json

import pytest

from planner.printing import WIDTH


@pytest.fixture
def twins(tmp_path):
    """Two configs in folders of the same name, of which the second has half the key-value heads."""
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 96, "vocab_size": 50, "max_position_embeddings": 128}
    for place, heads in (("old", 4), ("new", 2)):
        folder = tmp_path / place / "mine"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({**config, "num_key_value_heads": heads}), "utf-8")
    return [tmp_path / place / "mine" for place in ("old", "new")]


def test_a_note_says_of_how_many_rows_it_holds(answered):
    _, err = answered("sweep", "llama-3.1-8b", "--context", "128k,200k", "--kv", "bf16,fp8")
    assert "llama-3.1-8b, 2 of 4 rows: the context is beyond the stated maximum of 131,072 positions\n" in err
    # 131,072 B a token reach 16,060,522,496 B of weights at 122,532 tokens, and half of them at 245,064
    assert "llama-3.1-8b, 2 of 4 rows: cache = weights: beyond the stated maximum of 131,072 positions\n" in err
    _, err = answered("compare", "llama-3.1-8b", "--context", "1M")
    assert "llama-3.1-8b: the context is beyond the stated maximum of 131,072 positions\n" in err


def test_decoders_of_one_name_have_a_column_each(answered, twins):
    out, err = answered("diff", *twins, "--json")
    rows = {row["path"]: row for row in json.loads(out)["rows"]}
    assert rows["layers[0].mixer.n_kv_heads"] == {
        "path": "layers[0].mixer.n_kv_heads",
        "mine (1)": "4",
        "mine (2)": "2",
    }
    assert rows["= cache_bytes_per_token"]["mine (1)"] == str(2 * 2 * 64 * 2)  # K and V of 2 layers in bf16
    assert rows["= cache_bytes_per_token"]["mine (2)"] == str(2 * 2 * 32 * 2)
    assert err == "assumed: context = 1,024, batch = 1\n"


def test_crossings_are_where_attention_overtakes(answered):
    out, _ = answered("crossings", "llama-3.1-8b", "--json")
    found = {(row["phase"], row["over"]): row["context"] for row in json.loads(out)["rows"]}
    # S (S + 1) / 2 pairs of 4 x 32 x 128 FLOPs, against two for each of the matrices' parameters and position
    projections, feed_forward = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024), 2 * 3 * 4096 * 14336
    assert found["prefill", "projection"] == 2 * projections // 16384 - 1
    assert found["prefill", "feed-forward"] == 2 * feed_forward // 16384 - 1
    assert found["decode", "feed-forward"] == feed_forward // 16384 - 1
    assert len(found) == 6


def test_crossings_beyond_the_stated_maximum_are_said(answered):
    said = "mixtral-8x7b: a context above 32,768 is beyond the stated maximum\n"
    assert answered("crossings", "mixtral-8x7b", "gqa-8", "llama-3.1-8b").err == said


def test_crossings_that_do_not_happen_are_said(answered):
    out, err = answered("crossings", "mamba-130m", "gqa-8")
    assert "mamba-130m: in decode, attention never overtakes projection or feed-forward or everything else\n" in err
    assert "mamba" not in out
    assert max(map(len, out.splitlines())) <= WIDTH
    edited = answered("crossings", "gqa-8", "--set", "layers[0].mixer.n_kv_heads=32", "--csv").out
    assert edited == answered("crossings", "mha", "--csv").out.replace("mha,", "gqa-8,")
