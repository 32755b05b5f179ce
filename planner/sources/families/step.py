"""Step-3.5-Flash and the text part of Step-3.7-Flash: gated heads, windows, experts; lists with an entry a layer."""

from __future__ import annotations

from typing import Any

from planner.components.base import PositionWise
from planner.components.dense_attention import DenseAttention
from planner.contract import Architecture, Layer, MultiToken
from planner.sources.config_json import Config, family
from planner.sources.families import common as read
from planner.spec import shown

GLOBAL, LOCAL = "full_attention", "sliding_attention"


@family("step3p5")
def step3p5(c: Config) -> Architecture:
    """Step-3.5: each head has a sigmoid gate; local layers have more heads; norms are stored as γ - 1.

    The last layers bound what leaves their activations. Prediction modules stand at the end of the layers' lists.
    """
    c.fixed("use_head_wise_attn_gate", "use_qk_norm", "zero_centered", "norm_expert_weight", to=True)
    c.fixed("use_moe", "use_moe_router_bias", to=True)
    c.fixed("sink", "mlp_bias", "use_bidirectional_attention", to=False)
    c.fixed("moe_router_activation", to="sigmoid")
    c.fixed("att_impl_type", to="GQA")
    c.fixed("moe_every_n_layer", to=1)
    c.ignore("need_fp32_gate", "moe_layer_offset", "use_rope_layers", "per_layer_config", "mtp_mlp_layer_types")
    norm, types = read.rms_norm(c, default=1e-5, unit_offset=True), _types(c)
    count = read.n_layers(c)
    _tables_by_type(c, types)
    mixers = {kind: _mixer(c, kind, norm) for kind in dict.fromkeys(types)}
    routed = _routed(c)
    bounds = _per_layer(c, "swiglu_limits", float) or [0.0] * count
    shared = _per_layer(c, "swiglu_limits_shared", float) or [0.0] * count

    def build(key: tuple[str, bool, float, float]) -> Layer:
        kind, on, bound, bound_shared = key
        ff = _experts(c, bound, bound_shared) if on else _dense(c, bound_shared)
        return Layer(count=1, label=read.LABELS[kind], mixer=mixers[kind], feed_forward=ff, norm=norm)

    body = list(zip(types[:count], routed, bounds[:count], shared[:count], strict=True))
    mtp = None
    if types[count:]:
        layer = Layer(count=1, mixer=mixers[types[count]], feed_forward=_dense(c, 0.0), norm=norm)
        mtp = MultiToken(count=len(types) - count, layer=layer, own_head=True)
    else:
        read.without_multi_token(c)
    return read.decoder(c, read.stack(body, build), norm, mtp=mtp)


def _per_layer(c: Config, name: str, of: type) -> list[Any] | None:
    """A list with an entry for each layer, and maybe one for each module of multi-token prediction."""
    values, count = c.list(name, of=of), read.n_layers(c)
    modules = c.whole("num_nextn_predict_layers", default=0)
    if values is not None and len(values) not in (count, count + modules):
        raise c.refuse(f"{name} has {len(values)} entries for {count} layers and {modules} modules behind them")
    return values


def _types(c: Config) -> list[str]:
    """The kinds of all layers, and of the modules behind them where the file names those: equal for all modules."""
    body = _per_layer(c, "layer_types", str) or [GLOBAL] * read.n_layers(c)
    types = [*body, *(c.list("mtp_layer_types", of=str) or ())]
    for kind in dict.fromkeys(types):
        if kind not in (GLOBAL, LOCAL):
            raise c.refuse(f"layer_types: {shown(kind)} is not built for {c.model_type}")
    if len(set(types[read.n_layers(c) :])) > 1:
        raise c.refuse("layer_types names two kinds of modules for multi-token prediction, which is not built")
    return types


def _tables_by_type(c: Config, types: list[str]) -> None:
    """Bases and shares that a file lists layer by layer, as `rope_parameters` by layer type."""
    old = ("rope_theta", "partial_rotary_factors", "rope_scaling", "yarn_only_types")
    c.ignore("yarn_only_types")
    bases = _per_layer(c, "rope_theta", float) if isinstance(c.raw("rope_theta"), list) else None
    if bases is None:
        return
    shares = _per_layer(c, "partial_rotary_factors", float) or [1.0] * len(types)
    scaling = c.table_of("rope_scaling") or c.table_of("rope_parameters") or {}
    stretched = c.list("yarn_only_types", of=str) or [GLOBAL]
    tables: dict[str, dict[str, Any]] = {}
    for kind, base, share in zip(types, bases, shares, strict=False):
        table = {**(scaling if kind in stretched else {}), "rope_theta": base, "partial_rotary_factor": share}
        if tables.setdefault(kind, table) != table:
            raise c.refuse(f"rope_theta and partial_rotary_factors are not the same for all layers of {kind}")
    c.table = {**{key: value for key, value in c.table.items() if key not in old}, "rope_parameters": tables}


def _mixer(c: Config, kind: str, norm: Any) -> DenseAttention:
    """The attention of one kind; what local layers have else stands in a table of its own."""
    width, kv_heads = read.head_dim(c, default=128), c.count("num_key_value_heads", "num_attention_groups")
    other = c.inner("attention_other_setting")
    other.fixed("attention_type", to=LOCAL)
    other.fixed("num_attention_groups", to=kv_heads)
    other.fixed("head_dim", to=width)
    heads = other.count("num_attention_heads", default=c.count("num_sliding_attention_heads", default=read.n_heads(c)))
    scalar = c.positive("query_pre_attn_scalar", default=float(width))
    window = read.windows(c, [kind], read.window(c))[kind]
    return read.attention(
        c,
        n_heads=heads if kind == LOCAL else read.n_heads(c),
        n_kv_heads=kv_heads,
        head_dim=width,
        window=window,
        position=read.rope(c, width, layer_type=kind),
        qk_norm=norm,
        scale=None if scalar == width else scalar**-0.5,
        head_gate="sigmoid",
        **read.biases("qkvo", c.flag("attention_bias")),
    )


def _routed(c: Config) -> list[bool]:
    """Which layers have experts: by mlp_layer_types, by number in moe_layers_enum, or all from the fourth on."""
    count, named = read.n_layers(c), _per_layer(c, "mlp_layer_types", str)
    numbers = c.raw("moe_layers_enum")
    if named is not None:
        c.ignore("moe_layers_enum")
        return [kind != "dense" for kind in named[:count]]
    if numbers is None:
        return [i >= 3 for i in range(count)]
    entries = numbers.split(",") if isinstance(numbers, str) else numbers
    if not isinstance(entries, list) or not all(str(entry).strip().isdecimal() for entry in entries):
        raise c.refuse(f"moe_layers_enum = {shown(numbers)} does not name layers by their numbers")
    return [i in {int(entry) for entry in entries} for i in range(count)]


def _dense(c: Config, bound: float) -> PositionWise:
    return read.feed_forward(c, clip_activated=float(bound) or None)


def _experts(c: Config, bound: float, bound_shared: float) -> PositionWise:
    return read.mixture(
        c,
        d_ff=c.count("moe_intermediate_size"),
        d_ff_shared=c.count("share_expert_dim", "share_expert_dims"),
        scoring="sigmoid",
        correction_bias="buffer",
        routed_scale=c.positive("moe_router_scaling_factor", default=1.0),
        clip_activated=float(bound) or None,
        clip_activated_shared=float(bound_shared) or None,
    )
