"""The way to a shard on Ray: to the actor that has it open, and to one that can take its place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vicinal import errors
from vicinal.distributed._fan_out import ShardUnreachable
from vicinal.distributed._tasks import Task
from vicinal.distributed._vote_request import cut

DONE, SILENT = "done", "silent"
_PARTING = 10.0
"""Seconds that an actor has for closing its files; afterwards the system closes them."""

Outcome = tuple[str, Any]
"""What came of a call: its kind, and the sums or a public sentence."""


@dataclass(slots=True, eq=False)
class RayTransport:
    """The way to an actor, and to its spare.

    Whichever is asked opens the shard's folder, if the other has not got it: the folder's lock
    decides, which the system takes back only from a process that is dead. So the spare owns nothing
    until the other has died; then it answers at once, having been started and imported long before.
    Ray starts the dead one anew, and that is the spare from now on.

    An order travels in the message itself. Ray would put one that is large into its store and send
    a reference: then the shard's machine asks where it lies, and asks for it, which on a slow
    network is two ways there and back more. So it is cut into arguments that are not large.

    Attributes
    ----------
    ray
        The module.
    actor
        Who is asked now.
    hire : callable or None
        Makes a spare. It is called when the shard has answered for the first time: until then its
        machine has better things to do.
    """

    ray: Any
    actor: Any
    hire: Callable[[], Any] | None = None
    _spare: Any = None

    def send(self, task: Task) -> RayReply:
        """Send a task without waiting."""
        return RayReply(self, self.actor, self.actor.do.remote(*cut(task)))

    def settle(self, turn: int) -> None:
        """Tell the actor without waiting."""
        self.actor.settle.remote(turn)

    def close(self) -> None:
        """Have the folder closed, if an actor is there, and end the actors."""
        for actor in filter(None, (self.actor, self._spare)):
            with suppress(self.ray.exceptions.RayError):
                self.ray.get(actor.leave.remote(), timeout=_PARTING)
            self.ray.kill(actor)

    def heard(self) -> None:
        """Take note that the shard has answered."""
        if self._spare is None and self.hire is not None:
            self._spare = self.hire()

    def unheard(self, actor: Any) -> None:
        """Take note that an actor cannot be reached, or has not got the folder: ask the other."""
        if self._spare is not None and actor is self.actor:
            self.actor, self._spare = self._spare, self.actor


@dataclass(frozen=True, slots=True)
class RayReply:
    """A call under way."""

    link: RayTransport
    actor: Any
    call: Any

    def result(self, seconds: float) -> Any:
        """Return what came of it, or raise what the shard refused, or ShardUnreachable."""
        kind, found = outcome(self.link.ray, self.call, seconds)
        if kind == SILENT:
            self.link.unheard(self.actor)
        else:
            self.link.heard()
        return delivered(kind, found)


def outcome(ray: Any, call: Any, seconds: float | None = None) -> Outcome:
    """Wait for a call and return what came of it; raise ShardUnreachable if it takes too long."""
    try:
        found: Outcome = ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        raise ShardUnreachable from None  # it may be at work, so nobody else could do it
    except ray.exceptions.RayError as error:
        # Ray's own words could quote an actor.
        return SILENT, f"Its process cannot be reached ({type(error).__name__})."
    return found


def delivered(kind: str, found: Any) -> Any:
    """Return what came of a call, or raise what was refused, or ShardUnreachable."""
    if kind == DONE:
        return found
    raise ShardUnreachable(found) if kind == SILENT else getattr(errors, kind)(found)
