"""Shards answer and charge as one machine does: any split, any index, here or on Ray.

Noise is injected: with a seed it is the same draws in the same order, so that labels, votes and
charges can be compared bit for bit.

What a shard does with a message is the same code here and on Ray; only the way of the message
differs. So every case runs here, and on Ray one of each kind of message: votes, labels, private
counts in a block and one by one, by one cluster. The other cases on Ray are soaks. A fault that
only Ray shows and only with another number of shards, or another index, is left to them.
"""

import dataclasses
from functools import partial

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from vicinal import IndKNNClassifier
from vicinal.engine import Shard, summed
from vicinal.neighbours import ExactIndex, HyperplaneLSH

INDEXES = {"exact": "exact", "lsh": {"kind": "lsh", "tables": 4, "bits": 3, "seed": 5}}
PLANS = {
    "votes": {},
    "labels": {"release": "label"},
    "rbf": {"kernel": "rbf"},
    "rdp": {"accounting": "rdp"},
    "fixed radius": {"min_similarity": 0.8, "n_neighbors": "auto"},
    "private count": {"neighbor_count": "private"},
    "private count, one by one": {"neighbor_count": "private", "execution": "sequential"},
    "private count, labels": {"neighbor_count": "private", "release": "label"},
}
PRESET = {"epsilon": 2.0, "tau": 0.5, "noise_multiplier": 1.5}

indexes = pytest.mark.parametrize("index", INDEXES)
plans = pytest.mark.parametrize("plan", PLANS)


def queries(size, seed=3):
    rng = np.random.default_rng(seed)
    return tools.CENTRES[rng.integers(0, 3, size)] + 0.6 * rng.normal(size=(size, tools.D))


@dataclasses.dataclass(frozen=True, slots=True)
class Several:
    """Several shards as one: what they return is summed. No subject has records on two of them."""

    shards: list

    def charge_and_sum(self, release, queries, thresholds):
        return summed(shard.charge_and_sum(release, queries, thresholds) for shard in self.shards)

    def rounds(self, queries, thresholds, *, together):
        every = (shard.rounds(queries, thresholds, together=together) for shard in self.shards)
        for rounds in zip(*every, strict=True):
            yield SeveralRounds(rounds)


@dataclasses.dataclass(frozen=True, slots=True)
class SeveralRounds:
    """The same queries on several shards."""

    rounds: list

    @property
    def queries(self):
        return self.rounds[0].queries

    def charge_counts(self, counter):
        return summed(rounds.charge_counts(counter) for rounds in self.rounds)

    def charge_and_sum(self, release):
        return summed(rounds.charge_and_sum(release) for rounds in self.rounds)


def factory_of(index):
    """Return what makes an empty index like this one, from public things."""
    if isinstance(index, HyperplaneLSH):
        return partial(HyperplaneLSH, tables=4, bits=3, seed=5)
    return ExactIndex


def spread(classifier, place, shards):
    """Move the records of a fitted classifier to several shards; return those."""
    engine = classifier._engine
    kernel, labels = engine.votes.kernel, tools.Y.astype(np.int32)
    integers, make = kernel.encode(tools.X), factory_of(engine.shard.index)
    where = np.array([place(person) for person in tools.PEOPLE])
    parts = []
    for number in range(shards):
        rows = np.flatnonzero(where == number)
        shard = Shard(kernel, kernel.width(tools.D), index=make)
        shard.add(integers[rows], labels[rows], [tools.PEOPLE[row] for row in rows])
        parts.append(shard)
    classifier._engine = dataclasses.replace(engine, shard=Several(parts))
    return parts


def left_of(shards):
    return {
        person: int(shard.ledger.remaining[shard.ledger.slots([person])[0]])
        for shard in shards
        for person in shard.ledger._slot_of
    }


def compared(make, shards, seed, blocks):
    """Ask one shard, then several; fails if anything differs."""
    whole, parted = (make().fit(tools.X, tools.Y, tools.PEOPLE, public=tools.R) for _ in range(2))
    place = shard_tools.scattered(seed, shards)
    parts = spread(parted, place, shards)
    for block in blocks:
        one, many = whole.query(block), parted.query(block)
        np.testing.assert_array_equal(one.labels, many.labels)
        np.testing.assert_array_equal(one.asked, many.asked)
        if getattr(one, "votes", None) is not None:  # class labels have some, where votes leave
            np.testing.assert_array_equal(one.votes, many.votes)
    left = left_of([whole._engine.shard])
    assert left_of(parts) == left
    assert len(set(left.values())) > 20, "hardly anybody was charged"


@indexes
@plans
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_several_shards_answer_and_charge_as_one(index, plan, shards):
    """Fails if a split of the records changes a vote, a label or anybody's charge."""
    make = partial(
        IndKNNClassifier, range(3), n_records=300, simulation_seed=7, index=INDEXES[index],
        **{**tools.PLAN, **PLANS[plan]},
    )  # fmt: skip
    compared(make, shards, seed=shards, blocks=[queries(10), queries(30, seed=4)])


@pytest.mark.parametrize("execution", ["sequential", "block"])
@pytest.mark.parametrize("shards", [2, 5])
def test_the_papers_algorithm_over_shards_is_the_papers_algorithm(execution, shards):
    """Fails if the two rounds of a private count differ from those of one shard."""
    make = partial(
        IndKNNClassifier.zhu2023, range(3), n_queries=60, execution=execution, simulation_seed=7,
        **PRESET,
    )  # fmt: skip

    def sized():
        classifier = make()
        return classifier.set_params(n_records=300)

    compared(sized, shards, seed=9, blocks=[queries(20), queries(30, seed=4)])


@pytest.mark.parametrize("execution", ["block", "sequential"])
def test_earlier_answers_join_the_sums_once(execution):
    plan = {"simulation_seed": 7, "n_queries": 320, "execution": execution}

    def make():
        preset = {**PRESET, **plan, "reuse_predictions": True}
        return IndKNNClassifier.zhu2023(range(3), **preset).set_params(n_records=300)

    compared(make, 3, seed=2, blocks=[queries(20), queries(300, seed=4)])


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
    check_500(tmp_path, opened, shards, release)


LONG = {"n_queries": 500, "noise_multiplier": 5.0}


def test_ray_answers_as_a_store(tmp_path, ray_engine):
    """The same on Ray, by one cluster for two audiences, of votes and of labels.

    Which audience is asked changes what messages hold, not how they travel; the others are soaks.
    """
    long = np.array_split(queries(500), 3)
    others = {"labels": ({**LONG, "release": "label"}, long)}
    opened = shard_tools.on_ray(ray_engine)
    check_like_store(tmp_path, opened, 3, long, others, **LONG)


def check_500(tmp_path, opened, shards, release):
    blocks = np.array_split(queries(500), 3)
    check_like_store(tmp_path, opened, shards, blocks, **LONG, release=release)


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


@pytest.mark.parametrize("plan", [plan for plan in PLANS if "neighbor_count" not in PLANS[plan]])
def test_a_cluster_answers_as_a_store_whatever_the_plan(tmp_path, plan):
    """Fails if a kind of release, kernel or budget is lost on the way."""
    blocks = [tools.Q[:9], tools.Q[9:24]]
    check_like_store(tmp_path, shard_tools.local, 2, blocks, **PLANS[plan])


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


def test_a_cluster_answers_as_a_store_with_hashing(tmp_path, opened):
    """Fails if shards' buckets depend on which records they hold."""
    blocks = [tools.Q[:20], tools.Q[20:50]]
    check_like_store(tmp_path, opened, 3, blocks, index=INDEXES["lsh"])
