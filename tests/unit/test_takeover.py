"""The running coordinator gives up a copy that is away, and no budget comes back by that.

Kills of real processes are in `tests/crash/test_takeover_kill.py`; takeovers by a person in
`test_shard_copies.py`.
"""

from __future__ import annotations

import logging
import math
import shutil
import time

import pytest

import shard_tools
import store_tools as tools
from takeover_tools import DAMAGED, DEAD, EVERY, HUNG, LATE, Faulty
from vicinal.distributed import (
    Coordinator,
    MissingShardPolicy,
    ShardMissing,
    ShardServer,
    copy_shard,
    local_transports,
    promote_copy,
)
from vicinal.distributed import _promotion as promotion
from vicinal.distributed._folders import COORDINATOR, copy_path, witness_of
from vicinal.distributed._membership import ShardRecords
from vicinal.distributed._takeover import Takeover, outcomes_of
from vicinal.errors import InvalidInput, ShardUnreachable, StoreOutdated

SOON = MissingShardPolicy(deadline=20.0, takeover_s=0.1)
SHORT = MissingShardPolicy(deadline=0.3, takeover_s=0.1)
NEW_X, NEW_Y = tools.points(40, 9)
NEW = [f"new-{i // 2}" for i in range(40)]
OTHER = {1: 2, 2: 1}

both = pytest.mark.parametrize("lost", [1, 2])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A cluster of two shards with two copies each, that has answered once."""
    path = shard_tools.clustered(tmp_path_factory.mktemp("made"), 2, copies=2, simulation_seed=7)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6])
    return path


@pytest.fixture
def path(made, tmp_path):
    return shard_tools.transplanted(made, tmp_path / "cluster")


@pytest.fixture(scope="module")
def unhurt(made, tmp_path_factory):
    """What everybody has left in a cluster that lost no copy, and was asked 6 to 12, then to 18."""
    path = shard_tools.transplanted(made, tmp_path_factory.mktemp("unhurt") / "cluster")
    found = []
    for first in (6, 12):
        with shard_tools.local(path) as cluster:
            cluster.predict(tools.Q[first : first + 6])
        found.append(left(path, (1, 1)))
    return found


def left(path, copies):
    here = [shard_tools.budgets_of(copy_path(path, n, copy)) for n, copy in enumerate(copies)]
    return here[0] | here[1]


def opened(path, faulty=local_transports, policy=SOON, **options):
    return Coordinator.open(path, faulty, policy, **options)


def listed(path):
    """Return the copies that the coordinator of a closed cluster lists."""
    with promotion._opened(path, 0) as (_, records, _record):
        return [one.copies for one in records]


def in_place_of(path, lost, survivor):
    """Put a copy of shard 0 that was given up, and its witness, in the place of the other one."""
    one, other = (copy_path(path, 0, copy) for copy in (lost, survivor))
    shutil.rmtree(other)
    shutil.copytree(one, other)
    shard_tools.moved(other, witness_of(path, one.name), witness_of(path, other.name))


# ---------------------------------------------------------------- a copy is away


@both
@pytest.mark.parametrize("how", EVERY)
def test_the_other_copy_goes_on_and_everybody_is_charged_once(path, unhurt, lost, how):
    faulty = Faulty(lost - 1)
    with opened(path, faulty) as cluster:
        faulty.how = how
        began = time.monotonic()
        cluster.predict(tools.Q[6:12])
        assert time.monotonic() - began >= SOON.takeover_s
        assert cluster.facts()["copies"] == [[OTHER[lost]], [1, 2]]
        assert cluster.copies_given_up == 1
        assert faulty.abandoned == [lost - 1]
        cluster.predict(tools.Q[12:18])
        assert cluster.verify(), cluster.verify().faults
    assert left(path, (OTHER[lost], 1)) == left(path, (OTHER[lost], 2)) == unhurt[1]
    assert listed(path) == [(OTHER[lost],), (1, 2)]


@both
@pytest.mark.parametrize("how", [DEAD, LATE])
def test_a_copy_that_was_given_up_is_refused_for_ever(path, lost, how):
    """Fails without the epoch's link: nothing that one of the copies lacks was charged."""
    faulty = Faulty(lost - 1)
    with opened(path, faulty) as cluster:
        faulty.how = how
        cluster.presence(NEW)
        for reply in faulty.late:
            reply.result(1.0)  # all of it comes now, and is not looked at
    with pytest.raises(InvalidInput, match="'copy' parameter"):
        promote_copy(path, 0, lost)
    in_place_of(path, lost, OTHER[lost])
    with pytest.raises(StoreOutdated, match="old copy"):
        opened(path)


