"""Merging subjects who are one person under two spellings of an id.

Their records are kept in the ledger, the spellings are erased as any subject is, and the records
come back under the one id. What the spellings were charged adds up: the person has left
max(0, B - all charges), audience by audience. Each step is durable and can be repeated; a merge
that was broken off is finished by the next one, and until then the store is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vicinal._checks import SubjectId
from vicinal.ledger._departed import join_departed
from vicinal.predictors.ind_knn._shard import Shard
from vicinal.store import _erasure
from vicinal.store._checksums import write_digests
from vicinal.store._folder import Folder
from vicinal.store._identities import MERGING, hashes_of, spellings_of, unify_ids
from vicinal.store._opening import OpenStore, open_folder
from vicinal.store._record_files import tiles_from

_GROUPS = 1000
"""People who are merged at a time."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge has done. Private.

    `spellings`: by one id: the spellings of it that the store held. `erased`: ids that several
    shards of a cluster held: only the records on the first of them are left.
    """

    spellings: dict[SubjectId, list[SubjectId]]
    erased: tuple[SubjectId, ...] = ()

    def __len__(self) -> int:
        """Return how many people had another spelling than their one id, or several."""
        return len(self.spellings)


def merge_subjects(path: str | Path, *, accept_loss: bool = False) -> Merged:
    """Merge all subjects of a closed store who are one person; return whom.

    `path`: the store's folder. `accept_loss`: as of :meth:`vicinal.store.Store.open`. Raises
    InvalidInput, PrivacyRefused, StorageFailed as on opening the store.
    """
    return merge_in(Folder.read(Path(path)), accept_loss=accept_loss)


def merge_in(folder: Folder, *, accept_loss: bool = False) -> Merged:
    """Merge all subjects in a known folder, see :func:`merge_subjects`."""
    with open_folder(folder, accept_loss=accept_loss, merging=True) as parts:
        _finish(parts)
        twins = spellings_of(parts.database, folder.key()).twins
        groups = list(twins.items())
        for start in range(0, len(groups), _GROUPS):
            _pack(parts, dict(groups[start : start + _GROUPS]))
            _finish(parts)
        unify_ids(parts.database, folder.key())
        _remember(parts)
    return Merged(twins)


def _pack(parts: OpenStore, groups: dict[SubjectId, list[SubjectId]]) -> None:
    """Write down the records of all spellings; nothing else changes. Encoded, as it holds ids."""
    name_of = {spelling: name for name, group in groups.items() for spelling in group}
    spelling_at = {slot: spelling for spelling, slot in parts.ledger.slot_table.slot_of.items()}
    rows = parts.shard.rows_of(name_of)
    size = len(parts.shard)
    slots = parts.record_files.column("slots", size)[rows].tolist()
    features = np.ascontiguousarray(parts.record_files.features.rows(size)[rows])
    group_records = {
        "groups": list(groups.items()),
        "subjects": [name_of[spelling_at[slot]] for slot in slots],
        "labels": parts.record_files.labels.rows(size)[rows].tolist(),
        "features": base64.b64encode(features.tobytes()).decode(),
    }
    content = base64.b64encode(json.dumps(group_records).encode()).decode()
    with parts.database.transaction():
        parts.database.put(MERGING, content)


def _finish(parts: OpenStore) -> None:
    """Erase the spellings, and bring the records back under their one ids."""
    content = parts.database.get(MERGING)
    if not content:
        return
    group_records: dict[str, Any] = json.loads(base64.b64decode(content))
    groups: list[tuple[SubjectId, list[SubjectId]]] = group_records["groups"]
    apart = [spelling for _, group in groups for spelling in group]
    if parts.ledger.slots(apart).size:
        _erasure.decide(parts.ledger, parts.shard, apart)
        _erasure.finish(parts.database, parts.record_files, parts.witness)
        _remember(parts)
    with parts.ledger.change("merge"):
        for name, group in groups:
            hashes = hashes_of(group, name, parts.folder.key())
            join_departed(parts.database, parts.ledger.audiences.values(), hashes)
        _bring_back(parts, group_records)
        parts.database.put(MERGING, "")
    parts.database.scrub()
    _remember(parts)


def _bring_back(parts: OpenStore, group_records: dict[str, Any]) -> None:
    """Add the records of a group_records, inside a change."""
    shard: Shard = parts.shard
    before = len(shard)
    # A merge that an earlier version began has written down one number a record, without a row.
    target = parts.schema.target
    labels = np.array(group_records["labels"], dtype=np.int32).reshape(-1, target.width)
    flat = np.frombuffer(base64.b64decode(group_records["features"]), parts.schema.precision.dtype)
    integers = flat.reshape(len(labels), parts.schema.n_features).copy()
    subjects: Sequence[SubjectId] = group_records["subjects"]
    shard.add(integers, target.targets(labels), subjects)
    parts.record_files.append(before, integers, labels, shard.subject_table.slots[before:])
    write_digests(parts.database, parts.record_files, len(shard), tiles_from(before, len(shard)))


def _remember(parts: OpenStore) -> None:
    parts.mark_change()
