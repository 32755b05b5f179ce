"""A checkpoint held to its contract: the tensors of real families agree, and every difference is named.

The rows are names and shapes as another program builds them (see `test_names`); what they are called in GGUF files is
asked of llama.cpp's own package.
"""

import re
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.sources.checkpoint import Checkpoint
from planner.sources.config_json import read_config
from planner.sources.packing import Weight
from planner.witness.reconcile import PREDICTION, held_to
from tests.witness.test_names import ROWS, shapes

BY_NAME = {row["name"]: row for row in ROWS}


def model_of(name):
    return read_config(BY_NAME[name]["config"], name).architecture


def checkpoint(found, metadata=None):
    weights = tuple(Weight(name, tuple(side), "bf16", 2 * prod(side)) for name, side in found.items())
    return Checkpoint("here", (), weights, metadata or {})


def tensors(name):
    return shapes(BY_NAME[name], model_of(name))


def differences(name, found):
    return held_to(model_of(name), checkpoint(found)).differences


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_the_tensors_of_every_family_are_those_of_its_contract(row):
    model = read_config(row["config"], row["name"]).architecture
    found = held_to(model, checkpoint(shapes(row, model)))
    assert found.differences.agree, found.differences
    assert found.left_out == {}
    assert set(found.verdicts().values()) == {"equal"}


