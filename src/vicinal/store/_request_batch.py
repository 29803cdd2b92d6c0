"""A batch of requests: what can be replayed, what must be asked, what is refused, what is said."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vicinal._arrays import AnyArray, Floats, Ints, Places
from vicinal.errors import InvalidInput, KeyReused, PrivacyRefused, VicinalError
from vicinal.ledger import (
    Analyst,
    AnswerBlock,
    Ledger,
    ReuseEntry,
    StoredRequest,
    digests_of,
    request_name,
    stored_requests,
)
from vicinal.neighbours import IntegerMatrix
from vicinal.store._audience_state import AudienceState, ReleasedAnswers, lead, released
from vicinal.store._requests import REPLIES, LabelSetReply, NumberReply, Query, Reply, checked_name
from vicinal.store._store_schema import StoreSchema
from vicinal.targets import VectorAnswers, VectorTarget, check_enough


@dataclass(frozen=True, slots=True)
class StoredAnswers:
    """Fields of a `kind` of reply, by name: rows of answers, or None; and those that are shared."""

    kind: type[Reply]
    fields: dict[str, AnyArray | None]
    shared: dict[str, Any]

    def reply(self, part: slice, **paid: Any) -> Reply:
        """Return the reply to a request whose answers these rows are, and what it paid."""
        rows: dict[str, Any] = {
            name: None if every is None else every[part] for name, every in self.fields.items()
        }
        return self.kind(**rows, **self.shared, **paid)


def stored_answers(
    schema: StoreSchema, state: AudienceState, seqs: Places, places: Places
) -> StoredAnswers:
    """Return what the answers of these blocks and places say in an audience's own words."""
    kind = REPLIES[schema.target.kind]
    if schema.target.voted:
        return StoredAnswers(kind, _class_fields(schema, state, state.read(seqs, places)), {})
    sums = state.answers.read(seqs, places)
    fields = {"sums": sums, **_said(state, sums).fields}
    return StoredAnswers(kind, fields, {"names": schema.target.names})


def _said(state: AudienceState, sums: Floats) -> VectorAnswers:
    """Return what noisy sums say."""
    target = state.settings.target
    assert isinstance(target, VectorTarget)  # noqa: S101 (narrows the type)
    assert state.noise_scale is not None  # noqa: S101 (new_plan: even noise only)
    return target.answers(sums, np.full(len(sums), state.noise_scale))


def trend_rows(schema: StoreSchema, queries: Any) -> IntegerMatrix:
    """Return queries as integers, or raise InvalidInput where no trend can be fitted to them."""
    if schema.target.voted:
        raise InvalidInput(
            "The 'trend' parameter is for numbers and several labels: there are no averages to fit "
            "a trend to."
        )
    rows = schema.kernel_of(None).encode(schema.vectors(queries))
    check_enough(len(rows))
    return rows


def along_trend(state: AudienceState, rows: IntegerMatrix, reply: Reply) -> Reply:
    """Return a reply whose answers are those of a trend through them; rows are its queries."""
    votes, proxies = state.engine.votes, state.proxies
    assert proxies is not None  # noqa: S101 (vectors have a public count)
    assert isinstance(reply, NumberReply | LabelSetReply)  # noqa: S101 (of these queries)
    around = proxies.surroundings(rows, votes.kernel, votes.weights)
    fields: dict[str, Any] = _said(state, reply.sums).along_trend(around).fields
    return replace(reply, **fields)


def _class_fields(
    schema: StoreSchema, state: AudienceState, answers: ReleasedAnswers
) -> dict[str, AnyArray | None]:
    votes, scale = answers.votes, state.noise_scale
    return {
        "labels": np.asarray(schema.classes)[answers.labels],
        "votes": votes,
        "confidence": None if votes is None or scale is None else lead(votes, scale),
        "probabilities": answers.probabilities,
    }


_FRESH = -1


