"""The way to one shard, wherever it runs: what each transport does, and raises."""

from __future__ import annotations

from typing import Any, Protocol

from vicinal.distributed._messages import Message, Task


class PendingReply(Protocol):
    """A task under way."""

    def result(self, seconds: float) -> Any:
        """Return what the shard sends within so many seconds, or raise ShardUnreachable.

        What the shard refuses is raised as it was raised there.
        """


class ShardTransport(Protocol):
    """The way to one shard."""

    def send(self, message: Message | Task) -> PendingReply:
        """Send a message, or a task that needs none, without waiting for what comes of it."""

    def close(self) -> None:
        """Let go of the shard."""
