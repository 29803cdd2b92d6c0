"""What the tests of the service share: a service in this process, and one that listens."""

import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from urllib.parse import unquote

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import store_tools as tools
from vicinal.serving import ServiceSettings
from vicinal.serving.app import create_app
from vicinal.serving.keys import KeyFile
from vicinal.serving.server import create_server
from vicinal.store import StoreExtractor

FAST = ServiceSettings(rate=0, wait_ms=1.0)

NAMES = [f"n{number}" for number in range(tools.D)]
"""Names of the columns of :func:`make_named`."""


def make_named(folder, **plan):
    """Return a new store whose columns have names."""
    return tools.make(folder, extractor=StoreExtractor(columns=NAMES), **plan)


@dataclass
class Service:
    """A service that listens at a port of this machine, with an analyst's and a curator's key."""

    port: int
    folder: object
    store: object
    keys: dict = field(default_factory=dict)
    app: object = None

    def call(self, method, path, body=None, key="analyst", headers=None):
        """Return status, headers and JSON (or text) of one request."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} if content is not None else {}
        if key is not None:
            sent["Authorization"] = f"Bearer {self.keys.get(key, key)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            connection.request(method, path, content, sent | (headers or {}))
            reply = connection.getresponse()
            text = reply.read().decode()
            kind = reply.headers.get_content_type()
            found = json.loads(text) if kind.endswith("json") else text
            return SimpleNamespace(status=reply.status, headers=reply.headers, body=found)
        finally:
            connection.close()

    def predict(self, vectors, key="analyst", name=None):
        """Send queries."""
        headers = {} if name is None else {"Idempotency-Key": name}
        return self.call("POST", "/v1/predict", {"vectors": vectors}, key, headers)


@contextmanager
def running(folder, settings=FAST, make=tools.make, **plan):
    """Run a service on a new store in `folder`, in a thread; it ends gracefully."""
    with make(folder, **plan) as store:
        file = KeyFile(folder)
        keys = {
            "analyst": file.add("anna", "analyst", "default"),
            "curator": file.add("carl", "curator", "default"),
        }
        app = create_app(store, folder, settings)
        with listening(app) as port:
            yield Service(port, folder, store, keys, app)


@contextmanager
def listening(app):
    """Listen in a thread, at a free port, as `vicinal serve` does."""
    with thread_of(create_server(app, "127.0.0.1", 0)) as port:
        yield port


@contextmanager
def thread_of(server):
    """Run a server in a thread and yield its port."""
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(240)
        assert not thread.is_alive()


def at_once(count, work):
    """Run a work in so many threads at once."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(480)
        assert not thread.is_alive()


class Direct:
    """Calls an application without a network, in the running event loop."""

    def __init__(self, app):
        self._app = app
        self._inbox: asyncio.Queue = asyncio.Queue()

    async def __aenter__(self):
        """Start the application."""
        ready = asyncio.Event()

        async def sent(_):
            ready.set()

        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self._inbox.put_nowait({"type": "lifespan.startup"})
        self._life = asyncio.create_task(self._app(scope, self._inbox.get, sent))
        await ready.wait()
        return self

    async def __aexit__(self, *_):
        """End it."""
        self._inbox.put_nowait({"type": "lifespan.shutdown"})
        await self._life

    async def call(self, method, path, body=b"", headers=()):
        """Return status and text; `headers` are pairs of bytes."""
        sent, (path, _, query) = [], path.partition("?")

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(),
            "query_string": query.encode(), "headers": list(headers), "http_version": "1.1",
            "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2),
            "root_path": "", "asgi": {"version": "3.0"}, "state": {},
        }  # fmt: skip
        await self._app(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in sent)
        kept = b"".join(b"%s:%s\n" % pair for pair in sent[0]["headers"])
        return sent[0]["status"], (kept + content).decode()


# Below the ports that a system hands out by itself: no connection takes one before it is used. Each
# process of a test run has 500 of its own, and takes none twice.
_PORTS = iter(range(10_000 + os.getpid() % 40 * 500, 10_500 + os.getpid() % 40 * 500))


def free_port():
    """Return a port of this machine that nobody listens at."""
    for port in _PORTS:
        with suppress(OSError), socket.socket() as found:
            found.bind(("127.0.0.1", port))
            return port
    raise AssertionError("this process has had all of its ports")


def wait_for(service, process):
    """Wait until a service in a process of its own answers."""
    for _ in range(2400):
        assert process.poll() is None
        try:
            if service.call("GET", "/healthz", key=None).status == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the service does not come up")


@contextmanager
def serving_process(folder, keys, *options, log=subprocess.DEVNULL):
    """Run `vicinal serve` in a process of its own; yield the service and the process."""
    service = Service(free_port(), folder, None, keys)
    command = [sys.executable, "-m", "vicinal", "serve", folder, "--port", str(service.port)]
    process = subprocess.Popen([*command, *options], stderr=log)
    try:
        wait_for(service, process)
        yield service, process
    finally:
        process.kill()
        process.wait()


def predict_until_stopped(service, name, rows, replies):
    """Send queries, each under a key of its own, until the service stops.

    `replies` receives the row and the votes of every answer, by key.
    """
    for number, row in enumerate(rows.tolist()):
        key = f"{name}-{number}"
        try:
            reply = service.predict([row], name=key)
        except (OSError, http.client.HTTPException):
            return
        if reply.status == 503:
            return
        assert reply.status == 200
        replies[key] = row, reply.body["votes"]


def check_replies(store, replies):
    """Check that every answer of :func:`predict_until_stopped` is stored and was charged."""
    used = store.quota().used
    for key, (row, votes) in replies.items():
        stored = store.predict([row], analyst="anna", idempotency_key=key)
        assert (stored.charged, stored.votes.tolist()) == (0, votes)
    assert store.quota().used == used
    assert store.verify()
