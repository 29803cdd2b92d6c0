"""Two blocks under way at once: whatever is searched early, late, twice or never, all is as if one.

Every schedule is forced: the way to a shard holds messages back, repeats them or loses them.
"""

import dataclasses
import threading

import numpy as np
import pytest

import shard_tools
import store_tools as tools
from distributed.orders import request_of, units_of
from shard_tools import Heard
from vicinal.distributed import Coordinator, MissingShardPolicy, ShardServer, local_transports
from vicinal.distributed._folders import shard_paths
from vicinal.distributed._messages import COUNT, SearchAhead, VoteRequest
from vicinal.distributed._vote_charging import SearchedBlock, VoteJournal
from vicinal.errors import PrivacyRefused, ShardMissing, ShardUnreachable
from vicinal.neighbours import NeighbourLists
from vicinal.store import Query

BLOCK = 5
NOBODY_COMES = 240.0
"""Seconds after which a test gives up waiting for another thread."""


class ScheduledWay:
    """The way to a shard that works beside the coordinator, as far as a schedule says so."""

    def __init__(self, way, schedule):
        self.way, self._schedule, self._held = way, schedule, []
        self.searches = 0
        self.late = []

    def send(self, message):
        task = message.task
        if isinstance(task, SearchAhead):
            self.searches += 1
            return self._search(message, next(self._schedule))
        while self._held:  # a search that was held back overtakes nothing but this
            self.way.shard.handle(self._held.pop())
        if isinstance(task, VoteRequest):
            self.late.append(message)
        return self.way.send(message)

    def _search(self, message, when):
        if when == "held":
            self._held.append(message)
        elif when != "lost":
            for _ in range(1 + (when == "twice")):
                self.way.shard.handle(message)
            if when == "crash":
                self.way.close()

    def close(self):
        self.way.close()


def opened(path, schedule="soon", policy=shard_tools.PATIENCE):
    """Open a cluster on which searches come by a schedule, a word or a seed; and the ways."""
    ways = []

    def words():
        rng = np.random.default_rng(schedule if isinstance(schedule, int) else 0)
        while True:
            drawn = rng.choice(["soon", "held", "lost", "twice", "crash"])
            yield drawn if isinstance(schedule, int) else schedule

    def connect(paths):
        ways.extend(ScheduledWay(way, words()) for way in local_transports(paths))
        return ways

    cluster = Coordinator.open(path, connect, policy)
    return in_blocks(cluster), ways


def in_blocks(source):
    """Have a store or a cluster answer five queries a block."""
    for state in source._audience_states.values():
        state.engine = dataclasses.replace(state.engine, block=BLOCK)
    return source


def life(source, ask):
    """Ask, change the records between blocks, and ask again."""
    yield ask(source, tools.Q[:12])
    source.add(tools.X[:40], tools.Y[:40], [f"new-{i}" for i in range(40)])
    yield ask(source, tools.Q[12:27])
    source.erase(tools.PEOPLE[:80])
    yield ask(source, tools.Q[27:40])
    yield ask(source, tools.Q[40:58])


def plainly(source, rows):
    return source.predict(rows)


def announced(source, rows):
    """Ask while others wait, who come in their turn only after the next change."""
    start = int(np.flatnonzero((rows[0] == tools.Q).all(axis=1))[0])
    return beside(source, rows, tools.Q[start + len(rows) :])


