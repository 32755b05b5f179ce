"""`planner verify`: run a contract and hold its bill to what was measured."""

from __future__ import annotations

from collections.abc import Mapping

from planner.contract import Architecture
from planner.errors import PlannerError
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
    architecture: Architecture, full: bool = False, *, checkpoint: Mapping[str, tuple[int, ...]] | None = None
) -> Report:
    """Run the checklist on a contract made small; `full` keeps its depth and reads longer sequences.

    `checkpoint` are the shapes of a checkpoint's tensors by name, which are held to the contract too.

    >>> import planner
    >>> planner.verify(planner.load("gqa-8")).passed
    True
    """
    scaled = scaled_down(architecture, every_layer=full)
    report = Report(architecture.name, scaled=scaled.changes)
    try:
        bench = Bench(architecture, scaled, length=48 if full else 24)
    except PlannerError as error:
        report.checks.append(Check("forward", False, str(error), "logits"))
        return report
    for check in CHECKS:
        try:
            report.checks += check(bench)
        except (PlannerError, ValueError, LookupError, ArithmeticError) as error:
            report.checks.append(Check(check.__name__, False, f"{type(error).__name__}: {error}", "no error"))
    if checkpoint is not None:
        report.checks.append(checks.held_to_checkpoint(architecture, checkpoint))
    return report
