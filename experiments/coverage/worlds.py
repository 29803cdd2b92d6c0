"""Simulated worlds: how often a certified threshold covers less than its level."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats

from vicinal.store.coverage import ADAPTIVE_THRESHOLDS, LEVELS, ScoreHistogram, compute_max_error

Array = npt.NDArray[Any]

OUTCOMES_AND_NOISE = ((300, 5.3), (1000, 23.6), (5000, 5.3))
"""Numbers of outcomes, and standard deviations of the noise of a count. The noise is that of
epsilon 1 and delta 1e-5 with a share of 1 and of .05."""

SCORE_EXPONENTS = {"calibrated": 1.0, "overconfident": 0.5, "underconfident": 2.0}
"""A score is a uniform number to this power, so that a threshold t covers t^(1 / exponent)."""

SHIFT = 3.0
"""In shifted worlds, the probability that a future outcome is covered is raised to this power."""


class WorldCounts(NamedTuple):
    """Numbers of simulated worlds for one distribution of scores and one level.

    - `scores`: name of the distribution. `n_outcomes`: number of evaluated subjects.
    - `noise`: standard deviation of the noise of a count, in subjects. `level`: the coverage.
    - `n_worlds`: number of worlds. `n_certified`: of these, with a certified threshold.
    - `n_wrong`: worlds with a certified threshold that covers less than the level.
    - `n_wrong_shifted`: the same, for outcomes that do not resemble the evaluated ones.
    """

    scores: str
    n_outcomes: int
    noise: float
    level: float
    n_worlds: int
    n_certified: int
    n_wrong: int
    n_wrong_shifted: int


def simulate_worlds(n_worlds: int) -> Iterator[WorldCounts]:
    """Yield the counts of every setting and level, in `n_worlds` worlds of each setting."""
    thresholds = np.array(ADAPTIVE_THRESHOLDS)
    max_error = compute_max_error(0)
    for scores, exponent in SCORE_EXPONENTS.items():
        bin_ends = np.array([0, *thresholds, 1]) ** (1 / exponent)
        probabilities = np.diff(bin_ends)
        coverage_of = dict(zip(thresholds.tolist(), bin_ends[1:-1].tolist(), strict=True))
        for n_outcomes, noise in OUTCOMES_AND_NOISE:
            generator = np.random.default_rng(n_outcomes)  # noqa: TID251 (simulation)
            counts = generator.multinomial(n_outcomes, probabilities, n_worlds)
            noisy = counts + generator.normal(0, noise, counts.shape)
            coverages: Array = np.full((len(LEVELS), n_worlds), np.nan)
            for world, world_counts in enumerate(noisy):
                histogram = ScoreHistogram(None, thresholds, world_counts, noise, max_error)
                for index, level in enumerate(LEVELS):
                    threshold = histogram.find_threshold(level)
                    if threshold is not None:
                        coverages[index, world] = coverage_of[threshold]
            for level, covered in zip(LEVELS, coverages, strict=True):
                # The power of a threshold that covers the level exactly is not below it.
                yield WorldCounts(
                    scores,
                    n_outcomes,
                    noise,
                    level,
                    n_worlds,
                    int(np.isfinite(covered).sum()),
                    int((covered < level - 1e-12).sum()),
                    int((covered**SHIFT < level - 1e-12).sum()),
                )


def format_worlds(rows: list[WorldCounts]) -> str:
    """Return the table of simulated worlds as text, and the largest share of wrong statements."""
    lines = ["scores          outcomes  noise  level  certified  too little  too little if shifted"]
    for row in rows:
        shares = [
            count / row.n_worlds for count in (row.n_certified, row.n_wrong, row.n_wrong_shifted)
        ]
        lines.append(
            f"{row.scores:<15} {row.n_outcomes:>8} {row.noise:>6g} {row.level:>6g} "
            f"{shares[0]:>10.1%} {shares[1]:>11.2%} {shares[2]:>22.1%}"
        )
    worst = max(rows, key=lambda row: row.n_wrong)
    interval = stats.binomtest(worst.n_wrong, worst.n_worlds).proportion_ci(0.99)
    result = (
        f"Largest share of worlds with too little coverage: {worst.n_wrong / worst.n_worlds:.2%} "
        f"(99 % interval {interval.low:.2%} to {interval.high:.2%}); allowed for one evaluation: "
        f"{compute_max_error(0):.2%}."
    )
    shift = f"Shifted: a future outcome is covered with probability F^{SHIFT:g} in place of F."
    return "\n".join([*lines, "", result, shift])