def test_a_buffer_has_its_place_by_its_published_name():
    step = "stepfun-ai/Step-3.5-Flash, published names, two layers of three experts"
    found = tensors(step)
    found["model.layers.1.moe.router_bias"] = found.pop("layers.1.feed_forward.router.correction")
    assert differences(step, found).agree
    found["model.layers.1.moe.router_bias2"] = found.pop("model.layers.1.moe.router_bias")
    assert not differences(step, found).agree


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_a_tensor_that_is_missing_is_called_as_its_like_in_another_layer(row):
    model = read_config(row["config"], row["name"]).architecture
    found = shapes(row, model)
    inside = [name for name in found if re.search(r"(layers|h|blocks)\.1\.", name) and not name.startswith("layers.")]
    name = inside[len(inside) // 2]
    rest = {other: side for other, side in found.items() if other != name}
    missing = held_to(model, checkpoint(rest)).differences.missing
    assert missing == ((name, found[name]),) if len(model.layers) == 1 else missing


LLAMA = "huggyllama/llama-7b"
Q, K = (f"model.layers.5.self_attn.{x}_proj.weight" for x in "qk")


def test_missing_extra_and_another_shape():
    found = tensors(LLAMA)
    del found[Q]
    found[K] = (1024, 4096)
    found["model.layers.5.self_attn.q_proj.bias"] = (4096,)
    found["model.layers.32.self_attn.q_proj.weight"] = (4096, 4096)
    found["surprise"] = (3,)
    said = differences(LLAMA, found)
    assert said.missing == ((Q, (4096, 4096)),)
    assert said.shape_differs == ((K, (4096, 4096), (1024, 4096)),)
    assert {name for name, _ in said.extra} == {
        "model.layers.5.self_attn.q_proj.bias",
        "model.layers.32.self_attn.q_proj.weight",
        "surprise",
    }


def test_a_kind_of_tensor_that_is_nowhere_is_called_as_the_bill_calls_it():
    found = {name: side for name, side in tensors(LLAMA).items() if "q_proj" not in name}
    assert differences(LLAMA, found).missing[0] == ("layers.0.mixer.q.weight", (4096, 4096))
    assert len(differences(LLAMA, found).missing) == 32


def test_a_layer_with_another_number_of_norms():
    """Norms go by their order; where one is missing, the other layers tell which."""
    found = tensors(LLAMA)
    del found["model.layers.1.input_layernorm.weight"]
    said = differences(LLAMA, found)
    assert (said.missing, said.extra) == ((("model.layers.1.input_layernorm.weight", (4096,)),), ())
    found["model.layers.1.input_layernorm.weight"] = (4096,)
    found["model.layers.1.ffn_norm.weight"] = (4096,)
    said = differences(LLAMA, found)
    assert (said.missing, said.extra) == ((), (("model.layers.1.ffn_norm.weight", (4096,)),))


def test_old_buffers_are_no_difference():
    found = tensors(LLAMA) | {"model.layers.0.self_attn.rotary_emb.inv_freq": (64,)}
    weights = checkpoint(found).weights
    kept = tuple(w._replace(counts="buffer") if "inv_freq" in w.name else w for w in weights)
    assert held_to(model_of(LLAMA), Checkpoint("here", (), kept)).differences.agree


def test_matrices_that_are_stored_turned():
    """GPT-2's are [in, out]; a right number of elements the wrong way round is another shape."""
    name = "openai-community/gpt2"
    found = tensors(name)
    fused = next(n for n in found if n.endswith("h.0.attn.c_attn.weight"))
    assert found[fused] == (768, 2304)
    other = next(n for n in found if n.endswith("h.3.mlp.c_fc.weight"))
    found[other] = found[other][::-1]
    assert differences(name, found).shape_differs == ((other, (768, 3072), (3072, 768)),)


# ---- experts ---------------------------------------------------------------------------------------------------------

MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"
ONE = "model.layers.{}.block_sparse_moe.experts.{}.{}.weight"


def one_by_one(experts=8):
    """Mixtral's files have every expert's matrices apart."""
    found = {name: side for name, side in tensors(MIXTRAL).items() if ".experts." not in name}
    for layer in range(32):
        for expert in range(experts):
            sides = {"w1": (14_336, 4096), "w2": (4096, 14_336), "w3": (14_336, 4096)}
            found |= {ONE.format(layer, expert, w): side for w, side in sides.items()}
    return found


def test_experts_may_come_one_by_one():
    assert differences(MIXTRAL, one_by_one()).agree


def test_one_expert_is_missing():
    found = one_by_one()
    del found[ONE.format(7, 3, "w2")]
    said = differences(MIXTRAL, found)
    assert (said.missing, said.extra) == (((ONE.format(7, 3, "w2"), (4096, 14_336)),), ())


def test_more_experts_than_the_contract_has():
    said = differences(MIXTRAL, one_by_one(9))
    assert said.missing == ()
    assert len(said.extra) == 32 * 3
    assert said.extra[0][0] == ONE.format(0, 8, "w1")


def test_an_expert_of_another_shape():
    found = one_by_one() | {ONE.format(0, 0, "w1"): (14_337, 4096)}
    assert differences(MIXTRAL, found).shape_differs == ((ONE.format(0, 0, "w1"), (14_336, 4096), (14_337, 4096)),)


@pytest.mark.parametrize("turned", [False, True])
def test_stacked_experts_may_be_stored_either_way_round(turned):
    """gpt-oss: [E, in, 2 f] in bf16, and unpacked from MXFP4 [E, 2 f, in]."""
    name = "openai/gpt-oss-20b"
    found = tensors(name)
    fused = "model.layers.0.mlp.experts.gate_up_proj"
    assert found[fused] == (32, 2880, 5760)
    found |= {fused: (32, 5760, 2880)} if turned else {}
    assert differences(name, found).agree
    found[fused] = (32, 2880, 5761)
    assert differences(name, found).shape_differs == ((fused, (32, 5760, 2880), (32, 2880, 5761)),)


# ---- what a contract leaves out ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("vision", "model.visual.blocks.0.attn.qkv.weight"),
        ("vision", "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight"),
        ("vision", "multi_modal_projector.linear_1.weight"),
        ("vision", "model.image_newline"),
        ("audio", "model.audio_tower.layers.0.self_attn.q_proj.weight"),
        ("audio", "audio_projector.weight"),
        (PREDICTION, "mtp.layers.0.self_attn.q_proj.weight"),
    ],
)
def test_parts_beside_the_decoder_are_left_out_by_name(part, name):
    held = held_to(model_of(LLAMA), checkpoint(tensors(LLAMA) | {name: (16, 16)}))
    assert held.differences.agree
    assert [(p, [w.name for w in weights]) for p, weights in held.left_out.items()] == [(part, [name])]
    assert held.verdicts()[name] == part


