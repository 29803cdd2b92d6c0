"""A shard in this process, opened when it is needed, and the way to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

from vicinal.distributed._folders import ShardFolder
from vicinal.distributed._messages import Message, SearchAhead, Task
from vicinal.distributed._shard_server import ShardServer
from vicinal.distributed._shard_tasks import another_shard
from vicinal.distributed._sum_tree import SumNode
from vicinal.distributed._transport import ShardTransport
from vicinal.errors import (
    InvalidInput,
    ShardUnreachable,
    StorageFailed,
    StoreDamaged,
    StoreInUse,
    VicinalError,
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


@dataclass(frozen=True, slots=True)
class LocalTransport:
    """The way to a shard in this process; a task is done when it is sent.

    So nothing is searched ahead: the answers that are waited for would come later for it.
    """

    shard: ReopeningShard

    def send(self, message: Message | Task) -> LocalReply:
        """Do a task."""
        if isinstance(message, Message) and isinstance(message.task, SearchAhead):
            return LocalReply()
        try:
            return LocalReply(self.shard.handle(message))
        except VicinalError as error:
            return LocalReply(error=error)

    def close(self) -> None:
        """Close the shard."""
        self.shard.close()

    def abandon(self) -> None:
        """Close the shard, if it can be closed."""
        with suppress(VicinalError, OSError):
            self.shard.close()

    def sum_node(self, shards: Sequence[ShardTransport]) -> LocalSums:
        """Return an inner node in this process."""
        return LocalSums(SumNode(shards))


@dataclass(frozen=True, slots=True)
class LocalSums:
    """The way to an inner node in this process."""

    node: SumNode

    def send(self, messages: Sequence[Message], seconds: float) -> LocalReply:
        """Do a task."""
        try:
            return LocalReply(self.node.handle(messages, seconds))
        except VicinalError as error:
            return LocalReply(error=error)

    def close(self) -> None:
        """Do nothing: the shards are closed by themselves."""


@dataclass(frozen=True, slots=True)
class LocalReply:
    """What came of a task."""

    value: Any = None
    error: Exception | None = None

    def result(self, seconds: float) -> Any:  # noqa: ARG002 (it has taken what it took)
        """Return it, or raise what was raised."""
        if self.error is not None:
            raise self.error
        return self.value


def local_transports(paths: Sequence[Path]) -> list[LocalTransport]:
    """Return the ways to the shards in these folders, all in this process.

    Examples
    --------
    >>> from pathlib import Path
    >>> from vicinal.distributed import local_transports
    >>> local_transports([Path("cluster/shard-0"), Path("cluster/shard-1")])  # doctest: +SKIP
    """
    return [LocalTransport(ReopeningShard(path)) for path in paths]
