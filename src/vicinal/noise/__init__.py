"""The only door to randomness: exact discrete Gaussian noise, coins, and a marked simulation mode.

Only `vicinal.mechanisms` may import this package.
"""

from vicinal.noise.coins import coins
from vicinal.noise.keys import fresh_key
from vicinal.noise.source import NoiseSource, SimulatedNoise, SystemNoise

__all__ = ["NoiseSource", "SimulatedNoise", "SystemNoise", "coins", "fresh_key"]
