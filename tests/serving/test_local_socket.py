"""Local commands while a service runs: the service executes their tasks on its open store."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import stat
import struct
import threading
from pathlib import Path

import numpy as np
import pytest

import serving_tools as tools
import shard_tools
from command_line import shown as run
from store_tools import PEOPLE, Q, make
from vicinal.errors import InvalidInput, StorageFailed
from vicinal.ledger.files import Lock
from vicinal.serving.app import create_app
from vicinal.serving.keys import KeyFile
from vicinal.serving.local_socket import LocalSocket, ServedStore, _is_owner
from vicinal.store import Store
from vicinal.store.folder import SOCKET


def send_task(folder, content):
    """Send bytes to the socket and return the reply; empty if the service closes at once."""
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionError):
        connection.connect(str(folder / SOCKET))
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return connection.makefile("rb").read()
    return b""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service in this process, of which only one test asks for answers."""
    with tools.running(tmp_path_factory.mktemp("running") / "store") as running_service:
        yield running_service


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """A service in a separate process, started by `vicinal serve`."""
    folder = tmp_path_factory.mktemp("served") / "store"
    make(folder, n_queries=5000).close()
    keys = {role: KeyFile(folder).add(role, role, "default") for role in ("analyst", "curator")}
    with tools.serving_process(folder, keys) as (running_service, child):
        yield running_service
        child.send_signal(signal.SIGTERM)
        assert child.wait(240) == 0
        assert not (folder / SOCKET).exists()


def test_a_day_beside_a_service_in_a_process_of_its_own(process, tmp_path):
    """Fails if a read command cannot run, the service stops, or a repeated answer is charged."""
    folder = process.folder
    assert process.predict(Q[:3].tolist(), name="k").body["charged"] == 3
    facts = json.loads(run("inspect", folder, "--json"))
    assert facts["audiences"]["default"]["queries"]["used"] == 3
    assert "private" not in facts
    assert "3 of 5000 planned answers given" in run("inspect", folder)
    assert json.loads(run("inspect", folder, "--curator", "--json"))["private"]["records"] == 300
    assert "All is well" in run("verify", folder)
    assert process.call("DELETE", "/v1/subjects/person-3", key="curator").status == 200
    assert "All is well" in run("verify", folder, "--erased", "person-3")
    assert "person-4" not in run("verify", folder, "--erased", "person-4", code=2)
    run("backup", folder, tmp_path / "backup")
    assert json.loads((tmp_path / "backup" / "store.json").read_text())["backup"] is True
    run("backup", folder, tmp_path / "backup", code=2)  # the folder exists
    assert process.predict(Q[:3].tolist(), name="k").body["charged"] == 0
    queries = tmp_path / "queries.npz"
    np.savez(queries, x=Q[:2])
    csv = tmp_path / "queries.csv"
    csv.touch()
    records = tmp_path / "records.npz"
    np.savez(records, x=Q[:1], y=[1], subjects=["person-301"])
    requests = {
        ("erase", "--subject", "person-5", "--yes"): "DELETE /v1/subjects/ID",
        ("add", "--data", records): "POST /v1/records",
        ("predict", "--data", queries): "POST /v1/predict with",
        ("predict", "--data", csv): "POST /v1/predict-csv with",
        ("allow", "anna", "3"): "Stop the service",
        ("backup", tmp_path / "b", "--accept-loss"): "Stop the service",
        ("serve", "--port", "0"): "Stop the service",
    }
    for (command, *arguments), remedy in requests.items():
        printed = run(command, folder, *arguments, code=3)
        assert "A running service has" in printed
        assert remedy in " ".join(printed.split())
        assert "person-5" not in printed


def test_answers_go_on_around_what_is_asked(service, tmp_path):
    """Fails if local commands interrupt answers or let them be charged twice."""
    failed = []

    def run_commands():
        try:
            for i in range(2):
                run("verify", service.folder)
                run("backup", service.folder, tmp_path / f"backup-{i}")
                run("inspect", service.folder)
        except BaseException as error:  # noqa: BLE001 (shown below)
            failed.append(error)

    thread = threading.Thread(target=run_commands)
    thread.start()
    for row in Q[:30].tolist():
        assert service.predict([row]).status == 200
    thread.join()
    assert not failed
    assert service.store.quota().used == 30
    assert service.store.verify()


@pytest.mark.parametrize("served", ["store", "cluster"])
def test_a_failure_of_what_is_asked_ends_no_service(served, tmp_path, monkeypatch):
    """Fails if a failed backup, for example on a full disk, stops the service."""
    if served == "store":
        opened = make(tmp_path / "store")
    else:
        opened = shard_tools.local(shard_tools.clustered(tmp_path, 2))
    folder = tmp_path / served
    with opened, tools.listening(create_app(opened, folder, tools.FAST)) as port:
        keys = {"analyst": KeyFile(folder).add("anna", "analyst", "default")}
        service = tools.Service(port, folder, opened, keys)
        with monkeypatch.context() as patch:
            patch.setattr(
                "vicinal.store.backups._copy_files",
                lambda *_: (_ for _ in ()).throw(StorageFailed("The disk is full.")),
            )
            run("backup", folder, tmp_path / "backup", code=2)
        assert service.predict(Q[:2].tolist()).body["charged"] == 2
        assert service.call("GET", "/healthz", key=None).status == 200
        with pytest.raises(InvalidInput, match="must be a new folder"):
            ServedStore(folder).backup(folder)
        assert "All is well" in run("verify", folder)
        assert json.loads(run("inspect", folder, "--json"))["version"] == opened.version
        assert service.predict(Q[:4].tolist()).body["charged"] == 2
        assert opened.is_consistent
        run("backup", folder, tmp_path / "another")
    folder.rename(tmp_path / "old")
    run("restore", tmp_path / "another", folder)
    assert "4 of 60 planned answers given" in run("inspect", folder)


