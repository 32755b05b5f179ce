"""The coefficients of a decoder, as formulas over its contract: what stands in its row on Inputs."""

from __future__ import annotations

from planner import accounts
from planner.arithmetic import Value
from planner.workbook.condensed import CacheRow, Condensed, Slots, rule_words
from planner.workbook.subject import Subject


def sizes(one: Subject) -> dict[str, Value]:
    """All stored parameters, and those that one token uses."""
    rows = one.tensors
    return {
        "parameters": sum(row.count * row.live.size for row in rows),
        "active_parameters": sum(row.count * row.live.active for row in rows),
    }


def widths(condensed: Condensed, slots: Slots) -> dict[str, Value]:
    """How wide each rule is; of one that the decoder does not have, anything but 0, which would be divided by."""
    return {name: condensed.widths.get(name, 1) for name in rule_words(slots)}


def multiply_adds(condensed: Condensed, slots: Slots) -> dict[str, Value]:
    """Multiply-adds for each unit of a domain, by slot."""
    return {slot: sum(row.macs for row in condensed.products if row.slot == slot) for slot in slots.products}


def cache(one: Subject, condensed: Condensed, slots: Slots, kv: str) -> dict[str, Value]:
    """Bytes of a position in a cache format, by slot."""
    return {
        slot: sum(position_bytes(one, row, kv) for row in condensed.cache if row.slot == slot) for slot in slots.cache
    }


def position_bytes(one: Subject, row: CacheRow, kv: str) -> Value:
    """Bytes of one position of a cache entry in all layers that have it."""
    return row.count * accounts.position_bytes(row.entry, kv, one.architecture.activations)


def weight_bytes(one: Subject, weights: str) -> Value:
    """Bytes of all weights in a format: of the stated parameters where the contract states them."""
    if one.architecture.stated_parameters is not None:
        return accounts.weight_bytes(one.live, weights)
    return sum(row.bytes(weights) for row in one.tensors)
