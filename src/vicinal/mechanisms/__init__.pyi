from vicinal.mechanisms.noise_sources import create_noise_source as create_noise_source
from vicinal.mechanisms.noise_sources import public_draws as public_draws
from vicinal.mechanisms.votes import DeltaSlackAccountant as DeltaSlackAccountant
from vicinal.mechanisms.votes import VoteGrid as VoteGrid
from vicinal.noise.source import NoiseSource as NoiseSource
