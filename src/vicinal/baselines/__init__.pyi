from vicinal.baselines.noisy_sgd import NoisySGDClassifier as NoisySGDClassifier
from vicinal.baselines.pate import PATEClassifier as PATEClassifier
