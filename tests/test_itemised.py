"""The itemised bill: rows that a reader can check by hand, and whose sums are the figures that the accounts give."""

import pytest

import planner

MIXED = ["gpt2", "gemma-3-27b", "zamba2-2.7b", "deepseek-v3", "jetmoe-8b", "jamba-v0.1", "qwen3-next-80b-a3b"]


def rows(model, **asked):
    return {row["path"]: row for row in planner.itemise(model, **asked).to_dict("records")}


def test_the_itemised_bill_has_every_tensor_once_with_its_shape_and_copies():
    found = rows("mixtral-8x7b")
    assert found["embedding.tokens.weight"]["parameters"] == 32_000 * 4096
    query, expert = found["layers[0].mixer.q.weight"], found["layers[0].feed_forward.experts.up.weight"]
    assert (query["shape"], query["copies"], query["parameters"]) == ((4096, 4096), 32, 32 * 4096**2)
    assert (expert["shape"], expert["copies"]) == ((14_336, 4096), 32 * 8)
    assert expert["parameters"] == 32 * 8 * 14_336 * 4096
    assert expert["role"] == expert["component"] == "experts_routed"


@pytest.mark.parametrize("name", MIXED)
def test_each_list_adds_up(name):
    tensors = planner.itemise(name)
    assert tensors["parameters"].sum() == planner.parameters(name)
    for form in ("absorbed", "expanded"):
        asked = {"past": 500, "new": 300, "logits": "all", "mla": form}
        assert planner.itemise(name, of="products", **asked)["flops"].sum() == planner.flops(name, **asked)
    kept = planner.itemise(name, of="cache", past=500, new=300, kv="fp8")
    assert kept["bytes"].sum() == planner.cache_bytes(name, 800, kv="fp8")


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("of", ["tensors", "products", "cache", "operations"])
def test_no_two_entries_have_one_path(name, of):
    assert not planner.itemise(name, of=of)["path"].duplicated().any()


def test_products_of_a_window_count_the_pairs_that_it_sees():
    """Gemma 3 27B after 5,000 positions: a window of 1,024 in 52 layers, all 5,001 positions in 10; 32 heads of 128."""
    found = rows("gemma-3-27b", of="products", past=5000)
    near, far = found["layers[0].mixer.scores"], found["layers[1].mixer.scores"]
    assert (near["layers"], near["units"], near["flops"]) == (52, 1024, 2 * 52 * 1024 * 32 * 128)
    assert (far["layers"], far["units"], far["flops"]) == (10, 5001, 2 * 10 * 5001 * 32 * 128)


def test_work_that_is_no_product_is_counted_in_elements():
    """Qwen3-8B: 36 layers of 32 query and 8 key heads of 128, each with a norm, width 4,096, 12,288 gated units."""
    found = {path: row["elements"] for path, row in rows("qwen3-8b", of="operations", past=5, new=2).items()}
    assert found == {
        "layers[0].mixer.q_norm": 36 * 2 * 32 * 128,
        "layers[0].mixer.k_norm": 36 * 2 * 8 * 128,
        "layers[0].mixer.softmax": 36 * (6 + 7) * 32,
        "layers[0].mixer.rope": 36 * 2 * (32 + 8) * 128,
        "layers[0].feed_forward.activation": 36 * 2 * 12_288,
        "layers[0].mixer_norm": 36 * 2 * 4096,
        "layers[0].feed_forward_norm": 36 * 2 * 4096,
        "final_norm": 2 * 4096,
    }


def test_a_cache_names_its_formats():
    """DeepSeek-V3 keeps 512 + 64 numbers of a position, Jamba's states are kept in 4 bytes whatever the cache is in."""
    latent, turned = list(rows("deepseek-v3", of="cache", past=9, new=1, kv="fp8").values())[:2]
    assert (latent["width"], turned["width"], latent["positions"], latent["bytes"]) == (512, 64, 10, 3 * 10 * 512)
    state = rows("jamba-v0.1", of="cache", past=9, kv="fp8")["layers[0].mixer.state"]
    assert (state["format"], state["positions"], state["bytes_per_position"]) == ("fp32", 1, 8192 * 16 * 4)


def test_temporary_memory_of_naive_and_of_tiled_attention():
    """Llama-3.1-8B reads 1,024 positions, 32 heads of 128: scores in bf16, two float32 statistics of each query.

    In 128 KiB, tiles hold 128 keys: K and V go by once, queries and outputs with each of 8 tiles.
    """
    asked = {"new": 1024, "on_chip_bytes": 131_072}
    found = {path: row["bytes"] for path, row in rows("llama-3.1-8b", of="temporary", **asked).items()}
    assert found == {
        "scores": 32 * 1024**2 * 2,
        "tiled statistics": 2 * 32 * 1024 * 4,
        "traffic with scores": 32 * 32 * (4 * 1024 * 128 + 4 * 1024**2) * 2,
        "traffic in tiles": 32 * 32 * (2 * 1024 * 128 + 8 * 1024 * (3 * 128 + 4)) * 2,
        "logits": 128_256 * 4,
    }
    assert "traffic in tiles" not in rows("llama-3.1-8b", of="temporary", new=1024)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"of": "flops"}, "of = 'flops' is none of tensors, products, cache, operations, temporary"),
        ({"of": "products", "past": -1}, "past = -1 is not a number of positions, 0 or more"),
        ({"of": "temporary", "on_chip_bytes": 0}, "on_chip_bytes = 0 is not a size above 0 for of = temporary"),
        ({"of": "products", "on_chip_bytes": 1}, "on_chip_bytes = 1 is not a size above 0 for of = temporary"),
        ({"of": "cache", "new": None}, "new = None is not a number of positions, 0 or more"),
        ({"of": "cache", "kv": "awq-g128"}, "unknown cache format 'awq-g128'"),
    ],
)
def test_what_cannot_be_listed_is_a_sentence(asked, sentence):
    with pytest.raises(planner.PlannerError) as refusal:
        planner.itemise("mha", **asked)
    assert str(refusal.value).startswith(sentence)
