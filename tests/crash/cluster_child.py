"""A coordinator to be killed: it connects to a Ray engine, and does one act after the other.

Acts are numbered, and what they are follows from the number alone: queries, erasures, additions,
and an audience whose private model is trained. A child goes on after the last act that was seen to
end; the one after that may have ended and not been seen, or begun, and is done again, with its key,
as a client would.
"""

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import store_tools as tools
from crash.store_spawner import Seen
from crash.store_watch import seen
from ray_engine import list_process_ids
from vicinal.distributed import Coordinator, RayCluster

QUERIES = np.random.default_rng(5).normal(size=(40_000, tools.D)) * 2


TRAINED = {**tools.PLAN, "n_queries": 100_000, "noise_multiplier": 12.0, "n_records": 300,
           "model_share": 0.3, "simulation_seed": 3}  # fmt: skip


def request(number):
    """Return the queries of a request; no two requests share one."""
    return QUERIES[4 * number : 4 * number + 1 + number % 4]


def act(store, number):
    """Do what a number stands for; return what was answered, in figures that are exact."""
    if number == 3:
        if "trained" not in store.audiences:
            store.open_audience("trained", **TRAINED)
    elif number % 10 == 5:
        store.erase([f"person-{number // 10 % 150}"])
    elif number % 10 == 8:
        X, y = tools.points(2, number)
        who = [f"person-{number // 10 % 150}", f"new-{number}"]
        store.add(X, y, who, idempotency_key=f"records {number}")
    else:
        audience = "trained" if number > 3 and number % 2 else "default"
        key = f"request {number}"
        reply = store.predict(request(number), idempotency_key=key, audience=audience)
        figures = np.concatenate([reply.votes.ravel(), reply.probabilities.ravel()])
        return [figure.hex() for figure in figures.tolist()]
    return []


class Wild:
    """A way to a shard on which messages are late, come twice, and come again when all is over."""

    def __init__(self, link, rng):
        self.link = link
        self.rng = rng
        self.old = []

    def send(self, order):
        if type(order.task).__name__ == "DeleteSums" and self.rng.random() < 0.3:
            return None  # nobody waits for an answer
        time.sleep(self.rng.exponential(0.002))
        self.old.append(order)
        if self.rng.random() < 0.3:
            self.link.send(order)
        if self.rng.random() < 0.3:
            self.link.send(self.old[self.rng.integers(len(self.old))])
        return self.link.send(order)

    def close(self):
        self.link.close()


def ask(coordinator, cluster, number, notes):
    votes = act(coordinator, number)
    pids = list_process_ids(cluster)
    notes.note(number=number, votes=votes, shards=pids, at=time.time())


def main():
    path, address, file, seed = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    rng = np.random.default_rng(seed)
    number = max((note["number"] for note in seen(file)), default=-1) + 1
    notes = Seen(file)
    cluster = RayCluster(address)

    def links(paths):
        return [Wild(link, rng) for link in cluster.transports(paths)]

    with Coordinator.open(path, links, 480.0) as coordinator:
        while True:
            ask(coordinator, cluster, number, notes)
            number += 1
            time.sleep(0.02)


if __name__ == "__main__":
    main()
