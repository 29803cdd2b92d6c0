"""Where mechanisms get their noise: the system's entropy, or a seed that forfeits the guarantee."""

from __future__ import annotations

from vicinal.noise import NoiseSource, SimulatedNoise, SystemNoise, fresh_key

__all__ = ["fresh_key", "randomness"]


def randomness(simulation_seed: int | None = None) -> NoiseSource:
    """Return exact noise from system entropy, or repeatable noise if a seed is given.

    Results made with a seed carry no guarantee; ``NoiseSource.exact`` tells the two apart.
    """
    return SystemNoise() if simulation_seed is None else SimulatedNoise(simulation_seed)
