"""How a message gets to a shard and its answer back: the interface, and shards in this process."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Protocol

from vicinal import errors
from vicinal.distributed._membership import another_shard, check_member
from vicinal.distributed.folders import ShardFolder
from vicinal.distributed.messages import Message, ShardAnswer
from vicinal.distributed.shard_server import ShardServer

Reply = Callable[[float], ShardAnswer]
"""A message under way. Called with seconds, it waits for so long at most, and returns the answer.

It raises ShardUnreachable; what the shard refuses is raised as it was raised there.
"""


class Transport(Protocol):
    """Carries messages to one shard, wherever it runs."""

    def send(self, message: Message) -> Reply:
        """Send a message, without waiting for what comes of it."""

    def close(self) -> None:
        """Let go of the shard."""


class ReopeningShard:
    """The shard in a folder, opened by the first message, and again after a failure.

    `path`: the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: ShardServer | None = None
        self._reading = False
        self._lock = RLock()

    def handle(self, message: Message) -> ShardAnswer:
        """Do a task, after those of other threads that came before.

        Raises ShardUnreachable if the disk fails, or if another process has the folder: it may not
        have let go of it yet. Raises StoreDamaged if the folder is missing or damaged: later it
        would be no better. Raises StoreOutdated if it is another shard's. Any further refusal is
        the shard's own, and comes as it is.
        """
        with self._lock:
            ready = self._server is not None and self._server.is_consistent
            if not ready or (self._reading and not message.reading):
                self.close()
            try:
                if self._server is None:
                    self._server = self._opened(message)
                return self._server.handle(message)
            except errors.StoreDamaged:
                self.close()
                raise
            except (errors.StorageFailed, errors.StoreInUse) as error:
                self.close()
                raise errors.ShardUnreachable(str(error)) from None

    def _opened(self, message: Message) -> ShardServer:
        """Open the folder, unless it is another shard's: a copy of one shares the other's lock."""
        self._reading = message.reading
        member = partial(check_member, cluster=message.cluster, number=message.number)
        try:
            if ShardFolder.read(self._path).folder.identity != message.shard:
                raise another_shard(message.number)
            return ShardServer.open(self._path, check=member, reading=message.reading)
        except errors.InvalidInput as error:
            raise errors.StoreDamaged(f"{error} Bring it back, or restore a backup.") from None

    def close(self) -> None:
        """Let go of the folder; the next message opens it again."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()


@dataclass(slots=True, eq=False)
class LocalTransport:
    """Carries messages to a shard in this process: a task is done when it is sent."""

    shard: ReopeningShard

    def send(self, message: Message) -> Reply:
        reply: Future[ShardAnswer] = Future()
        try:
            reply.set_result(self.shard.handle(message))
        except errors.VicinalError as error:
            reply.set_exception(error)
        return reply.result

    def close(self) -> None:
        self.shard.close()


def local_transports(paths: Sequence[Path]) -> list[Transport]:
    """Return transports to the shards in these folders, all in this process."""
    return [LocalTransport(ReopeningShard(path)) for path in paths]
