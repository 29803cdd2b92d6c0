"""What may be looked at while a service runs: the process that has the store answers, no other.

A store is open once. So `inspect`, `verify`, `backup` and the like ask that process, at a socket in
the store's folder: one connection a task, JSON both ways. Whoever may ask could read the
records as well: the socket is its owner's alone, and where the system says who connects, others are
refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from vicinal import errors
from vicinal.accounting.guarantee import Guarantee
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput, StorageFailed, VicinalError
from vicinal.ledger.files import PRIVATE_FILE
from vicinal.store.base_store import BaseStore
from vicinal.store.folder import SOCKET
from vicinal.store.status import Verification

Run = Callable[[Callable[[], Any]], Awaitable[Any]]

_LOG = logging.getLogger(__name__)
_TASKS = ("facts", "guarantee", "verify", "backup")
"""Methods of a store that may be asked for."""
_SECONDS = 10.0
"""That a task may take to arrive."""
_REFUSALS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, VicinalError)
}
_LONGEST = 90
"""Bytes of a path that every system takes for a socket."""


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Yield the socket's path, or a shorter one: the system takes about a hundred bytes."""
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


class LocalSocket:
    """Answers what is asked of an open store from this machine.

    `run`: has something done by the thread that has the store, between two blocks.
    """

    def __init__(self, store: BaseStore, folder: Path, run: Run) -> None:
        self._store, self._folder, self._run = store, folder, run
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, in the running event loop. The store is open: a socket that is there is stale."""
        listening = socket.socket(socket.AF_UNIX)
        try:
            os.fchmod(listening.fileno(), PRIVATE_FILE)  # before there is a file for others to open
            (self._folder / SOCKET).unlink(missing_ok=True)
            with _address(self._folder) as address:
                listening.bind(address)
        except OSError as error:  # a file system may have no sockets
            listening.close()
            _LOG.warning("inspect, verify and backup need the service to end: %s", error.strerror)
            return
        self._server = await asyncio.start_unix_server(self._answer, sock=listening)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            (self._folder / SOCKET).unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from vicinal.serving._limits import Problem  # commands that ask need no web framework

        try:
            if _is_owner(writer.get_extra_info("socket")):
                asked = json.loads(await asyncio.wait_for(reader.read(-1), _SECONDS))
                reply = await self._run(partial(self._reply, **asked))
                writer.write(json.dumps(reply).encode())
                await writer.drain()
        except (OSError, ValueError, TypeError, RecursionError, Problem):
            pass  # who asks has gone, or is none of our commands; or the service is ending
        finally:
            writer.close()

    def _reply(self, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what comes of a task; what is raised would be a failure of the service."""
        try:
            return {"done": self._done(task, arguments)}
        except VicinalError as error:
            return {"error": type(error).__name__, "text": str(error)}

    def _done(self, task: str, arguments: dict[str, Any]) -> Any:
        if task not in _TASKS:
            raise InvalidInput("The service that has the store open is of another version.")
        found = getattr(self._store, task)(**arguments)
        return asdict(found) if isinstance(found, Guarantee | Verification) else found


def _is_owner(connection: socket.socket, other: int = 0) -> bool:
    """Tell whether the process at the other end is this user's, or that of `other`: of root."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the file's permissions have to do
    known = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", known)[1] in (other, os.getuid())


class ServedStore:
    """A store, or a cluster, that a service of this machine has open: what can be looked at.

    `folder`: where it lies. All methods are those of :class:`~vicinal.store.base_store.BaseStore`,
    and raise what these refuse; StorageFailed if the service ends meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def answers(self) -> bool:
        """Whether a service listens there."""
        try:
            self._connection().close()
        except OSError:
            return False
        return True

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        return self._ask("facts", curator=curator)  # type: ignore[no-any-return]

    def guarantee(self, audience: str) -> Guarantee:
        found = self._ask("guarantee", audience=audience)
        lists = {name: tuple(each) for name, each in found.items() if isinstance(each, list)}
        return Guarantee(**{**found, **lists})

    def verify(self, erased: Sequence[SubjectId] = ()) -> Verification:
        found = self._ask("verify", erased=list(erased))
        return Verification(tuple(found["faults"]), tuple(found["checked"]))

    def backup(self, path: str | Path) -> None:
        """Have the service write everything into a new folder, as its own user."""
        self._ask("backup", path=str(Path(path).absolute()))
        if not Path(path).exists():
            raise StorageFailed(
                f"The service wrote {path} to a place that only it can see, such as a /tmp of its "
                "own. Delete it there, and name a folder that both can see."
            )

    def _connection(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        try:
            with _address(self._folder) as address:
                connection.connect(address)
            mine = os.getuid()
            # Root looks at what is others'; whoever else may have planted a socket lies.
            if not _is_owner(connection, mine or self._folder.stat().st_uid):
                raise PermissionError
        except OSError:
            connection.close()
            raise
        return connection

    def _ask(self, task: str, **arguments: Any) -> Any:
        try:
            with self._connection() as asking:
                asking.sendall(json.dumps({"task": task, "arguments": arguments}).encode())
                asking.shutdown(socket.SHUT_WR)
                answer = json.loads(asking.makefile("rb").read())
            if "error" not in answer:
                return answer["done"]
            refusal = _REFUSALS[answer["error"]](answer["text"])
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            raise StorageFailed(
                "The service that has the store open did not answer: it has stopped, or belongs "
                "to another user. Try again."
            ) from None
        raise refusal
