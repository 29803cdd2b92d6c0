"""Several runs of one experiment in two numbers."""

from collections.abc import Sequence

import numpy as np


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation of one run among runs; spread 0 for a single run."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), spread
