"""Random plans with all pairs of kinds: no lower bound exceeds an upper bound.

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
# A plan with labels takes up to a second, so only one plan in 200 has them, each with four further
# kinds in turn.
LABEL_PLAN_INTERVAL = 200
COUNT = 300


def sample_log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def sample_screening(rng):
    k = int(sample_log_uniform(rng, 1, 400))
    return {
        "k": k,
        "threshold": k * rng.uniform(-0.2, 1.2),
        "sigma": sample_log_uniform(rng, 0.3, 1e4),
    }


def sample_confident(rng):
    planned = sample_screening(rng)
    return {
        "teachers": planned["k"],
        "threshold": planned["threshold"],
        "sigma_screen": planned["sigma"],
        "sigma_votes": sample_log_uniform(rng, 0.3, 1e4),
    }


def sample_sigma(rng):
    return {"sigma": sample_log_uniform(rng, 0.1, 1e5)}


def with_sampling_rate(make):
    return lambda rng: {**make(rng), "gamma": sample_log_uniform(rng, 1e-4, 1)}


def sample_multilabel(rng):
    return {"tau": sample_log_uniform(rng, 0.3, 30), **sample_sigma(rng)}


def sample_answered(rng):
    count = int(sample_log_uniform(rng, 1, COUNT))
    return {**sample_confident(rng), "count": count, "answered": int(rng.integers(0, count + 1))}


def sample_histogram(rng):
    return {
        "scale": sample_log_uniform(rng, 0.5, 1e4),
        "cells": int(sample_log_uniform(rng, 1, 20)),
    }


def sample_whole_sensitivity(rng):
    return {"sensitivity": int(sample_log_uniform(rng, 1, 30))}


def sample_randomized_response(rng):
    """Randomised response."""
    size = sample_log_uniform(rng, 1e-3, 2)
    chance = 1 / (1 + math.exp(-size))
    return {"losses": [-size, size], "probabilities": [1 - chance, chance]}


VARIANTS = {
    "screening": ("screening", sample_screening),
    "screening, sampled": ("screening", with_sampling_rate(sample_screening)),
    "noisy_max": ("noisy_max", sample_sigma),
    "noisy_max, sampled": ("noisy_max", with_sampling_rate(sample_sigma)),
    "gaussian": (
        "gaussian",
        lambda rng: {**sample_sigma(rng), "sensitivity": sample_log_uniform(rng, 0.1, 3)},
    ),
    "gaussian, sampled": ("gaussian", with_sampling_rate(sample_sigma)),
    "multilabel": ("multilabel", sample_multilabel),
    "multilabel, sampled": ("multilabel", with_sampling_rate(sample_multilabel)),
    "gnmax": ("gnmax", sample_sigma),
    "confident_gnmax": ("confident_gnmax", sample_answered),
    "ind_knn, epsilon": (
        "ind_knn",
        lambda rng: {"epsilon": sample_log_uniform(rng, 0.02, 12), "count": 1},
    ),
    "ind_knn, B": ("ind_knn", lambda rng: {"B": sample_log_uniform(rng, 1e-5, 5)}),
    "ind_knn, model": (
        "ind_knn",
        lambda rng: {
            "B": sample_log_uniform(rng, 1e-5, 5),
            "model_share": sample_log_uniform(rng, 0.01, 0.99),
        },
    ),
    "training": (
        "training",
        lambda rng: {**sample_sigma(rng), "steps": int(sample_log_uniform(rng, 1, 300))},
    ),
    "training, sampled": (
        "training",
        lambda rng: {
            **with_sampling_rate(sample_sigma)(rng),
            "steps": int(sample_log_uniform(rng, 1, 300)),
        },
    ),
    "laplace": (
        "laplace",
        lambda rng: {**sample_histogram(rng), "sensitivity": sample_log_uniform(rng, 0.1, 3)},
    ),
    "discrete_laplace": (
        "discrete_laplace",
        lambda rng: {**sample_histogram(rng), **sample_whole_sensitivity(rng)},
    ),
    "discrete_gaussian": (
        "discrete_gaussian",
        lambda rng: {"sigma": sample_log_uniform(rng, 0.3, 1e3), **sample_whole_sensitivity(rng)},
    ),
    "renyi": (
        "renyi",
        lambda rng: {"orders": [2, 8, 99], "rdp": [sample_log_uniform(rng, 1e-5, 0.1)] * 3},
    ),
    "pld": ("pld", sample_randomized_response),
    "ind_knn, label": (
        "ind_knn",
        lambda rng: {"epsilon": sample_log_uniform(rng, 0.05, 8), "release": "label", "count": 1},
    ),
}
LABELS = {
    "noisy_max, label": (
        "noisy_max",
        lambda rng: {"sigma": sample_log_uniform(rng, 1, 1e3), "release": "label"},
    ),
    "noisy_max, sampled, label": (
        "noisy_max",
        lambda rng: {
            **with_sampling_rate(sample_sigma)(rng),
            "sigma": sample_log_uniform(rng, 1, 1e3),
            "release": "label",
            "classes": 2,
        },
    ),
    "gnmax, label": (
        "gnmax",
        lambda rng: {"sigma": sample_log_uniform(rng, 1, 1e3), "release": "label"},
    ),
    "confident_gnmax, label": (
        "confident_gnmax",
        lambda rng: {
            **sample_confident(rng),
            "sigma_votes": sample_log_uniform(rng, 1, 1e3),
            "release": "label",
        },
    ),
}
ALL_VARIANTS = {**VARIANTS, **LABELS}


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
    releases = []
    for name in choose_variants(number):
        kind, make = ALL_VARIANTS[name]
        releases.append(
            {"kind": kind, "count": int(sample_log_uniform(rng, 1, COUNT)), **make(rng)}
        )
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
    assert {kind for kind, _ in ALL_VARIANTS.values()} == set(KINDS)
    pairs = set()
    for number in range(PLANS):
        pairs |= set(itertools.combinations(sorted(choose_variants(number)), 2))
    assert pairs >= set(itertools.combinations(sorted(ALL_VARIANTS), 2))


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
    memory_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(PLANS, PLANS + 1000):
        check(number)
    # Kilobytes that the caches may still take once they are full.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory_before < 300_000
