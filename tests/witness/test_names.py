"""Tensor names of real checkpoints: every one has its place in the bill, and every place of the bill its tensor.

The rows of `checkpoint_names.jsonl.gz` list names and shapes of every kind of layer of real configs, as another program
(transformers 5.24, meta device) builds them. Buffers are not in them.
"""

import numpy as np
import pytest

import planner
from planner import witness
from planner.components.mixture import Mixture
from planner.errors import InputError
from planner.sources.config_json import read_config
from planner.witness.names import adopt
from planner.witness.places import shape, stored
from tests.witness.builders import attention, decoder, fixture, jsonl, layer, tokens

ROWS = jsonl("checkpoint_names.jsonl.gz")


def numbers(text):
    """``"0, 3-5"`` -> 0, 3, 4, 5."""
    for part in str(text).split(","):
        first, _, last = part.strip().partition("-")
        yield from range(int(first), int(last or first) + 1)


def shapes(row, model):
    found = {name: tuple(side) for name, side in row["ends"]}
    for kind in row["layers"]:
        for number in numbers(kind["indices"]):
            found |= {f"{kind['stack']}.{number}.{name}": tuple(side) for name, side in kind["params"]}
    return found | {name: shape(t) for name, t in stored(model).items() if t.counts == "buffer"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_tensor_has_its_place(row):
    model = read_config(row["config"], row["name"]).architecture
    blank = {name: np.broadcast_to(np.int8(0), side) for name, side in shapes(row, model).items()}
    assert sum(array.size for array in adopt(model, blank).values()) == planner.parameters(model)


def test_weights_under_the_bills_own_names_stay():
    model = decoder(layer(attention()))
    weights = witness.random_weights(model)
    assert adopt(model, weights).keys() == weights.keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), "the weights lack final_norm.weight"),
        (
            lambda w: w.update({"model.layers.0.surprise.weight": np.zeros(3)}),
            "model.layers.0.surprise.weight: the contract",
        ),
        (
            lambda w: w.update({"model.norm.weight": np.zeros(5)}),
            r"final_norm.weight has the shape \[5\], and the contract says",
        ),
        (
            lambda w: w.pop("model.layers.1.input_layernorm.weight"),
            "layer 1 has the norms post_attention_layernorm, and the contract says 2",
        ),
        (
            lambda w: w.update({"model.layers.0.self_attn.q_proj.bias": np.zeros(32)}),
            "q_proj.bias: the contract has no place",
        ),
    ],
)
def test_nothing_is_guessed(change, message):
    model, weights, *_ = fixture("llama")
    change(weights)
    with pytest.raises(InputError, match=message):
        adopt(model, weights)


def test_a_copy_of_a_tied_table_and_old_buffers_are_passed_over():
    model, weights, ids, logits, _ = fixture("qwen3")
    more = {
        "lm_head.weight": weights["model.embed_tokens.weight"],
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4),
    }
    np.testing.assert_allclose(witness.logits(model, weights | more, ids), logits, rtol=0, atol=1e-4)


def test_experts_may_come_one_by_one():
    """As in checkpoint files, where transformers 5 fuses them."""
    model, weights, ids, logits, _ = fixture("mixtral")
    single = {name: array for name, array in weights.items() if ".experts." not in name}
    for number in range(2):
        fused = f"model.layers.{number}.mlp.experts"
        files = f"model.layers.{number}.block_sparse_moe.experts"
        for expert in range(4):
            gate, up = np.split(weights[f"{fused}.gate_up_proj"][expert], 2)
            down = weights[f"{fused}.down_proj"][expert]
            single |= {f"{files}.{expert}.{w}.weight": a for w, a in (("w1", gate), ("w3", up), ("w2", down))}
    np.testing.assert_allclose(witness.logits(model, single, ids), logits, rtol=0, atol=1e-4)


