"""Coverage and mean size of certified sets on public data, beside conformal sets without noise."""

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vicinal.accounting.budget import zcdp_budget
from vicinal.mechanisms import DeltaSlackAccountant, create_noise_source
from vicinal.mechanisms.tally import NoisyTally, TallyPlan
from vicinal.store.coverage import (
    CertifiedThresholds,
    ScoreHistogram,
    choose_class_thresholds,
    compute_class_scores,
    compute_max_error,
)

Array = npt.NDArray[Any]

DELTA = 1e-5
SHARES = (0.05, 1.0)
"""Shares of a budget that an evaluated subject pays: the default of `vicinal evaluate`, and all of
it, for subjects whose records are not in the store."""

LEVELS = (0.8, 0.9, 0.95)


class SetSizes(NamedTuple):
    """Mean results of sets for one data set, epsilon, number of outcomes, share and level.

    - `data`: name of the data set. `n_outcomes`: evaluated outcomes. `noise`: standard deviation of
      a count, in subjects; 0 without privacy of the outcomes, NaN without any privacy.
    - `certified`: share of the repetitions with a threshold. `coverage`, `size`: share of test
      outcomes in their sets, and mean number of classes in a set, over all repetitions.
    """

    data: str
    epsilon: float
    n_outcomes: int
    noise: float
    level: float
    certified: float
    coverage: float
    size: float


@dataclass(frozen=True, eq=False)
class AnsweredOutcomes:
    """Answers with known outcomes.

    - `data`: name of the data set. `epsilon`: of the answers; infinite without privacy.
    - `probabilities`, float64 (q, c): answers. `truth`, int64 (q,): class indices.
    """

    data: str
    epsilon: float
    probabilities: Array
    truth: Array


def compute_count_noise(epsilon: float, share: float, n_classes: int) -> float:
    """Return the noise standard deviation of a count of scores, in subjects."""
    n_bins = len(choose_class_thresholds(n_classes)) + 1
    n_rows = 2 if n_classes == 2 else 1
    plan = TallyPlan(
        (n_classes**2, n_rows * n_bins), share, zcdp_budget(epsilon, DELTA, "gdp"), DELTA
    )
    slack = DeltaSlackAccountant(DELTA, needs_slack=False)
    # Counts of two classes are sums of two cells.
    return NoisyTally(plan, create_noise_source(0), slack).noise * math.sqrt(n_rows)


def measure_sets(
    answers: AnsweredOutcomes, numbers: tuple[int, ...], n_repetitions: int
) -> Iterator[SetSizes]:
    """Yield the results of random splits of answers into evaluated outcomes and a test.

    `numbers`: of evaluated outcomes; at least 300 answers must remain for the test. Without privacy
    (`answers.epsilon` infinite) there are conformal sets only.
    """
    seed = zlib.crc32(answers.data.encode())  # data sets share no noise
    generator = np.random.default_rng(seed)  # noqa: TID251 (public data)
    n_answers, n_classes = answers.probabilities.shape
    is_private = math.isfinite(answers.epsilon)
    shares = SHARES if is_private else ()
    noise_levels = [compute_count_noise(answers.epsilon, share, n_classes) for share in shares]
    edges = choose_class_thresholds(n_classes)
    scores = compute_class_scores(answers.probabilities)
    true_scores = scores[np.arange(n_answers), answers.truth]
    for n_outcomes in numbers:
        if n_outcomes + 300 > n_answers:
            continue
        found: dict[tuple[float, float], list[tuple[bool, float, float]]] = {}
        for _ in range(n_repetitions):
            order = generator.permutation(n_answers)
            known = true_scores[order[:n_outcomes]]
            test = order[n_outcomes:]
            bins = np.searchsorted(edges, known)
            counts = np.bincount(bins, minlength=len(edges) + 1)
            for level in LEVELS:
                rank = math.ceil((n_outcomes + 1) * level)
                exact = float(np.sort(known)[rank - 1]) if rank <= n_outcomes else None
                thresholds = {0.0 if is_private else math.nan: exact}
                for noise in noise_levels:
                    noisy = counts + generator.normal(0, noise, len(counts))
                    histogram = ScoreHistogram(None, edges, noisy, noise, compute_max_error(0))
                    thresholds[noise] = histogram.find_threshold(level)
                for noise, threshold in thresholds.items():
                    certified = CertifiedThresholds(level, (None,), (threshold,), None, 0)
                    sets = certified.select_classes(range(n_classes), answers.probabilities[test])
                    truth = answers.truth[test].tolist()
                    covered = np.mean([y in row for y, row in zip(truth, sets, strict=True)])
                    size = np.mean([len(row) for row in sets])
                    result = (threshold is not None, float(covered), float(size))
                    found.setdefault((noise, level), []).append(result)
        for (noise, level), results in found.items():
            means = np.mean(results, axis=0).tolist()
            yield SetSizes(answers.data, answers.epsilon, n_outcomes, noise, level, *means)


def average_data_sets(rows: list[SetSizes]) -> list[SetSizes]:
    """Return the means over all data sets of each setting with the same noise, in order."""
    groups: dict[tuple[float, int, str, float], list[SetSizes]] = {}
    for row in rows:
        key = (row.epsilon, row.n_outcomes, f"{row.noise:.1f}", row.level)
        groups.setdefault(key, []).append(row)
    return [
        group[0]._replace(
            data=f"mean of {len(group)}",
            certified=float(np.mean([row.certified for row in group])),
            coverage=float(np.mean([row.coverage for row in group])),
            size=float(np.mean([row.size for row in group])),
        )
        for group in groups.values()
    ]


def format_sizes(rows: list[SetSizes]) -> str:
    """Return the table of sets as text."""
    lines = [
        "data              epsilon  outcomes  noise  level  certified  coverage  classes in a set"
    ]
    for row in rows:
        epsilon = f"{row.epsilon:g}" if math.isfinite(row.epsilon) else "none"
        noise = f"{row.noise:.1f}" if row.noise > 0 else "none"
        lines.append(
            f"{row.data:<17} {epsilon:>7} {row.n_outcomes:>9} {noise:>6} {row.level:>6g} "
            f"{row.certified:>10.0%} {row.coverage:>9.3f} {row.size:>17.2f}"
        )
    note = (
        "Noise none: conformal sets from exact scores, whose outcomes are not protected; epsilon "
        "none: of logistic regression without privacy. Simulated with seeded noise."
    )
    return "\n".join([*lines, "", note])
