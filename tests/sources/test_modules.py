"""Names of a checkpoint's modules, as published lists have them -> roles, whole or in part."""

import pytest

from planner.sources import modules
from planner.sources.modules import role_of


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("lm_head", "lm_head"),
        ("gate", "router"),
        ("model.layers.0.block_sparse_moe.gate", "router"),
        ("re:.*block_sparse_moe.gate", "router"),
        ("language_model.model.layers.0.feed_forward.router", "router"),
        ("model.layers.0.mlp.experts.3.gate_proj", "experts_routed"),
        ("*.mlp.shared_experts*", "experts_shared"),
        ("model.layers.3.moe.gate", "router"),
        ("model.layers.3.moe.gate_proj", "experts_routed"),
        ("model.layers.3.share_expert.up_proj", "experts_shared"),
        ("model.layers.3.self_attn.g_proj", "attention"),
        ("model.layers.3.self_attn.q_conv1d", None),
        ("model.layers.0.self_attn.kv_b_proj", "attention"),
        (r"re:model\.layers\.[0-9]+\.self_attn\..*", "attention"),
        ("model.layers.0.linear_attn.in_proj_ba", "ssm_conv_mixer"),
        ("backbone.layers.3.mixer.in_proj", "ssm_conv_mixer"),
        ("model.embed_tokens", "embedding"),
        ("transformer.wte", "embedding"),
        ("model.layers.0.input_layernorm", "norms"),
        ("model.layers.10.mlp", "ffn_dense"),
        ("vision_tower", None),
        ("re:visual.*", None),
        ("multi_modal_projector", None),
        ("mtp*", None),
        ("model.layers.1.mlp.shared_expert_gate", None),
        (3, None),
    ],
)
def test_the_role_of_a_module(name, role):
    assert role_of(name) == role


def covered(names, **layers):
    return modules.covered(names, layers).whole


def test_a_role_is_whole_when_all_its_layers_or_all_its_parts_are():
    assert covered(["model.layers.0.self_attn", "model.layers.1.self_attn"], attention=2) == {"attention"}
    assert covered(["model.layers.0.self_attn"], attention=2) == set()
    assert covered([f"self_attn.{p}_proj" for p in "qkvo"], attention=2) == {"attention"}
    assert covered([f"self_attn.{p}_proj.weight" for p in "qkvo"], attention=2) == {"attention"}
    assert covered([f"self_attn.{p}_proj" for p in "qkv"], attention=2) == set()
    assert covered(["re:.*indexer.*"], attention=2) == set()
    assert covered(
        [f"model.layers.{i}.mlp.{p}_proj" for i in range(2) for p in ("gate", "up", "down")], ffn_dense=2
    ) == {"ffn_dense"}


def test_a_whole_feed_forward_has_its_experts_in_it():
    assert covered(["*.mlp.*"], ffn_dense=1, experts_routed=3) == {"ffn_dense", "experts_routed"}
    assert covered(["model.layers.0.mlp"], ffn_dense=1, experts_routed=3) == {"ffn_dense"}
    everything = ["re:.*ffn.*(gate|up|down)_proj$"]  # a glob between the block and its matrices reaches those inside
    assert covered(everything, experts_routed=43, experts_shared=43) == {"experts_routed", "experts_shared"}
    assert covered([r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"], ffn_dense=1, experts_routed=60) == {"ffn_dense"}


def test_a_hostile_list_of_modules_is_read():
    names = [f"re:{'(a|b|c)' * 40}{'.*' * 50}{i}" for i in range(200)]
    assert covered(names, attention=4, ffn_dense=1) == set()
