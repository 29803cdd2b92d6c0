"""Smoothed DP by enumerating all samples, databases and neighbours with exact fractions.

It shares nothing with the product: a database is a tuple of records, a sample a list of its
members, and what is published is any function of the sample.

Samplers return a function from n to pairs of sampled indices and probability. Publishers return a
function from a sample to the probability of each outcome. `e` is exp(epsilon).
"""

import itertools
from collections import Counter, defaultdict
from fractions import Fraction
from functools import cache


def sample_all(n):
    """Sample all n positions."""
    return [(tuple(range(n)), Fraction(1))]


def sample_fixed_size(size):
    """Return a sampler of `size` positions without replacement."""

    def list_samples(n):
        samples = list(itertools.combinations(range(n), size))
        return [(sample, Fraction(1, len(samples))) for sample in samples]

    return list_samples


def sample_poisson(gamma):
    """Return a sampler that keeps each position with probability gamma."""

    def list_samples(n):
        for is_kept in itertools.product((0, 1), repeat=n):
            probability = gamma ** sum(is_kept) * (1 - gamma) ** (n - sum(is_kept))
            yield tuple(i for i in range(n) if is_kept[i]), probability

    return list_samples


def sample_with_replacement(size):
    """Return a sampler of `size` positions with replacement."""
    return lambda n: (
        (sample, Fraction(1, n**size)) for sample in itertools.product(range(n), repeat=size)
    )


def count_types(sample, n_types):
    """Return the histogram of a sample."""
    counts = Counter(sample)
    return tuple(counts[t] for t in range(n_types))


def publish_histogram(n_types):
    """Return a publisher of the sample's histogram."""
    return lambda sample: {count_types(sample, n_types): 1}


def list_records(counts):
    """Return the database with the given histogram, its types in ascending order."""
    return tuple(type_index for type_index, count in enumerate(counts) for _ in range(count))


def list_histograms(n, n_types):
    """Return all histograms of n records."""
    return [c for c in itertools.product(range(n + 1), repeat=n_types) if sum(c) == n]


def compute_divergence(p, q, e):
    """Return the hockey-stick divergence: the sum over outcomes of (p - e q)+."""
    return sum((max(p[o] - e * q.get(o, 0), 0) for o in p), Fraction(0))


def compute_gain(p, q, e):
    """Return the adversary's gain if `p` is true, at accuracy threshold t = (e - 1) / (e + 1)."""
    t = (e - 1) / (e + 1)
    total = Fraction(0)
    for outcome, p_outcome in p.items():
        q_outcome = q.get(outcome, Fraction(0))
        if p_outcome:
            advantage = abs(p_outcome - q_outcome) / (p_outcome + q_outcome)
            total += p_outcome * max(advantage - t, 0) / (1 - t)
    return total


def iterate_replacements(records, n_types):
    """Yield all databases with one record replaced by another type, in ascending order."""
    for index, replacement in itertools.product(range(len(records)), range(n_types)):
        if replacement != records[index]:
            yield tuple(sorted([*records[:index], replacement, *records[index + 1 :]]))


def iterate_moves(records, n_types):
    """Yield all sequences in which one record has another rank or another label, or both."""
    n = len(records)
    for index, rank, label in itertools.product(range(n), range(n), range(n_types)):
        rest = [*records[:index], *records[index + 1 :]]
        yield (*rest[:rank], label, *rest[rank:])


class Enumeration:
    """A mechanism: the samples of `list_samples`, published by `publish`, of `n_types` types.

    Unless the order of records matters, databases are tuples in ascending order.
    """

    def __init__(self, n_types, list_samples, publish, iterate_neighbours=iterate_replacements):
        self.n_types, self.list_samples, self.publish = n_types, list_samples, publish
        self.iterate_neighbours = iterate_neighbours
        self.get_distribution = cache(self._compute_distribution)
        self.compute_delta = cache(self._compute_delta)

    def _compute_distribution(self, records):
        distribution = defaultdict(Fraction)
        for indices, probability in self.list_samples(len(records)):
            for outcome, weight in self.publish([records[index] for index in indices]).items():
                distribution[outcome] += probability * weight
        return {
            outcome: probability for outcome, probability in distribution.items() if probability
        }

    def iterate_pairs(self, records):
        """Yield the distributions of outcomes of a database and of each of its neighbours."""
        own = self.get_distribution(records)
        for neighbour in set(self.iterate_neighbours(records, self.n_types)):
            yield own, self.get_distribution(neighbour)

    def _compute_delta(self, records, e):
        """Return delta(x): the largest divergence from or to a neighbour."""
        return max(
            max(compute_divergence(p, q, e), compute_divergence(q, p, e))
            for p, q in self.iterate_pairs(records)
        )

    def compute_utility(self, records, e):
        """Return the largest gain over all neighbours."""
        return max(compute_gain(p, q, e) for p, q in self.iterate_pairs(records))

    def compute_mean_delta(self, rows, e):
        """Return the expected delta if record r comes from the distribution rows[r]."""
        total = Fraction(0)
        for records in itertools.product(range(self.n_types), repeat=len(rows)):
            probability = Fraction(1)
            for row, record in zip(rows, records, strict=True):
                probability *= row[record]
            if probability:
                total += probability * self.compute_delta(tuple(sorted(records)), e)
        return total

    def compute_smoothed_delta(self, vertices, n, e):
        """Return the maximum of the expected delta over multisets of vertices."""
        worlds = itertools.combinations_with_replacement(vertices, n)
        return max(self.compute_mean_delta(world, e) for world in worlds)