def test_the_socket_is_its_owners_alone(service, monkeypatch):
    path = service.folder / SOCKET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ServedStore(service.folder).guarantee("default") == service.store.guarantee()
    assert not any(person in json.dumps(ServedStore(service.folder).facts()) for person in PEOPLE)
    monkeypatch.setattr("vicinal.serving.local_socket._is_owner", lambda *_: False)
    assert b"done" not in send_task(service.folder, b'{"task": "facts", "arguments": {}}')
    with pytest.raises(StorageFailed, match="another user"):
        ServedStore(service.folder).facts()


def test_the_socket_is_its_owners_from_its_first_moment(tmp_path, monkeypatch):
    """Fails if other users could connect before the permissions are set."""
    modes = []
    original_bind = socket.socket.bind

    class Watched(socket.socket):
        def bind(self, address):
            original_bind(self, address)
            modes.append(stat.S_IMODE(Path(address).stat().st_mode))

    async def start_and_stop():
        listening = LocalSocket(None, tmp_path, None)
        await listening.start()
        await listening.stop()

    monkeypatch.setattr(socket, "socket", Watched)
    asyncio.run(start_and_stop())
    assert modes == [0o600]


def test_what_is_refused_is_refused_in_the_same_words(service):
    for store in (service.store, ServedStore(service.folder)):
        with pytest.raises(InvalidInput, match="an audience of this store"):
            store.guarantee("nobody")


class Peer:
    """A fake connection to a process of the given user."""

    def __init__(self, user):
        self.user = user

    def getsockopt(self, *_):
        return struct.pack("3i", 1, self.user, self.user)


@pytest.mark.parametrize("me", [0, 1000])
def test_root_and_the_owner_may_ask_and_nobody_else(me, monkeypatch):
    """Fails if other users can use the socket, or if root trusts a socket of any user."""
    first, second = socket.socketpair()
    with first, second:
        assert _is_owner(first)
    monkeypatch.setattr(os, "getuid", lambda: me)
    users = (0, 1000, 1001)
    assert [user for user in users if _is_owner(Peer(user))] == sorted({0, me})
    assert [user for user in users if _is_owner(Peer(user), 1001)] == [me, 1001]


@pytest.mark.parametrize(
    "sent",
    [
        b"", b"[" * 200_000, b"{", b"[1]", b'{"task": 1}', b"\xff",
        b'{"task": "erase", "arguments": {}}',
    ],
)  # fmt: skip
def test_what_is_no_question_harms_nothing(service, sent, caplog):
    assert b"done" not in send_task(service.folder, sent)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert ServedStore(service.folder).facts()["version"] == service.store.version


def test_a_socket_that_a_killed_service_left_is_in_nobodys_way(tmp_path):
    folder = tmp_path / "store"
    make(folder).close()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / SOCKET))
    assert "All is well" in run("verify", folder)
    with Store.open(folder) as store:
        with tools.listening(create_app(store, folder, tools.FAST)):
            assert ServedStore(folder).facts()["version"] == store.version
        assert not (folder / SOCKET).exists()
    with socket.socket(socket.AF_UNIX) as another:
        another.bind(str(folder / "other"))
    with pytest.raises(InvalidInput, match="not a regular file"):
        Store.open(folder)


def test_a_folder_with_a_long_path_is_served(tmp_path):
    folder = tmp_path / ("long" * 30) / "store"
    folder.parent.mkdir()
    with tools.running(folder):
        assert "All is well" in run("verify", folder)


def test_a_store_that_a_command_has_open_is_refused_as_ever(tmp_path):
    folder = tmp_path / "store"
    make(folder).close()
    lock = Lock(folder / "lock")
    try:
        for command in (("inspect",), ("verify",), ("backup", tmp_path / "backup")):
            output = run(command[0], folder, *command[1:], code=3)
            assert "Another process" in output
    finally:
        lock.release()


@pytest.mark.parametrize(
    "reply",
    [b"[]", b"1", b"{}", b"[" * 200_000, b'{"error": "annotations", "text": "!"}',
     b'{"error": [], "text": ""}', b'{"error": "PrivacyWarning", "text": ""}'],
)  # fmt: skip
def test_nothing_is_raised_that_a_service_does_not_refuse(tmp_path, reply):
    """Fails if a malformed reply calls a wrong class or ends the command with a traceback."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / SOCKET))
        listening.listen()

        def answer():
            connection = listening.accept()[0]
            with connection:
                connection.makefile("rb").read()
                connection.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(StorageFailed, match="did not answer"):
            ServedStore(tmp_path).facts()
        thread.join()


@pytest.mark.parametrize(("root", "trusted"), [(True, True), (False, False)])
def test_a_listener_is_this_user_or_for_root_the_folder_s_owner(
    service, monkeypatch, root, trusted
):
    """Fails if a command trusts a socket of another user and sends it ids."""
    owner = os.getuid()
    monkeypatch.setattr("vicinal.serving.local_socket.os.getuid", lambda: 0 if root else owner + 1)
    assert ServedStore(service.folder).is_reachable == trusted
