"""Settings of the tests of workbooks."""

import pytest


@pytest.fixture(scope="module")
def few_spare_rows():
    """Two blank rows of Scenarios instead of fifty, which all say the same and take half of the time of writing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("planner.workbook.scenarios.SPARE", 2)
        yield
