"""Smoothed DP by going through everything with fractions: every sample, database and neighbour.

It shares nothing with the product: a database is a list of records, a sample a list of its
members, and what is published is any function of the sample.
"""

import itertools
from collections import Counter, defaultdict
from fractions import Fraction


def fixed(size):
    """Draw `size` positions without replacement."""

    def samples(n):
        chosen = list(itertools.combinations(range(n), size))
        return [(places, Fraction(1, len(chosen))) for places in chosen]

    return samples


def coins(gamma):
    """Keep every position with probability gamma."""

    def samples(n):
        for kept in itertools.product((0, 1), repeat=n):
            chance = gamma ** sum(kept) * (1 - gamma) ** (n - sum(kept))
            yield tuple(i for i in range(n) if kept[i]), chance

    return samples


def replaced(size):
    """Draw `size` positions with replacement."""
    return lambda n: (
        (places, Fraction(1, n**size)) for places in itertools.product(range(n), repeat=size)
    )


def law(records, samples, publish):
    found = defaultdict(Fraction)
    for places, chance in samples(len(records)):
        found[publish([records[place] for place in places])] += chance
    return {outcome: chance for outcome, chance in found.items() if chance}


def excess(p, q, e):
    return sum((max(p[o] - e * q.get(o, 0), 0) for o in p), Fraction(0))


def gain(p, q, e):
    t = (e - 1) / (e + 1)
    best = Fraction(0)
    for outcome, own in p.items():
        other = q.get(outcome, Fraction(0))
        if own:
            best += own * max(abs(own - other) / (own + other) - t, 0) / (1 - t)
    return best


def replacements(records, types):
    for place, record in enumerate(records):
        for other in range(types):
            if other != record:
                yield [*records[:place], other, *records[place + 1 :]]


def moves(records, types):
    """All sequences in which one record is elsewhere, or has another label, or both."""
    for place in range(len(records)):
        rest = [*records[:place], *records[place + 1 :]]
        for rank in range(len(records)):
            for label in range(types):
                yield [*rest[:rank], label, *rest[rank:]]


def delta(records, types, samples, publish, e, neighbours=replacements):
    own = law(records, samples, publish)
    others = [law(other, samples, publish) for other in neighbours(records, types)]
    return max(max(excess(own, q, e), excess(q, own, e)) for q in others)


def utility(records, types, samples, publish, e, neighbours=replacements):
    own = law(records, samples, publish)
    return max(gain(own, law(other, samples, publish), e) for other in neighbours(records, types))


def mean(delta_of, rows):
    """Expected delta when record r comes from the distribution rows[r]."""
    total = Fraction(0)
    for records in itertools.product(range(len(rows[0])), repeat=len(rows)):
        chance = Fraction(1)
        for row, record in zip(rows, records, strict=True):
            chance *= row[record]
        if chance:
            total += chance * delta_of(records)
    return total


def smoothed(delta_of, vertices, n):
    """Maximum over multisets of vertices."""
    worlds = itertools.combinations_with_replacement(vertices, n)
    return max(mean(delta_of, world) for world in worlds)


def histogram(types):
    return lambda sample: tuple(Counter(sample)[t] for t in range(types))


def records_of(counts):
    return [kind for kind, count in enumerate(counts) for _ in range(count)]
