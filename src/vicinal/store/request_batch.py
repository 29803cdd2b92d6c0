"""A batch of requests: what can be replayed, what must be asked, what is refused, what is said."""

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray, Places
from vicinal.errors import InvalidInput, KeyReused, PrivacyRefused, VicinalError
from vicinal.ledger.answers import (
    AnswerBlock,
    StoredRequest,
    digests_of,
    request_name,
    stored_requests,
)
from vicinal.ledger.audiences import Analyst
from vicinal.ledger.ledger import Ledger
from vicinal.store.audience_state import AudienceState, lead, released
from vicinal.store.requests import ANYONE, REPLIES, Query, Reply, checked_name
from vicinal.store.store_schema import StoreSchema
from vicinal.targets.target import VectorTarget


def stored_answers(
    schema: StoreSchema, state: AudienceState, seqs: Places, places: Places
) -> Reply:
    """Return what the answers of these blocks and places say; nothing is paid for it."""
    fields: dict[str, Any]
    if schema.target.voted:
        (labels, votes, probabilities), scale = state.read(seqs, places), state.noise_scale
        fields = {
            "labels": np.asarray(schema.classes)[labels],
            "votes": votes,
            "confidence": None if votes is None else lead(votes, scale),
            "probabilities": probabilities,
        }
    else:
        sums, target = state.answers.read(seqs, places), state.settings.target
        assert isinstance(target, VectorTarget)  # noqa: S101 (narrows the type)
        answers = target.answers(sums, np.full(len(sums), state.noise_scale))
        fields = {"sums": sums, "names": schema.target.names, **answers.fields}
    return REPLIES[schema.target.kind](**fields, charged=0, left=0)


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
        for digest, row in rows.items():
            self.place_of[digest] = len(self.rows)
            self.rows.append(row)
        if rows:
            self.queries_of[analyst] = self.queries_of.get(analyst, 0) + len(rows)


