"""What every evaluation has: noisy counts of people, and figures with intervals made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from vicinal._arrays import Floats
from vicinal.mechanisms import public_draws

_DRAWS = 400
_LEVEL = 0.95
_ENOUGH = 3.0
"""Standard deviations of the noise on the number of people that there must be to say anything."""


class NoisyFigures(ABC):
    """Noisy counts of people, and what follows from them; all of it may be published.

    `noise`: standard deviation of the noise in each count, in people. `share`: what a person
    evaluated has paid at most, of a full budget.
    """

    noise: float
    share: float

    @property
    @abstractmethod
    def counts(self) -> Sequence[Floats]:
        """All tables."""

    @property
    @abstractmethod
    def people_and_error(self) -> tuple[float, float]:
        """Noisy number of people with rows that were asked before, and its standard error."""

    @abstractmethod
    def figures_of(self, counts: Sequence[Floats]) -> dict[str, float]:
        """Return figures by name; NaN for what cannot be told."""

    @property
    def people(self) -> float:
        """Return the noisy number of people with rows that were asked before."""
        return max(0.0, self.people_and_error[0])

    @cached_property
    def figures(self) -> dict[str, tuple[float, float, float]]:
        """Figures by name, each with its 95 % interval.

        Intervals cover the noise, and the choice of people; NaN where counts are too few for the
        noise on them.
        """
        generator = public_draws(0)
        draws = [self.figures_of(self._drawn(generator)) for _ in range(_DRAWS)]
        figures = {}
        for name, value in self.figures_of(self.counts).items():
            enough = self._enough and not np.isnan(value)
            spread = np.array([draw[name] for draw in draws])
            low, high = interval(spread) if enough else (np.nan, np.nan)
            figures[name] = (value if enough else np.nan, low, high)
        return figures

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it; null for what the noise hides."""
        plain = asdict(self)  # type: ignore[call-overload]
        listed = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in plain.items()}
        figures = {
            name: dict(zip(("value", "low", "high"), map(known, numbers), strict=True))
            for name, numbers in self.figures.items()
        }
        return {**listed, "people": self.people, "figures": figures}

    @property
    def _enough(self) -> bool:
        people, error = self.people_and_error
        return people > _ENOUGH * error

    def _drawn(self, generator: Any) -> list[Floats]:
        return [
            generator.poisson(np.maximum(table, 0)) + generator.normal(0, self.noise, table.shape)
            for table in self.counts
        ]


def interval(draws: Floats) -> tuple[float, float]:
    """Return the 95 % interval of draws, NaN left out."""
    low, high = np.nanquantile(draws, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def known(number: float) -> float | None:
    """Return a number as JSON has it: None for NaN."""
    return None if np.isnan(number) else float(number)
