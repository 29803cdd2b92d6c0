"""A shard that is opened when it is needed, and again after it has failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vicinal.distributed._messages import Message, Task
from vicinal.distributed._shard_server import ShardServer
from vicinal.errors import ShardUnreachable, StorageFailed, StoreInUse


class ReopeningShard:
    """The shard in a folder, used by one process.

    Parameters
    ----------
    path : Path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: ShardServer | None = None

    def handle(self, message: Message | Task) -> Any:
        """Do a task.

        Raises
        ------
        ShardUnreachable
            If the disk fails, or if another process has the folder: it may not have let go of it
            yet. Any other refusal is the shard's own, and comes as it is.
        """
        try:
            if self._server is None:
                self._server = ShardServer.open(self._path)
            return self._server.handle(message)
        except (StorageFailed, StoreInUse) as error:
            self.close()
            raise ShardUnreachable(str(error)) from None

    def close(self) -> None:
        """Let go of the folder; the next message opens it again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
