"""Planted faults: each is a mistake that implementations really make, and a check of `planner verify` must name it."""

from functools import cache

import planner


def collector():
    """The faults of a file by name, and the decorator that puts them there.

    It takes the model that shows a fault, a preset or a contract, and the checks that must fail.
    """
    faults = {}

    def fault(model, *checks):
        def planted(function):
            faults[function.__name__] = (function, model, checks)
            return function

        return planted

    return faults, fault


def report(model):
    return planner.verify(planner.load(model) if isinstance(model, str) else model)


@cache
def sound(model):
    """The names of all checks of a model without a fault, all of which pass."""
    found = report(model)
    assert found.passed, found
    return {check.name for check in found.checks}


def assert_caught(fault, patch):
    plant, model, checks = fault
    assert sound(model) >= set(checks)
    plant(patch)
    failed = {check.name for check in report(model).failed}
    assert failed >= set(checks), failed


def with_options(function, **changed):
    """The function, called with other options than its caller chose."""

    def call(*args, **options):
        return function(*args, **{**options, **{name: changed[name] for name in changed if name in options}})

    return call
