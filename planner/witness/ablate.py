"""`planner ablate`: variants at an equal budget, what else changes with them, and whether each really runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from planner import accounts
from planner.ablation import CAVEAT, Variant, variants
from planner.contract import as_architecture
from planner.errors import UsageError
from planner.variations import Impossible
from planner.witness.verify import verify

if TYPE_CHECKING:
    from pandas import DataFrame

TOKENS_PER_PARAMETER = 20
"""Training tokens where none are given, for each parameter of the contract (Hoffmann et al. 2022, table 3)."""

CONTEXT = 4096
"""Positions of the sequences whose FLOPs and cache are counted, where none are given."""

CHANGES = ("parameters", "active_parameters", "flops_per_token", "decode_flops", "cache_bytes")
"""Figures that stand beside the budget; each has a column ``…_change``, its share beyond the contract's own."""

UNITS = {
    "parameters": "1",
    "active_parameters": "1",
    "flops_per_token": "FLOP",
    "decode_flops": "FLOP",
    "cache_bytes": "B",
    "training_tokens": "1",
    "training_flops": "FLOP",
    "tokens_at_equal_compute": "1",
}


def ablate(
    model: Any,
    vary: Mapping[str, Sequence[str]],
    *,
    context: int = CONTEXT,
    training_tokens: int | None = None,
    **matching: Any,
) -> DataFrame:
    """A row for the contract and for each variant, all at the same number of training tokens.

    `model` is what `load` takes. `vary` says what may vary and the options of each, ``{"mixer": ["mha", "mqa"]}``, one
    at a time. `matching` are the other options of `ablation.variants`. A variant that this contract cannot have, or
    that no knob can match, stays as a row without figures, with the `reason`. `flops_per_token` is the mean over a
    sequence of `context` positions, `decode_flops` a step behind it, `cache_bytes` that of all `sequences`.
    `training_flops` is 6 N D with the active parameters N (Kaplan et al. 2020, section 2.1); `tokens_at_equal_compute`
    are those that the contract's own training FLOPs buy. `dropped` are fields of a mixer that the variant's kind does
    not have, `verified` says whether it passes `verify`. The caveat is in ``attrs["note"]``.

    Raises `UsageError` for an option that is not known.
    """
    import pandas

    model = as_architecture(model)
    active = accounts.parameters(model, active=True)
    tokens = TOKENS_PER_PARAMETER * active if training_tokens is None else training_tokens
    batch = matching.get("batch", 1)
    for name, value in (("context", context), ("batch", batch), ("training_tokens", tokens)):
        if value < 1:
            raise UsageError(f"{name} = {value} is less than 1")
    rows = [_row(Variant(model.name, model, "", 1, 1, 0, batch), context, tokens, 6 * active * tokens)]
    for axis, option in ((axis, option) for axis, options in vary.items() for option in options):
        try:
            (variant,) = variants(model, axis, [option], context=context, **matching)
        except Impossible as error:
            rows.append({"name": f"{axis}={option}", "reason": str(error)})
        else:
            rows.append(_row(variant, context, tokens, 6 * active * tokens))
    for row in rows:
        row |= {f"{name}_change": row[name] / rows[0][name] - 1 for name in CHANGES if name in row and rows[0][name]}
    frame = pandas.DataFrame(rows)
    frame.attrs["units"] = dict(UNITS)
    frame.attrs["note"] = CAVEAT
    return frame


def _row(variant: Variant, context: int, tokens: int, compute: int) -> dict[str, Any]:
    model = variant.architecture
    active = accounts.parameters(model, active=True)
    return {
        "name": variant.name,
        "matched_by": variant.matched_by,
        "mismatch": variant.mismatch,
        "parameters": accounts.parameters(model),
        "active_parameters": active,
        "flops_per_token": accounts.flops(model, new=context, logits="all") / context,
        "decode_flops": accounts.flops(model, past=context),
        "cache_bytes": variant.batch * accounts.cache_bytes(model, context),
        "sequences": variant.batch,
        "training_tokens": tokens,
        "training_flops": float(6 * active * tokens),
        "tokens_at_equal_compute": compute / (6 * active),
        "dropped": ", ".join(variant.dropped),
        "verified": verify(model).passed,
        "reason": None,
    }
