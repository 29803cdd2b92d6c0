"""A cluster refuses queries if a folder was copied, restored from an old state or exchanged."""

import dataclasses
import json
import os
import shutil
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

import shard_tools
import store_tools as tools
from vicinal import errors
from vicinal.distributed import Coordinator, ShardMissing, _fan_out, restore_cluster, split
from vicinal.distributed.cluster_backups import accept_cluster_loss
from vicinal.distributed.folders import COORDINATOR, MemberFolder, get_witness_path
from vicinal.distributed.messages import Erase, Ping, SubjectStatuses
from vicinal.distributed.transports import local_transports
from vicinal.ledger.tables import Tables
from vicinal.store import Store
from vicinal.store.opening import open_folder
from vicinal.testing import remaining_budgets

REFUSED = (errors.PrivacyRefused, errors.StorageFailed)
SOON = 0.2


@pytest.fixture(scope="module")
def answered(cluster_template, tmp_path_factory):
    folder = tmp_path_factory.mktemp("answered") / "cluster"
    path = shard_tools.transplanted(cluster_template, folder)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[:6])
    return path


@pytest.fixture
def path(answered, tmp_path):
    """Path of a cluster that has answered once."""
    return shard_tools.transplanted(answered, tmp_path / "cluster")


@pytest.fixture(scope="module")
def stranger_template(tmp_path_factory):
    return shard_tools.clustered(tmp_path_factory.mktemp("stranger"), 2)


@pytest.fixture
def stranger(stranger_template, tmp_path):
    """Path of a cluster of another store."""
    return shard_tools.transplanted(stranger_template, tmp_path / "stranger" / "cluster")


def locate_member(path, part):
    return path / part, get_witness_path(path, part)


def save_member(path, part, place):
    """Save copies of a member's folder and witness in the folder `place`."""
    folder, witness = locate_member(path, part)
    shutil.copytree(folder, place / part)
    shutil.copy(witness, place / f"{part}.witness")


def restore_member(path, part, place):
    """Replace a member's folder and witness by the copies that were saved in `place`."""
    folder, witness = locate_member(path, part)
    shutil.rmtree(folder)
    shutil.copytree(place / part, folder)
    shutil.copy(place / f"{part}.witness", witness)


def continue_and_restore(path, part, place):
    """Have a cluster answer ten queries, then restore one member to its state before them."""
    save_member(path, part, place)
    with shard_tools.local(path) as cluster:
        for row in range(10, 20):
            cluster.predict(tools.Q[row : row + 1])
    restore_member(path, part, place)


def assert_refused(path, match, links=local_transports):
    """Assert that a cluster refuses queries, erasures and verification, or its opening."""
    for operation in (
        lambda cluster: cluster.predict(tools.Q[20:24]),
        lambda cluster: cluster.erase(["person-3"]),
        lambda cluster: cluster.verify(),
    ):
        with pytest.raises(REFUSED, match=match):  # noqa: SIM117 (opening may refuse)
            with Coordinator.open(path, links, SOON) as cluster:
                operation(cluster)


# ---------------------------------------------------------------- copies


def test_a_copied_cluster_and_the_original_do_not_both_answer(path, tmp_path):
    """Fails if `cp -a` of a cluster gives every budget twice: both share the witnesses."""
    shutil.copytree(path, tmp_path / "copy")
    with shard_tools.local(tmp_path / "copy") as copy:
        assert_refused(path, "open")
        copy.predict(tools.Q[10:14])
    assert_refused(path, "copy")


@pytest.mark.parametrize("how", ["twice", "changed places", "of another cluster"])
def test_a_shard_in_the_place_of_another_is_refused(path, stranger, how):
    """Fails if people are counted twice, or answers made from another cluster's records."""
    (path / "shard-1").rename(path / "aside")
    if how == "twice":
        shutil.copytree(path / "shard-0", path / "shard-1")
        old, new = (get_witness_path(path, name) for name in ("shard-0", "shard-1"))
        shard_tools.moved(path / "shard-1", old, new)
    elif how == "changed places":
        (path / "shard-0").rename(path / "shard-1")
        (path / "aside").rename(path / "shard-0")
    else:
        (stranger / "shard-1").rename(path / "shard-1")
    assert_refused(path, "another shard")


