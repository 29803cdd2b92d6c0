"""Two worlds of NoisySGD: the exact law of a noisy gradient, and what a person changes in it.

All people stand at one place, so every clipped gradient is plus or minus one unit vector, and what
a step releases along it is a sum of signed coins with Gaussian noise. (1) The released gradients,
and the weights of an estimator that takes one step, have that law. (2) Over *all* small data sets,
the law with a person and without are no further apart than the accounting says. Broken mechanisms
fail (1), broken claims (2).
"""

from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from statistical.power import P_VALUE
from statistical.small_data import ORDERS, law_p, worst_over_all_data
from vicinal.accounting.gaussian import SubsampledGaussian
from vicinal.baselines import NoisySGDClassifier
from vicinal.linear.model_features import BIAS
from vicinal.mechanisms import create_noise_source
from vicinal.mechanisms.gradients import NoisyGradient, SubjectRows, choose_gradient_grid
from vicinal.mechanisms.noise_sources import SystemBernoulli
from vicinal.mechanisms.planned_releases import ReleaseCounter

pytestmark = pytest.mark.statistical

GAMMA, SIGMA, CLIP, UNIT = 0.3, 0.8, 0.5, 1000.0
STEPS, FITS = 3_300, 1_000
"""Draws of a law: each broken mechanism passes with probability below 1e-9, at a noncentrality of
210 or more."""

EDGES = np.linspace(-1.2, 1.5, 6)
"""Between them every cell of every law here expects 50 draws."""

PLACE = np.array([600.0, -800.0])
"""Of length 1 in units; unclipped, a gradient has norm sqrt(1/2) at weights 0, more than CLIP."""


def direction(place):
    """Return the unit gradient of a record with label 0 at weights 0, (d, 2)."""
    gradient = np.outer(place, (-1.0, 1.0))
    return gradient / np.linalg.norm(gradient)


def centres(labels, gamma=GAMMA):
    """Return {sum of signed coins: chance}; a label of 0 counts +1, a 1 counts -1."""
    law = {}
    for coins in product((0, 1), repeat=len(labels)):
        total = sum(coin * (1 - 2 * y) for coin, y in zip(coins, labels, strict=True))
        chance = np.prod([gamma if coin else 1 - gamma for coin in coins])
        law[total] = law.get(total, 0.0) + float(chance)
    return law


def cells(labels, sigma=SIGMA):
    """Return the chances of the cells between :data:`EDGES`."""
    below = sum(p * ndtr((EDGES - m) / sigma) for m, p in centres(labels).items())
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def count_cells(values):
    """Return how many values lie in each of the cells between :data:`EDGES`."""
    return np.bincount(np.searchsorted(EDGES, values), minlength=len(EDGES) + 1)


def gradients_of(labels, slots=None):
    """Return what :data:`STEPS` steps release along the direction, at weights 0, by cells."""
    slots = np.arange(len(labels)) if slots is None else np.array(slots)
    people = SubjectRows(
        np.tile(PLACE, (len(labels), 1)).astype(np.float32), np.array(labels, dtype=np.int32),
        slots.astype(np.int32), int(slots.max()) + 1,
    )  # fmt: skip
    gradient = NoisyGradient(
        people, 2, UNIT, GAMMA, CLIP, SIGMA, ReleaseCounter(STEPS, "steps"), create_noise_source(),
        SystemBernoulli(),
    )  # fmt: skip
    along, weights = direction(PLACE), np.zeros((2, 2))
    return count_cells([(gradient.publish(weights) * along).sum() for _ in range(STEPS)])


@pytest.mark.parametrize("labels", [(0,), (0, 0, 1), (1, 1)])
def test_released_gradients_have_the_exact_law(labels):
    assert law_p(gradients_of(labels), cells(labels)) > P_VALUE


def test_a_person_with_many_records_counts_once():
    values = gradients_of((0, 0, 0, 1), (0, 0, 0, 1))
    assert law_p(values, cells((0, 1))) > P_VALUE
    assert law_p(values, cells((0, 0, 0, 1))) < P_VALUE


