"""Shards as Ray actors, and the transport to them.

Ray restarts a dead actor without limit, and the coordinator sends its messages again. That is safe,
as a shard charges a block once, even if the request is repeated. The sums on their way to the
coordinator are the only private data in Ray's memory, logs and reports: an actor returns an error
as its type and a public sentence, never as a traceback.
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
from vicinal.distributed.transports import LocalShard, Reply, Transport
from vicinal.neighbours.kernels import IntegerMatrix

NAMESPACE = "vicinal"
"""Ray namespace of all actors."""

_PLACEMENT_SHARE = 0.001
"""Amount of a machine's resource `vicinal-NAME` that an actor reserves, to select the machine."""

_START_SECONDS = 120.0
"""Seconds to wait for the start of the actors' processes on an engine on this machine."""

_AUTH_MODE = "RAY_AUTH_MODE"  # environment variable that decides whether Ray requires a token

COMPLETED, UNREACHABLE = "done", "unreachable"
"""Kinds of results of a call: the task returned a value; the shard cannot be reached or failed,
so the coordinator treats it as unreachable."""

_CLOSE_SECONDS = 10.0
"""Seconds that an actor may take to close its files; then its process is ended."""

_CONNECT_SECONDS = 10.0  # seconds that a connection to an engine's address may take

_MAX_CHUNK_BYTES = 64 << 10
"""Bytes of queries in one argument of a call: Ray moves those above 100 KB to its object store."""

CallResult = tuple[str, Any]
"""Kind and content: COMPLETED and the value; UNREACHABLE, or the name of an error of
:mod:`vicinal.errors`, and a public sentence."""


class ShardActor:
    """A Ray actor that serves the shard in the folder `path` in its own process.

    The first message opens the shard, because Ray does not restart an actor whose constructor
    fails.
    """

    def __init__(self, path: str) -> None:
        self._shard = LocalShard(Path(path))

    def handle(self, message: tasks.Message, *query_chunks: IntegerMatrix) -> CallResult:
        """Run the task of a message; return its private result, or its error as a value.

        `message`, `query_chunks`: the message as :func:`split_message` divides it; chunks are
        integer features (q, d).
        """
        return run_without_traceback(
            lambda: self._shard.handle(join_message(message, query_chunks))
        )

    def get_process_id(self) -> int:
        """Return the id of the actor's process."""
        return os.getpid()

    def close(self) -> CallResult:
        """Close the folder; return None, or the error as a value."""
        return run_without_traceback(self._shard.close)


def run_without_traceback(operation: Callable[[], Any]) -> CallResult:
    """Return the result of an operation, or its error as a value without private data."""
    try:
        return COMPLETED, operation()
    except (errors.InvalidInput, errors.PrivacyRefused, errors.StoreDamaged) as error:
        return type(error).__name__, str(error)
    except errors.VicinalError as error:
        return UNREACHABLE, str(error)
    except Exception as error:  # noqa: BLE001 (its message and its traceback could quote records)
        return UNREACHABLE, f"A shard failed ({type(error).__name__})."


@dataclass(slots=True, eq=False)
class RayTransport:
    """A transport to a Ray actor, which Ray restarts when its process has died.

    Ray would put a large vote request into its object store and send a reference; the shard's
    machine would then look up its location and fetch it, which costs two more round trips. The
    request is therefore divided into small arguments of the call.
    """

    ray: Any  # the module
    actor: Any  # handle of a remote ShardActor

    def send(self, message: tasks.Message) -> Reply:
        """Send a message without waiting, and return a function that waits for the answer."""
        call = self.actor.handle.remote(*split_message(message))
        return partial(self._wait_for_answer, call)

    def _wait_for_answer(self, call: Any, seconds: float) -> tasks.ShardAnswer:
        """Return the answer to a remote `call` (a Ray object reference), or raise its error.

        Raises ShardUnreachable if the actor does not answer within `seconds`.
        """
        try:
            kind, result = self.ray.get(call, timeout=seconds)
        except self.ray.exceptions.GetTimeoutError:
            # The actor may still be running the task, so no other process can open its folder.
            raise errors.ShardUnreachable from None
        except self.ray.exceptions.RayError as error:
            # The message of a Ray error could quote private data of an actor.
            kind = UNREACHABLE
            result = f"Its process cannot be reached ({type(error).__name__})."
        if kind == UNREACHABLE:
            raise errors.ShardUnreachable(result)
        if kind != COMPLETED:
            raise getattr(errors, kind)(result)
        answer: tasks.ShardAnswer = result
        return answer

    def close(self) -> None:
        """Close the shard's folder, if the actor can be reached, and end the actor."""
        with suppress(self.ray.exceptions.RayError):
            self.ray.get(self.actor.close.remote(), timeout=_CLOSE_SECONDS)
        self.ray.kill(self.actor)


