"""What the tensors of a checkpoint are called, family by family, and which tensors of the bill they hold.

A line is a role, how it is laid out, and the names in the bill. ``*`` is a number of several equal tensors (an
expert, a head); ``(a|b)`` is either, and ``\\1`` repeats it (``\\2`` behind a ``*``). ``.weight`` or ``.bias`` follows
on both sides, except in a role that ends with ``!``, which is the whole name. A name in the bill that begins with a
slash is that of the block which the layer shares with others.

=============  ============================================================================================
layout         the tensor is
=============  ============================================================================================
plain          the very same
flat           the same elements in another shape
blocks         several, one after the other
by_group       for each key head its query heads, the key, the value
by_shard       four shards, each with its part of the blocks (CodeGen, trained on four accelerators)
experts        one for each expert, several one after the other; see `names`
rows           one for each expert, stacked on the first axis, [E f, D]; ``columns``: the same, for [E, D, f]
delta_qkvz     for each key head its query, its key, its value heads, their gates (Qwen3-Next)
delta_ba       for each key head two numbers for each of its value heads
by_use         of the layer that is the ``*``-th to use a shared block
=============  ============================================================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAMES = {
    "ATTENTION": "(?:self_attn|self_attention|attn.attention|attn|attention|mixer|temporal_block)",
    "FEED_FORWARD": "(?:mlp|ffn|feed_forward|block_sparse_moe|mixer|mlp_block)",
    "STATE": "(?:mamba|mixer|linear_attn|conv|temporal_block)",
}

_ENDS = r"""
(?:embed_tokens|wte|word_embeddings|embed_in|embeddings|embed)     plain  embedding.tokens
(?:wpe|embed_positions)                                            plain  embedding.positions
word_embeddings_layernorm                                          plain  embedding.norm
project_in                                                         plain  embedding.project
project_out                                                        plain  output.project
(?:norm|ln_f|norm_f|final_norm|layer_norm|embedding_norm)          plain  final_norm
final_(?:layernorm|layer_norm)                                     plain  final_norm
(?:lm_head|embed_out|output_projection|head)                       plain  output
embed_tokens_per_layer                                             plain  embedding.layers.table
per_layer_model_projection                                         plain  embedding.layers.project
per_layer_projection_norm                                          plain  embedding.layers.project_norm
altup_projections.*                                                plain  streams.project
altup_unembed_projections.*                                        plain  streams.unproject
hc_head(?:.hc)?_fn!                                                plain  streams.collapse.weight
hc_head(?:.hc)?_(base|scale)!                                      plain  streams.\1
"""

_LAYER = r"""
ATTENTION.(q|k|v)_proj                                             plain     mixer.\1
ATTENTION.(?:o_proj|out_proj|dense|c_proj)                         plain     mixer.o
ATTENTION.query_key_value                                          by_group  mixer.q mixer.k mixer.v
attn.qkv_proj                                                      by_shard  mixer.q mixer.v mixer.k
ATTENTION.(?:c_attn|Wqkv|qkv_proj)                                 blocks    mixer.q mixer.k mixer.v
self_attn.qkv_proj                                                 plain     mixer.qkv
self_attention.kv_proj                                             blocks    mixer.k mixer.v
ATTENTION.(q|k)_(?:layer)?norm                                     plain     mixer.\1_norm
ATTENTION.(q)uery_layernorm                                        plain     mixer.\1_norm
ATTENTION.(k)ey_layernorm                                          plain     mixer.\1_norm
ATTENTION.(q|k)_layernorm.norms.*                                  plain     mixer.\1_norm
ATTENTION.attn_sub_norm                                            plain     mixer.output_norm
ATTENTION.(?:sinks|attention_sink_bias)!                           plain     mixer.sinks
ATTENTION.(q_a|q_b|kv_b)_proj                                      plain     mixer.\1
ATTENTION.kv_a_proj_with_mqa                                       plain     mixer.kv_a
ATTENTION.(q_a|kv_a)_layernorm                                     plain     mixer.\1_norm
self_attn.(q|k|v)_conv1d                                           plain     mixer.\1.conv
self_attn.conv1d                                                   blocks    mixer.q.conv mixer.k.conv mixer.v.conv
self_attn.(?:forget_gate.)?f_(a|b)_proj                            plain     mixer.decay_\1
self_attn.g_(a|b)_proj                                             plain     mixer.gate_\1
self_attn.g_proj                                                   plain     mixer.head_gate
self_attn.b_proj                                                   plain     mixer.b
self_attn.o_norm                                                   plain     mixer.norm
self_attn.(?:forget_gate.)?A_log!                                  flat      mixer.a_log
self_attn.(?:forget_gate.)?dt_bias!                                plain     mixer.dt_bias
self_attn.indexer.wq_b                                             plain     mixer.indexer.q
self_attn.indexer.wk                                               plain     mixer.indexer.k
self_attn.indexer.k_norm                                           plain     mixer.indexer.k_norm
self_attn.indexer.weights_proj                                     plain     mixer.indexer.head_weights
self_attn.(kv|o_a|o_b)_proj                                        plain     mixer.\1
self_attn.(q_a|kv)_norm                                            plain     mixer.\1_norm
self_attn.compressor.(kv|gate)_proj                                plain     mixer.compressor.\1
self_attn.compressor.kv_norm                                       plain     mixer.compressor.kv_norm
self_attn.compressor.position_bias!                                plain     mixer.compressor.place_bias
self_attn.compressor.indexer.(kv|gate)_proj                        plain     mixer.indexer.\1
self_attn.compressor.indexer.kv_norm                               plain     mixer.indexer.kv_norm
self_attn.compressor.indexer.position_bias!                        plain     mixer.indexer.place_bias
self_attn.compressor.indexer.q_b_proj                              plain     mixer.indexer.q
self_attn.compressor.indexer.(?:scorer.)?weights_proj              plain     mixer.indexer.head_weights
attn.w(q_a|q_b|kv|o_a|o_b)                                         plain     mixer.\1
attn.q_norm                                                        plain     mixer.q_a_norm
attn.kv_norm                                                       plain     mixer.kv_norm
attn.attn_sink!                                                    plain     mixer.sinks
attn.compressor.w(kv|gate)                                         plain     mixer.compressor.\1
attn.compressor.norm                                               plain     mixer.compressor.kv_norm
attn.compressor.ape!                                               plain     mixer.compressor.place_bias
attn.indexer.compressor.w(kv|gate)                                 plain     mixer.indexer.\1
attn.indexer.compressor.norm                                       plain     mixer.indexer.kv_norm
attn.indexer.compressor.ape!                                       plain     mixer.indexer.place_bias
attn.indexer.wq_b                                                  plain     mixer.indexer.q
attn.indexer.weights_proj                                          plain     mixer.indexer.head_weights
self_attn.output_gate                                              plain     mixer.output_gate
self_attn.norm                                                     plain     mixer.norm
self_attention.experts.router.layer                                plain     mixer.router
self_attention.experts.input_linear                                plain     mixer.q
self_attention.experts.output_linear                               plain     mixer.o
self_attention.experts.bias!                                       flat      mixer.output_bias

