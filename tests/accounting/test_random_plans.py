"""Random plans with all pairs of kinds: no lower bound exceeds an upper bound.

The soak draws 10,000, in which every two kinds meet, the short form 59: a fault in a share p of all
plans is missed with probability (1 - p)^59 or (1 - p)^10,000, which is 1e-9 for a share of 30 % or
.2 %. Plans are the same in every run.
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
# A plan with labels takes up to a second, so only one plan in 200 has them, each with four further
# kinds in turn.
LABEL_PLAN_INTERVAL = 200
COUNT = 300


def sample_log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def sample_screening(rng, votes="k", sigma="sigma"):
    k = int(sample_log_uniform(rng, 1, 400))
    threshold = k * rng.uniform(-0.2, 1.2)
    return {votes: k, "threshold": threshold, sigma: sample_log_uniform(rng, 0.3, 1e4)}


def sample_confident(rng):
    return sample_screening(rng, "teachers", "sigma_screen")


def sample_answered(rng):
    count = int(sample_log_uniform(rng, 1, COUNT))
    return {"count": count, "answered": int(rng.integers(0, count + 1))}


def sample_randomized_response(rng):
    size = sample_log_uniform(rng, 1e-3, 2)
    chance = 1 / (1 + math.exp(-size))
    return {"losses": [-size, size], "probabilities": [1 - chance, chance]}


def sample_curve(rng):
    return {"orders": [2, 8, 99], "rdp": [sample_log_uniform(rng, 1e-5, 0.1)] * 3}


SIGMA, SAMPLED, SENSITIVITY = {"sigma": (0.1, 1e5)}, {"gamma": (1e-4, 1.0)}, (0.1, 3.0)
HISTOGRAM = {"scale": (0.5, 1e4), "cells": (1, 20)}
MULTILABEL = {**SIGMA, "tau": (0.3, 30.0)}
FILTER_OF_B = {"B": (1e-5, 5.0)}
LABEL = {"sigma": (1.0, 1e3), "release": "label"}

# The fields of each variant of a kind: a pair is a range, sampled log-uniformly, of whole numbers
# if it holds whole numbers; a function returns several fields.
VARIANTS = {
    "screening": {"screened": sample_screening},
    "screening, sampled": {"screened": sample_screening, **SAMPLED},
    "noisy_max": SIGMA,
    "noisy_max, sampled": {**SIGMA, **SAMPLED},
    "gaussian": {**SIGMA, "sensitivity": SENSITIVITY},
    "gaussian, sampled": {**SIGMA, **SAMPLED},
    "multilabel": MULTILABEL,
    "multilabel, sampled": {**MULTILABEL, **SAMPLED},
    "gnmax": SIGMA,
    "confident_gnmax": {
        "screened": sample_confident, "sigma_votes": (0.3, 1e4), "answers": sample_answered,
    },
    "ind_knn, epsilon": {"epsilon": (0.02, 12.0), "count": 1},
    "ind_knn, B": FILTER_OF_B,
    "ind_knn, model": {**FILTER_OF_B, "model_share": (0.01, 0.99)},
    "training": {**SIGMA, "steps": (1, 300)},
    "training, sampled": {**SIGMA, **SAMPLED, "steps": (1, 300)},
    "laplace": {**HISTOGRAM, "sensitivity": SENSITIVITY},
    "discrete_laplace": {**HISTOGRAM, "sensitivity": (1, 30)},
    "discrete_gaussian": {"sigma": (0.3, 1e3), "sensitivity": (1, 30)},
    "renyi": {"curve": sample_curve},
    "pld": {"losses": sample_randomized_response},
    "ind_knn, label": {"epsilon": (0.05, 8.0), "release": "label", "count": 1},
}  # fmt: skip
LABELS = {
    "noisy_max, label": LABEL,
    "noisy_max, sampled, label": {**LABEL, **SAMPLED, "classes": 2},
    "gnmax, label": LABEL,
    "confident_gnmax, label": {
        "screened": sample_confident, "sigma_votes": (1.0, 1e3), "release": "label",
    },
}  # fmt: skip
ALL_VARIANTS = {**VARIANTS, **LABELS}


def get_kind(variant):
    return variant.partition(",")[0]


def sample_fields(rng, fields):
    """Return the fields of a release, sampled as the variant's `fields` state."""
    sampled = {}
    for name, values in fields.items():
        if callable(values):
            sampled |= values(rng)
        elif isinstance(values, tuple):
            number = sample_log_uniform(rng, *values)
            sampled[name] = int(number) if isinstance(values[0], int) else number
        else:
            sampled[name] = values
    return sampled


def choose_variants(number):
    """Return the one to five variants of plan `number`; every pair of them occurs in some plan."""
    if number % LABEL_PLAN_INTERVAL == 0:
        turn = number // LABEL_PLAN_INTERVAL
        names, offset = list(ALL_VARIANTS), 4 * (turn // len(LABELS))
        chosen = [names[(offset + i) % len(names)] for i in range(4)]
        return [list(LABELS)[turn % len(LABELS)], *chosen]
    rng = np.random.default_rng([7, number])
    return rng.choice(list(VARIANTS), rng.integers(1, 6)).tolist()


def random_plan(number):
    rng = np.random.default_rng([11, number])
    releases = [
        {
            "kind": get_kind(variant),
            "count": int(sample_log_uniform(rng, 1, COUNT)),
            **sample_fields(rng, ALL_VARIANTS[variant]),
        }
        for variant in choose_variants(number)
    ]
    return {"delta": sample_log_uniform(rng, 1e-12, 0.1), "releases": releases}


def check(number):
    planned = random_plan(number)
    try:
        price = account(planned)
    except InvalidInput:
        # Labels of a filter add a failure probability to delta, so they have no RDP curve, and a
        # release stated by its RDP curve has no loss distribution.
        kinds = [(release["kind"], release.get("release")) for release in planned["releases"]]
        assert {("ind_knn", "label"), ("renyi", None)} <= {*kinds}, planned
        return
    best = min(price["by_method"].values())
    assert 0 <= price["epsilon"] == best, planned
    assert price["lower"] is None or 0 <= price["lower"] <= best, planned
    assert sum(step["share"] for step in price["releases"]) == pytest.approx(1), planned


def test_every_kind_is_there_and_every_two_of_them_meet():
    assert set(map(get_kind, ALL_VARIANTS)) == set(KINDS)
    pairs = set()
    for number in range(PLANS):
        pairs |= set(itertools.combinations(sorted(choose_variants(number)), 2))
    assert pairs >= set(itertools.combinations(sorted(ALL_VARIANTS), 2))


def test_no_lower_bound_exceeds_an_upper_bound_in_some_plans():
    for number in range(1, 60):
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
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(PLANS, PLANS + 1000):
        check(number)
    # Kilobytes that the caches may still take once they are full.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 300_000
