"""Settings of all tests."""

import os

from hypothesis import HealthCheck, settings

from planner.printing import WIDTH


def pytest_configure(config):
    """The default run tries the same examples each time, so that it judges the code alone; a fuzz run searches anew.

    How long an example takes depends on what else the machine does; what it finds does not. Tables and helps are as
    wide as the terminal, which is the same for all who run the tests.
    """
    os.environ["COLUMNS"] = str(WIDTH)
    settings.register_profile(
        "planner",
        deadline=None,
        derandomize="fuzz" not in config.option.markexpr,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("planner")


def pytest_collection_modifyitems(config, items):
    """The long runs of random garbage are left out unless they are asked for: python -m pytest -m fuzz."""
    if "fuzz" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("fuzz")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
