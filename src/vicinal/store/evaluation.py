"""How good the answers of a store were, on labelled rows of people, for a share of their budgets.

Rows count where the same features were asked before: the released answer, which is public, is
compared with the private label, and noisy counts leave. Private rows are never put to the
neighbours; src/vicinal/mechanisms/tally.md has the proof, and the reason.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting.budget import UNITS
from vicinal.arrays import AnyArray, Bools, Floats, Ints, Places, Steps
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput, PrivacyRefused
from vicinal.ledger.answers import DIGEST, digests_of
from vicinal.ledger.audiences import Audience
from vicinal.ledger.hashed_slots import NOBODY
from vicinal.ledger.id_encoding import framed_all
from vicinal.ledger.ledger import Ledger
from vicinal.ledger.sealed_files import parse_json
from vicinal.mechanisms.noise_sources import public_draws
from vicinal.mechanisms.tally import NoisyTally, TallyPlan
from vicinal.predictors.inputs import check_subjects_given, checked_subjects
from vicinal.store.audience_state import AudienceState
from vicinal.store.opening import OpenStore
from vicinal.store.records import came_with_ids
from vicinal.store.request_batch import stored_answers
from vicinal.store.store_schema import StoreSchema
from vicinal.targets.label_sets import label_sets
from vicinal.targets.numbers import LOG, Numbers, scale_numbers
from vicinal.targets.target import NUMBERS

_DRAWS = 400
_ENDS = (1 - 0.95) / 2, (1 + 0.95) / 2
"""Levels of the ends of a 95 % interval."""
_ENOUGH = 3.0
"""Standard deviations of the noise on the number of people that there must be to say anything."""

_USELESS = 0.4
"""A 95 % interval that is wider than this share of a figure's range says nothing."""


class NoisyFigures(ABC):
    """Noisy counts of people, and what follows from them; all of it may be published.

    `noise`: standard deviation of the noise in each count, in people. `share`: what a person
    evaluated has paid at most, of a full budget.
    """

    noise: float
    share: float

    @property
    @abstractmethod
    def counts(self) -> Sequence[Floats]:
        """All tables."""

    @property
    @abstractmethod
    def people_and_error(self) -> tuple[float, float]:
        """Noisy number of people with rows that were asked before, and its standard error."""

    @abstractmethod
    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return figures by name; NaN for what cannot be told."""

    @property
    def people(self) -> float:
        return max(0.0, self.people_and_error[0])

    @cached_property
    def figures(self) -> dict[str, tuple[float, float, float]]:
        """Figures by name, each with its 95 % interval.

        Intervals cover the noise, and the choice of people; NaN where counts are too few for the
        noise on them.
        """
        generator = public_draws(0)
        draws = [
            self.figures_of([
                generator.poisson(np.maximum(t, 0)) + generator.normal(0, self.noise, t.shape)
                for t in self.counts
            ])
            for _ in range(_DRAWS)
        ]  # fmt: skip
        figures, (people, error) = {}, self.people_and_error
        for name, value in self.figures_of(self.counts).items():
            enough = people > _ENOUGH * error and not np.isnan(value)
            spread = np.array([draw[name] for draw in draws])
            low, high = np.nanquantile(spread, _ENDS).tolist() if enough else (np.nan, np.nan)
            figures[name] = (value if enough else np.nan, low, high)
        return figures

    def is_noise(self, name: str) -> bool:
        """Tell whether a figure says nothing: unknown, or in an interval too wide to be of use."""
        value, low, high = self.figures[name]
        return bool(np.isnan(value) or high - low > _USELESS * self.range_of(name))

    def range_of(self, name: str) -> float:  # noqa: ARG002 (a subclass has others)
        """Return how far apart the values of a figure can be."""
        return 1.0

    def refuse_noise(self) -> None:
        """Raise PrivacyRefused if all of these figures, which are expected, are noise."""
        if all(map(self.is_noise, self.figures)):
            raise PrivacyRefused(
                f"All figures would be noise: each count has noise of {self.noise:.1f} subjects, "
                f"and the answers given allow for at most {self.people:.0f}. Nobody was charged. "
                "Evaluate after more answers or with a larger 'share', or set the 'accept_noise' "
                "parameter if you want the figures."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain numbers, lists and texts, fit for JSON."""
        plain = asdict(self)  # type: ignore[call-overload]
        listed = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in plain.items()}
        figures = {
            name: {
                **dict(zip(("value", "low", "high"), map(known, numbers), strict=True)),
                "noise": self.is_noise(name),
            }
            for name, numbers in self.figures.items()
        }
        return {**listed, "people": self.people, "figures": figures}


