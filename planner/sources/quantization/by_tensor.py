"""Methods that describe tensors, or name one of a few formats: fp8, compressed-tensors, ModelOpt, Quark, torchao.

Keys and defaults are those of transformers (src/transformers/utils/quantization_config.py) and of the tools that write
the configs.
"""

from __future__ import annotations

from typing import Any

from planner.sources.modules import role_of
from planner.sources.quantization.settings import Modules, Quantised, Settings, Table, linear
from planner.spec import shown
from planner.storage import StorageFormat, find, roles_of


def fp8(settings: Settings) -> Quantised:
    block = settings.get("weight_block_size", kind=list)
    if block is not None:
        name = "fp8-block128" if block == [128, 128] else ""
        if block == [32, 32] and settings.get("scale_fmt", kind=str) == "ue8m0":
            name = "fp8-block32-ue8m0"
        by_role = linear(settings.format(name, f"weight_block_size = {shown(block)}")).by_role
    else:
        static = settings.get("activation_scheme", kind=str) == "static"
        by_role = linear(find("fp8-tensor-static" if static else "fp8-tensor")).by_role
    if settings.get("expert_dtype", kind=str) == "fp4":  # DeepSeek-V4
        by_role["experts_routed"] = find("mxfp4")
    return Quantised(by_role)


def mxfp4(_: Settings) -> Quantised:
    return Quantised(dict.fromkeys(roles_of("experts"), find("mxfp4")))


def modelopt(settings: Settings) -> Quantised:
    algorithm = settings.get("quant_algo", kind=str)
    if algorithm != "MIXED_PRECISION":
        return linear(_modelopt_format(settings))
    named = settings.get("quantized_layers", kind=dict, default={})
    return Quantised(
        {},
        {
            name: _modelopt_format(settings.inner(said, f"quantized_layers: {shown(name)}"))
            for name, said in named.items()
        },
    )


def _modelopt_format(settings: Settings) -> StorageFormat:
    algorithm = settings.get("quant_algo", kind=str)
    formats = {
        "FP8": "fp8-tensor-static",
        "FP8_PER_CHANNEL_PER_TOKEN": "fp8-channel",
        "FP8_PB_WO": "fp8-block128",
        "MXFP8": "mxfp8",
        "NVFP4": "nvfp4",
        "W4A16_NVFP4": "nvfp4a16",
    }
    return settings.format(formats.get(algorithm, ""), f"quant_algo = {shown(algorithm)}")


def compressed_tensors(settings: Settings) -> Quantised:
    """Each group names its targets: modules, or the class Linear, which a router and the output matrix are too."""
    by_class: dict[str, StorageFormat] = {}
    modules: Modules = {}
    for group in settings.get("config_groups", kind=dict, default={}).values():
        inner = settings.inner(group, "config_groups")
        if (weights := inner.get("weights", kind=dict)) is None:
            continue  # activations or a cache alone
        fmt = _compressed_format(settings.inner(weights, "weights"), inner.get("input_activations", kind=dict))
        for target in inner.get("targets", kind=list, default=["Linear"]):
            if target == "Linear":
                by_class = linear(fmt, "lm_head", "router").by_role
            elif role_of(target) is None:
                raise settings.refuse(f"target {shown(target)} is no module that we know")
            else:
                modules[target] = fmt
    if not by_class and not modules:
        raise settings.refuse("config_groups names no weights")
    return Quantised(by_class, modules)


def _compressed_format(weights: Settings, activations: Table | None) -> StorageFormat:
    bits, kind = weights.get("num_bits", kind=int, default=8), weights.get("type", kind=str, default="int")
    size, strategy = weights.get("group_size", kind=int, default=-1), weights.get("strategy", kind=str, default="")
    symmetry = "sym" if weights.get("symmetric", kind=bool, default=True) else "asym"
    if strategy in ("", "group", "tensor_group") and size > 0:
        strategy = f"group of {size}"
    if strategy == "block":
        strategy = f"block of {shown(weights.get('block_structure', kind=list))}"
    static = (activations or {}).get("dynamic") is False
    name = {
        ("float", 8, "tensor"): "fp8-tensor-static" if static else "fp8-tensor",
        ("float", 8, "channel"): "fp8-channel",
        ("float", 8, "block of [128, 128]"): "fp8-block128",
        ("float", 8, "group of 32"): "mxfp8",
        ("float", 4, "group of 32"): "mxfp4",
        ("float", 4, "group of 16"): "nvfp4" if activations else "nvfp4a16",
        ("int", bits, f"group of {size}"): f"int{bits}-{symmetry}-g{size}",
        ("int", bits, "channel"): f"int{bits}-channel",
    }.get((kind, bits, strategy), "")
    return weights.format(
        name, f"num_bits = {shown(bits)}, type = {shown(kind)}, strategy = {shown(strategy)}, {symmetry}metric"
    )


def fp_quant(settings: Settings) -> Quantised:
    kind = settings.get("forward_dtype", kind=str, default="nvfp4")
    usual = {"nvfp4": 16, "mxfp4": 32}.get(kind)
    size = settings.get("hadamard_group_size", kind=int, default=usual)
    for key in ("pseudoquantization", "store_master_weights"):
        if settings.get(key, kind=bool):
            raise settings.refuse(f"{key} = true stores weights that are not packed")
    name = f"fp-quant-{kind}" if size == usual else ""
    return linear(settings.format(name, f"forward_dtype = {shown(kind)} with hadamard_group_size = {shown(size)}"))


