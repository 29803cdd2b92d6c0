from vicinal.baselines._noisy_sgd import NoisySGDClassifier as NoisySGDClassifier
from vicinal.baselines._pate import PATEClassifier as PATEClassifier