@dataclass(eq=False)
class _NewQueries:
    """Queries of one audience that have to be asked."""

    state: AudienceState
    rows: list[AnyArray] = field(default_factory=list)
    place_of: dict[bytes, int] = field(default_factory=dict)
    queries_of: dict[str, int] = field(default_factory=dict)
    refusal: VicinalError | None = None

    def ask(self, analyst: str, rows: Mapping[bytes, AnyArray]) -> None:
        """Put new queries at the end."""
        for digest, row in rows.items():
            self.place_of[digest] = len(self.rows)
            self.rows.append(row)
        if rows:
            self.queries_of[analyst] = self.queries_of.get(analyst, 0) + len(rows)


@dataclass(eq=False)
class _RequestJob:
    """One request: where each of its answers is, or will be."""

    state: AudienceState
    seqs: Places
    places: Places
    charged: int = 0
    name: bytes | None = None
    body: bytes = b""

    def request(self) -> StoredRequest:
        assert self.name is not None  # noqa: S101 (asked for jobs with a key only)
        return StoredRequest(self.name, self.body, self.seqs, self.places)


class RequestBatch:
    """Requests that are answered in one block an audience, and one commit.

    `ledger`, `schema`, `states`: the store's.
    """

    def __init__(
        self, ledger: Ledger, schema: StoreSchema, states: Mapping[str, AudienceState]
    ) -> None:
        self._ledger = ledger
        self._schema = schema
        self._states = states
        self._fresh: dict[str, _NewQueries] = {}
        self._named: dict[bytes, _RequestJob] = {}
        self._names: list[bytes | None] = []
        self._stored: dict[bytes, StoredRequest] = {}

    def run(self, queries: Sequence[Query]) -> list[Reply | VicinalError]:
        """Answer all requests that can be answered; the others get the error that is theirs."""
        jobs = self._jobs(queries)
        try:
            blocks = self._answered()
            jobs = [self._unless_refused(job) for job in jobs]
            named = [job for job in self._named.values() if not self._refusal(job)]
            self._number(jobs)
            requests = [job.request() for job in named]
        except BaseException:
            for fresh in self._fresh.values():
                self._keep_charges(fresh.state)
            raise
        if blocks or requests:
            self._ledger.commit(blocks, requests)
        self._enter(blocks)
        return self._replies(jobs)

    # ------------------------------------------------------------ before anything is charged

    def new_rows(self, queries: Sequence[Query]) -> dict[str, AnyArray]:
        """Return the integer rows that would have to be asked, by audience; nothing is asked."""
        self._jobs(queries)
        return {name: np.stack(new.rows) for name, new in self._fresh.items() if new.rows}

    def _jobs(self, queries: Sequence[Query]) -> list[_RequestJob | VicinalError]:
        checked = [self._checked(query) for query in queries]
        sound = [outcome for outcome in checked if not isinstance(outcome, VicinalError)]
        rows = self._rows([vectors for _, vectors in sound])
        self._look_up(queries, checked)
        return [
            outcome
            if isinstance(outcome, VicinalError)
            else self._job(query, name, outcome[0], next(rows))
            for query, name, outcome in zip(queries, self._names, checked, strict=True)
        ]

    def _look_up(
        self,
        queries: Sequence[Query],
        checked: Sequence[tuple[AudienceState, AnyArray] | VicinalError],
    ) -> None:
        """Name all sound requests with a key, and read at once what is stored under them."""
        self._names = [
            None if isinstance(outcome, VicinalError) else _name(query)
            for query, outcome in zip(queries, checked, strict=True)
        ]
        names = [name for name in self._names if name is not None]
        self._stored = stored_requests(self._ledger.database, names)

    def _checked(self, query: Query) -> tuple[AudienceState, AnyArray] | VicinalError:
        """Return whom a request is for, and its features; or what is wrong with it."""
        try:
            state = audience_state(self._states, query.audience)
            checked_name("analyst", query.analyst)
            if query.idempotency_key is not None:
                checked_name("idempotency_key", query.idempotency_key)
            return state, self._schema.vectors(query.queries)
        except VicinalError as error:
            return error

    def _rows(self, vectors: Sequence[AnyArray]) -> Iterator[AnyArray]:
        """Yield integer features, made at once for all requests: no row depends on its company."""
        if vectors:
            kernel = self._schema.kernel_of(None)
            ends = np.cumsum([len(part) for part in vectors[:-1]], dtype=np.int64)
            yield from np.split(kernel.encode(np.concatenate(vectors)), ends)

    def _job(
        self, query: Query, name: bytes | None, state: AudienceState, rows: AnyArray
    ) -> _RequestJob | VicinalError:
        try:
            return self._job_of(query.analyst, name, state, rows)
        except VicinalError as error:
            return error

    def _job_of(
        self, analyst: str, name: bytes | None, state: AudienceState, rows: AnyArray
    ) -> _RequestJob:
        digests = digests_of(rows)
        if name is None:
            return self._find_or_enqueue(state, analyst, digests, rows)
        body = _body(digests)
        if job := self._repeated_job(state, name, body):
            return job
        job = self._find_or_enqueue(state, analyst, digests, rows)
        if job.charged:  # what only repeats answers costs nothing when it is sent again
            job.name, job.body = name, body
            self._named[name] = job
        return job

    def _repeated_job(self, state: AudienceState, name: bytes, body: bytes) -> _RequestJob | None:
        """Return the job of a key that was used before, in this batch or any other."""
        if (job := self._named.get(name)) is not None:
            _check_body(job.body, body)
            return job
        if (stored := self._stored.get(name)) is None:
            return None
        _check_body(stored.body, body)
        return _RequestJob(state, stored.seqs, stored.places)

    def _find_or_enqueue(
        self, state: AudienceState, analyst: str, digests: list[bytes], rows: AnyArray
    ) -> _RequestJob:
        """Find each query among the answers, or put it to those that have to be asked."""
        fresh = self._fresh.setdefault(state.audience.name, _NewQueries(state))
        stored_at = [state.answers.find(digest) for digest in digests]
        new = {
            digest: row
            for digest, row, place in zip(digests, rows, stored_at, strict=True)
            if place is None and digest not in fresh.place_of
        }
        _check_quota(state, fresh, analyst, len(new))
        fresh.ask(analyst, new)
        where = [
            place or (_FRESH, fresh.place_of[digest])
            for digest, place in zip(digests, stored_at, strict=True)
        ]
        seqs, places = np.array(where, dtype=np.int64).reshape(-1, 2).T.copy()
        return _RequestJob(state, seqs, places, len(new))

    # ------------------------------------------------------------ charge, make durable, reply

    def _answered(self) -> list[AnswerBlock]:
        """Ask what has to be asked: charges and noise in memory, nothing durable yet."""
        blocks = [self._block(fresh) for fresh in self._fresh.values() if fresh.rows]
        return [block for block in blocks if block is not None]

    def _block(self, fresh: _NewQueries) -> AnswerBlock | None:
        state, rows = fresh.state, np.stack(fresh.rows)
        try:
            answers = state.answer(rows)
        except VicinalError as error:
            self._keep_charges(state)
            fresh.refusal = error
            return None
        digests = b"".join(fresh.place_of)
        reuse_entry = None if state.reuse_replay is None else ReuseEntry(rows, answers.asked)
        spent = state.slack.spent
        usage = None if state.proxies is None else state.proxies.shares
        return AnswerBlock(
            state.audience, digests, released(answers), spent, fresh.queries_of,
            reuse_entry, usage, state.n_asked,
        )  # fmt: skip

    def _keep_charges(self, state: AudienceState) -> None:
        """Drop answers that nobody will see; whoever was charged for them stays charged."""
        state.drop_answers()
        self._ledger.keep_charges(state.audience, state.slack.spent)

    def _refusal(self, job: _RequestJob) -> VicinalError | None:
        """Return why an audience was refused, for jobs that needed something new of it."""
        fresh = self._fresh.get(job.state.audience.name)
        if fresh is None or fresh.refusal is None:
            return None
        return fresh.refusal if (job.seqs == _FRESH).any() else None

    def _unless_refused(self, job: _RequestJob | VicinalError) -> _RequestJob | VicinalError:
        return job if isinstance(job, VicinalError) else self._refusal(job) or job

    def _number(self, jobs: Sequence[_RequestJob | VicinalError]) -> None:
        """Tell all jobs the numbers that the ledger will give to the new blocks."""
        charged = [name for name, fresh in self._fresh.items() if fresh.rows and not fresh.refusal]
        seq_of = {name: self._ledger.clock + 1 + i for i, name in enumerate(charged)}
        for job in jobs:
            if not isinstance(job, VicinalError) and (fresh := job.seqs == _FRESH).any():
                job.seqs[fresh] = seq_of[job.state.audience.name]

    def _enter(self, blocks: Sequence[AnswerBlock]) -> None:
        first = self._ledger.clock + 1 - len(blocks)
        for seq, block in enumerate(blocks, first):
            self._fresh[block.audience.name].state.enter(seq, block)

    def _replies(self, jobs: Sequence[_RequestJob | VicinalError]) -> list[Reply | VicinalError]:
        """Return every job's reply, read at once for all jobs of an audience."""
        jobs_of: dict[str, list[_RequestJob]] = {}
        for job in jobs:
            if not isinstance(job, VicinalError):
                jobs_of.setdefault(job.state.audience.name, []).append(job)
        replies = {name: self._read(same) for name, same in jobs_of.items()}
        return [
            job if isinstance(job, VicinalError) else next(replies[job.state.audience.name])
            for job in jobs
        ]

    def _read(self, jobs: Sequence[_RequestJob]) -> Iterator[Reply]:
        """Yield the replies to jobs of one audience."""
        state = jobs[0].state
        where = [np.concatenate([getattr(job, at) for job in jobs]) for at in ("seqs", "places")]
        answers = stored_answers(self._schema, state, *where)
        start = 0
        for job in jobs:
            part = slice(start, start := start + len(job.seqs))
            missing = self._missing(job.seqs)
            yield answers.reply(part, charged=job.charged, left=state.remaining, missing=missing)

    def _missing(self, seqs: Ints) -> tuple[int, ...] | None:  # noqa: ARG002
        """Return which shards some of these blocks were answered without; None without shards."""
        return None


