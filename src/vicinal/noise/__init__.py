"""The only door to randomness: exact discrete noise, coins, and a marked simulation mode.

Only `vicinal.mechanisms` may import this package.
"""

from vicinal.noise._bernoulli import bernoulli, bernoulli_probability
from vicinal.noise._poisson_sample import poisson_sample
from vicinal.noise._source import NoiseSource, SimulatedNoise, SystemNoise, fresh_key

__all__ = [
    "NoiseSource",
    "SimulatedNoise",
    "SystemNoise",
    "bernoulli",
    "bernoulli_probability",
    "fresh_key",
    "poisson_sample",
]
