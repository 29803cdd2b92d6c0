"""Splitting a store into a cluster: subjects move with all their records and remaining budgets.

A budget may not exist twice. The store's ledger first names the cluster, and the cluster's folders
are written. Then a commit of its ledger, which its witness records, closes the store for good. Only
then can the cluster be used. If a split is interrupted after the folders were written, the next
command that writes finishes it, unless the store has changed since. If it is interrupted earlier,
the store stays in use and the incomplete folder can be deleted.

A *slot* is the index of a subject in the arrays of budgets of a store or shard. Arguments of the
functions below: `source` is the open store that is split, `target` and `cluster` are folder and id
(hexadecimal digits) of the cluster, `shard_store` is the open store of a new shard.
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
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.audiences import Audience, sum_exactly
from vicinal.ledger.database import Database
from vicinal.ledger.files import sync_folder
from vicinal.ledger.id_encoding import parse_framed_id
from vicinal.ledger.subject_pages import write_all_subjects
from vicinal.ledger.tables import Tables
from vicinal.mechanisms.noise_sources import fresh_key
from vicinal.store.audience_state import restore_plan
from vicinal.store.folder import Folder, check_new_folder, check_path
from vicinal.store.opening import (
    RETIRED_FOR,
    OpenStore,
    create_interrupted_error,
    create_store,
    open_folder,
)
from vicinal.store.record_files import update_slot_checksum, write_size_and_digests
from vicinal.store.records import ID_MODE, NEXT_NUMBER

ChooseShard = Callable[[SubjectId], int]
"""Returns the number of a subject's shard, from 0."""

_ROWS_AT_ONCE = 1 << 16  # number of records that are held in memory at a time

_SOURCE_KEY = "source"
"""Database key of the id and the chain head of the store that the cluster was split from."""

_ON_OTHER_SHARD = -1  # new slot of a subject that is on another shard

_COPIED_TABLES = (
    Tables.ANSWERS,
    Tables.REQUESTS,
    Tables.HISTORY,
    Tables.ADDITIONS,
    Tables.SHADOWS,
    Tables.MODELS,
    Tables.ANALYSTS,
)
"""Tables of the store that the coordinator's ledger takes over unchanged."""


def split(
    store: str | Path, path: str | Path, shards: int, *, choose_shard: ChooseShard | None = None
) -> None:
    """Spread the records of a closed store over the shards of a new cluster.

    Parameters
    ----------
    store
        Folder of the store. It cannot be opened afterwards; delete it once there is a backup.
    path
        Folder of the cluster; it must not exist.
    shards
        Number of shards.
    choose_shard : callable, optional
        Returns the number of a subject id's shard, 0 to ``shards - 1``. Default: by a keyed hash.

    Raises
    ------
    InvalidInput, PrivacyRefused, StorageFailed
        As on opening the store. The store stays in use unless the cluster is complete.

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
    shards = checks.check_integer("shards", shards, minimum=1, maximum=layout.MAX_SHARDS)
    target = check_path("path", path)
    check_new_folder(target)
    witnesses = layout.get_witness_path(target, layout.COORDINATOR).parent
    if witnesses.exists() and any(witnesses.iterdir()):
        raise InvalidInput(
            f"{witnesses} holds the witnesses of another cluster, wherever that is now. Choose "
            "another name. If an interrupted split left them, delete that folder."
        )
    with open_folder(Folder.read(Path(store))) as source:
        identity = fresh_key(16).hex()
        ledger = source.ledger
        if ledger.total is not None:
            raise InvalidInput(
                "A store with a total over all audiences ('epsilon_total') cannot be split: its "
                "shards would have to share one filter."
            )
        plans = (restore_plan(source, audience) for audience in ledger.audiences.values())
        if any(plan.has_private_count for plan in plans):
            raise create_private_count_error()

        def choose_checked(subject: SubjectId) -> int:
            """Return the number of a subject's shard, checked if `choose_shard` returned it."""
            if choose_shard is None:
                return hash_to_shard(ledger.hash_id(subject), shards)
            number = choose_shard(subject)
            return checks.check_integer("choose_shard", number, minimum=0, maximum=shards - 1)

        subjects = assign_subjects(source.database, shards, choose_checked)
        with source.database.transaction():
            source.database.put(membership.CLUSTER, identity)
        records = _write_shards(source, target, identity, subjects)
        _write_coordinator(source, target, identity, records)
        # An interrupted split may be finished from another working directory.
        source_path = str(Path(store).absolute())
        cluster = layout.ClusterDescription(identity, shards, source_path)
        cluster.save(target)
        _close_for_good(source, identity)
    replace(cluster, source="").save(target)