STATE.(in|x|dt|out)_proj                                           plain     mixer.\1
STATE.(?:conv1d|conv_1d|conv)                                      plain     mixer.conv
STATE.(dt|b|c)_layernorm                                           plain     mixer.\1_norm
STATE.norm                                                         plain     mixer.norm
STATE.A_log!                                                       plain     mixer.a_log
STATE.D!                                                           plain     mixer.d
STATE.dt_bias!                                                     plain     mixer.dt_bias
linear_attn.in_proj_(qkv|z|b|a)                                    plain     mixer.\1
linear_attn.in_proj_qkvz                                           delta_qkvz  mixer.qkv mixer.z
linear_attn.in_proj_ba                                             delta_ba  mixer.b mixer.a
temporal_block.linear_(x|y|out)                                    plain     mixer.\1
temporal_block.rg_lru.recurrent_param!                             plain     mixer.a_param
temporal_block.rg_lru.(input_gate|recurrent_gate)_(weight|bias)!   plain     mixer.\1.\2

FEED_FORWARD.(gate|up|down)_proj                                   plain     feed_forward.\1
FEED_FORWARD.w1                                                    plain     feed_forward.gate
FEED_FORWARD.w3                                                    plain     feed_forward.up
FEED_FORWARD.w2                                                    plain     feed_forward.down
mlp.c_fc_0                                                         plain     feed_forward.gate
mlp.c_fc_1                                                         plain     feed_forward.up
(?:mlp.)?(?:c_fc|fc1|fc_in|dense_h_to_4h)                          plain     feed_forward.up
(?:mlp.)?(?:c_proj|fc2|fc_out|dense_4h_to_h)                       plain     feed_forward.down
FEED_FORWARD.gate_up_proj                                          blocks    feed_forward.gate feed_forward.up
FEED_FORWARD.ffn_sub_norm                                          plain     feed_forward.inner_norm
FEED_FORWARD.act_fn.(alpha_p|alpha_n|beta|eps)!                    flat      feed_forward.activation.\1
FEED_FORWARD.(?:gate|router|gate.wg|router.layer|router.gate)      plain     feed_forward.router
FEED_FORWARD.(?:gate.|experts.)?e_score_correction_bias!           plain     feed_forward.router.correction
FEED_FORWARD.gate.tid2eid!                                         plain     feed_forward.router.experts_of_token
ffn.gate.bias!                                                     plain     feed_forward.router.correction
FEED_FORWARD.shared_experts.w1                                     plain     feed_forward.shared.gate
FEED_FORWARD.shared_experts.w3                                     plain     feed_forward.shared.up
FEED_FORWARD.shared_experts.w2                                     plain     feed_forward.shared.down
moe.gate                                                           plain     feed_forward.router
moe.router_bias!                                                   plain     feed_forward.router.correction
moe.(gate|up|down)_proj                                            plain     feed_forward.experts.\1
share_expert.(gate|up|down)_proj                                   plain     feed_forward.shared.\1
mlp.gate.moe_statics.e_score_correction_bias!                      flat      feed_forward.router.correction
FEED_FORWARD.(?:gate.)?expert_bias!                                plain     feed_forward.router.correction
FEED_FORWARD.experts.gate_up_proj!  experts  feed_forward.experts.gate.weight feed_forward.experts.up.weight
FEED_FORWARD.experts.gate_up_proj_bias!             experts  feed_forward.experts.gate.bias feed_forward.experts.up.bias
FEED_FORWARD.experts.(up|down)_proj!                               experts   feed_forward.experts.\1.weight
FEED_FORWARD.experts.(up|down)_proj_bias!                          experts   feed_forward.experts.\1.bias
FEED_FORWARD.experts.*.(gate|up|down)_proj                         plain     feed_forward.experts.\2
FEED_FORWARD.(?:switch_mlp|experts).(gate|up|down)_proj            plain     feed_forward.experts.\1
FEED_FORWARD.switch_mlp.fc1                                        plain     feed_forward.experts.up
FEED_FORWARD.switch_mlp.fc2                                        plain     feed_forward.experts.down
experts.switch_glu.(gate|up|down)_proj                             plain     feed_forward.experts.\1
FEED_FORWARD.experts.*.w1                                          plain     feed_forward.experts.gate
FEED_FORWARD.experts.*.(?:w3|v1)                                   plain     feed_forward.experts.up
FEED_FORWARD.experts.*.w2                                          plain     feed_forward.experts.down
FEED_FORWARD.(?:shared_experts?|shared_mlp).(gate|up|down)_proj    plain     feed_forward.shared.\1
FEED_FORWARD.shared_expert_gate                                    plain     feed_forward.shared_gate
shared_mlp.input_linear                             blocks  feed_forward.shared.gate feed_forward.shared.up
shared_mlp.output_linear                                           plain     feed_forward.shared.down
ffn.experts.mlp.w1!                                                rows      feed_forward.experts.gate.weight
ffn.experts.mlp.v1!                                                rows      feed_forward.experts.up.weight
ffn.experts.mlp.w2!                                                columns   feed_forward.experts.down.weight
mlp.input_linear                                    experts  feed_forward.experts.gate feed_forward.experts.up
mlp.output_linear                                                  experts   feed_forward.experts.down
mlp.bias!                                                          plain     feed_forward.output_bias
mlp.(gate|up|down)_proj                                            plain     feed_forward.dense.\1
router.scale!                                                      plain     feed_forward.router.norm.weight
router.per_expert_scale!                                           plain     feed_forward.router.expert_scale
router.proj                                                        plain     feed_forward.router
experts.gate_up_proj!  experts  feed_forward.experts.gate.weight feed_forward.experts.up.weight
experts.down_proj!                                                 experts   feed_forward.experts.down.weight

