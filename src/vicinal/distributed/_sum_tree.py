"""Many shards through few messages: inner nodes send requests on, and add what comes back.

Sums of integers do not depend on how they are grouped, so the sums are those of shards that were
asked one by one, bit for bit. An inner node holds no records, no budgets and nothing that outlives
a request. It sees what the coordinator would see: votes without noise, and links of chains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vicinal import _checks
from vicinal._arrays import Steps
from vicinal.distributed._fan_out import (
    CheckedTransport,
    MissingShardPolicy,
    RetriedTask,
    results_of,
)
from vicinal.distributed._messages import (
    GroupAnswer,
    Message,
    SearchAhead,
    ShardAnswer,
    VoteRequest,
)
from vicinal.distributed._takeover import outcomes_of
from vicinal.distributed._transport import PendingReply, ShardTransport, SumTransport
from vicinal.errors import ShardUnreachable, StorageFailed
from vicinal.predictors._common.parameter_checks import AUTO
from vicinal.predictors.ind_knn._shard import summed

_FEWEST = 16
"""Shards from which on inner nodes gain more than the further way of a message costs."""


class SumNode:
    """An inner node: sends messages on to shards, and adds what they send.

    `shards`: the ways to them, in the order of the messages.
    """

    def __init__(self, shards: Sequence[ShardTransport]) -> None:
        self._shards = shards

    def handle(self, messages: Sequence[Message], seconds: float) -> GroupAnswer | None:
        """Send each shard its message; return the sum, and links; None for a search ahead.

        Raises ShardUnreachable if a shard cannot be reached, or takes longer. Those that have
        charged keep their votes. Raises StorageFailed if a shard sends something else than sums.
        What a shard refuses is raised as it is.
        """
        if len(messages) != len(self._shards):
            raise ShardUnreachable("A process that adds for shards does not know the way to them.")
        pairs = zip(self._shards, messages, strict=True)
        replies = [shard.send(message) for shard, message in pairs]
        if isinstance(messages[0].task, SearchAhead):
            return None
        answers = [reply.result(seconds) for reply in replies]
        return GroupAnswer(_added(answers), tuple(answer.links for answer in answers))


def _added(answers: Sequence[ShardAnswer]) -> Steps:
    shapes = {np.shape(answer.value) for answer in answers}
    if len(shapes) != 1 or any(answer.value.dtype != np.int64 for answer in answers):
        raise StorageFailed("A shard sent something else than sums. Is it of the same version?")
    return summed(answer.value for answer in answers)


@dataclass(frozen=True, slots=True, eq=False)
class ShardGroup:
    """Some shards behind an inner node for each copy; messages and answers are checked here.

    `shards`: the shards, by number. `nodes`: the way to the node of every copy.
    """

    shards: Mapping[int, CheckedTransport]
    nodes: Sequence[SumTransport]

    def send(self, task: VoteRequest | SearchAhead, seconds: float) -> GroupReply:
        """Send all shards a task through the nodes, without waiting."""
        messages, now = [shard.message(task) for shard in self.shards.values()], time.monotonic()
        replies = [one.send(messages, seconds) for one in self.nodes]
        return GroupReply(self, messages, replies, now)

    @property
    def has_all_copies(self) -> bool:
        """Whether every shard still has a copy behind each node."""
        return all(len(one.transports) == len(self.nodes) for one in self.shards.values())

    def close(self) -> None:
        """End the nodes."""
        for node in self.nodes:
            node.close()


@dataclass(frozen=True, slots=True, eq=False)
class GroupReply:
    """A request of a group under way."""

    group: ShardGroup
    messages: list[Message]
    replies: Sequence[PendingReply]
    sent: float

    def result(self, seconds: float) -> Steps:
        """Return the sum.

        Raises StoreOutdated if another shard took part. Raises ShardUnreachable if copies of a
        shard differ: asked one by one, they are made the same.
        """
        lag = max(shard.lag for shard in self.group.shards.values())
        outcomes = outcomes_of(self.replies, self.sent, seconds, lag, long=False)
        for error in outcomes.errors.values():
            raise error
        answers: list[GroupAnswer] = outcomes.values
        shards, links = self.group.shards.values(), zip(*(a.links for a in answers), strict=True)
        agree = [
            shard.record.accept(message.known, *its)
            for shard, message, its in zip(shards, self.messages, links, strict=True)
        ]
        for shard in shards:
            shard.note_all()
        first, *others = [answer.sums for answer in answers]
        if not (all(agree) and all(np.array_equal(first, other) for other in others)):
            raise ShardUnreachable("Copies of a shard differ.")
        return first


class SumTree:
    """All shards of a cluster, asked one by one or through inner nodes.

    Whatever fails behind a node is asked again without it: shards that had charged find their
    votes, so nobody is charged twice, and what is missing is known by its number.

    - `shards`: the ways to all shards.
    - `policy`: what to do if one is missing.
    - `fan_out`: shards behind an inner node. "auto": the root of their number, and no nodes for
      fewer than 16; so are there none for a number that is not smaller than that of the shards.
    """

    def __init__(
        self,
        shards: Sequence[CheckedTransport],
        policy: MissingShardPolicy,
        fan_out: int | str = AUTO,
    ) -> None:
        self._shards = dict(enumerate(shards))
        self._policy = policy
        size = _fan_out(fan_out, len(shards))
        starts = range(0, len(shards), size) if size < len(shards) else ()
        numbers = [range(at, min(at + size, len(shards))) for at in starts]
        self._groups = [self._group(its) for its in numbers if self._have_as_many_copies(its)]

    def __len__(self) -> int:
        """Return how many shards there are."""
        return len(self._shards)

    def close(self) -> None:
        """End the inner nodes."""
        for group in self._groups:
            group.close()

    def search_ahead(self, search: SearchAhead) -> None:
        """Have all shards search a block, without waiting for them."""
        for group in self._groups:
            group.send(search, self._policy.deadline)
        for number in self._shards.keys() - {n for group in self._groups for n in group.shards}:
            self._shards[number].send(search)

    def gather(
        self,
        request: VoteRequest,
        numbers: Iterable[int],
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[list[Steps], set[int]]:
        """Have shards charge a block, and do `meanwhile` while they are at work.

        Returns sums that add up to theirs, and who is missing. Raises ShardMissing as
        :func:`vicinal.distributed._fan_out.gather`.
        """
        self._regroup()
        until = time.monotonic() + self._policy.deadline
        half = self._policy.deadline / 2
        expected = set(numbers)
        groups = [group for group in self._groups if expected.issuperset(group.shards)]
        replies = [group.send(request, half) for group in groups]
        alone = self._ask(request, expected.difference(*(group.shards for group in groups)))
        if meanwhile is not None:
            meanwhile()
        sums = []
        for group, reply in zip(groups, replies, strict=True):
            try:
                sums.append(reply.result(half))
            except (ShardUnreachable, StorageFailed):
                alone |= self._ask(request, group.shards)
        answered = results_of(alone, until, 0.0, self._policy, len(expected) - len(alone))
        return [*sums, *answered.values()], alone.keys() - answered.keys()

    def _regroup(self) -> None:
        """Have shards that lost a copy asked directly, and those beside them by other nodes."""
        for group in [one for one in self._groups if not one.has_all_copies]:
            group.close()
            self._groups.remove(group)
            copies = len(group.nodes)
            numbers = [n for n, one in group.shards.items() if len(one.transports) == copies]
            if len(numbers) > 1:
                self._groups.append(self._group(numbers))

    def _ask(self, request: VoteRequest, numbers: Iterable[int]) -> dict[int, RetriedTask]:
        """Send a request to shards one by one."""
        sent = {number: RetriedTask(self._shards[number], request) for number in sorted(numbers)}
        for one in sent.values():
            one.send()
        return sent

    def _group(self, numbers: Iterable[int]) -> ShardGroup:
        shards = {number: self._shards[number] for number in numbers}
        copies = zip(*(shard.transports for shard in shards.values()), strict=True)
        return ShardGroup(shards, [ways[0].sum_node(ways) for ways in copies])

    def _have_as_many_copies(self, numbers: Iterable[int]) -> bool:
        """Tell whether all of these shards have as many copies: else they are asked directly."""
        return len({len(self._shards[number].transports) for number in numbers}) == 1


def _fan_out(shape: int | str, shards: int) -> int:
    """Return how many shards stand behind an inner node; all of them: there is none."""
    if shape != AUTO:
        return _checks.integer("fan_out", shape, least=2)
    return shards if shards < _FEWEST else math.isqrt(shards - 1) + 1
