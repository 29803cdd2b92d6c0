"""The way to a shard in this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal.distributed._messages import Message, SearchAhead, Task
from vicinal.distributed._reopening import ReopeningShard
from vicinal.distributed._sum_tree import SumNode
from vicinal.distributed._transport import ShardTransport
from vicinal.errors import VicinalError


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