def test_a_layer_behind_the_last_that_predicts_is_left_out_and_any_other_is_extra():
    behind = {"model.layers.32.eh_proj.weight": (4096, 8192), "model.layers.32.embed_tokens.weight": (32_000, 4096)}
    held = held_to(model_of(LLAMA), checkpoint(tensors(LLAMA) | behind))
    assert held.differences.agree
    assert {weight.name for weight in held.left_out[PREDICTION]} == set(behind)
    behind = {name: side for name, side in behind.items() if "eh_proj" not in name}
    assert differences(LLAMA, tensors(LLAMA) | behind).extra == (
        ("model.layers.32.embed_tokens.weight", (32_000, 4096)),
    )


def test_a_tied_matrix_that_is_stored_twice_is_compared_once():
    name = "Qwen/Qwen3-0.6B"
    twice = tensors(name) | {"lm_head.weight": (151_936, 1024)}
    held = held_to(model_of(name), checkpoint(twice))
    assert held.differences.agree
    assert sum(weight.elements for weight in held.body.weights) == planner.parameters(model_of(name))
    untied = planner.edit(model_of(name), **{"output.tied": False})
    assert held_to(untied, checkpoint(twice)).differences.agree
    assert held_to(untied, checkpoint(tensors(name))).differences.missing == (("output.weight", (151_936, 1024)),)


# ---- GGUF ------------------------------------------------------------------------------------------------------------

GGUF = {
    "huggyllama/llama-7b": "LLAMA",
    "mistralai/Mixtral-8x7B-v0.1": "LLAMA",
    "Qwen/Qwen1.5-0.5B": "QWEN2",
    "Qwen/Qwen3-0.6B": "QWEN3",
    "Qwen/Qwen3-235B-A22B": "QWEN3MOE",
    "google/gemma-2-9b": "GEMMA2",
    "google/gemma-3-270m": "GEMMA3",
    "deepseek-ai/DeepSeek-V2-Lite": "DEEPSEEK2",
    "deepseek-ai/DeepSeek-V3": "DEEPSEEK2",
    "openai/gpt-oss-20b": "GPT_OSS",
    "microsoft/Phi-3-mini-4k-instruct": "PHI3",
}


