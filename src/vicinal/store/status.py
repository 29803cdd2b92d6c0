"""What may be known about a store, what only its curator may, and every invariant on the disk."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.accounting.budget import UNITS
from vicinal.arrays import AnyArray
from vicinal.checks import SubjectId
from vicinal.engine.proxy_ledger import QUANTILES
from vicinal.ledger.answers import DIGEST
from vicinal.ledger.audiences import (
    Analyst,
    budget_faults,
    charges_since_checkpoint,
    load_audiences,
)
from vicinal.ledger.database import chain_faults, is_descendant
from vicinal.ledger.hashed_slots import NOBODY
from vicinal.ledger.id_encoding import OPENING, first_framed_id, frame_id
from vicinal.ledger.ledger import EVALUATED, Ledger, Standing
from vicinal.store.audience_state import AudienceState, TotalGuarantee
from vicinal.store.evaluation import evaluations
from vicinal.store.opening import OpenStore
from vicinal.store.record_files import OTHER_RECORDS, record_file_faults, slots_match_enrolment
from vicinal.store.requests import checked_name


@dataclass(frozen=True, slots=True)
class Quota:
    """How many new answers are planned, used and left; of an audience, and of one analyst.

    Attributes
    ----------
    planned, used, left : int
        Of the audience.
    analyst_quota, analyst_left : int or None
        Of the analyst; None if there is no limit but the audience's.
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
    """How many of some ids are in a store. Private.

    Attributes
    ----------
    enrolled, erased, unknown : int
        Ids that are there; that left, and whose keyed hashes are known; that never were there.
        Whoever was evaluated only never was there.
    """

    enrolled: int
    erased: int
    unknown: int

    @classmethod
    def of(cls, standings: Iterable[int]) -> Presence:
        """Count how subjects are known, each counted once."""
        counts = Counter(standings)
        here, erased = (counts.pop(Standing.ENROLLED, 0), counts.pop(Standing.ERASED, 0))
        return cls(here, erased, counts.total())


def remaining_quota(state: AudienceState, analyst: str | None) -> Quota:
    name = None if analyst is None else checked_name("analyst", analyst)
    entry = state.audience.analysts.get(name or "", Analyst(None, 0))
    remaining = None if entry.quota is None else max(0, entry.quota - entry.used)
    used = state.audience.used
    return Quota(
        state.settings.n_queries, used, state.remaining, entry.quota, entry.used, remaining
    )


def public_facts(parts: OpenStore, states: Mapping[str, AudienceState]) -> dict[str, Any]:
    """Return what everybody may know, as plain values."""
    schema = parts.schema
    together = TotalGuarantee.of(parts.ledger, [state.requested for state in states.values()])
    history = parts.database.read("SELECT at, what, version FROM history ORDER BY clock")
    return {
        "identity": parts.folder.identity,
        "ledger": parts.database.kind,
        "classes": schema.classes,
        "target": schema.target.facts,
        "features": {"number": schema.n_features, **schema.extractor.spec()},
        "kernel": schema.kernel,
        "index": schema.index,
        "version": parts.ledger.version,
        "history": [{"at": at, "what": kind, "version": v} for at, kind, v in history],
        "total": together.to_dict(),
        "audiences": {name: _audience(parts, state, together) for name, state in states.items()},
    }


def _audience(parts: OpenStore, state: AudienceState, together: TotalGuarantee) -> dict[str, Any]:
    return {
        "plan": state.plan(),
        "queries": {
            k: v for k, v in asdict(remaining_quota(state, None)).items() if "analyst" not in k
        },
        "renewal": (due := state.audience.due) and due.to_dict(),
        "usage": _budget_usage(state),
        "evaluations": evaluations(parts, state),
        "guarantee": state.guarantee(together).to_dict(),
    }


def _budget_usage(state: AudienceState) -> dict[str, Any] | None:
    """Return how far budgets are used as public points tell it; None if they tell nothing."""
    if state.proxies is None or not state.audience.initial_budget:
        return None
    usage = state.proxies.budget_usage()
    quantiles = {f"{q:.0%}": used for q, used in zip(QUANTILES, usage.quantiles, strict=True)}
    return {"mean": usage.used, "quantiles": quantiles, "retired": usage.retired}


