"""The store that most tests of the store open."""

import pytest

import store_tools as tools


@pytest.fixture
def store(tmp_path):
    with tools.make(tmp_path / "store") as found:
        yield found