def test_a_shard_that_was_put_back_with_its_witness_is_refused(path, tmp_path):
    """Fails if an old shard refills budgets: its own witness does not reveal it."""
    continue_and_restore(path, "shard-1", tmp_path)
    assert_refused(path, "Shard 1")


def test_a_shard_that_is_old_by_its_own_guard_is_refused_and_not_missing(path, tmp_path):
    """Fails if an old copy counts as a shard in use: the error must name the folder to restore."""
    shutil.copytree(path / "shard-1", tmp_path / "old")
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[10:20])
    shutil.rmtree(path / "shard-1")
    shutil.copytree(tmp_path / "old", path / "shard-1")
    with pytest.raises(errors.StoreOutdated, match="old copy"):
        shard_tools.local(path)


def test_a_shard_that_another_process_has_is_missing_until_it_lets_go(path):
    """Fails if a shard is refused permanently although its previous process is about to end."""
    server = shard_tools.ShardServer.open(path / "shard-1")
    with Coordinator.open(path, local_transports, SOON) as cluster:
        with pytest.raises(ShardMissing, match="Shard 1: Another process"):
            cluster.predict(tools.Q[10:14])
        server.close()
        assert cluster.predict(tools.Q[10:14]).charged == 4


def test_a_copied_shard_on_another_machine_is_refused_at_its_first_order(path, tmp_path):
    """Fails if two copies can both be charged: of a new session, or within one, in any order."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(path / "shard-0", copy)
    shard_tools.moved(copy, get_witness_path(path, "shard-0"), tmp_path / "elsewhere.witness")

    def to_copy(paths):
        return local_transports([copy, *paths[1:]])

    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[10:14])
        original, link = cluster._clients[0].transport, local_transports([copy])[0]
        cluster._clients[0].transport = link
        with pytest.raises(errors.PrivacyRefused, match="Shard 0"):
            cluster.predict(tools.Q[14:18])
        link.close()
        cluster._clients[0].transport = original
    assert_refused(path, "Shard 0", to_copy)
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[18:20])


def test_two_copies_that_both_went_on_are_told_apart(path, tmp_path):
    copy = shard_tools.transplanted(path, tmp_path / "copy")
    for folder, queries in ((path, tools.Q[10:14]), (copy, tools.Q[14:18])):
        with shard_tools.local(folder) as cluster:
            cluster.predict(queries)
    shutil.rmtree(path / "shard-1")
    shutil.copytree(copy / "shard-1", path / "shard-1")
    witness = get_witness_path(path, "shard-1")
    shard_tools.moved(path / "shard-1", get_witness_path(copy, "shard-1"), witness)
    assert_refused(path, "Shard 1")


@pytest.mark.parametrize("asked", [True, False])
def test_a_coordinator_that_was_put_back_with_its_witness_is_refused(path, tmp_path, asked):
    """Fails if an old one gives new noise to votes that were released, or two ask in turns."""
    save_member(path, COORDINATOR, tmp_path)
    with shard_tools.local(path) as cluster:
        if asked:
            cluster.predict(tools.Q[10:14])
    restore_member(path, COORDINATOR, tmp_path)
    assert_refused(path, "coordinator")


def test_a_coordinator_that_was_put_back_to_before_a_change_is_refused(path, tmp_path):
    """Fails if shards learn how far the coordinator is from answers only."""
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[10:14])
        save_member(path, COORDINATOR, tmp_path)
        cluster.add(tools.X[:1], tools.Y[:1], ["newcomer"])
        cluster._failed = True  # killed: shards hear no more of it
    restore_member(path, COORDINATOR, tmp_path)
    assert_refused(path, "coordinator")


@pytest.mark.parametrize("task", [Ping(), SubjectStatuses(["person-1"])])
def test_a_message_that_an_answer_overtakes_is_no_old_coordinator_s(path, task):
    """Fails if a slow network leads to advice to accept a loss, which spends every budget."""
    with shard_tools.local(path) as cluster:
        client = cluster._clients[0]
        message = client.create_message(task)
        cluster.predict(tools.Q[10:14])
        cluster._delete_sums()
        server = client.transport._server
        assert message.clock < server._journal.clock
        server.handle(message)
        older = dataclasses.replace(message, epochs=(*message.epochs, b"another one's"))
        with pytest.raises(errors.StoreOutdated, match="coordinator"):
            server.handle(older)
        with pytest.raises(errors.StoreOutdated, match="coordinator"):
            server.handle(dataclasses.replace(message, read_only=True))


@pytest.mark.parametrize("wrong", [
    {"cluster": "another"}, {"shard": "another"}, {"epochs": (b"another one's",)},
])  # fmt: skip
def test_what_another_coordinator_orders_is_not_done(path, wrong):
    with shard_tools.local(path) as cluster:
        cluster.predict(tools.Q[10:14])
        client = cluster._clients[0]
        server = client.transport._server
        before = server._store.ledger.last_commit
        order = client.create_message(Erase(10**6, tools.PEOPLE))
        with pytest.raises(errors.StoreOutdated):
            server.handle(dataclasses.replace(order, **wrong))
        assert server._store.ledger.last_commit == before
        assert cluster.presence(tools.PEOPLE).erased == 0


@pytest.mark.parametrize("planted", ["link", "stranger"])
def test_a_cluster_is_copied_to_no_place_that_others_planted(path, tmp_path, monkeypatch, planted):
    with shard_tools.local(path) as cluster:
        cluster.backup(tmp_path / "backup")
        (tmp_path / "mine").mkdir()
        if planted == "link":
            (tmp_path / "place").symlink_to(tmp_path / "mine")
        else:
            (tmp_path / "place").mkdir()
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(errors.InvalidInput, match="belongs to you and is not a link"):
            cluster.backup(tmp_path / "place")
    with pytest.raises(errors.InvalidInput, match="belongs to you and is not a link"):
        restore_cluster(tmp_path / "backup", tmp_path / "place", accept_loss=True)
    assert not list((tmp_path / "place").iterdir())


# ---------------------------------------------------------------- cluster.json


def edit_description(path, **changes):
    """Change fields of cluster.json, as with an editor."""
    place = path / "cluster.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **changes}))


@pytest.mark.parametrize("write", [edit_description, shard_tools.resealed])
@pytest.mark.parametrize("change", [{"shards": 1}, {"shards": 3}, {"identity": "00" * 16}])
def test_what_a_cluster_consists_of_is_not_decided_by_an_editor(path, write, change):
    """Fails if a shard is left out, its people are not served, and an erasure of them succeeds."""
    write(path, **change)
    assert_refused(path, None)


# ---------------------------------------------------------------- retirement of the split store


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A split that broke off as its store was about to retire; return the cluster's folder."""
    tools.make(tmp_path / "store").close()
    with tools.broken_off(monkeypatch, "vicinal.distributed.splitting._close_for_good"):
        split(tmp_path / "store", tmp_path / "broken", 2)
    return tmp_path / "broken"


