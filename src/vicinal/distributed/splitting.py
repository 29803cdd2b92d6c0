"""From a store to a cluster: every subject moves with all records and the budget that is left.

Budgets may not exist twice. The store's ledger names the cluster, then the cluster is completed;
the store retires, by a commit of its ledger, and its witness hears of it; only then is there a
cluster. A split that was broken off once the cluster was complete is finished by the next command
that writes, unless the store has gone on. Earlier there is none, and its folder can be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.arrays import Slots
from vicinal.checks import SubjectId
from vicinal.distributed import _membership as membership
from vicinal.distributed import folders as layout
from vicinal.distributed.messages import ShardState
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.audiences import Audience, StoredAccount, exact_sum
from vicinal.ledger.database import Database
from vicinal.ledger.files import sync_folder
from vicinal.ledger.id_encoding import parse_framed_id
from vicinal.ledger.subject_pages import write_all
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store.audience_state import settings_of
from vicinal.store.folder import Folder, check_new
from vicinal.store.opening import (
    RETIRED,
    OpenStore,
    create_interrupted_error,
    create_store,
    open_folder,
)
from vicinal.store.record_files import note_added_slots, write_digests
from vicinal.store.records import NAMING, NEXT_NUMBER

Place = Callable[[SubjectId], int]
_ROWS = 1 << 16
"""Records in memory at a time."""

_SOURCE = "source"
"""Where the coordinator's ledger keeps the store and its head that the cluster was made of."""

_ELSEWHERE = -1
"""In place of a slot, for subjects of other shards."""

_COPIED = (
    Tables.ANSWERS, Tables.REQUESTS, Tables.HISTORY, Tables.ADDITIONS, Tables.SHADOWS,
    Tables.MODELS, Tables.ANALYSTS,
)  # fmt: skip


def split(store: str | Path, path: str | Path, shards: int, *, place: Place | None = None) -> None:
    """Spread the records of a closed store over the shards of a new cluster.

    Parameters
    ----------
    store
        Folder of the store. It answers no more; delete it once the cluster is backed up.
    path
        Folder of the cluster; there must be nothing there.
    shards
        How many.
    place : callable, optional
        The shard of every subject, 0 to ``shards - 1``; by a keyed hash of the id, if left out.

    Raises
    ------
    InvalidInput, PrivacyRefused, StorageFailed
        As on opening the store. It is unchanged unless its cluster is complete.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal import Store
    >>> from vicinal.distributed import Coordinator, split
    >>> from vicinal.distributed.transports import local_transports
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = np.arange(300) % 2
    >>> with Store.init("store", X, y, classes=[0, 1], public=X[:80] + 1, n_queries=20):
    ...     pass
    >>> split("store", "cluster", shards=2)
    >>> with Coordinator.open("cluster", local_transports) as cluster:
    ...     cluster.predict([[0.5, 0.1, -0.3]]).left
    19
    """
    shards = checks.check_integer("shards", shards, least=1, most=layout.MOST_SHARDS)
    target = Path(path)
    check_new(target)
    witnesses = layout.witness_of(target, layout.COORDINATOR).parent
    if witnesses.exists() and any(witnesses.iterdir()):
        raise InvalidInput(
            f"{witnesses} holds the witnesses of another cluster, wherever that is now. Choose "
            "another name. If an interrupted split left them, delete that folder."
        )
    with open_folder(Folder.read(Path(store))) as source:
        identity, ledger = fresh_key(16).hex(), source.ledger
        if ledger.total is not None:
            raise InvalidInput(
                "A store with a total over all audiences ('epsilon_total') cannot be split: its "
                "shards would have to share one filter."
            )
        if any(settings_of(source, one).private_count for one in ledger.audiences.values()):
            raise private_counts_refused()

        def shard_of(subject: SubjectId) -> int:
            if place is None:
                return place_by_hash(ledger.hash(subject), shards)
            return checks.check_integer("place", place(subject), least=0, most=shards - 1)

        subjects = placed_subjects(source.database, shards, shard_of)
        with source.database.transaction():
            source.database.put(membership.CLUSTER, identity)
        records = _write_shards(source, target, identity, subjects)
        _write_coordinator(source, target, identity, records)
        # Absolute, as a split that broke off may be finished from another folder.
        source_path = str(Path(store).absolute())
        cluster = layout.ClusterDescription(identity, shards, source_path)
        cluster.save(target)
        _retire(source, identity)
    replace(cluster, source="").save(target)


