"""Rebalancing: subjects move to another shard with all records and what is left of their budgets.

The cluster is closed meanwhile. A move is a parcel in the ledger of the shard that subjects leave:

=====  ============================================================================================
step   what becomes durable
=====  ============================================================================================
pack   the parcel: ids, records, where to
leave  the subjects are erased there; what they have left stays under a keyed hash, as ever
enter  they are on the other shard, with that budget; the parcel's name is on record there
done   parcel and hashes are gone from the first shard, and its sums of what was granted are less
=====  ============================================================================================

Every step can be repeated, and whoever moves next first finishes what was broken off. At no moment
can anybody be charged on two shards: on the first one a subject that has left has no records.
Votes that shards keep for blocks without answers are deleted first: such a block starts anew. A
shard with a parcel does not open for answers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from vicinal import checks
from vicinal.accounting.filter import UNITS
from vicinal.checks import SubjectId
from vicinal.distributed.carried import Carried
from vicinal.distributed.changing import PENDING
from vicinal.distributed.folders import COORDINATOR, ShardFolder, shard_paths
from vicinal.distributed.keeper import PARCEL
from vicinal.distributed.splitting import put_records, ready_cluster
from vicinal.errors import InvalidInput
from vicinal.ledger.audiences import Audience
from vicinal.ledger.departed import joined
from vicinal.mechanisms import fresh_key
from vicinal.store import erasure
from vicinal.store.opening import Parts, open_folder

_ARRIVED = "arrived"


def move(path: str | Path, where: Mapping[SubjectId, int]) -> int:
    """Move subjects of a closed cluster to the shards that `where` says; return how many moved.

    Parameters
    ----------
    path
        The cluster's folder.
    where : mapping of id to int
        The new shard of every subject that is to move; others stay. Ids that are not there are
        passed over.

    Raises
    ------
    InvalidInput
        If there is no cluster, or no such shard. Nothing is changed.
    PrivacyRefused
        If a shard is open elsewhere, or is an old copy.
    StorageFailed
        If a disk fails. Moving again goes on with what was begun.
    """
    place = Path(path)
    cluster = ready_cluster(place)
    targets = _targets(where, cluster.shards)
    with ExitStack() as resources:
        coordinator = _opened(place / COORDINATOR, resources)  # nobody may answer meanwhile
        if int(coordinator.database.get(PENDING) or 0):
            raise InvalidInput(
                "A change of the data was broken off. Open the cluster first: that finishes it."
            )
        shards = [_opened(folder, resources) for folder in shard_paths(place, cluster.shards)]
        for parts in shards:
            # Else somebody's votes could be kept on one shard and cast anew on another.
            Carried(parts.database).clear()
        for parts in shards:
            _finish(parts, shards)
        return sum(_leave(number, shards, targets) for number in range(len(shards)))


def _targets(where: Mapping[SubjectId, int], shards: int) -> dict[SubjectId, int]:
    """Return the new shard of every subject, by its id in its one form."""
    ids = checks.subject_ids("where", list(where))
    numbers = [checks.integer("where", to, least=0, most=shards - 1) for to in where.values()]
    targets = dict(zip(ids, numbers, strict=True))
    if any(targets[subject] != to for subject, to in zip(ids, numbers, strict=True)):
        raise InvalidInput("The 'where' parameter must send every subject to one shard.")
    return targets


def _opened(path: Path, resources: ExitStack) -> Parts:
    parts = open_folder(ShardFolder.read(path).folder)
    resources.callback(parts.resources.close)
    return parts


def _leave(number: int, shards: list[Parts], targets: Mapping[SubjectId, int]) -> int:
    """Move everybody away from one shard who is to be on another."""
    parts, moved = shards[number], 0
    for target in range(len(shards)):
        here = [who for who, to in targets.items() if to == target and _is_on(parts, who)]
        if target != number and here:
            _pack(parts, here, target)
            _finish(parts, shards)
            moved += len(here)
    return moved


def _pack(parts: Parts, subjects: list[SubjectId], target: int) -> None:
    """Write the parcel; nothing else changes. Encoded, as it holds ids of who will be gone."""
    rows = parts.shard.rows_of(subjects)
    size = len(parts.shard)
    name_of = {slot: who for who, slot in parts.book.roll.slot_of.items()}
    slots = parts.columns.column("slots", size)[rows]
    parcel = {
        "name": fresh_key(16).hex(),
        "target": target,
        "subjects": [name_of[slot] for slot in slots.tolist()],
        "labels": parts.columns.column("labels", size)[rows].tolist(),
        "features": base64.b64encode(
            np.ascontiguousarray(parts.columns.features.rows(size)[rows]).tobytes()
        ).decode(),
    }
    content = base64.b64encode(json.dumps(parcel).encode()).decode()
    with parts.database.transaction():
        parts.database.put(PARCEL, content)


def _finish(parts: Parts, shards: list[Parts]) -> None:
    """Carry a parcel through all steps that it has not behind it."""
    content = parts.database.get(PARCEL)
    if not content:
        return
    parcel: dict[str, Any] = json.loads(base64.b64decode(content))
    subjects = list(dict.fromkeys(parcel["subjects"]))
    if parts.book.slots(subjects).size:
        erasure.decide(parts.book, parts.shard, subjects)
        erasure.finish(parts.database, parts.columns, parts.witness)
        _told(parts)
    left = _left(parts, subjects)
    _enter(shards[parcel["target"]], parcel, subjects, left)
    with parts.book.change("move"):
        _let_go(parts, subjects, left)
        parts.database.put(PARCEL, "")
    parts.database.scrub()
    _told(parts)


def _left(parts: Parts, subjects: list[SubjectId]) -> dict[str, list[int]]:
    """Return what everybody had left when they left, by audience."""
    left = {}
    for name, audience in parts.book.audiences.items():
        query = "SELECT units FROM departed WHERE hash = ? AND audience = ?"
        rows = [
            parts.database.execute(query, (parts.book.hash(who), audience.number))
            for who in subjects
        ]
        left[name] = [int(found[0][0]) for found in rows]
    return left


def _enter(
    parts: Parts, parcel: dict[str, Any], subjects: list[SubjectId], left: dict[str, list[int]]
) -> None:
    """Put the records on their new shard, with the budgets, unless they are there already.

    To whoever was on both shards the charges of both count.
    """
    if parts.database.get(_ARRIVED) == parcel["name"]:
        return
    frame = parts.frame
    flat = np.frombuffer(base64.b64decode(parcel["features"]), frame.precision.dtype)
    labels = np.array(parcel["labels"], dtype=np.int32)
    both = [who for who in subjects if _is_on(parts, who)]
    with parts.book.change("move"):
        had = _had(parts, both)
        granted = {name: audience.granted for name, audience in parts.book.audiences.items()}
        integers = flat.reshape(len(labels), frame.n_features).copy()
        put_records(parts, integers, labels, parcel["subjects"])
        slots = parts.book.roll.slots_of(subjects)
        for name, audience in parts.book.audiences.items():
            brought = dict(zip(subjects, left[name], strict=True))
            joint = {who: joined([brought[who], had[name][who]]) for who in both}
            units = np.array([joint.get(who, brought[who]) for who in subjects], dtype=np.int64)
            audience.account.assign(slots, units, parts.book.size)
            audience.granted = granted[name] + len(subjects)
            lost = sum(brought[who] + had[name][who] - joint[who] for who in both)
            audience.folded += _spent(left[name]) + lost
            audience.fold(parts.database)
        parts.database.put(_ARRIVED, parcel["name"])
    _told(parts)


def _is_on(parts: Parts, subject: SubjectId) -> bool:
    return subject in parts.book.roll.slot_of


def _had(parts: Parts, subjects: list[SubjectId]) -> dict[str, dict[SubjectId, int]]:
    """Return what subjects on a shard have left, by audience."""
    slots = parts.book.roll.slots_of(subjects)
    return {
        name: dict(zip(subjects, audience.account.durable[slots].tolist(), strict=True))
        for name, audience in parts.book.audiences.items()
    }


def _let_go(parts: Parts, subjects: list[SubjectId], left: dict[str, list[int]]) -> None:
    """Take those who moved out of the sums: their budgets are the other shard's to account for."""
    parts.database.execute_many(
        "DELETE FROM departed WHERE hash = ?", ((parts.book.hash(who),) for who in subjects)
    )
    for name, audience in parts.book.audiences.items():
        _lessen(audience, len(subjects), _spent(left[name]))
        audience.fold(parts.database)


def _lessen(audience: Audience, granted: int, spent: int) -> None:
    audience.granted -= granted
    audience.folded -= spent


def _spent(left: list[int]) -> int:
    return sum(UNITS - units for units in left)


def _told(parts: Parts) -> None:
    parts.mark_change()
