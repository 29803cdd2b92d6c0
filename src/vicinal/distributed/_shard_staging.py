"""A batch of records that a shard prepares beside blocks, to be added in one short commit."""

from __future__ import annotations

from threading import Thread

from vicinal.distributed._messages import Add, Stage
from vicinal.errors import VicinalError
from vicinal.ledger._protocols import Turn
from vicinal.store._additions import PreparedAddition, prepare_addition
from vicinal.store._opening import OpenStore
from vicinal.store._record_files import StagingEndedError
from vicinal.store._records import StoredRecords

_NONE = b""


class ShardStaging:
    """What a shard has prepared, in memory and beyond the end of its files; one batch at a time.

    All methods are called in the shard's turn; a thread of its own prepares, and has it by `turn`.
    """

    def __init__(self, parts: OpenStore, turn: Turn) -> None:
        self._parts = parts
        self._turn = turn
        self._token = _NONE
        self._thread: Thread | None = None
        self._prepared: PreparedAddition | None = None

    def begin(self, task: Stage) -> None:
        """Prepare a batch, unless it is the one that is being prepared."""
        if task.subjects and task.token == self._token:
            return
        self.end()
        if task.subjects:
            basis = self._parts.ledger.register_version
            self._token = task.token
            arguments = (task.token, records_of(self._parts, task), basis)
            self._thread = Thread(target=self._prepare, args=arguments, daemon=True)
            self._thread.start()

    def is_busy(self, token: bytes) -> bool:
        """Tell whether a batch is still being prepared."""
        thread = self._thread if token == self._token else None
        return thread is not None and thread.is_alive()

    def take(self, token: bytes) -> PreparedAddition | None:
        """Return a batch that is prepared for the data as they are; None if it is not."""
        prepared = self._prepared if token == self._token else None
        return prepared if prepared is not None and prepared.is_current(self._parts) else None

    def end(self) -> None:
        """Forget the batch, and cut it off the files."""
        self._token, self._thread, self._prepared = _NONE, None, None
        self._parts.record_files.drop_staged()

    def _prepare(self, token: bytes, records: StoredRecords, basis: int) -> None:
        try:
            prepared = prepare_addition(self._parts, records, self._turn, basis)
            with self._turn():
                if token == self._token:
                    self._prepared = prepared
        except (StagingEndedError, VicinalError, OSError, ValueError, IndexError):
            return  # the data have changed, or the shard is closed: it is asked to add all at once


def records_of(parts: OpenStore, task: Add | Stage) -> StoredRecords:
    """Return the records of a task."""
    targets = parts.schema.target.targets(task.rows)
    return StoredRecords(task.integers, targets, task.rows, task.subjects)