def curator_facts(parts: OpenStore) -> dict[str, Any]:
    """Return what only the curator may know: numbers of records, people and budgets."""
    departed = (
        "SELECT COUNT(DISTINCT hash) FROM departed WHERE audience > 0 AND hash NOT IN "
        "(SELECT hash FROM departed WHERE audience = ?)"
    )
    return {
        "warning": "These numbers are private. Do not log, show or publish them.",
        "records": len(parts.shard),
        "subjects": len(parts.ledger.slot_table),
        "departed": int(parts.database.read(departed, (EVALUATED,))[0][0]),
        "budgets": {
            name: _budget_shares(
                audience.account.remaining[parts.ledger.slot_table.taken],
                audience.initial_budget or UNITS,
            )
            for name, audience in parts.ledger.audiences.items()
        },
        "analysts": {
            name: {who: asdict(analyst) for who, analyst in audience.analysts.items()}
            for name, audience in parts.ledger.audiences.items()
        },
    }


def _budget_shares(remaining: np.ndarray, full: int) -> dict[str, Any]:
    """Return how budgets are spread, as shares of a full one."""
    if not len(remaining):
        return {"untouched": 0, "spent": 0}
    shares = remaining / UNITS
    return {
        "untouched": int((remaining == full).sum()),
        "spent": int((remaining == 0).sum()),
        "mean": float(shares.mean()),
        "quartiles": np.quantile(shares, [0.25, 0.5, 0.75]).tolist(),
    }


