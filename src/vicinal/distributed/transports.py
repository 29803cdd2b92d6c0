"""Transports of messages to shards: the interface, and shards in this process."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import RLock
from typing import Protocol

from vicinal import errors
from vicinal.distributed._membership import check_member, create_wrong_shard_error
from vicinal.distributed.folders import MemberFolder
from vicinal.distributed.messages import Message, ShardAnswer
from vicinal.distributed.shard_server import ShardServer

Reply = Callable[[float], ShardAnswer]
"""Waits for the answer to a message that was sent, given the seconds to wait at most.

Raises ShardUnreachable if there is no answer in time. A refusal of the shard is raised unchanged.
"""


class Transport(Protocol):
    """Carries messages to one shard, wherever it runs."""

    def send(self, message: Message) -> Reply:
        """Send a message without waiting, and return a function that waits for the answer."""

    def close(self) -> None:
        """Release the shard, which closes its folder."""


class LocalShard:
    """A shard of this process, and the transport to it.

    The folder `path` is opened at the first message, and again after a failure.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server: ShardServer | None = None
        self._is_read_only = False
        self._lock = RLock()

    def handle(self, message: Message) -> ShardAnswer:
        """Run the task of a message and return the shard's answer; one thread at a time.

        Raises ShardUnreachable if the disk fails, or if another process has the folder open and may
        release it soon. Raises StoreDamaged if the folder is missing or damaged, which waiting does
        not repair. Raises StoreOutdated if the folder is another shard's, and the shard's refusals.
        """
        with self._lock:
            is_ready = self._server is not None and self._server.is_consistent
            if not is_ready or (self._is_read_only and not message.read_only):
                self.close()
            try:
                if self._server is None:
                    self._server = self._open_server(message)
                return self._server.handle(message)
            except errors.StoreDamaged:
                self.close()
                raise
            except (errors.StorageFailed, errors.StoreInUse) as error:
                self.close()
                raise errors.ShardUnreachable(str(error)) from None

    def _open_server(self, message: Message) -> ShardServer:
        """Open the shard in the folder after a check that `message` is addressed to it.

        The identity is checked first, because a copy of another shard would take that shard's lock.
        Raises StoreOutdated for another shard; StoreDamaged if the folder contains no shard.
        """
        self._is_read_only = message.read_only
        check = partial(check_member, cluster=message.cluster, number=message.number)
        try:
            if MemberFolder.read(self._path).folder.identity != message.shard:
                raise create_wrong_shard_error(message.number)
            return ShardServer.open(self._path, check=check, read_only=message.read_only)
        except errors.InvalidInput as error:
            raise errors.StoreDamaged(f"{error} Bring it back, or restore a backup.") from None

    def close(self) -> None:
        """Close the folder; the next message opens it again."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def send(self, message: Message) -> Reply:
        """Run the task of a message; return a function that returns or raises its result."""
        reply: Future[ShardAnswer] = Future()
        try:
            reply.set_result(self.handle(message))
        except errors.VicinalError as error:
            reply.set_exception(error)
        return reply.result


def local_transports(paths: Sequence[Path]) -> list[Transport]:
    """Return a transport, in this process, for the shard in each of the folders `paths`."""
    return [LocalShard(path) for path in paths]
