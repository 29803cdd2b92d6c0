"""Private evaluation of a store's answers on labelled rows, paid from the subjects' budgets.

A labelled row counts if its features equal an earlier query: the answer released to that query,
which is public, is compared with the private label, and noisy histograms are released. Private rows
are never used as queries; src/vicinal/mechanisms/tally.md has the proof, and the reason.

Each kind of target has two classes. ``Released...`` has the answers: it encodes the truth, finds
the cells of labelled rows in its tables, and builds the evaluation from the noisy tables.
``...Evaluation`` has these and their metrics. :class:`ReleasedClasses` builds an
:class:`Evaluation`, :class:`ReleasedNumbers` a :class:`NumberEvaluation` and
:class:`ReleasedLabelSets` a :class:`LabelSetEvaluation`.

Everywhere in this module:

- `largest_error`: largest counted error of numbers, as a share of the distance between the bounds;
  larger errors count as this large.
- `noise`: standard deviation of the noise in each count of subjects.
- `share`: largest share of its full budget that the evaluation charges a subject.
- `block_numbers`, `offsets`, int64 (a,): location of each of `a` released answers: the number of
  its block, and its row in the block.
- `answer_indices`, int64 (n,): index, among the released answers, of the answer to the query that
  equals each of n labelled rows.
- `y`, `size`: private targets of labelled rows, and the number n of these rows.
- `truth`: the same targets, encoded by `encode_truth`; private.
- `tables`: noisy counts of subjects in cells; each subject is counted once in each table.
- `state`: that of the audience with the evaluated answers.
- `coverage`: requested calibration of sets and intervals, "overall" or "per-class", or None.
- `n_earlier`: number of earlier calibrations of the audience.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal import checks
from vicinal.accounting.budget import UNITS
from vicinal.arrays import AnyArray, Bools, Floats, Indices, Ints, Steps
from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput, NoCoverage, PrivacyRefused
from vicinal.ledger.answers import DIGEST_BYTES, digest_queries
from vicinal.ledger.audiences import Audience
from vicinal.ledger.hashed_slots import NOT_ENROLLED
from vicinal.ledger.id_encoding import frame_ids
from vicinal.ledger.ledger import Ledger
from vicinal.mechanisms.noise_sources import public_draws
from vicinal.mechanisms.tally import NoisyTally, TallyPlan
from vicinal.predictors.inputs import check_subjects_given, read_subject_list
from vicinal.store.audience_state import AudienceState
from vicinal.store.coverage import (
    OVERALL,
    PER_CLASS,
    Calibration,
    ScoreHistogram,
    choose_class_thresholds,
    compute_class_scores,
    compute_max_error,
    find_drifted_levels,
    list_calibrations,
    read_evaluations,
)
from vicinal.store.opening import OpenStore
from vicinal.store.records import has_subject_ids
from vicinal.store.request_batch import read_stored_answers, refuse_uncovered_target
from vicinal.targets.classes import Classes
from vicinal.targets.label_sets import read_label_matrix
from vicinal.targets.numbers import LOG, Numbers, compute_relative_numbers

_N_SIMULATIONS = 400  # number of simulated sets of tables from which each interval is computed

_INTERVAL_LEVELS = (1 - 0.95) / 2, (1 + 0.95) / 2
"""Quantile levels of the two ends of a 95 % interval."""

_MIN_SIGNAL_TO_NOISE = 3.0
"""Metrics are NaN unless the noisy number of subjects is above this many of its noise standard
deviations: with fewer, the number may be noise alone."""

_MAX_INTERVAL_SHARE = 0.4
"""A metric counts as noise if its 95 % interval is wider than this share of the metric's range."""


