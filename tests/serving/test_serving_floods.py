"""Overload and failures: limits of connections, bodies and keys, and the health of the service."""

import asyncio
import contextlib
import errno
import socket
import threading
import time
from types import SimpleNamespace

import pytest

import serving_tools as tools
from made_up import raising
from store_tools import Q, make, points
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.serving import ServiceSettings
from vicinal.serving import server as _server
from vicinal.serving._limits import BodyLimits, BodyReader
from vicinal.serving._problems import Problem
from vicinal.serving._protocol import ConnectionGuard
from vicinal.serving.app import create_app
from vicinal.serving.models import PredictRequest, parse_body
from vicinal.serving.server import warm_up
from vicinal.store import Query, Store

SMALL = ServiceSettings(
    rate=0, wait_ms=0.0, connections=8, head_bytes=4096, head_seconds=0.2, idle_seconds=0.2
)
GET = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with small limits."""
    with tools.running(
        tmp_path_factory.mktemp("floods") / "store", SMALL, n_queries=500
    ) as running_service:
        yield running_service


def connect(service):
    return socket.create_connection(("127.0.0.1", service.port), timeout=240)


def read_response(connection):
    """Return all bytes received until the service closes the connection."""
    response = b""
    try:
        while chunk := connection.recv(1 << 16):
            response += chunk
    except ConnectionResetError:
        pass
    return response


def send_bytes(service, content):
    """Send bytes and return the response, even if the service does not read all of them."""
    with connect(service) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(content)
        return read_response(connection)


def count_dropped(service, reason):
    text = service.call("GET", "/metrics", key="curator").body
    lines = [line for line in text.splitlines() if f'dropped_total{{reason="{reason}"' in line]
    return int(lines[0].split()[-1]) if lines else 0


# ---------------------------------------------------------------- heads

CHUNKED = b"POST /v1/predict HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "head",
    [
        GET + b"X: " + b"a" * (64 << 10), GET + b"X: " + b"a" * (64 << 10) + b"\r\n\r\n",
        GET + b"a" * (64 << 10), GET + b"".join(b"X-%d: a\r\n" % i for i in range(101)) + b"\r\n",
        b"GET /" + b"a" * (64 << 10) + b" HTTP/1.1\r\n\r\n", b"GET /healthz?" + b"a" * (64 << 10),
    ],
    ids=["open value", "value", "name", "many", "path", "query"],
)  # fmt: skip
def test_a_head_is_bounded_in_bytes(service, head):
    n_dropped = count_dropped(service, "head-too-large") + count_dropped(service, "malformed")
    reply = send_bytes(service, head)
    assert reply.startswith(b"HTTP/1.1 431 ")
    assert b"application/problem+json" in reply
    assert b"x-content-type-options: nosniff" in reply
    assert b"aaaa" not in reply
    assert (
        count_dropped(service, "head-too-large") + count_dropped(service, "malformed")
        == n_dropped + 1
    )


def test_usual_heads_pass(service):
    head = GET + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 30) for i in range(90)) + b"\r\n"
    assert b" 200 " in send_bytes(service, head)


@pytest.mark.parametrize(
    "rest",
    [b"1;" + b"a" * (64 << 10), b"0\r\nX: " + b"a" * (64 << 10), b"1\r\nx\r\n" * 20_000],
    ids=["extension", "trailer", "tiny chunks"],
)
def test_framing_of_a_body_is_bounded(service, rest):
    """Fails if the service reads unlimited chunk framing of an accepted request."""
    n_dropped = count_dropped(service, "head-too-large")
    head = CHUNKED.replace(
        b"\r\n\r\n", f"\r\nAuthorization: Bearer {service.keys['analyst']}\r\n\r\n".encode()
    )
    assert b" 200 " not in send_bytes(service, head + rest)
    assert count_dropped(service, "head-too-large") + count_dropped(service, "too-slow") > n_dropped


def test_requests_in_a_row_are_answered_and_a_thousand_unread_are_not_taken(service):
    reply = send_bytes(service, (GET + b"\r\n") * 5)
    assert reply.count(b"HTTP/1.1 200 ") == 5
    reply = send_bytes(service, (GET + b"\r\n") * 1000)
    assert reply.count(b"HTTP/1.1 200 ") < 1000


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"GET /he", GET], ids=repr)
def test_a_head_is_bounded_in_time(service, begin):
    """Fails if a head sent byte by byte, every 20 ms, keeps the connection open."""
    with connect(service) as connection:
        connection.settimeout(0.02)
        connection.sendall(begin)
        assert any(send_and_check_closed(connection, begin) for _ in range(12_000)), (
            "open for four minutes"
        )


def send_and_check_closed(connection, begin):
    """Send another byte or line, and return whether the service has closed the connection."""
    try:
        connection.sendall(b"\r\n" if begin == b"\r\n" else b"a")
        return connection.recv(1000) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_connection_without_a_further_request_is_closed(service):
    """Fails with a TimeoutError if the connection stays open."""
    with connect(service) as connection:
        connection.sendall(GET + b"\r\n")
        assert b" 200 " in read_response(connection)


def test_a_client_that_does_not_read_is_dropped():
    """Fails if the timer does not close a connection with a permanently full write buffer."""
    calls = []
    metrics = SimpleNamespace(connections=0, dropped={"too-slow": 0})
    guard = ConnectionGuard(SMALL, 8, metrics)

    async def pause():
        protocol = _make_protocol(guard, calls)
        protocol.pause_writing()
        await asyncio.sleep(3 * SMALL.idle_seconds)

    asyncio.run(pause())
    assert calls == ["abort"]
    assert metrics.dropped["too-slow"] == 1


def _make_protocol(guard, calls):
    """Return a connection on a fake transport that appends "abort" to `calls` when closed."""
    state = SimpleNamespace(connections=set(), tasks=set(), default_headers=[])
    config = SimpleNamespace(
        loaded=True, loaded_app=None, ws_protocol_class=None, root_path="", asgi_version="3.0",
        limit_concurrency=None, timeout_keep_alive=5,
    )  # fmt: skip
    protocol = guard.make_protocol_class()(config, state, {}, asyncio.get_running_loop())
    transport = SimpleNamespace(
        get_extra_info=lambda _: None, abort=lambda: calls.append("abort"), is_closing=lambda: False
    )
    protocol.connection_made(transport)
    return protocol


# ---------------------------------------------------------------- connections


def test_idle_connections_keep_nobody_out(service):
    idle = [connect(service) for _ in range(40)]
    try:
        assert service.call("GET", "/healthz", key=None).status == 200
        assert count_dropped(service, "evicted") > 20
    finally:
        for connection in idle:
            connection.close()


def test_requests_that_are_being_answered_are_not_evicted(tmp_path, monkeypatch):
    busy = ServiceSettings(rate=0, connections=3)
    with tools.running(tmp_path / "store", busy) as service:
        replies, all_arrived, answer_many = {}, threading.Event(), Store.predict_many

        def predict_after_all_arrived(store, queries):
            assert all_arrived.wait(240)
            return answer_many(store, queries)

        monkeypatch.setattr(Store, "predict_many", predict_after_all_arrived)

        def ask(i):
            replies[i] = service.predict([Q[i].tolist()])

        asking = threading.Thread(target=tools.at_once, args=(3, ask))
        asking.start()
        while service.app.state.service.metrics.waiting < 3:
            time.sleep(0.01)
        refused = send_bytes(service, GET + b"\r\n")
        all_arrived.set()
        asking.join(240)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert [replies[i].status for i in range(3)] == [200] * 3


def test_connections_leave_the_store_its_descriptors(monkeypatch):
    limits = {}
    monkeypatch.setattr(_server.resource, "getrlimit", lambda _: (limits["soft"], -1))
    limits["soft"] = 1024
    available = 1024 - _server._RESERVED_FILES - _server._BACKLOG
    assert 500 < _server.compute_connection_limit() < available
    limits["soft"] = -1
    assert _server.compute_connection_limit() == _server._MAX_CONNECTIONS
    limits["soft"] = 64
    with pytest.raises(InvalidInput, match="open files"):
        _server.compute_connection_limit()


# ---------------------------------------------------------------- health


@pytest.mark.parametrize(
    "error", [OSError(errno.EMFILE, "Too many open files"), StorageFailed("secret"), None], ids=repr
)
def test_whatever_closes_the_store_shows_in_health(tmp_path, monkeypatch, error):
    """`error`: raised by a commit; None: the store is closed behind the service."""
    with tools.running(tmp_path / "store") as service:
        assert service.call("GET", "/healthz", key=None).status == 200
        if error is None:
            service.store.close()
        else:
            monkeypatch.setattr(service.store._store.witness, "record_commit", raising(error))
            reply = service.predict([Q[0].tolist()])
            assert reply.status in (500, 503)
            assert "secret" not in str(reply.body)
        assert not service.store.is_consistent
        assert service.call("GET", "/healthz", key=None).status == 503
        assert "vicinal_up 0" in service.call("GET", "/metrics", key="curator").body


# ---------------------------------------------------------------- bodies


@pytest.mark.parametrize("unit", [b"0,", b"[],", b"[[0]],", b'"",', b"{},"])
def test_a_body_of_many_values_is_not_parsed(service, monkeypatch, unit):
    monkeypatch.setattr(PredictRequest, "model_validate_json", raising(AssertionError("parsed")))
    body = b'{"vectors": [' + unit * (90_000 // len(unit) * 2) + b"0]}"
    assert service.call("POST", "/v1/predict", body).status in (413, 422)


def test_one_error_is_enough():
    """A list of every error in a body would take a gigabyte."""
    with pytest.raises(Problem) as raised:
        parse_body(PredictRequest, b'{"vectors": [' + b'["a"],' * 1000 + b"[]]}")
    assert raised.value.status == 422
    with pytest.raises(ValueError, match="1 validation error") as raised:
        PredictRequest.model_validate_json(b'{"vectors": [' + b'["a"],' * 1000 + b"[]]}")
    assert raised.value.error_count() == 1


def test_limits_follow_from_n_features_and_batch():
    settings = ServiceSettings(request_queries=1024)
    narrow, broad, unknown = (
        BodyLimits.from_n_features(settings, width) for width in (4, 324, None)
    )
    assert narrow.max_bytes < 1 << 20 < broad.max_bytes < 16 << 20
    assert unknown.max_bytes == 8 << 20
    assert narrow.max_values == 1024 * 20
    full = b'{"vectors": [' + b",".join([b"[" + b"-1.2345678901234567e-300," * 323 + b"0]"] * 1024)
    assert len(full) < broad.max_bytes
    broad.check_values(full + b"]}")
    assert BodyLimits.from_n_features(ServiceSettings(body_bytes=5000), 4).max_bytes == 5000


def test_a_long_body_is_decoded_off_the_event_loop(tmp_path, monkeypatch):
    thread_names = []
    original = PredictRequest.model_validate_json

    def record_thread(content):
        thread_names.append(threading.current_thread().name)
        return original(content)

    monkeypatch.setattr(PredictRequest, "model_validate_json", record_thread)
    with tools.running(tmp_path / "store", n_queries=5000) as service:
        assert service.predict(points(2, 1)[0].tolist()).status == 200
        assert service.predict(points(900, 2)[0].tolist()).status == 200
    assert not thread_names[0].startswith("vicinal-decoder")
    assert thread_names[1].startswith("vicinal-decoder")


def test_all_bodies_together_are_bounded():
    """Fails if bodies exceed the shared memory instead of being refused with 503."""
    settings = ServiceSettings(bodies_bytes=4000)
    reader = BodyReader(settings, BodyLimits(3000, 10**6))

    async def read_bodies():
        async with reader.read_body(_request([b"x" * 1500, b"y" * 1000])) as content:
            assert len(content) == 2500
            with pytest.raises(Problem) as raised:
                async with reader.read_body(_request([b"z" * 1400, b"z" * 200])):
                    pass
            assert raised.value.status == 503
        async with reader.read_body(_request([b"x" * 2900])):
            pass
        assert reader._available_bytes == 4000

    asyncio.run(read_bodies())


def _request(chunks):
    async def stream():
        for chunk in chunks:
            yield chunk

    return SimpleNamespace(headers={"content-type": "application/json"}, stream=stream)


# ---------------------------------------------------------------- replays


def test_replays_under_new_keys_store_nothing(tmp_path):
    with make(tmp_path / "store") as store:
        first = store.predict(Q[:5], idempotency_key="first")
        count = store._store.database.read
        state = count("SELECT COUNT(*) FROM requests"), store._store.ledger.clock
        for i in range(20):
            replay = store.predict(Q[4::-1], idempotency_key=f"again-{i}")
            assert (replay.charged, replay.votes.tolist()) == (0, first.votes[::-1].tolist())
        assert (count("SELECT COUNT(*) FROM requests"), store._store.ledger.clock) == state
        assert state[0] == [(1,)]


def test_a_replay_and_its_original_in_one_block_store_one_key(tmp_path):
    with make(tmp_path / "store") as store:
        queries = [Query(Q[:3], idempotency_key=f"{i}") for i in range(4)]
        replies = store.predict_many(queries)
        assert [reply.charged for reply in replies] == [3, 0, 0, 0]
        assert store._store.database.read("SELECT COUNT(*) FROM requests") == [(1,)]


# ---------------------------------------------------------------- start


def test_the_url_is_announced_once_the_port_is_bound(tmp_path):
    with make(tmp_path / "store") as store, socket.create_server(("127.0.0.1", 0)) as occupied:
        urls = []
        app = create_app(store, tmp_path / "store", SMALL)
        server = _server.create_server(app, "127.0.0.1", occupied.getsockname()[1], urls.append)
        with pytest.raises(SystemExit):
            server.run()
        assert urls == []
        app = create_app(store, tmp_path / "store", SMALL)
        server = _server.create_server(app, "127.0.0.1", 0, urls.append)
        with tools.thread_of(server) as port:
            assert urls == [f"http://127.0.0.1:{port}"]
            assert port > 0


@pytest.mark.parametrize(
    "plan", [{}, {"release": "label"}, {"kernel": "rbf"}, {"neighbor_count": "private"}], ids=str
)
def test_warming_up_charges_nobody_and_leaves_nothing(tmp_path, monkeypatch, caplog, plan):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    replies = []
    with make(tmp_path / "store", **plan) as store:
        state = store._store.ledger.clock, store.quota()
        predict_many = Store.predict_many
        monkeypatch.setattr(
            Store,
            "predict_many",
            lambda *arguments: replies.append(predict_many(*arguments)) or replies[-1],
        )
        warm_up(store)
        assert (store._store.ledger.clock, store.quota()) == state
        assert [reply.charged for (reply,) in replies] == [8]
        assert caplog.text == ""
        assert list((tmp_path / "temporary").iterdir()) == []
