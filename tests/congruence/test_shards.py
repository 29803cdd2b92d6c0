"""Shards answer and charge as one machine does: any split, any index, here or on Ray.

Noise is injected: with a seed it is the same draws in the same order, so that labels, votes and
charges can be compared bit for bit.

What a shard does with a message is the same code here and on Ray; only the way of the message
differs. So every case runs here, and on Ray votes and labels, by one cluster. The other cases on
Ray are soaks. A fault that only Ray shows and only with another number of shards, or another index,
is left to them.
"""

import dataclasses

import numpy as np
import pytest

import shard_tools
import store_tools as tools

INDEXES = {"exact": "exact", "lsh": {"kind": "lsh", "tables": 4, "bits": 3, "seed": 5}}
PLANS = {
    "votes": {},
    "labels": {"release": "label"},
    "rbf": {"kernel": "rbf"},
    "rdp": {"accounting": "rdp"},
    "fixed radius": {"min_similarity": 0.8, "n_neighbors": "auto"},
}


def queries(size, seed=3):
    rng = np.random.default_rng(seed)
    return tools.CENTRES[rng.integers(0, 3, size)] + 0.6 * rng.normal(size=(size, tools.D))


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.soak)])
def opened(request):
    """Return what opens a cluster: with shards in this process, or on Ray."""
    if request.param == "local":
        return shard_tools.local
    return shard_tools.on_ray(request.getfixturevalue("ray_engine"))


DEFAULT = "default"


def answered(source, asked):
    return {
        name: [source.predict(block, audience=name) for block in blocks]
        for name, blocks in asked.items()
    }


def check_like_store(tmp_path, opened, shards, blocks, audiences=None, **plan):
    """Compare a cluster with the store that it was made of; fails if anything differs.

    `audiences` are further ones of both, by name: the plan of each, and its blocks of queries.
    """
    more = audiences or {}
    asked = {DEFAULT: blocks, **{name: own for name, (_, own) in more.items()}}

    def make(path):
        store = tools.make(path, simulation_seed=7, **plan)
        for name, (other, _) in more.items():
            store.open_audience(name, **{**tools.PLAN, **other, "simulation_seed": 7})
        return store

    with make(tmp_path / "one") as store:
        expected = answered(store, asked)
        left = {
            name: {person: tools.units(store, person, name) for person in set(tools.PEOPLE)}
            for name in asked
        }
    place = shard_tools.scattered(shards, shards)
    path = shard_tools.clustered(tmp_path, shards, place=place, make=make)
    with opened(path) as cluster:
        replies = answered(cluster, asked)
        assert cluster.verify(), cluster.verify().faults
    for name in asked:
        check_replies(replies[name], expected[name])
        assert shard_tools.budgets(path, name) == left[name]
        assert len(set(left[name].values())) > 20, "hardly anybody was charged"


def check_replies(replies, expected):
    for reply, one in zip(replies, expected, strict=True):
        np.testing.assert_array_equal(reply.labels, one.labels)
        assert (reply.charged, reply.left) == (one.charged, one.left)
        for name in ("votes", "sums"):  # of classes, where votes leave; of vectors
            if getattr(one, name, None) is not None:
                np.testing.assert_array_equal(getattr(reply, name), getattr(one, name))


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("release", ["votes", "label"])
def test_a_cluster_answers_500_queries_as_a_store(tmp_path, opened, shards, release):
    """Fails if a label, a vote or a charge differs from those of the store it was made of."""
    blocks = np.array_split(queries(500), 3)
    check_like_store(tmp_path, opened, shards, blocks, **LONG, release=release)


LONG = {"n_queries": 500, "noise_multiplier": 5.0}


def test_ray_answers_as_a_store(tmp_path, ray_engine):
    """The same on Ray, by one cluster for two audiences, of votes and of labels.

    Which audience is asked changes what messages hold, not how they travel; the others are soaks.
    """
    long = np.array_split(queries(500), 3)
    others = {"labels": ({**LONG, "release": "label"}, long)}
    opened = shard_tools.on_ray(ray_engine)
    check_like_store(tmp_path, opened, 3, long, others, **LONG)


@pytest.mark.soak
@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("release", ["votes", "label"])
def test_a_cluster_answers_10_000_queries_as_a_store(tmp_path, opened, shards, release):
    """The same at length, over many blocks and restarts of the rows that hold charges.

    `make test` asks 500 (above); it cannot see what only shows after those.
    """
    blocks = np.array_split(queries(10_000), 13)
    settings = {"n_queries": 10_000, "noise_multiplier": 20.0, "release": release}
    check_like_store(tmp_path, opened, shards, blocks, **settings)


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("plan", PLANS)
def test_a_cluster_answers_as_a_store_whatever_the_plan(tmp_path, plan, index):
    """Fails if a kind of release, kernel or budget is lost; or buckets know of shards."""
    blocks = [tools.Q[:9], tools.Q[9:24], queries(30)]
    check_like_store(tmp_path, shard_tools.local, 3, blocks, index=INDEXES[index], **PLANS[plan])


@pytest.mark.parametrize("target", tools.TARGETS)
def test_a_cluster_answers_as_a_store_whatever_records_carry(tmp_path, opened, target):
    """Fails if a vector is lost, cut or rounded on its way to a shard, or read another way."""
    second = {"second": ({"n_neighbors": 30}, [tools.Q[:7]])}
    blocks = [tools.Q[:9], tools.Q[9:24]]
    check_like_store(tmp_path, opened, 3, blocks, second, target=target)


@pytest.mark.parametrize("target", tools.TARGETS)
def test_a_changed_cluster_of_vectors_charges_as_the_store(tmp_path, target):
    """Fails if added vectors reach a shard otherwise than a store's file, or erased ones stay."""
    y, _ = tools.TARGETS[target]

    def lived(source):
        source.add(tools.X[:6], y[:6], ["new", "new", "more", *tools.PEOPLE[:3]])
        source.erase(tools.PEOPLE[40:60])
        return source.predict(tools.Q[:20])

    with tools.make(tmp_path / "one", target, simulation_seed=7) as store:
        expected = lived(store)
        left = {who: tools.units(store, who) for who in {*tools.PEOPLE[:40], "new", "more"}}
    path = shard_tools.clustered(tmp_path, 2, target=target, simulation_seed=7)
    with shard_tools.local(path) as cluster:
        check_replies([lived(cluster)], [expected])
    with shard_tools.local(path) as cluster:
        assert cluster.verify(tools.PEOPLE[40:60])
        again = cluster.predict(tools.Q[:20])
        assert again.charged == 0
        check_replies([dataclasses.replace(again, charged=20)], [expected])
    found = shard_tools.budgets(path)
    assert {who: found[who] for who in left} == left
