"""Settings of all tests."""

from hypothesis import settings

# An example's time depends on what else the machine does; what it finds does not.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(config, items):
    """The long runs of random garbage are left out unless they are asked for: python -m pytest -m fuzz."""
    if "fuzz" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("fuzz")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