altup.correct_output_scale!                                        plain     streams.output_scale
altup.(correction|prediction)_coefs                                plain     streams.\1
altup.modality_router                                              plain     streams.router
altup.router_norm                                                  plain     streams.router_norm
(?:attn_hc.|hc_attn_)fn!                                           plain     streams.branches[0].weights.weight
(?:attn_hc.|hc_attn_)(base|scale)!                                 plain     streams.branches[0].\1
(?:ffn_hc.|hc_ffn_)fn!                                             plain     streams.branches[1].weights.weight
(?:ffn_hc.|hc_ffn_)(base|scale)!                                   plain     streams.branches[1].\1
laurel.linear_(left|right)                                         plain     extras[0].\1
laurel.post_laurel_norm                                            plain     extras[0].norm
per_layer_input_gate                                               plain     extras[1].gate
per_layer_projection                                               plain     extras[1].project
post_per_layer_input_norm                                          plain     extras[1].norm
layer_scalar!                                                      plain     output_scale

shared_transformer.self_attn.(q|k|v|o)_proj                        plain     /mixer.\1
shared_transformer.feed_forward.gate_up_proj                       blocks    /feed_forward.gate /feed_forward.up
shared_transformer.feed_forward.down_proj                          plain     /feed_forward.down
shared_transformer.input_layernorm                                 plain     /mixer_norm
shared_transformer.pre_ff_layernorm                                plain     /feed_forward_norm
shared_transformer.self_attn.linear_(q|k|v)_adapter_list.*.0       by_use    extras[0].\1_adapter.down
shared_transformer.self_attn.linear_(q|k|v)_adapter_list.*.1       by_use    extras[0].\1_adapter.up
shared_transformer.feed_forward.gate_up_proj_adapter_list.*.0      by_use    extras[0].up_adapter.down
shared_transformer.feed_forward.gate_up_proj_adapter_list.*.1      by_use    extras[0].up_adapter.up
linear                                                             plain     extras[0].project
"""

NORMS = """
    input_layernorm ln_1 norm_1 ln_attn self_attn_layer_norm operator_norm attention_layernorm temporal_pre_norm norm
    attn_norm
    post_self_attn_layernorm post_attention_layernorm
    ln_2 norm_2 ln_mlp ffn_norm feedforward_layernorm channel_pre_norm pre_ff_layernorm pre_feedforward_layernorm
    pre_mlp_layernorm
    post_feedforward_layernorm_1 pre_feedforward_layernorm_2 post_feedforward_layernorm_2
    post_feedforward_layernorm post_mlp_layernorm final_layer_norm
