"""Prediction sets and intervals with a coverage certified by noisy histograms of past outcomes.

An evaluation releases a noisy histogram of conformity scores of past queries with known outcomes:
the larger the score, the less the outcome agrees with the answer. Everything here is computed from
released values and charges no subject; src/vicinal/store/coverage.md has the proof.

Everywhere in this module:

- `level`: the requested coverage, the share of future outcomes that sets must contain; in (0, 1).
- `threshold`: a set contains every class, an interval every number, with at most this score.
- `probabilities`, float64 (q, c): released probabilities of c classes for q queries.
- `evaluations`, `calibrations`: those of one audience, in their JSON form, oldest first.
- `required_outcomes`: the smallest number of outcomes with which a threshold could be certified;
  None if one is, or if no number up to MAX_REQUIRED_OUTCOMES suffices.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
from scipy import special

from vicinal import checks
from vicinal.arrays import AnyArray, Floats
from vicinal.errors import NoCoverage
from vicinal.ledger.database import Database
from vicinal.ledger.sealed_files import parse_json
from vicinal.targets.numbers import LOG, Numbers

CONFIDENCE = 0.95
"""Confidence of the statements on coverage: all those of one audience on one level are true
together with this probability, and so are all its reports of drift. Statements on several levels,
or of both kinds, are not."""

ASSUMPTION = (
    "Each subject counts once, however many rows it has. Assumed: future rows resemble the "
    "evaluated rows, and meet remaining budgets similar to those that the evaluated answers met. "
    "Evaluate outcomes of recent answers."
)
"""The population of every statement on coverage, and the assumption of coverage.md."""

OVERALL_CAVEAT = "The outcomes of a single class, above all a rare one, can be covered less often."
"""What a statement on all classes together does not promise."""

LEVELS = (0.8, 0.9, 0.95, 0.99)  # coverage levels in reports of evaluations
OVERALL = "overall"  # kind of calibration with one threshold for all classes, or for each number

PER_CLASS = "per-class"
"""Kind of calibration with a threshold for each class, which covers its outcomes as often."""

TWO_CLASS_THRESHOLDS = (0.01, 0.04, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.99)
"""Inner edges of the bins of scores of two classes. They are symmetric, so that the bins of both
classes are the same bins of the second class's probability, from which the AUC is computed; about
as many as without coverage, for the same noise. The proof requires that they do not depend on the
data. Not tuned on data."""

ADAPTIVE_THRESHOLDS = (0.5, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.997)
"""Inner edges of the bins of scores of more than two classes: few, because the noise of a sum grows
with their number, and close near 1, where the usual thresholds are. Not tuned on data."""

_COUNT_ERROR_SHARE = 0.05
"""Share of the error probability that is spent on the upper bound on the number of subjects. The
bound is needed only roughly, and costs little at this share."""

_STRATUM_ENDS = np.arange(-8, 8, 0.02)
"""Upper ends, in standard deviations, of the strata of the integral over the noise. Each stratum is
replaced by its end, as if the noise were larger by at most .02; a last stratum lies above them."""

_STRATUM_PROBABILITIES = np.diff(special.ndtr(_STRATUM_ENDS), prepend=0.0)

_INTEGRATION_ERROR = 1e-6
"""Upper bound on the probability above the last end, and on the distance between the distribution
functions of the discrete noise and of its Gaussian limit."""

MAX_REQUIRED_OUTCOMES = 1 << 24
"""Largest reported number of required outcomes, beyond the size of any real evaluation."""

_MAX_LISTED_NAMES = 5
"""Largest number of classes that a promise names: it is sent as a header, which proxies limit."""

_ROUNDING_MARGIN = 64
"""Width that is added to intervals on each side, in units in the last place (of the larger bound).
Truth, answer and ends are rounded in about 15 operations, logarithms and exponentials by up to 4
units each, so that an outcome at a threshold would else be counted as covered, yet excluded."""


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Noisy numbers of subjects by bin of their conformity score; public.

    - `name`: the class or the number with these scores; None for all classes together.
    - `thresholds`, float64 (b - 1,): inner edges of b bins, ascending. A bin includes its upper
      edge (of positive errors of numbers: its lower one, so that fewer outcomes count as covered).
    - `counts`, float64 (b,): noisy number of subjects in each bin; may be below 0.
    - `noise`: standard deviation of the noise in each count.
    - `max_error`: probability with which its statement on one level may be wrong. The
      probabilities of all evaluations of an audience add up to 1 - CONFIDENCE at most.
    """

    name: Any
    thresholds: Floats
    counts: Floats
    noise: float
    max_error: float

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the histogram from :meth:`to_dict`."""
        thresholds, counts = (np.array(fields[name]) for name in ("thresholds", "counts"))
        return cls(fields["name"], thresholds, counts, fields["noise"], fields["max_error"])

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, and certified thresholds of the usual levels, as values for JSON."""
        return {
            "name": self.name,
            "thresholds": self.thresholds.tolist(),
            "counts": self.counts.tolist(),
            "noise": self.noise,
            "max_error": self.max_error,
            "levels": [self.describe_level(level) for level in LEVELS],
        }

    def describe_level(self, level: float) -> dict[str, Any]:
        """Return `level`, its certified `threshold` or None, and `required_outcomes`, for JSON."""
        threshold = self.find_threshold(level)
        required = None
        if threshold is None:
            required = count_required_outcomes(len(self.counts), self.noise, self.max_error, level)
        return {"level": level, "threshold": threshold, "required_outcomes": required}

    def find_threshold(self, level: float) -> float | None:
        """Return the smallest threshold certified to cover at least `level` of outcomes, or None.

        Thresholds are tested from the largest downwards until one fails. Since coverage falls with
        the threshold, a wrong statement requires that the first wrong hypothesis is rejected, so
        that no correction for several tests is needed.
        """
        certified = None
        for index in reversed(range(len(self.thresholds))):
            if not self.check_threshold(index, level):
                break
            certified = float(self.thresholds[index])
        return certified

    def check_threshold(self, index: int, level: float) -> bool:
        """Return whether the test of the threshold of this index certifies `level`."""
        return self._reject_hypothesis(self._compute_weights(index, level), level)

    def refutes_coverage(self, threshold: float, level: float) -> bool:
        """Return whether the histogram shows that a threshold covers less than `level` of outcomes.

        The error probability is that of a certified threshold. `threshold` need not be one of the
        histogram's: the next larger one is tested, which covers at least as much.
        """
        index = int(np.searchsorted(self.thresholds, threshold))
        return self._reject_hypothesis(-self._compute_weights(index, level), 1 - level)

    def _compute_weights(self, index: int, level: float) -> Floats:
        """Return the weight of each bin (b,) in the test of the threshold of this index.

        The weighted number of subjects has a mean of at most 0 if the threshold covers at most
        `level` of the outcomes.
        """
        is_covered = np.arange(len(self.counts)) <= index
        return np.where(is_covered, 1 - level, -level)

    def _reject_hypothesis(self, weights: Floats, level: float) -> bool:
        """Return whether the weighted count contradicts a hypothesis, by a bound on its p-value.

        `weights` (b,): of the bins, 1 - level or -level. Hypothesis: the share of outcomes in bins
        with the first weight is at most `level`.
        """
        excess = float(weights @ self.counts)
        excess_noise = self.noise * float(np.linalg.norm(weights))
        count_quantile = -float(special.ndtri(self.max_error * _COUNT_ERROR_SHARE))
        max_count = self.counts.sum() + count_quantile * self.noise * math.sqrt(len(self.counts))
        n_subjects = max(1, math.ceil(max_count))
        sampled_excess = excess - excess_noise * _STRATUM_ENDS
        tails = bound_binomial_excess(sampled_excess, n_subjects, level)
        p_value = float(_STRATUM_PROBABILITIES @ tails) + _INTEGRATION_ERROR
        return p_value <= self.max_error * (1 - _COUNT_ERROR_SHARE)


