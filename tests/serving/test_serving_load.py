"""Many concurrent clients, nearly exhausted budgets, repeated keys, and graceful shutdown."""

import signal
import time

import pytest

import serving_tools as tools
from store_tools import Q, make, points
from vicinal.accounting.budget import UNITS
from vicinal.serving.keys import KeyFile
from vicinal.serving.settings import ServiceSettings
from vicinal.store import Store

CLIENTS = 64


def test_nearly_spent_budgets_hold_to_the_unit(tmp_path):
    replies = []
    with tools.running(tmp_path / "store", n_queries=40, epsilon=0.5) as service:
        queries = points(CLIENTS * 3, 21)[0].tolist()

        def ask(i):
            mine = queries[i * 3 : i * 3 + 3]
            replies.extend(service.predict([row], name=f"{row}") for row in mine)

        tools.at_once(CLIENTS, ask)
        answered = [reply for reply in replies if reply.status == 200]
        assert {reply.status for reply in replies} == {200, 403}
        assert sum(reply.body["charged"] for reply in answered) == 40
        assert service.store.quota().used == 40
        remaining = tools.tools.remaining(service.store)
        assert 0 <= remaining.min() < UNITS // 10**6, "not nearly spent"
        assert service.store.verify()


@pytest.mark.parametrize("times", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_one_key_is_charged_once_however_often(tmp_path, times):
    votes = set()
    with tools.running(tmp_path / "store") as service:

        def ask(_):
            for _ in range(times // 8):
                votes.add(str(service.predict(Q[:1].tolist(), name="again").body["votes"]))

        tools.at_once(8, ask)
        assert len(votes) == 1
        assert service.store.quota().used == 1
        assert service.store._store.database.read(
            "SELECT queries FROM charges WHERE queries > 0"
        ) == [(1,)]


def test_too_many_are_told_to_come_back(tmp_path):
    narrow = ServiceSettings(rate=0, request_queries=2, waiting_queries=2, wait_ms=1500)
    with tools.running(tmp_path / "store", narrow) as service:
        statuses = []

        def ask(i):
            statuses.append(service.predict([Q[i].tolist()], name=f"{i}"))

        tools.at_once(12, ask)
        busy = [reply for reply in statuses if reply.status == 503]
        assert busy
        assert {reply.headers["retry-after"] for reply in busy} == {"1"}
        answered = sum(reply.status == 200 for reply in statuses)
        assert answered + len(busy) == 12
        assert service.store.quota().used == answered


def test_answers_leave_at_beats(tmp_path):
    with tools.running(
        tmp_path / "store", ServiceSettings(rate=0, response_interval_ms=100)
    ) as service:
        service.predict([Q[0].tolist()])
        begin = time.perf_counter()
        for row in Q[1:4].tolist():
            assert service.predict([row]).status == 200
        # Each query waits for an interval to start and for another one to send its response.
        assert time.perf_counter() - begin > 0.5


def test_a_service_that_is_told_to_end_loses_no_answer(tmp_path):
    folder, replies = tmp_path / "store", {}
    make(folder, n_queries=5000).close()
    keys = {"analyst": KeyFile(folder).add("anna", "analyst", "default")}
    with (
        (tmp_path / "log").open("wb") as log,
        tools.serving_process(folder, keys, "--rate", "0", log=log) as (service, process),
    ):

        def ask_or_stop(client):
            if client < 8:
                rows = points(2000, 100 + client)[0]
                tools.predict_until_stopped(service, str(client), rows, replies)
                return
            while len(replies) <= 20:
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)

        tools.at_once(9, ask_or_stop)
        assert process.wait(240) == 0
    assert len(replies) > 20
    with Store.open(folder) as store:
        # Queries that are equal once rounded share an answer, and only the first is charged.
        assert store.quota().used >= len({str(votes) for _, votes in replies.values()})
        tools.check_replies(store, replies)
    assert "person" not in (tmp_path / "log").read_text()
