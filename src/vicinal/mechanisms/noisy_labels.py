"""Only the class of the most noisy votes, or of the largest score, leaves.

Proof notes: votes.md, "Labels alone" and "Labels by scores"; ../accounting/label_only.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.accounting.label_filter import ChargeTable
from vicinal.accounting.label_only import LINE_GRID
from vicinal.arrays import Floats, Steps
from vicinal.errors import InvalidInput
from vicinal.mechanisms.votes import BlockRelease, DeltaSlackAccountant, VoteGrid, VoteMechanism
from vicinal.neighbours.kernels import Kernel
from vicinal.noise.source import NoiseSource


class ClassScores:
    """One function for each class, linear between the values of a table.

    In floating point, too, more votes never give a lower score: every step of the way is monotone,
    and what is between two values of the table stays between them. The price of a label needs it.

    - `table`, array (c, m): scores at `low`, `low + step`, ..., not decreasing along a row, finite,
      m >= 2. Below the first they stay; beyond the last they go on as between the last two.
    - `low`, `step`: where the table begins, in noise scales, and how far its values lie apart.
    - `pull`: noisy votes v of noise s are looked up at v / s - pull * s: one public number a query.

    Raises InvalidInput if a row decreases or is not finite.
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


class NoisyLabels(VoteMechanism):
    """Only the class with the most noisy votes leaves, which costs a share of what votes cost.

    - `table`: shares of the price, and the budget. The others are the attributes of
      :class:`VoteMechanism`.
    - `scores`, optional: the class of the largest score leaves instead. Public.

    Raises InvalidInput if there are scores, and the price holds for the number of classes only.
    """

    label_only = True

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        n_classes: int,
        table: ChargeTable,
        grid: VoteGrid,
        noise: NoiseSource,
        meter: DeltaSlackAccountant,
        scores: ClassScores | None = None,
    ) -> None:
        if scores is not None and table.classes is not None:
            raise InvalidInput("The 'table' parameter must hold for any classes, as scores differ.")
        super().__init__(kernel, n_features, n_classes, table.budget, grid, noise, meter)
        self._table = table
        self._scores = scores

    def release(self, noise: Floats) -> LabelRelease:
        """Return the release of one block of queries, see :meth:`VoteMechanism.release`.

        Raises InvalidInput if a noise scale is below the 2^22 steps that the proof of the price
        needs.
        """
        scales, rates = self._prices(noise)
        if len(scales) and scales.min() < LINE_GRID:
            raise InvalidInput("The noise scale of a label must be at least 2^22 grid steps.")
        single, cells = self._table.narrow * rates, self._table.density / scales
        return LabelRelease(self, scales, rates, single, cells, self._table.shares)

    def places(self, noisy: Steps, scales: Steps) -> Steps:
        """Return the classes that win, int64 (q,): of most votes, or of the largest score."""
        if self._scores is None:
            return np.asarray(noisy.argmax(axis=1))
        return np.asarray(self._scores(noisy, scales, self.grid.steps).argmax(axis=1))


@dataclass(frozen=True, slots=True)
class LabelRelease(BlockRelease):
    """A release of labels."""

    mechanism: NoisyLabels

    def publish(self, votes: Steps) -> Steps:
        """Return the position of the class with the most noisy votes, or score, int64 (q,).

        Ties, in whole steps or of scores, go to the first class.
        """
        return self.mechanism.places(self._noisy(votes), self.scales)
