"""A cluster that most tests of this folder start from."""

import pytest

import shard_tools


@pytest.fixture(scope="session")
def cluster_template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    return shard_tools.clustered(folder, 2, simulation_seed=7)


@pytest.fixture
def path(cluster_template, tmp_path):
    """Path of a new cluster of two shards, whose coordinator draws seeded noise."""
    return shard_tools.transplanted(cluster_template, tmp_path / "cluster")