def test_a_late_answer_changes_nothing(path, unhurt):
    """The copy charges the block and answers after it was given up; only the other one is used."""
    faulty = Faulty(1)
    with opened(path, faulty) as cluster:
        faulty.how = LATE
        cluster.predict(tools.Q[6:12])
        state = cluster._transports[0].record.state
        charged = [reply.result(1.0).links for reply in faulty.late]
        assert any(charged)
        assert cluster._transports[0].record.state == state
        faulty.how = None
        cluster.predict(tools.Q[12:18])
    assert left(path, (1, 1)) == unhurt[1]
    in_place_of(path, 2, 1)
    with pytest.raises(StoreOutdated, match="old copy"):
        opened(path)


@pytest.mark.parametrize("how", EVERY)
def test_a_lost_message_ends_no_redundancy(path, unhurt, how):
    faulty = Faulty(0, messages=1, kinds={"VoteRequest"})
    with opened(path, faulty) as cluster:
        faulty.how = how
        cluster.predict(tools.Q[6:12])
        assert (cluster.copies_given_up, faulty.messages) == (0, 0)
        cluster.predict(tools.Q[12:18])
    assert left(path, (1, 1)) == left(path, (2, 2)) == unhurt[1]


def test_without_an_option_a_person_decides(path):
    faulty = Faulty(0)
    with opened(path, faulty, MissingShardPolicy(deadline=0.3)) as cluster:
        faulty.how = DEAD
        with pytest.raises(ShardMissing, match="promote-copy"):
            cluster.predict(tools.Q[6:12])
    assert listed(path) == [(1, 2), (1, 2)]


@pytest.mark.parametrize("takeover_s", [0, -1, math.nan, math.inf, "1", 30.0, True])
def test_unusable_seconds_are_refused(takeover_s):
    with pytest.raises(InvalidInput, match="'takeover_s' parameter"):
        MissingShardPolicy(takeover_s=takeover_s)


def test_an_answer_without_a_shard_waits_for_its_other_copy_first(path):
    faulty = Faulty(0)
    policy = MissingShardPolicy(20.0, answer_without=True, takeover_s=0.1)
    with opened(path, faulty, policy) as cluster:
        faulty.how = HUNG
        assert cluster.predict(tools.Q[6:12]).missing == ()


# ---------------------------------------------------------------- when none is given up


@pytest.mark.parametrize("how", [DEAD, HUNG, DAMAGED])
def test_the_last_copy_is_never_given_up(path, unhurt, how):
    faulty = Faulty(0, 1)
    with opened(path, faulty, SHORT) as cluster:
        faulty.how = how
        for _ in range(2):
            with pytest.raises(ShardMissing):
                cluster.predict(tools.Q[6:12])
        faulty.how = None
        cluster.predict(tools.Q[6:12])
        assert cluster.copies_given_up == 0
    assert left(path, (1, 1)) == left(path, (2, 2)) == unhurt[0]


@pytest.mark.parametrize("how", [DEAD, HUNG])
def test_a_copy_that_never_answered_this_opening_is_not_given_up(path, how):
    """Fails if a coordinator that was copied can go on with one of the copies alone."""
    faulty = Faulty(0)
    faulty.how = how
    with opened(path, faulty, SHORT) as cluster:
        with pytest.raises(ShardMissing):
            cluster.predict(tools.Q[6:12])
        assert cluster.copies_given_up == 0
        faulty.how = None
        cluster.predict(tools.Q[6:12])
        faulty.how = how
        cluster.predict(tools.Q[12:18])
        assert cluster.copies_given_up == 1


