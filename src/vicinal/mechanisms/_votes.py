"""Kernel-weighted votes or vectors of neighbours, charged to each subject exactly; sums leave.

Votes and noise are whole numbers of steps of a grid, and what that costs in delta is metered.
Proof note: votes.md. Source: ZZGW23 Algorithm 3; individual filter of Feldman & Zrnic 2021.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from vicinal.accounting._budget import unit_rate
from vicinal.accounting._gaussian import grid_slack
from vicinal.accounting._label_only import LINE_GRID, ChargeTable
from vicinal.errors import InvalidInput
from vicinal.mechanisms._charging_kernels import (
    KernelWeights,
    NeighbourArrays,
    SubjectArrays,
    VectorArrays,
    VotePrices,
    charge_vectors,
    charge_votes,
)
from vicinal.mechanisms._class_scores import ClassScores
from vicinal.mechanisms._record_vectors import RecordVectors
from vicinal.mechanisms._subject_table import SubjectTable
from vicinal.mechanisms._vote_grid import DeltaSlackAccountant, VoteGrid
from vicinal.neighbours import Kernel, NeighbourLists
from vicinal.noise import NoiseSource

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]

_WHOLE_PRICE = np.ones(1)


class VoteMechanism(ABC):
    """What the releases of one classifier share: kernel, classes, grid and noise, all public.

    Attributes
    ----------
    kernel : Kernel
        Its table of values, rounded down to whole steps, gives the weights.
    n_classes : int
        The number of coordinates: classes, or the width of the records' vectors.
    grid : VoteGrid
        The grid on which votes and noise live.
    noise : NoiseSource
        Where noise comes from.
    budget : float
        The zCDP that a subject's full budget stands for.
    label_only : bool
        Whether labels leave, or votes.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.mechanisms import DeltaSlackAccountant, NoisyVotes, VoteGrid, randomness
    >>> from vicinal.neighbours import Cosine
    >>> slack = DeltaSlackAccountant(1e-5, needed=True)
    >>> votes = NoisyVotes(Cosine(), 64, 10, 0.05, VoteGrid(1 << 22), randomness(), slack)
    >>> votes.slack(noise=30.0) < 1e-10  # a part of delta, for one answer
    True
    """

    label_only: bool

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        n_classes: int,
        budget: float,
        grid: VoteGrid,
        noise: NoiseSource,
    ) -> None:
        self.kernel = kernel
        self.n_classes = n_classes
        self.grid = grid
        self.noise = noise
        self.budget = budget
        self.weights = np.floor(kernel.table(n_features) * grid.steps).astype(np.int64)

    @abstractmethod
    def release(self, noise: Floats) -> BlockRelease:
        """Return the release of one block of queries.

        Parameters
        ----------
        noise : float64 (q,)
            The noise scale of every query in votes, fixed by public things alone.
        """

    @abstractmethod
    def slack(self, noise: float) -> float:
        """Return the delta that the grid costs in one release of at least this noise scale."""

    def _prices(self, noise: Floats) -> tuple[Steps, Floats]:
        """Return noise scales in steps, int64 (q,), and what a squared step costs in units."""
        distinct, which = np.unique(noise, return_inverse=True)
        scales = [self.grid.scale(value) for value in distinct]
        rates = [unit_rate(scale, self.budget) for scale in scales]
        return np.array(scales, dtype=np.int64)[which], np.array(rates, dtype=np.float64)[which]


class NoisyVotes(VoteMechanism):
    """All noisy votes leave; a subject pays for the length of what it contributed.

    Parameters
    ----------
    slack : DeltaSlackAccountant
        Meters what the grid costs; refuses a release before anybody is charged for it. The others
        are the attributes of :class:`VoteMechanism`.

    Examples
    --------
    >>> from vicinal.mechanisms import DeltaSlackAccountant, NoisyVotes, VoteGrid, randomness
    >>> from vicinal.neighbours import Cosine
    >>> slack = DeltaSlackAccountant(1e-5, needed=True)
    >>> votes = NoisyVotes(Cosine(), 64, 10, 0.05, VoteGrid(1024), randomness(), slack)
    >>> votes.label_only
    False
    """

    label_only = False

    def __init__(
        self,
        kernel: Kernel,
        n_features: int,
        n_classes: int,
        budget: float,
        grid: VoteGrid,
        noise: NoiseSource,
        slack: DeltaSlackAccountant,
    ) -> None:
        super().__init__(kernel, n_features, n_classes, budget, grid, noise)
        self._slack = slack

    def slack(self, noise: float) -> float:
        """Return the grid's cost of one release, see :meth:`VoteMechanism.slack`."""
        return self.n_classes * grid_slack(self.grid.scale(noise))

    def release(self, noise: Floats) -> VoteRelease:
        """Return the release of one block of queries, see :meth:`VoteMechanism.release`."""
        scales, rates = self._prices(noise)
        self._slack.charge(scales.tolist(), self.n_classes)
        return VoteRelease(self, scales, rates, np.zeros(len(scales)), _WHOLE_PRICE)


