"""Warnings about the public reference and its features: public facts, before anything is spent."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FEW_ROWS = 50
"""Fewer reference rows place a neighbourhood's border too roughly to be of use."""

SWAMPED = 0.95
"""A feature with this share of all variance decides alone who is near."""

_SHOWN = 5


def warn_about_reference(points: npt.NDArray[np.floating], names: Sequence[str] | None) -> None:
    """Warn of few rows, constant features, and one feature that swamps the others.

    Features without names are numbered from 1.
    """
    rows = np.asarray(points, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        return
    if len(rows) < FEW_ROWS:
        warnings.warn(
            f"The reference has {len(rows)} rows: with fewer than {FEW_ROWS} neighbourhoods are "
            "guesses. Take some hundreds of public rows.",
            UserWarning,
            stacklevel=2,
        )
    if len(rows) > 1:
        _warn_about_spread(rows, names or [str(i) for i in range(1, rows.shape[1] + 1)])


def _warn_about_spread(rows: npt.NDArray[np.float64], names: Sequence[str]) -> None:
    constant = [names[i] for i in np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()]
    if constant:
        more = ", ..." if len(constant) > _SHOWN else ""
        warnings.warn(
            f"Constant in the reference, so of no use there: feature "
            f"{', '.join(constant[:_SHOWN])}{more}. Check that the reference is like the records.",
            UserWarning,
            stacklevel=3,
        )
    spread = (rows / (np.abs(rows).max() or 1.0)).std(axis=0)  # Squares stay finite.
    largest = int(spread.argmax())
    share = 1 / np.square(spread / spread[largest]).sum() if spread[largest] > 0 else 0.0
    if rows.shape[1] > 1 and share > SWAMPED:
        warnings.warn(
            f"Feature {names[largest]} swamps the others: it has {share:.0%} of the reference's "
            "variance, and alone decides who is near. Give a schema (--features table), which "
            "standardises columns.",
            UserWarning,
            stacklevel=3,
        )