def split_message(message: tasks.Message) -> list[Any]:
    """Return a message as arguments of a remote call: a message and chunks of further queries.

    The queries of a large vote request are divided into matrices of at most `_MAX_CHUNK_BYTES` or
    of one query; the returned message has the first one. Other messages are not divided.
    """
    request = message.task
    if not isinstance(request, tasks.VoteRequest):
        return [message]
    n_rows = max(1, _MAX_CHUNK_BYTES * len(request.queries) // max(1, request.queries.nbytes))
    end = max(1, len(request.queries))
    chunks = [request.queries[start : start + n_rows] for start in range(0, end, n_rows)]
    return [replace(message, task=replace(request, queries=chunks[0])), *chunks[1:]]


def join_message(message: tasks.Message, query_chunks: Sequence[IntegerMatrix]) -> tasks.Message:
    """Return the message that :func:`split_message` divided into these two results."""
    request = message.task
    if not (query_chunks and isinstance(request, tasks.VoteRequest)):
        return message
    queries = np.concatenate([request.queries, *query_chunks])
    return replace(message, task=replace(request, queries=queries))


class RayCluster:
    """A Ray engine that runs shards.

    Parameters
    ----------
    address : str or None
        Address of a running engine; None starts one on this machine, which ends with this process.
    cpus : int, optional
        Number of processor cores for an engine on this machine.
    memory : int, optional
        Bytes of the object store of an engine on this machine.

    Raises
    ------
    MissingExtra
        If Ray is not installed.
    StorageFailed
        If the engine does not start or cannot be reached, or requires a token that is missing.

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
        self._ray = import_ray()
        if address:
            _check_token()
            _check_address(address)
        local_options = {} if address else {"num_cpus": cpus, "object_store_memory": memory}
        try:
            self._ray.init(
                address or "local",
                namespace=NAMESPACE,
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level="error",
                **local_options,
            )
        except Exception as error:  # noqa: BLE001 (Ray raises many kinds; none is about records)
            raise errors.StorageFailed(f"Ray cannot be used ({type(error).__name__}).") from None
        self._transports: list[RayTransport] = []
        self._start_timeout: float | None = None if address else _START_SECONDS

    def transports(self, paths: Sequence[Path]) -> list[Transport]:
        """Start an actor for the shard in each folder of `paths`, and return transports to them.

        A shard runs on the machine that offers the resource `vicinal-` followed by the folder's
        name, such as ``ray start --resources='{"vicinal-shard-0": 1}'``; if there is none, on any
        machine. The folder must have the same path there as on this machine.

        On an engine on this machine this waits until the actors run, for two minutes at most, so
        that no query waits for the start of processes. A remote engine is not waited for, as one of
        its machines may be missing.
        """
        offered = self._ray.cluster_resources()
        # By default an actor needs a free core for its start and reserves none while it runs.
        actor_class = self._ray.remote(ShardActor)
        self._transports = [
            RayTransport(
                self._ray,
                actor_class.options(
                    max_restarts=-1, resources=select_resources(path.name, offered)
                ).remote(str(path.absolute())),
            )
            for path in paths
        ]
        if self._start_timeout is not None:
            calls = [transport.actor.get_process_id.remote() for transport in self._transports]
            self._ray.wait(calls, num_returns=len(calls), timeout=self._start_timeout)
        return list(self._transports)

    def stop(self) -> None:
        """Disconnect from the engine; an engine on this machine ends with all its actors."""
        self._ray.shutdown()


def select_resources(folder_name: str, offered: Mapping[str, float]) -> dict[str, float]:
    """Return the amount of each resource that an actor reserves; none if any machine may run it.

    `folder_name`: of the shard. `offered`: amounts of the engine's resources, by name.
    """
    resource = f"vicinal-{folder_name}"
    return {resource: _PLACEMENT_SHARE} if resource in offered else {}


def import_ray() -> Any:
    """Import Ray with its usage reports switched off, and return the module.

    Ray requires and sends a token unless the environment has another rule, because a user who can
    submit work can read the records. Ray reads that rule only when it is imported.
    """
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if "ray" not in sys.modules:
        os.environ.setdefault(_AUTH_MODE, "token")
    try:
        import ray
    except ImportError:
        raise errors.MissingExtra(
            "Shards on several machines need Ray. Install it with: pip install 'vicinal[ray]'"
        ) from None
    return ray


def _check_token() -> None:
    """Raise StorageFailed if Ray requires a token and this machine has none: Ray may then exit."""
    is_named = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ
    has_token = is_named or Path.home().joinpath(".ray", "auth_token").is_file()
    if os.environ.get(_AUTH_MODE) == "token" and not has_token:
        raise errors.StorageFailed(
            "A Ray engine asks for a token, and this machine has none. Copy the token of the "
            "engine's head (`ray get-auth-token`), or set RAY_AUTH_MODE=disabled if nobody else "
            "can reach the engine's network."
        )


def _check_address(address: str) -> None:
    """Raise StorageFailed with the cause if an engine's `address`, HOST:PORT, cannot be reached.

    Without this check Ray tries for a minute and then reports no cause. An address without a port,
    such as "auto", is not checked. Raises InvalidInput for a malformed address.
    """
    try:
        url = urlsplit(address if "//" in address else f"//{address}")
        port = url.port
        if port is None:  # "auto", or a folder
            return
        host = (url.hostname or "").encode("idna")
    except ValueError:
        raise errors.InvalidInput("A Ray engine's address must be auto or HOST:PORT.") from None
    try:
        socket.create_connection((host.decode(), port), _CONNECT_SECONDS).close()
    except OSError as error:
        kinds = {socket.gaierror: "no such host", ConnectionRefusedError: "connection refused"}
        cause = kinds.get(type(error), "no answer")
        raise errors.StorageFailed(
            f"The Ray engine at {url.hostname}:{port} cannot be reached: {cause}."
        ) from None