def create_private_count_error() -> InvalidInput:
    """Return the error for a plan with private neighbour counts, which need two rounds a query."""
    return InvalidInput(
        "The 'neighbor_count' parameter must be 'public' in a cluster. A plan with private counts, "
        "as of the published algorithm, is for a store on one machine."
    )


def finish_interrupted_split(
    path: Path, *, accept_loss: bool = False, read_only: bool = False
) -> layout.ClusterDescription:
    """Finish the split that made the cluster at `path`, if needed, and return its description.

    `accept_loss`: whether the coordinator's charges or the store's witness may have been lost.
    Raises PrivacyRefused if the store is not the one that the cluster was split from, or has
    changed since, as it may have charged budgets that the cluster still has; or if the split is
    unfinished and `read_only` forbids to finish it.
    """
    cluster = layout.ClusterDescription.read(path)
    if not cluster.source:
        return cluster
    if read_only:
        raise create_interrupted_error("split")
    coordinator_folder = layout.MemberFolder.read(path / layout.COORDINATOR).folder
    source_folder = Folder.read(Path(cluster.source))
    # Keys are compared first, as an edited description may name the store of another cluster.
    if coordinator_folder.read_key() != source_folder.read_key():
        raise PrivacyRefused(f"The cluster was not made from the store {cluster.source}.")
    with (
        open_folder(coordinator_folder, accept_loss=accept_loss) as coordinator,
        open_folder(source_folder, accept_loss=accept_loss, cluster=cluster.identity) as source,
    ):
        membership.ShardRecords.from_database(coordinator.database, cluster)
        # If the store is closed for good already, its opening has updated the witness.
        if source.database.get(RETIRED_FOR) is None:
            target_cluster = source.database.get(membership.CLUSTER)
            source_state = coordinator.database.get(_SOURCE_KEY)
            if (target_cluster, source_state) != (cluster.identity, _format_state(source)):
                raise PrivacyRefused(
                    "The split was interrupted, and the store has changed since. Delete this "
                    "cluster and split the store again."
                )
            _close_for_good(source, cluster.identity)
    ready = replace(cluster, source="")
    ready.save(path)
    return ready


def _format_state(source: OpenStore) -> str:
    """Return the id of a store and the head of its hash chain, in hexadecimal digits."""
    return f"{source.folder.identity} {source.ledger.head.hex()}"


def _close_for_good(source: OpenStore, cluster: str) -> None:
    """Mark a store as split, so that only the cluster may open it; durable, also in the witness."""
    with source.ledger.change("split"):
        source.database.put(RETIRED_FOR, cluster)
    source.report_change()
    source.ledger.complete_change()


def hash_to_shard(id_hash: bytes, n_shards: int) -> int:
    """Return the default shard of a subject, 0 to `n_shards` - 1, from the keyed hash of its id."""
    return int.from_bytes(id_hash[:8]) % n_shards


@dataclass(frozen=True, slots=True)
class ShardSubjects:
    """The subjects of one shard, in the order of their slots there. Private."""

    slots: bytearray  # their slots in the store that is split, int32 values as bytes
    ids: bytearray  # their framed ids, concatenated


def assign_subjects(
    database: Database, n_shards: int, choose_shard: ChooseShard
) -> list[ShardSubjects]:
    """Return the subjects of each of `n_shards` shards, in the order of the ledger's pages.

    `database`: the store's. `choose_shard`: returns the number of the shard of a subject id.
    """
    subjects = [ShardSubjects(bytearray(), bytearray()) for _ in range(n_shards)]
    for rows in database.scan("subject_pages"):
        for _, _, slots, ids in rows:
            source_slots = np.frombuffer(slots, dtype="<i4")
            frames = ids.split(b">")[:-1]
            shard_numbers = np.fromiter(
                (choose_shard(parse_framed_id(frame + b">")) for frame in frames), np.int16
            )
            for shard in np.unique(shard_numbers).tolist():
                indices = np.flatnonzero(shard_numbers == shard)
                subjects[shard].slots.extend(source_slots[indices].tobytes())
                framed_ids = b"".join(frames[index] + b">" for index in indices.tolist())
                subjects[shard].ids.extend(framed_ids)
    return subjects


def _write_shards(
    source: OpenStore, target: Path, cluster: str, subjects: list[ShardSubjects]
) -> list[membership.ShardRecord]:
    """Write the folders of all shards with their `subjects`; return the coordinator's records."""
    n_shards = len(subjects)
    slot_of_row = source.record_files.read_slots(len(source.shard))
    erased_rows = source.database.read_rows(Tables.DEPARTED)
    records = []
    for number, path in enumerate(layout.list_shard_folders(target, n_shards)):
        witness = layout.get_witness_path(target, path.name)
        folder = layout.MemberFolder.create(path, cluster, source.folder.read_key(), witness)
        with create_store(folder.folder, source.schema) as store:
            erased = [row for row in erased_rows if hash_to_shard(row[0], n_shards) == number]
            _copy_to_shard(source, store, subjects[number], slot_of_row, erased)
            with store.database.transaction():
                store.database.put(membership.CLUSTER, cluster)
                store.database.put(membership.NUMBER, str(number))
            store.report_change()
            records.append(membership.ShardRecord.from_store(number, store))
        folder.save()
        sync_folder(target)
    return records


