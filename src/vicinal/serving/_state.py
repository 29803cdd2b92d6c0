"""What every route needs: the store behind its worker, keys, limits, decoder and counters.

Requests of a few milliseconds become one block, one product, one commit. One thread does all the
work of the store. While it is busy requests gather, and the next block takes them all: the busier
the service, the larger the blocks, and the less a commit costs each.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import Request

from vicinal.errors import ShardMissing, StorageFailed, StoreOutdated, VicinalError
from vicinal.serving._limits import BodyLimits, BodyReader, Problem, RateLimit, busy, of_error
from vicinal.serving.keys import CURATOR, ApiKey, KeyCache, KeyFile
from vicinal.serving.local_socket import LocalSocket
from vicinal.serving.models import AnyBody, decode_rows, parse_body, width_of
from vicinal.serving.settings import ServiceSettings
from vicinal.store.base_store import BaseStore
from vicinal.store.requests import Query, Reply

_SHORT_BODY = 32 << 10
"""Bytes that the event loop decodes itself: a millisecond, which is what a thread would cost."""


class AppState:
    """Everything that a running service is made of; one for each application."""

    def __init__(self, store: BaseStore, folder: Path, settings: ServiceSettings) -> None:
        self.store = store
        self.settings = settings
        self.metrics = Metrics(lambda: store.is_consistent)
        self.batcher = RequestBatcher(store, settings, self.metrics)
        self.bodies = BodyReader(settings, BodyLimits.of(settings, width_of(store)))
        self.local = LocalSocket(store, folder, self.batcher.run)
        self._keys = KeyCache(KeyFile(folder))
        self._rate = RateLimit(settings.rate, settings.burst)
        self._decoder = ThreadPoolExecutor(1, thread_name_prefix="vicinal-decoder")

    def admit(self, request: Request, role: str) -> ApiKey:
        """Return the key of a request, before anything of its body is read.

        401 without a valid key; 403 if it is of another role than `role`, and no curator's; 429 if
        it comes too often.
        """
        sent = request.headers.getlist("authorization")
        # Two headers might be two keys, of which a proxy has checked the other.
        scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
        try:
            key = self._keys.find(token) if scheme.lower() == "bearer" else None
        except StorageFailed:
            raise Problem(503, "keys", "The keys cannot be read, so nobody is admitted.") from None
        if key is None:
            detail = "Send a valid key as: Authorization: Bearer KEY"
            raise Problem(401, "key", detail, {"WWW-Authenticate": "Bearer"})
        # Before its role: refused requests count against the rate, too.
        self._rate.consume(key.id)
        if key.role not in (role, CURATOR):
            raise Problem(403, "role", f"Only a key with the role {role} may do this.")
        if key.audience not in self.store.audiences:
            raise Problem(403, "audience", "The store does not have the audience of this key.")
        return key

    async def decode_json(self, model: type[AnyBody], content: bytes) -> tuple[AnyBody, Any, int]:
        """Return a body, its rows for the store, and how many rows; long ones one at a time.

        413 or 422 if it is not what `model` or the store takes.
        """
        self.bodies.limits.check_values(content)

        def decode() -> tuple[AnyBody, Any, int]:
            body = parse_body(model, content)
            return body, *decode_rows(body, self.store, self.settings.request_queries)

        if len(content) <= _SHORT_BODY:
            return decode()
        return await asyncio.get_running_loop().run_in_executor(self._decoder, decode)

    async def with_store(self, work: Any, *arguments: Any, adding: bool = False) -> Any:
        """Return what the worker gets of a method of the store; errors become problems."""
        try:
            return await self.batcher.run(partial(work, *arguments))
        except VicinalError as error:
            raise of_error(error, adding=adding) from None

    async def start(self) -> None:
        """Begin to work, in the running event loop."""
        self.batcher.start()
        await self.local.start()

    async def stop(self) -> None:
        """Answer all requests that wait, then end both threads."""
        await self.local.stop()
        await self.batcher.stop()
        self._decoder.shutdown()


T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_LEAST_SPLIT = 32
"""A crowd of more queries than twice this is answered in two halves: while the store works for one,
responses to the other leave, and its next requests are read."""
_OPERATORS = (ShardMissing, StoreOutdated)
"""Errors whose sentences only the operator sees, in the log."""


@dataclass(eq=False)
class _PendingRequest:
    """A request before the worker."""

    query: Query
    size: int
    answer: asyncio.Future[Reply]


@dataclass(eq=False)
class _Turn:
    """A block that the store's thread has, and what comes of it: replies, and the next turn."""

    block: list[_PendingRequest]
    done: Future[tuple[list[Reply | Exception], _Turn | None]]


