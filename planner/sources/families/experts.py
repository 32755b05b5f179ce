"""Mixtures of experts of other lines than DeepSeek's: Mixtral, Qwen, Llama 4, gpt-oss, OLMoE, Granite, Phi, DBRX."""

from __future__ import annotations

from typing import Any

from planner.components.mixture_attention import MixtureAttention
from planner.components.norm import LayerNorm, RMSNorm
from planner.components.position import Rope, Temperature
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.sources.families.llama_like import qwen_mixers
from planner.sources.families.sparse import routed_layers
from planner.sources.families.variants import granite_decoder, hunyuan_mixer
from planner.spec import shown


@family("mixtral")
def mixtral(c: Config) -> Architecture:
    """Mixtral: llama's attention, two of eight experts, their scores divided by their sum."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c)
    position = read.rope(c, width, base=1_000_000.0)
    mixer = read.attention(c, head_dim=width, window=read.window(c), position=position)
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, feed_forward=read.mixture(c), norm=norm)), norm)


@family("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text")
def qwen_moe(c: Config) -> Architecture:
    """Qwen: every `decoder_sparse_step`-th layer has experts; up to 2 a shared one too, behind a gate of its own."""
    norm = read.rms_norm(c)
    types, mixers = qwen_mixers(c, norm)
    gated = c.model_type == "qwen2_moe"
    shared = c.count("shared_expert_intermediate_size") if gated else 0
    c.fixed("shared_expert_intermediate_size", to=shared)
    experts = read.mixture(
        c,
        d_ff=c.count("moe_intermediate_size"),
        d_ff_shared=shared,
        shared_gate=gated,
        normalised=c.flag("norm_topk_prob"),
    )
    step, dense_ones = c.count("decoder_sparse_step", default=1), set(c.list("mlp_only_layers") or ())
    routed = [i not in dense_ones and (i + 1) % step == 0 for i in range(read.n_layers(c))]
    c.ignore("intermediate_size")
    dense = None if all(routed) else read.feed_forward(c)
    return read.decoder(c, read.by_kind(types, mixers, routed, dense, experts, norm=norm), norm)


@family("mellum")
def mellum(c: Config) -> Architecture:
    """Mellum 2: Qwen 3's attention and experts, and local layers that turn by a base of their own."""
    norm, width = read.rms_norm(c), read.head_dim(c, default=128)
    types = read.kinds(c, ["full_attention"] * read.n_layers(c))
    bases = {"full_attention": 500_000.0, "sliding_attention": 10_000.0}
    windows = read.windows(c, types, read.window(c, default=1024))
    per_kind = {kind: {"position": read.rope(c, width, layer_type=kind, base=base)} for kind, base in bases.items()}
    bias = read.biases("qkvo", c.flag("attention_bias"))
    mixers = read.windowed(c, windows, per_kind, head_dim=width, qk_norm=norm, **bias)
    experts = read.mixture(
        c, d_ff=c.count("moe_intermediate_size"), d_ff_shared=0, normalised=c.flag("norm_topk_prob", default=True)
    )
    routed = routed_layers(c, 0)
    c.ignore("intermediate_size")
    dense = None if all(routed) else read.feed_forward(c)
    read.without_multi_token(c)
    c.ignore("mtp_layer_types", "mtp_mlp_layer_types")
    return read.decoder(c, read.by_kind(types, mixers, routed, dense, experts, norm=norm), norm)


