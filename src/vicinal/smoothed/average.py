"""Delta of the rounded mean of sampled quantised numbers, as in SGD with 8-bit gradients."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import laplace, norm

from vicinal import checks
from vicinal.arrays import Counts, Floats, Ints
from vicinal.compiled import compiled
from vicinal.errors import InvalidInput
from vicinal.smoothed.intervals import MACHINE_EPSILON, LogInterval, log_or_minus_inf
from vicinal.smoothed.mechanism import CountMechanism, FixedSize, compute_bounded_exp

_MAX_CELLS = 2 * 10**7  # entries (sizes x sums) of a table of distributions, 160 MB as float64


@dataclass(frozen=True)
class Average(CountMechanism):
    """Sample `size` records without replacement and publish their rounded mean.

    Parameters
    ----------
    levels : sequence of int
        The possible values of a record, in whole units, increasing; a database is a histogram
        over them, (levels,).
    size : int
        Sample size T, at least 1.
    rounding : {"half away", "none"}
        The mean is rounded to a whole unit, halves away from zero; or the exact sum is published.

    Examples
    --------
    >>> from vicinal.smoothed import Average, database_delta
    >>> mean = Average(levels=[0, 1, 2], size=5)
    >>> database_delta(mean, [4, 3, 3], epsilon=1.0).log_upper < 0
    True
    """

    levels: Sequence[int]
    size: int
    rounding: str = "half away"

    def __post_init__(self) -> None:
        levels: Floats = np.asarray(self.levels, dtype=np.float64)
        well_formed = levels.ndim == 1 and len(levels) > 1 and np.isfinite(levels).all()
        if not well_formed or (levels != np.floor(levels)).any() or (np.diff(levels) <= 0).any():
            raise InvalidInput(
                "The 'levels' parameter must be at least two increasing whole numbers. Got others."
            )
        object.__setattr__(self, "levels", tuple(int(level) for level in levels))
        object.__setattr__(self, "types", len(levels))
        checks.check_integer("size", self.size, minimum=1)
        checks.check_choice("rounding", self.rounding, ("half away", "none"))
        if (self.size + 1) * self._n_sums > _MAX_CELLS:
            raise InvalidInput(
                "The 'levels' and 'size' parameters must give at most "
                f"{_MAX_CELLS} sums and sizes. Got {(self.size + 1) * self._n_sums}."
            )

    @property
    def _n_sums(self) -> int:
        """Number of possible sums of a sample: from size times the lowest level to the highest."""
        return self.size * (self.levels[-1] - self.levels[0]) + 1

    def check_record_count(self, n: int) -> None:
        """Raise InvalidInput if the sample is larger than the `n` records."""
        FixedSize(self.size).check_record_count(n)

    def compute_inclusion_probability(self, n: int) -> float:
        """Return the probability that a given one of `n` records is in the sample."""
        return self.size / n

    def iterate_divergences(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield the divergences of `database`, counts (levels,), from each neighbour, and back.

        There is one neighbour for each level that occurs and each other level.
        """
        exp_eps, n = compute_bounded_exp(epsilon), int(database.sum())
        for level, rows in self._iterate_replacements(database):
            own, slack = rows[level], 8 * (n + len(rows[0])) * MACHINE_EPSILON
            yield from _enclose_columns(_sum_divergences(own, rows, exp_eps, slack), level)
            yield from _enclose_columns(_sum_divergences(rows, own, exp_eps, slack), level)

    def iterate_gains(self, database: Counts, epsilon: float) -> Iterator[LogInterval]:
        """Yield the adversary's gain of :meth:`Mechanism.iterate_gains` for each neighbour.

        There is one neighbour for each level that occurs and each other level.
        """
        exp_eps, n = compute_bounded_exp(epsilon), int(database.sum())
        for level, rows in self._iterate_replacements(database):
            own, slack = rows[level], 16 * (n + len(rows[0])) * MACHINE_EPSILON
            posteriors = own / np.maximum(own + rows, np.finfo(np.float64).tiny)
            sums = _sum_divergences(own, rows, exp_eps, slack, posteriors) + _sum_divergences(
                rows, own, exp_eps, slack, posteriors
            )
            yield from _enclose_columns(sums, level)

    def _iterate_replacements(self, database: Counts) -> Iterator[tuple[int, Floats]]:
        """Yield the outcome distributions after replacing one record, for each level that occurs.

        The items are the index of the replaced record's level, and float64 (levels, outcomes): row
        v is the outcome distribution if the record has the level with index v instead. The row of
        its own level is the distribution of the `database`.
        """
        sampling_rate = self.size / int(database.sum())
        outcome_of_sum = self._compute_outcome_of_sum()
        shifts = np.array(self.levels) - self.levels[0]
        sums_of_no_records = np.zeros((self.size + 1, self._n_sums))
        sums_of_no_records[0, 0] = 1.0
        level_indices = np.repeat(np.arange(len(database)), database)
        leave_one_out = self._iterate_leave_one_out(sums_of_no_records, 0, level_indices)
        for level, sums_by_size in leave_one_out:
            if_sampled = compute_outcome_distributions(sums_by_size[-2], outcome_of_sum, shifts)
            if_not_sampled = compute_outcome_distributions(
                sums_by_size[-1], outcome_of_sum, shifts[:1]
            )
            yield level, (1 - sampling_rate) * if_not_sampled + sampling_rate * if_sampled

    def _compute_outcome_of_sum(self) -> Ints:
        """Return the index of the outcome to which each sum is rounded, int64 (sums,)."""
        sums = np.arange(self._n_sums) + self.size * self.levels[0]
        if self.rounding == "none":
            return np.arange(self._n_sums)
        rounded = np.sign(sums) * ((2 * np.abs(sums) + self.size) // (2 * self.size))
        return np.asarray(rounded - rounded[0])

    def _iterate_leave_one_out(
        self, sums_by_size: Floats, n_added: int, level_indices: Ints
    ) -> Iterator[tuple[int, Floats]]:
        """Yield the distributions of sums over all records but one, for each level in a group.

        The items are the index of the omitted record's level, and float64 (size + 1, sums): row t
        is the distribution of the sum of a uniform subset of t remaining records. Sums are counted
        from t times the lowest level. `level_indices` are the sorted level indices of the records
        in the group, each of which is omitted in turn. `sums_by_size` holds these distributions
        for the `n_added` records outside of the group.
        """
        # Divide and conquer: each half of the group is added before descending into the other half,
        # so that n records need about log2(n) additions each.
        if len(level_indices) == 1:
            yield int(level_indices[0]), sums_by_size
            return
        first_half, second_half = np.array_split(level_indices, 2)
        yield from self._iterate_leave_one_out(
            self._add_records(sums_by_size, n_added, second_half),
            n_added + len(second_half),
            first_half,
        )
        is_duplicate = second_half == first_half[-1]
        # Records of one level give the same distributions: the second half yields new levels only.
        new_indices = second_half[~is_duplicate]
        added_indices = np.concatenate([first_half, second_half[is_duplicate]])
        if len(new_indices):
            yield from self._iterate_leave_one_out(
                self._add_records(sums_by_size, n_added, added_indices),
                n_added + len(added_indices),
                new_indices,
            )

    def _add_records(self, sums_by_size: Floats, n_added: int, level_indices: Ints) -> Floats:
        """Return the distributions of sums (size + 1, sums) after adding records of given levels.

        `sums_by_size` (size + 1, sums) are the distributions of the sum of a uniform subset of
        t = 0 .. size of the `n_added` previous records. `level_indices` (records,): index of the
        level of each added record.
        """
        # A subset of t of k + 1 records contains the last one with probability t / (k + 1). All
        # terms are positive, so the relative precision is kept.
        sizes = np.arange(self.size + 1)[:, None]
        for n_records, level_index in enumerate(level_indices, start=n_added + 1):
            offset = self.levels[level_index] - self.levels[0]
            extended = np.maximum(n_records - sizes, 0) / n_records * sums_by_size
            extended[1:, offset:] += (sizes[1:] / n_records) * sums_by_size[
                :-1, : self._n_sums - offset
            ]
            sums_by_size = extended
        return sums_by_size


@compiled
def compute_outcome_distributions(
    sum_probabilities: Floats, outcome_of_sum: Ints, shifts: Ints
) -> Floats:
    """Return the distribution of outcomes for each shift of the sum, float64 (shifts, outcomes).

    `sum_probabilities` (sums,) is the distribution of the unshifted sum. `outcome_of_sum` (sums,)
    is the index of the outcome to which each sum is rounded, not decreasing. `shifts` are added to
    the sum, in whole units, at least 0; probability shifted beyond the last sum would be dropped.
    """
    distributions = np.zeros((len(shifts), outcome_of_sum[-1] + 1))
    for row in range(len(shifts)):
        for index in range(len(sum_probabilities) - shifts[row]):
            distributions[row, outcome_of_sum[index + shifts[row]]] += sum_probabilities[index]
    return distributions


def _sum_divergences(
    p: Floats, q: Floats, exp_eps: float, slack: float, weights: Floats | None = None
) -> Floats:
    """Return the sums over outcomes of weight (p - E q)+, computed and upper bounds, (2, rows).

    `p` and `q` are outcome distributions (outcomes,) or (rows, outcomes); `slack` bounds the
    relative errors of their entries. `exp_eps` is E = exp(epsilon); `weights` (rows, outcomes) are
    1 if None.
    """
    excess = np.maximum(p - exp_eps * q, 0.0)
    raised_excess = np.maximum(p - exp_eps * q + slack * (p + exp_eps * q), 0.0)
    weight = 1.0 if weights is None else weights
    return np.stack([(weight * excess).sum(-1), (weight * raised_excess).sum(-1) * (1 + slack)])


def _enclose_columns(sums: Floats, own_level: int) -> Iterator[LogInterval]:
    """Yield the interval of each level's divergence, except for the level with index `own_level`.

    `sums` (2, levels) are the computed divergences and upper bounds of :func:`_sum_divergences`.
    """
    slack = 4 * MACHINE_EPSILON
    for level, (computed, upper) in enumerate(sums.T.tolist()):
        if level != own_level:
            # The error is symmetric.
            low = log_or_minus_inf(computed - (upper - computed)) - slack
            high = log_or_minus_inf(computed + (upper - computed)) + slack
            yield LogInterval(low, high).cap_at_one()


LEVELS = range(-127, 129)
"""The levels of an 8-bit gradient: a gradient in ((i - 1) / 256, i / 256] has level i."""

_FAMILIES = {"gaussian": norm, "laplace": laplace}


def compute_level_probabilities(kind: str, mean: float = 0.0, scale: float = 0.12) -> Floats:
    """Return the probabilities of the 256 levels of a quantised gradient, float64 (256,).

    Level i = -127 .. 128 has the probability of ((i - 1) / 256, i / 256] divided by that of
    (-1/2, 1/2]: gradients outside are sampled again (LWX23, Definition 5).

    Parameters
    ----------
    kind : {"gaussian", "laplace"}
        Family of the gradients before rounding.
    mean : float
        Centre of the distribution, from -1 to 1.
    scale : float
        Standard deviation of the Gaussian, or scale of the Laplace distribution, > 0.

    Examples
    --------
    >>> from vicinal.smoothed import compute_level_probabilities
    >>> probabilities = compute_level_probabilities("gaussian")
    >>> probabilities.shape, round(float(probabilities.sum()), 6)
    ((256,), 1.0)
    """
    family = _FAMILIES[checks.check_choice("kind", kind, tuple(_FAMILIES))]
    checked_mean = checks.check_real("mean", mean, minimum=-1, maximum=1)
    checked_scale = checks.check_real("scale", scale, above=0)
    edges = np.arange(LEVELS.start - 1, LEVELS.stop) / 256
    probabilities = np.diff(family.cdf(edges, loc=checked_mean, scale=checked_scale))
    return np.asarray(probabilities / probabilities.sum())