_READ = 1 << 26
_OVERLAP = 2048
_SEARCHED = 1 << 20
_LONGEST_ROW = 1 << 12
_SHORTEST = 8
_ENDS_LIKE_AN_ID = re.compile(rb"[is][!-;=?-~]*>")


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check of the disk has found.

    Attributes
    ----------
    faults : tuple of str
        What is wrong, in words that name nobody; empty if all is well.
    checked : tuple of str
        What was looked at.
    """

    faults: tuple[str, ...]
    checked: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.faults


def verify(parts: OpenStore, erased: Sequence[SubjectId], rows: AnyArray | None) -> Verification:
    """Check the database, the files, every budget, and that nobody who left is still there."""
    works = {
        "the database's structure": parts.database.faults(),
        "all rows and the chain of commits, against their digests": chain_faults(
            parts.database, parts.folder.key()
        ),
        "the record files, against their digests": record_file_faults(
            parts.database, parts.record_files, len(parts.shard)
        ),
        "records, labels and subjects, against each other": _records(parts),
        "budgets, against all charges, in whole units": _budgets(parts.ledger),
        "answers, against the charges that paid for them": _answers(parts.ledger),
        "the witness": _witness(parts),
        "ids in the database's files, against the subjects that are here": find_id_traces(parts),
        "erased subjects": _erased(parts, erased),
    }
    if rows is not None:
        there = any_row_in(parts.record_files.features_in_parts(), rows)
        fault = "The record files hold features of an erased record, or equal ones of another."
        works["erased features"] = [fault] * there
    faults = tuple(fault for part_faults in works.values() for fault in part_faults)
    return Verification(faults, tuple(works))


def _records(parts: OpenStore) -> Iterator[str]:
    size = len(parts.shard)
    slots, rows = parts.record_files.column("slots", size), parts.record_files.labels.rows(size)
    enrolled = parts.ledger.slot_table.taken
    if len(np.unique(enrolled)) != len(enrolled):
        yield "Two subjects share a budget."
    if not np.array_equal(np.unique(slots), np.sort(enrolled)):
        yield "A record has no subject, or a subject no record."
    if not slots_match_enrolment(parts.database, parts.record_files, size):
        yield OTHER_RECORDS
    target = parts.schema.target
    if fault := target.fault(rows):
        yield fault
    people = parts.shard.subject_table
    if not np.array_equal(people.slots, slots) or not np.array_equal(
        target.rows(people.targets), rows
    ):
        yield "Records in memory differ from those on disk."


def _budgets(ledger: Ledger) -> Iterator[str]:
    stored = load_audiences(ledger.database, ledger.size)
    free = ledger.slot_table.unused()
    for live in ledger.accounts:
        name, audience = live.name, stored[live.name]
        units = audience.account.durable
        if not np.array_equal(units, live.account.remaining):
            yield f"Budgets of audience {name!r} in memory differ from those on disk."
        yield from budget_faults(ledger.database, audience, free)
    if ledger.total is not None:
        yield from ledger.total.faults(stored)


def _answers(ledger: Ledger) -> Iterator[str]:
    for audience in load_audiences(ledger.database, ledger.size).values():
        rows = ledger.database.read(
            "SELECT LENGTH(digests) FROM answers WHERE audience = ?", (audience.number,)
        )
        released = sum(length for (length,) in rows) // DIGEST
        _, charged = charges_since_checkpoint(ledger.database, audience.number)
        if not released == charged + audience.checkpointed_queries == audience.used:
            yield f"Answers to audience {audience.name!r} and charged queries differ in number."


def _witness(parts: OpenStore) -> Iterator[str]:
    state = parts.witness.state
    if state.clock != parts.ledger.clock or not is_descendant(
        parts.database, state.clock, state.head
    ):
        yield "The witness and the store are at different commits."


def find_id_traces(parts: OpenStore) -> Iterator[str]:
    """Yield a fault for every file of the database that holds an id of somebody not enrolled.

    Whatever the page: ids are stored framed, and every frame in the file is looked at. Most stand
    in rows of subjects as they are now; the others are looked up one by one.
    """
    if not parts.database.files:
        return
    scanned = parts.database.scan("subject_pages")
    rows = {first_framed_id(row[3]): _marks(row[3]) for rows in scanned for row in rows}
    for path in parts.database.files:
        if not all(parts.ledger.slot_table.holds(ids) for ids in _other_ids(path, rows)):
            yield f"The file {path.name} holds an id of somebody who is not here any more."


Marks = tuple[int, bytes]
"""Length and digest."""


def _marks(ids: bytes) -> Marks:
    return len(ids), hashlib.sha256(ids).digest()


def _other_ids(path: Path, rows: Mapping[bytes | None, Marks]) -> Iterator[list[bytes]]:
    """Yield the framed ids in a file that stand in none of the rows of ids, some at a time.

    `rows` are length and digest of all rows, by the first id.
    """
    with path.open("rb") as file:
        content, more = b"", True
        while more:
            chunk = file.read(_SEARCHED)
            content, more = content + chunk, bool(chunk)
            others, at = set(), content.find(OPENING)
            while 0 <= at < len(content) - _LONGEST_ROW * more:
                one = first_framed_id(content, at)
                length, digest = rows.get(one, (0, b""))
                if length and _marks(content[at : at + length]) == (length, digest):
                    at += length
                else:
                    others |= {one} - {None}
                    at += len(one or OPENING)
                at = content.find(OPENING, at)
            content = content[at if at >= 0 else -len(OPENING) :]
            yield [one for one in others if one is not None]


def _erased(parts: OpenStore, erased: Sequence[SubjectId]) -> Iterator[str]:
    for number, slot in enumerate(parts.ledger.slot_table.find(erased).tolist()):
        if slot != NOBODY:
            yield f"Erased id number {number + 1} is enrolled."
    remains = {remain for subject in erased for remain in _remains(subject)}
    inside = [path for path in parts.folder.path.rglob("*") if path.is_file()]
    for path in [*inside, parts.folder.witness] if remains else ():
        if any(_holds(content, remains) for content in _contents(path)):
            yield f"The file {path.name} holds an erased id."


def _remains(subject: SubjectId) -> list[bytes]:
    """Return what to look for: a framed id, and what is left of one whose start is overwritten.

    Where a database frees a cell it may write over its first four bytes. What would be too short
    to tell from chance is not looked for.
    """
    frame = frame_id(subject)
    return [frame[1:], frame[4:]] if len(frame) - 4 >= _SHORTEST else [frame[1:]]


def _holds(content: bytes, remains: set[bytes]) -> bool:
    return any(
        match[0][start:] in remains
        for match in _ENDS_LIKE_AN_ID.finditer(content)
        for start, code in enumerate(match[0])
        if code in b"is"
    )


def any_row_in(parts: Iterable[AnyArray], rows: AnyArray) -> bool:
    """Tell whether rows, other than zeros, are among those of any part, whoever's they are."""
    wanted = {row.tobytes() for row in np.ascontiguousarray(rows) if row.any()}
    return any(row.tobytes() in wanted for part in parts for row in part)


def _contents(path: Path) -> Iterator[bytes]:
    """Yield a file in overlapping parts, so that nothing that is looked for is cut in two."""
    with path.open("rb") as file:
        before = b""
        while chunk := file.read(_READ):
            yield before + chunk
            before = (before + chunk)[-_OVERLAP:]
