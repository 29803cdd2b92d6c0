"""From a store's folder to a process that listens."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from vicinal.errors import InvalidInput, MissingExtra
from vicinal.serving.served import Served
from vicinal.serving.settings import Settings

_GRACE_SECONDS = 30
_MOST_CONNECTIONS = 2048


def serve(
    opened: AbstractContextManager[Served], folder: Path, host: str, port: int, settings: Settings
) -> None:
    """Serve a store, or a cluster, until the process is told to end (SIGTERM, SIGINT).

    Then no connection is taken any more, everybody who waits gets their answer, and the store is
    closed.

    Parameters
    ----------
    opened : context manager of Served
        Opens the store at the beginning, and closes it at the end.
    folder : Path
        The store's, where the keys are.
    host, port, settings
        Where to listen, and the limits.

    Raises
    ------
    MissingExtra
        Without the extra `serve`.
    InvalidInput, PrivacyRefused, StorageFailed
        As :meth:`~vicinal.store.Store.open`; or if the address cannot be had.
    """
    try:
        import uvicorn

        from vicinal.serving.app import create_app
    except ImportError:
        raise MissingExtra(
            "The service needs the extra 'serve': pip install vicinal[serve]"
        ) from None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with opened as store:
        config = uvicorn.Config(
            create_app(store, folder, settings),
            host=host,
            port=port,
            access_log=False,  # it would write paths, and ids of people stand in some
            server_header=False,
            ws="none",
            lifespan="on",
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            log_level="warning",
        )
        server = uvicorn.Server(config)
        # Compiled code and its types are a million objects that never go: the collector need not
        # walk them again and again (270 to 160 us a request).
        gc.collect()
        gc.freeze()
        try:
            with _signals_end_no_more_than_the_service():
                server.run()
        except SystemExit:
            raise InvalidInput(f"The service cannot listen at {host}:{port}.") from None


@contextmanager
def _signals_end_no_more_than_the_service() -> Iterator[None]:
    """Let nothing happen when uvicorn, gone down in good order, sends its signal once more.

    Else the process would die of it before the store is closed.
    """
    ends = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(end, lambda *_: None) for end in ends]
    try:
        yield
    finally:
        for end, handler in zip(ends, before, strict=True):
            signal.signal(end, handler)
