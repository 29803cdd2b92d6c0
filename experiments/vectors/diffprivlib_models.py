"""diffprivlib's linear regression, where it is installed, to compare with.

Source: Holohan, Braghin, Mac Aonghusa & Levacher 2019; the functional mechanism of Zhang et al.
2012. Its guarantee is pure epsilon, for one record.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any


def linear_regression(
    epsilon: float, cut: float, bounds: tuple[float, float], seed: int
) -> Any | None:
    """Return it for features within -`cut`..`cut` and targets within bounds; None without it."""
    # Version 0.6.6 imports its forests, which newer versions of scikit-learn do not load.
    forests = ModuleType("diffprivlib.models.forest")
    forests.RandomForestClassifier = forests.DecisionTreeClassifier = None  # type: ignore[attr-defined]
    sys.modules.setdefault(forests.__name__, forests)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models = import_module("diffprivlib.models")
    except ImportError:
        return None
    return models.LinearRegression(
        epsilon=epsilon, bounds_X=(-cut, cut), bounds_y=bounds, random_state=seed
    )
