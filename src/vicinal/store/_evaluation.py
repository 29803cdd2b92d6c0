"""How good the answers of a store were, on labelled rows of people, for a share of their budgets.

Rows count where the same features were asked before: the released answer, which is public, is
compared with the private label, and noisy counts leave. Private rows are never put to the
neighbours; src/vicinal/mechanisms/tally.md has the proof, and the reason.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import _checks
from vicinal._checks import SubjectId
from vicinal.errors import InvalidInput
from vicinal.ledger._answers import DIGEST, digests_of
from vicinal.ledger._id_encoding import check_length
from vicinal.mechanisms import NoisyTally, TallyPlan, public_draws
from vicinal.mechanisms._record_vectors import RecordVectors
from vicinal.predictors._common import inputs
from vicinal.store._audience_state import AudienceState
from vicinal.store._evaluation_charges import Collect, CountedRows
from vicinal.store._naming import check_naming
from vicinal.store._opening import OpenStore

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

BINS = 10
"""Bins of probabilities, with about as many released answers in each."""

SHARE = 0.05
"""Of a full budget, that a person evaluated pays at most."""

_DRAWS = 400
_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Noisy counts of people, and what follows from them; all of it may be published.

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
    noise : float
        Standard deviation of the noise in each count, in people.
    share : float
        What a person evaluated has paid at most, of a full budget.

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
    def people(self) -> float:
        """Return the noisy number of people with rows that were asked before."""
        return max(0.0, float(self.confusion.sum()))

    @cached_property
    def figures(self) -> dict[str, tuple[float, float, float]]:
        """Accuracy, balanced accuracy and, for two classes, AUC: each with its 95 % interval.

        Intervals cover the noise, and the choice of people; NaN where counts are too few for the
        noise on them.
        """
        generator = public_draws(0)
        draws = [self._drawn(generator) for _ in range(_DRAWS)]
        found = {}
        for name, value in _figures(self.confusion, self.scores).items():
            spread = np.array([_figures(*draw)[name] for draw in draws])
            low, high = _interval(spread) if self._enough else (np.nan, np.nan)
            found[name] = (value if self._enough else np.nan, low, high)
        return found

    @property
    def calibration(self) -> list[tuple[float, float, float]]:
        """Return, for each bin, mean probability, share that came true, and noisy people."""
        if self.scores is None or self.means is None:
            return []
        sizes = self.scores.sum(axis=0)
        known = sizes > 2 * self.noise
        shares = np.clip(self.scores[1] / np.where(known, sizes, np.inf), 0, 1)
        return [
            (float(mean), float(share) if there else np.nan, float(size))
            for mean, share, size, there in zip(self.means, shares, sizes, known, strict=True)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it; null for what the noise hides."""
        plain = {name: value for name, value in asdict(self).items() if name != "figures"}
        listed = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in plain.items()}
        figures = {
            name: dict(zip(("value", "low", "high"), map(_known, numbers), strict=True))
            for name, numbers in self.figures.items()
        }
        bins = [[_known(number) for number in row] for row in self.calibration]
        return {**listed, "people": self.people, "figures": figures, "calibration": bins}

    @property
    def _enough(self) -> bool:
        return self.people > 3 * self.noise * len(self.classes)

    def _drawn(self, generator: Any) -> tuple[Floats, Floats | None]:
        tables = (self.confusion, self.scores)
        return tuple(  # type: ignore[return-value]
            None
            if table is None
            else generator.poisson(np.maximum(table, 0))
            + generator.normal(0, self.noise, table.shape)
            for table in tables
        )


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows whose answers are evaluated: what a store's extractor takes, labels, ids; private."""

    X: Any
    y: npt.ArrayLike
    subjects: Any


