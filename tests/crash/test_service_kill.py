"""kill -9 of a service under load: every answer that a client saw is there, paid for once.

When it dies is left to the machine. The soak kills 34 times: a fault that one kill in ten shows is
missed with probability .9^34 = .03.
"""

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
    keys = {"analyst": KeyFile(folder).add("anna", "analyst", "default")}
    for life in range(kills):
        live_and_die(folder, keys, life, replies, rng.uniform(0, 0.5))
    with Store.open(folder) as store:
        used = store.quota().used
        assert used <= len(replies) + CLIENTS * kills, "more was charged than was under way"
        tools.check_replies(store, replies)
    print(f"{kills} kills, {len(replies)} answers, {used} charged")


def live_and_die(folder, keys, life, replies, seconds):
    """Serve until so long after the first answer, then kill the service."""
    before = len(replies)
    with tools.serving_process(folder, keys, "--rate", "0") as (service, process):
        clients = [
            threading.Thread(
                target=tools.predict_until_stopped,
                args=(service, f"{life}-{i}", points(5000, 1000 + 100 * life + i)[0], replies),
            )
            for i in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        while len(replies) == before:
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
    for client in clients:
        client.join(240)
        assert not client.is_alive()
