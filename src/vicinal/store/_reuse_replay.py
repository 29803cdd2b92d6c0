"""What earlier answers have taught an audience's memory: learnt again from the journal.

Memory and pace see queries, released answers and public facts only. The journal holds all of these,
in order, so going through it once more gives the same memory, hence the same decisions, as if the
process had never ended. Each audience has a journal of its own: what it reuses are its own answers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from vicinal._arrays import AnyArray, Floats, Places
from vicinal.engine import QueryAnswers, QueryEngine, observe
from vicinal.ledger import Audience, Database, ReuseEntry, bytes_of
from vicinal.store._store_schema import StoreSchema


@dataclass(frozen=True, eq=False)
class ReuseReplay:
    """An audience's journal, and the engine as it was before its first lesson.

    That engine never answers. `n_classes`: votes of an answer; None where labels leave.
    """

    database: Database
    audience: Audience
    schema: StoreSchema
    initial_engine: QueryEngine
    n_classes: int | None

    def engine_with_reuse(self) -> QueryEngine:
        """Return an engine that knows what was released, and nothing else."""
        reuse, schedule = copy.deepcopy((self.initial_engine.reuse, self.initial_engine.schedule))
        for reuse_entry, labels in self._journal():
            for start in range(0, len(labels), reuse.block):
                part = slice(start, start + reuse.block)
                queries, queried = reuse_entry.queries[part], reuse_entry.asked[part]
                # Asked again only because it counts what it is asked; what was decided, counts.
                reuse.reusable(queries)
                observe(reuse, schedule, queries, queried, labels[part])
        return replace(self.initial_engine, reuse=reuse, schedule=schedule)

    def _journal(self) -> Iterator[tuple[ReuseEntry, Places]]:
        rows = self.database.read(
            "SELECT lessons.asked, lessons.queries, answers.answers FROM lessons JOIN answers "
            "ON answers.seq = lessons.seq WHERE lessons.audience = ? ORDER BY lessons.seq",
            (self.audience.number,),
        )
        dtype = np.dtype(self.schema.precision.dtype).newbyteorder("<")
        for queried, queries, answers in rows:
            numbers = np.frombuffer(bytes_of(queries), dtype).reshape(-1, self.schema.n_features)
            reuse_entry = ReuseEntry(
                numbers.astype(self.schema.precision.dtype),
                np.frombuffer(bytes_of(queried), dtype=np.bool_),
            )
            yield reuse_entry, self._labels(answers)

    def _labels(self, answers: bytes) -> Places:
        if self.n_classes is None:
            return np.frombuffer(answers, dtype="<i8").astype(np.int64)
        votes = np.frombuffer(answers, dtype="<f8").reshape(-1, self.n_classes)
        return np.asarray(votes.argmax(axis=1))


def released(answers: QueryAnswers) -> AnyArray:
    """Return answers as they are stored: labels, or votes whose best class is the label.

    Votes that nobody was asked for are -inf, and 0 at the memory's label. Those that a private
    model has put in their place stay, and its probabilities follow them.
    """
    if answers.votes is None:
        return answers.labels
    if answers.probabilities is not None:
        return np.hstack([answers.votes, answers.probabilities])
    votes = answers.votes.copy()
    free = np.flatnonzero(np.isnan(votes).any(axis=1))
    votes[free] = -np.inf
    votes[free, answers.labels[free]] = 0.0
    return votes


def mask_unasked(votes: Floats) -> Floats:
    """Return stored votes as they leave: NaN where nobody was asked."""
    queried = np.isfinite(votes).all(axis=1, keepdims=True)
    return np.where(queried, votes, np.nan)