@both
def test_a_copy_of_the_coordinator_cannot_go_on_with_a_copy_that_was_given_up(path, tmp_path, lost):
    """The coordinator is put back to before the takeover; of the shard only the old copy is there.

    By hand that cannot be stopped (`vicinal promote-copy`); nothing of it happens by itself.
    """
    old = tmp_path / "old"
    shutil.copytree(path / COORDINATOR, old)
    shutil.copy(witness_of(path, COORDINATOR), tmp_path / "witness")
    faulty = Faulty(lost - 1)
    with opened(path, faulty) as cluster:
        faulty.how = DEAD
        cluster.predict(tools.Q[6:12])
    shutil.rmtree(path / COORDINATOR)
    shutil.copytree(old, path / COORDINATOR)
    shutil.copy(tmp_path / "witness", witness_of(path, COORDINATOR))
    gone = Faulty(OTHER[lost] - 1)
    gone.how = DEAD
    with pytest.raises((ShardMissing, StoreOutdated)), opened(path, gone, SHORT) as cluster:  # noqa: PT012
        for _ in range(2):
            with pytest.raises(ShardMissing):
                cluster.predict(tools.Q[6:12])
        gone.how = None
        cluster.predict(tools.Q[6:12])


def test_an_old_copy_is_left_to_a_person(path, tmp_path):
    """Somebody has put it there; the coordinator cannot know that not itself is the old one."""
    with opened(path) as cluster:
        second = copy_path(path, 0, 2)
        cluster._transports[0].transports[1].close()
        shutil.copytree(second, tmp_path / "old")
        shutil.copy(witness_of(path, second.name), tmp_path / "witness")
        cluster.predict(tools.Q[6:12])
        cluster._transports[0].transports[1].close()
        shutil.rmtree(second)
        shutil.copytree(tmp_path / "old", second)
        shutil.copy(tmp_path / "witness", witness_of(path, second.name))
        for _ in range(3):
            with pytest.raises(StoreOutdated, match="copy 2 of shard 0"):
                cluster.predict(tools.Q[12:18])
            time.sleep(SOON.takeover_s)
        assert cluster.copies_given_up == 0


def test_looking_at_a_cluster_gives_nothing_up(path):
    faulty = Faulty(1)
    with opened(path, faulty, MissingShardPolicy(takeover_s=20.0)) as cluster:
        cluster._transports[0].takeover.seconds = 0.1
        faulty.how = DEAD
        for _ in range(3):
            reasons = cluster.health(0.1)
        assert "copy 2 of shard 0" in reasons[0]
        assert reasons[1] == ""
        assert cluster.copies_given_up == 0


# ---------------------------------------------------------------- in the middle of something


@both
@pytest.mark.parametrize("step", ["epoch", "message", "list"])
@pytest.mark.parametrize("back", [True, False])
def test_a_coordinator_that_ends_between_two_steps_leaves_both_copies_or_one(
    path, unhurt, monkeypatch, lost, step, back
):
    """The steps are cut off before their write; then the copy comes back, or is gone for good."""

    class Cut(BaseException):
        pass

    def cut(*_):
        raise Cut

    faulty = Faulty(lost - 1)
    with pytest.raises(Cut), opened(path, faulty) as cluster:  # noqa: PT012
        targets = {
            "epoch": (ShardRecords, "open"),
            "message": (promotion, "gather"),
            "list": (promotion, "_write"),
        }
        faulty.how = DEAD
        with monkeypatch.context() as patch:
            patch.setattr(*targets[step], cut)
            cluster.predict(tools.Q[6:12])
    assert listed(path) == [(1, 2), (1, 2)]
    if not back:
        shutil.rmtree(copy_path(path, 0, lost))
        promote_copy(path, 0, OTHER[lost])
    with opened(path) as cluster:
        cluster.predict(tools.Q[6:12])
    assert left(path, (OTHER[lost], 1)) == unhurt[0]
    if back:
        assert left(path, (lost, 2)) == unhurt[0]


def test_the_survivor_dies_in_the_second_step(path, unhurt, monkeypatch):
    faulty = Faulty(0)
    with opened(path, faulty, SHORT) as cluster:
        faulty.how = DEAD
        tried = []

        def gone(*_):
            tried.append(1)
            raise ShardMissing("It is gone, too.")

        monkeypatch.setattr(promotion, "gather", gone)
        while not tried:
            with pytest.raises(ShardMissing):
                cluster.predict(tools.Q[6:12])
        monkeypatch.undo()
        faulty.how = None
        cluster.predict(tools.Q[6:12])
        assert cluster.copies_given_up == 0
    assert left(path, (1, 1)) == left(path, (2, 2)) == unhurt[0]


