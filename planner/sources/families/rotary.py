"""Rotary embedding as configs write it: rope_theta beside rope_scaling, or rope_parameters, whole or by layer type."""

from __future__ import annotations

from typing import Any

from planner.components import position
from planner.components.position import Rope, RopeScaling
from planner.sources.config_table import Config
from planner.spec import shown


def rope(
    c: Config,
    width: int,
    *,
    layer_type: str | None = None,
    base: float = 10_000.0,
    partial: float = 1.0,
    interleaved: bool = False,
    scaled: bool = True,
    default: dict[str, Any] | None = None,
) -> Rope:
    """Rotary embedding of heads of that width; `base` and `partial` are the family's own where the file has none.

    `layer_type` picks its own table where rope_parameters has one for each kind of layer; without `scaled` a scaling
    rule is read past. `default` is the whole table that the family has where the file has none.
    """
    table = rope_table(c, layer_type, default=default)
    theta = table.positive("rope_theta", "rope_base", default=None)
    outer = c.positive("rope_theta", "rotary_emb_base", default=None)
    if theta is not None and outer not in (None, theta) and not layered(c):
        raise c.refuse(f"rope_theta = {outer:.10g} contradicts rope_theta = {theta:.10g} of the rope table")
    share = c.positive("partial_rotary_factor", "rotary_pct", "rope_pct", "rope_percent", default=None)
    share = table.positive("partial_rotary_factor", default=share if share is not None else partial)
    if share > 1:
        raise c.refuse(f"partial_rotary_factor = {share:.10g} is more than the whole head, which is 1")
    scaling = rope_scaling(c, table, width, share) if scaled else None
    table.ignore("rope_type")
    turned = width if isinstance(scaling, position.Proportional) else int(width * share)
    if turned < 2:
        raise c.refuse(f"partial_rotary_factor = {share:.10g} leaves {turned} elements of a head of {width} to turn")
    return Rope(
        base=theta if theta is not None else base if outer is None else outer,
        width=None if turned == width else turned,
        interleaved=interleaved,
        scaling=scaling,
    )


def layered(c: Config) -> bool:
    """Whether rope_parameters has a table for each kind of layer."""
    return any(isinstance(value, dict) for value in (c.table_of("rope_parameters") or {}).values())


def rope_table(c: Config, layer_type: str | None = None, *, default: dict[str, Any] | None = None) -> Config:
    """The table that has the scaling rule: of the layer type, else rope_parameters, else rope_scaling.

    `default` is the family's own, for a file without either; its base gives way to a stated rope_theta.
    """
    if default is not None and not (c.stated("rope_scaling") or c.has("rope_parameters")):
        theta = c.positive("rope_theta", default=default["rope_theta"])
        return Config({"model_type": c.model_type, **default, "rope_theta": theta}, c.source)
    if layered(c):
        tables = c.inner("rope_parameters")
        if layer_type is None:
            raise c.refuse(f"rope_parameters is written for each kind of layer, which {c.model_type} does not have")
        return tables.inner(layer_type)
    name = "rope_parameters" if c.has("rope_parameters") else "rope_scaling"
    c.ignore("rope_scaling")
    return c.inner(name)


def rope_scaling(c: Config, table: Config, width: int, share: float) -> RopeScaling | None:
    """The scaling rule of a rope table."""
    kind = table.text("rope_type", default=None) or table.text("type", default="default")
    table.ignore("type", "mrope_section", "mrope_interleaved", "finetuned")  # all three axes agree on text
    pairs = int(width * share) // 2
    match kind:
        case "default" | "mrope":
            table.ignore("factor", "original_max_position_embeddings")
            return None
        case "linear":
            return position.Linear(factor=table.positive("factor"))
        case "dynamic":
            return position.Dynamic(factor=table.positive("factor"), original_positions=_original(c, table))
        case "llama3":
            return position.Llama3(
                factor=table.positive("factor"),
                original_positions=_original(c, table),
                low_freq_factor=table.positive("low_freq_factor"),
                high_freq_factor=table.positive("high_freq_factor"),
            )
        case "yarn" | "deepseek_yarn":
            return _yarn(c, table)
        case "longrope" | "su":
            return _longrope(c, table, pairs)
        case "proportional":
            return position.Proportional(factor=table.positive("factor", default=1.0), pairs=pairs)
    known = "default, linear, dynamic, yarn, llama3, longrope, proportional"
    raise table.refuse(f"rope_type = {shown(kind)} is none of {known}")


def _original(c: Config, table: Config) -> int:
    """The length before stretching; without it the stated length."""
    from_file = table.count("original_max_position_embeddings", default=None)
    original: int | None = from_file or max_positions(c)
    if original is None:
        raise table.refuse("original_max_position_embeddings is missing, and so is max_position_embeddings")
    return original


def max_positions(c: Config) -> int | None:
    """The stated length, or None. Files keep the length of training beside the one they serve, which is taken."""
    names = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")
    stated = {name: c.count(name) for name in names if c.has(name)}
    c.ignore(*names)
    if len(set(stated.values())) > 1:
        lengths = ", ".join(f"{name} = {length:,}" for name, length in stated.items())
        c.note(f"{c.source}: several lengths are stated, and the first is taken: {lengths}")
    return next(iter(stated.values()), None)


def _yarn(c: Config, table: Config) -> RopeScaling:
    stated: dict[str, Any] = {
        "attention_factor": table.positive("attention_factor", default=None),
        "mscale": table.number("mscale", default=None),
        "mscale_all_dim": table.number("mscale_all_dim", default=None),
    }
    return position.Yarn(
        factor=table.positive("factor"),
        original_positions=_original(c, table),
        beta_fast=table.positive("beta_fast", default=32.0),
        beta_slow=table.positive("beta_slow", default=1.0),
        truncate=table.flag("truncate", default=True),
        **stated,
    )


def _longrope(c: Config, table: Config, pairs: int) -> RopeScaling:
    before = table.count("original_max_position_embeddings", default=None)
    before = before or c.count("original_max_position_embeddings", default=None) or _original(c, table)
    lists = {name: table.list(name, of=float) for name in ("short_factor", "long_factor")}
    for name, factors in lists.items():
        if factors is None:
            raise table.refuse(f"{name} is missing")
        if len(factors) != pairs:
            raise table.refuse(f"{name} has {len(factors)} entries for {pairs} rotary pairs")
    stretched = max_positions(c)
    return position.LongRope(
        factor=table.positive("factor", default=None) or (stretched / before if stretched else 1.0),
        original_positions=before,
        short_factors=tuple(map(float, lists["short_factor"] or ())),
        long_factors=tuple(map(float, lists["long_factor"] or ())),
        attention_factor=table.positive("attention_factor", default=None),
        short_mscale=table.positive("short_mscale", default=None),
        long_mscale=table.positive("long_mscale", default=None),
    )
