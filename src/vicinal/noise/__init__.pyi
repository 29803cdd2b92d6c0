from vicinal.noise.source import NoiseSource as NoiseSource