def private_counts_refused() -> InvalidInput:
    """Return the refusal of a plan whose queries go to the records twice."""
    return InvalidInput(
        "The 'neighbor_count' parameter must be 'public' in a cluster. A plan with private counts, "
        "as of the published algorithm, is for a store on one machine."
    )


def ready_cluster(
    path: Path, *, accept_loss: bool = False, reading: bool = False
) -> layout.ClusterDescription:
    """Return the cluster at `path`, after finishing a split that was broken off.

    `accept_loss`: of the coordinator, and of the witness of a store that has retired.

    Raises PrivacyRefused if the store is not the one that the cluster was made of, or has gone on
    since: its budgets are further than the cluster's; or if it is only `reading`.
    """
    cluster = layout.ClusterDescription.read(path)
    if not cluster.source:
        return cluster
    if reading:
        raise create_interrupted_error()
    part, place = layout.ShardFolder.read(path / layout.COORDINATOR).folder, Path(cluster.source)
    store = Folder.read(place)
    if part.key() != store.key():  # before anything of a store is opened that may be another's
        raise PrivacyRefused(f"The cluster was not made from the store {cluster.source}.")
    with (
        open_folder(part, accept_loss=accept_loss) as coordinator,
        open_folder(store, accept_loss=accept_loss, cluster=cluster.identity) as source,
    ):
        membership.ShardRecords.of(coordinator.database, cluster)
        if source.database.get(RETIRED) is None:  # else its opening has told its witness
            kin = source.database.get(membership.CLUSTER), coordinator.database.get(_SOURCE)
            if kin != (cluster.identity, _state(source)):
                raise PrivacyRefused(
                    "The split was interrupted, and the store has changed since. Delete this "
                    "cluster and split the store again."
                )
            _retire(source, cluster.identity)
    ready = replace(cluster, source="")
    ready.save(path)
    return ready


def _state(source: OpenStore) -> str:
    """Return which store it is, and how far."""
    return f"{source.folder.identity} {source.ledger.head.hex()}"


def _retire(source: OpenStore, cluster: str) -> None:
    """Make a store one that only its cluster opens; its witness refuses any earlier copy."""
    with source.ledger.change("split"):
        source.database.put(RETIRED, cluster)
    source.mark_change()
    source.ledger.complete_change()


def place_by_hash(hashed: bytes, shards: int) -> int:
    """Return the shard of a subject that was not placed, from the keyed hash of its id."""
    return int.from_bytes(hashed[:8]) % shards


@dataclass(frozen=True, slots=True)
class PlacedSubjects:
    """The subjects that go to one shard, in the order of their slots there. Private.

    `slots`: their earlier ones, as int32. `ids`: framed, one after the other.
    """

    slots: bytearray
    ids: bytearray


def placed_subjects(
    database: Database, n_shards: int, place: Callable[[SubjectId], int]
) -> list[PlacedSubjects]:
    """Return the subjects of a ledger by shard; `place` returns the shard of each."""
    placed = [PlacedSubjects(bytearray(), bytearray()) for _ in range(n_shards)]
    for rows in database.scan("subject_pages"):
        for _, _, slots, ids in rows:
            earlier, framed = np.frombuffer(slots, dtype="<i4"), ids.split(b">")[:-1]
            chosen = np.fromiter((place(parse_framed_id(one + b">")) for one in framed), np.int16)
            for shard in np.unique(chosen).tolist():
                here = np.flatnonzero(chosen == shard)
                placed[shard].slots.extend(earlier[here].tobytes())
                placed[shard].ids.extend(b"".join(framed[one] + b">" for one in here.tolist()))
    return placed


