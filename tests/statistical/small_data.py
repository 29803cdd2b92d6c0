"""Laws that can be written down, on all small data sets: what one person changes, in Renyi terms.

Data sets are labels 0 and 1, one a person; a law is the chances of everything that may leave.
"""

from itertools import product

import numpy as np
from scipy.stats import chisquare

ORDERS = np.array([1.5, 2.0, 4.0, 16.0])


def law_p(found, law):
    """Return the p-value of Pearson's chi-square: these counts come of this law."""
    return float(chisquare(found, law * found.sum()).pvalue)


def divergences(p, q):
    """Return the Renyi divergences of two laws at :data:`ORDERS`, the larger direction."""
    both = [
        np.log((a[:, None] ** ORDERS * b[:, None] ** (1 - ORDERS)).sum(axis=0)) / (ORDERS - 1)
        for a, b in ((p, q), (q, p))
    ]
    return np.maximum(*both)


def worst_over_all_data(law, most=4, divergences=divergences):
    """Return the largest divergence over all data sets of up to `most` people, all victims.

    `law` returns what leaves of given labels, in the form that `divergences` compares.
    """
    worst = np.zeros_like(ORDERS)
    for size in range(1, most + 1):
        for labels in product((0, 1), repeat=size):
            whole = law(labels)
            for victim in range(size):
                without = law(labels[:victim] + labels[victim + 1 :])
                worst = np.maximum(worst, divergences(whole, without))
    return worst
