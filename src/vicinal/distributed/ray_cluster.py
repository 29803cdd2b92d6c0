"""Shards as Ray actors: thin wrappers whose restarts are harmless, and their transport.

Ray restarts an actor that dies, without end, and the coordinator sends its calls again: a shard
charges a block once, however often the request comes. Nothing that Ray keeps, logs or reports
holds anything private but the sums on their way to the coordinator: whatever goes wrong inside an
actor comes back as a kind and a public sentence, never as a traceback.
"""

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from vicinal import errors
from vicinal.distributed import messages as tasks
from vicinal.distributed.transports import ReopeningShard, Reply, Transport
from vicinal.neighbours.kernels import IntegerMatrix

NAMESPACE = "vicinal"
_LITTLE = 0.001
_STARTING = 120.0
"""Seconds that processes may take to start on an engine that was started with them."""

_RULE = "RAY_AUTH_MODE"

DONE, UNREACHABLE = "done", "unreachable"
_CLOSING = 10.0
"""Seconds that an actor has for closing its files; afterwards the system closes them."""

_PATIENCE = 10.0
"""Seconds that an engine's address may take to answer."""

_PIECE = 64 << 10
"""Bytes of queries in one argument of a call: above 100 KB Ray puts an argument elsewhere."""

CallResult = tuple[str, Any]
"""What came of a call: DONE and its value; or UNREACHABLE, or an error's name, and a sentence."""


class ShardActor:
    """One shard in a process of its own.

    The folder is opened by the first call, not here: an actor that cannot be made is not restarted.

    `path`: the shard's folder, on the machine of the actor.
    """

    def __init__(self, path: str) -> None:
        self._shard = ReopeningShard(Path(path))

    def handle(self, message: tasks.Message, *more: IntegerMatrix) -> CallResult:
        """Do a task whose queries may come in pieces; what comes of it is private."""
        return run_quietly(lambda: self._shard.handle(join_message(message, more)))

    def process(self) -> int:
        return os.getpid()

    def close(self) -> CallResult:
        return run_quietly(self._shard.close)


def run_quietly(work: Callable[[], Any]) -> CallResult:
    """Do some work; return its result, or a public sentence why there is none."""
    try:
        return DONE, work()
    except (errors.InvalidInput, errors.PrivacyRefused, errors.StoreDamaged) as error:
        return type(error).__name__, str(error)
    except errors.VicinalError as error:
        return UNREACHABLE, str(error)
    except Exception as error:  # noqa: BLE001 (its message and its traceback could quote records)
        return UNREACHABLE, f"A shard failed ({type(error).__name__})."


