"""Release of labels only: the class with the largest noisy sum of votes, or the largest score.

Scores are public functions of the noisy votes, for classes of unequal frequency or cost.

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
from vicinal.mechanisms.charging import VotePrices
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
    - `shift_per_scale`: noisy votes v with noise scale s, both in votes, are looked up at the
      position v / s - `shift_per_scale` * s.

    Raises InvalidInput if a row decreases or is not finite.
    """

    def __init__(
        self, table: npt.ArrayLike, low: float, step: float, shift_per_scale: float
    ) -> None:
        values = np.asarray(table, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] < 2 or not np.isfinite(values).all():
            raise InvalidInput("The 'table' parameter must hold finite scores, (c, m), m >= 2.")
        if (np.diff(values, axis=1) < 0).any():
            raise InvalidInput("The 'table' parameter must hold scores that never decrease.")
        self._table = values
        self._low = low
        self._step = step
        self._shift_per_scale = shift_per_scale
        self._classes = np.arange(len(values))

    def __call__(
        self, votes: npt.ArrayLike, noise_std: npt.ArrayLike, units_per_vote: float = 1.0
    ) -> Floats:
        """Return the score of every class, float64 (q, c).

        - `votes`, (q, c): noisy votes, in any unit, such as grid steps.
        - `noise_std`, (q,): standard deviation of their noise, in the same unit.
        - `units_per_vote`: number of these units in one vote.
        """
        scale = np.asarray(noise_std, dtype=np.float64)[:, None]
        position = np.asarray(votes, dtype=np.float64) / scale - self._shift_per_scale * (
            scale / units_per_vote
        )
        position = np.maximum((position - self._low) / self._step, 0.0)
        last_cell = self._table.shape[1] - 2
        cell = np.minimum(position, last_cell).astype(np.int64)
        cell_start = self._table[self._classes, cell]
        cell_end = self._table[self._classes, cell + 1]
        scores = cell_start + (cell_end - cell_start) * (position - cell)
        return np.asarray(np.where(cell < last_cell, np.minimum(scores, cell_end), scores))


class NoisyLabels(VoteMechanism):
    """Mechanism that releases only the winning class, at a fraction of the price of noisy votes.

    - `table`: the prices of labels; its budget is the zCDP of a subject's full budget.
    - `scores`: public score functions; the class with the largest score wins. None: the class with
      the largest noisy sum of votes wins.

    The other arguments are those of :class:`~vicinal.mechanisms.votes.VoteMechanism`. Raises
    InvalidInput if there are scores but `table` is valid for one number of classes only.
    """

    label_only = True

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        n_classes: int,
        table: ChargeTable,
        grid: VoteGrid,
        noise_source: NoiseSource,
        slack_accountant: DeltaSlackAccountant,
        scores: ClassScores | None = None,
    ) -> None:
        if scores is not None and table.classes is not None:
            raise InvalidInput("The 'table' parameter must hold for any classes, as scores differ.")
        super().__init__(
            kernel, n_features, n_classes, table.budget, grid, noise_source, slack_accountant
        )
        self._table = table
        self.scores = scores

    def prepare_release(self, noise_std: Floats) -> LabelRelease:
        """Return the prepared release of a block of q queries, after charging its delta slack.

        `noise_std`, float64 (q,): public noise scale of every query, in votes. Raises InvalidInput
        if one is below the 2^22 grid steps for which the price is proven, and PrivacyRefused if the
        delta slack is used up.
        """
        scales, rates = self._convert_noise_and_charge_slack(noise_std)
        if len(scales) and scales.min() < LINE_GRID:
            raise InvalidInput("The noise scale of a label must be at least 2^22 grid steps.")
        single_rates = self._table.squared_shift_factor * rates
        cells_per_step = self._table.cells_per_shift / scales
        shares = self._table.shares
        prices = VotePrices(scales, rates, single_rates, cells_per_step, shares, label_only=True)
        return LabelRelease(self, prices)


@dataclass(frozen=True, slots=True)
class LabelRelease(BlockRelease):
    """Release of the winning classes of one block of queries."""

    mechanism: NoisyLabels

    def publish(self, vote_sums: Steps) -> Steps:
        """Return the index of each query's winning class, int64 (q,); ties go to the first class.

        `vote_sums`, int64 (q, c): sums of the contributions in steps; private.
        """
        scores: Steps | Floats = self._add_noise(vote_sums)
        if self.mechanism.scores is not None:
            scores = self.mechanism.scores(scores, self.scales, self.mechanism.grid.steps)
        return np.asarray(scores.argmax(axis=1))
