"""Merging subjects of a closed cluster that are one person under two spellings of an id."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from vicinal._checks import SubjectId
from vicinal.distributed._folders import COORDINATOR, ShardFolder, shard_paths
from vicinal.distributed._splitting import ready_cluster
from vicinal.ledger._departed import joined
from vicinal.store import _erasure
from vicinal.store._identities import ONE_FORM_EVERYWHERE
from vicinal.store._opening import OpenStore, open_folder
from vicinal.store._subject_merging import Merged, merge_in


def merge_cluster(path: str | Path, *, accept_loss: bool = False) -> Merged:
    """Merge all subjects of a closed cluster that are one person; return them.

    On every shard first, then across shards: a subject stays on the first shard that knows it,
    with the charges of all spellings, and is erased from the others; records erased there must be
    added again. Broken off, it can be repeated; charges may then count twice, never less than once.

    Parameters
    ----------
    path
        The cluster's folder; the folders of all shards lie in it.
    accept_loss
        As of :meth:`vicinal.store.Store.open`, for the shards.

    Raises
    ------
    InvalidInput, PrivacyRefused, StorageFailed
        As on opening the cluster.

    Examples
    --------
    >>> from vicinal.distributed import merge_cluster
    >>> merge_cluster("patients.cluster")  # doctest: +SKIP
    """
    place = Path(path)
    folders = shard_paths(place, ready_cluster(place).shards)
    merged: dict[SubjectId, list[SubjectId]] = {}
    for folder in folders:
        identified = merge_in(ShardFolder.read(folder).folder, accept_loss=accept_loss)
        for name, spelled in identified.spellings.items():
            merged[name] = merged.get(name, []) + spelled
    twice = _erase_all_but_first(folders)
    _add_charges_of_erased(folders)
    with _opened(place / COORDINATOR) as coordinator, coordinator.database.transaction():
        coordinator.database.put(ONE_FORM_EVERYWHERE, "1")
    return Merged({**twice, **merged}, tuple(twice))


def _erase_all_but_first(folders: list[Path]) -> dict[SubjectId, list[SubjectId]]:
    """Erase every subject that is on several shards from all of them but the first; return them."""
    earlier: set[SubjectId] = set()
    twice: dict[SubjectId, list[SubjectId]] = {}
    for folder in folders:
        with _opened(folder) as parts:
            names = list(parts.ledger.slot_table.slot_of)
            again = [name for name in names if name in earlier]
            if again:
                _erasure.decide(parts.ledger, parts.shard, again)
                _erasure.finish(parts.database, parts.record_files, parts.witness)
                parts.mark_change()
        earlier.update(names)
        twice.update({name: [name] for name in again})
    return twice


def _opened(folder: Path) -> OpenStore:
    return open_folder(ShardFolder.read(folder).folder)


def _add_charges_of_erased(folders: list[Path]) -> None:
    """Charge every subject what another shard remembers of a spelling that was erased there."""
    with ExitStack() as resources:
        shards = [resources.enter_context(_opened(folder)) for folder in folders]
        for other in shards:
            departed = {h for (h,) in other.database.execute("SELECT hash FROM departed")}
            for parts in shards:
                if parts is not other:
                    _charge(parts, other, departed)


def _charge(parts: OpenStore, other: OpenStore, departed: set[bytes]) -> None:
    """Charge those on one shard what they were charged on another one, which forgets them."""
    hashes_of = {
        subject: hashes
        for subject in parts.ledger.slot_table.slot_of
        if (hashes := departed.intersection(parts.ledger.every_hash(subject)))
    }
    if not hashes_of:
        return
    with parts.ledger.change("merge"):
        for subject, hashes in hashes_of.items():
            _add_charges(parts, subject, _charges_left(other, hashes))
        for audience in parts.ledger.audiences.values():
            audience.checkpoint(parts.database)
    with other.ledger.change("merge"):
        for hashes in hashes_of.values():
            _forget(other, hashes)
    for one in (parts, other):
        one.mark_change()


def _charges_left(other: OpenStore, hashes: set[bytes]) -> list[tuple[int, int]]:
    """Return audience and units of everything that is left under some hashes."""
    query = "SELECT audience, units FROM departed WHERE hash = ?"
    return [
        (row[0], row[1]) for hashed in hashes for row in other.database.execute(query, (hashed,))
    ]


def _add_charges(parts: OpenStore, subject: SubjectId, budgets: list[tuple[int, int]]) -> None:
    slots = parts.ledger.slot_table.slots_of([subject])
    for audience in parts.ledger.audiences.values():
        before = int(audience.account.durable[slots[0]])
        after = joined([before, *(units for number, units in budgets if number == audience.number)])
        units = np.array([after], dtype=np.int64)
        audience.account.assign(slots, units, parts.ledger.size)
        audience.checkpointed += before - after


def _forget(other: OpenStore, hashes: set[bytes]) -> None:
    """Count what was left under some hashes as charged: no subject can come back to it."""
    for number, units in _charges_left(other, hashes):
        for audience in other.ledger.audiences.values():
            if audience.number == number:
                audience.checkpointed += units
                audience.checkpoint(other.database)
    other.database.execute_many("DELETE FROM departed WHERE hash = ?", ((h,) for h in hashes))