def beside(source, rows, others):
    """Ask while another thread waits with its queries, which never come in this life."""
    source._announced = 0
    source._waiting[10**6] = [Query(others)] if len(others) else []
    reply = source.predict(rows)
    source._waiting.clear()
    return reply


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what a store answers, and what everybody has left then."""
    with tools.make(tmp_path_factory.mktemp("one") / "store", simulation_seed=7) as store:
        return list(life(in_blocks(store), plainly)), tools.left_of(store)


@pytest.fixture(scope="module")
def cluster_maker(tmp_path_factory):
    def make(shards=2, **plan):
        return shard_tools.clustered(
            tmp_path_factory.mktemp("many"), shards, simulation_seed=7, **plan
        )

    return make


def check_as_one(path, expected, schedule="soon", ask=plainly):
    """Compare a cluster's life with a store's; return how many searches its first shard got."""
    replies, left = expected
    cluster, ways = opened(path, schedule)
    with cluster:
        for reply, one in zip(life(cluster, ask), replies, strict=True):
            np.testing.assert_array_equal(reply.votes, one.votes)
            assert (reply.charged, reply.left, reply.missing) == (one.charged, one.left, ())
    assert shard_tools.budgets(path) == left
    return ways[0].searches


@pytest.mark.parametrize("schedule", ["soon", "held", "lost", "twice", "crash", 1, 2])
def test_votes_and_charges_are_those_of_one_block_at_a_time(cluster_maker, expected, schedule):
    """Fails if who was searched for early is charged otherwise, or records have changed since."""
    assert check_as_one(cluster_maker(), expected, schedule) == 9


@pytest.mark.parametrize("schedule", ["soon", "held", 3])
def test_a_search_for_those_who_wait_changes_nothing(cluster_maker, expected, schedule):
    """Additions and erasures are barriers: neighbours that were found before are not charged."""
    assert check_as_one(cluster_maker(), expected, schedule, announced) > 9


def test_a_shard_that_keeps_neighbours_across_a_change_is_caught(
    cluster_maker, expected, monkeypatch
):
    """The attack: with the check of the version taken out, people who were added are not charged.

    After an erasure it would be worse: rows of people who have moved, or are beyond the records.
    """
    real = SearchedBlock.parts, SearchedBlock.search
    monkeypatch.setattr(SearchedBlock, "forget", lambda _: None)
    monkeypatch.setattr(SearchedBlock, "parts", lambda me, *some: real[0](me, *some[:2], 0))
    monkeypatch.setattr(SearchedBlock, "search", of_any_version(real[1]))

    def asked_before(source, rows):
        """Ask while somebody waits who asks what comes after the next change."""
        return beside(source, rows, tools.Q[12:27] if len(rows) == 12 else [])

    with pytest.raises(AssertionError):
        check_as_one(cluster_maker(), expected, "soon", asked_before)


def of_any_version(search):
    def wrong(self, shard, what, version):  # noqa: ARG001 (as the method)
        self._ready = []
        search(self, shard, what, 0)

    return wrong


# ---------------------------------------------------------------- the order of charges


@pytest.fixture
def server(cluster_maker):
    with_folder = ShardServer.open(shard_paths(cluster_maker(1), 1)[0])
    yield with_folder
    with_folder.close()


def test_a_block_that_was_overtaken_is_never_charged(server):
    """Fails if a shard charges out of order, also after it was opened again."""
    server.do(request_of(server, b"second", sequence=2))
    before, folder = units_of(server), server._parts.folder.path
    with pytest.raises(PrivacyRefused, match="The block is over"):
        server.do(request_of(server, b"first", sequence=1))
    server.close()
    again = ShardServer.open(folder)
    with pytest.raises(PrivacyRefused, match="The block is over"):
        again.do(request_of(again, b"first", sequence=1))
    np.testing.assert_array_equal(units_of(again), before)
    again.close()


def test_a_block_that_comes_again_later_is_the_same_block(server):
    """Fails if a new place in the order makes another block of the one that was charged."""
    votes = server.do(request_of(server, b"first", sequence=1))
    server.do(request_of(server, b"second", sequence=2))
    before = units_of(server)
    for sequence in (1, 3):
        np.testing.assert_array_equal(
            server.do(request_of(server, b"first", sequence=sequence)), votes
        )
    np.testing.assert_array_equal(units_of(server), before)


@pytest.mark.parametrize("mutated", [False, True])
def test_a_message_that_arrives_after_its_block_was_answered_charges_nobody(
    cluster_maker, monkeypatch, mutated
):
    """Fails if it does; and the attack: with the order unchecked it would."""
    if mutated:
        monkeypatch.setattr(VoteJournal, "check", lambda *_: None)
    path = cluster_maker(2)
    cluster, ways = opened(path, policy=MissingShardPolicy(0.05, answer_without=True))
    lost = []

    def deaf(message, send):
        if isinstance(message.task, VoteRequest) and not lost:
            lost.append(message)
        elif lost and message.task is lost[0].task:
            raise ShardUnreachable
        else:
            return send(message)
        raise ShardUnreachable

    with cluster:
        cluster._clients[1].transport = Heard(ways[1], deaf)
        reply = cluster.predict(tools.Q[:12])
        assert reply.missing == (1,)
    before = shard_tools.budgets(path)
    server = ShardServer.open(shard_paths(path, 2)[1])
    late = dataclasses.replace(lost[0].task, clock=server._journal.clock)
    if mutated:
        server.do(late)
    else:
        with pytest.raises(PrivacyRefused, match="over"):
            server.do(late)
    server.close()
    assert (shard_tools.budgets(path) == before) != mutated


def test_a_coordinator_begins_to_count_anew(cluster_maker):
    """Fails if the places of an earlier opening shut out the blocks of this one."""
    path = cluster_maker(2)
    for rows in (tools.Q[:20], tools.Q[20:22], tools.Q[22:24]):
        cluster, _ = opened(path)
        with cluster:
            assert cluster.predict(rows).charged == len(rows)


# ---------------------------------------------------------------- broken off in between


@pytest.mark.parametrize("error", [ShardUnreachable, KeyboardInterrupt])
def test_a_request_that_broke_off_between_blocks_is_charged_once(cluster_maker, expected, error):
    """Fails if the blocks that were charged before, or the search ahead, cost anything again.

    A shard is lost, or the coordinator ends, when the second block has been searched for.
    """
    path, calls = cluster_maker(), []
    cluster, ways = opened(path, policy=MissingShardPolicy(0.05))

    def second_block_is_lost(message, send):
        if isinstance(message.task, VoteRequest):
            calls.append(message)
            if len(calls) > 1:
                raise error
        return send(message)

    with cluster:
        cluster._clients[1].transport = Heard(ways[1], second_block_is_lost)
        with pytest.raises((ShardMissing, KeyboardInterrupt)):
            cluster.predict(tools.Q[:12])
        assert ways[0].searches > 0
    check_as_one(path, expected)


def test_threads_that_wait_are_searched_for(cluster_maker):
    """Fails if the second of two requests is not searched while the first is answered."""
    path = cluster_maker()
    cluster, ways = opened(path)
    second = threading.Thread(target=lambda: cluster.predict(tools.Q[20:23]))
    came = threading.Event()
    real = ways[0].send

    def waits(message):
        if isinstance(message.task, VoteRequest) and not came.is_set():
            second.start()
            while not cluster._waiting:
                came.wait(0.001)
            came.set()
        return real(message)

    with cluster, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways[0], "send", waits)
        cluster.predict(tools.Q[:3])
        second.join(NOBODY_COMES)
        assert cluster.quota().used == 6
        assert ways[0].searches == 1
        assert not cluster._waiting


# ---------------------------------------------------------------- what is kept


class Searching:
    """Records that find one more neighbour for every query, and count the searches."""

    def __init__(self):
        self.searched = []

    def parts(self, queries, thresholds):  # noqa: ARG002 (as of a shard)
        for query in queries:
            self.searched.append(int(query[0]))
            size = int(query[0])
            yield NeighbourLists(
                np.array([0, size]), np.arange(size, dtype=np.int32), np.zeros(size, np.int32)
            )


def block_of(*sizes):
    rows = np.array(sizes, dtype=np.int8)[:, None]
    return SearchAhead("default", rows, np.zeros(len(rows), dtype=np.int64))


def test_only_so_much_is_kept_and_the_rest_is_searched_when_it_is_charged():
    shard, ahead, block = Searching(), SearchedBlock(most=5), block_of(3, 4, 5, 6)
    ahead.search(shard, block, 1)
    assert shard.searched == [3, 4]
    assert [len(lists.rows) for lists in ahead.parts(shard, block, 1)] == [3, 4, 5, 6]
    assert shard.searched == [3, 4, 5, 6]


@pytest.mark.parametrize("change", ["version", "queries", "thresholds", "audience", "used"])
def test_only_the_same_search_of_the_same_records_is_handed_out(change):
    """Fails if anything that neighbours follow from is not compared, or they are kept on."""
    shard, ahead, block = Searching(), SearchedBlock(), block_of(3, 4)
    ahead.search(shard, block, 1)
    other = {
        "queries": dataclasses.replace(block, queries=block.queries + 1),
        "thresholds": dataclasses.replace(block, thresholds=block.thresholds + 1),
        "audience": dataclasses.replace(block, audience="second"),
    }.get(change, block)
    if change == "used":
        list(ahead.parts(shard, block, 1))
    list(ahead.parts(shard, other, 2 if change == "version" else 1))
    assert len(shard.searched) == 4


def test_private_counts_are_not_searched_early(cluster_maker):
    """Their second round follows from answers that are not there yet."""
    cluster, ways = opened(cluster_maker(neighbor_count="private"))
    with cluster:
        cluster.predict(tools.Q[:12])
    assert ways[0].searches == 0
    assert ways[0].late[0].task.round == COUNT
