"""Which requests wait for others before their block begins."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("starlette")

from vicinal.serving._metrics import Metrics
from vicinal.serving._settings import ServiceSettings
from vicinal.serving._state import RequestBatcher
from vicinal.store import Query

WAIT = 0.125


class Echo:
    """In place of a store."""

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
