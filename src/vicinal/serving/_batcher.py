"""Batches the requests of a few milliseconds into blocks with one matrix product and one commit.

A request has one or more queries. With a response interval (*paced*), blocks start and replies are
sent only at its multiples. One thread does all work on the store. Requests that arrive meanwhile
form the next block, so blocks grow with the load and the cost of a commit per request falls.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from vicinal.errors import ShardMissing, StoreOutdated
from vicinal.serving._metrics import Metrics
from vicinal.serving._problems import Problem
from vicinal.serving.settings import ServiceSettings
from vicinal.store.base_store import BaseStore
from vicinal.store.requests import Query, Reply

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_MIN_QUERIES_PER_HALF = 32
"""A block of more than twice this number of queries is split into halves: while the store computes
one half, the event loop sends the responses of the other and reads the next requests."""
_LOGGED_ERRORS = (ShardMissing, StoreOutdated)
"""Errors whose messages are written to the log, because clients get a general text instead."""


@dataclass(eq=False)
class _PendingRequest:
    """A request that waits for its reply."""

    query: Query  # all queries of the request
    n_queries: int
    reply: asyncio.Future[Reply]


@dataclass(eq=False)
class _SubmittedBlock:
    """A block given to the store's thread; the result is its replies and the following block."""

    requests: list[_PendingRequest]
    result: Future[tuple[list[Reply | Exception], _SubmittedBlock | None]]


