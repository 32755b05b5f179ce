"""Methods that say a width in bits and a group size: AWQ, GPTQ, AutoRound, MLX, HQQ, bitsandbytes and their kin.

Keys and defaults are those of transformers (src/transformers/utils/quantization_config.py) and of the tools that write
the configs: GPTQModel, AutoRound, MLX, ExLlamaV3.
"""

from __future__ import annotations

from planner.sources.modules import role_of
from planner.sources.quantization.settings import Modules, Quantised, Settings, linear
from planner.spec import shown
from planner.storage import StorageFormat, find, roles_of

_16_BITS = 16  # tools write a module that they leave as it was as one of 16 bits


def _grouped(settings: Settings, method: str, default: int | None = -1) -> StorageFormat:
    bits = settings.get("bits", "w_bit", kind=int, default=4)
    size = settings.get("group_size", "q_group_size", kind=int, default=default)
    family = method if bits == 4 and method in ("awq", "gptq") else f"{method}-int{bits}"
    name = f"{family}-channel" if size == -1 else f"{family}-g{size}"
    return settings.format(name, f"{method} with bits = {shown(bits)} and group_size = {shown(size)}")


def awq(settings: Settings) -> Quantised:
    return linear(_grouped(settings, "awq"))


def gptq(settings: Settings) -> Quantised:
    """`dynamic` has a pattern for each other setting: ``-:`` before it leaves the modules as they were."""
    by_role = linear(fmt := _grouped(settings, "gptq")).by_role
    if modules := settings.get("modules_in_block_to_quantize", kind=list):
        named = {role_of(name) for inner in modules for name in (inner if isinstance(inner, list) else [inner])}
        by_role = {role: fmt for role in by_role if role in named}
    if settings.get("lm_head", kind=bool):
        by_role["lm_head"] = fmt
    others: Modules = {}
    for pattern, said in settings.get("dynamic", kind=dict, default={}).items():
        name = pattern.removeprefix("+:").removeprefix("-:")
        other = settings.over(said, f"dynamic: {shown(pattern)}")
        others[name] = None if pattern.startswith("-:") else _grouped(other, "gptq")
    return Quantised(by_role, others)


def auto_round(settings: Settings) -> Quantised:
    """AutoRound quantises every linear layer of a block; `extra_config` names those that it treats otherwise."""
    fmt = _auto_round_format(settings)
    others = {
        name: _auto_round_format(settings.over(said, f"extra_config: {shown(name)}"))
        for name, said in settings.get("extra_config", kind=dict, default={}).items()
    }
    by_role = linear(fmt, "router").by_role if fmt else {}
    return Quantised(by_role, others)


def _auto_round_format(settings: Settings) -> StorageFormat | None:
    bits, kind = settings.get("bits", kind=int, default=4), settings.get("data_type", kind=str, default="int")
    size, packing = settings.table.get("group_size", 128), settings.get("packing_format", kind=str, default="")
    if bits >= _16_BITS:
        return None
    if kind.startswith("int") and "compressor" not in packing and "fp" not in packing:
        family = "awq" if "awq" in packing else "mlx" if "mlx" in packing else "auto-round"
        return _grouped(settings, family, 128)
    static = settings.get("act_dynamic", kind=bool) is False
    name = {
        ("mx_fp", 4, 32): "mxfp4",
        ("mx_fp", 8, 32): "mxfp8",
        ("nv_fp", 4, 16): "nvfp4",
        ("fp", 8, 0): "fp8-tensor-static" if static else "fp8-tensor",
        ("fp", 8, -1): "fp8-channel",
        ("fp", 8, "[128, 128]"): "fp8-block128",
    }.get((kind, bits, size if type(size) is int else str(size)), "")
    words = f"bits = {bits}, data_type = {shown(kind)}, group_size = {shown(size)}, packing_format = {shown(packing)}"
    return settings.format(name, words)


def mlx(settings: Settings) -> Quantised:
    """MLX quantises what can be, embeddings too; beside the common settings stand those of modules by their paths.

    A router is quantised where its family's class lets it: with eight bits, and named, or as all else, and not.
    """
    fmt = _mlx_format(settings)
    others: Modules = {}
    for path, said in settings.table.items():
        if said is False:
            others[path] = None
        elif said is True:
            others[path] = fmt
        elif isinstance(said, dict):
            others[path] = _mlx_format(Settings(said, settings.place))
    return Quantised(dict.fromkeys(roles_of("mlx"), fmt), others, unsaid="router")