def known(number: float) -> float | None:
    """Return a number as JSON has it: None for NaN."""
    return None if np.isnan(number) else float(number)


@dataclass(frozen=True, eq=False)
class CountedRows:
    """What is counted of rows that were asked before, and at which price; private but for the plan.

    `plan`: tables, and price. `cells`, int64 (rows, tables): the cell of every row in every table.
    `subjects`: whose each row is.
    """

    plan: TallyPlan
    cells: Steps
    subjects: list[SubjectId]


Collect = Callable[[Audience, NoisyTally, CountedRows], AbstractContextManager[Steps]]
"""Charges everybody counted, and gives the private sum; at its end all is durable."""


def charge_people(
    ledger: Ledger, audience: Audience, tally: NoisyTally, counted: CountedRows
) -> Steps:
    """Charge people, enrolled in this ledger or not, inside a release; return the private sum."""
    account = audience.account
    people = list(dict.fromkeys(counted.subjects))
    place_of = {who: place for place, who in enumerate(people)}
    slots = ledger.slot_table.find(people)
    here = slots != NOBODY
    enrolled, slots = np.flatnonzero(here), slots[here]
    visitors = [who for who, is_here in zip(people, here, strict=True) if not is_here]
    remaining = np.zeros(len(people), dtype=np.int64)
    remaining[enrolled] = account.remaining[slots]
    remaining[~here] = ledger.visitor_units(audience, visitors)
    before = remaining.copy()
    owners = np.array([place_of[who] for who in counted.subjects], dtype=np.int64)
    sums = tally.collect(counted.cells, owners, remaining)
    account.remaining[slots] = remaining[enrolled]
    account.note_charged_total(int((before - remaining)[enrolled].sum()))
    ledger.keep_visitors(audience, visitors, before[~here], remaining[~here])
    return sums


LARGEST_ERROR = 0.25
"""Of the distance between the bounds: errors beyond count as this large."""

_SIDE = 8
"""Bins of errors on each side of 0, narrow near it: their squares are told with little noise."""


@dataclass(frozen=True, eq=False)
class NumberEvaluation(NoisyFigures):
    """Noisy counts of people by how far numbers were off, and what follows from them.

    Attributes
    ----------
    targets : list of str
        Names of p numbers.
    scale : {"linear", "log"}
        What errors are differences of: the numbers, or their logarithms.
    errors : float64 (p, b)
        People by answer less truth, with noise; may be below 0. Errors beyond the outer edges
        count in the outer bins.
    deviations : float64 (p, b)
        People by truth less `centre`, for the variance.
    error_edges, deviation_edges : float64 (p, b + 1)
        Edges of the bins.
    centre : float64 (p,)
        Means of the answers, which are public.
    """

    targets: list[Any]
    scale: str
    errors: Floats
    deviations: Floats
    error_edges: Floats
    deviation_edges: Floats
    centre: Floats
    noise: float
    share: float

    @property
    def counts(self) -> Sequence[Floats]:
        return [self.errors, self.deviations]

    @property
    def people_and_error(self) -> tuple[float, float]:
        tables = np.concatenate([self.errors, self.deviations])
        return float(tables.sum(axis=1).mean()), self.noise * np.sqrt(tables.shape[1] / len(tables))

    def range_of(self, name: str) -> float:
        target, _, figure = name.rpartition(" ")
        largest = self.error_edges[[str(each) for each in self.targets].index(target), -1]
        return float({"rmse": largest, "mean_error": 2 * largest, "r2": 1.0}[figure])

    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        people = max(float(np.concatenate(counts).sum(axis=1).mean()), 1e-9)
        figures = {}
        for i, target in enumerate(self.targets):
            bias, square = _moments(counts[0][i], self.error_edges[i], people)
            mean, spread = _moments(counts[1][i], self.deviation_edges[i], people)
            variance = spread - mean**2
            hidden = 3 * self.noise * _square_length(self.deviation_edges[i]) / people
            figures[f"{target} rmse"] = float(np.sqrt(square)) if square > 0 else np.nan
            figures[f"{target} mean_error"] = bias
            figures[f"{target} r2"] = (
                1 - max(square, 0.0) / variance if variance > hidden else np.nan
            )
        return figures


