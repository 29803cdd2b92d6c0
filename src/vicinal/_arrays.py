"""Types of arrays by what they hold; shapes and units are said where they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]

Bools = npt.NDArray[np.bool_]

FloatMatrix = npt.NDArray[np.floating]
"""Features as they come, of either precision, (n, d)."""

Floats = npt.NDArray[np.float64]

Floats32 = npt.NDArray[np.float32]

Ints = npt.NDArray[np.int64]

Ints32 = npt.NDArray[np.int32]

Places = npt.NDArray[np.int64]
"""Positions in another array."""

Steps = npt.NDArray[np.int64]
"""Votes, noise or scales in steps of a grid."""