@dataclass(eq=False)
class _PlacedRequest:
    """One request: where each of its answers is, or will be."""

    state: AudienceState
    seqs: Places
    places: Places
    charged: int = 0
    name: bytes | None = None
    body: bytes = b""

    def stored(self) -> StoredRequest:
        assert self.name is not None  # noqa: S101 (asked for those with a key only)
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
        self._named: dict[bytes, _PlacedRequest] = {}
        self._stored: dict[bytes, StoredRequest] = {}

    def run(self, queries: Sequence[Query]) -> list[Reply | VicinalError]:
        """Answer all requests that can be answered; the others get the error that is theirs."""
        placed = self._placed(queries)
        try:
            # Charges and noise are in memory, nothing is durable yet.
            asked = [self._block(fresh) for fresh in self._fresh.values() if fresh.rows]
            blocks = [block for block in asked if block is not None]
            placed = [
                one if isinstance(one, VicinalError) else self._refusal(one) or one
                for one in placed
            ]
            named = [one for one in self._named.values() if not self._refusal(one)]
            self._number(placed)
            requests = [one.stored() for one in named]
        except BaseException:
            self._keep_charges(*(fresh.state for fresh in self._fresh.values()))
            raise
        first = self._ledger.clock + 1
        if blocks or requests:
            self._ledger.commit(blocks, requests)
        for seq, block in enumerate(blocks, first):
            self._fresh[block.audience.name].state.enter(seq, block)
        return self._replies(placed)

    # ------------------------------------------------------------ before anything is charged

    def _placed(self, queries: Sequence[Query]) -> list[_PlacedRequest | VicinalError]:
        """Return where the answers of each request are or will be, or what is wrong with it."""
        checked = [self._checked(query) for query in queries]
        rows = self._rows([one[2] for one in checked if not isinstance(one, VicinalError)])
        names = [
            None if isinstance(one, VicinalError) or (key := one[0].idempotency_key) is None
            else request_name(one[0].audience, one[0].analyst, key)
            for one in checked
        ]  # fmt: skip
        named = [name for name in names if name is not None]
        self._stored = stored_requests(self._ledger.database, named)
        placed: list[_PlacedRequest | VicinalError] = []
        for name, one in zip(names, checked, strict=True):
            if isinstance(one, VicinalError):
                placed.append(one)
                continue
            try:
                placed.append(self._place(one[0].analyst, name, one[1], next(rows)))
            except VicinalError as error:
                placed.append(error)
        return placed

    def _checked(self, query: Query) -> tuple[Query, AudienceState, AnyArray] | VicinalError:
        """Return a request with its names in their one form, whom it is for, and its features.

        Or what is wrong with it.
        """
        try:
            state = audience_state(self._states, query.audience)
            analyst, key = checked_name("analyst", query.analyst), query.idempotency_key
            if key is not None:
                key = checked_name("idempotency_key", key)
            named = Query((), state.audience.name, analyst, key)
            return named, state, self._schema.vectors(query.queries)
        except VicinalError as error:
            return error

    def _rows(self, vectors: Sequence[AnyArray]) -> Iterator[AnyArray]:
        """Yield integer features, made at once for all requests: no row depends on its company."""
        if vectors:
            kernel = self._schema.kernel_of(None)
            ends = np.cumsum([len(part) for part in vectors[:-1]], dtype=np.int64)
            yield from np.split(kernel.encode(np.concatenate(vectors)), ends)

    def _place(
        self, analyst: str, name: bytes | None, state: AudienceState, rows: AnyArray
    ) -> _PlacedRequest:
        self._check_audience(state, analyst)
        digests = digests_of(rows)
        if name is None:
            return self._find_or_enqueue(state, analyst, digests, rows)
        body = hashlib.sha256(b"".join(digests)).digest()
        if placed := self._repeated(state, name, body):
            return placed
        placed = self._find_or_enqueue(state, analyst, digests, rows)
        if placed.charged:  # what only repeats answers costs nothing when it is sent again
            placed.name, placed.body = name, body
            self._named[name] = placed
        return placed

    def _check_audience(self, state: AudienceState, analyst: str) -> None:
        """Raise PrivacyRefused if an analyst has had answers of another audience.

        The file of keys says the same, but an older one may be put in its place.
        """
        others = (other.audience for other in self._states.values() if other is not state)
        for other in others if analyst != ANYONE else ():
            before = other.analysts.get(analyst)
            fresh = self._fresh.get(other.name)
            if (before and before.used) or (fresh and fresh.queries_of.get(analyst)):
                raise PrivacyRefused(
                    f"The analyst already has answers of the audience {other.name!r}. Both "
                    "guarantees assume that nobody sees the answers of two audiences."
                )

    def _repeated(self, state: AudienceState, name: bytes, body: bytes) -> _PlacedRequest | None:
        """Return the request of a key that was used before, in this batch or any other."""
        before = self._named.get(name) or self._stored.get(name)
        if before is not None and before.body != body:
            raise KeyReused(
                "The 'idempotency_key' parameter must be new for new queries. It was used for "
                "others."
            )
        if isinstance(before, StoredRequest):
            return _PlacedRequest(state, before.seqs, before.places)
        return before

    def _find_or_enqueue(
        self, state: AudienceState, analyst: str, digests: list[bytes], rows: AnyArray
    ) -> _PlacedRequest:
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
        return _PlacedRequest(state, seqs, places, len(new))

    # ------------------------------------------------------------ charge, make durable, reply

    def _block(self, fresh: _NewQueries) -> AnswerBlock | None:
        state, rows = fresh.state, np.stack(fresh.rows)
        try:
            answers = state.answer(rows)
            self._ledger.share_charges(state.audience)
        except VicinalError as error:
            self._keep_charges(state)
            fresh.refusal = error
            return None
        digests = b"".join(fresh.place_of)
        spent = state.slack.spent
        usage = None if state.proxies is None else state.proxies.shares
        return AnswerBlock(
            state.audience, digests, released(answers), spent, fresh.queries_of,
            usage, state.n_asked,
        )  # fmt: skip

    def _keep_charges(self, *states: AudienceState) -> None:
        """Drop answers that nobody will see; whoever was charged for them stays charged."""
        for state in states:
            state.audience.slack = state.slack.spent
        self._ledger.keep_charges(state.audience for state in states)
        for state in states:  # durable first: what is broken off now undoes no charge
            state.drop_answers()

    def _refusal(self, one: _PlacedRequest) -> VicinalError | None:
        """Return why an audience was refused, for a request that needed something new of it."""
        fresh = self._fresh.get(one.state.audience.name)
        if fresh is None or fresh.refusal is None:
            return None
        return fresh.refusal if (one.seqs == _FRESH).any() else None

    def _number(self, placed: Sequence[_PlacedRequest | VicinalError]) -> None:
        """Tell all requests the numbers that the ledger will give to the new blocks."""
        charged = [name for name, fresh in self._fresh.items() if fresh.rows and not fresh.refusal]
        seq_of = {name: self._ledger.clock + 1 + i for i, name in enumerate(charged)}
        for one in placed:
            if not isinstance(one, VicinalError) and (fresh := one.seqs == _FRESH).any():
                one.seqs[fresh] = seq_of[one.state.audience.name]

    def _replies(
        self, placed: Sequence[_PlacedRequest | VicinalError]
    ) -> list[Reply | VicinalError]:
        requests_of: dict[str, list[_PlacedRequest]] = {}
        for one in placed:
            if not isinstance(one, VicinalError):
                requests_of.setdefault(one.state.audience.name, []).append(one)
        replies = {name: self._read(same) for name, same in requests_of.items()}
        return [
            one if isinstance(one, VicinalError) else next(replies[one.state.audience.name])
            for one in placed
        ]

    def _read(self, placed: Sequence[_PlacedRequest]) -> Iterator[Reply]:
        state = placed[0].state
        where = [np.concatenate([getattr(one, at) for one in placed]) for at in ("seqs", "places")]
        answers = stored_answers(self._schema, state, *where)
        start = 0
        for one in placed:
            part = slice(start, start := start + len(one.seqs))
            yield answers.part(part, charged=one.charged, left=state.remaining)