def assert_intact(store):
    """Assert that a store opens and has all its budgets."""
    with Store.open(store) as store:
        assert set(remaining_budgets(store).values()) == {1.0}


def test_a_stranger_s_cluster_retires_no_store(broken, tmp_path):
    """Fails if a description of another cluster, in the state of a split, retires any store."""
    yours = tmp_path / "yours"
    tools.make(yours).close()
    shard_tools.resealed(broken, source=str(yours))
    with pytest.raises(errors.PrivacyRefused, match="was not made from"):
        shard_tools.local(broken)
    assert_intact(yours)
    # The right store, which has the same key, but has written something since, if no charge.
    with Store.open(tmp_path / "store") as store:
        store.allow("anna", 5)
    shard_tools.resealed(broken, source=str(tmp_path / "store"))
    with pytest.raises(errors.PrivacyRefused, match="has changed since"):
        shard_tools.local(broken)
    assert_intact(tmp_path / "store")


@pytest.mark.parametrize("first", ["store", "cluster"])
def test_an_older_copy_of_a_store_that_retires_and_its_cluster_do_not_both_answer(
    broken, tmp_path, monkeypatch, first
):
    shutil.copytree(tmp_path / "store", tmp_path / "kept")
    with tools.broken_off(monkeypatch, "vicinal.store.opening.OpenStore.report_change"):
        shard_tools.local(broken)
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "kept").rename(tmp_path / "store")
    if first == "store":
        with Store.open(tmp_path / "store") as store:
            store.predict(tools.Q[:3])
        with pytest.raises(errors.PrivacyRefused, match="has changed since"):
            shard_tools.local(broken)
    else:
        shard_tools.local(broken).close()
        with pytest.raises(errors.PrivacyRefused, match="was split"):
            Store.open(tmp_path / "store")


