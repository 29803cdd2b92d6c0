"""Where mechanisms get their noise: the system's entropy, or a seed that forfeits the guarantee."""

from __future__ import annotations

import numpy as np

from vicinal import _checks
from vicinal.noise import NoiseSource, SimulatedNoise, SystemNoise, fresh_key

__all__ = ["fresh_key", "public_draws", "randomness"]


def randomness(simulation_seed: int | None = None) -> NoiseSource:
    """Return exact noise from system entropy, or repeatable noise if a seed is given.

    Results made with a seed carry no guarantee; ``NoiseSource.exact`` tells the two apart.

    Examples
    --------
    >>> from vicinal.mechanisms import randomness
    >>> randomness().exact
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
    checked = None if seed is None else _checks.integer("seed", seed, least=0)
    start = int.from_bytes(fresh_key()) if checked is None else checked
    return np.random.default_rng(start)  # noqa: TID251 (public draws protect nobody)