def audience_state(states: Mapping[str, AudienceState], audience: object) -> AudienceState:
    state = (
        states.get(unicodedata.normalize("NFC", audience)) if isinstance(audience, str) else None
    )
    if state is None:
        raise InvalidInput("The 'audience' parameter must be an audience of this store.")
    return state


_WAYS_ON = (
    " To go on, open another audience for people who share no answers with this one, whose epsilon "
    "comes on top, or publish a student, which answers without limit."
)


def _check_quota(state: AudienceState, fresh: _NewQueries, analyst: str, more: int) -> None:
    audience, plan, renewal = state.audience, state.planned, state.audience.due
    ways_on = _WAYS_ON
    if renewal is not None and (then := renewal.next_date):
        ways_on = f" The next part of answers and budgets comes on {then}."
    entry = audience.analysts.get(analyst, Analyst(None, 0))
    quota, had = entry.quota, entry.used + fresh.queries_of.get(analyst, 0)
    limits = [(f"audience {audience.name!r}", plan, state.remaining - len(fresh.rows))]
    limits += [] if quota is None else [("analyst", quota, quota - had)]
    for who, most, left in limits:
        if more > max(0, left):
            raise PrivacyRefused(
                f"The {who} has {max(0, left)} of {most} answers left, and {more} new ones were "
                "asked for. Nothing was charged. Queries answered since the data last changed "
                "still cost nothing."
                f"{'' if who == 'analyst' else ways_on}"
            )
