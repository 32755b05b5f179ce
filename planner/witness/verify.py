"""`planner verify`: run a contract and hold its bill to what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.contract import as_architecture
from planner.errors import PlannerError
from planner.sources import Checkpoint
from planner.witness import checks
from planner.witness.bench import Bench
from planner.witness.report import Check, Report
from planner.witness.scaling import scaled_down

CHECKS = (
    checks.parameters,
    checks.causality,
    checks.against_reference,
    checks.decoding,
    checks.cache,
    checks.positions,
    checks.equal_budget,
    checks.flops,
)


def verify(
    architecture: Any,
    full: bool = False,
    *,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Report:
    """Run the checklist on a contract made small; `full` keeps its depth and reads longer sequences.

    `architecture` is what `load` takes.

    The headers of a `checkpoint` (`sources.read_headers`) are held to the contract too, as it is. `progress` is told
    the share of the checklist that is done and what comes next.

    >>> import planner
    >>> planner.verify("gqa-8").passed
    True
    """
    architecture = as_architecture(architecture)
    scaled = scaled_down(architecture, every_layer=full)
    report = Report(architecture.name, scaled=scaled.changes)
    try:
        bench = Bench(architecture, scaled, length=48 if full else 24)
    except PlannerError as error:
        report.checks.append(Check("forward", False, str(error), "logits"))
        return report
    for done, check in enumerate(CHECKS):
        if progress is not None:
            progress(done / len(CHECKS), check.__name__)
        try:
            report.checks += check(bench)
        except (PlannerError, ValueError, LookupError, ArithmeticError) as error:
            report.checks.append(Check(check.__name__, False, f"{type(error).__name__}: {error}", "no error"))
    if checkpoint is not None:
        report.checks.append(checks.of_checkpoint(architecture, checkpoint))
    return report