def test_the_weights_of_one_step_have_the_law():
    labels = (0, 0, 1)
    estimator = NoisySGDClassifier(
        range(2), epsilon=4.0, n_steps=1, sampling_rate=GAMMA, clip=CLIP, momentum=0.0,
        learning_rate=1.0, n_records=3,
    )  # fmt: skip
    sigma = estimator.plan()["releases"][0]["sigma"]
    places, along = np.tile([0.6, -0.8], (3, 1)), direction(np.array([0.6, -0.8, BIAS]))
    values = []
    for _ in range(FITS):
        fitted = NoisySGDClassifier(**estimator.get_params()).fit(places, labels)
        weights = np.vstack([fitted.coef_.T, fitted.intercept_ / BIAS])
        # One step goes down the noisy mean: -1 / (gamma n) times the noisy sum.
        values.append(-(weights * along).sum() * GAMMA * 3)
    assert law_p(count_cells(values), cells(labels, sigma)) > P_VALUE


def quieter(patch):
    """Draw half of the noise."""
    honest = choose_gradient_grid
    patch.setattr(
        "vicinal.mechanisms.gradients.choose_gradient_grid",
        lambda sigma: (honest(sigma)[0], honest(sigma)[1] // 2),
    )


def unclipped(patch):
    """Sum whole gradients: at weights 0 they are sqrt(2) bounds long."""
    patch.setattr("vicinal.mechanisms.gradients.compute_clipped_residuals", _without_clipping)


def _without_clipping(scores, labels, norms, per_score, factor, bound):  # noqa: ARG001 (as there)
    scores[:] = 0.5
    scores[np.arange(len(scores)), labels] -= 1.0
    np.trunc(scores * factor, out=scores)


def fixed_size(patch):
    """Take a batch of fixed size."""
    rng = np.random.default_rng(0)

    def bernoulli(self, chance, size):  # noqa: ARG001 (takes the place of a method)
        return np.isin(np.arange(size), rng.permutation(size)[: round(chance * size)])

    patch.setattr(SystemBernoulli, "bernoulli", bernoulli)


def everybody(patch):
    """Take all people in every step."""
    patch.setattr(
        SystemBernoulli, "bernoulli", lambda _self, _chance, size: np.ones(size, dtype=np.bool_)
    )


BROKEN = {
    "too little noise": quieter,
    "no clipping": unclipped,
    "a batch of fixed size": fixed_size,
    "no coins": everybody,
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_mechanism_is_caught(monkeypatch, broken):
    BROKEN[broken](monkeypatch)
    assert law_p(gradients_of((0, 0, 1)), cells((0, 0, 1))) < P_VALUE


GRID = np.linspace(-40.0, 40.0, 80_001)


def log_density(labels):
    """Return the log density of the released sum at :data:`GRID`."""
    parts = [np.log(p) + norm.logpdf(GRID, m, SIGMA) for m, p in centres(labels).items()]
    return np.logaddexp.reduce(parts, axis=0)


def divergences(p, q):
    """Return Renyi divergences of two log densities at :data:`ORDERS`, the larger direction."""
    step = GRID[1] - GRID[0]
    both = [
        [np.log(np.exp(a * o + b * (1 - o)).sum() * step) / (o - 1) for o in ORDERS]
        for a, b in ((p, q), (q, p))
    ]
    return np.max(both, axis=0)


def worst():
    return worst_over_all_data(log_density, 3, divergences)


def claimed(gamma=GAMMA, sensitivity=1.0):
    return SubsampledGaussian(SIGMA / sensitivity, gamma).rdp(ORDERS)


def test_no_data_set_leaks_more_than_is_claimed_and_the_claim_is_met():
    assert (worst() <= claimed() * (1 + 1e-9)).all()
    # Somebody who is alone leaks exactly what is claimed.
    np.testing.assert_allclose(divergences(log_density((0,)), log_density(())), claimed())


@pytest.mark.parametrize(
    "wrong", [{"gamma": 0.15}, {"sensitivity": 0.5}], ids=["sampling rate", "sensitivity"]
)
def test_a_wrong_claim_is_caught(wrong):
    assert (worst() > claimed(**wrong)).all()