class NoisyEvaluation(ABC):
    """Noisy tables of counts of subjects, and the metrics computed from them, which are public.

    Metrics such as the accuracy, with their intervals, are called `figures` in JSON and in the API.
    """

    noise: float
    share: float
    coverage: Calibration | None = None
    """Noisy histograms of conformity scores, if they were requested."""

    @property
    @abstractmethod
    def counts(self) -> Sequence[Floats]:
        """The noisy tables, each an array of any shape."""

    @property
    @abstractmethod
    def subject_count_and_std(self) -> tuple[float, float]:
        """Noisy number of subjects with queried rows, and its noise standard deviation."""

    @abstractmethod
    def compute_metrics(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return the metrics of tables, by name; NaN for undefined ones.

        `counts`: tables of the same number and shapes as :attr:`counts`, noisy or simulated.
        """

    @property
    def people(self) -> float:
        """Noisy number of subjects with queried rows, at least 0."""
        return max(0.0, self.subject_count_and_std[0])

    @cached_property
    def figures(self) -> dict[str, tuple[float, float, float]]:
        """Value, and lower and upper end of the 95 % interval, of each metric, by name.

        Intervals cover the noise and the sampling of subjects (a parametric bootstrap). All three
        numbers are NaN where counts are too small for the noise on them.
        """
        generator = public_draws(0)
        simulations = []
        for _ in range(_N_SIMULATIONS):
            tables = [
                generator.poisson(np.maximum(table, 0))
                + generator.normal(0, self.noise, table.shape)
                for table in self.counts
            ]
            simulations.append(self.compute_metrics(tables))
        n_subjects, std = self.subject_count_and_std
        figures = {}
        for name, value in self.compute_metrics(self.counts).items():
            if n_subjects > _MIN_SIGNAL_TO_NOISE * std and not np.isnan(value):
                simulated = np.array([simulation[name] for simulation in simulations])
                low, high = np.nanquantile(simulated, _INTERVAL_LEVELS).tolist()
                figures[name] = (value, low, high)
            else:
                figures[name] = (np.nan, np.nan, np.nan)
        return figures

    def is_uninformative(self, name: str) -> bool:
        """Return whether the metric `name` is NaN, or its interval is too wide to be of use."""
        value, low, high = self.figures[name]
        max_width = _MAX_INTERVAL_SHARE * self.get_metric_range(name)
        return bool(np.isnan(value) or high - low > max_width)

    def get_metric_range(self, name: str) -> float:  # noqa: ARG002 (a subclass uses the name)
        """Return the largest less the smallest possible value of the metric `name`."""
        return 1.0

    def refuse_uninformative(self) -> None:
        """Raise PrivacyRefused if noise dominates every metric.

        The counts of this object must be expected counts, not noisy ones.
        """
        if all(map(self.is_uninformative, self.figures)):
            raise PrivacyRefused(
                f"All figures would be noise: each count has noise of {self.noise:.1f} subjects, "
                f"and {self.people:.0f} are expected. Nobody was charged. Evaluate more subjects, "
                "or with a larger 'share', or set the 'accept_noise' parameter if you want the "
                "figures."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and metrics as plain values for JSON."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in asdict(self).items()  # type: ignore[call-overload]
            if name != "coverage"
        }
        if self.coverage is not None:
            plain["coverage"] = self.coverage.to_dict()
        figures: dict[str, dict[str, float | None]] = {}
        for name, numbers in self.figures.items():
            plain_numbers = map(_convert_nan_to_none, numbers)
            figures[name] = dict(zip(("value", "low", "high"), plain_numbers, strict=True))
            figures[name]["noise"] = self.is_uninformative(name)
        return {**plain, "people": self.people, "figures": figures}


def _convert_nan_to_none(number: float) -> float | None:
    """Return a number for JSON, which has no NaN: None in its place."""
    return None if np.isnan(number) else float(number)


@dataclass(frozen=True, eq=False)
class CountedRows:
    """Labelled rows with queried features, as cells of tables. Private, except for `plan`.

    - `plan`: sizes of the tables, and the largest charge of a subject.
    - `cells`, int64 (rows, tables): index of each row's cell in each table.
    - `subjects`: subject id of each row.
    """

    plan: TallyPlan
    cells: Steps
    subjects: list[SubjectId]


ChargeEvaluation = Callable[[Audience, NoisyTally, CountedRows], AbstractContextManager[Steps]]
"""Charges the subjects of counted rows, and yields the private sum of each cell, int64 (cells,).

Arguments: the audience with the budgets, the noisy counter of the tables, the rows. Sums are in
steps of the noise grid, table after table. Charges, and whatever the body of the context writes,
become durable when the body ends.
"""


def charge_evaluated_subjects(
    ledger: Ledger, audience: Audience, tally: NoisyTally, counted: CountedRows
) -> Steps:
    """Charge subjects for an evaluation, and return the private sum of each cell, int64 (cells,).

    Arguments and sums are those of :data:`ChargeEvaluation`. Subjects that are not enrolled have
    budgets too, stored under keyed hashes of their ids. Call it inside `ledger.release(audience)`.
    """
    account = audience.account
    subject_ids = list(dict.fromkeys(counted.subjects))
    index_of = {subject_id: index for index, subject_id in enumerate(subject_ids)}
    slots = ledger.slot_table.find_slots(subject_ids)
    is_enrolled = slots != NOT_ENROLLED
    enrolled_slots = slots[is_enrolled]
    unenrolled_ids = list(compress(subject_ids, ~is_enrolled))
    remaining = np.zeros(len(subject_ids), dtype=np.int64)
    remaining[is_enrolled] = account.remaining[enrolled_slots]
    remaining[~is_enrolled] = ledger.load_unenrolled_units(audience, unenrolled_ids)
    remaining_before = remaining.copy()
    owners = np.array([index_of[subject_id] for subject_id in counted.subjects], dtype=np.int64)
    sums = tally.contribute_and_charge(counted.cells, owners, remaining)
    account.remaining[enrolled_slots] = remaining[is_enrolled]
    account.note_charged_total(int((remaining_before - remaining)[is_enrolled].sum()))
    ledger.charge_unenrolled(
        audience, unenrolled_ids, remaining_before[~is_enrolled], remaining[~is_enrolled]
    )
    return sums


DEFAULT_LARGEST_ERROR = 0.25  # default of `largest_error`

_N_BINS_PER_SIDE = 8
"""Bins of errors on each side of 0. Edges grow with the square of their index, so bins are narrow
near 0 and mean squares of small errors carry little noise."""


@dataclass(frozen=True, eq=False)
class NumberEvaluation(NoisyEvaluation):
    """Noisy histograms of the errors of predicted numbers, and the metrics computed from them.

    - `targets`: names of p numbers.
    - `scale`: whether errors are differences of the numbers ("linear"), or of their natural
      logarithms ("log").
    - `errors`, float64 (p, b): noisy number of subjects by answer less truth; may be below 0.
      Errors beyond the outer edges count in the outer bins.
    - `deviations`, float64 (p, b): noisy number of subjects by truth less `centre`.
    - `error_edges`, `deviation_edges`, float64 (p, b + 1): edges of the bins.
    - `centre`, float64 (p,): means of the answers, which are public.
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
    coverage: Calibration | None = None

    @property
    def counts(self) -> Sequence[Floats]:
        return [self.errors, self.deviations]

    @property
    def subject_count_and_std(self) -> tuple[float, float]:
        """Mean of the noisy sums of all histograms, and its noise standard deviation."""
        tables = np.concatenate([self.errors, self.deviations])
        n_tables, n_bins = tables.shape
        return float(tables.sum(axis=1).mean()), self.noise * np.sqrt(n_bins / n_tables)

    def get_metric_range(self, name: str) -> float:
        target, _, metric = name.rpartition(" ")
        index = [str(target_name) for target_name in self.targets].index(target)
        max_error = self.error_edges[index, -1]
        return float({"rmse": max_error, "mean_error": 2 * max_error, "r2": 1.0}[metric])

    def compute_metrics(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return RMSE, mean error and R2 of each target, by name, as "TARGET rmse".

        RMSE is NaN for a negative mean square, R2 for a variance that may be noise alone.
        """
        n_subjects = max(float(np.concatenate(counts).sum(axis=1).mean()), 1e-9)
        errors, deviations = counts
        figures = {}
        for i, target in enumerate(self.targets):
            mean_error, mean_square_error = _compute_binned_moments(
                errors[i], self.error_edges[i], n_subjects
            )
            mean, mean_square = _compute_binned_moments(
                deviations[i], self.deviation_edges[i], n_subjects
            )
            variance = mean_square - mean**2
            # Below three standard deviations of its noise a variance may be noise alone.
            square_noise = float(np.linalg.norm(_compute_mean_squares(self.deviation_edges[i])))
            min_variance = 3 * self.noise * square_noise / n_subjects
            rmse = float(np.sqrt(mean_square_error)) if mean_square_error > 0 else np.nan
            r2 = 1 - max(mean_square_error, 0.0) / variance if variance > min_variance else np.nan
            figures[f"{target} rmse"] = rmse
            figures[f"{target} mean_error"] = mean_error
            figures[f"{target} r2"] = r2
        return figures


@dataclass(frozen=True, eq=False)
class LabelSetEvaluation(NoisyEvaluation):
    """Noisy numbers of subjects by true and predicted presence of each label.

    - `labels`: names of c labels.
    - `tables`, float64 (c, 2, 2): of each label, the noisy number of subjects by truth (rows) and
      answer (columns); may be below 0.
    """

    labels: list[Any]
    tables: Floats
    noise: float
    share: float

    @property
    def counts(self) -> Sequence[Floats]:
        return [self.tables]

    @property
    def subject_count_and_std(self) -> tuple[float, float]:
        """Mean of the noisy sums of all tables, and its noise standard deviation."""
        n_labels = len(self.tables)
        return float(self.tables.sum() / n_labels), self.noise * 2 / np.sqrt(n_labels)

    def compute_metrics(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return mean accuracy, and accuracy and balanced accuracy of each label, by name.

        A balanced accuracy is NaN if the count of either true value of the label does not exceed
        three standard deviations of its noise.
        """
        (tables,) = counts
        n_subjects = max(float(tables.sum() / len(tables)), 1e-9)
        accuracies = np.clip((tables[:, 0, 0] + tables[:, 1, 1]) / n_subjects, 0, 1)
        figures = {"accuracy": float(accuracies.mean())}
        for name, table, accuracy in zip(self.labels, tables, accuracies, strict=True):
            figures[f"{name} accuracy"] = float(accuracy)
            n_per_truth = table.sum(axis=1)
            is_reliable = (n_per_truth > 3 * np.sqrt(2) * self.noise).all()
            recalls = np.clip(np.diag(table) / np.where(is_reliable, n_per_truth, 1.0), 0, 1)
            balanced_accuracy = float(recalls.mean()) if is_reliable else np.nan
            figures[f"{name} balanced_accuracy"] = balanced_accuracy
        return figures


@dataclass(frozen=True, eq=False)
class ReleasedNumbers:
    """Released predictions of numbers, and their comparison with the truth; public.

    - `target`: the store's target, with the names and bounds of p numbers.
    - `answers`, (a, p): predictions, as logarithms if the store averages these (`target.scale`).
    """

    target: Numbers
    answers: Floats
    largest_error: float

    def encode_truth(self, y: npt.ArrayLike | None, size: int) -> Floats:
        """Return true numbers (n, p) on the scale of `answers`, clipped to the bounds.

        `y` (n,) or (n, p): true numbers in units of the targets. Raises InvalidInput if they are
        not finite numbers of that shape.
        """
        bounds = self.target.transformed_bounds
        is_log = self.target.scale == LOG
        relative = compute_relative_numbers(y, size, self.target.bounds, log=is_log)
        return bounds.low + (relative + 1) / 2 * (bounds.high - bounds.low)

    @property
    def table_sizes(self) -> tuple[int, ...]:
        """Number of bins of each table: p of errors, then p of deviations."""
        return (2 * _N_BINS_PER_SIDE,) * (2 * len(self.target.names))

    def find_cells(self, truth: AnyArray, answer_indices: Indices) -> Indices:
        """Return each row's bin in each table, int64 (n, 2 p)."""
        error_edges, deviation_edges, centre = self._edges_and_centre
        errors = self.answers[answer_indices] - truth
        deviations = truth - centre
        columns = [
            np.searchsorted(edges[i, 1:-1], values[:, i], side="right")
            for values, edges in ((errors, error_edges), (deviations, deviation_edges))
            for i in range(len(self.target.names))
        ]
        return np.stack(columns, axis=1).astype(np.int64)

    def build_evaluation(
        self, tables: Sequence[Floats], noise: float, share: float
    ) -> NumberEvaluation:
        """Return the evaluation from `tables` (b,): p histograms of errors, p of deviations."""
        counts = np.stack(tables)
        p = len(self.target.names)
        error_edges, deviation_edges, centre = self._edges_and_centre
        return NumberEvaluation(
            self.target.names,
            self.target.scale,
            counts[:p],
            counts[p:],
            error_edges,
            deviation_edges,
            centre,
            noise,
            share,
        )

    def build_histograms(
        self, tables: Sequence[Floats], noise: float, n_earlier: int
    ) -> list[ScoreHistogram]:
        """Return the histogram of absolute errors of each number, from the same `tables`."""
        error_edges, _, _ = self._edges_and_centre
        max_error = compute_max_error(n_earlier, len(self.target.names))
        b = _N_BINS_PER_SIDE
        histograms = []
        for name, counts, edges in zip(self.target.names, tables, error_edges, strict=False):
            # The bins of an error and of its negative make one of absolute errors.
            sums = counts[b:] + counts[:b][::-1]
            sum_noise = math.sqrt(2) * noise
            histograms.append(ScoreHistogram(name, edges[b + 1 : -1], sums, sum_noise, max_error))
        return histograms

    @property
    def _edges_and_centre(self) -> tuple[Floats, Floats, Floats]:
        """Edges of error bins and deviation bins, both (p, b + 1), and mean answers (p,)."""
        bounds = self.target.transformed_bounds
        ranges = bounds.high - bounds.low
        fractions = np.arange(-_N_BINS_PER_SIDE, _N_BINS_PER_SIDE + 1) / _N_BINS_PER_SIDE
        unit_edges = np.sign(fractions) * fractions**2
        midpoint = (bounds.low + bounds.high) / 2
        centre = self.answers.mean(axis=0) if len(self.answers) else midpoint
        error_edges = np.outer(self.largest_error * ranges, unit_edges)
        # Deviations are counted up to twice the largest error, at most up to the whole range.
        deviation_edges = np.minimum(2 * self.largest_error, 1.0) / self.largest_error * error_edges
        return error_edges, deviation_edges, centre


@dataclass(frozen=True, eq=False)
class ReleasedLabelSets:
    """Released sets of labels, and their comparison with the truth; public.

    - `labels`: names of c labels.
    - `answers`, int64 (a, c): 1 where a label was predicted.
    """

    labels: list[Any]
    answers: Ints

    def encode_truth(self, y: npt.ArrayLike | None, size: int) -> Bools:
        """Return the presence of each true label, bool (n, c).

        `y` (n, c): 1 where a row has a label, else 0. Raises InvalidInput for other values, or
        another shape.
        """
        return read_label_matrix(y, size, self.labels)

    @property
    def table_sizes(self) -> tuple[int, ...]:
        """Number of cells of each label's table: four."""
        return (4,) * len(self.labels)

    def find_cells(self, truth: AnyArray, answer_indices: Indices) -> Indices:
        """Return each row's cell in each label's table, int64 (n, c): 2 truth + answer."""
        return 2 * truth.astype(np.int64) + self.answers[answer_indices]

    def build_evaluation(
        self, tables: Sequence[Floats], noise: float, share: float
    ) -> LabelSetEvaluation:
        """Return the evaluation from `tables`, the confusion matrix (4,) of each label."""
        return LabelSetEvaluation(self.labels, np.reshape(tables, (-1, 2, 2)), noise, share)


def _compute_binned_moments(
    counts: Floats, edges: Floats, n_subjects: float
) -> tuple[float, float]:
    """Return mean and mean square of values counted in bins, uniformly distributed within a bin.

    `counts` (b,): noisy number of subjects in each bin. `edges` (b + 1,): of the bins.
    `n_subjects`: number by which sums are divided.
    """
    mean = float(counts @ (edges[:-1] + edges[1:]) / 2 / n_subjects)
    return mean, float(counts @ _compute_mean_squares(edges) / n_subjects)


def _compute_mean_squares(edges: Floats) -> Floats:
    """Return the mean square of a uniform variable in each bin, (b,), from the bins' edges."""
    low, high = edges[:-1], edges[1:]
    return (low**2 + low * high + high**2) / 3


_N_PROBABILITY_BINS = 10  # bins of probabilities, with about as many released answers in each
DEFAULT_SHARE = 0.05  # default of `share` (docs/decisions/0063)


@dataclass(frozen=True, eq=False)
class Evaluation(NoisyEvaluation):
    """Noisy confusion matrix and score histogram, and the metrics computed from them.

    Attributes
    ----------
    classes : list
        Class names.
    confusion : float64 (c, c)
        Subjects by true class (rows) and answer (columns), with noise; may be below 0.
    scores : float64 (2, b) or None
        Subjects by bin of probability, with noise. For two classes the rows are the true classes
        and the probability is that of the second; for more the rows are wrong and right answers
        and the probability is that of the answer. None if the store releases labels alone, or
        conformity scores of more than two classes are counted in their place.
    means : float64 (b,) or None
        Mean probability of the released answers in each bin; 0 where there is none.

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
    coverage: Calibration | None = None

    @property
    def counts(self) -> Sequence[Floats]:
        return [self.confusion] if self.scores is None else [self.confusion, self.scores]

    @property
    def subject_count_and_std(self) -> tuple[float, float]:
        return float(self.confusion.sum()), self.noise * len(self.classes)

    def compute_metrics(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return accuracy, balanced accuracy and, for two classes with scores, AUC, by name."""
        confusion = counts[0]
        n_per_class = np.maximum(confusion.sum(axis=1), 1e-9)
        recalls = np.clip(np.diag(confusion) / n_per_class, 0, 1)
        figures = {
            "accuracy": float(np.clip(np.trace(confusion) / max(confusion.sum(), 1e-9), 0, 1)),
            "balanced_accuracy": float(recalls.mean()),
        }
        if len(counts) > 1 and len(confusion) == 2:
            negatives, positives = counts[1]
            figures["auc"] = compute_binned_auc(negatives, positives)
        return figures

    @property
    def calibration(self) -> list[tuple[float, float, float]]:
        """Mean probability, observed frequency and noisy number of subjects of each score bin.

        The frequency is NaN in a bin whose number of subjects may be noise alone.
        """
        if self.scores is None or self.means is None:
            return []
        sizes = self.scores.sum(axis=0)
        size_std = math.sqrt(2) * self.noise  # of a sum of two noisy counts
        is_reliable = sizes > _MIN_SIGNAL_TO_NOISE * size_std
        frequencies = np.clip(self.scores[1] / np.where(is_reliable, sizes, np.inf), 0, 1)
        bins = zip(self.means, frequencies, sizes, is_reliable, strict=True)
        return [
            (float(mean), float(frequency) if reliable else np.nan, float(size))
            for mean, frequency, size, reliable in bins
        ]

    def to_dict(self) -> dict[str, Any]:
        bins = [[_convert_nan_to_none(number) for number in row] for row in self.calibration]
        return {**super().to_dict(), "calibration": bins}


def evaluate(
    store: OpenStore,
    state: AudienceState,
    X: Any,
    y: npt.ArrayLike,
    subjects: Any,
    *,
    share: float,
    largest_error: float,
    n_subjects: int | None,
    accept_noise: bool,
    coverage: str | None,
    charge_evaluation: ChargeEvaluation,
) -> NoisyEvaluation:
    """Compare released answers with labels, charge the evaluated subjects, return noisy metrics.

    `X`, `y`, `subjects`: private raw rows (before extraction), their targets and subject ids; the
    budgets of the audience of `state` are charged. `n_subjects`: public number of subjects, for
    the check of the noise; None as in :func:`preview_evaluation`. `accept_noise`: accept metrics
    that would all be noise even if every answer were right. `charge_evaluation`: charges
    the subjects on the machines that have their budgets; charges and metrics become durable when
    its body ends, before this returns.

    Raises InvalidInput if rows, labels or ids are unusable, or the answers have no such `coverage`.
    Raises PrivacyRefused if all metrics would be noise, or the delta of the noise grid does not
    fit. Nothing was charged then.
    """
    index_of_digest, released, tally = _prepare_evaluation(
        store, state, share, largest_error, coverage
    )
    schema = store.schema
    vectors = schema.extract(X)
    truth = released.encode_truth(y, len(vectors))
    ids = _check_subject_ids(store, subjects, len(vectors))
    digests = digest_queries(schema.create_kernel().encode(vectors))
    rows = [row for row, digest in enumerate(digests) if digest in index_of_digest]
    answer_indices = np.array([index_of_digest[digests[row]] for row in rows], dtype=np.int64)
    cells = released.find_cells(truth[rows], answer_indices)
    perfect = _build_perfect_evaluation(state, released, tally, n_subjects)
    if not checks.check_boolean("accept_noise", accept_noise):
        perfect.refuse_uninformative()
    counted = CountedRows(tally.plan, cells, [ids[row] for row in rows])
    with charge_evaluation(state.audience, tally, counted) as sums:
        tables = tally.publish(sums)
        figures: NoisyEvaluation = released.build_evaluation(tables, tally.noise, share)
        state.audience.slack = state.slack.spent
        earlier = read_evaluations(store.database, state.audience.number)
        if coverage is not None and not isinstance(released, ReleasedLabelSets):
            n_earlier = len(list_calibrations(earlier))
            histograms = released.build_histograms(tables, tally.noise, n_earlier)
            version = store.ledger.version
            drifted_levels = find_drifted_levels(list_calibrations(earlier, version), histograms)
            calibration = Calibration(histograms, version, state.audience.used, drifted_levels)
            figures = replace(figures, coverage=calibration)  # type: ignore[type-var]
        stored = [*earlier, figures.to_dict()]
        store.database.put(f"evaluations {state.audience.number}", json.dumps(stored))
    return figures


def _prepare_evaluation(
    store: OpenStore, state: AudienceState, share: float, largest_error: float, coverage: str | None
) -> tuple[dict[bytes, int], ReleasedAnswers, NoisyTally]:
    """Return the newest answer's index by query digest, all released answers, and an empty tally.

    The tally is the noisy counter of the tables' cells of this evaluation. Raises InvalidInput if
    `share` or `largest_error` is out of range, `share` exceeds the part of a full budget that a
    subject can have in this renewal period, or the answers have no such `coverage`.
    """
    if coverage is not None:
        refuse_uncovered_target(state)
        kinds = [OVERALL, PER_CLASS] if state.plan.target.is_class_vote else [OVERALL]
        coverage = checks.check_choice("coverage", coverage, kinds)
    largest_error = checks.check_real("largest_error", largest_error, above=0, maximum=1)
    min_version = 0 if coverage is None else store.ledger.version
    index_of_digest, block_numbers, offsets = _read_answered_queries(store, state, min_version)
    if coverage is not None and not index_of_digest:
        raise NoCoverage(
            "The 'coverage' parameter requires answers given since the last change of the data, "
            "and there are none. First predict rows whose outcomes will become known. Nobody was "
            "charged."
        )
    released = _read_released(state, block_numbers, offsets, largest_error, coverage)
    plan = TallyPlan(
        released.table_sizes, share, state.plan.interaction_budget, state.plan.grid_delta
    )
    tally = NoisyTally(plan, state.engine.votes.noise_source, state.slack)
    renewal = state.audience.due_renewal
    if renewal is not None:
        max_share = renewal.max_units / UNITS
        if max_share < share:
            raise InvalidInput(
                f"The 'share' parameter must be at most {math.floor(1000 * max_share) / 1000:g}: "
                "so much of a full budget there is in this period. "
                f"Got {share:g}."
            )
    return index_of_digest, released, tally


def preview_evaluation(
    store: OpenStore,
    state: AudienceState,
    *,
    share: float,
    largest_error: float,
    n_subjects: int | None,
    coverage: str | None,
) -> NoisyEvaluation:
    """Return the evaluation that is expected if every answer is right, which has least noise.

    It depends on public values only, and charges nothing. `n_subjects`: number of evaluated
    subjects, at least 1; None if they have as many answers each as the plan's subjects records.
    With `coverage`, it has the number of outcomes that each level requires, and no thresholds.
    """
    _, released, tally = _prepare_evaluation(store, state, share, largest_error, coverage)
    figures = _build_perfect_evaluation(state, released, tally, n_subjects)
    if coverage is None or isinstance(released, ReleasedLabelSets):
        return figures
    # Counts of zero certify no threshold, so every level states the outcomes that it requires.
    tables = [np.zeros(size) for size in tally.plan.sizes]
    n_earlier = len(list_calibrations(read_evaluations(store.database, state.audience.number)))
    histograms = released.build_histograms(tables, tally.noise, n_earlier)
    calibration = Calibration(histograms, store.ledger.version, state.audience.used, [])
    return replace(figures, coverage=calibration)  # type: ignore[type-var]


def _build_perfect_evaluation(
    state: AudienceState, released: ReleasedAnswers, tally: NoisyTally, n_subjects: int | None
) -> NoisyEvaluation:
    """Return the evaluation whose counts are those of subjects for whom every answer is right.

    The counts are public. `released`: the answers. `tally`: gives the noise. `n_subjects`: number
    of subjects, spread evenly over the answers; None as in :func:`preview_evaluation`.
    """
    n_answers = len(released.answers)
    subjects_per_answer = 1 / state.plan.records_per_subject
    if n_subjects is not None:
        n_subjects = checks.check_integer("n_subjects", n_subjects, minimum=1)
        subjects_per_answer = n_subjects / max(n_answers, 1)
    cells = released.find_cells(released.answers, np.arange(n_answers)).T
    tables = [
        subjects_per_answer * np.bincount(column, minlength=n_cells).astype(np.float64)
        for column, n_cells in zip(cells, tally.plan.sizes, strict=True)
    ]
    return released.build_evaluation(tables, tally.noise, tally.plan.share)


def _check_subject_ids(store: OpenStore, subjects: Any, size: int) -> list[SubjectId]:
    """Return the checked subject ids of `size` labelled rows.

    Raises InvalidInput if they are missing or unusable, or the store's records have no ids.
    """
    if subjects is None:
        raise InvalidInput(
            "The 'subject' parameter must say whose each row is, because subjects pay for being "
            "evaluated from the one budget that they have."
        )
    ids: list[Any] = read_subject_list(subjects, size)
    frame_ids(ids)  # raises InvalidInput for an id that is too long
    check_subjects_given(given=True, given_before=has_subject_ids(store.database))
    return ids


def _read_answered_queries(
    store: OpenStore, state: AudienceState, min_version: int
) -> tuple[dict[bytes, int], Ints, Indices]:
    """Return the newest answer's index by query digest; `block_numbers` and `offsets` of all.

    `min_version`: first version of the data whose answers are read.
    """
    blocks = store.database.read(
        "SELECT seq, digests FROM answers WHERE audience = ? AND version >= ? ORDER BY seq",
        (state.audience.number, min_version),
    )
    index_of_digest: dict[bytes, int] = {}
    locations: list[tuple[int, int]] = []
    for seq, digests in blocks:
        for offset, start in enumerate(range(0, len(digests), DIGEST_BYTES)):
            index_of_digest[bytes(digests[start : start + DIGEST_BYTES])] = len(locations)
            locations.append((seq, offset))
    block_numbers, offsets = np.array(locations, dtype=np.int64).reshape(-1, 2).T
    return index_of_digest, block_numbers, offsets


@dataclass(frozen=True, eq=False)
class ReleasedClasses:
    """Released classes, and their comparison with the truth; public.

    The first table is the confusion matrix. Where probabilities are released there is a second one,
    of scores. Without `coverage` its bins are those of `probabilities`; its rows are the two true
    classes or, for more classes, wrong and right answers. With `coverage` its bins are those of the
    true class's conformity score; its rows are the true classes, or one row for more than two
    classes and a calibration of all together.

    - `target`: the store's target, with the class names.
    - `answers`, int64 (a,): class index of each answer.
    - `probabilities`, float64 (a,) or None: of the second of two classes; of the answer's own class
      if there are more. None if the store releases labels alone.
    - `coverage`: the kind of calibration that is counted, or None.
    - `class_scores`, float64 (a, c) or None: conformity scores of all classes, with `coverage`.
    """

    target: Classes
    answers: Ints
    probabilities: Floats | None
    coverage: str | None
    class_scores: Floats | None

    @classmethod
    def read(
        cls, state: AudienceState, block_numbers: Ints, offsets: Indices, coverage: str | None
    ) -> ReleasedClasses:
        """Return the answers of an audience at some locations."""
        target: Any = state.plan.target
        labels, _, class_probabilities = state.read_answers(block_numbers, offsets)
        probabilities = None
        class_scores = None
        if class_probabilities is not None and len(class_probabilities):
            if coverage is not None:
                class_scores = compute_class_scores(class_probabilities)
            if len(target.names) == 2:
                probabilities = class_probabilities[:, 1]
            else:
                probabilities = class_probabilities[np.arange(len(class_probabilities)), labels]
        return cls(target, labels, probabilities, coverage, class_scores)

    def encode_truth(self, y: npt.ArrayLike, size: int) -> Ints:
        """Return the indices of the true classes, int64 (n,).

        `y` (n,): true class names. Raises InvalidInput if one is not a declared class.
        """
        return np.asarray(self.target.encode(y, size), dtype=np.int64)

    @cached_property
    def edges(self) -> Floats:
        """Inner edges of the bins of probabilities: quantiles of the released probabilities.

        With conformity scores, they are the edges of these, which do not depend on the answers.
        """
        if self.class_scores is not None:
            return choose_class_thresholds(len(self.target.names))
        assert self.probabilities is not None  # noqa: S101 (callers check)
        levels = np.linspace(0, 1, _N_PROBABILITY_BINS + 1)[1:-1]
        return np.unique(np.quantile(self.probabilities, levels))

    @property
    def table_sizes(self) -> tuple[int, ...]:
        """Number of cells of the confusion matrix, and of scores if there are probabilities."""
        n_confusion_cells = len(self.target.names) ** 2
        if self.probabilities is None:
            return (n_confusion_cells,)
        return n_confusion_cells, self._n_score_rows * (len(self.edges) + 1)

    @property
    def _n_score_rows(self) -> int:
        """Number of rows of the table of scores."""
        n_classes = len(self.target.names)
        if self.class_scores is None or n_classes == 2:
            return 2
        return n_classes if self.coverage == PER_CLASS else 1

    def find_cells(self, truth: AnyArray, answer_indices: Indices) -> Indices:
        """Return each row's cell in each table, int64 (n, tables)."""
        answers = self.answers[answer_indices]
        cells = [truth * len(self.target.names) + answers]
        if self.class_scores is not None:
            # A bin includes its upper edge, as a set does its threshold.
            bins = np.searchsorted(self.edges, self.class_scores[answer_indices, truth])
            score_rows = truth if self._n_score_rows > 1 else np.zeros_like(truth)
            cells.append(score_rows * (len(self.edges) + 1) + bins)
        elif self.probabilities is not None:
            bins = np.searchsorted(self.edges, self.probabilities[answer_indices], side="right")
            is_binary = len(self.target.names) == 2
            score_rows = truth if is_binary else (truth == answers).astype(np.int64)
            cells.append(score_rows * (len(self.edges) + 1) + bins)
        return np.stack(cells, axis=1)

    def build_evaluation(self, tables: list[Floats], noise: float, share: float) -> Evaluation:
        """Return the evaluation from `tables`, the confusion matrix (c^2,), and scores if counted.

        Conformity scores of more than two classes are in :meth:`build_histograms` only.
        """
        n_classes = len(self.target.names)
        confusion = tables[0].reshape(n_classes, n_classes)
        if self.probabilities is None or (self.class_scores is not None and n_classes > 2):
            return Evaluation(self.target.names, confusion, None, None, noise, share)
        scores = tables[1].reshape(2, -1)
        if self.class_scores is not None:
            # Bins are put in the order of the second class's probability, with which the first
            # class's conformity score rises and the second's falls.
            scores = np.stack([scores[0], scores[1, ::-1]])
        n_bins = scores.shape[1]
        bins = np.searchsorted(self.edges, self.probabilities, side="right")
        sums = np.bincount(bins, self.probabilities, n_bins)
        means = sums / np.maximum(np.bincount(bins, minlength=n_bins), 1)
        return Evaluation(self.target.names, confusion, scores, means, noise, share)

    def build_histograms(
        self, tables: Sequence[Floats], noise: float, n_earlier: int
    ) -> list[ScoreHistogram]:
        """Return the histogram of conformity scores of each class, or one of all classes."""
        counts = tables[1].reshape(-1, len(self.edges) + 1)
        if self.coverage == PER_CLASS:
            max_error = compute_max_error(n_earlier, len(self.target.names))
            return [
                ScoreHistogram(name, self.edges, row, noise, max_error)
                for name, row in zip(self.target.names, counts, strict=True)
            ]
        sum_noise = noise * math.sqrt(len(counts))
        max_error = compute_max_error(n_earlier)
        return [ScoreHistogram(None, self.edges, counts.sum(axis=0), sum_noise, max_error)]


ReleasedAnswers = ReleasedClasses | ReleasedNumbers | ReleasedLabelSets


def _read_released(
    state: AudienceState,
    block_numbers: Ints,
    offsets: Indices,
    largest_error: float,
    coverage: str | None,
) -> ReleasedAnswers:
    """Return the answers of an audience at some locations, of the kind of the store's target."""
    target = state.plan.target
    if target.is_class_vote:
        return ReleasedClasses.read(state, block_numbers, offsets, coverage)
    answers = read_stored_answers(state, block_numbers, offsets).labels
    if not isinstance(target, Numbers):
        return ReleasedLabelSets(target.names, answers)
    transformed_answers = np.log(answers) if target.scale == LOG else answers
    return ReleasedNumbers(target, transformed_answers, largest_error)


def compute_binned_auc(negatives: Floats, positives: Floats) -> float:
    """Return the area under the ROC curve of scores counted in bins, clipped to 0 and 1.

    `negatives`, `positives` (b,): noisy counts of each class, in bins of rising score. Pairs in one
    bin are ties and count one half.
    """
    negatives_below = np.cumsum(negatives) - negatives / 2
    n_pairs = float(positives.sum() * negatives.sum())
    area = float((positives * negatives_below).sum()) / max(n_pairs, 1e-9)
    return min(1.0, max(0.0, area))