@dataclass(slots=True, eq=False)
class RayTransport:
    """Carries messages to an actor, which Ray starts anew when its process has died.

    A vote request travels in the call itself. Ray would put one that is large into its store and
    send a reference: then the shard's machine asks where it lies, and asks for it, which on a slow
    network is two ways there and back more. So it is cut into arguments that are not large.
    """

    ray: Any
    actor: Any

    def send(self, message: tasks.Message) -> Reply:
        call = self.actor.handle.remote(*split_message(message))
        return partial(self._received, call)

    def _received(self, call: Any, seconds: float) -> tasks.ShardAnswer:
        kind, result = call_result(self.ray, call, seconds)
        if kind == UNREACHABLE:
            raise errors.ShardUnreachable(result)
        if kind != DONE:
            raise getattr(errors, kind)(result)
        answer: tasks.ShardAnswer = result
        return answer

    def close(self) -> None:
        """Have the folder closed, if the actor is there, and end the actor."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.get(self.actor.close.remote(), timeout=_CLOSING)
        self.ray.kill(self.actor)


def call_result(ray: Any, call: Any, seconds: float | None = None) -> CallResult:
    """Wait for a call and return what came of it; raise ShardUnreachable if it takes too long."""
    try:
        result: CallResult = ray.get(call, timeout=seconds)
    except ray.exceptions.GetTimeoutError:
        raise errors.ShardUnreachable from None  # it may be at work, so nobody else could do it
    except ray.exceptions.RayError as error:
        # Ray's own words could quote an actor.
        return UNREACHABLE, f"Its process cannot be reached ({type(error).__name__})."
    return result


def split_message(message: tasks.Message) -> list[Any]:
    """Return a message with its first queries, and the other queries in pieces."""
    request = message.task
    if not isinstance(request, tasks.VoteRequest):
        return [message]
    rows = max(1, _PIECE * len(request.queries) // max(1, request.queries.nbytes))
    end = max(1, len(request.queries))
    first, *more = [request.queries[at : at + rows] for at in range(0, end, rows)]
    return [replace(message, task=replace(request, queries=first)), *more]


def join_message(message: tasks.Message, more: Sequence[IntegerMatrix]) -> tasks.Message:
    """Return what :func:`split_message` has split."""
    request = message.task
    if not (more and isinstance(request, tasks.VoteRequest)):
        return message
    queries = np.concatenate([request.queries, *more])
    return replace(message, task=replace(request, queries=queries))


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
        If the engine does not start, or cannot be reached, or if it asks for a token and this
        machine has none.

    Examples
    --------
    >>> from pathlib import Path
    >>> from vicinal.distributed import RayCluster
    >>> engine = RayCluster(cpus=2)  # doctest: +SKIP
    >>> shards = engine.transports([Path("cluster/shard-0")])  # doctest: +SKIP
    >>> engine.stop()  # doctest: +SKIP
    """

    def __init__(
        self, address: str | None = None, *, cpus: int | None = None, memory: int | None = None
    ) -> None:
        self._ray = ray_module()
        if address:
            _check_token()
            _check_address(address)
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
            raise errors.StorageFailed(f"Ray cannot be used ({type(error).__name__}).") from None
        self._transports: list[RayTransport] = []
        self._start_timeout: float | None = None if address else _STARTING

    def transports(self, paths: Sequence[Path]) -> list[Transport]:
        """Make actors for the shards in these folders, and return the transports to them.

        A shard runs on the machine that offers the resource `vicinal-` and the folder's name, such
        as ``ray start --resources='{"vicinal-shard-0": 1}'``; if none does, on any. The folder
        must have the same path there as it would have here.

        On an engine that was started here this waits until the actors run, for two minutes at most:
        no query should wait for processes to start. Elsewhere a machine may be away.
        """
        offered = self._ray.cluster_resources()
        # Ray looks for a free core when it places an actor, and counts none while it runs.
        actor = self._ray.remote(ShardActor)
        self._transports = [
            RayTransport(
                self._ray,
                actor.options(max_restarts=-1, resources=resources_of(path.name, offered)).remote(
                    str(path.absolute())
                ),
            )
            for path in paths
        ]
        if self._start_timeout is not None:
            running = [one.actor.process.remote() for one in self._transports]
            self._ray.wait(running, num_returns=len(running), timeout=self._start_timeout)
        return list(self._transports)

    @property
    def address(self) -> str:
        """Where other processes reach the engine."""
        return str(self._ray.get_runtime_context().gcs_address)

    def processes(self) -> list[int]:
        """Return the processes that have the shards now, once they run."""
        calls = [
            one.actor.process.options(max_task_retries=-1).remote() for one in self._transports
        ]
        return [int(pid) for pid in self._ray.get(calls)]

    def stop(self) -> None:
        """Leave the engine; one that was started here ends, and all actors with it."""
        self._ray.shutdown()


def resources_of(name: str, offered: Mapping[str, float]) -> dict[str, float]:
    """Return what an actor asks of its machine: a little of what only the right one offers."""
    resource = f"vicinal-{name}"
    return {resource: _LITTLE} if resource in offered else {}


def ray_module() -> Any:
    """Return Ray, with its reports to the outside switched off whatever the environment says.

    It shows engines their token, and asks for one, unless the environment has another rule: whoever
    can submit work can read the records. Ray reads that rule when it is imported, and never again.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if "ray" not in sys.modules:
        os.environ.setdefault(_RULE, "token")
    try:
        import ray
    except ImportError:
        raise errors.MissingExtra(
            "Shards on several machines need Ray. Install it with: pip install 'vicinal[ray]'"
        ) from None
    return ray


def _check_token() -> None:
    """Raise StorageFailed if a token is asked for and none is here: Ray may end the process."""
    named = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    here = named or Path.home().joinpath(".ray", "auth_token").is_file()
    if os.environ.get(_RULE) == "token" and not here:
        raise errors.StorageFailed(
            "A Ray engine asks for a token, and this machine has none. Copy the token of the "
            "engine's head (`ray get-auth-token`), or set RAY_AUTH_MODE=disabled if nobody else "
            "can reach the engine's network."
        )


def _check_address(address: str) -> None:
    """Raise StorageFailed if nothing listens there: Ray looks for a minute, then names no cause."""
    try:
        place = urlsplit(address if "//" in address else f"//{address}")
        port = place.port
        if port is None:  # "auto", or a folder
            return
        host = (place.hostname or "").encode("idna")
    except ValueError:
        raise errors.InvalidInput("A Ray engine's address must be auto or HOST:PORT.") from None
    try:
        socket.create_connection((host.decode(), port), _PATIENCE).close()
    except OSError as error:
        kinds = {socket.gaierror: "no such host", ConnectionRefusedError: "connection refused"}
        cause = kinds.get(type(error), "no answer")
        raise errors.StorageFailed(
            f"The Ray engine at {place.hostname}:{port} cannot be reached: {cause}."
        ) from None