def bound_binomial_excess(excess: Floats, n_subjects: int, level: float) -> Floats:
    """Return a bound on the probability that a sum exceeds its mean by at least `excess`, (k,).

    The sum is one of at most `n_subjects` independent contributions from 0 to 1, each with mean
    `level`, or such contributions with weights from 0 to 1 that add up to at most `n_subjects`.
    The bound is the smaller one of Chernoff's (in Hoeffding's form) and Bentkus's.
    """
    shares = np.clip(level + excess / n_subjects, level, 1)
    divergence = special.rel_entr(shares, level) + special.rel_entr(1 - shares, 1 - level)
    chernoff = np.exp(-n_subjects * divergence)
    successes = np.floor(n_subjects * level + excess)
    is_possible = successes >= 1
    tails = special.bdtrc(np.where(is_possible, successes - 1, 0), n_subjects, level)
    bentkus = np.where(is_possible, math.e * tails, 1.0)
    bound = np.where(excess > n_subjects * (1 - level), 0.0, np.minimum(chernoff, bentkus))
    return np.where(excess <= 0, 1.0, np.minimum(bound, 1.0))


@dataclass(frozen=True, eq=False)
class Calibration:
    """The histograms of one evaluation, and the answers that they measure; public.

    - `histograms`: of all classes together, or of each class, or of each number.
    - `version`: version of the data from which the measured answers were computed.
    - `n_answers`: number of answers that the audience had got.
    - `drifted_levels`: levels of LEVELS that an earlier calibration certified and this contradicts.
    """

    histograms: Sequence[ScoreHistogram]
    version: int
    n_answers: int
    drifted_levels: Sequence[float]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as values for JSON."""
        histograms = [histogram.to_dict() for histogram in self.histograms]
        return {**vars(self), "histograms": histograms}


@lru_cache(maxsize=256)
def count_required_outcomes(
    n_bins: int, noise: float, max_error: float, level: float
) -> int | None:
    """Return the smallest number of outcomes with which a threshold could be certified, or None.

    Computed for a histogram with these fields, where each noisy count has its expected value and no
    outcome is above the largest threshold. A small set needs more. None: no number up to
    MAX_REQUIRED_OUTCOMES suffices, as after hundreds of calibrations.
    """
    thresholds = np.arange(n_bins - 1, dtype=np.float64)

    def could_certify(n_outcomes: int) -> bool:
        """Return whether `n_outcomes`, all in the first bin, certify the largest threshold."""
        counts = np.array([n_outcomes, *np.zeros(n_bins - 1)])
        ideal = ScoreHistogram(None, thresholds, counts, noise, max_error)
        return ideal.check_threshold(len(thresholds) - 1, level)

    numbers = range(1, MAX_REQUIRED_OUTCOMES + 1)
    index = bisect_left(numbers, True, key=could_certify)
    return numbers[index] if index < len(numbers) else None


def choose_class_thresholds(n_classes: int) -> Floats:
    """Return the inner edges (b - 1,) of the bins of class scores, ascending."""
    return np.array(TWO_CLASS_THRESHOLDS if n_classes == 2 else ADAPTIVE_THRESHOLDS)


def compute_class_scores(probabilities: Floats) -> Floats:
    """Return the score of each class for each query, float64 (q, c), from 0 to 1.

    Of two classes, it is the probability of the other class. Of more, it is the total probability
    of all classes that are more probable (Romano, Sesia & Candes 2020, without random ties): 0 for
    the most probable class, which is in every set.
    """
    if probabilities.shape[1] == 2:
        return 1 - probabilities
    order = np.argsort(-probabilities, axis=1, kind="stable")
    ordered = np.take_along_axis(probabilities, order, axis=1)
    ordered_scores = np.cumsum(ordered, axis=1) - ordered
    scores = np.empty_like(probabilities)
    np.put_along_axis(scores, order, np.clip(ordered_scores, 0, 1), axis=1)
    return scores


def read_evaluations(database: Database, audience: int) -> list[dict[str, Any]]:
    """Return all evaluations of the audience of this number. Public."""
    stored: list[dict[str, Any]] = parse_json(database.get(f"evaluations {audience}") or "[]")
    return stored


def list_calibrations(
    evaluations: Sequence[Mapping[str, Any]], version: int | None = None
) -> list[dict[str, Any]]:
    """Return the calibrations among `evaluations`; `version`: of the data, None for all."""
    calibrations = [fields["coverage"] for fields in evaluations if "coverage" in fields]
    return [fields for fields in calibrations if version in (None, fields["version"])]


def compute_max_error(n_earlier: int, n_histograms: int = 1) -> float:
    """Return the error probability of a histogram after `n_earlier` calibrations of the audience.

    (1 - CONFIDENCE) / (i (i + 1)) for the i-th: a series with the sum 1 - CONFIDENCE, so that all
    statements on one level hold together however often outcomes are evaluated, also the same ones.
    The `n_histograms` of classes or numbers share it. Every level has this probability for itself.
    """
    number = n_earlier + 1
    return (1 - CONFIDENCE) / (number * (number + 1) * n_histograms)


def find_drifted_levels(
    calibrations: Sequence[Mapping[str, Any]], current: Sequence[ScoreHistogram]
) -> list[float]:
    """Return the levels of LEVELS that were certified before and that new outcomes contradict.

    `calibrations`: all earlier ones of the same version of the data. `current`: histograms of the
    new outcomes, which are compared with those of the same classes or numbers: with the smallest
    threshold, which is contradicted if any is.
    """
    names = [histogram.name for histogram in current]
    smallest: dict[tuple[int, float], float] = {}
    for calibration in calibrations:
        earlier = calibration["histograms"]
        if [fields["name"] for fields in earlier] != names:
            continue
        for index, fields in enumerate(earlier):
            for item in fields["levels"]:
                key = index, item["level"]
                if item["threshold"] is not None:
                    smallest[key] = min(item["threshold"], smallest.get(key, math.inf))
    drifted = {
        level
        for (index, level), threshold in smallest.items()
        if current[index].refutes_coverage(threshold, level)
    }
    return sorted(drifted)


@dataclass(frozen=True)
class CertifiedThresholds:
    """The thresholds of one coverage level, from an audience's newest calibration; public.

    - `names`: of the numbers or classes with a threshold each; (None,) for all classes together.
    - `thresholds`: of each; None where none could be certified: the set contains the class, or the
      interval all numbers, then.
    - `required_outcomes`: with which all thresholds could be certified.
    - `n_answers`: number of answers of the audience at the calibration.
    """

    level: float
    names: tuple[Any, ...]
    thresholds: tuple[float | None, ...]
    required_outcomes: int | None
    n_answers: int

    def describe(self, *, n_answers: int, of_classes: bool) -> str:
        """Return the statement on coverage, with its population and assumption.

        `n_answers`: number of answers that the audience has got by now. `of_classes`: whether the
        thresholds are those of sets of classes, not of intervals of numbers.
        """
        sets = "sets" if of_classes else "intervals"
        noun = "class" if of_classes else "number"
        of_each = f" of each {noun}" if len(self.names) > 1 else ""
        caveat = f" {OVERALL_CAVEAT}" if of_classes and len(self.names) == 1 else ""
        promise = (
            f"With {CONFIDENCE:.0%} confidence for this level by itself, the {sets} contain at "
            f"least {self.level!r} of future outcomes{of_each}.{caveat} {ASSUMPTION} Calibrated at "
            f"answer {self.n_answers}; now there are {n_answers}."
        )
        if None not in self.thresholds:
            return promise
        for_names = ""
        if len(self.names) > 1:
            pairs = zip(self.names, self.thresholds, strict=True)
            lacking = [str(name) for name, threshold in pairs if threshold is None]
            for_names = f" for {', '.join(lacking[:_MAX_LISTED_NAMES])}"
            if len(lacking) > _MAX_LISTED_NAMES:
                for_names += f" and {len(lacking) - _MAX_LISTED_NAMES} more"
        required = f"this needs at least {self.required_outcomes} outcomes{of_each}"
        if self.required_outcomes is None:
            required = f"no number of outcomes up to {MAX_REQUIRED_OUTCOMES} suffices"
        return (
            f"{promise} No threshold could be certified{for_names}: {required} at the noise of the "
            f"last evaluation. Every possible value is in the {sets} until then."
        )

    def select_classes(self, classes: Sequence[Any], probabilities: Floats) -> AnyArray:
        """Return each query's list of class names, the most probable first; never empty, (q,)."""
        limits = [np.inf if value is None else value for value in self.thresholds]
        is_included = compute_class_scores(probabilities) <= np.array(limits)
        order = np.argsort(-probabilities, axis=1, kind="stable")
        is_included[np.arange(len(order)), order[:, 0]] = True
        sets = np.empty(len(order), dtype=object)
        for query, row in enumerate(order.tolist()):
            sets[query] = [classes[index] for index in row if is_included[query, index]]
        return sets

    def bound_numbers(self, target: Numbers, answers: Floats) -> tuple[Floats, Floats]:
        """Return the ends of each interval, both float64 (q, p), within the bounds of the target.

        `answers` (q, p): predictions. All are in units of the numbers.
        """
        bounds = target.transformed_bounds
        is_log = target.scale == LOG
        transformed = np.log(answers) if is_log else answers
        # Exponentials have a relative error, which is one of the logarithm: as at a bound of 1.
        largest = np.maximum(np.abs(bounds.low), np.abs(bounds.high)) + is_log
        widths = np.array([np.inf if value is None else value for value in self.thresholds])
        widths = widths + _ROUNDING_MARGIN * np.spacing(largest)
        # Clipped ends are the bounds themselves, not exponentials of the bounds' logarithms.
        low = np.where(transformed - widths <= bounds.low, -np.inf, transformed - widths)
        high = np.where(transformed + widths >= bounds.high, np.inf, transformed + widths)
        if is_log:
            low, high = np.exp(low), np.exp(high)
        return np.maximum(low, target.bounds.low), np.minimum(high, target.bounds.high)