def test_codegens_four_shards():
    """CodeGen's fused projection has four shards, each with its queries, values and keys, in that order."""
    model = decoder(layer(attention(n_kv_heads=4)))
    weights = witness.random_weights(model)
    blocks = [weights[f"layers.0.mixer.{id}.weight"].reshape(4, 8, 16) for id in "qvk"]
    fused = {"transformer.h.0.attn.qkv_proj.weight": np.concatenate(blocks, axis=1).reshape(-1, 16)}
    rest = {
        name: array
        for name, array in weights.items()
        if not name.startswith(tuple(f"layers.0.mixer.{c}." for c in "qkv"))
    }
    np.testing.assert_array_equal(
        witness.logits(model, fused | rest, [tokens(5)]), witness.logits(model, weights, [tokens(5)])
    )


def test_a_mixture_of_another_name():
    """Databricks' stacks every expert's rows on one axis."""
    model = decoder(layer(attention(), Mixture(n_experts=3, top_k=2, d_ff=7)))
    weights = witness.random_weights(model)
    stem = "layers.0.feed_forward.experts"
    rest = {name: array for name, array in weights.items() if not name.startswith(stem)}
    rows = {
        "transformer.blocks.0.ffn.experts.mlp.w1": weights[f"{stem}.gate.weight"].reshape(-1, 16),
        "transformer.blocks.0.ffn.experts.mlp.v1": weights[f"{stem}.up.weight"].reshape(-1, 16),
        "transformer.blocks.0.ffn.experts.mlp.w2": weights[f"{stem}.down.weight"].swapaxes(1, 2).reshape(-1, 16),
    }
    expected = witness.logits(model, weights, [tokens(5)])
    np.testing.assert_allclose(witness.logits(model, rows | rest, [tokens(5)]), expected, rtol=0, atol=1e-5)


def test_a_shared_block_and_the_adapters_of_its_uses():
    """Zamba2 stores a block where it is first used, with a list of adapters for all uses of any block."""
    model = witness.scaled_down(planner.load("zamba2-2.7b")).architecture
    weights = witness.random_weights(model)
    uses = [number for number, layer in enumerate(model.order()) if layer.extras]
    blocks = [layer.extras[0].block for layer in model.order() if layer.extras]
    assert (len(uses), len(set(blocks))) == (4, 2)
    renamed = {
        f"model.layers.{number}.linear.weight": weights.pop(f"layers.{number}.extras[0].project.weight")
        for number in uses
    }
    for use, (number, block) in enumerate(zip(uses, blocks, strict=True)):
        first = f"model.layers.{uses[blocks.index(block)]}.shared_transformer"
        for place, id in enumerate(("down", "up")):
            name = f"{first}.feed_forward.gate_up_proj_adapter_list.{use}.{place}.weight"
            renamed[name] = weights.pop(f"layers.{number}.extras[0].up_adapter.{id}.weight")
        if blocks.index(block) == use:
            renamed |= {f"{first}.self_attn.{c}_proj.weight": weights.pop(f"{block}/mixer.{c}.weight") for c in "qkvo"}
            both = [weights.pop(f"{block}/feed_forward.{id}.weight") for id in ("gate", "up")]
            renamed[f"{first}.feed_forward.gate_up_proj.weight"] = np.concatenate(both)
            renamed[f"{first}.feed_forward.down_proj.weight"] = weights.pop(f"{block}/feed_forward.down.weight")
            renamed[f"{first}.input_layernorm.weight"] = weights.pop(f"{block}/mixer_norm.weight")
            renamed[f"{first}.pre_ff_layernorm.weight"] = weights.pop(f"{block}/feed_forward_norm.weight")
    assert adopt(model, weights | renamed).keys() == witness.random_weights(model).keys()
    np.testing.assert_array_equal(
        witness.logits(model, weights | renamed, [tokens(5)]),
        witness.logits(model, witness.random_weights(model), [tokens(5)]),
    )