def torchao(settings: Settings) -> Quantised:
    """`quant_type` is a config of torchao as JSON, or one for each module by its name."""
    said = settings.get("quant_type", kind=dict)
    if said is None:
        raise settings.refuse("quant_type is missing")
    chosen = settings.inner(said.get("default"), "quant_type: default")
    names = chosen.nested("_data").get("fqn_to_config", "module_fqn_to_config", kind=dict)
    fmt: StorageFormat | None
    others: Modules = {}
    if names is None:
        fmt = _torchao_format(chosen)
    else:
        others = {
            name: None if each is None else _torchao_format(settings.inner(each, shown(name)))
            for name, each in names.items()
        }
        fmt = others.pop("_default", None)
    by_role = linear(fmt).by_role if fmt else {}
    if fmt and settings.get("include_input_output_embeddings", kind=bool):
        by_role |= {"embedding": fmt, "lm_head": fmt}
    return Quantised(by_role, others)


def _torchao_format(settings: Settings) -> StorageFormat:
    kind, data = settings.get("_type", kind=str, default=""), settings.nested("_data")
    size = data.get("group_size", kind=int)
    granularity = data.table.get("granularity", data.table.get("weight_granularity"))
    if isinstance(granularity, list):  # of activations and of weights
        granularity = granularity[-1] if granularity else None
    per, inner = "", data
    if granularity is not None:
        said = settings.inner(granularity, "granularity")
        per, inner = said.get("_type", kind=str, default=""), said.nested("_data")
    width = data.table.get("weight_dtype")
    words = str(width.get("_data")) if isinstance(width, dict) else ""
    name = {
        "Int4WeightOnlyConfig": f"{_torchao_int4(data, settings.table.get('_version'))}-g{size or 128}",
        "Int8WeightOnlyConfig": "torchao-int8" if per in ("", "PerRow") and size is None else "",
        "Int8DynamicActivationInt8WeightConfig": "torchao-int8" if per in ("", "PerRow") else "",
        "Float8WeightOnlyConfig": "fp8-channel" if per in ("", "PerRow") else "",
        "Float8DynamicActivationFloat8WeightConfig": "fp8-channel" if per == "PerRow" else "fp8-tensor",
        "IntxWeightOnlyConfig": _torchao_intx(per, inner),
        "Int8DynamicActivationIntxWeightConfig": _torchao_intx(per, inner),
        "NVFP4WeightOnlyConfig": "nvfp4a16",
        "NVFP4DynamicActivationNVFP4WeightConfig": "nvfp4a16",
        "MXDynamicActivationMXWeightConfig": {"float8_e4m3fn": "mxfp8", "float4_e2m1fn_x2": "mxfp4"}.get(words, ""),
    }.get(kind, "")
    return settings.format(name, f"torchao's {shown(kind)}{f' of {shown(per)}' if per else ''}")


def _torchao_int4(data: Settings, version: Any) -> str:
    """The first version packs in tiles unless it says otherwise, the second in rows."""
    packing = data.table.get("int4_packing_format", "tile_packed_to_4d" if version == 1 else "plain")
    word = packing.get("_data") if isinstance(packing, dict) else packing
    packed = {"plain": "torchao-int4", "plain_int32": "torchao-int4", "tile_packed_to_4d": "torchao-int4-tiled"}
    return packed.get(str(word).lower(), "")


def _torchao_intx(per: str, data: Settings) -> str:
    """Of any width below eight bits, each element is kept in a byte."""
    if per == "PerAxis":
        return "torchao-intx-channel"
    return f"torchao-intx-g{data.get('group_size', kind=int, default=32)}" if per in ("", "PerGroup") else ""


def quark(settings: Settings) -> Quantised:
    """`global_quant_config` holds for every linear layer, `layer_quant_config` for those that its patterns name."""
    fmt = _quark_format(settings.nested("global_quant_config"))
    others = {
        name: _quark_format(settings.inner(said, f"layer_quant_config: {shown(name)}"))
        for name, said in settings.get("layer_quant_config", kind=dict, default={}).items()
    }
    if settings.get("layer_type_quant_config", kind=dict):
        raise settings.refuse("layer_type_quant_config, settings for classes of layers, is not read")
    by_role = linear(fmt, "router", "lm_head").by_role if fmt else {}
    if not by_role and not others:
        raise settings.refuse("global_quant_config says nothing of weights")
    return Quantised(by_role, others)


def _quark_format(settings: Settings) -> StorageFormat | None:
    weight = settings.table.get("weight")
    if isinstance(weight, list) and weight:  # steps of one quantisation; the last is what is stored
        weight = weight[-1]
    if weight is None:
        return None
    said = settings.inner(weight, "weight")
    kind, scheme = said.get("dtype", kind=str, default=""), said.get("qscheme", kind=str, default="")
    size = said.get("group_size", kind=int)
    inputs = settings.table.get("input_tensors")
    static = isinstance(inputs, dict) and inputs.get("is_dynamic") is False
    name = {
        ("fp8_e4m3", "per_tensor"): "fp8-tensor-static" if static else "fp8-tensor",
        ("fp8_e4m3", "per_channel"): "fp8-channel",
        ("fp4", "per_group"): "mxfp4" if size in (None, 32) else "",
        ("fp6_e3m2", "per_group"): "mxfp6" if size in (None, 32) else "",
        ("fp6_e2m3", "per_group"): "mxfp6" if size in (None, 32) else "",
        ("uint4", "per_group"): f"awq-g{size}",
        ("int4", "per_group"): f"awq-g{size}",
    }.get((kind, scheme), "")
    words = f"dtype = {shown(kind)}, qscheme = {shown(scheme)}, group_size = {shown(size)}"
    return settings.format(name, words)
