"""Shards as Ray actors: thin wrappers whose retries are harmless.

Ray restarts an actor that dies and sends its calls again, without end: a shard carries out an
order once, whoever sends it how often. Nothing that Ray keeps, logs or reports holds anything
private but the sums on their way to the coordinator: whatever goes wrong inside an actor comes back
as a kind and a public sentence, never as a traceback.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vicinal import errors
from vicinal.distributed.gathering import ShardMissing, ShardSilent
from vicinal.distributed.local import KeptShard
from vicinal.distributed.nearest import Drawn, NearestPart
from vicinal.distributed.orders import Order
from vicinal.distributed.tasks import Task
from vicinal.errors import InvalidInput, MissingExtra, PrivacyRefused, StorageFailed, VicinalError
from vicinal.neighbours.integers import IntegerMatrix

NAMESPACE = "vicinal"
_LITTLE = 0.001
DONE, SILENT = "done", "silent"
_PARTING = 10.0
"""Seconds that an actor has for closing its files; afterwards the system closes them."""

_STARTING = 120.0
"""Seconds that processes may take to start on an engine that was started with them."""

_DRAWING = 120.0
"""Seconds that a draw of Private-kNN may take, with a restart of its actor."""

Outcome = tuple[str, Any]
"""What came of a call: its kind, and the sums or a public sentence."""


class ShardActor:
    """One shard in a process of its own; see :class:`~vicinal.distributed.keeper.ShardKeeper`.

    The folder is opened by the first call, not here: an actor that cannot be made is not restarted.

    Parameters
    ----------
    path : str
        The shard's folder, on the machine of the actor.
    """

    def __init__(self, path: str) -> None:
        self._shard = KeptShard(Path(path))

    def do(self, task: Task) -> Outcome:
        """Do a task; what comes of it is private."""
        return told(lambda: self._shard.do(task))

    def settle(self, turn: int) -> Outcome:
        """Have the votes before `turn` deleted."""
        return told(lambda: self._shard.settle(turn))

    def process(self) -> int:
        """Return the number of the actor's process."""
        return os.getpid()

    def leave(self) -> Outcome:
        """Close the folder."""
        return told(self._shard.close)


def told(work: Callable[[], Any]) -> Outcome:
    """Do some work; return its result, or what may be said about why there is none."""
    try:
        return DONE, work()
    except (InvalidInput, PrivacyRefused) as error:
        return type(error).__name__, str(error)
    except (ShardSilent, VicinalError) as error:
        return SILENT, str(error)
    except Exception as error:  # noqa: BLE001 (its message and its traceback could quote records)
        return SILENT, f"A shard met with a fault ({type(error).__name__})."


@dataclass(slots=True, eq=False)
class Mail:
    """Puts the order of a block into Ray's store once, however many shards it goes to."""

    ray: Any
    _order: Order | None = None
    _stored: Any = None

    def stored(self, order: Order) -> Any:
        """Return a reference to an order; it holds public things only."""
        if order is not self._order:
            self._order, self._stored = order, self.ray.put(order)
        return self._stored


@dataclass(frozen=True, slots=True)
class RayLink:
    """The way to an actor."""

    mail: Mail
    actor: Any

    def send(self, task: Task) -> RayPending:
        """Send a task without waiting."""
        sent = self.mail.stored(task) if isinstance(task, Order) else task
        return RayPending(self.mail.ray, self.actor.do.remote(sent))

    def settle(self, turn: int) -> None:
        """Tell the actor without waiting."""
        self.actor.settle.remote(turn)

    def close(self) -> None:
        """Have the folder closed, if the actor is there, and end the actor."""
        with suppress(self.mail.ray.exceptions.RayError):
            self.mail.ray.get(self.actor.leave.remote(), timeout=_PARTING)
        self.mail.ray.kill(self.actor)


@dataclass(frozen=True, slots=True)
class RayPending:
    """A call under way."""

    ray: Any
    call: Any

    def result(self, seconds: float) -> Any:
        """Return what came of it, or raise what the shard refused, or ShardSilent."""
        try:
            kind, found = self.ray.get(self.call, timeout=seconds)
        except self.ray.exceptions.RayError as error:
            raise ShardSilent(_why(self.ray, error)) from None
        if kind == DONE:
            return found
        if kind == SILENT:
            raise ShardSilent(found)
        raise getattr(errors, kind)(found)


def _why(ray: Any, error: Exception) -> str:
    """Return why nothing came, in public words: Ray's own could quote an actor."""
    if isinstance(error, ray.exceptions.GetTimeoutError):
        return ""
    return f"Its process cannot be reached ({type(error).__name__})."


class NearestActor:
    """One shard of Private-kNN in a process of its own."""

    def __init__(self, part: NearestPart) -> None:
        self._shard = part.shard()

    def draw(self, queries: IntegerMatrix) -> Outcome:
        """Return the k nearest of a fresh sample; private."""
        return told(lambda: self._shard.draw(queries))


