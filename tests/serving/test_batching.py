"""Which requests wait for others before their block begins."""

import asyncio
import threading

import pytest

pytest.importorskip("starlette")

from vicinal.serving._settings import ServiceSettings
from vicinal.serving._state import Metrics, RequestBatcher
from vicinal.store import Query

WAIT = 0.125


class Echo:
    """In place of a store."""

    n_under_way = 1

    def predict_many(self, queries):
        return [query.queries for query in queries]


@pytest.fixture
def waits(monkeypatch):
    """Record what is slept for, and do not sleep."""
    slept, sleep = [], asyncio.sleep

    async def note(seconds, *rest):
        slept.append(seconds)
        await sleep(0, *rest)

    monkeypatch.setattr(asyncio, "sleep", note)
    return slept


def waited(waits, rounds):
    """Send rounds of so many requests at once, one after the other; return how many waited."""

    async def run():
        batcher = RequestBatcher(Echo(), ServiceSettings(wait_ms=1e3 * WAIT), Metrics(lambda: True))
        batcher.start()
        for count in rounds:
            replies = [batcher.submit(Query(i), 1) for i in range(count)]
            assert await asyncio.gather(*replies) == list(range(count))
        await batcher.stop()

    asyncio.run(run())
    return waits.count(WAIT)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [((1,), 1), ((1, 1, 1, 1), 1), ((3, 1, 1), 2), ((1, 3, 1), 3), ((1, 1, 3), 2)],
)
def test_a_request_that_follows_a_single_one_waits_for_nobody(waits, rounds, expected):
    assert waited(waits, rounds) == expected


class Slow(Echo):
    """In place of a store or a cluster: answers when it is told to, and notes who came."""

    def __init__(self, n_under_way):
        self.n_under_way = n_under_way
        self.go = threading.Event()
        self.blocks = []

    def predict_many(self, queries):
        self.blocks.append(len(queries))
        assert self.go.wait(240)
        return super().predict_many(queries)


@pytest.mark.parametrize(
    ("n_under_way", "more", "paced", "expected"),
    [
        (1, 8, 0.0, [4]),
        (2, 3, 0.0, [4]),
        (2, 4, 0.0, [4, 4]),
        (2, 9, 0.0, [4, 4]),
        (2, 8, 0.01, [4]),
    ],
)
def test_a_cluster_gets_the_next_block_early_if_it_is_full(n_under_way, more, paced, expected):
    """Fails if a store gets two blocks, a cluster a small one or three, or a paced service two."""

    async def run():
        store = Slow(n_under_way)
        settings = ServiceSettings(block_queries=4, wait_ms=0.0, response_interval_ms=paced)
        batcher = RequestBatcher(store, settings, Metrics(lambda: True))
        batcher.start()
        replies = [asyncio.ensure_future(batcher.submit(Query(i), 1)) for i in range(4)]
        while not store.blocks:
            await asyncio.sleep(0.001)
        replies += [asyncio.ensure_future(batcher.submit(Query(4 + i), 1)) for i in range(more)]
        for _ in range(20):  # what may begin has begun by then
            await asyncio.sleep(0.001)
        under_way = list(store.blocks)
        store.go.set()
        assert await asyncio.gather(*replies) == list(range(4 + more))
        await batcher.stop()
        return under_way

    assert asyncio.run(run()) == expected