@both
@pytest.mark.parametrize("what", ["Erase", "Add", "OpenAudience", "TallyRequest"])
def test_a_change_that_was_decided_is_made(path, lost, what):
    faulty = Faulty(lost - 1, kinds={what, "AddStaged"} if what == "Add" else {what})
    with opened(path, faulty) as cluster:
        faulty.how = HUNG
        {
            "Erase": lambda: cluster.erase(["person-3", "person-4"]),
            "Add": lambda: cluster.add(NEW_X, NEW_Y, NEW),
            "OpenAudience": lambda: cluster.open_audience("press", n_queries=5),
            "TallyRequest": lambda: cluster.evaluate(tools.X[:40], tools.Y[:40], tools.PEOPLE[:40]),
        }[what]()
        assert cluster.copies_given_up == 1
        gone = ["person-3", "person-4"] if what == "Erase" else []
        assert cluster.verify(gone), cluster.verify(gone).faults
        assert (cluster.presence(NEW).enrolled > 0) == (what == "Add")
        cluster.predict(tools.Q[6:12])


def test_copies_of_two_shards_are_given_up_in_the_time_of_one(path, unhurt):
    faulty = Faulty(0, 3)
    with opened(path, faulty) as cluster:
        faulty.how = DEAD
        cluster.predict(tools.Q[6:12])
        assert cluster.facts()["copies"] == [[2], [1]]
    assert left(path, (2, 1)) == unhurt[0]


@pytest.mark.parametrize("how", [DEAD, HUNG])
def test_many_shards_wait_together(tmp_path, how, monkeypatch):
    """A machine with the second copies of all shards is lost: one wait, not one a shard.

    What is counted is how long it means to sleep: on a busy machine less, as each sleep is longer.
    """
    sleep, slept = time.sleep, []
    monkeypatch.setattr(time, "sleep", lambda seconds: (slept.append(seconds), sleep(seconds)))
    path = shard_tools.clustered(tmp_path, 4, copies=2)
    faulty = Faulty(1, 3, 5, 7)
    policy = MissingShardPolicy(20.0, takeover_s=1.0)
    with opened(path, faulty, policy) as cluster:
        faulty.how = how
        slept.clear()
        cluster.predict(tools.Q[:6])
        assert cluster.facts()["copies"] == [[1]] * 4
        assert 0 < sum(slept) < 3.0, slept


def test_behind_inner_nodes_the_group_goes_on_without_the_shard(tmp_path):
    path = shard_tools.clustered(tmp_path, 6, copies=2)
    faulty = Faulty(1)
    with opened(path, faulty, fan_out=3) as cluster:
        cluster.predict(tools.Q[:6])
        faulty.how = DEAD
        reply = cluster.predict(tools.Q[6:12])
        assert cluster.facts()["copies"] == [[1], *[[1, 2]] * 5]
        cluster.predict(tools.Q[12:18])
        groups = sorted(sorted(one.shards) for one in cluster._tree._groups)
        assert groups == [[1, 2], [3, 4, 5]]
        assert reply.charged == 6
        assert cluster.verify()


def test_a_new_copy_is_made_and_the_other_one_given_up_in_turn(path, unhurt):
    first, second = Faulty(0), Faulty(1)
    with opened(path, first) as cluster:
        first.how = DAMAGED
        cluster.predict(tools.Q[6:12])
    with pytest.raises(InvalidInput, match="delete it first"):
        copy_shard(path, 0)
    shutil.rmtree(copy_path(path, 0, 1))
    copy_shard(path, 0)
    with opened(path, second) as cluster:
        second.how = DEAD
        cluster.predict(tools.Q[12:18])
        assert cluster.facts()["copies"] == [[1], [1, 2]]
    assert left(path, (1, 1)) == unhurt[1]


def test_the_operator_is_told_and_nobody_learns_anything_private(path, caplog):
    faulty = Faulty(0)
    with caplog.at_level(logging.WARNING, "vicinal"), opened(path, faulty) as cluster:
        faulty.how = DEAD
        cluster.predict(tools.Q[6:12])
    (line,) = [one.getMessage() for one in caplog.records if one.name == "vicinal.distributed"]
    assert line.startswith("Copy 1 of shard 0 was away for 0.1 s and is given up")


# ---------------------------------------------------------------- versions that are found out


def test_a_version_that_writes_no_epoch_is_found_out(path, monkeypatch):
    """The control of the test that a copy that was given up is refused."""
    faulty = Faulty(0)
    with opened(path, faulty) as cluster:
        faulty.how = DEAD
        monkeypatch.setattr(ShardRecords, "open", lambda *_: None)
        cluster.presence(NEW)
        monkeypatch.undo()
    in_place_of(path, 1, 2)
    opened(path).close()  # it is believed