def as_gguf(name):
    """Names and shapes as llama.cpp's converter writes them: its package names them, fused experts are taken apart."""
    library = pytest.importorskip("gguf")
    architecture = library.MODEL_ARCH[GGUF[name]]
    names = library.get_tensor_name_map(architecture, model_of(name).n_layers)
    found = {}
    for own, side in tensors(name).items():
        stem, _, suffix = own.rpartition(".") if own.endswith((".weight", ".bias")) else (own, ".", "weight")
        if ".mlp.experts." in own:
            suffix = "bias" if own.endswith("_bias") else "weight"
            stem, fused = stem.removesuffix("_bias"), "gate_up" in own
            experts, *sides = side if suffix == "bias" or GGUF[name] != "GPT_OSS" else (side[0], side[2], side[1])
            for part in ("gate", "up") if fused else ("down",):
                half = (sides[0] // 2, *sides[1:]) if fused else tuple(sides)
                found[f"{names.get_name(stem.rpartition('.')[0] + f'.{part}_proj')}.{suffix}"] = (experts, *half)
        else:
            if ".router.correction" in own:  # a buffer, under the bill's name
                own, suffix = own.replace("feed_forward.router.correction", "mlp.gate.e_score_correction.bias"), "bias"
                own = f"model.{own}"
            mapped = names.get_name(own, try_suffixes=(".weight", ".bias"))
            found[mapped if mapped.endswith(suffix) else f"{mapped}.{suffix}"] = side
    return found, {"general.architecture": library.MODEL_ARCH_NAMES[architecture]}


@pytest.mark.parametrize("name", GGUF)
def test_the_names_of_gguf_files(name):
    found, metadata = as_gguf(name)
    held = held_to(model_of(name), checkpoint(found, metadata))
    assert held.differences.agree, held.differences
    assert len(found) == len(held.body.weights)
    assert set(held.verdicts()) == set(found)


def test_the_latent_in_two_parts():
    """Newer files store [heads, latent, key width] and [heads, value width, latent]."""
    name = "deepseek-ai/DeepSeek-V2-Lite"
    found, metadata = as_gguf(name)
    for layer in range(27):
        assert found.pop(f"blk.{layer}.attn_kv_b.weight") == (16 * (128 + 128), 512)
        found |= {f"blk.{layer}.attn_k_b.weight": (16, 512, 128), f"blk.{layer}.attn_v_b.weight": (16, 128, 512)}
    held = held_to(model_of(name), checkpoint(found, metadata))
    assert held.differences.agree
    assert set(held.verdicts()) == set(found)
    assert sum(weight.stored_bytes for weight in held.body.weights) == sum(2 * prod(side) for side in found.values())
    found["blk.3.attn_v_b.weight"] = (16, 128, 511)
    said = held_to(model_of(name), checkpoint(found, metadata)).differences
    assert [name for name, *_ in said.shape_differs] == ["blk.3.attn_k_b.weight"]
    del found["blk.4.attn_k_b.weight"]
    said = held_to(model_of(name), checkpoint(found, metadata)).differences
    assert ("blk.4.attn_v_b.weight", (16, 128, 512)) in said.extra
    assert [name for name, _ in said.missing] == ["layers.4.mixer.kv_b.weight"] or said.missing


def test_differences_of_a_gguf_file_are_in_its_own_names():
    found, metadata = as_gguf("Qwen/Qwen3-0.6B")
    found["blk.2.attn_q.weight"] = (5, 5)
    found["blk.2.surprise.weight"] = (1,)
    said = held_to(model_of("Qwen/Qwen3-0.6B"), checkpoint(found, metadata)).differences
    assert said.shape_differs == (("blk.2.attn_q.weight", (2048, 1024), (5, 5)),)
    assert said.extra == (("blk.2.surprise.weight", (1,)),)


def test_experts_of_old_gguf_files_come_one_by_one():
    found, metadata = as_gguf(MIXTRAL)
    found = {name: side for name, side in found.items() if "_exps" not in name}
    for layer in range(32):
        for expert in range(8):
            sides = {"gate": (14_336, 4096), "down": (4096, 14_336), "up": (14_336, 4096)}
            found |= {f"blk.{layer}.ffn_{part}.{expert}.weight": side for part, side in sides.items()}
    assert held_to(model_of(MIXTRAL), checkpoint(found, metadata)).differences.agree


# ---- hostile names and shapes ----------------------------------------------------------------------------------------

WORDS = ["model", "layers", "h", "blocks", "0", "1", "7" * 5000, "99999999999", "self_attn", "q_proj", "c_attn", "attn"]
WORDS += ["mlp", "experts", "gate_up_proj", "w1", "weight", "bias", "norm", "input_layernorm", "lm_head", "é", "٣", ""]
HOSTILE = st.dictionaries(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=7).map(".".join) | st.text(max_size=8),
    st.lists(st.sampled_from([0, 1, 2, 64, 768, 2304, 2**62]), max_size=4).map(tuple),
    max_size=8,
)


@given(st.sampled_from(["openai-community/gpt2", LLAMA, MIXTRAL, "Zyphra/Zamba2-2.7B"]), HOSTILE, st.booleans())
@settings(max_examples=60)
def test_no_name_and_no_shape_is_more_than_a_difference(name, found, is_gguf):
    held = held_to(model_of(name), checkpoint(found, {"general.architecture": "phi3"} if is_gguf else {}))
    assert held.differences.missing
    left_out = {weight.name for weights in held.left_out.values() for weight in weights}
    assert {n for n, _ in held.differences.extra} | left_out <= set(found)
    assert set(held.verdicts()) <= set(found)
