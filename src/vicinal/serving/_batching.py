"""Requests of a few milliseconds become one block, one product, one commit.

One thread does all the work of the store. While it is busy requests gather, and the next block
takes them all: the busier the service, the larger the blocks, and the less a commit costs each.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from vicinal.errors import ShardMissing, StoreOutdated
from vicinal.serving._metrics import Metrics
from vicinal.serving._problems import busy
from vicinal.serving._settings import ServiceSettings
from vicinal.store import Query, Reply
from vicinal.store._base_store import AnyStore

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_OPERATORS = (ShardMissing, StoreOutdated)
"""Errors whose sentences only the operator sees, in the log."""


@dataclass(eq=False)
class _PendingRequest:
    """A request before the worker."""

    query: Query
    size: int
    answer: asyncio.Future[Reply]


class RequestBatcher:
    """Puts requests together, and hands out what the store replies.

    Parameters
    ----------
    store : AnyStore
        Used by one thread of this object's.
    settings : ServiceSettings
        Sizes and waiting times.
    metrics : Metrics
        Counts every block.

    Notes
    -----
    No client gets anything before the store has returned, which is after the commit. If a client
    does not wait for it, what was charged stays stored under its idempotency key.
    """

    def __init__(self, store: AnyStore, settings: ServiceSettings, metrics: Metrics) -> None:
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vicinal-store")
        self._queue: deque[_PendingRequest] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._served = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def stop(self) -> None:
        """Answer all requests that wait, then end. No further request is taken."""
        self._closing = True
        self._arrived.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown(wait=True)

    async def submit(self, query: Query, size: int) -> Reply:
        """Return the store's reply to a request of `size` queries.

        Raises
        ------
        Problem
            503 if too many queries are waiting, or the service is ending.
        VicinalError
            The store's, for this request alone or, if it failed, for all of the block.
        """
        if self._closing or self._metrics.waiting + size > self._settings.waiting_queries:
            raise busy()
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.append(_PendingRequest(query, size, answer))
        self._metrics.waiting += size
        self._arrived.set()
        return await answer

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, done by the thread that has the store, between two blocks."""
        if self._closing:
            raise busy()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except OSError as error:
            self._metrics.failed |= _is_failure(error)
            raise

    # ------------------------------------------------------------ the work

    async def _work(self) -> None:
        while await self._wait_for_request():
            await self._gather()
            await self._serve(self._block())

    async def _wait_for_request(self) -> bool:
        """Wait for a request; return False when there is none and there will be none."""
        while not self._queue and not self._closing:
            self._arrived.clear()
            await self._arrived.wait()
        return bool(self._queue)

    async def _gather(self) -> None:
        """Let others join, or wait for the next interval."""
        if self._settings.response_interval_ms:
            await self._wait_for_interval()
        elif self._company() and not self._closing:
            await asyncio.sleep(self._settings.wait_ms / 1e3)

    def _company(self) -> bool:
        """Tell whether others may come soon: not if this request and the last one were alone."""
        room = self._metrics.waiting < self._settings.block_queries
        return room and (len(self._queue) > 1 or self._served != 1)

    def _block(self) -> list[_PendingRequest]:
        """Take requests from the front until the block is full."""
        block: list[_PendingRequest] = []
        size = 0
        while self._queue and (
            not block or size + self._queue[0].size <= self._settings.block_queries
        ):
            block.append(self._queue.popleft())
            size += block[-1].size
        return block

    async def _serve(self, block: list[_PendingRequest]) -> None:
        """Have a block answered; every request of it gets an answer or an error."""
        self._served = len(block)
        size = sum(waiting.size for waiting in block)
        self._metrics.blocks.add(size)
        queries = [waiting.query for waiting in block]
        replies: list[Reply | Exception]
        try:
            work = partial(self._store.predict_many, queries)
            replies = list(await asyncio.get_running_loop().run_in_executor(self._thread, work))
        except Exception as error:  # noqa: BLE001 (every request of the block gets it)
            self._metrics.failed |= _is_failure(error)
            replies = [error] * len(block)
        fault = next((reply for reply in replies if isinstance(reply, _OPERATORS)), None)
        if fault is not None:  # which shard, and why: both are public
            self._metrics.missing += isinstance(fault, ShardMissing)
            _LOG.warning("%s", fault)
        if self._settings.response_interval_ms:
            await self._wait_for_interval()
        self._metrics.waiting -= size
        for waiting, reply in zip(block, replies, strict=True):
            _resolve_future(waiting.answer, reply)

    async def _wait_for_interval(self) -> None:
        """Sleep until the clock shows a multiple of the interval."""
        interval = self._settings.response_interval_ms / 1e3
        await asyncio.sleep(interval - asyncio.get_running_loop().time() % interval)


def _is_failure(error: Exception) -> bool:
    """Tell whether the store has failed; a missing shard may be back for the next block."""
    return isinstance(error, OSError) and not isinstance(error, ShardMissing)


def _resolve_future(answer: asyncio.Future[Reply], reply: Reply | Exception) -> None:
    if answer.done():  # the client has left
        return
    if isinstance(reply, Exception):
        answer.set_exception(reply)
    else:
        answer.set_result(reply)