def test_nobody_goes_on_with_a_copy_that_misses_charges(path):
    """The copy that is left was put back to before an answer."""
    faulty = Faulty(0)
    with opened(path, faulty) as cluster:
        second = copy_path(path, 0, 2)
        shutil.copytree(second, path / "aside")
        shutil.copy(witness_of(path, second.name), path / "aside.witness")
        cluster.predict(tools.Q[6:12])
        cluster._transports[0].transports[1].close()
        shutil.rmtree(second)
        (path / "aside").rename(second)
        (path / "aside.witness").rename(witness_of(path, second.name))
        faulty.how = DEAD
        with pytest.raises((StoreOutdated, ShardMissing)):
            cluster.predict(tools.Q[12:18])
    assert listed(path)[0] == (1, 2)


def test_a_version_that_uses_an_answer_of_one_copy_is_found_out(path, unhurt, monkeypatch):
    """The control: it answers at once and gives nothing up; the other copy misses the charges."""
    faulty = Faulty(1)
    with opened(path, faulty) as cluster:
        way = cluster._transports[0]
        both, way.transports = way.transports, way.transports[:1]
        cluster.predict(tools.Q[6:12])
        way.transports = both
    monkeypatch.setattr(ShardServer, "_check", lambda *_: None)
    promote_copy(path, 0, 2)
    assert left(path, (2, 1)) != unhurt[0]


def test_a_version_that_gives_up_copies_that_both_are_silent_is_found_out(path, monkeypatch):
    monkeypatch.setattr(Takeover, "may_wait", lambda *_: True)
    faulty = Faulty(0, 1)
    with pytest.raises(ShardMissing), opened(path, faulty, SHORT) as cluster:  # noqa: PT012
        faulty.how = DEAD
        cluster.predict(tools.Q[6:12])
    # Even then the last one stays: it must answer before the list is changed.
    assert listed(path)[0] == (1, 2)


# ---------------------------------------------------------------- how long is waited


class Timed:
    """An answer that is there after some seconds."""

    def __init__(self, seconds, value):
        self.at, self.value = time.monotonic() + seconds, value

    def result(self, seconds):
        time.sleep(max(0.0, min(seconds, self.at - time.monotonic())))
        if time.monotonic() < self.at:
            raise ShardUnreachable
        return self.value


def timed(*after, seconds=10.0, lag=math.inf, long=False):
    now = time.monotonic()
    replies = [Timed(one, n) for n, one in enumerate(after)]
    found = outcomes_of(replies, now, seconds, lag, long=long)
    return found, time.monotonic() - now


def test_all_copies_are_waited_for_whichever_is_first():
    for after in ((0.0, 0.12), (0.12, 0.0), (0.06, 0.07)):
        found, took = timed(*after)
        assert found.values == [0, 1]
        assert took < max(after) + 0.5


def test_a_copy_that_lags_is_not_waited_for_and_both_silent_ones_are():
    found, took = timed(0.0, 60.0, lag=0.1)
    assert list(found.errors) == [1]
    assert 0.1 <= took < 5.0
    found, took = timed(60.0, 60.0, seconds=0.2, lag=0.05)
    assert list(found.errors) == [0, 1]
    assert took >= 0.2


def test_a_copy_may_take_twice_the_time_of_the_other():
    """Fails if a copy on a slower machine is given up for a long change."""
    found, _ = timed(0.3, 0.5, lag=0.01, long=True)
    assert found.values == [0, 1]


def test_time_is_checked_with_numbers_that_do_not_wait():
    one = Takeover(5.0, lambda _: pytest.fail("too early"))
    assert not one.may_wait([0], 2)  # nobody has answered yet
    one.note_all()
    assert one.may_wait([0], 2)
    assert not one.may_wait([0, 1], 2)
    now = time.monotonic()
    one.note_failures([0], now - 4.0)
    one.note_failures([0], now - 1.0)
    one.note_all()
    one.note_failures([0], now - 6.0)  # the first failure again: it is asked once more
    given = []
    one.give_up = given.append
    with pytest.raises(ShardUnreachable):
        one.note_failures([0], now - 1.0)
    assert given == [0]
