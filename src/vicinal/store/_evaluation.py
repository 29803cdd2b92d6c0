"""How good the answers of a store were, on labelled rows of people, for a share of their budgets.

Rows count where the same features were asked before: the released answer, which is public, is
compared with the private label, and noisy counts leave. Private rows are never put to the
neighbours; src/vicinal/mechanisms/tally.md has the proof, and the reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._arrays import AnyArray, Floats, Ints, Places
from vicinal._checks import SubjectId
from vicinal.errors import InvalidInput
from vicinal.ledger import DIGEST, digests_of, framed_all
from vicinal.mechanisms import NoisyTally, TallyPlan
from vicinal.predictors import checked_subjects
from vicinal.store._audience_state import AudienceState
from vicinal.store._evaluation_charges import Collect, CountedRows
from vicinal.store._noisy_figures import NoisyFigures, known
from vicinal.store._opening import OpenStore
from vicinal.store._records import check_naming
from vicinal.store._replies import stored_answers
from vicinal.store._store_schema import StoreSchema
from vicinal.store._vector_evaluation import RELEASED, ReleasedLabelSets, ReleasedNumbers

BINS = 10
"""Bins of probabilities, with about as many released answers in each."""

SHARE = 0.05
"""Of a full budget, that a person evaluated pays at most."""


@dataclass(frozen=True, eq=False)
class Evaluation(NoisyFigures):
    """Noisy counts of people by class and answer, and what follows from them.

    Attributes
    ----------
    classes : list
        Class names.
    confusion : float64 (c, c)
        People by true class (rows) and answer (columns), with noise; may be below 0.
    scores : float64 (2, b) or None
        People by bin of probability, with noise. For two classes by true class and the
        probability of the second; for more by whether the answer is wrong or right, and its
        probability. None where labels alone leave.
    means : float64 (b,) or None
        Mean probability of the released answers in each bin.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.store import Evaluation
    >>> confusion = np.array([[803.2, 95.1], [51.9, 149.8]])
    >>> result = Evaluation(["no", "yes"], confusion, None, None, noise=4.0, share=0.1)
    >>> result.people
    1100.0
    """

    classes: list[Any]
    confusion: Floats
    scores: Floats | None
    means: Floats | None
    noise: float
    share: float

    @property
    def counts(self) -> Sequence[Floats]:
        """Both tables, or the one there is."""
        return [self.confusion] if self.scores is None else [self.confusion, self.scores]

    @property
    def people_and_error(self) -> tuple[float, float]:
        """The sum of the confusion table."""
        return float(self.confusion.sum()), self.noise * len(self.classes)

    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return accuracy, balanced accuracy and, for two classes, AUC."""
        confusion = counts[0]
        totals = np.maximum(confusion.sum(axis=1), 1e-9)
        right = np.clip(np.diag(confusion) / totals, 0, 1)
        figures = {
            "accuracy": float(np.clip(np.trace(confusion) / max(confusion.sum(), 1e-9), 0, 1)),
            "balanced_accuracy": float(right.mean()),
        }
        if len(counts) > 1 and len(confusion) == 2:
            figures["auc"] = binned_auc(*counts[1])
        return figures

    @property
    def calibration(self) -> list[tuple[float, float, float]]:
        """Return, for each bin, mean probability, share that came true, and noisy people."""
        if self.scores is None or self.means is None:
            return []
        sizes = self.scores.sum(axis=0)
        large_enough = sizes > 2 * self.noise
        shares = np.clip(self.scores[1] / np.where(large_enough, sizes, np.inf), 0, 1)
        return [
            (float(mean), float(share) if there else np.nan, float(size))
            for mean, share, size, there in zip(
                self.means, shares, sizes, large_enough, strict=True
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it; null for what the noise hides."""
        bins = [[known(number) for number in row] for row in self.calibration]
        return {**super().to_dict(), "calibration": bins}


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows whose answers are evaluated: what a store's extractor takes, labels, ids; private.

    Errors of numbers count up to `largest_error`, a share of the distance between the bounds.
    """

    X: Any
    y: npt.ArrayLike
    subjects: Any
    largest_error: float


def evaluate(
    parts: OpenStore, state: AudienceState, labelled: LabelledRows, share: float, collect: Collect
) -> NoisyFigures:
    """Compare released answers with labels, charge the people evaluated, return noisy counts.

    `collect` charges people where their budgets are. What it charged, and what its body writes,
    becomes durable at its end, before the counts leave.

    Raises InvalidInput if rows, labels or ids are unusable, before anybody is charged.
    """
    share = _checks.real("share", share, above=0, most=1)
    schema, settings = parts.schema, state.settings
    vectors = schema.vectors(labelled.X)
    most = _checks.real("largest_error", labelled.largest_error, above=0, most=1)
    place_of, where = _answered_queries(parts, state)
    released = _released(parts, state, where, most)
    truth = released.checked(labelled.y, len(vectors))
    ids = _ids(parts, labelled.subjects, len(vectors))
    places = [place_of.get(digest) for digest in digests_of(schema.kernel_of(None).encode(vectors))]
    rows = [row for row, place in enumerate(places) if place is not None]
    at = np.array([place for place in places if place is not None], dtype=np.int64)
    cells = released.cells(truth[rows], at)
    plan = TallyPlan(released.sizes, share, settings.spendable, settings.grid_delta)
    tally = NoisyTally(plan, state.engine.votes.noise, state.slack)
    counted = CountedRows(plan, cells, [ids[row] for row in rows])
    with collect(state.audience, tally, counted) as sums:
        figures = released.evaluation(tally.publish(sums), tally.noise, share)
        state.audience.slack = state.slack.spent
        parts.database.put(
            _name(state), json.dumps([*evaluations(parts, state), figures.to_dict()])
        )
    return figures


def evaluations(parts: OpenStore, state: AudienceState) -> list[dict[str, Any]]:
    """Return what was released by evaluations of an audience so far. Public."""
    stored: list[dict[str, Any]] = json.loads(parts.database.get(_name(state)) or "[]")
    return stored


def _name(state: AudienceState) -> str:
    return f"evaluations {state.audience.number}"


def _ids(parts: OpenStore, subjects: Any, size: int) -> list[SubjectId]:
    if subjects is None:
        raise InvalidInput(
            "The 'subject' parameter must say whose each row is: people pay for being evaluated, "
            "and pay from one budget wherever they appear."
        )
    ids: list[Any] = checked_subjects(subjects, size)
    framed_all(ids)  # raises InvalidInput for one that is too long
    check_naming(parts.database, by_holder=True)
    return ids


def _answered_queries(
    parts: OpenStore, state: AudienceState
) -> tuple[dict[bytes, int], tuple[Places, Places]]:
    """Return the place of the newest answer to each query, by digest, and where answers stand."""
    rows = parts.database.read(
        "SELECT seq, digests FROM answers WHERE audience = ? ORDER BY seq", (state.audience.number,)
    )
    keys, where = [], []
    for seq, digests in rows:
        for place in range(len(digests) // DIGEST):
            keys.append(bytes(digests[place * DIGEST : (place + 1) * DIGEST]))
            where.append((seq, place))
    seqs, places = np.array(where, dtype=np.int64).reshape(-1, 2).T
    return {key: place for place, key in enumerate(keys)}, (seqs, places)


def _released(
    parts: OpenStore, state: AudienceState, where: tuple[Places, Places], largest_error: float
) -> ReleasedClasses | ReleasedNumbers | ReleasedLabelSets:
    """Return all answers of an audience, by what the store's records carry. Public."""
    schema = parts.schema
    if schema.target.voted:
        return ReleasedClasses.of(schema, state, where)
    answers = stored_answers(schema, state, *where).fields["labels"]
    assert answers is not None  # noqa: S101 (every reply has them)
    return RELEASED[schema.target.kind](schema.target, answers, largest_error)


@dataclass(frozen=True, eq=False)
class ReleasedClasses:
    """Classes that left; public.

    `schema`: class names. `labels`, int64 (a,): position of each answer's class. `chances`, float64
    (a,) or None: probability of the second of two classes, or of the answer's own.
    """

    schema: StoreSchema
    labels: Places
    chances: Floats | None

    @classmethod
    def of(
        cls, schema: StoreSchema, state: AudienceState, where: tuple[Places, Places]
    ) -> ReleasedClasses:
        """Read them."""
        answers = state.read(*where)
        labels, all_of, chances = answers.labels, answers.probabilities, None
        if all_of is not None and len(all_of):
            two = len(schema.classes) == 2
            chances = all_of[:, 1] if two else all_of[np.arange(len(all_of)), labels]
        return cls(schema, labels, chances)

    def checked(self, y: npt.ArrayLike, size: int) -> Ints:
        """Return positions of true classes (size,), or raise InvalidInput. Private."""
        return np.asarray(self.schema.targets(y, size), dtype=np.int64)

    @property
    def classes(self) -> list[Any]:
        """Class names."""
        return self.schema.classes

    @cached_property
    def edges(self) -> Floats:
        """Inner edges of the bins, from the released answers."""
        assert self.chances is not None  # noqa: S101 (asked for only where there are some)
        return np.unique(np.quantile(self.chances, np.linspace(0, 1, BINS + 1)[1:-1]))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Cells of the tables."""
        confusion = len(self.classes) ** 2
        return (confusion,) if self.chances is None else (confusion, 2 * (len(self.edges) + 1))

    def cells(self, truth: AnyArray, places: Places) -> Places:
        """Return the cells of rows with true classes (n,), int64 (n, tables)."""
        answers = self.labels[places]
        cells = [truth * len(self.classes) + answers]
        if self.chances is not None:
            bins = np.searchsorted(self.edges, self.chances[places], side="right")
            came_true = truth if len(self.classes) == 2 else (truth == answers).astype(np.int64)
            cells.append(came_true * (len(self.edges) + 1) + bins)
        return np.stack(cells, axis=1)

    def evaluation(self, tables: list[Floats], noise: float, share: float) -> Evaluation:
        """Return noisy tables by what they count."""
        number = len(self.classes)
        confusion = tables[0].reshape(number, number)
        if self.chances is None:
            return Evaluation(self.classes, confusion, None, None, noise, share)
        scores = tables[1].reshape(2, -1)
        bins = np.searchsorted(self.edges, self.chances, side="right")
        sums = np.bincount(bins, self.chances, scores.shape[1])
        means = sums / np.maximum(np.bincount(bins, minlength=scores.shape[1]), 1)
        return Evaluation(self.classes, confusion, scores, means, noise, share)


def binned_auc(others: Floats, cases: Floats) -> float:
    """Return the AUC of counts by bin of rising score, ties inside a bin counting half."""
    below = np.cumsum(others) - others / 2
    area = float((cases * below).sum()) / max(float(cases.sum() * others.sum()), 1e-9)
    return min(1.0, max(0.0, area))
