from vicinal.noise._source import NoiseSource as NoiseSource

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.noise._bernoulli import bernoulli as bernoulli
from vicinal.noise._bernoulli import bernoulli_probability as bernoulli_probability
from vicinal.noise._poisson_sample import poisson_sample as poisson_sample
from vicinal.noise._source import MAX_SCALE as MAX_SCALE
from vicinal.noise._source import SimulatedNoise as SimulatedNoise
from vicinal.noise._source import SystemNoise as SystemNoise
from vicinal.noise._source import fresh_key as fresh_key