class NoisyLabels(VoteMechanism):
    """Only the class with the most noisy votes leaves, which costs a share of what votes cost.

    Parameters
    ----------
    table : ChargeTable
        Shares of the price, at one Renyi order, and the budget. It needs no slack for the grid.
        The others are the attributes of :class:`VoteMechanism`.
    scores : ClassScores, optional
        The class of the largest score leaves instead. Public.

    Raises
    ------
    InvalidInput
        If there are scores, and the price holds for the number of classes only.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.accounting._label_only import charge_table, label_budget
    >>> from vicinal.mechanisms import NoisyLabels, VoteGrid, randomness
    >>> from vicinal.neighbours import Cosine
    >>> prices = charge_table(label_budget(1.0, 1e-5, classes=3), 3)
    >>> labels = NoisyLabels(Cosine(), 64, 3, prices, VoteGrid(1 << 22), randomness(1))
    >>> labels.places(np.array([[5, 900, 7]]), np.array([1 << 22]))
    array([1])
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
        scores: ClassScores | None = None,
    ) -> None:
        if scores is not None and table.classes is not None:
            raise InvalidInput("The 'table' parameter must hold for any classes, as scores differ.")
        super().__init__(kernel, n_features, n_classes, table.zcdp, grid, noise)
        self._table = table
        self._scores = scores

    def slack(self, noise: float) -> float:  # noqa: ARG002 (the table has room for the grid)
        """Return 0."""
        return 0.0

    def release(self, noise: Floats) -> LabelRelease:
        """Return the release of one block of queries, see :meth:`VoteMechanism.release`.

        Raises
        ------
        InvalidInput
            If a noise scale is below the 2^22 steps that the proof of the price needs.
        """
        scales, rates = self._prices(noise)
        if len(scales) and scales.min() < LINE_GRID:
            raise InvalidInput("The noise scale of a label must be at least 2^22 grid steps.")
        return LabelRelease(self, scales, rates, self._table.density / scales, self._table.shares)

    def places(self, noisy: Steps, scales: Steps) -> Steps:
        """Return the classes that win, int64 (q,): of most votes, or of the largest score."""
        if self._scores is None:
            return np.asarray(noisy.argmax(axis=1))
        return np.asarray(self._scores(noisy, scales, self.grid.steps).argmax(axis=1))


@dataclass(frozen=True, slots=True)
class BlockRelease(ABC):
    """Contribution, charge and noise of one block of queries, which cannot disagree.

    Attributes
    ----------
    scales : int64 (q,)
        Noise scale of each query, in grid steps.
    rates : float64 (q,)
        Units that a squared step costs under that scale, rounded up.
    table_scale : float64 (q,)
        Cells of `price_table` that a step goes up by under that scale.
    price_table : float64 (m,)
        What moving one coordinate costs, as shares of that price, by cells; unused
        where votes leave.
    """

    mechanism: VoteMechanism
    scales: Steps
    rates: Floats
    table_scale: Floats
    price_table: Floats

    @property
    def noise(self) -> Floats:
        """Standard deviation of the noise on every vote of a query, in votes, (q,). Public."""
        return self.scales / self.mechanism.grid.steps

    def of(self, part: slice) -> Self:
        """Return what belongs to consecutive queries, to be charged in parts."""
        return replace(
            self,
            scales=self.scales[part],
            rates=self.rates[part],
            table_scale=self.table_scale[part],
        )

    def contribute_and_charge(
        self, neighbours: NeighbourLists, subjects: SubjectTable
    ) -> tuple[Steps, int]:
        """Charge every neighbour for its votes and return their sums; still private.

        Each subject adds the sum of its records' vectors, by their kernel weights, scaled down to
        what it can still afford, and is charged for exactly that, query after query. The vector of
        a record with a class is 1 at that class.

        Returns
        -------
        votes : int64 (q, c)
            Sums in grid steps. They must not leave before :meth:`publish` has added noise.
        spent : int
            All charges together, in units; private.
        """
        mechanism, kernel = self.mechanism, self.mechanism.kernel
        votes = np.zeros((len(neighbours), mechanism.n_classes), dtype=np.int64)
        hits = NeighbourArrays(neighbours.starts, neighbours.rows, neighbours.similarities)
        budgets = SubjectArrays(subjects.slots, subjects.records, subjects.remaining)
        weights = KernelWeights(mechanism.weights, kernel.level_origin, kernel.level_shift)
        prices = VotePrices(
            self.scales, self.rates, self.table_scale, self.price_table, mechanism.label_only
        )
        targets = subjects.targets
        if isinstance(targets, RecordVectors):
            vectors = VectorArrays(targets.starts, targets.coordinates, targets.values)
            high, low = charge_vectors(hits, vectors, budgets, weights, prices, votes)
        else:
            high, low = charge_votes(hits, targets, budgets, weights, prices, votes)
        return votes, (int(high) << 24) + int(low)

    @abstractmethod
    def publish(self, votes: Steps) -> npt.NDArray[Any]:
        """Add the noise that the charges paid for, and return what may leave."""

    def _noisy(self, votes: Steps) -> Steps:
        noise = self.mechanism.noise
        # Equal scales, the common case, take one vector call; the order of draws is the same.
        if len(set(self.scales.tolist())) == 1:
            return votes + noise.discrete_gaussian(int(self.scales[0]), votes.size).reshape(
                votes.shape
            )
        width = votes.shape[1]
        rows = [noise.discrete_gaussian(scale, width) for scale in self.scales.tolist()]
        return votes + np.array(rows, dtype=np.int64).reshape(votes.shape)


@dataclass(frozen=True, slots=True)
class VoteRelease(BlockRelease):
    """A release of noisy votes.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.mechanisms import DeltaSlackAccountant, NoisyVotes, VoteGrid, randomness
    >>> from vicinal.neighbours import Cosine
    >>> slack = DeltaSlackAccountant(1e-5, needed=True)
    >>> votes = NoisyVotes(Cosine(), 64, 3, 0.05, VoteGrid(1 << 22), randomness(), slack)
    >>> release = votes.release(np.array([30.0]))  # one query, noise of 30 records
    >>> release.publish(np.zeros((1, 3), np.int64)).shape
    (1, 3)
    """

    def publish(self, votes: Steps) -> Floats:
        """Return noisy votes, float64 (q, c), in units of a unit vote."""
        return self._noisy(votes) / self.mechanism.grid.steps


@dataclass(frozen=True, slots=True)
class LabelRelease(BlockRelease):
    """A release of labels.

    Examples
    --------
    >>> import numpy as np
    >>> from vicinal.accounting._label_only import charge_table, label_budget
    >>> from vicinal.mechanisms import NoisyLabels, VoteGrid, randomness
    >>> from vicinal.neighbours import Cosine
    >>> prices = charge_table(label_budget(1.0, 1e-5, classes=3), 3)
    >>> labels = NoisyLabels(Cosine(), 64, 3, prices, VoteGrid(1 << 22), randomness(1))
    >>> votes = np.array([[0, 0, 10**10]])
    >>> labels.release(np.array([30.0])).publish(votes)  # one query, noise of 30 records
    array([2])
    """

    mechanism: NoisyLabels

    def publish(self, votes: Steps) -> Steps:
        """Return the position of the class with the most noisy votes, or score, int64 (q,).

        Ties, in whole steps or of scores, go to the first class.
        """
        return self.mechanism.places(self._noisy(votes), self.scales)
