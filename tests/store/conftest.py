"""The store that most tests of the store open."""

import pytest

import store_tools as tools


@pytest.fixture(scope="session")
def new_store(tmp_path_factory):
    """The folder of a closed store that has answered nothing."""
    path = tmp_path_factory.mktemp("new") / "store"
    tools.make(path).close()
    return path


@pytest.fixture
def store(new_store, tmp_path):
    with tools.Store.open(tools.copied(new_store, tmp_path)) as opened:
        yield opened


@pytest.fixture(scope="module", autouse=True)
def few_trees():
    """Every opening of a store grows the random trees of its model again: 8 instead of 100."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.linear._random_trees.TREES", 8)
        yield
