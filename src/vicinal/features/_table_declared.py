"""Kinds of column whose values are declared one by one: levels, categories, yes and no."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from vicinal._arrays import Floats
from vicinal.features import _table_cells as cells
from vicinal.features._table_cells import Codes, Reading
from vicinal.features._table_columns import TableColumn

OTHER = "(other)"
"""What made-up rows have where a value is none of the declared ones."""

_CATEGORY = math.sqrt(0.5)
"""Two one-hot vectors of this length are one apart."""


@dataclass(frozen=True)
class _DeclaredColumn(TableColumn):
    """A column of declared values.

    `values`: all declared values. `shares`: how often each is met, as far as the public knows; all
    alike without it. A category with "other" has a share more.
    """

    values: tuple[Any, ...] = ()
    shares: tuple[float, ...] = ()

    _other: ClassVar[bool] = False

    @property
    def declared_values(self) -> list[str]:
        others = self.n_values > len(self.values) and not all_numbers(self.values)
        return [*map(cells.plain_text, self.values), *((OTHER,) if others else ())]

    @property
    def n_values(self) -> int:
        """How many values there are, "other" included."""
        return len(self.values)

    def _read(self, column: pa.ChunkedArray) -> Reading:
        other = float(len(self.values)) if self.n_values > len(self.values) else None
        if all_numbers(self.values):
            place_of = {float(value): float(place) for place, value in enumerate(self.values)}
            return cells.places_of_numbers(column, place_of, other)
        named = {cells.plain_text(value): float(i) for i, value in enumerate(self.values)}
        return cells.places(column, named, other)

    def _value(self, code: float) -> object:
        numbers = all_numbers(self.values)
        if int(code) < len(self.values):
            return float(self.values[int(code)]) if numbers else str(self.values[int(code)])
        return max(self.values) + 1.0 if numbers else OTHER

    def made_up(self, uniform: Floats) -> Codes:
        shares = np.asarray(self.shares or np.ones(self.n_values), dtype=np.float64)
        upto = np.cumsum(shares) / shares.sum()
        return np.minimum(np.searchsorted(upto, uniform, side="right"), self.n_values - 1.0)


@dataclass(frozen=True)
class LevelsColumn(_DeclaredColumn):
    """Ordered levels, as equally distant numbers."""

    kind: ClassVar[str] = "levels"

    def _encode(self, codes: Codes) -> Floats:
        k = len(self.values)
        return np.nan_to_num((codes - (k - 1) / 2) / math.sqrt((k * k - 1) / 12))[:, None]

    value_names = ("",)


@dataclass(frozen=True)
class CategoryColumn(_DeclaredColumn):
    """A category, one-hot.

    `other`: whether all that is not declared is one more value, "other".
    """

    kind: ClassVar[str] = "category"

    other: bool = True

    @property
    def n_values(self) -> int:
        return len(self.values) + self.other

    def _encode(self, codes: Codes) -> Floats:
        return np.asarray((codes[:, None] == np.arange(self.n_values)) * _CATEGORY)

    @property
    def _indicator(self) -> float:
        return _CATEGORY

    @property
    def value_names(self) -> tuple[str, ...]:
        return (*map(cells.plain_text, self.values), *((OTHER,) if self.other else ()))


@dataclass(frozen=True)
class YesNoColumn(_DeclaredColumn):
    """Yes or no."""

    kind: ClassVar[str] = "yes_no"

    values: tuple[Any, ...] = ("no", "yes")

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return cells.truths(column)

    def _value(self, code: float) -> object:
        return bool(code)

    def _encode(self, codes: Codes) -> Floats:
        return np.nan_to_num(codes - 0.5)[:, None]

    value_names = ("",)


def all_numbers(values: tuple[Any, ...]) -> bool:
    """Tell whether all declared values are numbers, so that 7, 7.0 and "7.0" are one value."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
