"""Noise against its exact laws and against OpenDP's samplers.

Every check is also run on a source that is wrong on purpose, and must notice.
"""

import numpy as np
import opendp.prelude as opendp
import pytest

from statistical.laws import FINE, coincidence_p, dependence_p, law_p
from statistical.power import LAW_DRAWS, P_VALUE, SPREAD_DRAWS
from vicinal.noise import NoiseSource
from vicinal.noise.source import MAX_SCALE, SimulatedNoise, SystemNoise

pytestmark = pytest.mark.statistical

opendp.enable_features("contrib")

SCALES = pytest.mark.parametrize("scale", [1, 2, 3, 4, 5, 7, FINE, FINE + 12_345, MAX_SCALE])


class OpenDP(NoiseSource):
    """The oracle: samplers by other people, one vector call for all draws."""

    exact = True

    def discrete_gaussian(self, scale, size):
        # "i64", as `int` means 32 bits to OpenDP, which this noise overflows.
        domain = opendp.vector_domain(opendp.atom_domain(T="i64"))
        sample = opendp.m.make_gaussian(domain, opendp.l2_distance(T="f64"), scale=float(scale))
        return np.asarray(sample([0] * size), dtype=np.int64)


class Wrong(NoiseSource):
    """A source made wrong on purpose; seeded, so that it is caught every time."""

    exact = False

    def __init__(self, draw):
        self._draw = draw
        self._generator = np.random.default_rng(20)

    def discrete_gaussian(self, scale, size):
        return np.rint(self._draw(self._generator, scale, size)).astype(np.int64)


def normal(rng, scale, size):
    return rng.standard_normal(size) * scale


def laplace(rng, scale, size):
    return rng.laplace(0, scale, size)


def scale_off_by_2_percent(rng, scale, size):
    return normal(rng, scale, size) * 0.98


def coarse(rng, scale, size):
    return np.rint(normal(rng, scale, size) / 16) * 16


def shifted_by_a_fiftieth(rng, scale, size):
    return normal(rng, scale, size) + scale / 50


def cut_at_3_scales(rng, scale, size):
    draws = normal(rng, scale, 2 * size)
    return draws[np.abs(draws) < 3 * scale][:size]


def zero_twice_as_likely(rng, scale, size):
    draws = SystemNoise().discrete_gaussian(scale, size)
    chance = 1 / (scale * np.sqrt(2 * np.pi))
    zeros = rng.random(size) < chance / (1 - chance)
    return np.where(zeros, 0, draws)


@SCALES
def test_noise_follows_the_exact_law(scale):
    assert law_p(SystemNoise(), scale, LAW_DRAWS) > P_VALUE


@pytest.mark.slow
@pytest.mark.parametrize("scale", [7, FINE])
def test_the_scale_is_right_to_2_percent(scale):
    """Fails if the noise is 2 % too small (or large): the charges would not pay for it."""
    assert law_p(SystemNoise(), scale, SPREAD_DRAWS) > P_VALUE


@pytest.mark.parametrize(
    ("draw", "scale", "size"),
    [
        pytest.param(normal, 1, LAW_DRAWS, id="rounded normal at scale 1"),
        pytest.param(scale_off_by_2_percent, 7, SPREAD_DRAWS, id="2 % off at 7"),
        pytest.param(scale_off_by_2_percent, FINE, SPREAD_DRAWS, id="2 % off"),
        pytest.param(coarse, FINE, LAW_DRAWS, id="a grid 16 times too coarse"),
        pytest.param(shifted_by_a_fiftieth, FINE, SPREAD_DRAWS, id="off centre"),
        pytest.param(cut_at_3_scales, FINE, LAW_DRAWS, id="no tails"),
        pytest.param(laplace, FINE, LAW_DRAWS, id="Laplace for Gaussian"),
        pytest.param(zero_twice_as_likely, 2, LAW_DRAWS, id="zero counted twice"),
    ],
)
def test_a_wrong_law_is_caught(draw, scale, size):
    assert law_p(Wrong(draw), scale, size) < P_VALUE


def test_simulated_noise_passes_at_the_scales_in_use():
    """Fails if experiments in simulation mode see other noise than the real one."""
    assert law_p(SimulatedNoise(1), FINE, SPREAD_DRAWS) > P_VALUE


@pytest.mark.parametrize("scale", [1, 7, MAX_SCALE])
def test_the_oracle_follows_the_exact_law(scale):
    assert law_p(OpenDP(), scale, LAW_DRAWS) > P_VALUE


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


def test_draws_are_independent():
    """Fails if draws repeat or are correlated, inside a call or from call to call."""
    assert dependence_p(SystemNoise(), LAW_DRAWS) > P_VALUE
    assert coincidence_p(SystemNoise(), LAW_DRAWS) > P_VALUE


def test_draws_of_many_small_calls_are_those_of_a_large_one():
    """Fails if handing out in pieces, or where a batch ends, changes law or independence."""
    for scale in (1, FINE):
        assert law_p(InSmallCalls(), scale, LAW_DRAWS) > P_VALUE
    assert dependence_p(InSmallCalls(), LAW_DRAWS) > P_VALUE
    assert coincidence_p(InSmallCalls(), LAW_DRAWS) > P_VALUE


@pytest.mark.parametrize("draw", [each_twice, anew_every_call, shared_spread])
def test_dependent_draws_are_caught(draw):
    assert dependence_p(Wrong(draw), LAW_DRAWS) < P_VALUE


@pytest.mark.parametrize("draw", [each_twice, in_stretches, anew_every_call])
def test_repeated_draws_are_caught(draw):
    assert coincidence_p(Wrong(draw), LAW_DRAWS) < P_VALUE


def test_simulated_noise_repeats_and_is_marked():
    first, again, other = (SimulatedNoise(s).discrete_gaussian(FINE, 50) for s in (4, 4, 5))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.dtype == np.int64
    assert SimulatedNoise(4).exact is False
    assert SystemNoise().exact is True
