"""A shard that is opened when it is needed, and again after it has failed; in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal.distributed._fan_out import ShardUnreachable
from vicinal.distributed._shard_server import ShardServer
from vicinal.distributed._tasks import Task
from vicinal.errors import PrivacyRefused, StorageFailed


class ReopeningShard:
    """The shard in a folder, used by one process.

    Parameters
    ----------
    path : Path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keeper: ShardServer | None = None

    def do(self, task: Task) -> Any:
        """Do a task; ShardUnreachable if the disk fails."""
        try:
            return task.done_by(self._open())
        except StorageFailed as error:
            self.close()
            raise ShardUnreachable(str(error)) from None

    def settle(self, turn: int) -> None:
        """Have the votes before `turn` deleted; if the disk fails, a later turn will do it."""
        try:
            self._open().settle(turn)
        except (ShardUnreachable, StorageFailed):
            self.close()

    def close(self) -> None:
        """Let go of the folder; the next order opens it again."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()

    def _open(self) -> ShardServer:
        if self._keeper is None:
            try:
                self._keeper = ShardServer.open(self._path)
            except PrivacyRefused as error:
                # Its last process may not have let go of the folder yet.
                raise ShardUnreachable(str(error)) from None
        return self._keeper


@dataclass(frozen=True, slots=True)
class LocalTransport:
    """The way to a shard in this process; tasks are done when their result is asked for."""

    shard: ReopeningShard

    def send(self, task: Task) -> LocalReply:
        """Take a task."""
        return LocalReply(self.shard, task)

    def settle(self, turn: int) -> None:
        """Have the votes before `turn` deleted."""
        self.shard.settle(turn)

    def close(self) -> None:
        """Close the shard."""
        self.shard.close()


@dataclass(frozen=True, slots=True)
class LocalReply:
    """A task that is done when somebody waits for it."""

    shard: ReopeningShard
    task: Task

    def result(self, seconds: float) -> Any:  # noqa: ARG002 (it takes what it takes)
        """Do it."""
        return self.shard.do(self.task)


def local_transports(paths: Sequence[Path]) -> list[LocalTransport]:
    """Return the ways to the shards in these folders, all in this process."""
    return [LocalTransport(ReopeningShard(path)) for path in paths]
