"""Kinds of PATE: GNMax and Confident-GNMax.

With a field ``votes`` (a row of counts for every query) a release is priced at its own votes. Such
a price is private. It is that of labels: noisy votes that leave cost the same whatever they are.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from vicinal import _checks
from vicinal.accounting._certificate import WorstCasePair
from vicinal.accounting._composition import Composition
from vicinal.accounting._pate import PrivateMaxima
from vicinal.accounting.kinds._base import (
    LABEL_ONLY,
    PRIVATE_COST,
    PlannedRelease,
    check_labels_only,
    check_one_row_each,
    check_release,
    check_that,
    checked,
    scale,
    threshold,
    vote_count,
    vote_table,
)
from vicinal.accounting.kinds._private_knn import PlannedNoisyMax, PlannedScreening
from vicinal.errors import InvalidInput

_VoteRows = tuple[tuple[float, ...], ...]

_TEACHERS = (
    "teachers are trained on disjoint parts of the data, by subject, and every teacher has one vote"
)
_STOPS = "no more screened queries are answered than 'answered' says, and the run stops there"
_number = check_that("a number of queries", _checks.integer, least=0)


def _query_numbers(name: str, value: object) -> tuple[int, ...]:
    """Return the numbers of the queries that passed, counted from 0."""
    if not isinstance(value, list | tuple):
        raise InvalidInput(
            f"The {name!r} parameter must be a list of the numbers of the queries that passed, "
            f"counted from 0. Got {value!r}."
        )
    rows = tuple(_checks.integer(name, row, least=0) for row in value)
    if len(set(rows)) != len(rows):
        raise InvalidInput(f"The {name!r} parameter must name every query once.")
    return rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedGNMax(PlannedRelease):
    """Votes of every class under Gaussian noise, or the label; `votes` are private."""

    kind: ClassVar[str] = "gnmax"

    sigma: float = checked(scale)
    release: str = checked(check_release, "votes")
    votes: _VoteRows | None = checked(vote_table, None)  # noqa: RUF009 (a field)

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        if self.votes is not None:
            check_labels_only(name, self.release)
            check_one_row_each(name, self.votes, count)
        return self

    def cost(self, count: int) -> Composition:
        if self.votes is None:
            return self._maximum().cost(count)
        return Composition.of(PrivateMaxima(self.sigma, self.votes))

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        return self._maximum().worst_case(count, order) if self.votes is None else None

    def assumptions(self) -> tuple[str, ...]:
        private = self.votes is not None
        return _assumptions(private=private, label_only=self.release == "label")

    def _maximum(self) -> PlannedNoisyMax:
        return PlannedNoisyMax(sigma=self.sigma, release=self.release)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedConfidentGNMax(PlannedRelease):
    """GNMax for those queries only that a screening lets pass; `votes` are private."""

    kind: ClassVar[str] = "confident_gnmax"

    teachers: int = checked(vote_count)
    threshold: float = checked(threshold)
    sigma_screen: float = checked(scale)
    sigma_votes: float = checked(scale)
    answered: int | None = checked(_number, None)
    release: str = checked(check_release, "votes")
    votes: _VoteRows | None = checked(vote_table, None)  # noqa: RUF009 (a field)
    passed: tuple[int, ...] | None = checked(_query_numbers, None)

    def complete(self, name: str, delta: float, count: int) -> Self:  # noqa: ARG002
        if self.answered is not None:
            _checks.integer(f"{name}.answered", self.answered, least=0, most=count)
        if self.votes is not None:
            self._check_votes(name, self.votes, count)
        elif self.passed is not None:
            raise InvalidInput(f"The '{name}.passed' parameter belongs to '{name}.votes'.")
        return self

    def _check_votes(self, name: str, votes: _VoteRows, count: int) -> None:
        check_labels_only(name, self.release)
        check_one_row_each(name, votes, count)
        if self.answered is not None:
            raise InvalidInput(
                f"The '{name}.answered' parameter must be left out where '{name}.votes' is given: "
                f"say which queries passed in '{name}.passed'."
            )
        if any(sum(row) != self.teachers or any(n % 1 for n in row) for row in votes):
            raise InvalidInput(
                f"The '{name}.votes' parameter must hold whole votes, '{name}.teachers' of them, "
                f"{self.teachers}, in every row."
            )
        if max(self.passed or (0,)) >= count:
            raise InvalidInput(
                f"The '{name}.passed' parameter must hold numbers of queries from 0 to {count - 1}."
            )

    def cost(self, count: int) -> Composition:
        screened = self._screening().cost(count)
        if self.votes is None:
            return screened.add(self._maximum().cost(self._answers(count)))
        rows = range(count) if self.passed is None else self.passed
        if not rows:
            return screened
        labels = tuple(self.votes[row] for row in rows)
        return screened.add(Composition.of(PrivateMaxima(self.sigma_votes, labels)))

    def worst_case(self, count: int, order: float) -> list[WorstCasePair] | None:
        first = self._screening().worst_case(count, order)
        if first is None:
            return None
        answers = self._answers(count)
        second = self._maximum().worst_case(answers, order) if answers else None
        return [*first, *(second or [])]

    def assumptions(self) -> tuple[str, ...]:
        stops = () if self.answered is None else (_STOPS,)
        private, label_only = self.votes is not None, self.release == "label"
        return _assumptions(*stops, private=private, label_only=label_only)

    def _answers(self, count: int) -> int:
        return count if self.answered is None else self.answered

    def _screening(self) -> PlannedScreening:
        votes = None if self.votes is None else tuple(int(max(row)) for row in self.votes)
        return PlannedScreening(
            k=self.teachers, threshold=self.threshold, sigma=self.sigma_screen, votes=votes
        )

    def _maximum(self) -> PlannedNoisyMax:
        return PlannedNoisyMax(sigma=self.sigma_votes, release=self.release)


def _assumptions(*particular: str, private: bool, label_only: bool) -> tuple[str, ...]:
    at_votes = (PRIVATE_COST, LABEL_ONLY) if private else ()
    label = (LABEL_ONLY,) if label_only else ()
    return tuple(dict.fromkeys((_TEACHERS, *particular, *at_votes, *label)))
