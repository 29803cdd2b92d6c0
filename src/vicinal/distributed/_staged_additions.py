"""A batch of a cluster that is prepared beside blocks: on all shards, and in a file here.

What every shard has to add is sent to it beforehand. Each prepares its part, and changes nothing.
The change is decided as any other; shards then get its name in place of its records. Whichever has
not prepared them gets them after all: whether it had changes no row of any ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from vicinal.distributed._cluster_change import ClusterChange, wipe
from vicinal.distributed._fan_out import CheckedTransport, MissingShardPolicy, gather
from vicinal.distributed._messages import Add, IsStaging, Ping, Stage
from vicinal.errors import ShardUnreachable
from vicinal.ledger._files import guarded, sync_folder
from vicinal.mechanisms import fresh_key
from vicinal.store._record_files import StagingEndedError

_TOKEN = 16
_PAUSE = 0.02
"""Seconds between two questions whether shards are ready."""

Current = Callable[[], AbstractContextManager[None]]
"""Gives the turn for a moment, or raises StagingEndedError if the data have changed."""


class StagedFile:
    """The file of a batch that is not decided yet, or not needed any more; as private as records.

    An erasure wipes it: nothing of somebody erased is in any file afterwards.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "staged"
        self._lock = Lock()
        self._token = b""
        self.wipe()

    def begin(self, token: bytes) -> None:
        """Let a batch be written, until :meth:`wipe`."""
        with self._lock:
            self._token = token

    def write(self, change: ClusterChange, token: bytes) -> str:
        """Write a batch, and return the digest of the file; raises StagingEndedError."""
        with self._lock:
            self._check(token)
            return change.save(self._path)

    def become(self, path: Path, token: bytes) -> None:
        """Make it the file of the change that is decided now; raises StagingEndedError."""
        with self._lock:
            self._check(token)
            self._token = b""
            self._move(self._path, path)

    def put_away(self, path: Path) -> None:
        """Take the file of a change that is made, to be wiped later."""
        with self._lock:
            self._move(path, self._path)

    def wipe(self) -> None:
        """Overwrite and remove it."""
        with self._lock:
            self._token = b""
            wipe(self._path)

    def _check(self, token: bytes) -> None:
        if self._token != token:
            raise StagingEndedError

    def _move(self, source: Path, target: Path) -> None:
        with guarded(target):
            source.replace(target)
            sync_folder(target.parent)


@dataclass(frozen=True, slots=True, eq=False)
class StagedAddition:
    """A batch that shards have prepared: its name, what all of them do, its file's digest."""

    token: bytes
    change: ClusterChange
    digest: str


def stage(
    change: ClusterChange,
    file: StagedFile,
    shards: Mapping[int, CheckedTransport],
    policy: MissingShardPolicy,
    current: Current,
) -> StagedAddition:
    """Have shards prepare a change that adds records, while blocks are charged; wait for it.

    Raises StagingEndedError if the data have changed meanwhile, or a shard broke off; ShardMissing.
    """
    token = fresh_key(_TOKEN)
    with current():
        file.begin(token)
    digest = file.write(change, token)
    gather(shards, Ping(), policy)
    _send(change, token, shards, policy, current)
    while _are_busy(token, shards, policy):
        time.sleep(_PAUSE)
    return StagedAddition(token, change, digest)


def _are_busy(
    token: bytes, shards: Mapping[int, CheckedTransport], policy: MissingShardPolicy
) -> bool:
    """Tell whether a copy of a shard is still preparing."""
    for place in range(max((len(one.transports) for one in shards.values()), default=0)):
        copies = {n: s.copy(place) for n, s in shards.items() if place < len(s.transports)}
        if any(gather(copies, IsStaging(token), policy).values()):
            return True
    return False


def _send(
    change: ClusterChange,
    token: bytes,
    shards: Mapping[int, CheckedTransport],
    policy: MissingShardPolicy,
    current: Current,
) -> None:
    """Send every shard its part; what is sent after an erasure would bring somebody back."""
    for number, shard in shards.items():
        part = change.task(number)
        assert isinstance(part, Add)  # noqa: S101 (only additions are staged)
        with current():
            reply = shard.send(Stage(token, part.integers, part.rows, part.subjects))
        try:
            reply.result(policy.deadline)
        except ShardUnreachable:
            raise StagingEndedError from None
