"""Local access to a store that a running service has open, through a Unix socket in its folder.

Only one process can open a store. Therefore `inspect`, `verify`, `backup` and similar commands send
their task to the service: one connection per task, JSON in both directions. The socket gives as
much access as the records themselves, so only its owner can open it, and where the system reports
the peer's user, other users are refused.
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

RunFunction = Callable[[Callable[[], Any]], Awaitable[Any]]

_LOG = logging.getLogger(__name__)
_TASKS = ("facts", "guarantee", "verify", "backup")  # methods of a store that a task may call
_TIMEOUT_SECONDS = 10.0  # time for a task to arrive
_ERROR_TYPES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, VicinalError)
}
"""Classes of the errors that a reply may name."""
_MAX_PATH_BYTES = 90  # longest path that every system accepts for a socket


@contextmanager
def _open_address(folder: Path) -> Iterator[str]:
    """Yield the socket's path, or an equivalent short one if it exceeds the system's limit."""
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


class LocalSocket:
    """Runs tasks of local commands on the open store in `folder`.

    `run` calls a function in the store's thread, between two blocks of queries.
    """

    def __init__(self, store: BaseStore, folder: Path, run: RunFunction) -> None:
        self._store = store
        self._folder = folder
        self._run = run
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen in the running event loop, and replace the stale socket of an earlier service."""
        listening = socket.socket(socket.AF_UNIX)
        try:
            os.fchmod(listening.fileno(), PRIVATE_FILE)  # before bind creates the file
            (self._folder / SOCKET).unlink(missing_ok=True)
            with _open_address(self._folder) as address:
                listening.bind(address)
        except OSError as error:  # some file systems do not support sockets
            listening.close()
            _LOG.warning(
                "inspect, verify and backup are unavailable while the service runs: %s",
                error.strerror,
            )
            return
        self._server = await asyncio.start_unix_server(self._handle_connection, sock=listening)

    async def stop(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            (self._folder / SOCKET).unlink(missing_ok=True)

    async def _handle_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Read one task, run it, and send its reply."""
        # Imported here, because commands that use this module may lack the web framework.
        from vicinal.serving._problems import Problem

        try:
            if _is_owner(writer.get_extra_info("socket")):
                task = json.loads(await asyncio.wait_for(reader.read(-1), _TIMEOUT_SECONDS))
                reply = await self._run(partial(self._run_task, **task))
                writer.write(json.dumps(reply).encode())
                await writer.drain()
        except (OSError, ValueError, TypeError, RecursionError, Problem):
            pass  # the client disconnected or sent no valid task, or the service is stopping
        finally:
            writer.close()

    def _run_task(self, task: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the result or the error of the store's method `task` as JSON values."""
        try:
            if task not in _TASKS:
                raise InvalidInput("The running service has a different version of vicinal.")
            result = getattr(self._store, task)(**arguments)
        except VicinalError as error:
            return {"error": type(error).__name__, "text": str(error)}
        return {"done": asdict(result) if isinstance(result, Guarantee | Verification) else result}


def _is_owner(connection: socket.socket, other_user: int = 0) -> bool:
    """Return whether the peer runs as this user or as `other_user`, a user id (default: root)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the permissions of the file are the only protection on this system
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", peer)[1] in (other_user, os.getuid())


class ServedStore:
    """Read access to the store or cluster in `folder` that a local service has open.

    The methods have the arguments, results and errors of those of an open store, and raise
    StorageFailed if the service stops meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def is_reachable(self) -> bool:
        """Whether a trusted service listens at the socket."""
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    def facts(self, *, curator: bool = False) -> dict[str, Any]:
        """Return the public facts of the store; for a `curator`, also private numbers."""
        return self._request_task("facts", curator=curator)  # type: ignore[no-any-return]

    def guarantee(self, audience: str) -> Guarantee:
        """Return the guarantee of an audience's answers."""
        fields = self._request_task("guarantee", audience=audience)
        # JSON has no tuples: lists become tuples again.
        tuples = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return Guarantee(**{**fields, **tuples})

    def verify(self, erased: Sequence[SubjectId] = ()) -> Verification:
        """Return the result of checking all files, also for traces of the `erased` subjects."""
        fields = self._request_task("verify", erased=list(erased))
        return Verification(tuple(fields["faults"]), tuple(fields["checked"]))

    def backup(self, path: str | Path) -> None:
        """Let the service, as its own user, copy the store into a new folder `path`."""
        self._request_task("backup", path=str(Path(path).absolute()))
        if not Path(path).exists():
            raise StorageFailed(
                f"The service wrote {path} to a location visible only to it, such as its own "
                "temporary folder. Delete it there, and choose a folder that both can access."
            )

    def _connect(self) -> socket.socket:
        """Return a socket connected to the service.

        Raises OSError if no service listens, or if its process belongs to another user than this
        one (for root: than the folder's owner), because its answers could then be forged.
        """
        connection = socket.socket(socket.AF_UNIX)
        try:
            with _open_address(self._folder) as address:
                connection.connect(address)
            user = os.getuid()
            if not _is_owner(connection, user or self._folder.stat().st_uid):
                raise PermissionError
        except OSError:
            connection.close()
            raise
        return connection

    def _request_task(self, task: str, **arguments: Any) -> Any:
        """Let the service call the store's method `task`; return its result or raise its error."""
        try:
            with self._connect() as connection:
                connection.sendall(json.dumps({"task": task, "arguments": arguments}).encode())
                connection.shutdown(socket.SHUT_WR)
                reply = json.loads(connection.makefile("rb").read())
            if "error" not in reply:
                return reply["done"]
            error = _ERROR_TYPES[reply["error"]](reply["text"])
        except (OSError, ValueError, TypeError, LookupError, RecursionError):
            raise StorageFailed(
                "The service that has the store open did not answer: it has stopped, or runs as "
                "another user. Try again."
            ) from None
        raise error