""".split()
"""Names of a layer's norms, in the order in which the data pass them."""

IGNORED = re.compile(
    r"(?:.*\.)?(?:rotary_emb\.inv_freq|(?:attn|attention)\.(?:masked_)?bias"
    r"|self_attn\.(?:slope_rate|(?:query|key|diagonal)_decay))"
)
"""Buffers that checkpoints may hold and that follow from the contract: frequencies, causal masks, rates of decay."""


@dataclass(frozen=True, slots=True)
class Role:
    """A line of a table. The pattern's groups fill the targets; ``copy`` and ``suffix`` are groups of their own."""

    pattern: re.Pattern[str]
    layout: str
    targets: tuple[str, ...]


def _role(line: str) -> Role:
    text, layout, *targets = line.split()
    whole = text.endswith("!")
    for name, alternatives in _NAMES.items():
        text = re.sub(rf"\b{name}\b", alternatives, text)
    pattern = text.removesuffix("!").replace(".", r"\.").replace("*", r"(?P<copy>\d+)")
    if whole:
        return Role(re.compile(pattern), layout, tuple(targets))
    suffixed = tuple(rf"{target}.\g<suffix>" for target in targets)
    return Role(re.compile(rf"{pattern}\.(?P<suffix>weight|bias)"), layout, suffixed)


ENDS = [_role(line) for line in _ENDS.strip().splitlines()]
"""Roles outside the layers."""

LAYER = [_role(line) for line in _LAYER.splitlines() if line]
"""Roles in a layer."""
