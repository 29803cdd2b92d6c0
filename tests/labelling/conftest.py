"""A fixture with records and a pool of public examples for all labelling tests."""

import pytest

from made_up import records_and_pool


@pytest.fixture(scope="module")
def world():
    return records_and_pool()
