"""A batch of requests: replay stored answers, answer new queries in one commit, and reply.

Answers are stored in blocks. The location of an answer is the number of its block, which is the
number of the commit that made it durable, and its row in the block (`offset`). `block_numbers` and
`offsets`, int64 (q,), locate the answers to q queries.

Everywhere in this module `state` is that of the request's audience, `analyst` the name of its
sender, `key_digest` the digest of audience, analyst and idempotency key (None without a key), and
`rows` (q, width) are its queries as the store's integer features. In a list of requests, an error
takes the place of a request that it refuses.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vicinal.arrays import AnyArray, Indices, Ints
from vicinal.errors import InvalidInput, KeyReused, NoCoverage, PrivacyRefused, VicinalError
from vicinal.ledger.answers import (
    AnswerBlock,
    StoredRequest,
    digest_queries,
    digest_request,
    load_requests,
)
from vicinal.ledger.ledger import Ledger
from vicinal.linear.losses import subtract_second_best
from vicinal.store.audience_state import AudienceState, pack_answers
from vicinal.store.coverage import CertifiedThresholds, certify_coverage
from vicinal.store.requests import (
    ANYONE,
    REPLIES,
    ClassReply,
    NumberReply,
    Query,
    Reply,
    normalize_name,
)
from vicinal.store.store_schema import StoreSchema
from vicinal.targets.target import LABELS


def read_stored_answers(state: AudienceState, block_numbers: Ints, offsets: Indices) -> Reply:
    """Return released answers of an audience as a reply, without charge.

    The counts `charged` and `left` of the reply are 0.
    """
    target = state.plan.target
    fields: dict[str, Any]
    if target.is_class_vote:
        labels, votes, probabilities = state.read_answers(block_numbers, offsets)
        # The noise of a difference of two votes.
        lead_noise = np.sqrt(2.0) * state.noise_scale
        fields = {
            "labels": np.asarray(target.names)[labels],
            "votes": votes,
            "confidence": None if votes is None else subtract_second_best(votes) / lead_noise,
            "probabilities": probabilities,
        }
    else:
        sums = state.answers.read_answers(block_numbers, offsets)
        noise = np.full(len(sums), state.noise_scale)
        answers = state.plan.vector_target.compute_answers(sums, noise)
        fields = {"sums": sums, "names": target.names, **answers.reply_arrays}
    return REPLIES[target.kind](**fields, charged=0, left=0)


def refuse_uncovered_target(state: AudienceState) -> None:
    """Raise NoCoverage if answers of an audience cannot have sets or intervals."""
    target = state.plan.target
    remedy = None
    if target.kind == LABELS:
        remedy = "Label sets have none: make a store of classes, or of one class per label."
    elif target.is_class_vote and state.plan.label_only:
        remedy = "This audience gets labels alone: open another one with 'release' \"votes\"."
    if remedy is not None:
        raise NoCoverage(
            f"The 'coverage' parameter needs classes with probabilities, or numbers. {remedy}"
        )


_NEW_BLOCK = -1  # block number of answers in a block that has no number yet


@dataclass(eq=False)
class _NewQueries:
    """Queries of a batch to one audience that need new answers, which make one block.

    - `rows`: integer features (width,) of each query.
    - `offset_of`: index of each query in `rows`, by digest.
    - `n_queries_of`: number of queries in `rows` that each analyst's quota is charged, by name.
    - `refusal`: the error if the audience could not be charged for the queries.
    """

    state: AudienceState
    rows: list[AnyArray] = field(default_factory=list)
    offset_of: dict[bytes, int] = field(default_factory=dict)
    n_queries_of: dict[str, int] = field(default_factory=dict)
    refusal: VicinalError | None = None


@dataclass(eq=False)
class _CheckedRequest:
    """A request with normalized names, and its queries as features (q, d) in floating point.

    `certified`: the thresholds of the requested coverage, or None.
    """

    state: AudienceState
    analyst: str
    key_digest: bytes | None
    vectors: AnyArray
    certified: CertifiedThresholds | None


@dataclass(eq=False)
class _LocatedRequest:
    """A request with the location of each of its q answers, in stored blocks or a new one.

    - `block_numbers`: the number of each answer's block; :data:`_NEW_BLOCK` for a new block.
    - `charged`: number of new answers.
    - `body`: digest of the queries, if the request has an idempotency key and needs new answers.
    - `certified`: the thresholds of the requested coverage, or None.
    """

    state: AudienceState
    analyst: str
    block_numbers: Ints
    offsets: Indices
    charged: int = 0
    body: bytes = b""
    certified: CertifiedThresholds | None = None


def _add_coverage(reply: Reply, request: _LocatedRequest) -> Reply | VicinalError:
    """Return a reply with the sets or intervals of the requested coverage, if any, and the promise.

    Returns an error if answers of the `request` are older than the calibration.
    """
    certified = request.certified
    if certified is None:
        return reply
    state = request.state
    if not state.answers.are_current(request.block_numbers):
        return NoCoverage(
            "The 'coverage' parameter requires answers given since the last change of the data. "
            "Those of this 'idempotency_key' are older: use another key, or repeat the request "
            "without 'coverage' to get them. Nothing was charged."
        )
    target: Any = state.plan.target
    promise = certified.describe(
        n_answers=state.audience.used, of_classes=isinstance(reply, ClassReply)
    )
    if isinstance(reply, ClassReply) and reply.probabilities is not None:
        sets = certified.select_classes(target.names, reply.probabilities)
        return replace(reply, sets=sets, promise=promise)
    assert isinstance(reply, NumberReply)  # noqa: S101 (others are refused before)
    low, high = certified.bound_numbers(target, reply.labels)
    return replace(reply, low=low, high=high, promise=promise)


class RequestBatch:
    """Requests that are answered together: one block per audience, and one commit for all.

    `ledger`, `schema`: those of the store. `states`: the state of each audience, by its name.
    """

    def __init__(
        self, ledger: Ledger, schema: StoreSchema, states: Mapping[str, AudienceState]
    ) -> None:
        self._ledger = ledger
        self._schema = schema
        self._states = states
        self._new_queries: dict[str, _NewQueries] = {}  # by audience
        self._keyed_requests: dict[bytes, _LocatedRequest] = {}  # of this batch, by key digest
        self._stored_requests: dict[bytes, StoredRequest] = {}  # of the ledger, by key digest

    def answer_requests(self, submitted: Sequence[Query]) -> list[Reply | VicinalError]:
        """Return a reply for each submitted request to an audience, or the error that refuses it.

        New answers are durable, with their charges, when this returns.
        """
        checked = [self._check_request(query) for query in submitted]
        requests = self._locate_answers(checked)
        try:
            # Charges and noise are in memory, nothing is durable yet.
            attempted = [
                self._answer_new_queries(new) for new in self._new_queries.values() if new.rows
            ]
            blocks = [block for block in attempted if block is not None]
            requests = [
                request
                if isinstance(request, VicinalError)
                else self._find_refusal(request) or request
                for request in requests
            ]
            # The ledger will number the blocks in this way.
            number_of = {
                block.audience.name: number
                for number, block in enumerate(blocks, self._ledger.clock + 1)
            }
            _assign_block_numbers(requests, number_of)
            stored = [
                StoredRequest(key_digest, request.body, request.block_numbers, request.offsets)
                for key_digest, request in self._keyed_requests.items()
                if not self._find_refusal(request)
            ]
        except BaseException:
            self._commit_interrupted_charges(*(new.state for new in self._new_queries.values()))
            raise
        if blocks or stored:
            self._ledger.commit(blocks, stored)
        for block in blocks:
            name = block.audience.name
            self._new_queries[name].state.add_block(number_of[name], block)
        return self._build_replies(requests)

    # ------------------------------------------------------------ before anything is charged

    def _locate_answers(
        self, checked: Sequence[_CheckedRequest | VicinalError]
    ) -> list[_LocatedRequest | VicinalError]:
        """Return the locations of each request's answers, or the error that refuses it.

        Queries without an answer are added to the new queries of their audiences.
        """
        accepted = [request for request in checked if not isinstance(request, VicinalError)]
        rows_of_requests: Iterator[AnyArray] = iter(())
        if accepted:
            # All rows are encoded in one call: the integers of a row depend on no other row.
            vectors = [request.vectors for request in accepted]
            ends = np.cumsum([len(rows) for rows in vectors[:-1]], dtype=np.int64)
            integers = self._schema.create_kernel().encode(np.concatenate(vectors))
            rows_of_requests = iter(np.split(integers, ends))
        self._stored_requests = load_requests(
            self._ledger.database,
            [request.key_digest for request in accepted if request.key_digest is not None],
        )
        requests: list[_LocatedRequest | VicinalError] = []
        for request in checked:
            if isinstance(request, VicinalError):
                requests.append(request)
                continue
            try:
                located = self._locate_request(request, next(rows_of_requests))
                # A copy shares the arrays: requests with one key may differ in their coverage.
                requests.append(replace(located, certified=request.certified))
            except VicinalError as error:
                requests.append(error)
        return requests

    def _check_request(self, query: Query) -> _CheckedRequest | VicinalError:
        """Return the request `query` with checked names and features, or the error of a refusal."""
        try:
            state = get_audience_state(self._states, query.audience)
            analyst = normalize_name("analyst", query.analyst)
            key_digest = None
            if query.idempotency_key is not None:
                key = normalize_name("idempotency_key", query.idempotency_key)
                key_digest = digest_request(state.audience.name, analyst, key)
            certified = None
            if query.coverage is not None:
                refuse_uncovered_target(state)
                certified = certify_coverage(
                    self._ledger.database,
                    state.audience.number,
                    self._ledger.version,
                    query.coverage,
                )
            vectors = self._schema.extract_queries(query.queries)
            return _CheckedRequest(state, analyst, key_digest, vectors, certified)
        except VicinalError as error:
            return error

    def _locate_request(self, request: _CheckedRequest, rows: AnyArray) -> _LocatedRequest:
        """Return `request` with the locations of its answers; add its new queries to the batch.

        `rows`: its queries. Raises PrivacyRefused or KeyReused if the request is refused.
        """
        state = request.state
        key_digest = request.key_digest
        self._refuse_second_audience(state, request.analyst)
        digests = digest_queries(rows)
        if key_digest is None:
            return self._locate_or_enqueue(state, request.analyst, digests, rows)
        body = hashlib.sha256(b"".join(digests)).digest()
        earlier = self._find_earlier_request(state, request.analyst, key_digest, body)
        if earlier is not None:
            return earlier
        located = self._locate_or_enqueue(state, request.analyst, digests, rows)
        # A request without new answers needs no entry: repeated, it is not charged either.
        if located.charged:
            located.body = body
            self._keyed_requests[key_digest] = located
        return located

    def _refuse_second_audience(self, state: AudienceState, analyst: str) -> None:
        """Raise PrivacyRefused if `analyst` has answers of another audience than that of `state`.

        The service's file of keys also ties an analyst to one audience, but it may be replaced by
        an older copy.
        """
        if analyst == ANYONE:
            return
        for other_state in self._states.values():
            if other_state is state:
                continue
            audience = other_state.audience
            entry = audience.analysts.get(analyst)
            new = self._new_queries.get(audience.name)
            if (entry and entry.used) or (new and new.n_queries_of.get(analyst)):
                raise PrivacyRefused(
                    f"The analyst already has answers of the audience {audience.name!r}. Both "
                    "guarantees assume that nobody sees the answers of two audiences."
                )

    def _find_earlier_request(
        self, state: AudienceState, analyst: str, key_digest: bytes, body: bytes
    ) -> _LocatedRequest | None:
        """Return the earlier request with the same idempotency key, or None if the key is new.

        `body`: digest of all queries. Raises KeyReused if the earlier request, of this batch or a
        stored one, had other queries.
        """
        earlier = self._keyed_requests.get(key_digest) or self._stored_requests.get(key_digest)
        if earlier is not None and earlier.body != body:
            raise KeyReused(
                "The 'idempotency_key' parameter must be new for new queries. It was used for "
                "others."
            )
        if isinstance(earlier, StoredRequest):
            return _LocatedRequest(state, analyst, earlier.block_numbers, earlier.offsets)
        return earlier

    def _locate_or_enqueue(
        self, state: AudienceState, analyst: str, digests: list[bytes], rows: AnyArray
    ) -> _LocatedRequest:
        """Return the locations of answers to queries, adding unanswered ones to the new queries.

        `digests`: the digest of each row. Raises PrivacyRefused if fewer answers remain of the plan
        or the analyst's quota.
        """
        new = self._new_queries.setdefault(state.audience.name, _NewQueries(state))
        stored_locations = [state.answers.find_answer(digest) for digest in digests]
        row_of_digest = {
            digest: row
            for digest, row, location in zip(digests, rows, stored_locations, strict=True)
            if location is None and digest not in new.offset_of
        }
        _refuse_excess_answers(state, new, analyst, len(row_of_digest))
        for digest, row in row_of_digest.items():
            new.offset_of[digest] = len(new.rows)
            new.rows.append(row)
        if row_of_digest:
            n_earlier = new.n_queries_of.get(analyst, 0)
            new.n_queries_of[analyst] = n_earlier + len(row_of_digest)
        locations = [
            location or (_NEW_BLOCK, new.offset_of[digest])
            for digest, location in zip(digests, stored_locations, strict=True)
        ]
        block_numbers, offsets = np.array(locations, dtype=np.int64).reshape(-1, 2).T.copy()
        return _LocatedRequest(state, analyst, block_numbers, offsets, len(row_of_digest))

    # ------------------------------------------------------------ charge, make durable, reply

    def _answer_new_queries(self, new: _NewQueries) -> AnswerBlock | None:
        """Charge new queries of an audience in memory, and return the block of their answers.

        Returns None if the charge is refused; `new.refusal` is the error then.
        """
        state = new.state
        rows = np.stack(new.rows)
        try:
            answers = state.answer(rows)
            self._ledger.charge_total(state.audience)
        except VicinalError as error:
            self._commit_interrupted_charges(state)
            new.refusal = error
            return None
        return AnswerBlock(
            state.audience,
            b"".join(new.offset_of),
            pack_answers(answers),
            state.slack.spent,
            new.n_queries_of,
            None if state.proxies is None else state.proxies.stored_shares,
            state.n_private_queries,
        )

    def _commit_interrupted_charges(self, *states: AudienceState) -> None:
        """Make charges durable although the answers are not released; reset public counters.

        `states`: those of the charged audiences.
        """
        for state in states:
            state.audience.slack = state.slack.spent
        self._ledger.commit_interrupted_charges(state.audience for state in states)
        # Only after the charges are durable, so that an interruption undoes none of them.
        for state in states:
            state.reset_counters()

    def _find_refusal(self, request: _LocatedRequest) -> VicinalError | None:
        """Return the error that refused the new answers of a located request, or None."""
        new = self._new_queries.get(request.state.audience.name)
        if new is None or new.refusal is None:
            return None
        return new.refusal if (request.block_numbers == _NEW_BLOCK).any() else None

    def _build_replies(
        self, requests: Sequence[_LocatedRequest | VicinalError]
    ) -> list[Reply | VicinalError]:
        """Return the reply to each request, or its error. Answers are read once per audience."""
        requests_of: dict[str, list[_LocatedRequest]] = {}
        for request in requests:
            if not isinstance(request, VicinalError):
                requests_of.setdefault(request.state.audience.name, []).append(request)
        replies_of = {name: self._read_replies(located) for name, located in requests_of.items()}
        return [
            request
            if isinstance(request, VicinalError)
            else _add_coverage(next(replies_of[request.state.audience.name]), request)
            for request in requests
        ]

    def _read_replies(self, requests: Sequence[_LocatedRequest]) -> Iterator[Reply]:
        """Yield the replies to requests of one audience, whose answers are all durable."""
        state = requests[0].state
        block_numbers = np.concatenate([request.block_numbers for request in requests])
        offsets = np.concatenate([request.offsets for request in requests])
        answers = read_stored_answers(state, block_numbers, offsets)
        start = 0
        for request in requests:
            stop = start + len(request.block_numbers)
            rows = slice(start, stop)
            remaining = state.count_remaining_answers(request.analyst)
            yield answers.select_rows(rows, charged=request.charged, left=remaining)
            start = stop


def _assign_block_numbers(
    requests: Sequence[_LocatedRequest | VicinalError], number_of: Mapping[str, int]
) -> None:
    """Set the numbers of the new blocks in all requests; `number_of`: by name of the audience."""
    for request in requests:
        if isinstance(request, VicinalError):
            continue
        is_new = request.block_numbers == _NEW_BLOCK
        if is_new.any():
            request.block_numbers[is_new] = number_of[request.state.audience.name]


def check_analyst(states: Mapping[str, AudienceState], audience: object, analyst: object) -> None:
    """Raise InvalidInput if analysts of the audience have quotas, and `analyst` is a new name.

    A misspelt name would otherwise have the answers of the whole audience. `states`: by names of
    audiences. `audience`, `analyst`: names, not yet checked.
    """
    known = get_audience_state(states, audience).audience.analysts
    if all(entry.quota is None for entry in known.values()):
        return
    name = normalize_name("analyst", analyst)
    if name not in (ANYONE, *known):
        names = ", ".join(name for name in known if name != ANYONE)
        raise InvalidInput(
            f"The 'analyst' parameter must be a name that the audience {audience!r} knows, because "
            f"it has quotas: {names}. Got {name!r}. Give a new analyst a quota first, or no limit."
        )


def get_audience_state(states: Mapping[str, AudienceState], audience: object) -> AudienceState:
    """Return the state of the audience with this name; raises InvalidInput if there is none."""
    state = None
    if isinstance(audience, str):
        state = states.get(unicodedata.normalize("NFC", audience))
    if state is None:
        names = ", ".join(map(repr, states))
        raise InvalidInput(
            f"The 'audience' parameter must be an audience of this store, which has {names}."
        )
    return state


_ALTERNATIVES = (
    " To go on, open another audience for people who share no answers with this one, whose epsilon "
    "comes on top, or publish a student, which answers without limit."
)


def _refuse_excess_answers(
    state: AudienceState, new: _NewQueries, analyst: str, n_requested: int
) -> None:
    """Raise PrivacyRefused if `n_requested` further new answers exceed the plan or a quota.

    `new`: queries to the audience that this batch has accepted already.
    """
    audience = state.audience
    renewal = audience.due_renewal
    alternatives = _ALTERNATIVES
    if renewal is not None and renewal.next_date:
        alternatives = f" The next part of answers and budgets comes on {renewal.next_date}."
    remaining = state.remaining_answers - len(new.rows)
    limits = [(f"audience {audience.name!r}", state.planned_answers, remaining, alternatives)]
    entry = audience.analysts.get(analyst)
    if entry is not None and entry.quota is not None:
        n_used = entry.used + new.n_queries_of.get(analyst, 0)
        limits.append(("analyst", entry.quota, entry.quota - n_used, ""))
    for holder, limit, remaining, remedy in limits:
        if n_requested > max(0, remaining):
            raise PrivacyRefused(
                f"The {holder} has {max(0, remaining)} of {limit} answers left, and {n_requested} "
                "new ones were asked for. Nothing was charged. Queries answered since the data "
                f"last changed still cost nothing.{remedy}"
            )