def audience_state(states: Mapping[str, AudienceState], audience: object) -> AudienceState:
    """Return the state of an audience, or raise InvalidInput."""
    if not isinstance(audience, str) or audience not in states:
        raise InvalidInput("The 'audience' parameter must be an audience of this store.")
    return states[audience]


def _check_quota(state: AudienceState, fresh: _NewQueries, analyst: str, more: int) -> None:
    """Raise PrivacyRefused before a plan or a quota is exceeded."""
    if more > state.remaining - len(fresh.rows):
        remaining = max(0, state.remaining - len(fresh.rows))
        raise PrivacyRefused(
            f"The audience {state.audience.name!r} has {remaining} of its "
            f"{state.settings.n_queries} answers left, and {more} new ones were asked for. "
            "Queries answered since the data last changed still cost nothing."
        )
    entry = state.audience.analysts.get(analyst, Analyst(None, 0))
    if entry.quota is not None:
        remaining = max(0, entry.quota - entry.used - fresh.queries_of.get(analyst, 0))
        if more > remaining:
            raise PrivacyRefused(
                f"The analyst has {remaining} of {entry.quota} answers left, and {more} new ones "
                "were asked for. Queries answered since the data last changed still cost nothing."
            )


def _check_body(stored: bytes, body: bytes) -> None:
    if stored != body:
        raise KeyReused(
            "The 'idempotency_key' parameter must be new for new queries. It was used for others."
        )


def _name(query: Query) -> bytes | None:
    """Return the name of a request with an idempotency key."""
    key = query.idempotency_key
    return None if key is None else request_name(query.audience, query.analyst, key)


def _body(digests: Sequence[bytes]) -> bytes:
    return hashlib.sha256(b"".join(digests)).digest()
