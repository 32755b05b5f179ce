"""`planner ablate`: variants at an equal budget, what else changes with them, and whether each really runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from planner import accounts
from planner.ablation import CAVEAT, Variant, variants
from planner.contract import Architecture
from planner.witness.verify import verify

if TYPE_CHECKING:
    from pandas import DataFrame

TOKENS_PER_PARAMETER = 20
"""Training tokens where none are given, for each parameter of the contract (Hoffmann et al. 2022, table 3)."""


def ablate(
    model: Architecture,
    vary: str,
    options: Sequence[str],
    *,
    context: int = 4096,
    training_tokens: int | None = None,
    **matching: Any,
) -> DataFrame:
    """A row for the contract and for each variant, all at the same number of training tokens.

    `matching` are the other options of `ablation.variants`. `training_flops` is 6 N D with the active parameters N
    (Kaplan et al. 2020, section 2.1); `tokens_at_equal_compute` are those that the contract's own training FLOPs buy.
    `verified` says whether the variant passes `verify`. The caveat is in ``attrs["note"]``.
    """
    import pandas

    tokens = training_tokens or TOKENS_PER_PARAMETER * accounts.parameters(model, active=True)
    compute = 6 * accounts.parameters(model, active=True) * tokens
    found = [Variant(model.name, model, "", 1, 1, 0, matching.get("batch", 1))]
    found += variants(model, vary, options, context=context, **matching)
    frame = pandas.DataFrame([_row(variant, context, tokens, compute) for variant in found])
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
        "verified": verify(model).passed,
    }