@family("gpt_oss")
def gpt_oss(c: Config) -> Architecture:
    """gpt-oss: every other layer local, sinks, biases everywhere, clipped SwiGLU experts, scores among the chosen."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c, default=64)
    c.ignore("hidden_act", "initial_context_length")
    c.fixed("swiglu_alpha", to=1.702)
    limit = c.positive("swiglu_limit", default=7.0)
    ff = read.mixture(
        c, bias=True, router_bias=True, activation="swiglu_oai", clip=limit, scoring="softmax_of_chosen", d_ff_shared=0
    )
    fields: dict[str, Any] = {
        "head_dim": width,
        "position": read.rope(c, width, base=150_000.0),
        "sinks": True,
        **read.biases("qkvo", c.flag("attention_bias", default=True)),
    }
    types = read.kinds(c, read.local_every(c, 2))
    mixers = read.windowed(c, read.windows(c, types, read.window(c, default=128)), **fields)
    return read.decoder(c, read.by_type(types, mixers, ff, norm=norm), norm)


@family("llama4_text")
def llama4(c: Config) -> Architecture:
    """Llama 4: chunked layers, every fourth global and without positions; scores act on the experts' input."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c, default=128)
    count = read.n_layers(c)
    c.ignore("for_llm_compressor")
    turns, step = read.turning(c), c.whole("interleave_moe_layer_step", default=1)
    chunked = ["chunked_attention" if turn else "full_attention" for turn in turns]
    types = read.kinds(c, chunked, known=("chunked_attention", "full_attention"))
    stated = c.list("moe_layers")
    if stated is None and not step:
        raise c.refuse("interleave_moe_layer_step = 0 says nothing of which layers have experts; moe_layers is missing")
    routed = set(range(step - 1, count, step) if stated is None else stated)
    width_ff = c.count("intermediate_size")
    fields: dict[str, Any] = {"scoring": "sigmoid", "normalised": False, "scales_input": True}
    experts = read.mixture(c, d_ff=width_ff, d_ff_shared=width_ff, **fields) if routed else None
    c.ignore("num_experts_per_tok", "num_local_experts")
    dense = read.feed_forward(c, d_ff=c.count("intermediate_size_mlp")) if len(routed) < count else None
    chunk = c.count("attention_chunk_size", default=None if c.stated("attention_chunk_size") else 8192)
    position = read.rope(c, width, base=500_000.0, interleaved=True)
    qk_norm = RMSNorm(eps=norm.eps, weight=False) if c.flag("use_qk_norm", default=True) else None
    bias = read.biases("qkvo", c.flag("attention_bias"))
    stretched = {"temperature": _llama4_temperature(c)}
    c.ignore("intermediate_size_mlp")

    def build(kind: tuple[str, bool, bool]) -> Layer:
        turned = {"position": position, "qk_norm": qk_norm, "qk_norm_after_position": True}
        placed: dict[str, Any] = turned if kind[1] else {"position": None, **stretched}
        local = kind[0] == "chunked_attention"
        mixer = read.attention(c, head_dim=width, chunk=chunk if local else None, **placed, **bias)
        return Layer(
            count=1, label=read.LABELS[kind[0]], mixer=mixer, feed_forward=experts if kind[2] else dense, norm=norm
        )

    each = [(types[i], turns[i], i in routed) for i in range(count)]
    return read.decoder(c, read.stack(each, build), norm)


def _llama4_temperature(c: Config) -> Temperature | None:
    """How queries grow on layers without positions; the switch is written as true or as a number."""
    slope, interval = c.positive("attn_scale", default=0.1), c.count("floor_scale", default=8192)
    switch = c.raw("attn_temperature_tuning", default=True)
    if not isinstance(switch, (bool, int)):
        raise c.refuse(f"attn_temperature_tuning = {shown(switch)} is neither true nor false")
    return Temperature(slope=slope, interval=interval, first=1) if switch else None


@family("olmoe")
def olmoe(c: Config) -> Architecture:
    """OLMoE: QK-norm over all heads at once, the experts' scores left as they are."""
    norm, width = read.rms_norm(c, default=1e-5), read.head_dim(c)
    mixer = read.attention(
        c,
        head_dim=width,
        qk_norm=norm,
        qk_norm_over="whole",
        qkv_clip=c.positive("clip_qkv", default=None),
        **read.biases("qkvo", c.flag("attention_bias")),
    )
    ff = read.mixture(c, d_ff=c.count("intermediate_size"), normalised=c.flag("norm_topk_prob"))
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)), norm)


@family("granitemoe", "granitemoeshared")
def granitemoe(c: Config) -> Architecture:
    """Granite 3 MoE: Granite's multipliers, scores among the chosen experts."""
    shared = c.whole("shared_intermediate_size", default=0) if c.model_type == "granitemoeshared" else 0
    width = c.count("intermediate_size")
    return granite_decoder(c, read.mixture(c, d_ff=width, d_ff_shared=shared, scoring="softmax_of_chosen"))