class RequestBatcher:
    """Puts requests together, and hands out what the store replies.

    One thread of this object's uses the store. It begins the next block of a crowd by itself: the
    event loop would see that it is free only after it has read and written what there is. No
    client gets anything before the store has returned, which is after the commit. If a client does
    not wait for it, what was charged stays stored under its idempotency key.
    """

    def __init__(self, store: BaseStore, settings: ServiceSettings, metrics: Metrics) -> None:
        self._store = store
        self._settings = settings
        self._metrics = metrics
        self._paced = settings.response_interval_ms > 0
        self._counting = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="vicinal-store")
        self._queue: deque[_PendingRequest] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._served = 0
        self._answered = 0
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

        503 if too many queries are waiting, or the service is ending. Errors of the store are this
        request's alone or, if the store failed, those of all of the block.
        """
        if self._closing or self._metrics.waiting + size > self._settings.waiting_queries:
            raise busy()
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._queue.append(_PendingRequest(query, size, answer))
        with self._counting:
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
            if self._paced:
                await self._wait_for_interval()
            elif self._company() and not self._closing:
                await asyncio.sleep(self._settings.wait_ms / 1e3)
            await self._serve(self._begin())

    async def _wait_for_request(self) -> bool:
        """Wait for a request; return False when there is none and there will be none."""
        while not self._queue and not self._closing:
            self._arrived.clear()
            await self._arrived.wait()
        return bool(self._queue)

    def _company(self) -> bool:
        """Tell whether to wait for others.

        Not if this request and the last one were alone, nor if about as many have gathered as
        were answered last: those come back while these are answered.
        """
        has_space = self._metrics.waiting < self._settings.block_queries
        few = 2 * len(self._queue) < max(self._served, _LEAST_SPLIT)
        return has_space and few and (len(self._queue) > 1 or self._served != 1)

    def _begin(self) -> _Turn:
        """Take requests until a block is full, or has its share of a crowd; have it answered."""
        block: list[_PendingRequest] = []
        size, most = 0, self._settings.block_queries
        if not self._paced:
            most = min(most, max(_LEAST_SPLIT, (self._metrics.waiting + self._answered) // 2))
        while self._queue and (not block or size + self._queue[0].size <= most):
            block.append(self._queue.popleft())
            size += block[-1].size
        # Before the thread has it, which goes by these for the next one.
        self._served, self._answered = len(block), size
        return _Turn(block, self._thread.submit(self._answer, block))

    def _answer(self, block: list[_PendingRequest]) -> tuple[list[Reply | Exception], _Turn | None]:
        """Return the replies to a block, and the next turn if its time has come.

        What others want of the store (:meth:`run`) comes before the next turn.
        """
        replies: list[Reply | Exception]
        try:
            replies = list(self._store.predict_many([waiting.query for waiting in block]))
        except Exception as error:  # noqa: BLE001 (every request of the block gets it)
            self._metrics.failed |= _is_failure(error)
            replies = [error] * len(block)
        if self._paced:
            return replies, None
        self._note_answered(block)
        return replies, self._begin() if self._queue and not self._company() else None

    def _note_answered(self, block: list[_PendingRequest]) -> None:
        with self._counting:
            self._metrics.waiting -= _size(block)

    async def _serve(self, turn: _Turn | None) -> None:
        """Hand out what comes of a turn and of those that follow; every request gets its own."""
        while turn is not None:
            block = turn.block
            self._metrics.blocks.add(_size(block))
            replies, turn = await asyncio.wrap_future(turn.done)
            self._report(replies)
            if self._paced:
                await self._wait_for_interval()
                self._note_answered(block)
            for waiting, reply in zip(block, replies, strict=True):
                if waiting.answer.done():  # the client has left
                    continue
                if isinstance(reply, Exception):
                    waiting.answer.set_exception(reply)
                else:
                    waiting.answer.set_result(reply)

    def _report(self, replies: list[Reply | Exception]) -> None:
        """Tell the operator, once a block, why shards did not answer: which, and why, is public."""
        fault = next((reply for reply in replies if isinstance(reply, _OPERATORS)), None)
        if fault is not None:
            self._metrics.missing += isinstance(fault, ShardMissing)
            _LOG.warning("%s", fault)

    async def _wait_for_interval(self) -> None:
        """Sleep until the clock shows a multiple of the interval."""
        interval = self._settings.response_interval_ms / 1e3
        await asyncio.sleep(interval - asyncio.get_running_loop().time() % interval)


def _size(block: list[_PendingRequest]) -> int:
    return sum(waiting.size for waiting in block)


def _is_failure(error: Exception) -> bool:
    """Tell whether the store has failed; a missing shard may be back for the next block."""
    return isinstance(error, OSError) and not isinstance(error, ShardMissing)


# What the process has done, never with numbers of records, subjects, neighbours or charges. The
# time of one request could tell that it was near many records: monitors see it, in buckets.

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)


class BucketCounts:
    """Counts below each of some bounds, as Prometheus has them; no sum, which tells each value."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1

    def lines(self, name: str, text: str) -> list[str]:
        lines, below = _head(name, text, "histogram"), 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{name}_count {below}"]