def _mlx_format(settings: Settings) -> StorageFormat:
    mode = settings.get("mode", kind=str, default="affine")
    if mode == "affine":
        return _grouped(settings, "mlx", 64)
    return settings.format(f"mlx-{mode}", f"mode = {shown(mode)}")


def metal(settings: Settings) -> Quantised:
    return linear(_grouped(settings, "mlx", 64))


def hqq(settings: Settings) -> Quantised:
    """One table for all linear layers, or one for each kind of module: those without one stay as they were."""
    table = settings.nested("quant_config")
    if "weight_quant_params" in table.table:
        return linear(_hqq_format(table), "router", "lm_head")
    kinds = {tag: _hqq_format(settings.inner(said, f"quant_config: {shown(tag)}")) for tag, said in table.table.items()}
    if not kinds:
        raise settings.refuse("quant_config says nothing of weights")
    return Quantised({}, {**kinds})


def _hqq_format(settings: Settings) -> StorageFormat:
    said = settings.nested("weight_quant_params")
    for key in ("scale_quant_params", "zero_quant_params"):
        if settings.table.get(key) is not None:
            raise settings.refuse(f"{key}: scales that are quantised themselves are in no saved checkpoint")
    bits, size = said.get("nbits", kind=int, default=4), said.get("group_size", kind=int)
    return settings.format(f"hqq-int{bits}-g{size}", f"hqq with nbits = {shown(bits)} and group_size = {shown(size)}")


def bitsandbytes(settings: Settings) -> Quantised:
    if settings.get("load_in_8bit", "_load_in_8bit", kind=bool):
        return linear(find("int8-channel"))
    if not settings.get("load_in_4bit", "_load_in_4bit", kind=bool):
        raise settings.refuse("bitsandbytes with neither load_in_4bit nor load_in_8bit")
    codes = settings.get("bnb_4bit_quant_type", kind=str, default="fp4")
    if codes not in ("nf4", "fp4"):
        raise settings.refuse(f"bnb_4bit_quant_type = {shown(codes)} is neither nf4 nor fp4")
    return linear(find("nf4-dq" if settings.get("bnb_4bit_use_double_quant", kind=bool) else "nf4"))


def aqlm(settings: Settings) -> Quantised:
    books, bits = settings.get("num_codebooks", kind=int, default=1), settings.get("nbits_per_codebook", kind=int)
    inputs, outputs = settings.get("in_group_size", kind=int, default=8), settings.get("out_group_size", kind=int)
    bits = 16 if bits is None else bits
    name = f"aqlm-{books}x{bits}-v{inputs}" if outputs in (None, 1) else ""
    words = f"aqlm of {books} codebooks of {bits} bits for groups of {inputs} inputs and {outputs or 1} outputs"
    return linear(settings.format(name, words))


def bitnet(settings: Settings) -> Quantised:
    """`online` says that weights are rounded when they are used: the checkpoint has them as they were."""
    if settings.get("quantization_mode", kind=str) == "online":
        return Quantised({})
    return linear(find("bitnet"))


def higgs(settings: Settings) -> Quantised:
    bits, size = settings.get("bits", kind=int, default=4), settings.get("group_size", kind=int, default=256)
    return linear(settings.format(f"higgs-int{bits}-g{size}", f"higgs of {bits} bits and group_size = {size}"))


def exl3(settings: Settings) -> Quantised:
    """Whole widths are those of every matrix; the output matrix has its own."""
    by_role = linear(_exl3_format(settings, "bits")).by_role
    if "head_bits" in settings.table:
        by_role["lm_head"] = _exl3_format(settings, "head_bits")
    return Quantised(by_role)


def _exl3_format(settings: Settings, key: str) -> StorageFormat:
    bits = settings.table.get(key)
    whole = int(bits) if isinstance(bits, float) and bits.is_integer() else bits
    return settings.format(f"exl3-{whole}bpw" if type(whole) is int else "", f"exl3 of {key} = {shown(bits)}")