class RequestBatcher:
    """Combines requests into blocks, lets one thread answer them, and distributes the replies.

    Under load that thread starts the next block itself, because the event loop notices a free
    thread only after its pending reads and writes. A reply is sent after the store has returned,
    that is after the commit. If the client has disconnected, the reply stays stored under its
    idempotency key.
    """

    def __init__(self, store: BaseStore, settings: ServiceSettings, metrics: Metrics) -> None:
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._is_paced = settings.response_interval_ms > 0
        self._waiting_lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vicinal-store")
        self._queue: deque[_PendingRequest] = deque()
        self._request_arrived = asyncio.Event()
        self._is_closing = False
        self._last_n_requests = 0
        self._last_n_queries = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start processing requests in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._process_requests())

    async def stop(self) -> None:
        """Refuse new requests, answer all waiting ones, and end the thread."""
        self._is_closing = True
        self._request_arrived.set()
        if self._task is not None:
            await self._task
        self._thread.shutdown(wait=True)

    async def submit(self, query: Query, n_queries: int) -> Reply:
        """Return the store's reply to a request of `n_queries` queries.

        Raises problem 503 if too many queries are waiting or the service is stopping. An error of
        the store concerns this request only, except if the store failed: then its whole block.
        """
        if self._is_closing or self._metrics.waiting + n_queries > self._settings.waiting_queries:
            raise Problem.from_overload()
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.append(_PendingRequest(query, n_queries, reply))
        with self._waiting_lock:
            self._metrics.waiting += n_queries
        self._request_arrived.set()
        return await reply

    async def run(self, function: Callable[[], T]) -> T:
        """Return the result of `function`, called in the store's thread between two blocks.

        Raises problem 503 if the service is stopping.
        """
        if self._is_closing:
            raise Problem.from_overload()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        except OSError as error:
            self._metrics.failed |= _is_permanent_failure(error)
            raise

    async def _process_requests(self) -> None:
        """Answer blocks of requests until the service stops and the queue is empty."""
        while await self._wait_for_request():
            if self._is_paced:
                await self._wait_for_interval()
            elif self._should_wait() and not self._is_closing:
                await asyncio.sleep(self._settings.wait_ms / 1e3)
            await self._deliver_replies(self._submit_block())

    async def _wait_for_request(self) -> bool:
        """Wait for a request; return False if the queue is empty and the service is stopping."""
        while not self._queue and not self._is_closing:
            self._request_arrived.clear()
            await self._request_arrived.wait()
        return bool(self._queue)

    def _should_wait(self) -> bool:
        """Return whether to wait for more requests before starting a block.

        Do not wait for a single request after a block of one request, nor if at least half as many
        requests are queued as the last block had: its clients will send the following requests
        while these are answered.
        """
        has_space = self._metrics.waiting < self._settings.block_queries
        has_few = 2 * len(self._queue) < max(self._last_n_requests, _MIN_QUERIES_PER_HALF)
        return has_space and has_few and (len(self._queue) > 1 or self._last_n_requests != 1)

    def _submit_block(self) -> _SubmittedBlock:
        """Take requests for a block from the queue and submit them to the store's thread.

        A block has at most `block_queries` queries; without pacing, at most half of the clients'.
        """
        requests: list[_PendingRequest] = []
        n_queries = 0
        max_queries = self._settings.block_queries
        if not self._is_paced:
            # Half of all clients' queries, estimated as those waiting and those of the last block.
            half = (self._metrics.waiting + self._last_n_queries) // 2
            max_queries = min(max_queries, max(_MIN_QUERIES_PER_HALF, half))
        while self._queue and (not requests or n_queries + self._queue[0].n_queries <= max_queries):
            requests.append(self._queue.popleft())
            n_queries += requests[-1].n_queries
        # Set before submitting, because the thread reads these values for its next block.
        self._last_n_requests = len(requests)
        self._last_n_queries = n_queries
        return _SubmittedBlock(requests, self._thread.submit(self._answer_block, requests))

    def _answer_block(
        self, requests: list[_PendingRequest]
    ) -> tuple[list[Reply | Exception], _SubmittedBlock | None]:
        """Return the replies to a block, and the next block if it was started already.

        Runs in the store's thread. Functions waiting in :meth:`run` precede the next block.
        """
        replies: list[Reply | Exception]
        try:
            replies = list(self._store.predict_many([request.query for request in requests]))
        except Exception as error:  # noqa: BLE001 (every request of the block gets it)
            self._metrics.failed |= _is_permanent_failure(error)
            replies = [error] * len(requests)
        if self._is_paced:
            return replies, None
        self._subtract_waiting(requests)
        if self._queue and not self._should_wait():
            return replies, self._submit_block()
        return replies, None

    def _subtract_waiting(self, answered_requests: list[_PendingRequest]) -> None:
        """Subtract the queries of answered requests from the number of waiting queries."""
        with self._waiting_lock:
            self._metrics.waiting -= _count_queries(answered_requests)

    async def _deliver_replies(self, block: _SubmittedBlock | None) -> None:
        """Give each request its reply, also in blocks that the thread starts directly after."""
        while block is not None:
            requests = block.requests
            self._metrics.blocks.add(_count_queries(requests))
            replies, block = await asyncio.wrap_future(block.result)
            # Log only one of the equal errors of a block; its message is public.
            error = next((reply for reply in replies if isinstance(reply, _LOGGED_ERRORS)), None)
            if error is not None:
                self._metrics.missing += isinstance(error, ShardMissing)
                _LOG.warning("%s", error)
            if self._is_paced:
                await self._wait_for_interval()
                self._subtract_waiting(requests)
            for request, reply in zip(requests, replies, strict=True):
                if request.reply.done():  # the client has disconnected
                    continue
                if isinstance(reply, Exception):
                    request.reply.set_exception(reply)
                else:
                    request.reply.set_result(reply)

    async def _wait_for_interval(self) -> None:
        """Sleep until the clock shows a multiple of the response interval."""
        interval = self._settings.response_interval_ms / 1e3
        await asyncio.sleep(interval - asyncio.get_running_loop().time() % interval)


def _count_queries(requests: list[_PendingRequest]) -> int:
    return sum(request.n_queries for request in requests)


def _is_permanent_failure(error: Exception) -> bool:
    """Return whether an error means that the store has failed; a missing shard may return."""
    return isinstance(error, OSError) and not isinstance(error, ShardMissing)