def test_a_store_that_retired_and_lost_its_witness_keeps_no_cluster_shut(
    broken, tmp_path, monkeypatch
):
    """Fails if neither can be opened any more, or its loss can be accepted by the store."""
    with tools.broken_off(monkeypatch, "vicinal.store.opening.OpenStore.report_change"):
        shard_tools.local(broken)
    (tmp_path / "store.witness").unlink()
    with pytest.raises(errors.PrivacyRefused, match="was split"):
        Store.open(tmp_path / "store", accept_loss=True)
    with pytest.raises(errors.PrivacyRefused, match="accept the loss"):
        shard_tools.local(broken)
    Coordinator.open(broken, local_transports, SOON, accept_loss=True).close()
    assert set(shard_tools.budgets(broken).values()) == {0}


# ---------------------------------------------------------------- read-only access


def read_cluster(path):
    """Read facts and guarantee of a cluster, and verify it, without writing."""
    with Coordinator.open(path, local_transports, SOON, read_only=True) as cluster:
        assert all(client.transport._server.is_consistent for client in cluster._clients)
        assert cluster.verify()
        assert cluster.facts(curator=True)["shards"] == 2
        assert cluster.guarantee()


def interrupt_erasure(path):
    """Interrupt an erasure on a shard."""
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(shard_tools.ShardServer.open(path / "shard-0")) as server,
        tools.broken_off(patch, "vicinal.store.erasure._truncate_files"),
    ):
        server.run_task(Erase(10**6, tools.PEOPLE[:60]))


def leave_change_pending(path):
    with (
        pytest.MonkeyPatch.context() as patch,
        shard_tools.local(path) as cluster,
        tools.broken_off(patch, "vicinal.distributed.changes.ClusterChanges.finish_pending"),
    ):
        cluster.erase(["person-4"])


def leave_votes(path):
    """Close a coordinator before its shards delete the votes of a durable answer."""
    with pytest.MonkeyPatch.context() as patch, shard_tools.local(path) as cluster:
        patch.setattr(Coordinator, "_delete_sums", lambda _: None)
        cluster.predict(tools.Q[10:12])
        cluster.close()


def leave_half_written_change(path):
    (path / "coordinator" / "change").write_bytes(b"somebody's records")


@pytest.mark.parametrize(
    "broken",
    [None, leave_votes, interrupt_erasure, leave_change_pending, leave_half_written_change],
)
def test_what_only_reads_a_cluster_writes_no_byte_of_any_part(path, broken):
    """Fails if looking at a cluster draws an epoch, or finishes anything on any of its shards."""
    if broken is not None:
        broken(path)
    before = tools.contents(path.parent)
    if broken in (None, leave_votes):
        read_cluster(path)
    else:
        with pytest.raises(errors.PrivacyRefused, match="command only reads"):
            read_cluster(path)
    assert tools.contents(path.parent) == before
    if broken is not interrupt_erasure:  # which no coordinator ordered
        shard_tools.local(path).close()
        read_cluster(path)