def evaluate(
    parts: OpenStore, state: AudienceState, given: LabelledRows, share: float, collect: Collect
) -> Evaluation:
    """Compare released answers with labels, charge the people evaluated, return noisy counts.

    `collect` charges people where their budgets are. What it charged, and what its body writes,
    becomes durable at its end, before the counts leave.

    Raises
    ------
    InvalidInput
        If rows, labels or ids are unusable, before anybody is charged.
    """
    share = _checks.real("share", share, above=0, most=1)
    schema, settings = parts.schema, state.settings
    vectors = schema.vectors(given.X)
    labels = schema.targets(given.y, len(vectors))
    if isinstance(labels, RecordVectors):
        raise InvalidInput("Only answers of a store of classes can be evaluated.")
    ids = _ids(parts, given.subjects, len(vectors))
    released = _Released.of(parts, state)
    rows, cells = released.cells(schema.kernel_of(None).encode(vectors), labels)
    plan = TallyPlan(released.sizes, share, settings.spendable, settings.grid_delta)
    tally = NoisyTally(plan, state.engine.votes.noise, state.slack)
    counted = CountedRows(plan, cells, [ids[row] for row in rows])
    with collect(state.audience, tally, counted) as sums:
        found = released.evaluation(tally.publish(sums), tally.noise, share)
        state.audience.slack = state.slack.spent
        parts.database.put(_name(state), json.dumps([*evaluations(parts, state), found.to_dict()]))
    return found


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
    ids: list[Any] = inputs.subjects(subjects, size)
    check_length(ids)
    check_naming(parts.database, given=True)
    return ids


@dataclass(frozen=True, eq=False)
class _Released:
    """All answers of an audience, by query; public.

    Attributes
    ----------
    classes : list
        Class names.
    place_of : dict
        Place of the newest answer to each query, by digest.
    labels : int64 (a,)
        Position of each answer's class.
    chances : float64 (a,) or None
        Probability of the second of two classes, or of the answer's own.
    """

    classes: list[Any]
    place_of: dict[bytes, int]
    labels: Places
    chances: Floats | None

    @classmethod
    def of(cls, parts: OpenStore, state: AudienceState) -> _Released:
        """Read them."""
        rows = parts.database.execute(
            "SELECT seq, digests FROM answers WHERE audience = ? ORDER BY seq",
            (state.audience.number,),
        )
        keys, where = [], []
        for seq, digests in rows:
            for place in range(len(digests) // DIGEST):
                keys.append(bytes(digests[place * DIGEST : (place + 1) * DIGEST]))
                where.append((seq, place))
        seqs, places = np.array(where, dtype=np.int64).reshape(-1, 2).T
        found, classes = state.read(seqs, places), parts.schema.classes
        labels, all_of, chances = found.labels, found.probabilities, None
        if all_of is not None and len(all_of):
            chances = all_of[:, 1] if len(classes) == 2 else all_of[np.arange(len(all_of)), labels]
        return cls(classes, {key: place for place, key in enumerate(keys)}, labels, chances)

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

    def cells(
        self, integers: npt.NDArray[Any], labels: npt.NDArray[np.int32]
    ) -> tuple[Places, Places]:
        """Return rows whose features were asked before, and their cells (rows, tables)."""
        found = [self.place_of.get(digest) for digest in digests_of(integers)]
        rows = np.array([r for r, place in enumerate(found) if place is not None], dtype=np.int64)
        places = np.array([place for place in found if place is not None], dtype=np.int64)
        true, answers = labels[rows].astype(np.int64), self.labels[places]
        cells = [true * len(self.classes) + answers]
        if self.chances is not None:
            bins = np.searchsorted(self.edges, self.chances[places], side="right")
            came_true = true if len(self.classes) == 2 else (true == answers).astype(np.int64)
            cells.append(came_true * (len(self.edges) + 1) + bins)
        return rows, np.stack(cells, axis=1)

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


def _figures(confusion: Floats, scores: Floats | None) -> dict[str, float]:
    totals = np.maximum(confusion.sum(axis=1), 1e-9)
    right = np.clip(np.diag(confusion) / totals, 0, 1)
    found = {
        "accuracy": float(np.clip(np.trace(confusion) / max(confusion.sum(), 1e-9), 0, 1)),
        "balanced_accuracy": float(right.mean()),
    }
    if scores is not None and len(confusion) == 2:
        found["auc"] = binned_auc(scores[0], scores[1])
    return found


def binned_auc(others: Floats, cases: Floats) -> float:
    """Return the AUC of counts by bin of rising score, ties inside a bin counting half."""
    below = np.cumsum(others) - others / 2
    area = float((cases * below).sum()) / max(float(cases.sum() * others.sum()), 1e-9)
    return min(1.0, max(0.0, area))


def _interval(draws: Floats) -> tuple[float, float]:
    low, high = np.quantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def _known(number: float) -> float | None:
    return None if np.isnan(number) else float(number)
