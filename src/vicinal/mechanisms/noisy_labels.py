"""Release of labels only: the class with the most noisy votes, or with the largest score.

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
    """Nondecreasing score functions of the noisy votes, one per class, interpolated from a table.

    The price of a label requires that more votes never lower a score. This holds in floating point,
    too: every operation is monotone, and interpolated values are limited to the end of their cell.

    - `table`, array (c, m): finite scores at the positions `low`, `low + step`, ..., nondecreasing
      along a row, m >= 2. Positions below the first get the first score; beyond the last, the last
      cell is extrapolated linearly.
    - `low`, `step`: first position and spacing of the table, in noise scales.
    - `pull`: noisy votes v with noise scale s are looked up at the position v / s - pull * s.

    Raises InvalidInput if a row decreases or is not finite.
    """

    def __init__(self, table: npt.ArrayLike, low: float, step: float, pull: float) -> None:
        values = np.asarray(table, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
            raise InvalidInput("The 'table' parameter must hold finite scores, (c, m), m >= 2.")
        if (np.diff(values, axis=1) < 0).any():
            raise InvalidInput("The 'table' parameter must hold scores that never decrease.")
        self._table = values
        self._low = low
        self._step = step
        self._pull = pull
        self._classes = np.arange(len(values))

    def __call__(self, votes: npt.ArrayLike, noise: npt.ArrayLike, unit: float = 1.0) -> Floats:
        """Return the score of every class, float64 (q, c).

        - `votes`, (q, c): noisy votes, in units of 1 / `unit` votes.
        - `noise`, (q,): standard deviation of their noise, in the same units.
        - `unit`: number of these units in a vote, such as the grid's steps.
        """
        scale = np.asarray(noise, dtype=np.float64)[:, None]
        position = np.asarray(votes, dtype=np.float64) / scale - self._pull * (scale / unit)
        position = np.maximum((position - self._low) / self._step, 0.0)
        last_cell = self._table.shape[1] - 2
        cell = np.minimum(position, last_cell).astype(np.int64)
        cell_start = self._table[self._classes, cell]
        cell_end = self._table[self._classes, cell + 1]
        scores = cell_start + (cell_end - cell_start) * (position - cell)
        return np.asarray(np.where(cell < last_cell, np.minimum(scores, cell_end), scores))


class NoisyLabels(VoteMechanism):
    """Mechanism that releases only the winning class, at a fraction of the price of noisy votes.

    - `table`: table of the prices of labels; it contains the budget.
    - `scores`, optional: public score functions; the class with the largest score wins. Without
      them, the class with the most noisy votes wins.
    - The other parameters are those of :class:`VoteMechanism`.

    Raises InvalidInput if there are scores and the prices of `table` are valid only for a certain
    number of classes.
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

        Raises InvalidInput if a noise scale is below the 2^22 grid steps for which the price is
        proven.
        """
        scales, rates = self._price_and_account(noise)
        if len(scales) and scales.min() < LINE_GRID:
            raise InvalidInput("The noise scale of a label must be at least 2^22 grid steps.")
        single_rates = self._table.narrow * rates
        cells_per_step = self._table.density / scales
        return LabelRelease(self, scales, rates, single_rates, cells_per_step, self._table.shares)

    def select_classes(self, noisy: Steps, scales: Steps) -> Steps:
        """Return the index of each query's winning class, int64 (q,).

        - `noisy`, int64 (q, c): noisy votes in grid steps.
        - `scales`, int64 (q,): noise scale of each query in grid steps.
        """
        if self._scores is None:
            return np.asarray(noisy.argmax(axis=1))
        return np.asarray(self._scores(noisy, scales, self.grid.steps).argmax(axis=1))


@dataclass(frozen=True, slots=True)
class LabelRelease(BlockRelease):
    """Release of labels."""

    mechanism: NoisyLabels

    def publish(self, votes: Steps) -> Steps:
        """Return the index of the class with the most noisy votes or the largest score, int64 (q,).

        `votes`, int64 (q, c): sums of the contributions in steps; private. Ties, of whole steps or
        of scores, go to the first class.
        """
        return self.mechanism.select_classes(self._add_noise(votes), self.scales)