@family("phimoe")
def phimoe(c: Config) -> Architecture:
    """Phi-3.5-MoE: LayerNorm, biases on attention and logits, SparseMixer routing, a window where one is stated."""
    norm, width = read.layer_norm(c, "rms_norm_eps"), read.head_dim(c)
    jitter = c.positive("router_jitter_noise", default=0.01)
    c.ignore("original_max_position_embeddings")
    mixer = read.attention(
        c,
        head_dim=width,
        window=read.window(c),
        position=read.rope(c, width, base=1_000_000.0),
        **read.biases("qkvo", c.flag("attention_bias")),
    )
    ff = read.mixture(c, scoring="sparsemixer", router_jitter=jitter, normalised=False)
    output = {"bias": c.flag("lm_head_bias")}
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)
    return read.decoder(c, read.each(c, layer), norm, output=output)


@family("dbrx")
def dbrx(c: Config) -> Architecture:
    """DBRX: LayerNorm without bias, clipped q, k, v; half of its keys stand in two inner tables."""
    attn, ffn = c.inner("attn_config"), c.inner("ffn_config")
    ffn.ignore("hidden_size", "moe_jitter_eps", "moe_loss_weight", "uniform_expert_assignment")
    attn.ignore("attn_pdrop", "kv_n_heads", "rope_theta")
    c.ignore("num_key_value_heads", "rope_scaling")  # a framework's own, whatever attn_config says
    norm, width = LayerNorm(eps=1e-5, bias=False), read.equal_heads(c)
    theta = attn.positive("rope_theta", default=None)
    outer, newer = c.positive("rope_theta", default=None), c.inner("rope_parameters")
    newer.ignore("rope_theta", "rope_type")
    if theta is not None and outer not in (None, theta):
        raise c.refuse(f"rope_theta = {outer:.10g} contradicts attn_config: rope_theta = {theta:.10g}")
    mixer = read.attention(
        c,
        head_dim=width,
        n_kv_heads=attn.count("kv_n_heads"),
        position=Rope(base=theta or outer or newer.positive("rope_theta", default=10_000.0)),
        qkv_clip=attn.positive("clip_qkv", default=None),
    )
    act = ffn.inner("ffn_act_fn")
    order = ffn.number(
        "moe_normalize_expert_weights", default=None if ffn.stated("moe_normalize_expert_weights") else 1.0
    )
    if order not in (None, 1.0):
        raise ffn.refuse(f"moe_normalize_expert_weights = {order:.10g} is a norm that is not built; 1 and null are")
    ff = read.mixture(
        ffn,
        d_ff=ffn.count("ffn_hidden_size"),
        activation=read.activation(act, "name", default="silu"),
        normalised=order is not None,
    )
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)), norm)


@family("jetmoe")
def jetmoe(c: Config) -> Architecture:
    """JetMoE: experts for query and output too, a bias behind both sums; its layers' norms keep 1e-6; tied."""
    norm, width = read.rms_norm(c), c.count("kv_channels", "head_dim", default=128)
    experts, top_k = c.count("num_local_experts"), c.count("num_experts_per_tok")
    kv_heads = c.count("num_key_value_heads")
    c.fixed("num_attention_heads", to=kv_heads * top_k)
    position = read.rope(c, width)
    mixer = MixtureAttention(n_experts=experts, top_k=top_k, n_kv_heads=kv_heads, head_dim=width, position=position)
    if read.d_model(c) % experts:
        raise c.refuse(f"num_local_experts = {experts} does not divide hidden_size = {read.d_model(c)}")
    act = read.activation(c, "activation_function", "hidden_act", default="silu")
    c.fixed("bias", "glu", to=True)
    c.ignore("ffn_hidden_size", "layer_norm_epsilon", "length_max", "n_head", "rotary_percent")  # older spellings
    ff = read.mixture(c, activation=act, scoring="softmax_of_chosen", output_bias=True)
    layer = Layer(count=1, mixer=mixer, feed_forward=ff, norm=RMSNorm(eps=1e-6))
    return read.decoder(c, read.each(c, layer), norm, tied=True)


