"""Random plans of every kind in every company: no lower bound above an upper bound.

The soak draws 10,000, in which every two kinds meet, the short form 120: a fault in a share p of
all plans is missed with probability (1 - p)^120 or (1 - p)^10,000, which is 1e-9 for a share of
16 % or .2 %. Plans are the same in every run.
"""

import itertools
import math
import resource

import numpy as np
import pytest

from vicinal.accounting.kinds import KINDS
from vicinal.accounting.plan import account
from vicinal.errors import InvalidInput

PLANS = 10_000
BATCHES = 10
# A plan with labels takes up to a second: one of so many, each with four other kinds in turn.
SELDOM = 200
COUNT = 300


def spread(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def screening(rng):
    k = int(spread(rng, 1, 400))
    return {"k": k, "threshold": k * rng.uniform(-0.2, 1.2), "sigma": spread(rng, 0.3, 1e4)}


def confident(rng):
    given = screening(rng)
    return {
        "teachers": given["k"],
        "threshold": given["threshold"],
        "sigma_screen": given["sigma"],
        "sigma_votes": spread(rng, 0.3, 1e4),
    }


def sigma(rng):
    return {"sigma": spread(rng, 0.1, 1e5)}


def sampled(make):
    return lambda rng: {**make(rng), "gamma": spread(rng, 1e-4, 1)}


def multilabel(rng):
    return {"tau": spread(rng, 0.3, 30), **sigma(rng)}


def answered(rng):
    count = int(spread(rng, 1, COUNT))
    return {**confident(rng), "count": count, "answered": int(rng.integers(0, count + 1))}


def counts(rng):
    return {"scale": spread(rng, 0.5, 1e4), "cells": int(spread(rng, 1, 20))}


def whole(rng):
    return {"sensitivity": int(spread(rng, 1, 30))}


def losses(rng):
    """Randomised response."""
    size = spread(rng, 1e-3, 2)
    chance = 1 / (1 + math.exp(-size))
    return {"losses": [-size, size], "probabilities": [1 - chance, chance]}


VARIANTS = {
    "screening": ("screening", screening),
    "screening, sampled": ("screening", sampled(screening)),
    "noisy_max": ("noisy_max", sigma),
    "noisy_max, sampled": ("noisy_max", sampled(sigma)),
    "gaussian": ("gaussian", lambda rng: {**sigma(rng), "sensitivity": spread(rng, 0.1, 3)}),
    "gaussian, sampled": ("gaussian", sampled(sigma)),
    "multilabel": ("multilabel", multilabel),
    "multilabel, sampled": ("multilabel", sampled(multilabel)),
    "gnmax": ("gnmax", sigma),
    "confident_gnmax": ("confident_gnmax", answered),
    "ind_knn, epsilon": ("ind_knn", lambda rng: {"epsilon": spread(rng, 0.02, 12), "count": 1}),
    "ind_knn, B": ("ind_knn", lambda rng: {"B": spread(rng, 1e-5, 5)}),
    "ind_knn, model": (
        "ind_knn", lambda rng: {"B": spread(rng, 1e-5, 5), "model_share": spread(rng, 0.01, 0.99)}
    ),
    "training": ("training", lambda rng: {**sigma(rng), "steps": int(spread(rng, 1, 300))}),
    "training, sampled": (
        "training", lambda rng: {**sampled(sigma)(rng), "steps": int(spread(rng, 1, 300))}
    ),
    "laplace": ("laplace", lambda rng: {**counts(rng), "sensitivity": spread(rng, 0.1, 3)}),
    "discrete_laplace": ("discrete_laplace", lambda rng: {**counts(rng), **whole(rng)}),
    "discrete_gaussian": (
        "discrete_gaussian", lambda rng: {"sigma": spread(rng, 0.3, 1e3), **whole(rng)}
    ),
    "renyi": ("renyi", lambda rng: {"orders": [2, 8, 99], "rdp": [spread(rng, 1e-5, 0.1)] * 3}),
    "pld": ("pld", losses),
    "ind_knn, label": (
        "ind_knn", lambda rng: {"epsilon": spread(rng, 0.05, 8), "release": "label", "count": 1}
    ),
}  # fmt: skip
LABELS = {
    "noisy_max, label": (
        "noisy_max", lambda rng: {"sigma": spread(rng, 1, 1e3), "release": "label"}
    ),
    "noisy_max, sampled, label": (
        "noisy_max",
        lambda rng: {**sampled(sigma)(rng), "sigma": spread(rng, 1, 1e3), "release": "label",
                     "classes": 2},
    ),
    "gnmax, label": ("gnmax", lambda rng: {"sigma": spread(rng, 1, 1e3), "release": "label"}),
    "confident_gnmax, label": (
        "confident_gnmax",
        lambda rng: {**confident(rng), "sigma_votes": spread(rng, 1, 1e3), "release": "label"},
    ),
}  # fmt: skip
EVERY = {**VARIANTS, **LABELS}


def companies(number):
    """Return which variants plan `number` has: one to five, every pair of them sooner or later."""
    if number % SELDOM == 0:
        turn = number // SELDOM
        rest, place = list(EVERY), 4 * (turn // len(LABELS))
        others = [rest[(place + i) % len(rest)] for i in range(4)]
        return [list(LABELS)[turn % len(LABELS)], *others]
    rng = np.random.default_rng([7, number])
    return rng.choice(list(VARIANTS), rng.integers(1, 6)).tolist()


def random_plan(number):
    rng = np.random.default_rng([11, number])
    releases = []
    for name in companies(number):
        kind, make = EVERY[name]
        releases.append({"kind": kind, "count": int(spread(rng, 1, COUNT)), **make(rng)})
    return {"delta": spread(rng, 1e-12, 0.1), "releases": releases}


def check(number):
    given = random_plan(number)
    try:
        price = account(given)
    except InvalidInput:
        # Labels of a filter add a chance to delta, so they have no Rényi divergence, and a release
        # stated by Rényi divergences has nothing else.
        kinds = [(one["kind"], one.get("release")) for one in given["releases"]]
        assert {("ind_knn", "label"), ("renyi", None)} <= {*kinds}, given
        return
    best = min(price["by_method"].values())
    assert 0 <= price["epsilon"] == best, given
    assert price["lower"] is None or 0 <= price["lower"] <= best, given
    assert sum(step["share"] for step in price["releases"]) == pytest.approx(1), given


def test_every_kind_is_there_and_every_two_of_them_meet():
    assert {kind for kind, _ in EVERY.values()} == set(KINDS)
    met = set()
    for number in range(PLANS):
        met |= set(itertools.combinations(sorted(companies(number)), 2))
    assert met >= set(itertools.combinations(sorted(EVERY), 2))


def test_no_lower_bound_exceeds_an_upper_bound_in_some_plans():
    for number in range(1, 80):
        check(number)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_lower_bound_exceeds_an_upper_bound_in_10_000_plans(batch):
    for number in range(batch, PLANS, BATCHES):
        check(number)


@pytest.mark.soak
def test_many_different_plans_do_not_fill_the_memory():
    for number in range(100):
        check(number)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(PLANS, PLANS + 1000):
        check(number)
    # Kilobytes: what the caches may still take once they are full.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000
