"""kill -9 of a service under load: every answer that a client saw is there, paid for once.

When it dies is left to the machine. The soak kills 34 times: a fault that one kill in ten shows is
missed with probability .9^34 = .03.
"""

import http.client
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import serving_tools as tools
from store_tools import make, points
from vicinal.serving.keys import KeyFile
from vicinal.store import Store

CLIENTS = 4


@pytest.mark.parametrize("kills", [1, pytest.param(34, marks=pytest.mark.soak)])
def test_a_service_that_is_killed_loses_no_answer(tmp_path, kills):
    folder, replies, rng = tmp_path / "store", {}, np.random.default_rng(5)
    make(folder, n_queries=100_000, noise_multiplier=12.0).close()
    key = KeyFile(folder).add("a", "analyst", "default")
    for life in range(kills):
        live_and_die(folder, key, life, replies, rng.uniform(0, 0.5))
    with Store.open(folder) as store:
        used = store.quota().used
        for name, (row, votes) in replies.items():
            stored = store.predict([row], analyst="a", idempotency_key=name)
            assert (stored.charged, stored.votes.tolist()) == (0, votes)
        assert store.quota().used == used
        assert used <= len(replies) + CLIENTS * kills, "more was charged than was under way"
        assert store.verify()
    print(f"{kills} kills, {len(replies)} answers, {used} charged")


def live_and_die(folder, key, life, replies, seconds):
    """Serve until so long after the first answer, then kill the service."""
    service = tools.Service(tools.free_port(), folder, None, {"analyst": key})
    command = [sys.executable, "-m", "vicinal", "serve", folder, "--rate", "0"]
    process = subprocess.Popen([*command, "--port", str(service.port)], stderr=subprocess.DEVNULL)
    asking = [
        threading.Thread(target=ask, args=(service, f"{life}-{i}", 100 * life + i, replies))
        for i in range(CLIENTS)
    ]
    try:
        tools.wait_for(service, process)
        before = len(replies)
        for one in asking:
            one.start()
        while len(replies) == before:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
    finally:
        process.kill()
        process.wait()
    for one in asking:
        one.join(240)
        assert not one.is_alive()


def ask(service, name, seed, replies):
    """Ask new queries, each under a key of its own, until nobody listens."""
    for number, row in enumerate(points(5000, 1000 + seed)[0].tolist()):
        try:
            reply = service.predict([row], name=f"{name}-{number}")
        except (OSError, http.client.HTTPException):
            return
        assert reply.status == 200
        replies[f"{name}-{number}"] = row, reply.body["votes"]