def _copy_to_shard(
    source: OpenStore,
    shard_store: OpenStore,
    subjects: ShardSubjects,
    slot_of_row: Slots,
    erased: list[tuple[Any, ...]],
) -> None:
    """Copy the records and budgets of `subjects` into the files of an empty shard, in one change.

    `slot_of_row`, int32 (n,): slot of each record's subject in `source`. `erased`: budgets of the
    shard's erased subjects, tuples of the hash of the id, the number of the audience, and the
    remaining units.
    """
    files = source.record_files
    size = len(source.shard)
    slots = np.frombuffer(subjects.slots, dtype="<i4")
    new_slot_of = np.full(source.ledger.size, _ON_OTHER_SHARD, dtype=np.int32)
    new_slot_of[slots] = np.arange(len(slots))
    with shard_store.ledger.change("split"):
        shard_store.database.insert(Tables.MODELS, source.database.read_rows(Tables.MODELS))
        rows = np.flatnonzero(new_slot_of[slot_of_row] != _ON_OTHER_SHARD)
        features = files.features.map_rows(size)
        labels = files.labels.map_rows(size)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            chunk = rows[start : start + _ROWS_AT_ONCE]
            new_slots = new_slot_of[slot_of_row[chunk]]
            shard_store.record_files.append(start, features[chunk], labels[chunk], new_slots)
            update_slot_checksum(shard_store.database, new_slots)
        database = shard_store.database
        write_size_and_digests(database, shard_store.record_files, len(rows))
        database.put("slots", str(write_all_subjects(database, subjects.ids)))
        database.insert(Tables.DEPARTED, erased)
        for audience in source.ledger.audiences.values():
            budgets = [units for _, number, units in erased if number == audience.number]
            _write_shard_audience(shard_store, audience, slots, budgets)
    shard_store.ledger.complete_change()


def _write_shard_audience(
    shard_store: OpenStore, audience: Audience, slots: Slots, erased: list[int]
) -> None:
    """Write an audience with the remaining budgets of a shard's subjects, and their charges so far.

    Every enrolled or erased subject of the shard counts as having been granted one budget, or the
    part of it that its renewal periods have released. Only the coordinator counts answers.

    `audience`: the audience in the store that is split. `slots`, int32 (shard's subjects,): slot in
    that store of each subject, by its new slot. `erased`: remaining units of erased subjects.
    """
    units = audience.account.durable[slots]
    moved = Audience(
        audience.number, audience.name, audience.plan, initial_budget=audience.initial_budget
    )
    moved.account.set_units(np.arange(len(slots), dtype=np.int32), units, len(slots))
    moved.n_granted_budgets = len(slots) + len(erased)
    granted_units = moved.n_granted_budgets * moved.units_per_budget
    moved.checkpointed = granted_units - sum_exactly(units) - sum(erased)
    moved.write_row(shard_store.database)
    moved.checkpoint(shard_store.database)
    shard_store.ledger.audiences[moved.name] = moved


def _write_coordinator(
    source: OpenStore, target: Path, cluster: str, records: list[membership.ShardRecord]
) -> None:
    """Write the coordinator's folder: a store without records, with the source's answers and plans.

    `records`: the coordinator's records of the shards.
    """
    path = target / layout.COORDINATOR
    witness = layout.get_witness_path(target, layout.COORDINATOR)
    folder = layout.MemberFolder.create(path, cluster, source.folder.read_key(), witness)
    with create_store(folder.folder, source.schema) as store:
        with store.database.transaction():
            for table in _COPIED_TABLES:
                store.database.insert(table, source.database.read_rows(table))
            for audience in source.ledger.audiences.values():
                # The coordinator keeps public values only: the plan and the number of answers.
                public_audience = Audience(
                    audience.number,
                    audience.name,
                    audience.plan,
                    initial_budget=audience.initial_budget,
                    used=audience.used,
                    slack=audience.slack,
                    checkpointed_queries=audience.used,
                )
                public_audience.write_row(store.database)
            for name in ("clock", "version", NEXT_NUMBER, ID_MODE):
                value = source.database.get(name)
                if value:
                    store.database.put(name, value)
            membership.ShardRecords(store.database).replace_all(cluster, records)
            store.database.put(_SOURCE_KEY, _format_state(source))
        store.report_commit()
    folder.save()
