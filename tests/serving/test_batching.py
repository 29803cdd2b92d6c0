"""Composition of blocks: many requests in halves, single clients at once, replies not mixed up."""

import asyncio
import threading
import time

import pytest

pytest.importorskip("starlette")

from vicinal.serving._batcher import RequestBatcher
from vicinal.serving._metrics import Metrics
from vicinal.serving.settings import ServiceSettings
from vicinal.store import Query

WAIT = 0.125


class RecordingStore:
    """A fake store that records block sizes and answers once per release of `may_answer`."""

    def __init__(self):
        self.sizes = []
        self.may_answer = threading.Semaphore(0)

    def predict_many(self, queries):
        self.sizes.append(len(queries))
        assert self.may_answer.acquire(timeout=240)
        return [query.queries for query in queries]

    async def wait_for_block(self):
        """Wait for the first block."""
        while not self.sizes:
            await asyncio.sleep(0.001)


def submit_requests(batcher, numbers):
    """Submit requests of one query each, and return the tasks of their replies."""
    return [asyncio.ensure_future(batcher.submit(Query(i), 1)) for i in numbers]


def run_batcher(scenario, **settings):
    """Run a coroutine `scenario(batcher, store)`, stop the batcher, and return the result."""

    async def run():
        store = RecordingStore()
        batcher = RequestBatcher(store, ServiceSettings(**settings), Metrics(lambda: True))
        batcher.start()
        result = await scenario(batcher, store)
        await batcher.stop()
        return result

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [((1,), 1), ((1, 1, 1, 1), 1), ((3, 1, 1), 2), ((1, 3, 1), 3), ((1, 1, 3), 2)],
)
def test_a_request_that_follows_a_single_one_waits_for_nobody(monkeypatch, rounds, expected):
    """Fails if a request waits for others at the wrong time; sleeps are recorded, not executed."""
    slept = []
    sleep = asyncio.sleep

    async def record_sleep(seconds, *rest):
        slept.append(seconds)
        await sleep(0, *rest)

    async def scenario(batcher, store):
        store.may_answer.release(100)
        for count in rounds:
            assert await asyncio.gather(*submit_requests(batcher, range(count))) == list(
                range(count)
            )

    monkeypatch.setattr(asyncio, "sleep", record_sleep)
    run_batcher(scenario, wait_ms=1e3 * WAIT)
    assert slept.count(WAIT) == expected


@pytest.mark.parametrize(
    ("crowd", "sizes", "settings"),
    [
        (1, [1], {}), (40, [32, 8], {}), (256, [128, 128], {}), (600, [256, 256, 88], {}),
        (256, [256], {"response_interval_ms": 1.0}),
    ],
)  # fmt: skip
def test_a_crowd_is_answered_in_halves_and_all_get_their_own(crowd, sizes, settings):
    """Fails if the event loop is idle while the store works, or if replies are mixed up.

    With a response interval, a block takes as many queries as it can.
    """

    async def scenario(batcher, store):
        answers = submit_requests(batcher, range(crowd))
        await asyncio.sleep(0)  # all are in the queue before the first block
        store.may_answer.release(len(sizes))
        assert await asyncio.gather(*answers) == list(range(crowd))
        return store.sizes

    assert run_batcher(scenario, **settings) == sizes


def test_the_next_half_begins_while_the_event_loop_is_busy():
    """Fails if the store is idle until the event loop has finished its reads and writes."""

    async def scenario(batcher, store):
        answers = submit_requests(batcher, range(256))
        await store.wait_for_block()
        store.may_answer.release()
        for _ in range(6000):  # the event loop is blocked meanwhile
            if len(store.sizes) == 2:
                break
            time.sleep(0.001)
        started = list(store.sizes)
        store.may_answer.release()
        assert await asyncio.gather(*answers) == list(range(256))
        return started

    assert run_batcher(scenario) == [128, 128]


def test_what_others_want_of_the_store_comes_before_the_next_half():
    """Fails if waiting queries delay an erasure by more than one block."""

    async def scenario(batcher, store):
        answers = submit_requests(batcher, range(256))
        await store.wait_for_block()
        erasure = asyncio.ensure_future(batcher.run(lambda: list(store.sizes)))
        await asyncio.sleep(0)
        store.may_answer.release(2)
        await asyncio.gather(*answers)
        return await erasure

    assert run_batcher(scenario) == [128]
