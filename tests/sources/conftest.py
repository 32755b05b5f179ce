"""The long runs of random garbage are left out unless they are asked for: python -m pytest -m fuzz."""


def pytest_collection_modifyitems(config, items):
    if "fuzz" not in config.option.markexpr:
        long = [item for item in items if item.get_closest_marker("fuzz")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
