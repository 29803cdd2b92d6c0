"""A coordinator to be killed: it connects to a Ray engine, and asks request after request.

Requests are numbered, and what they ask follows from the number alone. A child goes on after the
last answer that was seen; the one after that may have been answered and not seen, or charged and
not answered, and is asked again with its key, as a client would.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import store_tools as tools
from vicinal.distributed import Coordinator, MissingShardPolicy, RayCluster

QUERIES = np.random.default_rng(5).normal(size=(40_000, tools.D)) * 2


def request(number):
    """Return the queries of a request; no two requests share one."""
    return QUERIES[4 * number : 4 * number + 1 + number % 4]


class Wild:
    """A way to a shard on which messages are late, come twice, and come again when all is over."""

    def __init__(self, link, rng):
        self.link = link
        self.rng = rng
        self.old = []

    def send(self, order):
        if type(order.task).__name__ == "DeleteVotes" and self.rng.random() < 0.3:
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


def seen(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ask(coordinator, cluster, number, file):
    reply = coordinator.predict(request(number), idempotency_key=f"request {number}")
    votes = [vote.hex() for vote in reply.votes.ravel().tolist()]
    pids = cluster.processes()
    note = {"number": number, "votes": votes, "shards": pids, "at": time.time()}
    os.write(file, (json.dumps(note) + "\n").encode())


def main():
    path, address, notes, seed = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    rng = np.random.default_rng(seed)
    number = max((note["number"] for note in seen(notes)), default=-1) + 1
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    cluster = RayCluster(address)

    def links(paths):
        return [Wild(link, rng) for link in cluster.transports(paths)]

    with Coordinator.open(path, links, MissingShardPolicy(deadline=480.0)) as coordinator:
        while True:
            ask(coordinator, cluster, number, file)
            number += 1
            time.sleep(0.02)


if __name__ == "__main__":
    main()