def test_a_shard_that_was_read_is_opened_again_to_write(path):
    with Coordinator.open(path, local_transports, SOON, read_only=True) as cluster:
        shard, message = (cluster._clients[0].transport, cluster._clients[0].create_message(Ping()))
        server = shard._server
        shard.handle(message)
        assert shard._server is server
        shard.handle(dataclasses.replace(message, read_only=False))
        assert shard._server is not server


STRANGE = {
    "link": "is a link", "copy": "another shard",
    "source": "There is no store at",
}  # fmt: skip


@pytest.mark.parametrize("how", STRANGE)
@pytest.mark.parametrize("only_read", [True, False])
def test_a_stranger_s_cluster_finishes_nothing_of_another_one(path, stranger, how, only_read):
    interrupt_erasure(path)
    mine = MemberFolder.read(path / "shard-0")
    with open_folder(MemberFolder.read(stranger / COORDINATOR).folder) as store:
        row = store.database.read_rows(Tables.SHARDS, "number = ?", (0,))[0]
        with store.database.transaction():
            store.database.replace(Tables.SHARDS, [(0, mine.folder.identity, *row[2:])])
        store.report_commit()
        cluster = store.database.get("cluster")
    if how in ("link", "copy"):
        shutil.rmtree(stranger / "shard-0")
    if how == "link":
        (stranger / "shard-0").symlink_to(path / "shard-0")
    elif how != "copy":
        yours = str(path / "shard-0")
        shard_tools.resealed(stranger, source=yours)
    else:
        shutil.copytree(path / "shard-0", stranger / "shard-0")
        folder = dataclasses.replace(mine.folder, path=stranger / "shard-0")
        dataclasses.replace(mine, cluster=cluster, folder=folder).save()
    before = tools.contents(path), tools.contents(path.with_name("cluster.witnesses"))
    only_reads = "only read" if only_read and "source" in how else STRANGE[how]
    with pytest.raises(errors.VicinalError, match=only_reads):
        Coordinator.open(stranger, local_transports, SOON, read_only=only_read)
    assert (tools.contents(path), tools.contents(path.with_name("cluster.witnesses"))) == before


# ---------------------------------------------------------------- refusals do not wait


@pytest.fixture
def unwaiting(monkeypatch):
    """A long deadline; the test fails if the coordinator waits for a second attempt."""

    def sleep(seconds):  # noqa: ARG001 (as time.sleep)
        pytest.fail("a refusal was taken for silence")

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
    monkeypatch.setattr(_fan_out, "time", clock)
    return 30.0


def duplicate_shard(path):
    """Put a copy of shard 0, that looks for the same witness, in the place of shard 1."""
    (path / "shard-1").rename(path / "aside")
    shutil.copytree(path / "shard-0", path / "shard-1")


def damage_labels(path):
    """Flip a bit of a label on shard 1."""
    labels = path / "shard-1" / "records" / "labels"
    content = bytearray(labels.read_bytes())
    content[0] ^= 1
    labels.write_bytes(content)


def remove_shard(path):
    (path / "shard-1").rename(path / "aside")


DAMAGE = [
    (duplicate_shard, errors.StoreOutdated, "Shard 1 is another shard"),
    (damage_labels, errors.ShardDamaged, "Shard 1: The file labels"),
    (remove_shard, errors.ShardDamaged, "Shard 1: There is no shard"),
]