@dataclass(frozen=True, eq=False)
class LabelSetEvaluation(NoisyFigures):
    """Noisy counts of people by whether a label was true and whether it was given.

    Attributes
    ----------
    labels : list
        Names of c labels.
    tables : float64 (c, 2, 2)
        People by truth (rows) and answer (columns) of each label, with noise; may be below 0.
    """

    labels: list[Any]
    tables: Floats
    noise: float
    share: float

    @property
    def counts(self) -> Sequence[Floats]:
        return [self.tables]

    @property
    def people_and_error(self) -> tuple[float, float]:
        return float(self.tables.sum() / len(self.tables)), self.noise * 2 / np.sqrt(
            len(self.tables)
        )

    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        (tables,) = counts
        people = max(float(tables.sum() / len(tables)), 1e-9)
        right = np.clip((tables[:, 0, 0] + tables[:, 1, 1]) / people, 0, 1)
        figures = {"accuracy": float(right.mean())}
        for name, table, share in zip(self.labels, tables, right, strict=True):
            figures[f"{name} accuracy"] = float(share)
            sizes = table.sum(axis=1)
            enough = (sizes > 3 * np.sqrt(2) * self.noise).all()
            both = np.clip(np.diag(table) / np.where(enough, sizes, 1.0), 0, 1)
            figures[f"{name} balanced_accuracy"] = float(both.mean()) if enough else np.nan
        return figures


@dataclass(frozen=True, eq=False)
class ReleasedNumbers:
    """Predictions (a, p) that left, on the scale on which records are averaged; public."""

    target: Numbers
    targets: list[Any]
    answers: Floats
    largest: float

    @classmethod
    def of(cls, target: Numbers, answers: Floats, largest: float) -> Self:
        log = target.scale == LOG
        return cls(target, target.names, np.log(answers) if log else answers, largest)

    def checked(self, y: npt.ArrayLike | None, size: int) -> Floats:
        """Return true numbers (size, p), cut to the bounds, or raise InvalidInput. Private."""
        target, bounds = self.target, self.target.scaled_bounds
        scaled = scale_numbers(y, size, target.bounds, log=target.scale == LOG)
        return bounds.low + (scaled + 1) / 2 * (bounds.high - bounds.low)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (2 * _SIDE,) * (2 * len(self.targets))

    def cells(self, truth: AnyArray, places: Places) -> Places:
        """Return the cells of rows with true numbers (n, p), int64 (n, 2 p)."""
        error_edges, deviation_edges, centre = self._bins
        errors, deviations = self.answers[places] - truth, truth - centre
        columns = [
            np.searchsorted(edges[i, 1:-1], values[:, i], side="right")
            for values, edges in ((errors, error_edges), (deviations, deviation_edges))
            for i in range(len(self.targets))
        ]
        return np.stack(columns, axis=1).astype(np.int64)

    def evaluation(self, tables: Sequence[Floats], noise: float, share: float) -> NumberEvaluation:
        counts, p = np.stack(tables), len(self.targets)
        return NumberEvaluation(
            self.targets, self.target.scale, counts[:p], counts[p:], *self._bins, noise, share
        )

    @property
    def _bins(self) -> tuple[Floats, Floats, Floats]:
        bounds = self.target.scaled_bounds
        ranges = bounds.high - bounds.low
        sides = np.arange(-_SIDE, _SIDE + 1) / _SIDE
        unit = np.sign(sides) * sides**2
        middle = (bounds.low + bounds.high) / 2
        centre = self.answers.mean(axis=0) if len(self.answers) else middle
        errors = np.outer(self.largest * ranges, unit)
        return errors, np.minimum(2 * self.largest, 1.0) / self.largest * errors, centre


@dataclass(frozen=True, eq=False)
class ReleasedLabelSets:
    """Sets of labels, int64 (a, c), that left; public."""

    labels: list[Any]
    answers: Places

    def checked(self, y: npt.ArrayLike | None, size: int) -> Bools:
        """Return true labels, bool (size, c), or raise InvalidInput. Private."""
        return label_sets(y, size, self.labels)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (4,) * len(self.labels)

    def cells(self, truth: AnyArray, places: Places) -> Places:
        """Return the cells of rows with true labels (n, c), int64 (n, c)."""
        return 2 * truth.astype(np.int64) + self.answers[places]

    def evaluation(
        self, tables: Sequence[Floats], noise: float, share: float
    ) -> LabelSetEvaluation:
        return LabelSetEvaluation(self.labels, np.reshape(tables, (-1, 2, 2)), noise, share)


