"""The way to one shard, wherever it runs: what each transport does, and raises."""

from __future__ import annotations

from collections.abc import Sequence
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

    def abandon(self) -> None:
        """Let go of a shard that may not answer, and end its process, without waiting for it."""

    def sum_node(self, shards: Sequence[Any]) -> SumTransport:
        """Return the way to a new inner node, beside this shard, that adds for some shards.

        `shards` are the ways to them from here, of this type.
        """


class SumTransport(Protocol):
    """The way to an inner node, which sends messages on to shards and adds what they send."""

    def send(self, messages: Sequence[Message], seconds: float) -> PendingReply:
        """Send a message for each shard, of one task, without waiting for what comes of it.

        It is a :class:`~vicinal.distributed._messages.GroupAnswer`; or ShardUnreachable is raised,
        also if a shard takes longer than so many seconds.
        """

    def close(self) -> None:
        """End the node."""
