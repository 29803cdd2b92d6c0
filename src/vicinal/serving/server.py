"""Start of the service: open the store, load compiled code without a charge, listen."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vicinal.errors import InvalidInput, MissingExtra, VicinalError, redirect_warnings
from vicinal.serving.settings import ServiceSettings
from vicinal.store.base_store import BaseStore
from vicinal.store.requests import Query
from vicinal.store.store import Store

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

_SHUTDOWN_SECONDS = 30  # time for open requests to be answered after a stop signal
_SWITCH_SECONDS = 0.0005
"""Longest time that the event loop keeps the interpreter lock while the store's thread waits."""
_MAX_CONNECTIONS = 2048
_BACKLOG = 64
"""Connections that the system queues, and that the event loop may accept before handling one."""
_RESERVED_FILES = 64
"""File descriptors for the store: its database, log, witness, record files, keys, an erasure."""


def serve(
    opened: AbstractContextManager[BaseStore],
    folder: Path,
    host: str,
    port: int,
    settings: ServiceSettings,
    announce: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a store or a cluster until the process receives SIGTERM or SIGINT.

    Then new connections are refused, waiting requests are answered, and the store is closed.

    Parameters
    ----------
    opened : context manager of BaseStore
        Opens the store on entry and closes it on exit.
    folder : Path
        The store's folder, which holds the API keys.
    host, port
        Address to listen on (port 0: any free port).
    settings : ServiceSettings
        Limits of the service.
    announce : callable
        Called with the service's URL once it listens.

    Raises
    ------
    MissingExtra
        Without the extra `serve`.
    InvalidInput, PrivacyRefused, StorageFailed
        As :meth:`~vicinal.store.Store.open`; InvalidInput also for an unusable address.

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
    # Skip computing fields that the log format does not use (see the logging HOWTO of Python).
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    # Under load, the store's thread must often wait for the interpreter lock.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with opened as store, redirect_warnings(lambda text: _LOG.warning("%s", text)):
        app = create_app(store, folder, settings)
        warm_up(store)
        # Exclude the million permanent objects of compiled code from garbage collection, which
        # reduces the time of a request from 270 to 160 us.
        gc.collect()
        gc.freeze()
        server = create_server(app, host, port, announce)
        # uvicorn raises a stop signal again after its shutdown. Without these handlers it would end
        # the process before the store is closed.
        previous_handlers = {
            number: signal.signal(number, lambda *_: None)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            server.run()
        except SystemExit:
            raise InvalidInput(
                f"The service cannot listen on {host}:{port}. Choose another --port."
            ) from None
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)


def create_server(
    app: Starlette, host: str, port: int, announce: Callable[[str], None] = lambda _: None
) -> uvicorn.Server:
    """Return a server of `app` with the limits in its settings; arguments as of :func:`serve`."""
    import uvicorn

    from vicinal.serving._protocol import ConnectionGuard

    state = app.state.service
    max_connections = state.settings.connections or compute_connection_limit()
    guard = ConnectionGuard(state.settings, max_connections, state.metrics)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            """Start listening, then announce the URL with the port that was bound."""
            await super().startup(sockets)
            bound_port = self.servers[0].sockets[0].getsockname()[1]
            announce(f"http://{f'[{host}]' if ':' in host else host}:{bound_port}")

    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=guard.make_protocol_class(),
            backlog=_BACKLOG,
            access_log=False,  # it would log paths, which may contain subject ids
            server_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            timeout_keep_alive=round(state.settings.idle_seconds) + 1,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            log_config=None,
            log_level="error",  # lower levels log every malformed request
        )
    )


def compute_connection_limit() -> int:
    """Return the largest number of connections that leaves enough file descriptors to the store."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    n_open = len(list(Path("/dev/fd").iterdir()))
    available = soft_limit - n_open - _RESERVED_FILES - 2 * _BACKLOG
    if available < 1:
        raise InvalidInput(
            f"The limit of {soft_limit} open files is too low. Raise it: ulimit -n 1024"
        )
    return min(available, _MAX_CONNECTIONS)


_LOG = logging.getLogger(__name__)

_N_RECORDS = 64
_N_QUERIES = 8
_SMALL_PLAN = {
    "n_queries": _N_QUERIES,
    "n_records": _N_RECORDS,
    "n_neighbors": 8,
    "noise_multiplier": 10.0,
}
"""A plan of few answers and much noise, whose budget is certainly sufficient."""


def warm_up(store: BaseStore) -> None:
    """Answer queries from temporary stores of synthetic rows, one per plan, to load compiled code.

    They have the public properties of `store`: width, classes, kernel, index and plans. If rows do
    not fit a plan, a warning is logged, and the first query waits for the compiler.
    """
    schema = store.schema
    generator = np.random.default_rng(0)  # noqa: TID251 (no secret)
    rows = generator.random((3 * _N_RECORDS, schema.n_features))
    private, public, queries = np.split(rows, 3)
    parameters: dict[str, Any] = {
        "kernel": schema.kernel,
        "index": schema.index,
        "norm_bound": schema.bound or "auto",
        "public": None if schema.public is None else public,
        **schema.target.parameters,
    }
    for plan in store.plans:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "store"
            try:
                labels = schema.target.make_examples(_N_RECORDS)
                options = {**plan, **_SMALL_PLAN}
                with Store.init(folder, private, labels, **parameters, **options) as temporary:
                    temporary.predict_many([Query(queries[:_N_QUERIES])])
            except VicinalError as error:
                _LOG.warning("The first query will wait for the compilation of code: %s", error)
