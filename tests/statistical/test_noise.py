"""Noise against its exact laws and against OpenDP's samplers.

Every check is also run on a source that is wrong on purpose, and must notice.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import opendp.prelude as opendp
import pytest

from statistical.laws import (
    FINE,
    GAUSSIAN,
    LAPLACE,
    cells_of,
    coincidence_p,
    dependence_p,
    law_p,
    two_samples_p,
)
from statistical.power import LAW_DRAWS, ORACLE_DRAWS, P_VALUE, SPREAD_DRAWS
from vicinal.noise import NoiseSource, SimulatedNoise, SystemNoise
from vicinal.noise._source import MAX_SCALE

pytestmark = pytest.mark.statistical

opendp.enable_features("contrib")

BOTH = pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
SCALES = pytest.mark.parametrize("scale", [1, 2, 3, 4, 5, 7, FINE, FINE + 12_345, MAX_SCALE])


class OpenDP(NoiseSource):
    """The oracle: samplers by other people, one vector call for all draws.

    They take longer than ours, so whoever asks for as many of one law again gets the same ones.
    """

    exact = True

    def discrete_gaussian(self, scale, size):
        return drawn(opendp.m.make_gaussian, opendp.l2_distance(T="f64"), scale, size)

    def discrete_laplace(self, scale, size):
        return drawn(opendp.m.make_laplace, opendp.l1_distance(T="i64"), scale, size)


@cache
def drawn(make, metric, scale, size):
    """Return draws of OpenDP; "i64", as `int` means 32 bits to it, which this noise overflows."""
    domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
    return np.asarray(make(domain, metric, scale=float(scale))([0] * size), dtype=np.int64)


class Wrong(NoiseSource):
    """A source made wrong on purpose; seeded, so that it is caught every time."""

    exact = False

    def __init__(self, draw):
        self._draw = draw
        self._generator = np.random.default_rng(20)

    def discrete_gaussian(self, scale, size):
        return np.rint(self._draw(self._generator, scale, size)).astype(np.int64)

    discrete_laplace = discrete_gaussian


def normal(rng, scale, size):
    return rng.standard_normal(size) * scale


def laplace(rng, scale, size):
    return rng.laplace(0, scale, size)


def scale_off_by_2_percent(rng, scale, size):
    return normal(rng, scale, size) * 0.98


def laplace_off_by_3_percent(rng, scale, size):
    return laplace(rng, scale, size) * 0.97


def coarse(rng, scale, size):
    return np.rint(normal(rng, scale, size) / 16) * 16


def shifted_by_a_fiftieth(rng, scale, size):
    return normal(rng, scale, size) + scale / 50


def cut_at_3_scales(rng, scale, size):
    draws = normal(rng, scale, 2 * size)
    return draws[np.abs(draws) < 3 * scale][:size]


def zero_twice_as_likely(rng, scale, size):
    draws = SystemNoise().discrete_laplace(scale, size)
    zeros = rng.random(size) < np.tanh(1 / (2 * scale)) / 2
    return np.where(zeros, 0, draws)


# ---------------------------------------------------------------- the law


@BOTH
@SCALES
def test_noise_follows_the_exact_law(law, scale):
    """Fails if probabilities, spread, tails or lowest bits are not those of the law."""
    assert law_p(SystemNoise(), law, scale, LAW_DRAWS) > P_VALUE


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("scale", [7, FINE])
def test_the_scale_is_right_to_2_percent(law, scale):
    """Fails if the noise is 2 % too small (or large): the charges would not pay for it."""
    assert law_p(SystemNoise(), law, scale, SPREAD_DRAWS) > P_VALUE


@pytest.mark.parametrize(
    ("law", "draw", "scale", "size"),
    [
        pytest.param(GAUSSIAN, normal, 1, LAW_DRAWS, id="rounded normal at scale 1"),
        pytest.param(GAUSSIAN, scale_off_by_2_percent, 7, SPREAD_DRAWS, id="2 % off at 7"),
        pytest.param(GAUSSIAN, scale_off_by_2_percent, FINE, SPREAD_DRAWS, id="2 % off"),
        pytest.param(GAUSSIAN, coarse, FINE, LAW_DRAWS, id="a grid 16 times too coarse"),
        pytest.param(GAUSSIAN, shifted_by_a_fiftieth, FINE, SPREAD_DRAWS, id="off centre"),
        pytest.param(GAUSSIAN, cut_at_3_scales, FINE, LAW_DRAWS, id="no tails"),
        pytest.param(GAUSSIAN, laplace, FINE, LAW_DRAWS, id="Laplace for Gaussian"),
        pytest.param(LAPLACE, laplace, 1, LAW_DRAWS, id="rounded Laplace at scale 1"),
        pytest.param(LAPLACE, zero_twice_as_likely, 2, LAW_DRAWS, id="zero counted twice"),
        pytest.param(LAPLACE, laplace_off_by_3_percent, FINE, SPREAD_DRAWS, id="Laplace 3 % off"),
        pytest.param(LAPLACE, normal, FINE, LAW_DRAWS, id="Gaussian for Laplace"),
    ],
)
def test_a_wrong_law_is_caught(law, draw, scale, size):
    """Fails if the checks above are too weak to notice these."""
    assert law_p(Wrong(draw), law, scale, size) < P_VALUE


@BOTH
def test_simulated_noise_passes_at_the_scales_in_use(law):
    """Fails if experiments in simulation mode see other noise than the real one."""
    assert law_p(SimulatedNoise(1), law, FINE, SPREAD_DRAWS) > P_VALUE


# ---------------------------------------------------------------- the oracle


def against_opendp(source, law, scale):
    theirs = LAW_DRAWS if scale == 1 else ORACLE_DRAWS
    draws, others = (
        getattr(each, law.method)(scale, size)
        for each, size in ((source, LAW_DRAWS), (OpenDP(), theirs))
    )
    return two_samples_p(draws, others, cells_of(law, scale))


@BOTH
@SCALES
def test_noise_has_the_law_of_opendp(law, scale):
    """Fails if two independent implementations of the papers disagree."""
    assert against_opendp(SystemNoise(), law, scale) > P_VALUE


@pytest.mark.parametrize(
    ("law", "draw", "scale"),
    [(GAUSSIAN, normal, 1), (LAPLACE, laplace, 1), (LAPLACE, normal, FINE)],
    ids=["rounded normal", "rounded Laplace", "Gaussian for Laplace"],
)
def test_a_law_that_is_not_opendps_is_caught(law, draw, scale):
    """Fails if the comparison of two samples is too weak."""
    assert against_opendp(Wrong(draw), law, scale) < P_VALUE


@BOTH
@pytest.mark.parametrize("scale", [1, 7, MAX_SCALE])
def test_the_oracle_follows_the_exact_law(law, scale):
    """Fails if the oracle itself is wrong, or used wrongly."""
    assert law_p(OpenDP(), law, scale, LAW_DRAWS) > P_VALUE


# ---------------------------------------------------------------- independence


def each_twice(rng, scale, size):
    return np.repeat(normal(rng, scale, size), 2)[:size]


def in_stretches(rng, scale, size):
    return np.tile(normal(rng, scale, size // 7 + 1), 7)[:size]


def anew_every_call(_, scale, size):
    return normal(np.random.default_rng(3), scale, size)


def shared_spread(rng, scale, size):
    """Uncorrelated, with the right law on average over calls, but neighbours share a size."""
    factors = np.repeat(rng.choice([0.5, np.sqrt(1.75)], size=size // 2 + 1), 2)[:size]
    return normal(rng, scale, size) * factors


class InSmallCalls(NoiseSource):
    """Draws of a source as queries ask for them: ten at a time, so from many batches."""

    exact = False

    def __init__(self):
        self._source = SystemNoise()

    def discrete_gaussian(self, scale, size):
        return np.concatenate(
            [self._source.discrete_gaussian(scale, 10) for _ in range(size // 10)]
        )


@BOTH
def test_draws_are_independent(law):
    """Fails if draws repeat or are correlated, inside a call or from call to call."""
    assert dependence_p(SystemNoise(), law, LAW_DRAWS) > P_VALUE
    assert coincidence_p(SystemNoise(), law, LAW_DRAWS) > P_VALUE


def test_draws_of_many_small_calls_are_those_of_a_large_one():
    """Fails if handing out in pieces, or where a batch ends, changes law or independence."""
    for scale in (1, FINE):
        assert law_p(InSmallCalls(), GAUSSIAN, scale, LAW_DRAWS) > P_VALUE
    assert dependence_p(InSmallCalls(), GAUSSIAN, LAW_DRAWS) > P_VALUE
    assert coincidence_p(InSmallCalls(), GAUSSIAN, LAW_DRAWS) > P_VALUE


@pytest.mark.parametrize("draw", [each_twice, anew_every_call, shared_spread])
def test_dependent_draws_are_caught(draw):
    """Fails if the correlations are too weak a check."""
    assert dependence_p(Wrong(draw), GAUSSIAN, LAW_DRAWS) < P_VALUE


@pytest.mark.parametrize("draw", [each_twice, in_stretches, anew_every_call])
def test_repeated_draws_are_caught(draw):
    """Fails if noise that comes again, at whatever distance, would pass."""
    assert coincidence_p(Wrong(draw), GAUSSIAN, LAW_DRAWS) < P_VALUE


@BOTH
def test_simulated_noise_repeats_and_is_marked(law):
    """Fails if a seed does not fix the noise, or if such noise passed for the real one."""
    first, again, other = (getattr(SimulatedNoise(s), law.method)(FINE, 50) for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.dtype == np.int64
    assert SimulatedNoise(4).exact is False
    assert SystemNoise().exact is True
