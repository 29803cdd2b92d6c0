"""Types of arrays by what they hold; shapes and units are said where they are used."""

from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]

AnyInts = npt.NDArray[np.integer]

Bools = npt.NDArray[np.bool_]

Complexes = npt.NDArray[np.complex128]

FloatMatrix = npt.NDArray[np.floating]
"""Features as they come, of either precision, (n, d)."""

Floats = npt.NDArray[np.float64]

Floats32 = npt.NDArray[np.float32]

Indices = npt.NDArray[np.intp]

Ints = npt.NDArray[np.int64]

Ints16 = npt.NDArray[np.int16]

Ints32 = npt.NDArray[np.int32]

Ints8 = npt.NDArray[np.int8]

Objects = npt.NDArray[np.object_]

Texts = npt.NDArray[np.str_]

UInts16 = npt.NDArray[np.uint16]

UInts64 = npt.NDArray[np.uint64]

UInts8 = npt.NDArray[np.uint8]

Counts = npt.NDArray[np.int64]
"""How often something is there, by what it is."""

Places = npt.NDArray[np.int64]
"""Positions in another array."""

Shares = npt.NDArray[np.uint16]
"""Shares of a budget that are used, in steps of 1 / `WHOLE` of proxy ledgers, rounded up."""

Slots = npt.NDArray[np.int32]
"""Where subjects stand in arrays of a ledger."""

Steps = npt.NDArray[np.int64]
"""Votes, noise or scales in steps of a grid."""

Units = npt.NDArray[np.int64]
"""Parts of budgets, in the units that ledgers count."""