class Metrics:
    """Counters of one process, written by its event loop; `waiting` and `failed` by others, too."""

    def __init__(self, is_consistent: Callable[[], bool]) -> None:
        self._is_consistent = is_consistent
        self.failed = False
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.seconds = BucketCounts(SECONDS)
        self.blocks = BucketCounts(SIZES)
        self.waiting = 0
        self.connections = 0
        self.dropped: Counter[str] = Counter()
        self.missing = 0

    @property
    def up(self) -> bool:
        """Whether the store answers: it is open, and nothing that the worker did has failed."""
        return self._is_consistent() and not self.failed

    def text(self, audiences: Mapping[str, tuple[int, float | None]]) -> str:
        """Return all of it in the text format of Prometheus.

        `audiences`: answers that each has left, and the mean share of a budget that public points
        have used, if they tell it; public.
        """
        left, used = {}, {}
        for name, (answers, usage) in sorted(audiences.items()):
            quoted = name.replace("\\", r"\\").replace('"', r"\"")
            label = f'{{audience="{quoted}"}}'
            left[label] = answers
            if usage is not None:
                used[label] = round(usage, 4)
        requests = {
            f'{{path="{path}",method="{method}",status="{status}"}}': count
            for (path, method, status), count in sorted(self.requests.items())
        }
        dropped = {f'{{reason="{why}"}}': count for why, count in sorted(self.dropped.items())}
        families: tuple[tuple[str, str, str, Mapping[str, float]], ...] = (
            ("requests_total", "HTTP requests, by path, method and status.", "counter", requests),
            ("waiting_queries", "Queries that wait for the worker.", "gauge", {"": self.waiting}),
            ("shard_missing_total", "Blocks refused because a shard was missing.", "counter",
             {"": self.missing}),
            ("connections", "Open connections.", "gauge", {"": self.connections}),
            ("connections_dropped_total",
             "Connections closed before a request, by reason.", "counter", dropped),
            ("answers_left", "Planned answers left.", "gauge", left),
            ("budget_used", "Mean share of a budget used, estimated.", "gauge", used),
            ("up", "0 once the store has failed.", "gauge", {"": int(self.up)}),
        )  # fmt: skip
        lines = self.seconds.lines("vicinal_predict_seconds", "Time to answer a prediction.")
        lines += self.blocks.lines("vicinal_block_queries", "Queries asked for in a block.")
        for name, text, kind, values in families:
            lines += _head(f"vicinal_{name}", text, kind)
            lines += [f"vicinal_{name}{labels} {value}" for labels, value in values.items()]
        return "\n".join([*lines, ""])


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
