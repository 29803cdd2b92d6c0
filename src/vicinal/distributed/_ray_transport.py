"""The way to a shard on Ray: to the actor that has it open, and to one that can take its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vicinal import errors
from vicinal.distributed._messages import Message, SearchAhead, Task, VoteRequest
from vicinal.errors import ShardUnreachable
from vicinal.neighbours._kernels import IntegerMatrix

DONE, UNREACHABLE = "done", "unreachable"
_CLOSING = 10.0
"""Seconds that an actor has for closing its files; afterwards the system closes them."""

_PIECE = 64 << 10
"""Bytes of queries in one argument of a call: above 100 KB Ray puts an argument elsewhere."""

CallResult = tuple[str, Any]
"""What came of a call: DONE and its value; or UNREACHABLE, or an error's name, and a sentence."""


@dataclass(slots=True, eq=False)
class RayTransport:
    """The way to an actor, and to its spare.

    Whichever is called opens the shard's folder, if the other has not got it: the folder's lock
    decides, which the system takes back only from a process that is dead. So the spare owns nothing
    until the other has died; then it answers at once, having been started and imported long before.
    Ray starts the dead one anew, and that is the spare from now on.

    A vote request travels in the call itself. Ray would put one that is large into its store and
    send a reference: then the shard's machine asks where it lies, and asks for it, which on a slow
    network is two ways there and back more. So it is cut into arguments that are not large.

    - `actor`: who is called now.
    - `start_spare`: starts a spare. It is called when the shard has answered for the first time:
      until then its machine has better things to do.
    - `start_sums`: starts an actor that adds for shards, on this shard's machine.
    """

    ray: Any
    actor: Any
    start_spare: Callable[[], Any] | None = None
    start_sums: Callable[[], Any] | None = None
    _spare: Any = None

    def send(self, message: Message | Task) -> RayReply:
        """Send a message without waiting."""
        return RayReply(self, self.actor, self.actor.handle.remote(*split_message(message)))

    def close(self) -> None:
        """Have the folder closed, if an actor is there, and end the actors."""
        for actor in filter(None, (self.actor, self._spare)):
            with suppress(self.ray.exceptions.RayError):
                self.ray.get(actor.close.remote(), timeout=_CLOSING)
            self.ray.kill(actor)

    def abandon(self) -> None:
        """End the actors; the system closes their files."""
        for actor in filter(None, (self.actor, self._spare)):
            self.ray.kill(actor)

    def sum_node(self, shards: Sequence[RayTransport]) -> RaySums:
        """Return an inner node on this shard's machine."""
        assert self.start_sums is not None  # noqa: S101 (whoever makes transports for a tree)
        return RaySums(self.ray, self.start_sums(), list(shards))

    def note_answer(self) -> None:
        """Note that the shard has answered."""
        if self._spare is None and self.start_spare is not None:
            self._spare = self.start_spare()

    def switch_to_spare(self, actor: Any) -> None:
        """Call the other actor from now on: this one cannot be reached, or lacks the folder."""
        if self._spare is not None and actor is self.actor:
            self.actor, self._spare = self._spare, self.actor


@dataclass(frozen=True, slots=True)
class RayReply:
    """A call under way."""

    transport: RayTransport | RaySums
    actor: Any
    call: Any

    def result(self, seconds: float) -> Any:
        """Return what came of it, or raise what the shard refused, or ShardUnreachable."""
        kind, result = call_result(self.transport.ray, self.call, seconds)
        if kind == UNREACHABLE:
            self.transport.switch_to_spare(self.actor)
        else:
            self.transport.note_answer()
        if kind == DONE:
            return result
        raise ShardUnreachable(result) if kind == UNREACHABLE else getattr(errors, kind)(result)


def call_result(ray: Any, call: Any, seconds: float | None = None) -> CallResult:
    """Wait for a call and return what came of it; raise ShardUnreachable if it takes too long."""
    try:
        result: CallResult = ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        raise ShardUnreachable from None  # it may be at work, so nobody else could do it
    except ray.exceptions.RayError as error:
        # Ray's own words could quote an actor.
        return UNREACHABLE, f"Its process cannot be reached ({type(error).__name__})."
    return result


@dataclass(slots=True, eq=False)
class RaySums:
    """The way to an actor that adds for some shards.

    It is told which actors those are, and again whenever one of them has changed places with its
    spare, or it has failed, as it may have been started anew.
    """

    ray: Any
    actor: Any
    shards: list[RayTransport]
    _known: list[Any] | None = None

    def send(self, messages: Sequence[Message], seconds: float) -> RayReply:
        """Send messages of one task without waiting."""
        actors = [shard.actor for shard in self.shards]
        if self._known != actors:
            self.actor.connect.remote(actors)
            self._known = actors
        pieces = split_message(tuple(messages))
        return RayReply(self, self.actor, self.actor.handle.remote(seconds, *pieces))

    def note_answer(self) -> None:
        """Do nothing: it has no spare."""

    def switch_to_spare(self, actor: Any) -> None:  # noqa: ARG002 (there is none)
        """Have the actor told again which shards are its own."""
        self._known = None

    def close(self) -> None:
        """End the actor."""
        self.ray.kill(self.actor)


def split_message(message: Message | Task | tuple[Message, ...]) -> list[Any]:
    """Return messages of one task with its first queries, and the other queries in pieces."""
    if isinstance(message, tuple):
        first, *more = split_message(message[0])
        # One object for all of them, which travels once.
        return [tuple(replace(one, task=first.task) for one in message), *more]
    if not (isinstance(message, Message) and isinstance(message.task, VoteRequest | SearchAhead)):
        return [message]
    request = message.task
    rows = max(1, _PIECE * len(request.queries) // max(1, request.queries.nbytes))
    end = max(1, len(request.queries))
    first, *more = [request.queries[at : at + rows] for at in range(0, end, rows)]
    return [replace(message, task=replace(request, queries=first)), *more]


def join_message(message: Any, more: Sequence[IntegerMatrix]) -> Any:
    """Return what :func:`split_message` has split, or any other message as it is."""
    if not more:
        return message
    request = (message[0] if isinstance(message, tuple) else message).task
    joined = replace(request, queries=np.concatenate([request.queries, *more]))
    if isinstance(message, tuple):
        return tuple(replace(one, task=joined) for one in message)
    return replace(message, task=joined)