@dataclass(frozen=True, slots=True)
class RayDrawing:
    """The way to an actor of Private-kNN; a draw that is lost is made anew, with new coins."""

    ray: Any
    actor: Any

    def draw(self, queries: IntegerMatrix) -> Callable[[], Drawn]:
        """Ask for a draw without waiting."""
        pending = RayPending(self.ray, self.actor.draw.remote(queries))
        return lambda: self._waited(pending)

    def _waited(self, pending: RayPending) -> Drawn:
        try:
            drawn: Drawn = pending.result(_DRAWING)
        except ShardSilent:
            raise ShardMissing(
                "A shard did not come back, so its queries are not answered. What was planned for "
                "them is used up."
            ) from None
        return drawn


class RayCluster:
    """A Ray engine that runs shards.

    Parameters
    ----------
    address : str or None
        Of a running engine; None starts one on this machine, which ends with this process.
    cpus : int, optional
        Processor cores for an engine on this machine.
    memory : int, optional
        Bytes of the object store of an engine on this machine.

    Raises
    ------
    MissingExtra
        If Ray is not installed.
    StorageFailed
        If the engine does not start, or cannot be reached.
    """

    def __init__(
        self, address: str | None = None, *, cpus: int | None = None, memory: int | None = None
    ) -> None:
        self._ray = ray_module()
        here = {} if address else {"num_cpus": cpus, "object_store_memory": memory}
        try:
            self._ray.init(
                address or "local",
                namespace=NAMESPACE,
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level="error",
                **here,
            )
        except Exception as error:  # noqa: BLE001 (Ray raises many kinds; none is about records)
            raise StorageFailed(f"Ray cannot be used ({type(error).__name__}).") from None
        self._actors: list[Any] = []
        self._patience: float | None = None if address else _STARTING

    def links(self, paths: Sequence[Path]) -> list[RayLink]:
        """Return the ways to actors for the shards in these folders; the actors are made.

        A shard runs on the machine that offers the resource `vicinal-` and the folder's name, such
        as ``ray start --resources='{"vicinal-shard-0": 1}'``; if none does, on any. The folder
        must have the same path there as it would have here.

        On an engine that was started here this waits until the actors run, for two minutes at most:
        no query's patience should go on starting processes. Elsewhere a machine may be away.
        """
        offered = self._ray.cluster_resources()
        make = self._ray.remote(ShardActor)
        # Ray looks for a free core when it places an actor, and counts none while it runs.
        self._actors = [
            make.options(
                max_restarts=-1, max_task_retries=-1, resources=_place(path.name, offered)
            ).remote(str(path.absolute()))
            for path in paths
        ]
        if self._patience is not None:
            running = [actor.process.remote() for actor in self._actors]
            self._ray.wait(running, num_returns=len(running), timeout=self._patience)
        mail = Mail(self._ray)
        return [RayLink(mail, actor) for actor in self._actors]

    def drawings(self, parts: Sequence[NearestPart]) -> list[RayDrawing]:
        """Return the ways to actors for Private-kNN, made of these records.

        Ray keeps the records while the actors live, to make them anew if they die.
        """
        make = self._ray.remote(NearestActor).options(max_restarts=-1, max_task_retries=-1)
        return [RayDrawing(self._ray, make.remote(self._ray.put(part))) for part in parts]

    def task(self, work: Callable[..., Outcome]) -> Any:
        """Return a function that does `work` on the engine; Ray does it again if it is lost."""
        return self._ray.remote(work)

    def outcome(self, task: Any) -> Outcome:
        """Wait for a task and return what came of it."""
        try:
            found: Outcome = self._ray.get(task)
        except self._ray.exceptions.RayError as error:
            return SILENT, _why(self._ray, error)
        return found

    def cores(self) -> int:
        """Return how many cores the engine has."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    @property
    def address(self) -> str:
        """Where other processes reach the engine."""
        return str(self._ray.get_runtime_context().gcs_address)

    def processes(self) -> list[int]:
        """Return the processes of the actors made last, once they run."""
        return [int(pid) for pid in self._ray.get([a.process.remote() for a in self._actors])]

    def stop(self) -> None:
        """Leave the engine; one that was started here ends, and all actors with it."""
        self._ray.shutdown()


def _place(name: str, offered: Mapping[str, float]) -> dict[str, float]:
    """Return what an actor asks of its machine: a little of what only the right one offers."""
    resource = f"vicinal-{name}"
    return {resource: _LITTLE} if resource in offered else {}


def ray_module() -> Any:
    """Return Ray, with its reports to the outside switched off whatever the environment says."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise MissingExtra(
            "Shards on several machines need Ray. Install it with: pip install 'vicinal[ray]'"
        ) from None
    return ray
