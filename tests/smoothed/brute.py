"""Smoothed DP by enumerating all samples, databases and neighbours with exact fractions.

It shares nothing with the product: a database is a list of records, a sample a list of its
members, and the published value is any function of the sample.

Samplers return a function from n to pairs of sampled indices and probability. `e` is exp(epsilon).
"""

import itertools
from collections import Counter, defaultdict
from fractions import Fraction


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


def compute_distribution(records, list_samples, publish):
    """Return the probability of each possible outcome of a mechanism."""
    distribution = defaultdict(Fraction)
    for indices, probability in list_samples(len(records)):
        distribution[publish([records[index] for index in indices])] += probability
    return {outcome: probability for outcome, probability in distribution.items() if probability}


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
            total += (
                p_outcome
                * max(abs(p_outcome - q_outcome) / (p_outcome + q_outcome) - t, 0)
                / (1 - t)
            )
    return total


def iterate_replacements(records, n_types):
    """Yield all databases with one record replaced by another type."""
    for index, record in enumerate(records):
        for replacement in range(n_types):
            if replacement != record:
                yield [*records[:index], replacement, *records[index + 1 :]]


def iterate_moves(records, n_types):
    """Yield all sequences in which one record has another rank or another label, or both."""
    for index in range(len(records)):
        rest = [*records[:index], *records[index + 1 :]]
        for rank in range(len(records)):
            for label in range(n_types):
                yield [*rest[:rank], label, *rest[rank:]]


def compute_delta(records, n_types, list_samples, publish, e, neighbours=iterate_replacements):
    """Return delta(x): the largest divergence from or to a neighbour."""
    own_distribution = compute_distribution(records, list_samples, publish)
    neighbour_distributions = [
        compute_distribution(neighbour, list_samples, publish)
        for neighbour in neighbours(records, n_types)
    ]
    return max(
        max(compute_divergence(own_distribution, q, e), compute_divergence(q, own_distribution, e))
        for q in neighbour_distributions
    )


def compute_utility(records, n_types, list_samples, publish, e, neighbours=iterate_replacements):
    """Return the largest gain over all neighbours."""
    own_distribution = compute_distribution(records, list_samples, publish)
    return max(
        compute_gain(own_distribution, compute_distribution(neighbour, list_samples, publish), e)
        for neighbour in neighbours(records, n_types)
    )


def compute_mean(delta_of, rows):
    """Return the expected delta if record r comes from the distribution rows[r]."""
    total = Fraction(0)
    for records in itertools.product(range(len(rows[0])), repeat=len(rows)):
        probability = Fraction(1)
        for row, record in zip(rows, records, strict=True):
            probability *= row[record]
        if probability:
            total += probability * delta_of(records)
    return total


def compute_smoothed_delta(delta_of, vertices, n):
    """Return the maximum of the expected delta over multisets of vertices."""
    worlds = itertools.combinations_with_replacement(vertices, n)
    return max(compute_mean(delta_of, world) for world in worlds)


def make_histogram_publisher(n_types):
    """Return a function from a sample to its histogram."""
    return lambda sample: tuple(Counter(sample)[t] for t in range(n_types))


def list_records(counts):
    """Return a database with the given histogram, as a list of types."""
    return [type_index for type_index, count in enumerate(counts) for _ in range(count)]
