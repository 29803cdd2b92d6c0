"""A shard that is opened when it is needed, and again after it has failed."""

from __future__ import annotations

from pathlib import Path
from threading import RLock
from typing import Any

from vicinal.distributed._folders import ShardFolder
from vicinal.distributed._messages import Message, Task
from vicinal.distributed._shard_server import ShardServer, another_shard
from vicinal.errors import (
    InvalidInput,
    ShardUnreachable,
    StorageFailed,
    StoreDamaged,
    StoreInUse,
)


class ReopeningShard:
    """The shard in a folder, used by one process.

    `path`: the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: ShardServer | None = None
        self._lock = RLock()

    def handle(self, message: Message | Task) -> Any:
        """Do a task, after those of other threads that came before.

        Raises ShardUnreachable if the disk fails, or if another process has the folder: it may not
        have let go of it yet. Raises StoreDamaged if the folder is missing or damaged: later it
        would be no better. Raises StoreOutdated if it is another shard's. Any further refusal is
        the shard's own, and comes as it is.
        """
        with self._lock:
            return self._handled(message)

    def _handled(self, message: Message | Task) -> Any:
        if self._server is not None and not self._server.is_consistent:
            self.close()
        try:
            if self._server is None:
                self._server = self._opened(message)
            return self._server.handle(message)
        except StoreDamaged:
            self.close()
            raise
        except (StorageFailed, StoreInUse) as error:
            self.close()
            raise ShardUnreachable(str(error)) from None

    def _opened(self, message: Message | Task) -> ShardServer:
        """Open the folder, unless it is another shard's: a copy of one shares the other's lock."""
        try:
            shard_folder = ShardFolder.read(self._path)
            if isinstance(message, Message) and shard_folder.folder.identity != message.shard:
                raise another_shard(message.number)
            return ShardServer.open(self._path)
        except InvalidInput as error:
            raise StoreDamaged(f"{error} Bring it back, or restore a backup.") from None

    def close(self) -> None:
        """Let go of the folder; the next message opens it again."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()
