"""A config's `quantization_config` -> the storage scheme of its weights; an unknown method is refused by name.

A method's own words are read by `by_bits` and `by_tensor`. Modules are names of the checkpoint, a scheme knows roles:
where a list of modules is no list of whole roles, the scheme's `notes` say what was counted how.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.errors import InputError, suggest
from planner.sources.modules import Covered, covered
from planner.sources.quantization import by_bits, by_tensor
from planner.sources.quantization.settings import Quantised, Settings, linear
from planner.spec import shown
from planner.storage import ROLES, Scheme, StorageFormat, find, weight_format

_LEFT_OUT = (
    "modules_to_not_convert",
    "ignored_layers",
    "llm_int8_skip_modules",
    "ignore",
    "exclude_modules",
    "exclude",  # quark
    "skip_modules",  # hqq
    "linear_weights_not_to_quantize",  # aqlm
)


def read_quantization(
    config: Any, layers: Mapping[str, int], rest: str = "bf16", place: str = "quantization_config"
) -> Scheme:
    """The scheme that a `quantization_config` describes; `weight_format` gives the same by its name.

    `layers` says for each role how many layers have it, so that a list that names them one by one can be told from a
    part of them; `rest` is the format of what is not quantised. The table of an `hf_quant_config.json` is read too, and
    that of MLX, which has no method's name.

    Raises `InputError` for a method, a width or a grouping that is not known, naming it.

    >>> read_quantization({"quant_method": "fp8", "weight_block_size": [128, 128]}, {"attention": 61}).name
    'fp8-block128'
    """
    if not isinstance(config, dict):
        raise InputError(f"{place} = {shown(config)} is not a table")
    if isinstance(config.get("quantization"), dict):
        config = {"quant_method": "modelopt", **config["quantization"]}
    method = _method(config)
    if not isinstance(method, str) or method not in METHODS:
        near = suggest(method, METHODS) if isinstance(method, str) else ""
        known = ", ".join(METHODS)
        raise InputError(
            f"{place}: quant_method = {shown(method)} is none of {known}{near}; state a weight format instead"
        )
    quantised = METHODS[method](Settings(config, place))
    left_out = dict.fromkeys((name for key in _LEFT_OUT for name in _names(config, key, place)), None)
    by_role, notes = _by_role(replace(quantised, modules={**quantised.modules, **left_out}), layers)
    chosen = weight_format(spelled(by_role, find(rest), layers or by_role))
    return replace(chosen, notes=tuple(f"{place}: {note}" for note in notes))


def _method(config: dict[str, Any]) -> Any:
    method = config.get("quant_method")
    if method is None and "config_groups" in config:
        return "compressed-tensors"
    if method is None and "group_size" in config and "bits" in config:
        return "mlx"
    return method


def _by_role(quantised: Quantised, layers: Mapping[str, int]) -> tuple[dict[str, StorageFormat], list[str]]:
    """The format of every quantised role, and what could not be said by roles."""
    named: dict[StorageFormat | None, list[str]] = defaultdict(list)
    for name, fmt in quantised.modules.items():
        named[fmt].append(name)
    found = {fmt: covered(names, {role: layers.get(role, 1) for role in ROLES}) for fmt, names in named.items()}
    by_role: dict[str, StorageFormat | None] = {**quantised.by_role}
    for fmt, modules in found.items():
        by_role.update(dict.fromkeys(modules.whole, fmt))
    notes = [*_partly(found, by_role, layers)]
    if quantised.unsaid in layers and not any(quantised.unsaid in {*m.whole, *m.partly} for m in found.values()):
        notes.append(f"does not say whether {quantised.unsaid} is quantised, counted as not quantised")
    return {role: fmt for role, fmt in by_role.items() if fmt}, notes


def _partly(
    found: Mapping[StorageFormat | None, Covered],
    by_role: Mapping[str, StorageFormat | None],
    layers: Mapping[str, int],
) -> Iterator[str]:
    """Sentences on the roles of which a list names a part that is not as the rest, and on names of nothing known."""
    for fmt, modules in found.items():
        for role, example in modules.partly.items():
            counted = by_role.get(role)
            if counted != fmt and (role in layers or not layers):
                what = fmt.name if fmt else "not quantised"
                like = f"counted as {counted.name} as the rest of it is" if counted else "counted as not quantised"
                yield f"{shown(example)} and its like are a part of {role}, {what}, {like}"
        if modules.unknown:
            others = f" and {len(modules.unknown) - 1:,} more" if len(modules.unknown) > 1 else ""
            yield f"{shown(modules.unknown[0])}{others} is no module that we know, counted as its like are"


def spelled(by_role: Mapping[str, StorageFormat], rest: StorageFormat, roles: Iterable[str]) -> str:
    """The shortest name by which `weight_format` gives these formats to these roles, and `rest` to all others.

    16 bits are 16 bits: whether the rest is bf16 or fp16 is no part of the name.

    >>> spelled({"attention": find("awq-g128")}, find("bf16"), ["attention", "ffn_dense"])
    'awq-g128+ffn_dense=bf16'
    """
    wanted = {role: by_role.get(role, rest) for role in roles}

    def name(first: str) -> str:
        base = weight_format(first)
        differing = {role: fmt for role, fmt in wanted.items() if fmt != base.by_role.get(role, rest)}
        if base.rest.bits != rest.bits:
            differing["rest"] = rest
        return "+".join([first, *(f"{role}={fmt.name}" for role, fmt in sorted(differing.items()))])

    offered = sorted({fmt.name for fmt in (rest, *wanted.values()) if fmt.scheme})
    return min(map(name, offered), key=lambda name: (name.count("+"), find(name.partition("+")[0]).plain, name))


def _names(config: Mapping[str, Any], key: str, place: str) -> list[str]:
    names = config.get(key) or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{place}: {key} = {shown(names)} is not a list of module names")
    return names


def _plain(name: str) -> Callable[[Settings], Quantised]:
    """A method that has one format only."""
    return lambda _: linear(find(name))


def _undetermined(why: str) -> Callable[[Settings], Quantised]:
    """A method whose config does not say how large its tensors are."""

    def refuse(settings: Settings) -> Quantised:
        raise settings.refuse(f"quant_method = {shown(settings.table.get('quant_method'))}: {why}")

    return refuse


METHODS: dict[str, Callable[[Settings], Quantised]] = {
    "aqlm": by_bits.aqlm,
    "auto-round": by_bits.auto_round,
    "awq": by_bits.awq,
    "bitnet": by_bits.bitnet,
    "bitsandbytes": by_bits.bitsandbytes,
    "compressed-tensors": by_tensor.compressed_tensors,
    "eetq": _plain("eetq"),
    "exl2": _undetermined("bits is an average, and each matrix mixes widths by rows"),
    "exl3": by_bits.exl3,
    "fbgemm_fp8": _plain("fp8-channel"),
    "fp8": by_tensor.fp8,
    "fp_quant": by_tensor.fp_quant,
    "gptq": by_bits.gptq,
    "higgs": by_bits.higgs,
    "hqq": by_bits.hqq,
    "intel/auto-round": by_bits.auto_round,
    "metal": by_bits.metal,
    "mlx": by_bits.mlx,
    "modelopt": by_tensor.modelopt,
    "modelopt_fp4": by_tensor.modelopt,
    "mxfp4": by_tensor.mxfp4,
    "quanto": _undetermined("no checkpoint holds it; weights are quantised when they are loaded"),
    "quark": by_tensor.quark,
    "spqr": _undetermined("how many outliers a matrix has is in its tensors alone"),
    "torchao": by_tensor.torchao,
    "vptq": _undetermined("each layer has settings of its own, and no storage format describes them"),
}
"""quant_method -> the function that reads its settings into a format for each quantised role."""
