"""Sources of randomness of the mechanisms: system entropy, or a seed without any guarantee."""

from abc import ABC, abstractmethod

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools, Indices
from vicinal.mechanisms import injected_sources
from vicinal.noise.bernoulli import sample_bernoulli
from vicinal.noise.poisson_sample import draw_poisson_sample
from vicinal.noise.source import NoiseSource, SimulatedNoise, SystemNoise, fresh_key

__all__ = [
    "NoiseSource",
    "SimulatedNoise",
    "SystemNoise",
    "create_noise_source",
    "fresh_key",
    "public_draws",
]


def create_noise_source(simulation_seed: int | None = None) -> NoiseSource:
    """Return a source of exact noise from system entropy, or of repeatable noise if given a seed.

    `simulation_seed`: the seed, an integer >= 0, or None. Results made with a seed have no privacy
    guarantee; ``NoiseSource.exact`` is then False. In the context of
    :func:`vicinal.testing.noise_from`, its source is returned, with or without a seed.

    Examples
    --------
    >>> from vicinal.mechanisms import create_noise_source
    >>> create_noise_source().exact
    True
    """
    injected = injected_sources.noise_sources.get_innermost()
    if injected is not None:
        return injected
    return SystemNoise() if simulation_seed is None else SimulatedNoise(simulation_seed)


def public_draws(seed: int | None = None) -> np.random.Generator:  # noqa: TID251 (a type)
    """Return a generator of public random numbers, for example for synthetic public rows.

    The privacy guarantee must not depend on these numbers being secret. `seed`: an integer >= 0, or
    None for system entropy.

    Examples
    --------
    >>> from vicinal.mechanisms import public_draws
    >>> public_draws(3).integers(10) == public_draws(3).integers(10)
    np.True_
    """
    checked = None if seed is None else checks.check_integer("seed", seed, minimum=0)
    generator_seed = int.from_bytes(fresh_key()) if checked is None else checked
    return np.random.default_rng(generator_seed)  # noqa: TID251 (public numbers need no secrecy)


class BernoulliSource(ABC):
    """Source of independent Bernoulli samples.

    `exact`: whether probabilities are exact and samples secret; if not, there is no guarantee.
    """

    exact: bool
    ordered: bool = True
    """Whether the samples depend on the order of calls; if not, threads may share the source."""

    @abstractmethod
    def bernoulli(self, probability: float, size: int) -> Bools:
        """Return `size` samples, bool (size,), each true with at most `probability`, in [0, 1]."""

    def sample(self, probability: float, size: int) -> Indices:
        """Return the indices of the true ones among `size` samples, int64, ascending.

        Each sample is true with `probability`, in [0, 1].
        """
        return np.flatnonzero(self.bernoulli(probability, size))


class SystemBernoulli(BernoulliSource):
    """Exact samples from system entropy, see :mod:`vicinal.noise.bernoulli`."""

    exact = True
    ordered = False

    def bernoulli(self, probability: float, size: int) -> Bools:
        """Return `size` exact samples, bool (size,), each true with `probability`."""
        return sample_bernoulli(probability, size)

    def sample(self, probability: float, size: int) -> Indices:
        """Return the indices of the true ones among `size` samples, int64, ascending.

        Each sample is true with `probability`; the gaps between true ones are sampled.
        """
        return draw_poisson_sample(probability, size)


class SimulatedBernoulli(BernoulliSource):
    """Repeatable samples for experiments from a `seed` >= 0, without any guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        seed = checks.check_integer("seed", seed, minimum=0)
        self._generator = np.random.default_rng(seed)  # noqa: TID251 (simulation)

    def bernoulli(self, probability: float, size: int) -> Bools:
        """Return `size` repeatable samples, bool (size,), each true with `probability`."""
        return np.asarray(self._generator.random(size) < probability)


def create_sampler(simulation_seed: int | None = None) -> BernoulliSource:
    """Return a source of Bernoulli samples: exact, or repeatable ones from a `simulation_seed`.

    In the context of :func:`vicinal.testing.coins_from`, its source is returned.
    """
    injected: BernoulliSource | None = injected_sources.samplers.get_innermost()
    if injected is not None:
        return injected
    return SystemBernoulli() if simulation_seed is None else SimulatedBernoulli(simulation_seed)