def certify_coverage(
    database: Database, audience: int, version: int, coverage: object
) -> CertifiedThresholds:
    """Return the thresholds of a coverage level from an audience's newest calibration.

    `audience`: its number. `version`: of the data, which the calibration must have measured.
    `coverage`: the requested level. Raises InvalidInput if that is not between 0 and 1, NoCoverage
    if no evaluation of the audience has calibrated answers of this version.
    """
    level = float(checks.check_real("coverage", coverage, above=0, below=1))
    evaluations = read_evaluations(database, audience)
    calibrations = list_calibrations(evaluations, version)
    if not calibrations:
        lack = "this audience has none"
        if list_calibrations(evaluations):
            lack = "the data changed since the last one, so that it no longer holds"
        raise NoCoverage(
            f"The 'coverage' parameter requires a calibration, and {lack}. First evaluate answers "
            "given since the last change of the data, on rows with known outcomes: `vicinal "
            "evaluate --coverage overall`, or Store.evaluate in Python. Nothing was charged."
        )
    return _certify_thresholds(json.dumps(calibrations[-1]), level)


@lru_cache(maxsize=64)
def _certify_thresholds(content: str, level: float) -> CertifiedThresholds:
    """Return the certified thresholds of `level` from a stored calibration, as JSON text."""
    calibration = json.loads(content)
    histograms = [ScoreHistogram.from_dict(fields) for fields in calibration["histograms"]]
    results = [histogram.describe_level(level) for histogram in histograms]
    required = [item["required_outcomes"] for item in results if item["threshold"] is None]
    return CertifiedThresholds(
        level,
        tuple(histogram.name for histogram in histograms),
        tuple(item["threshold"] for item in results),
        max(required) if required and None not in required else None,
        calibration["n_answers"],
    )
