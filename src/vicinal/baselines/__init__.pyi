from vicinal.baselines._noisy_sgd import NoisySGDClassifier as NoisySGDClassifier
from vicinal.baselines._pate import PATEClassifier as PATEClassifier

__all__: list[str]  # the names above; those below are shared inside vicinal, and may change

from vicinal.baselines._noisy_sgd import NoisySGDSettings as NoisySGDSettings
from vicinal.baselines._pate import PATESettings as PATESettings