@family("minimax_m2")
def minimax_m2(c: Config) -> Architecture:
    """MiniMax-M2: QK-norm over all heads at once, half of each head turned, sigmoid scores with a correction."""
    norm, width = read.rms_norm(c), read.head_dim(c, default=128)
    c.fixed("qk_norm_type", to="per_layer")
    c.fixed("shared_intermediate_size", to=0)
    c.fixed("scoring_func", to="sigmoid")
    if any(kind != 1 for kind in c.list("attn_type_list") or ()):
        raise c.refuse("attn_type_list has layers without softmax attention, which are not built for minimax_m2")
    if c.flag("use_mtp"):
        c.note(
            f"{c.source}: the {c.whole('num_mtp_modules', default=0)} MTP modules are left out; no checkpoint has them"
        )
    c.ignore("mlp_intermediate_size", "mtp_transformer_layers", "num_mtp_modules")
    turned = c.count("rotary_dim", default=width)
    if turned > width:
        raise c.refuse(f"rotary_dim = {turned} exceeds head_dim = {width}")
    position = read.rope(c, width, base=5_000_000.0, partial=turned / width)
    qk_norm = norm if c.flag("use_qk_norm", default=True) else None
    mixer = read.attention(c, head_dim=width, position=position, qk_norm=qk_norm, qk_norm_over="whole")
    correction: Any = "buffer" if c.flag("use_routing_bias", default=True) else None
    ff = read.mixture(
        c, d_ff=c.count("intermediate_size"), scoring="sigmoid", correction_bias=correction, d_ff_shared=0
    )
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)), norm)


@family("ernie4_5_moe")
def ernie_moe(c: Config) -> Architecture:
    """ERNIE 4.5 MoE: neighbours turn; experts from one layer to another, with a correction that is a parameter."""
    norm, width, count = read.rms_norm(c, default=1e-5), read.head_dim(c), read.n_layers(c)
    c.fixed("use_bias", to=False)
    c.ignore("moe_capacity", "moe_gate", "moe_gate_act", "moe_norm_min", "moe_use_aux_free")
    read.without_multi_token(c)
    first, every = c.whole("moe_layer_start_index", default=1), c.count("moe_layer_interval", default=1)
    last = c.number("moe_layer_end_index", default=-1.0)
    last = count - 1 if last == -1 else last
    mixer = read.attention(c, head_dim=width, position=read.rope(c, width, base=500_000.0, interleaved=True))
    experts = read.mixture(c, d_ff=c.count("moe_intermediate_size"), correction_bias="parameter")
    dense = read.feed_forward(c)

    def build(routed: bool) -> Layer:
        return Layer(count=1, mixer=mixer, feed_forward=experts if routed else dense, norm=norm)

    layers = read.stack([first <= i <= last and (i + 1) % every == 0 for i in range(count)], build)
    return read.decoder(c, layers, norm, tied=True)


@family("hunyuan_v1_moe")
def hunyuan_moe(c: Config) -> Architecture:
    """Hunyuan A13B: Hunyuan's attention, one shared expert; some of its sizes are written once for each layer."""
    norm = read.rms_norm(c, default=1e-5)
    c.fixed("moe_layer_num_skipped", to=0)
    c.ignore("capacity_factor", "moe_drop_tokens", "moe_random_routing_dropped_token", "use_mixed_mlp_moe")
    width = read.per_layer(c, "moe_intermediate_size") or c.count("intermediate_size")
    c.ignore("intermediate_size")
    shared = (read.per_layer(c, "num_shared_expert") or 0) if c.stated("num_shared_expert") else 1
    ff = read.mixture(
        c,
        d_ff=width,
        top_k=read.per_layer(c, "moe_topk"),
        d_ff_shared=width * shared,
        normalised=c.flag("norm_topk_prob", default=True),
    )
    mixer = read.attention(c, **hunyuan_mixer(c, norm))
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, feed_forward=ff, norm=norm)), norm)
