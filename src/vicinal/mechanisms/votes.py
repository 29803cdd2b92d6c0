"""Noisy votes: kernel-weighted votes of the neighbours, charged to each subject exactly.

Proof note: votes.md. Source: ZZGW23 Algorithm 3; individual filter of Feldman & Zrnic 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.accounting.filter import unit_rate
from vicinal.mechanisms.grid import Grid, SlackMeter
from vicinal.mechanisms.people import People
from vicinal.mechanisms.walk import charge_votes
from vicinal.neighbours import Kernel, Neighbours
from vicinal.noise import NoiseSource

FloatVotes = npt.NDArray[np.float64]
StepVotes = npt.NDArray[np.int64]


class NoisyVotes:
    """The mechanism of one classifier: kernel, classes, budget and grid are fixed and public.

    Parameters
    ----------
    kernel : Kernel
        Its table of values, rounded down to whole steps, gives the weights.
    n_features, n_classes : int
        Dimensions of a record's features and of a vote.
    budget : float
        B, the zCDP that a subject's full budget stands for.
    grid : Grid
        The grid on which votes and noise live.
    noise : NoiseSource
        Where noise comes from.
    slack : SlackMeter
        Meters what the grid costs; refuses a release before anybody is charged for it.
    """

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        n_classes: int,
        budget: float,
        grid: Grid,
        noise: NoiseSource,
        slack: SlackMeter,
    ) -> None:
        self.n_classes = n_classes
        self.grid = grid
        self.budget = budget
        self.kernel = kernel
        self.noise = noise
        self._slack = slack
        self._weights = np.floor(kernel.table(n_features) * grid.steps).astype(np.int64)

    def release(self, noise: npt.NDArray[np.float64]) -> VoteRelease:
        """Return the release of one block of queries.

        Parameters
        ----------
        noise : float64 (q,)
            The noise scale of every query in votes, fixed by public things alone.
        """
        distinct, which = np.unique(noise, return_inverse=True)
        scales = [self.grid.scale(value) for value in distinct]
        self._slack.take([scales[i] for i in which], self.n_classes)
        rates = np.array([unit_rate(scale, self.budget) for scale in scales], dtype=np.float64)
        return VoteRelease(
            self, np.array(scales, dtype=np.int64)[which], rates[which], self._weights
        )


@dataclass(frozen=True, slots=True)
class VoteRelease:
    """Contribution, charge and noise of one block of queries, which cannot disagree.

    Attributes
    ----------
    scales : int64 (q,)
        Noise scale of each query, in grid steps.
    rates : float64 (q,)
        Units that a squared step costs under that scale, rounded up.
    """

    mechanism: NoisyVotes
    scales: npt.NDArray[np.int64]
    rates: npt.NDArray[np.float64]
    weights: npt.NDArray[np.int64]

    def collect(self, near: Neighbours, people: People) -> tuple[StepVotes, int]:
        """Charge every neighbour for its votes and return their sums; still private.

        Each subject adds min(kernel weight, what it can still afford) to the class of its
        record, and is charged for exactly that, query after query.

        Returns
        -------
        votes : int64 (q, c)
            Sums in grid steps. They must not leave before :meth:`publish` has added noise.
        spent : int
            All charges together, in units; private.
        """
        votes = np.zeros((len(near), self.mechanism.n_classes), dtype=np.int64)
        kernel = self.mechanism.kernel
        high, low = charge_votes(
            near.starts, near.rows, near.similarities,
            people.labels, people.slots, people.records, people.remaining,
            self.weights, kernel.level_origin, kernel.level_shift,
            self.scales, self.rates, votes,
        )  # fmt: skip
        return votes, (int(high) << 24) + int(low)

    def publish(self, votes: StepVotes) -> FloatVotes:
        """Add the noise that the charges paid for and return votes, float64 (q, c)."""
        noise = self.mechanism.noise
        # Equal scales, the common case, take one vector call; the order of draws is the same.
        if len(set(self.scales.tolist())) == 1:
            drawn = noise.discrete_gaussian(int(self.scales[0]), votes.size).reshape(votes.shape)
        else:
            width = votes.shape[1]
            rows = [noise.discrete_gaussian(scale, width) for scale in self.scales.tolist()]
            drawn = np.array(rows, dtype=np.int64).reshape(votes.shape)
        return (votes + drawn) / self.mechanism.grid.steps
