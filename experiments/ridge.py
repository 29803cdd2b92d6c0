"""Private ridge regression by perturbed sufficient statistics, to compare with.

Source: Wang 2018, *Revisiting differentially private linear regression: optimal and adaptive
prediction & estimation in unbounded domain* (AdaSSP), Algorithm 2. For experiments: its noise is
seeded, and nobody is protected by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.accounting import zcdp_budget as budget
from vicinal.mechanisms import public_draws

Floats = npt.NDArray[np.float64]

_FAILURE = 0.05


@dataclass(frozen=True, slots=True)
class AdaSSP:
    """A linear predictor.

    Attributes
    ----------
    weights : float64 (d + 1,)
        The last one is the constant's.
    bound : float
        Rows are cut to this length.
    """

    weights: Floats
    bound: float

    @classmethod
    def fit(
        cls, X: Floats, y: Floats, bound: float, epsilon: float, delta: float, seed: int
    ) -> AdaSSP:
        """Fit to rows cut to length `bound`, and targets in -1..1.

        A third of the budget, as zCDP of Gaussian DP, goes to each of: the smallest eigenvalue of
        X'X, X'X, and X'y. AdaSSP splits epsilon and delta in three; this split is the tighter one.
        """
        rows = extended(X, bound)
        length = math.hypot(bound, 1.0)
        rng, size = public_draws(seed), rows.shape[1]
        sigma = math.sqrt(3 / (2 * budget(epsilon, delta, "gdp")))
        gram, sums = rows.T @ rows, rows.T @ y
        least = float(np.linalg.eigvalsh(gram)[0])
        tail = math.sqrt(2 * math.log(6 / _FAILURE))
        least = max(least + length**2 * sigma * (rng.standard_normal() - tail), 0.0)
        spread = length**2 * sigma * math.sqrt(size * math.log(2 * size**2 / _FAILURE))
        upper = np.triu(rng.standard_normal((size, size)))
        noise = upper + np.triu(upper, 1).T
        noisy_gram = gram + length**2 * sigma * noise
        noisy_sums = sums + length * sigma * rng.standard_normal(size)
        penalty = max(0.0, spread - least)
        weights = np.linalg.solve(noisy_gram + penalty * np.eye(size), noisy_sums)
        return cls(weights.astype(np.float64), bound)

    def predict(self, X: Floats) -> Floats:
        """Return predictions in -1..1, (q,)."""
        return np.clip(extended(X, self.bound) @ self.weights, -1, 1)


def extended(X: Floats, bound: float) -> Floats:
    """Return rows cut to length `bound`, with a constant 1 at the end."""
    length = np.linalg.norm(X, axis=1, keepdims=True)
    cut = X * np.minimum(1, bound / np.maximum(length, 1e-12))
    return np.column_stack([cut, np.ones(len(X))])
