"""The only door to randomness: exact discrete noise, coins, and a marked simulation mode.

Only `vicinal.mechanisms` may import this package.
"""

from vicinal.noise._bernoulli import bernoulli, bernoulli_probability
from vicinal.noise._keys import fresh_key
from vicinal.noise._source import NoiseSource, SimulatedNoise
from vicinal.noise._system import SystemNoise

__all__ = [
    "NoiseSource",
    "SimulatedNoise",
    "SystemNoise",
    "bernoulli",
    "bernoulli_probability",
    "fresh_key",
]
