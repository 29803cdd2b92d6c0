"""Which requests are answered together: a crowd in two halves, a lone client at once."""

import asyncio
import threading
import time

import pytest

pytest.importorskip("starlette")

from vicinal.serving._settings import ServiceSettings
from vicinal.serving._state import Metrics, RequestBatcher
from vicinal.store import Query


class RecordingStore:
    """Keeps the sizes of blocks; answers each when it is told to."""

    def __init__(self):
        self.sizes, self.n_under_way = [], 1
        self.may_answer = threading.Semaphore(0)

    def predict_many(self, queries):
        self.sizes.append(len(queries))
        assert self.may_answer.acquire(timeout=60)
        return [query.queries for query in queries]


def crowd_of(size, **settings):
    """Return a store, its batcher, and the answers that so many requests wait for."""
    store = RecordingStore()
    batcher = RequestBatcher(store, ServiceSettings(**settings), Metrics(lambda: True))
    batcher.start()
    requests = (batcher.submit(Query(i), 1) for i in range(size))
    return store, batcher, [asyncio.ensure_future(one) for one in requests]


def sizes_of_blocks(crowd, blocks, **settings):
    """Return the sizes of blocks that so many requests, each of one query, are answered in."""

    async def ask():
        store, batcher, answers = crowd_of(crowd, **settings)
        await asyncio.sleep(0)  # all are in the queue before the first block
        store.may_answer.release(blocks)
        assert await asyncio.gather(*answers) == list(range(crowd))
        await batcher.stop()
        return store.sizes

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("crowd", "sizes"),
    [(1, [1]), (40, [32, 8]), (256, [128, 128]), (600, [256, 256, 88])],
)
def test_a_crowd_is_answered_in_halves_and_all_get_their_own(crowd, sizes):
    """Fails if the loop has nothing to do while the store works, or if answers are mixed up."""
    assert sizes_of_blocks(crowd, len(sizes)) == sizes


def test_the_next_half_begins_while_the_event_loop_is_busy():
    """Fails if the store stands still until the loop has read and written what there is."""

    async def ask():
        store, batcher, answers = crowd_of(256)
        while not store.sizes:
            await asyncio.sleep(0.001)
        store.may_answer.release()
        for _ in range(6000):  # in which the loop does nothing else
            if len(store.sizes) == 2:
                break
            time.sleep(0.001)
        begun = list(store.sizes)
        store.may_answer.release()
        assert await asyncio.gather(*answers) == list(range(256))
        await batcher.stop()
        return begun

    assert asyncio.run(ask()) == [128, 128]


def test_what_others_want_of_the_store_comes_before_the_next_half():
    """Fails if a crowd keeps an erasure waiting."""

    async def ask():
        store, batcher, answers = crowd_of(256)
        while not store.sizes:
            await asyncio.sleep(0.001)
        erasure = asyncio.ensure_future(batcher.run(lambda: list(store.sizes)))
        await asyncio.sleep(0)
        store.may_answer.release(2)
        await asyncio.gather(*answers)
        await batcher.stop()
        return await erasure

    assert asyncio.run(ask()) == [128]


def test_at_beats_a_block_takes_all_it_can():
    assert sizes_of_blocks(256, 1, response_interval_ms=1.0) == [256]