def _moments(counts: Floats, edges: Floats, people: float) -> tuple[float, float]:
    """Return mean and mean square of what was counted, as if even within a bin."""
    low, high = edges[:-1], edges[1:]
    squares = (low**2 + low * high + high**2) / 3
    return float(counts @ (low + high) / 2 / people), float(counts @ squares / people)


def _square_length(edges: Floats) -> float:
    """Return by how much unit noise on every count moves the sum of squares."""
    low, high = edges[:-1], edges[1:]
    return float(np.linalg.norm((low**2 + low * high + high**2) / 3))


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
        return [self.confusion] if self.scores is None else [self.confusion, self.scores]

    @property
    def people_and_error(self) -> tuple[float, float]:
        return float(self.confusion.sum()), self.noise * len(self.classes)

    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
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
        bins = [[known(number) for number in row] for row in self.calibration]
        return {**super().to_dict(), "calibration": bins}


def evaluate(
    parts: OpenStore, state: AudienceState, X: Any, y: npt.ArrayLike, subjects: Any, *,
    share: float, largest_error: float, accept_noise: bool, collect: Collect,
) -> NoisyFigures:  # fmt: skip
    """Compare released answers with labels, charge the people evaluated, return noisy counts.

    `X`, `y`, `subjects`: rows as the store's extractor takes them, labels, ids; private. Errors of
    numbers count up to `largest_error`, a share of the distance between the bounds. Without
    `accept_noise` it is refused where all would be noise if each answer given were right.

    `collect` charges people where their budgets are. What it charged, and what its body writes,
    becomes durable at its end, before the counts leave.

    Raises InvalidInput if rows, labels or ids are unusable, before anybody is charged.
    """
    place_of, released, tally = _prepared(parts, state, share, largest_error)
    schema = parts.schema
    vectors = schema.vectors(X)
    truth = released.checked(y, len(vectors))
    ids = _ids(parts, subjects, len(vectors))
    places = [place_of.get(digest) for digest in digests_of(schema.kernel_of(None).encode(vectors))]
    rows = [row for row, place in enumerate(places) if place is not None]
    at = np.array([place for place in places if place is not None], dtype=np.int64)
    cells = released.cells(truth[rows], at)
    if not checks.check_boolean("accept_noise", accept_noise):
        _expected(released, tally).refuse_noise()
    counted = CountedRows(tally.plan, cells, [ids[row] for row in rows])
    with collect(state.audience, tally, counted) as sums:
        figures = released.evaluation(tally.publish(sums), tally.noise, share)
        state.audience.slack = state.slack.spent
        parts.database.put(
            _name(state), json.dumps([*evaluations(parts, state), figures.to_dict()])
        )
    return figures


def _prepared(
    parts: OpenStore, state: AudienceState, share: float, largest_error: float
) -> tuple[dict[bytes, int], Released, NoisyTally]:
    """Return where each query was answered last, what left, and what counts it."""
    most = checks.check_real("largest_error", largest_error, above=0, most=1)
    place_of, where = _answered_queries(parts, state)
    released, settings = _released(parts, state, where, most), state.settings
    plan = TallyPlan(released.sizes, share, settings.spendable, settings.grid_delta)
    tally = NoisyTally(plan, state.engine.votes.noise, state.slack)
    if (renewal := state.audience.due) is not None and (most := renewal.most / UNITS) < share:
        raise InvalidInput(
            f"The 'share' parameter must be at most {math.floor(1000 * most) / 1000:g}: so much of "
            f"a full budget there is in this period. Got {share:g}."
        )
    return place_of, released, tally


def _expected(released: Released, tally: NoisyTally) -> NoisyFigures:
    """Return what an evaluation says if each answer given is right, and of one person; public."""
    cells = released.cells(released.answers, np.arange(len(released.answers))).T
    counts = zip(cells, tally.plan.sizes, strict=True)
    tables = [np.bincount(column, minlength=size).astype(np.float64) for column, size in counts]
    return released.evaluation(tables, tally.noise, tally.plan.share)


