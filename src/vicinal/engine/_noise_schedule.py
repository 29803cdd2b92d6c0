"""The noise multiplier of every block: as planned, or behind a gate of earlier answers."""

from __future__ import annotations

import math

from vicinal.engine._noise_planning import ASKED_SHARE, GATE_OPENS, asked_of

_PRIOR_WEIGHT = 300
_LEAST_PACE = 4.0
_FEWEST_LEFT = 256  # twice any block, so that no block can spend everything
_UNSPENT = 1e-6  # then noise is a thousand times the plan's; budgets hold whatever it is


class NoiseSchedule:
    """sigma2, the noise multiplier, of every block: the plan's for all of them."""

    def __init__(self, multiplier: float) -> None:
        self.multiplier = multiplier

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self.multiplier

    @property
    def worthwhile(self) -> bool:
        """Whether the next answers tell more than they confuse."""
        return True

    def update(self, answered: int, queried: int, unsure: float | None = None) -> None:
        """Take note of a block.

        `answered`, `queried`: how many queries were answered, and how many of them were asked.
        `unsure`: the share of public points that would be asked for now.
        """


class GatedNoiseSchedule(NoiseSchedule):
    """The multiplier for a gate, which leaves an unknown number of questions to be asked.

    Before every block, noise is set to what lasts for the questions still to be expected, given
    what a busy record has spent so far by plan: sigma2^2 = u E / (1 - spent), with sigma2^2 = u T
    the noise of T questions and `spent` the sum of u / sigma2^2 over the questions asked. All of it
    is public: the stream of queries and released answers decides, never a budget. Once the planned
    queries are through, a tenth more are planned for, again and again: noise rises without end.

    An answer says the right class with a signal of 1 / sigma2, in a fixed unit, and a variance that
    hardly moves. The sum of n answers has the signal over noise sum(1 / sigma2) / sqrt(n), which
    one more answer raises only if its signal is more than half of the mean. From then on asking is
    not worthwhile (docs/decisions/0010-earlier-answers.md).

    `unit`: u, the squared multiplier of a plan of one question. `n_queries`: answers planned for.
    """

    def __init__(self, unit: float, n_queries: int) -> None:
        self._unit = unit
        self._n_queries = n_queries
        self._answered = 0
        self._n_asked = 0
        self._gated = 0
        self._passed = 0
        self._spent = 0.0
        self._learnt = 0
        self._signals = 0.0
        self._forecast = ASKED_SHARE
        self.multiplier = self._fitting()
        self._least = self.multiplier / _LEAST_PACE

    @property
    def least(self) -> float:
        """The smallest multiplier that will ever be used."""
        return self._least

    @property
    def worthwhile(self) -> bool:
        """Whether an answer's signal is at least half of the mean of those learnt from."""
        return self.multiplier * self._signals <= 2 * self._learnt

    def update(self, answered: int, queried: int, unsure: float | None = None) -> None:
        """Take note of a block and set the multiplier of the next."""
        if unsure is not None:
            self._forecast = unsure
        if self.worthwhile:
            self._learnt += queried
            self._signals += queried / self.multiplier
        self._spent += queried * self._unit / self.multiplier**2
        if self._n_asked >= GATE_OPENS:
            self._gated += answered
            self._passed += queried
        self._answered += answered
        self._n_asked += queried
        self.multiplier = max(self._fitting(), self._least)

    def expected_queries(self) -> float:
        """Return the questions still to be expected, the next block's included."""
        remaining = max(self._n_queries - self._answered, self._n_queries // 10)
        rate = (self._passed + _PRIOR_WEIGHT * self._forecast) / (self._gated + _PRIOR_WEIGHT)
        expected = asked_of(remaining, max(0, GATE_OPENS - self._n_asked), rate)
        return max(expected, _FEWEST_LEFT)

    def _fitting(self) -> float:
        return math.sqrt(self._unit * self.expected_queries() / max(1 - self._spent, _UNSPENT))