@pytest.mark.parametrize(("damage", "error", "match"), DAMAGE)
def test_a_shard_that_cannot_open_is_refused_at_once_until_it_is_mended(
    path, tmp_path, unwaiting, damage, error, match
):
    """Fails if a permanent error is waited for, is not named, or outlasts the repair.

    The folder is replaced while the cluster is closed, and while it runs.
    """

    def mend():
        shutil.rmtree(path / "shard-1", ignore_errors=True)
        shutil.copytree(tmp_path / "right", path / "shard-1")

    shutil.copytree(path / "shard-1", tmp_path / "right")
    damage(path)
    with pytest.raises(error, match=match):
        Coordinator.open(path, local_transports, unwaiting)
    mend()
    shutil.rmtree(path / "aside", ignore_errors=True)
    with shard_tools.local(path, unwaiting) as cluster:
        cluster._clients[1].transport.close()  # as when its process has died
        shutil.rmtree(tmp_path / "right")
        shutil.copytree(path / "shard-1", tmp_path / "right")
        damage(path)
        for _ in range(2):
            with pytest.raises(error, match=match):
                cluster.predict(tools.Q[10:14])
        mend()
        assert cluster.predict(tools.Q[10:14]).charged == 4


# ---------------------------------------------------------------- states that are accepted


def test_many_openings_without_a_shard_do_not_shut_it_out(path):
    """Fails if a shard that was away knows none of the coordinator's later openings."""
    for _ in range(3):
        shard_tools.heard(path, shard_tools.Dead(), SOON, shard=0).close()
    with shard_tools.local(path) as cluster:
        assert cluster.predict(tools.Q[10:14]).charged == 4


def test_folders_of_a_cluster_are_private_whatever_the_umask(tmp_path):
    """Fails if other users of the machine can read a cluster or its backup."""
    tools.make(tmp_path / "store").close()
    old = os.umask(0)
    try:
        split(tmp_path / "store", tmp_path / "deep" / "cluster", 2)
        with shard_tools.local(tmp_path / "deep" / "cluster") as cluster:
            cluster.backup(tmp_path / "backup")
        (tmp_path / "deep" / "cluster").rename(tmp_path / "lost")
        restore_cluster(tmp_path / "backup", tmp_path / "deep" / "cluster")
    finally:
        os.umask(old)
    for root in (tmp_path / "deep", tmp_path / "backup", tmp_path / "lost"):
        for folder in (*root.rglob("*"), root):
            if folder.is_dir() and folder != tmp_path / "deep":
                assert folder.stat().st_mode & 0o077 == 0, folder


# ---------------------------------------------------------------- the loss is accepted


def test_an_accepted_loss_spends_every_budget_and_goes_on(path, tmp_path):
    """Fails if an old shard refills budgets once the loss is accepted, or stays shut out."""
    continue_and_restore(path, "shard-1", tmp_path)
    accept_cluster_loss(path)
    assert set(shard_tools.budgets(path).values()) == {0}
    with shard_tools.local(path) as cluster:
        assert cluster.predict(tools.Q[20:24]).charged == 4
        cluster.add(tools.X[:1], tools.Y[:1], ["newcomer"])
        assert cluster.verify()
    assert shard_tools.budgets(path)["newcomer"] == 0


def test_a_lost_witness_or_coordinator_can_be_accepted(path, tmp_path):
    """Fails if a coordinator that was put back stays behind the turns that its shards know."""
    continue_and_restore(path, COORDINATOR, tmp_path)
    get_witness_path(path, "shard-0").unlink()
    with Coordinator.open(path, local_transports, SOON, accept_loss=True) as cluster:
        assert cluster.predict(tools.Q[20:24]).charged == 4
        assert cluster.erase(["person-3"]) > 0
    assert set(shard_tools.budgets(path).values()) == {0}


def test_nothing_is_spent_where_nothing_was_lost(path):
    before = shard_tools.budgets(path)
    with Coordinator.open(path, local_transports, SOON, accept_loss=True) as cluster:
        assert cluster.verify()
    assert shard_tools.budgets(path) == before


def test_no_loss_makes_a_shard_of_another_one(path, stranger, tmp_path):
    """Fails if accepting a loss lets a shard stand twice, or spends another cluster's budgets."""
    (path / "shard-1").rename(tmp_path / "away")
    shutil.copytree(stranger / "shard-1", path / "shard-1")
    with pytest.raises(errors.PrivacyRefused, match="another shard"):
        accept_cluster_loss(path)
    with shard_tools.local(stranger) as cluster:
        assert cluster.verify()