def _write_shards(
    source: OpenStore, target: Path, cluster: str, subjects: list[PlacedSubjects]
) -> list[membership.ShardRecord]:
    shards = len(subjects)
    slot_of_row = source.record_files.column("slots", len(source.shard))
    departed = source.database.rows(Tables.DEPARTED)
    records = []
    for number, path in enumerate(layout.shard_paths(target, shards)):
        witness = layout.witness_of(target, path.name)
        folder = layout.ShardFolder.create(path, cluster, source.folder.key(), witness)
        with create_store(folder.folder, source.schema) as parts:
            erased = [row for row in departed if place_by_hash(row[0], shards) == number]
            _fill(source, parts, subjects[number], slot_of_row, erased)
            with parts.database.transaction():
                parts.database.put(membership.CLUSTER, cluster)
                parts.database.put(membership.NUMBER, str(number))
            parts.mark_change()
            state = ShardState.of(parts.database)
            records.append(membership.ShardRecord(number, folder.folder.identity, state))
        folder.save()
        sync_folder(target)
    return records


def _fill(
    source: OpenStore,
    parts: OpenStore,
    subjects: PlacedSubjects,
    slot_of_row: Slots,
    erased: list[tuple[Any, ...]],
) -> None:
    """Move records, their subjects and budgets into the files of an empty shard, in one change."""
    files, size = source.record_files, len(source.shard)
    slots = np.frombuffer(subjects.slots, dtype="<i4")
    slot_here = np.full(source.ledger.size, _ELSEWHERE, dtype=np.int32)
    slot_here[slots] = np.arange(len(slots))
    with parts.ledger.change("split"):
        parts.database.insert(Tables.MODELS, source.database.rows(Tables.MODELS))
        rows = np.flatnonzero(slot_here[slot_of_row] != _ELSEWHERE)
        features, labels = files.features.rows(size), files.labels.rows(size)
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            new_slots = slot_here[slot_of_row[part]]
            parts.record_files.append(start, features[part], labels[part], new_slots)
            note_added_slots(parts.database, new_slots)
        write_digests(parts.database, parts.record_files, len(rows))
        parts.database.put("slots", str(write_all(parts.database, subjects.ids)))
        parts.database.insert(Tables.DEPARTED, erased)
        for audience in source.ledger.audiences.values():
            budgets = [units for _, number, units in erased if number == audience.number]
            _move_audience(parts, audience, slots, budgets)
    parts.ledger.complete_change()


def _move_audience(parts: OpenStore, audience: Audience, slots: Slots, erased: list[int]) -> None:
    """Give every subject what it has left, and count what it had spent as spent.

    `slots` are the earlier ones, by the new. For every subject that is on the shard, or was, a full
    budget, or what of it has come, counts as granted once. The answers are the coordinator's to
    count.
    """
    units = audience.account.durable[slots]
    moved = Audience(
        audience.number, audience.name, audience.plan,
        StoredAccount(np.zeros(0, dtype=np.int64)), audience.initial_budget,
    )  # fmt: skip
    moved.account.assign(np.arange(len(slots), dtype=np.int32), units, len(slots))
    moved.granted = len(slots) + len(erased)
    moved.checkpointed = moved.granted * moved.released - exact_sum(units) - sum(erased)
    moved.write(parts.database)
    moved.checkpoint(parts.database)
    parts.ledger.audiences[moved.name] = moved


def _write_coordinator(
    source: OpenStore, target: Path, cluster: str, records: list[membership.ShardRecord]
) -> None:
    """Write a store without records that has all answers, quotas and plans of the source."""
    path = target / layout.COORDINATOR
    witness = layout.witness_of(target, layout.COORDINATOR)
    folder = layout.ShardFolder.create(path, cluster, source.folder.key(), witness)
    with create_store(folder.folder, source.schema) as parts:
        with parts.database.transaction():
            for table in _COPIED:
                parts.database.insert(table, source.database.rows(table))
            for one in source.ledger.audiences.values():
                # What is public: the plan, and how many answers it has used.
                Audience(
                    one.number, one.name, one.plan, StoredAccount(np.zeros(0, dtype=np.int64)),
                    one.initial_budget, 0, one.used, one.slack, 0, one.used,
                ).write(parts.database)  # fmt: skip
            for name in ("clock", "version", NEXT_NUMBER, NAMING):
                if value := source.database.get(name):
                    parts.database.put(name, value)
            membership.ShardRecords(parts.database).replace_all(cluster, records)
            parts.database.put(_SOURCE, _state(source))
        parts.mark()
    folder.save()
