"""What every column of a table schema does, and the kinds that hold numbers and dates.

Two rows that differ by one standard deviation of a number, by a category, or by yes and no, are
one apart in that column, times its weight. Everything here works row by row.
"""

from __future__ import annotations

import datetime as dt
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from vicinal._arrays import Bools, Floats
from vicinal.features import _table_cells as cells
from vicinal.features._table_cells import Codes, Reading

MOST_DEVIATIONS = 4.0
"""Numbers further than this from the centre, in spreads, count as this far: a value that is
absurd must not drown all other columns."""

_UNIFORM = math.sqrt(12.0)
"""An interval in standard deviations of a number that is uniform on it."""

_EXACT = 2.0**53


@dataclass(frozen=True)
class TableColumn(ABC):
    """One declared column.

    - `name`: as in the table.
    - `weight`: how much the column counts, 1 as a rule.
    - `missing`: whether values may be missing; then the column has a feature that says so.
    - `missing_share`: share of rows without a value, as far as the public knows; for made-up rows.
    """

    kind: ClassVar[str]

    name: str
    weight: float = 1.0
    missing: bool = True
    missing_share: float = 0.0

    @abstractmethod
    def _read(self, column: pa.ChunkedArray) -> Reading:
        """Return codes and faults of a column without dictionaries."""

    @abstractmethod
    def _encode(self, codes: Codes) -> Floats:
        """Return features (n, w) before weighting; NaN codes are those of missing values."""

    @property
    @abstractmethod
    def value_names(self) -> tuple[str, ...]:
        """Names of the features of values, w of them."""

    @abstractmethod
    def made_up(self, uniform: Floats) -> Codes:
        """Return codes as the declaration lets expect them, from uniform numbers."""

    @abstractmethod
    def _value(self, code: float) -> object:
        """Return a cell that reads as this code."""

    def cells(self, codes: Codes) -> pa.Array:
        """Return cells that read as these codes, an Arrow array with nulls where these are NaN."""
        listed = [None if math.isnan(code) else self._value(code) for code in codes.tolist()]
        return pa.array(listed)

    def read(self, column: pa.ChunkedArray) -> Reading:
        """Return codes and faults of a column of a table."""
        reading = self._read(column)
        return reading if self.missing else reading.refusing_missing()

    def clipped(self, codes: Codes) -> Bools:
        """Tell which codes lie outside the declared bounds."""
        return np.zeros(len(codes), dtype=np.bool_)

    def encode(self, codes: Codes) -> Floats:
        """Return features (n, w): those of the value, then whether it is missing."""
        features = self._encode(codes)
        if self.missing:
            features = np.column_stack([features, np.isnan(codes) * self._indicator])
        return self.weight * features

    @property
    def declared_values(self) -> list[str] | None:
        """What may stand in a cell, as text; None where there are too many values to list."""
        return None

    @property
    def _indicator(self) -> float:
        return 1.0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features of the column."""
        values = tuple(f"{self.name}{f'={value}' if value else ''}" for value in self.value_names)
        return (*values, f"{self.name} is missing") if self.missing else values


@dataclass(frozen=True)
class NumberColumn(TableColumn):
    """A number: clipped to its bounds, perhaps its logarithm, then centred and divided.

    `low`, `high`: declared bounds. `center`, `spread`: of the public, after the logarithm if there
    is one; None: of a number that is uniform between the bounds. `log`: whether distances are those
    of log(x) (of log(1 + x) where `low` is 0).
    """

    kind: ClassVar[str] = "number"

    low: float | None = None
    high: float | None = None
    center: float | None = None
    spread: float | None = None
    log: bool = False

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return cells.numbers(column)

    def clipped(self, codes: Codes) -> Bools:
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return (codes < low) | (codes > high)

    def _encode(self, codes: Codes) -> Floats:
        center, spread = self.scale
        scaled = (self._moved(self._bounded(codes)) - center) / spread
        return np.nan_to_num(np.clip(scaled, -MOST_DEVIATIONS, MOST_DEVIATIONS))[:, None]

    @property
    def scale(self) -> tuple[float, float]:
        """Centre and spread, after the logarithm if there is one."""
        if self.center is not None and self.spread is not None:
            return self.center, self.spread
        low, high = self._ends
        return (low + high) / 2, (high - low) / _UNIFORM

    @property
    def _ends(self) -> tuple[float, float]:
        """Return the bounds, after the logarithm; those that are open are closed by the spread."""
        low = high = math.nan
        if self.low is not None:
            low = self._one_moved(self.low)
        if self.high is not None:
            high = self._one_moved(self.high)
        if self.center is not None and self.spread is not None:
            reach = MOST_DEVIATIONS * self.spread
            low = self.center - reach if math.isnan(low) else max(low, self.center - reach)
            high = self.center + reach if math.isnan(high) else min(high, self.center + reach)
        return low, high

    def _bounded(self, codes: Codes) -> Codes:
        if self.low is None and self.high is None:
            return codes
        return np.clip(codes, self.low, self.high)

    def _one_moved(self, value: float) -> float:
        if not self.log:
            return value
        return math.log(value) if self.low else math.log1p(value)

    def _moved(self, codes: Codes) -> Codes:
        return cells.each(self._one_moved, codes) if self.log else codes

    def _back(self, moved: Floats) -> Codes:
        """Return numbers from what stands after the logarithm."""
        low, high = self._ends
        inside = np.clip(moved, min(low, high), max(low, high))
        if not self.log:
            return self._rounded(inside)
        return self._rounded(np.exp(inside) if self.low else np.expm1(inside))

    def _rounded(self, values: Floats) -> Codes:
        return self._bounded(values)

    def _value(self, code: float) -> object:
        return code

    value_names = ("",)

    def made_up(self, uniform: Floats) -> Codes:
        low, high = self._ends
        if self.center is not None and self.spread is not None:
            inner = np.clip(uniform, 1e-6, 1 - 1e-6)
            return self._back(self.center + self.spread * ndtri(inner))
        return self._back(low + (high - low) * uniform)


@dataclass(frozen=True)
class WholeColumn(NumberColumn):
    """A number without decimals."""

    kind: ClassVar[str] = "whole"

    def _read(self, column: pa.ChunkedArray) -> Reading:
        reading = cells.numbers(column)
        with np.errstate(invalid="ignore"):
            return reading.checked(reading.codes % 1 == 0, cells.WHOLE)

    def _value(self, code: float) -> object:
        return int(code) if abs(code) < _EXACT else code

    def _rounded(self, values: Floats) -> Codes:
        return self._bounded(np.rint(values))


@dataclass(frozen=True)
class DateColumn(NumberColumn):
    """A date, as days since 1970."""

    kind: ClassVar[str] = "date"

    def _read(self, column: pa.ChunkedArray) -> Reading:
        return cells.days(column)

    def _value(self, code: float) -> object:
        return dt.date.fromisoformat(cells.date_of(code))

    def _rounded(self, values: Floats) -> Codes:
        return self._bounded(np.rint(values))
