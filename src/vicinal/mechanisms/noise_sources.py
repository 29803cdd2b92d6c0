"""Where mechanisms get their noise: the system's entropy, or a seed that forfeits the guarantee."""

from abc import ABC, abstractmethod

import numpy as np

from vicinal import checks
from vicinal.arrays import Bools, Places
from vicinal.noise.bernoulli import sample_bernoulli
from vicinal.noise.poisson_sample import poisson_sample
from vicinal.noise.source import NoiseSource, SimulatedNoise, SystemNoise, fresh_key

__all__ = ["NoiseSource", "create_noise_source", "fresh_key", "public_draws"]


def create_noise_source(simulation_seed: int | None = None) -> NoiseSource:
    """Return exact noise from system entropy, or repeatable noise if a seed is given.

    Results made with a seed carry no guarantee; ``NoiseSource.exact`` tells the two apart.

    Examples
    --------
    >>> from vicinal.mechanisms import create_noise_source
    >>> create_noise_source().exact
    True
    """
    return SystemNoise() if simulation_seed is None else SimulatedNoise(simulation_seed)


def public_draws(seed: int | None = None) -> np.random.Generator:  # noqa: TID251 (a type)
    """Return a generator for draws that anybody may see and repeat: made-up public rows, say.

    Nothing private may depend on them, and no privacy hangs on them. A seed carries no guarantee
    and breaks none.

    Examples
    --------
    >>> from vicinal.mechanisms import public_draws
    >>> public_draws(3).integers(10) == public_draws(3).integers(10)
    np.True_
    """
    checked = None if seed is None else checks.check_integer("seed", seed, least=0)
    start = int.from_bytes(fresh_key()) if checked is None else checked
    return np.random.default_rng(start)  # noqa: TID251 (public draws protect nobody)


class BernoulliSource(ABC):
    """Draws independent bits; only a source whose `exact` is True carries a guarantee."""

    exact: bool
    ordered: bool = True
    """Whether draws depend on the order of calls; if not, threads may draw side by side."""

    @abstractmethod
    def bernoulli(self, probability: float, size: int) -> Bools:
        """Return `size` draws, bool (size,), each true with at most `probability`, 0 to 1."""

    def sample(self, probability: float, size: int) -> Places:
        """Return the positions of those draws of `size` that are true, int64 ascending."""
        return np.flatnonzero(self.bernoulli(probability, size))


class SystemBernoulli(BernoulliSource):
    """Draws from the system's entropy, see :func:`vicinal.noise.bernoulli`."""

    exact = True
    ordered = False

    def bernoulli(self, probability: float, size: int) -> Bools:
        return sample_bernoulli(probability, size)

    def sample(self, probability: float, size: int) -> Places:
        return poisson_sample(probability, size)


class SimulatedBernoulli(BernoulliSource):
    """Repeatable draws for experiments, carrying no guarantee."""

    exact = False

    def __init__(self, seed: int) -> None:
        seed = checks.check_integer("seed", seed, least=0)
        self._generator = np.random.default_rng(seed)  # noqa: TID251 (a simulation protects nobody)

    def bernoulli(self, probability: float, size: int) -> Bools:
        return np.asarray(self._generator.random(size) < probability)


def bernoulli_source(simulation_seed: int | None = None) -> BernoulliSource:
    """Return draws from system entropy, or repeatable ones if a seed is given."""
    return SystemBernoulli() if simulation_seed is None else SimulatedBernoulli(simulation_seed)
