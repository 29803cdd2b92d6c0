"""Facts of a store, public and private ones, and the verification of its files and databases."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import AnyArray
from vicinal.checks import SubjectId
from vicinal.declared_sizes import read_chunks
from vicinal.engine.proxy_ledger import QUANTILES
from vicinal.ledger.answers import DIGEST_BYTES
from vicinal.ledger.audiences import Analyst, find_budget_faults, load_audiences, sum_logged_charges
from vicinal.ledger.database import find_chain_faults, has_commit
from vicinal.ledger.hashed_slots import NOT_ENROLLED
from vicinal.ledger.id_encoding import OPENING, frame_id, match_framed_id
from vicinal.ledger.ledger import EVALUATED, Ledger
from vicinal.store.audience_state import AudienceState, TotalGuarantee
from vicinal.store.coverage import read_evaluations
from vicinal.store.opening import OpenStore
from vicinal.store.record_files import OTHER_RECORDS, find_file_faults, slots_match_enrolment
from vicinal.store.requests import normalize_name


@dataclass(frozen=True, slots=True)
class Quota:
    """Numbers of planned, used and remaining new answers, of an audience and of one analyst.

    Attributes
    ----------
    planned, used, left : int
        Of the audience; `left` is the number of new answers that remain for now.
    analyst_quota, analyst_left : int or None
        Limit of the analyst, and its remaining answers, which are never more than `left`; None if
        only the audience's limit applies.
    analyst_used : int
        Answers that the analyst was charged.

    Examples
    --------
    >>> from vicinal.store import Quota
    >>> Quota(planned=1000, used=120, left=880).left
    880
    """

    planned: int
    used: int
    left: int
    analyst_quota: int | None = None
    analyst_used: int = 0
    analyst_left: int | None = None


@dataclass(frozen=True, slots=True)
class Presence:
    """Numbers of enrolled, erased and unknown subjects among some ids. Private.

    - `enrolled`: subjects with records.
    - `erased`: subjects with erased records; the ledger keeps keyed hashes of their ids.
    - `unknown`: all other subjects, also those with evaluated rows alone.
    - `similar`: unknown ids that differ in spelling only from a known id: of a subject that is
      enrolled, or was erased or evaluated. Several spellings of one id count once.
    """

    enrolled: int
    erased: int
    unknown: int
    similar: int = 0


def compute_quota(state: AudienceState, analyst: str | None) -> Quota:
    """Return used and remaining answers of an audience, and of one of its analysts.

    `state`: that of the audience. `analyst`: name of the analyst, or None for the audience alone.
    """
    quota = Quota(state.plan.n_queries, state.audience.used, state.remaining_answers)
    if analyst is None:
        return quota
    name = normalize_name("analyst", analyst)
    entry = state.audience.analysts.get(name, Analyst(None, 0))
    left = None if entry.quota is None else state.count_remaining_answers(name)
    return replace(quota, analyst_quota=entry.quota, analyst_used=entry.used, analyst_left=left)


def collect_public_facts(store: OpenStore, states: Mapping[str, AudienceState]) -> dict[str, Any]:
    """Return all public facts of a store as plain values for JSON, by name.

    `states`: the state of each audience of the store, by the audience's name.
    """
    schema = store.schema
    total = TotalGuarantee.from_ledger(store.ledger, [state.requested for state in states.values()])
    history = store.database.read("SELECT at, what, version FROM history ORDER BY clock")
    return {
        "identity": store.folder.identity,
        "ledger": store.database.kind,
        "classes": schema.classes,
        "target": schema.target.facts,
        "features": {"number": schema.n_features, **schema.extractor.to_dict()},
        "kernel": schema.kernel,
        "index": schema.index,
        "version": store.ledger.version,
        "history": [{"at": at, "what": kind, "version": version} for at, kind, version in history],
        "total": total.to_dict(),
        "audiences": {
            name: _collect_audience_facts(store, state, total) for name, state in states.items()
        },
    }


def _collect_audience_facts(
    store: OpenStore, state: AudienceState, total: TotalGuarantee
) -> dict[str, Any]:
    """Return the public facts of one audience as plain values for JSON, by name.

    `total`: the guarantee over all audiences.
    """
    quota = asdict(compute_quota(state, None))
    renewal = state.audience.due_renewal
    return {
        "plan": state.describe_plan(),
        "queries": {name: value for name, value in quota.items() if "analyst" not in name},
        "renewal": None if renewal is None else renewal.to_dict(),
        "usage": _estimate_budget_usage(state),
        "evaluations": read_evaluations(store.database, state.audience.number),
        "guarantee": state.guarantee(total).to_dict(),
    }


def _estimate_budget_usage(state: AudienceState) -> dict[str, Any] | None:
    """Return statistics of the spent shares of subjects' budgets, estimated on public points.

    These are the mean, the part of it that the latest training of the private model used (None
    without a model, and for renewed budgets), quantiles, and the share of subjects with almost
    spent budgets. The result is None without public points, or if new subjects get no budget (after
    an accepted loss).
    """
    if state.proxies is None or not state.audience.initial_budget:
        return None
    usage = state.proxies.budget_usage()
    levels = [f"{level:.0%}" for level in QUANTILES]
    training = None
    if state.private_model is not None and state.audience.renewal is None:
        training = float(np.mean(state.private_model.model.spent_shares))
    return {
        "mean": usage.used,
        "training": training,
        "quantiles": dict(zip(levels, usage.quantiles, strict=True)),
        "retired": usage.retired,
    }


def collect_private_facts(store: OpenStore) -> dict[str, Any]:
    """Return private facts as plain values by name: records, subjects, budgets and analysts."""
    erased_query = (
        "SELECT COUNT(DISTINCT hash) FROM departed WHERE audience > 0 AND hash NOT IN "
        "(SELECT hash FROM departed WHERE audience = ?)"
    )
    slots = store.ledger.slot_table.taken_slots
    budgets = {}
    analysts = {}
    for name, audience in store.ledger.audiences.items():
        remaining = audience.account.remaining[slots]
        budgets[name] = _summarize_budgets(remaining, audience.initial_budget or UNITS)
        analysts[name] = {key: asdict(analyst) for key, analyst in audience.analysts.items()}
    return {
        "warning": "These numbers are private. Do not log, show or publish them.",
        "records": len(store.shard),
        "subjects": len(store.ledger.slot_table),
        "departed": int(store.database.read(erased_query, (EVALUATED,))[0][0]),
        "budgets": budgets,
        "analysts": analysts,
    }


def _summarize_budgets(remaining: np.ndarray, initial_units: int) -> dict[str, Any]:
    """Return counts, mean and quartiles of remaining budgets by name. Private.

    `remaining`, int64 (subjects,): in units. `initial_units`: budget of a new subject, in units.
    "untouched" is the number of subjects with all of it, "spent" that of subjects with no budget.
    Mean and quartiles are shares of a full budget.
    """
    if not len(remaining):
        return {"untouched": 0, "spent": 0}
    shares = remaining / UNITS
    return {
        "untouched": int((remaining == initial_units).sum()),
        "spent": int((remaining == 0).sum()),
        "mean": float(shares.mean()),
        "quartiles": np.quantile(shares, [0.25, 0.5, 0.75]).tolist(),
    }


_FILE_CHUNK_BYTES = 1 << 26  # bytes of a file in memory at a time, in the search for erased ids

_CHUNK_OVERLAP_BYTES = 2048
"""Bytes repeated at the start of the next chunk: more than the longest framed id (1,000 bytes), so
that every id lies whole in some chunk."""

_SCAN_CHUNK_BYTES = 1 << 20
"""Bytes of a database file read at a time, in the search for ids that are not enrolled."""

_MAX_ID_ROW_BYTES = 1 << 12
"""Upper bound on the ids of one row of the subject table (at most 3,900 bytes): a row that starts
this far before the end of the bytes read so far lies in them whole."""

_MIN_RESIDUE_BYTES = 8
"""Shortest remainder of a partly overwritten id that is searched for, in bytes; shorter ones occur
by chance."""

_END_OF_FRAMED_ID = re.compile(rb"[is][!-;=?-~]*>")
"""A framed id (``<id:i7>``, ``<id:sanna>``) from its type letter to its closing bracket."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of a check of all files and databases of a store.

    `faults`: a sentence for each problem, without any id. `checked`: a noun phrase for each check
    that ran.
    """

    faults: tuple[str, ...]
    checked: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.faults


def verify(store: OpenStore, erased: Sequence[SubjectId], rows: AnyArray | None) -> Verification:
    """Check database, files and budgets of a store, and search for traces of erased data.

    `erased`: subject ids that must be neither enrolled nor found in any file. `rows`, (m, width) or
    None: integer features that must not be in the record files; rows of zeros are ignored.
    """
    faults_of_check = {
        "the database's structure": store.database.find_faults(),
        "all rows and the chain of commits, against their digests": find_chain_faults(
            store.database, store.folder.read_key()
        ),
        "the record files, against their digests": find_file_faults(
            store.database, store.record_files, len(store.shard)
        ),
        "records, labels and subjects, against each other": _find_record_faults(store),
        "budgets, against all charges, in whole units": _find_budget_faults(store.ledger),
        "answers, against the charges that paid for them": _find_answer_faults(store.ledger),
        "the witness": _find_witness_fault(store),
        "ids in the database's files, against the subjects that are here": find_id_traces(store),
        "erased subjects": _find_erased_ids(store, erased),
    }
    if rows is not None:
        searched = {row.tobytes() for row in np.ascontiguousarray(rows) if row.any()}
        # All rows of the file are read, also those that are not yet overwritten.
        chunks = store.record_files.read_feature_chunks()
        is_present = any(row.tobytes() in searched for chunk in chunks for row in chunk)
        fault = "The record files hold features of an erased record, or equal ones of another."
        faults_of_check["erased features"] = [fault] if is_present else []
    faults = tuple(fault for faults in faults_of_check.values() for fault in faults)
    return Verification(faults, tuple(faults_of_check))


def _find_record_faults(store: OpenStore) -> Iterator[str]:
    """Yield a sentence for each disagreement of record files, subject table and memory."""
    size = len(store.shard)
    slots = store.record_files.read_slots(size)
    target_rows = store.record_files.labels.map_rows(size)
    enrolled = store.ledger.slot_table.taken_slots
    if len(np.unique(enrolled)) != len(enrolled):
        yield "Two subjects share a budget."
    if not np.array_equal(np.unique(slots), np.sort(enrolled)):
        yield "A record has no subject, or a subject no record."
    if not slots_match_enrolment(store.database, store.record_files, size):
        yield OTHER_RECORDS
    target = store.schema.target
    if fault := target.find_error(target_rows):
        yield fault
    subject_table = store.shard.subject_table
    if not np.array_equal(subject_table.slots, slots) or not np.array_equal(
        target.encode_rows(subject_table.targets), target_rows
    ):
        yield "Records in memory differ from those on disk."


def _find_budget_faults(ledger: Ledger) -> Iterator[str]:
    """Yield a sentence for each disagreement of budgets with the charges, or with memory."""
    stored = load_audiences(ledger.database, ledger.size)
    unused_slots = ledger.slot_table.find_unused()
    for audience in ledger.accounts:
        stored_audience = stored[audience.name]
        if not np.array_equal(stored_audience.account.durable, audience.account.remaining):
            yield f"Budgets of audience {audience.name!r} in memory differ from those on disk."
        yield from find_budget_faults(ledger.database, stored_audience, unused_slots)
    if ledger.total is not None:
        yield from ledger.total.find_faults(stored)


def _find_answer_faults(ledger: Ledger) -> Iterator[str]:
    """Yield a sentence for each audience with unequal numbers of answers and charged queries."""
    for audience in load_audiences(ledger.database, ledger.size).values():
        rows = ledger.database.read(
            "SELECT LENGTH(digests) FROM answers WHERE audience = ?", (audience.number,)
        )
        released = sum(length for (length,) in rows) // DIGEST_BYTES
        _, charged = sum_logged_charges(ledger.database, audience.number)
        if not released == charged + audience.checkpointed_queries == audience.used:
            yield f"Answers to audience {audience.name!r} and charged queries differ in number."


def _find_witness_fault(store: OpenStore) -> Iterator[str]:
    """Yield a sentence if the witness and the ledger have different last commits."""
    state = store.witness.state
    if state.clock != store.ledger.clock or not has_commit(store.database, state.clock, state.head):
        yield "The witness and the store are at different commits."


def find_id_traces(store: OpenStore) -> Iterator[str]:
    """Yield a sentence for each file of the database that contains the id of an unenrolled subject.

    All pages are searched, unused ones too, for the opening mark with which every id is stored.
    Most marks are in current rows of the subject table, which are recognized as a whole by their
    digests; each other id is looked up in the table.
    """
    descriptors = store.database.open_files()
    if not descriptors:
        return
    framed_ids_of_rows = (row[3] for rows in store.database.scan("subject_pages") for row in rows)
    fingerprint_of_row = {
        match_framed_id(framed_ids): _compute_fingerprint(framed_ids)
        for framed_ids in framed_ids_of_rows
    }
    for path, descriptor in descriptors.items():
        stray_ids = _find_stray_ids(descriptor, fingerprint_of_row)
        if not all(store.ledger.slot_table.contains_all(ids) for ids in stray_ids):
            yield f"The file {path.name} holds an id of somebody who is not here any more."


RowFingerprint = tuple[int, bytes]
"""Length in bytes, and SHA-256 digest, of the framed ids in one row of the subject table."""


def _compute_fingerprint(framed_ids: bytes) -> RowFingerprint:
    """Return the fingerprint of a row from its concatenated framed ids."""
    return len(framed_ids), hashlib.sha256(framed_ids).digest()


def _find_stray_ids(
    descriptor: int, fingerprint_of_row: Mapping[bytes | None, RowFingerprint]
) -> Iterator[list[bytes]]:
    """Yield the framed ids in a file outside current rows of the subject table, a list per chunk.

    `descriptor`: of a file of the database. `fingerprint_of_row`: fingerprints of all current rows,
    by the first framed id of the row.
    """
    content = b""
    for chunk in chain(read_chunks(descriptor, _SCAN_CHUNK_BYTES), [b""]):
        content += chunk
        has_more = bool(chunk)
        stray_ids = set()
        offset = content.find(OPENING)
        # Before the last chunk, a row that may reach beyond `content` is left to the next one.
        while 0 <= offset < len(content) - _MAX_ID_ROW_BYTES * has_more:
            framed_id = match_framed_id(content, offset)
            length, digest = fingerprint_of_row.get(framed_id, (0, b""))
            row = content[offset : offset + length]
            if length and _compute_fingerprint(row) == (length, digest):
                offset += length
            else:
                if framed_id is not None:
                    stray_ids.add(framed_id)
                offset += len(framed_id or OPENING)
            offset = content.find(OPENING, offset)
        # If there is no further mark, the last bytes may be the start of one.
        content = content[offset if offset >= 0 else -len(OPENING) :]
        yield list(stray_ids)


def _find_erased_ids(store: OpenStore, erased: Sequence[SubjectId]) -> Iterator[str]:
    """Yield a sentence for each id in `erased` that is enrolled, and each file with such an id."""
    is_enrolled = store.ledger.slot_table.find_slots(erased) != NOT_ENROLLED
    for index in np.flatnonzero(is_enrolled).tolist():
        yield f"The {_format_ordinal(index + 1)} of the ids that you gave is enrolled."
    # The ids of enrolled subjects are in the files, of course.
    patterns = {_make_residue_pattern(subject) for subject in compress(erased, ~is_enrolled)}
    if not patterns:
        return
    paths = [path for path in store.folder.path.rglob("*") if path.is_file()]
    descriptors = store.database.open_files()
    for path in [*paths, store.folder.witness]:
        chunks = _read_overlapping_chunks(descriptors.get(path, path))
        if any(_contains_pattern(chunk, patterns) for chunk in chunks):
            yield f"The file {path.name} holds an erased id."


def _format_ordinal(number: int) -> str:
    """Return an ordinal number in English, such as "1st"."""
    is_teen = 10 < number % 100 < 14
    suffix = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def _make_residue_pattern(subject: SubjectId) -> bytes:
    """Return bytes that are in a file if it contains the id `subject`, even partly overwritten.

    A database that frees a cell may overwrite its first four bytes, so they are not searched for.
    An id that would then have fewer than :data:`_MIN_RESIDUE_BYTES` is searched for with all bytes
    but the opening bracket, which :func:`_contains_pattern` does not read.
    """
    frame = frame_id(subject)
    return frame[4:] if len(frame) - 4 >= _MIN_RESIDUE_BYTES else frame[1:]


def _contains_pattern(content: bytes, patterns: set[bytes]) -> bool:
    """Return whether `content` contains one of the patterns of :func:`_make_residue_pattern`.

    All of them begin with a letter "i" or "s" and end with the closing bracket of an id.
    """
    return any(
        match[0][start:] in patterns
        for match in _END_OF_FRAMED_ID.finditer(content)
        for start, code in enumerate(match[0])
        if code in b"is"
    )


def _read_overlapping_chunks(source: Path | int) -> Iterator[bytes]:
    """Yield a file's content in overlapping chunks, so that every id is whole in one of them.

    `source`: path or descriptor of the file.
    """
    overlap = b""
    for chunk in read_chunks(source, _FILE_CHUNK_BYTES):
        yield overlap + chunk
        overlap = (overlap + chunk)[-_CHUNK_OVERLAP_BYTES:]