def evaluations(parts: OpenStore, state: AudienceState) -> list[dict[str, Any]]:
    """Return what was released by evaluations of an audience so far. Public."""
    stored: list[dict[str, Any]] = parse_json(parts.database.get(_name(state)) or "[]")
    return stored


def _name(state: AudienceState) -> str:
    return f"evaluations {state.audience.number}"


def _ids(parts: OpenStore, subjects: Any, size: int) -> list[SubjectId]:
    if subjects is None:
        raise InvalidInput(
            "The 'subject' parameter must say whose each row is, because subjects pay for being "
            "evaluated from the one budget that they have."
        )
    ids: list[Any] = checked_subjects(subjects, size)
    framed_all(ids)  # raises InvalidInput for one that is too long
    check_subjects_given(now=True, before=came_with_ids(parts.database))
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
) -> Released:
    """Return all answers of an audience, by what the store's records carry. Public."""
    schema = parts.schema
    if schema.target.voted:
        return ReleasedClasses.of(schema, state, where)
    answers = stored_answers(schema, state, *where).labels
    target: Any = schema.target
    if target.kind == NUMBERS:
        return ReleasedNumbers.of(target, answers, largest_error)
    return ReleasedLabelSets(target.names, answers)


@dataclass(frozen=True, eq=False)
class ReleasedClasses:
    """Classes that left; public.

    `schema`: class names. `answers`, int64 (a,): position of each answer's class. `chances`,
    float64 (a,) or None: probability of the second of two classes, or of the answer's own.
    """

    schema: StoreSchema
    answers: Places
    chances: Floats | None

    @classmethod
    def of(
        cls, schema: StoreSchema, state: AudienceState, where: tuple[Places, Places]
    ) -> ReleasedClasses:
        (labels, _, all_of), chances = state.read(*where), None
        if all_of is not None and len(all_of):
            two = len(schema.classes) == 2
            chances = all_of[:, 1] if two else all_of[np.arange(len(all_of)), labels]
        return cls(schema, labels, chances)

    def checked(self, y: npt.ArrayLike, size: int) -> Ints:
        """Return positions of true classes (size,), or raise InvalidInput. Private."""
        return np.asarray(self.schema.targets(y, size), dtype=np.int64)

    @property
    def classes(self) -> list[Any]:
        return self.schema.classes

    @cached_property
    def edges(self) -> Floats:
        assert self.chances is not None  # noqa: S101 (asked for only where there are some)
        return np.unique(np.quantile(self.chances, np.linspace(0, 1, BINS + 1)[1:-1]))

    @property
    def sizes(self) -> tuple[int, ...]:
        confusion = len(self.classes) ** 2
        return (confusion,) if self.chances is None else (confusion, 2 * (len(self.edges) + 1))

    def cells(self, truth: AnyArray, places: Places) -> Places:
        """Return the cells of rows with true classes (n,), int64 (n, tables)."""
        answers = self.answers[places]
        cells = [truth * len(self.classes) + answers]
        if self.chances is not None:
            bins = np.searchsorted(self.edges, self.chances[places], side="right")
            came_true = truth if len(self.classes) == 2 else (truth == answers).astype(np.int64)
            cells.append(came_true * (len(self.edges) + 1) + bins)
        return np.stack(cells, axis=1)

    def evaluation(self, tables: list[Floats], noise: float, share: float) -> Evaluation:
        number = len(self.classes)
        confusion = tables[0].reshape(number, number)
        if self.chances is None:
            return Evaluation(self.classes, confusion, None, None, noise, share)
        scores = tables[1].reshape(2, -1)
        bins = np.searchsorted(self.edges, self.chances, side="right")
        sums = np.bincount(bins, self.chances, scores.shape[1])
        means = sums / np.maximum(np.bincount(bins, minlength=scores.shape[1]), 1)
        return Evaluation(self.classes, confusion, scores, means, noise, share)


Released = ReleasedClasses | ReleasedNumbers | ReleasedLabelSets
"""What left, by what records carry."""


def binned_auc(others: Floats, cases: Floats) -> float:
    """Return the AUC of counts by bin of rising score, ties inside a bin counting half."""
    below = np.cumsum(others) - others / 2
    area = float((cases * below).sum()) / max(float(cases.sum() * others.sum()), 1e-9)
    return min(1.0, max(0.0, area))
