"""A config's `quantization_config` -> the storage scheme of its weights; an unknown method is refused by name.

Each method has words of its own for the same three facts: which format, which modules have it, which were left as they
were. Modules are names of the checkpoint, a scheme knows roles: where a list of modules is no list of whole roles, the
scheme's `notes` say what was counted how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.errors import InputError, UnknownName, suggest
from planner.sources.modules import left_out, role_of
from planner.spec import shown
from planner.storage import Scheme, StorageFormat, find, roles_of

Table = Mapping[str, Any]

_LEFT_OUT = ("modules_to_not_convert", "ignored_layers", "llm_int8_skip_modules", "ignore", "exclude_modules")


def read_quantization(
    config: Any, layers: Mapping[str, int], rest: str = "bf16", place: str = "quantization_config"
) -> Scheme:
    """The scheme that a `quantization_config` describes.

    `layers` says for each role how many layers have it, so that a list that names them one by one can be told from a
    part of them; `rest` is the format of what is not quantised. The table of an `hf_quant_config.json` is read too.

    Raises `InputError` for a method, a width or a grouping that is not known, naming it.

    >>> read_quantization({"quant_method": "fp8", "weight_block_size": [128, 128]}, {"attention": 61}).name
    'fp8-block128'
    """
    if not isinstance(config, dict):
        raise InputError(f"{place} = {shown(config)} is not a table")
    if isinstance(config.get("quantization"), dict):
        config = {"quant_method": "modelopt", **config["quantization"]}
    method = config.get("quant_method")
    if method is None and "config_groups" in config:
        method = "compressed-tensors"
    if not isinstance(method, str) or method not in METHODS:
        near = suggest(method, METHODS) if isinstance(method, str) else ""
        known = ", ".join(METHODS)
        raise InputError(
            f"{place}: quant_method = {shown(method)} is none of {known}{near}; state a weight format instead"
        )
    by_role = METHODS[method](_Settings(config, place))
    skipped = [name for key in _LEFT_OUT for name in _names(config, key, place)]
    whole, notes = left_out(skipped, {role: layers.get(role, 1) for role in by_role})
    by_role = {role: fmt for role, fmt in by_role.items() if role not in whole}
    name = "+".join(sorted({fmt.name for fmt in by_role.values()})) or rest
    return Scheme(name=name, rest=find(rest), by_role=by_role, notes=tuple(f"{place}: {note}" for note in notes))


class _Settings:
    """The keys of one method, each read as what it must be."""

    def __init__(self, table: Table, place: str) -> None:
        self.table = table
        self.place = place

    def get(self, *names: str, kind: type, default: Any = None) -> Any:
        name, value = next(((n, self.table[n]) for n in names if self.table.get(n) is not None), (names[0], default))
        if value is not None and type(value) is not kind:
            raise self.refuse(f"{name} = {shown(value)} is not {_KINDS[kind]}")
        return value

    def refuse(self, rule: str) -> InputError:
        return InputError(f"{self.place}: {rule}; state a weight format instead")

    def format(self, name: str, words: str) -> StorageFormat:
        try:
            return find(name)
        except UnknownName:
            raise self.refuse(f"{words} is no storage format that we know") from None


_KINDS: dict[type, str] = {int: "a whole number", bool: "true or false", str: "a text", list: "a list", dict: "a table"}


def _linear(fmt: StorageFormat) -> dict[str, StorageFormat]:
    return dict.fromkeys(roles_of("linear"), fmt)


def _grouped(settings: _Settings, method: str) -> StorageFormat:
    bits = settings.get("bits", "w_bit", kind=int, default=4)
    size = settings.get("group_size", "q_group_size", kind=int, default=-1)
    family = method if bits == 4 else f"{method}-int{bits}"
    name = f"{family}-channel" if size == -1 else f"{family}-g{size}"
    return settings.format(name, f"{method} with bits = {shown(bits)} and group_size = {shown(size)}")


def _awq(settings: _Settings) -> dict[str, StorageFormat]:
    return _linear(_grouped(settings, "awq"))


def _gptq(settings: _Settings) -> dict[str, StorageFormat]:
    if settings.get("dynamic", kind=dict):
        raise settings.refuse("dynamic, other settings for single modules, is not read")
    by_role = _linear(fmt := _grouped(settings, "gptq"))
    if modules := settings.get("modules_in_block_to_quantize", kind=list):
        named = {role_of(name) for inner in modules for name in (inner if isinstance(inner, list) else [inner])}
        by_role = {role: fmt for role in by_role if role in named}
    return by_role | ({"lm_head": fmt} if settings.get("lm_head", kind=bool) else {})


def _fp8(settings: _Settings) -> dict[str, StorageFormat]:
    block = settings.get("weight_block_size", kind=list)
    if block is not None:
        return _linear(
            settings.format("fp8-block128" if block == [128, 128] else "", f"weight_block_size = {shown(block)}")
        )
    static = settings.get("activation_scheme", kind=str) == "static"
    return _linear(find("fp8-tensor-static" if static else "fp8-tensor"))


def _fbgemm(_: _Settings) -> dict[str, StorageFormat]:
    return _linear(find("fp8-channel"))


def _bitsandbytes(settings: _Settings) -> dict[str, StorageFormat]:
    if settings.get("load_in_8bit", "_load_in_8bit", kind=bool):
        return _linear(find("int8-channel"))
    if not settings.get("load_in_4bit", "_load_in_4bit", kind=bool):
        raise settings.refuse("bitsandbytes with neither load_in_4bit nor load_in_8bit")
    codes = settings.get("bnb_4bit_quant_type", kind=str, default="fp4")
    if codes not in ("nf4", "fp4"):
        raise settings.refuse(f"bnb_4bit_quant_type = {shown(codes)} is neither nf4 nor fp4")
    return _linear(find("nf4-dq" if settings.get("bnb_4bit_use_double_quant", kind=bool) else "nf4"))


def _mxfp4(_: _Settings) -> dict[str, StorageFormat]:
    return dict.fromkeys(roles_of("experts"), find("mxfp4"))


def _modelopt(settings: _Settings) -> dict[str, StorageFormat]:
    algorithm = settings.get("quant_algo", kind=str)
    formats = {"FP8": "fp8-tensor-static", "NVFP4": "nvfp4", "FP8_PB_WO": "fp8-block128"}
    return _linear(settings.format(formats.get(algorithm, ""), f"quant_algo = {shown(algorithm)}"))


def _compressed_tensors(settings: _Settings) -> dict[str, StorageFormat]:
    """Each group names its targets: modules, or the class Linear, which a router and the output matrix are too."""
    by_class: dict[str, StorageFormat] = {}
    by_name: dict[str, StorageFormat] = {}
    for group in settings.get("config_groups", kind=dict, default={}).values():
        if not isinstance(group, dict):
            raise settings.refuse(f"config_groups: {shown(group)} is not a table")
        inner = _Settings(group, settings.place)
        if (weights := inner.get("weights", kind=dict)) is None:
            continue  # activations or a cache alone
        static = (inner.get("input_activations", kind=dict) or {}).get("dynamic") is False
        fmt = _compressed_format(_Settings(weights, settings.place), static)
        for target in inner.get("targets", kind=list, default=["Linear"]):
            if target == "Linear":
                by_class = dict.fromkeys((*roles_of("linear"), "lm_head", "router"), fmt)
            elif (role := role_of(target)) is None:
                raise settings.refuse(f"target {shown(target)} is no module that we know")
            else:
                by_name[role] = fmt
    if not by_class and not by_name:
        raise settings.refuse("config_groups names no weights")
    return by_class | by_name


def _compressed_format(weights: _Settings, static: bool) -> StorageFormat:
    bits, kind = weights.get("num_bits", kind=int, default=8), weights.get("type", kind=str, default="int")
    size, strategy = weights.get("group_size", kind=int, default=-1), weights.get("strategy", kind=str, default="")
    symmetry = "sym" if weights.get("symmetric", kind=bool, default=True) else "asym"
    if strategy in ("", "group", "tensor_group") and size > 0:
        strategy = f"group of {size}"
    if strategy == "block":
        strategy = f"block of {shown(weights.get('block_structure', kind=list))}"
    name = {
        ("float", 8, "tensor"): "fp8-tensor-static" if static else "fp8-tensor",
        ("float", 8, "channel"): "fp8-channel",
        ("float", 8, "block of [128, 128]"): "fp8-block128",
        ("float", 8, "group of 32"): "mxfp8",
        ("float", 4, "group of 32"): "mxfp4",
        ("float", 4, "group of 16"): "nvfp4",
        ("int", bits, f"group of {size}"): f"int{bits}-{symmetry}-g{size}",
        ("int", bits, "channel"): f"int{bits}-channel",
    }.get((kind, bits, strategy), "")
    return weights.format(
        name, f"num_bits = {shown(bits)}, type = {shown(kind)}, strategy = {shown(strategy)}, {symmetry}metric"
    )


METHODS: dict[str, Callable[[_Settings], dict[str, StorageFormat]]] = {
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm_fp8": _fbgemm,
    "fp8": _fp8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "mxfp4": _mxfp4,
}
"""quant_method -> the function that reads its settings into a format for each quantised role."""


def _names(config: Table, key: str, place: str) -> list[str]:
    names = config.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{place}: {key} = {shown(names)} is not a list of module names")
    return names
