"""A pool of examples to be labelled, for all tests of labelling."""

import pytest

from made_up import records_and_pool


@pytest.fixture(scope="module")
def world():
    return records_and_pool()
