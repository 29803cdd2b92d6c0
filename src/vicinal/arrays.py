"""Array types by content; shapes and units are documented at their uses."""

from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
AnyInts = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Complexes = npt.NDArray[np.complex128]

FloatMatrix = npt.NDArray[np.floating]
"""Features (n, d) in single or double precision."""

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
Ints16 = npt.NDArray[np.int16]
Ints32 = npt.NDArray[np.int32]
Texts = npt.NDArray[np.str_]
UInts16 = npt.NDArray[np.uint16]
UInts64 = npt.NDArray[np.uint64]
UInts8 = npt.NDArray[np.uint8]

Counts = npt.NDArray[np.int64]
"""Numbers of occurrences, by category."""

Indices = npt.NDArray[np.int64]
"""Indices of the items of another array."""

Shares = npt.NDArray[np.uint16]
"""Used shares of a budget, rounded up, in steps of 1 / `FULL_SHARE` of proxy ledgers."""

Slots = npt.NDArray[np.int32]
"""Slots: indices of subjects in the arrays of a ledger."""

Steps = npt.NDArray[np.int64]
"""Votes, noise or scales in steps of a grid."""

Units = npt.NDArray[np.int64]
"""Budgets and charges in units of 2^-48 of a full budget."""
