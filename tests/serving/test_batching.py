"""Which requests are answered together: a crowd in halves, a lone client at once, none mixed up."""

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
    """In place of a store: keeps the sizes of blocks, answers when it is told to."""

    def __init__(self):
        self.sizes = []
        self.may_answer = threading.Semaphore(0)

    def predict_many(self, queries):
        self.sizes.append(len(queries))
        assert self.may_answer.acquire(timeout=240)
        return [query.queries for query in queries]

    async def began(self):
        """Wait for the first block."""
        while not self.sizes:
            await asyncio.sleep(0.001)


def asked(batcher, numbers):
    """Send requests of one query each; return what waits for their answers."""
    return [asyncio.ensure_future(batcher.submit(Query(i), 1)) for i in numbers]


def in_batches(asking, **settings):
    """Return what `asking` does with a batcher and its store, then stop."""

    async def run():
        store = RecordingStore()
        batcher = RequestBatcher(store, ServiceSettings(**settings), Metrics(lambda: True))
        batcher.start()
        found = await asking(batcher, store)
        await batcher.stop()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [((1,), 1), ((1, 1, 1, 1), 1), ((3, 1, 1), 2), ((1, 3, 1), 3), ((1, 1, 3), 2)],
)
def test_a_request_that_follows_a_single_one_waits_for_nobody(monkeypatch, rounds, expected):
    """What is slept for is recorded and not slept."""
    slept, sleep = [], asyncio.sleep

    async def note(seconds, *rest):
        slept.append(seconds)
        await sleep(0, *rest)

    async def asking(batcher, store):
        store.may_answer.release(100)
        for count in rounds:
            assert await asyncio.gather(*asked(batcher, range(count))) == list(range(count))

    monkeypatch.setattr(asyncio, "sleep", note)
    in_batches(asking, wait_ms=1e3 * WAIT)
    assert slept.count(WAIT) == expected


@pytest.mark.parametrize(
    ("crowd", "sizes", "settings"),
    [
        (1, [1], {}), (40, [32, 8], {}), (256, [128, 128], {}), (600, [256, 256, 88], {}),
        (256, [256], {"response_interval_ms": 1.0}),
    ],
)  # fmt: skip
def test_a_crowd_is_answered_in_halves_and_all_get_their_own(crowd, sizes, settings):
    """Fails if the loop has nothing to do while the store works, or if answers are mixed up.

    At beats a block takes all that it can.
    """

    async def asking(batcher, store):
        answers = asked(batcher, range(crowd))
        await asyncio.sleep(0)  # all are in the queue before the first block
        store.may_answer.release(len(sizes))
        assert await asyncio.gather(*answers) == list(range(crowd))
        return store.sizes

    assert in_batches(asking, **settings) == sizes


def test_the_next_half_begins_while_the_event_loop_is_busy():
    """Fails if the store stands still until the loop has read and written what there is."""

    async def asking(batcher, store):
        answers = asked(batcher, range(256))
        await store.began()
        store.may_answer.release()
        for _ in range(6000):  # in which the loop does nothing else
            if len(store.sizes) == 2:
                break
            time.sleep(0.001)
        begun = list(store.sizes)
        store.may_answer.release()
        assert await asyncio.gather(*answers) == list(range(256))
        return begun

    assert in_batches(asking) == [128, 128]


def test_what_others_want_of_the_store_comes_before_the_next_half():
    """Fails if a crowd keeps an erasure waiting."""

    async def asking(batcher, store):
        answers = asked(batcher, range(256))
        await store.began()
        erasure = asyncio.ensure_future(batcher.run(lambda: list(store.sizes)))
        await asyncio.sleep(0)
        store.may_answer.release(2)
        await asyncio.gather(*answers)
        return await erasure

    assert in_batches(asking) == [128]
