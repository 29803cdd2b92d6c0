"""Public functions of each class's noisy votes, none of them decreasing: what decides a label.

Proof note: votes.md, "Labels by scores"; ../accounting/label_only.md, section 7.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal._arrays import Floats
from vicinal.errors import InvalidInput


class ClassScores:
    """One function for each class, linear between the values of a table.

    In floating point, too, more votes never give a lower score: every step of the way is monotone,
    and what is between two values of the table stays between them. The price of a label needs it.

    Parameters
    ----------
    table : array (c, m)
        Scores at `low`, `low + step`, ..., not decreasing along a row, finite, m >= 2. Below the
        first they stay; beyond the last they go on as between the last two.
    low, step : float
        Where the table begins, in noise scales, and how far its values lie apart.
    pull : float
        Noisy votes v of noise s are looked up at v / s - pull * s: one public number a query.

    Raises
    ------
    InvalidInput
        If a row decreases or is not finite.
    """

    def __init__(self, table: npt.ArrayLike, low: float, step: float, pull: float) -> None:
        values = np.asarray(table, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
            raise InvalidInput("The 'table' parameter must hold finite scores, (c, m), m >= 2.")
        if (np.diff(values, axis=1) < 0).any():
            raise InvalidInput("The 'table' parameter must hold scores that never decrease.")
        self._table, self._low, self._step, self._pull = values, low, step, pull
        self._classes = np.arange(len(values))

    def __call__(self, votes: npt.ArrayLike, noise: npt.ArrayLike, unit: float = 1.0) -> Floats:
        """Return the scores of noisy votes, float64 (q, c).

        `votes`, (q, c): noisy votes, in steps of `unit` of them. `noise`, (q,): standard deviation
        of their noise, in the same steps. `unit`: steps in a vote.
        """
        scale = np.asarray(noise, dtype=np.float64)[:, None]
        place = np.asarray(votes, dtype=np.float64) / scale - self._pull * (scale / unit)
        place = np.maximum((place - self._low) / self._step, 0.0)
        last = self._table.shape[1] - 2
        cell = np.minimum(place, last).astype(np.int64)
        start, end = self._table[self._classes, cell], self._table[self._classes, cell + 1]
        scores = start + (end - start) * (place - cell)
        return np.asarray(np.where(cell < last, np.minimum(scores, end), scores))
