"""What travels between coordinator and shard: a task, who sends it to whom, and what comes back.

Every message says for which shard of which cluster it is, and where the coordinator saw that shard
last; every answer shows how the shard's chain went on from there. So a folder that is in the wrong
place, an old copy, or a copy that ran elsewhere is refused at its first message, by one of the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vicinal.distributed._fan_out import PendingReply, ShardTransport
from vicinal.distributed._membership import ShardRecord, ShardState
from vicinal.distributed._tasks import Task
from vicinal.ledger._chain import ChainLink

if TYPE_CHECKING:
    from vicinal.distributed._shard_server import ShardServer


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """A task for one shard.

    Attributes
    ----------
    task : Task
        What to do.
    cluster, shard : str
        Ids of the cluster and of the shard, in hexadecimal digits.
    number : int
        The shard's place.
    turn : int
        The coordinator's clock.
    epochs : tuple of bytes
        The coordinator's epochs since the shard last answered, this opening's last.
    seen : ShardState
        Where the coordinator saw the shard last.
    """

    task: Task
    cluster: str
    shard: str
    number: int
    turn: int
    epochs: tuple[bytes, ...]
    seen: ShardState

    def done_by(self, keeper: ShardServer) -> ShardAnswer:
        """Have a shard check the message and do the task."""
        return keeper.perform(self)


@dataclass(frozen=True, slots=True, eq=False)
class ShardAnswer:
    """What came of a task, and the links of the shard's chain since it was seen last; private."""

    value: Any
    links: tuple[ChainLink, ...]


@dataclass(slots=True, eq=False)
class CheckedTransport:
    """A way to a shard whose messages and answers are checked on both sides.

    Attributes
    ----------
    link : ShardTransport
        The way.
    record : ShardRecord
        What is known of the shard.
    cluster : str
        The cluster's id.
    turn : callable
        Returns the coordinator's clock.
    """

    link: ShardTransport
    record: ShardRecord
    cluster: str
    turn: Callable[[], int]

    def send(self, task: Task) -> CheckedPending:
        """Send a task without waiting."""
        record, seen = self.record, self.record.state
        message = Message(
            task, self.cluster, record.identity, record.number, self.turn(), record.epochs, seen
        )
        return CheckedPending(record, seen, self.link.send(message))

    def settle(self, turn: int) -> None:
        """Tell the shard, without waiting, that all answers before `turn` are durable."""
        self.link.settle(turn)

    def close(self) -> None:
        """Let go of the shard."""
        self.link.close()


@dataclass(frozen=True, slots=True)
class CheckedPending:
    """A message under way."""

    record: ShardRecord
    seen: ShardState
    pending: PendingReply

    def result(self, seconds: float) -> Any:
        """Return what came of the task, or raise PrivacyRefused if another shard has done it."""
        answer: ShardAnswer = self.pending.result(seconds)
        self.record.accept(self.seen, answer.links)
        return answer.value
