"""From a store's folder to a process that listens, its compiled code ready, without a charge."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal.errors import InvalidInput, MissingExtra, VicinalError
from vicinal.serving.settings import ServiceSettings
from vicinal.store.base_store import BaseStore
from vicinal.store.requests import Query
from vicinal.store.store import Store

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

_GRACE_SECONDS = 30
_TURN_SECONDS = 0.0005
_MOST_CONNECTIONS = 2048
_BACKLOG = 64
"""Connections that the system may hold; the loop may take so many before it sees the first."""
_RESERVED_FILES = 64
"""Descriptors for the store: its database, log and witness, record files, keys, an erasure."""


def serve(
    opened: AbstractContextManager[BaseStore],
    folder: Path,
    host: str,
    port: int,
    settings: ServiceSettings,
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a store, or a cluster, until the process gets a signal to end (SIGTERM, SIGINT).

    Then no connection is taken any more, all requests that wait are answered, and the store is
    closed.

    Parameters
    ----------
    opened : context manager of BaseStore
        Opens the store at the beginning, and closes it at the end.
    folder : Path
        The store's, where the keys are.
    host, port, settings
        Where to listen (port 0: any that is free), and the limits.
    announce : callable
        Called with the service's URL once it listens.

    Raises
    ------
    MissingExtra
        Without the extra `serve`.
    InvalidInput, PrivacyRefused, StorageFailed
        As :meth:`~vicinal.store.Store.open`; or if the address cannot be used.

    Examples
    --------
    >>> from pathlib import Path
    >>> from vicinal import Store
    >>> from vicinal.serving import ServiceSettings, serve
    >>> folder = Path("patients.store")
    >>> limits = ServiceSettings(rate=10.0)
    >>> serve(Store.open(folder), folder, "localhost", 8000, limits)  # doctest: +SKIP
    """
    try:
        from vicinal.serving.app import create_app
    except ImportError:
        raise MissingExtra(
            "The service needs the extra 'serve': pip install 'vicinal[serve]'"
        ) from None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    # Nothing of this stands in the format of the log; its manual says how to leave it out.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # After each statement the store's thread waits for its turn, while the loop has requests.
    sys.setswitchinterval(_TURN_SECONDS)
    with opened as store:
        app = create_app(store, folder, settings)
        warm_up(store)
        # Compiled code and its types are a million objects that never go: the collector need not
        # walk them again and again (270 to 160 us a request).
        gc.collect()
        gc.freeze()
        server = server_of(app, host, port, announce)
        try:
            with _no_signal_after_the_end():
                server.run()
        except SystemExit:
            raise InvalidInput(
                f"The service cannot listen on {host}:{port}. Choose another --port."
            ) from None


def server_of(
    app: Starlette, host: str, port: int, announce: Callable[[str], None] = lambda _: None
) -> uvicorn.Server:
    """Return the server of an application, with the bounds of its settings on every connection."""
    import uvicorn

    from vicinal.serving._protocol import ConnectionGuard

    state = app.state.service
    most = state.settings.connections or connection_limit()
    guard = ConnectionGuard(state.settings, most, state.metrics)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            bound_port = self.servers[0].sockets[0].getsockname()[1]
            announce(f"http://{f'[{host}]' if ':' in host else host}:{bound_port}")

    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=guard.protocol(),
            backlog=_BACKLOG,
            access_log=False,  # it would write paths, and ids of people stand in some
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            timeout_keep_alive=round(state.settings.idle_seconds) + 1,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            log_config=None,
            log_level="error",  # below it writes a line for whatever is no request
        )
    )


def connection_limit() -> int:
    """Return how many connections leave the store its descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    available = soft - len(list(Path("/dev/fd").iterdir())) - _RESERVED_FILES - 2 * _BACKLOG
    if available < 1:
        raise InvalidInput(f"The limit of {soft} open files is too low. Raise it: ulimit -n 1024")
    return min(available, _MOST_CONNECTIONS)


@contextmanager
def _no_signal_after_the_end() -> Iterator[None]:
    """Ignore the signal that uvicorn sends once more after it has ended in good order.

    Else the process would die of it before the store is closed.
    """
    ends = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(end, lambda *_: None) for end in ends]
    try:
        yield
    finally:
        for end, handler in zip(ends, before, strict=True):
            signal.signal(end, handler)


_LOG = logging.getLogger(__name__)
_RECORDS, _QUERIES = 64, 8
_SMALL = {"n_queries": _QUERIES, "n_records": _RECORDS, "n_neighbors": 8, "noise_multiplier": 10.0}


def warm_up(store: BaseStore) -> None:
    """Answer queries from stores of made-up rows, one a plan, in temporary folders.

    Compiled code then lies in memory, or is compiled: the first query need not wait for it. Only
    public facts of `store` are used: its width, classes, kernel, index and plans. Where made-up
    rows do not fit a plan, its first query waits.
    """
    schema = store.schema
    rows = np.random.default_rng(0).random((3 * _RECORDS, schema.n_features))  # noqa: TID251 (no secret)
    private, public, queries = np.split(rows, 3)
    facts: dict[str, Any] = {
        "kernel": schema.kernel,
        "index": schema.index,
        "norm_bound": schema.bound or "auto",
    }
    facts |= {"public": None if schema.public is None else public, **schema.target.parameters}
    for plan in store.plans:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "store"
            try:
                labels = schema.target.examples(_RECORDS)
                with Store.init(folder, private, labels, **facts, **{**plan, **_SMALL}) as made_up:
                    made_up.predict_many([Query(queries[:_QUERIES])])
            except VicinalError as error:
                _LOG.warning("The first query will wait while code is compiled: %s", error)
