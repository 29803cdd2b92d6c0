"""Array types by content (shapes and units are documented at their uses), and npz files."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.errors import InvalidInput

AnyArray = npt.NDArray[Any]
AnyInts = npt.NDArray[np.integer]
Bools = npt.NDArray[np.bool_]
Complexes = npt.NDArray[np.complex128]

FloatMatrix = npt.NDArray[np.floating]
"""Features (n, d) in single or double precision."""

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Indices = npt.NDArray[np.intp]
Ints = npt.NDArray[np.int64]
Ints16 = npt.NDArray[np.int16]
Ints32 = npt.NDArray[np.int32]
Texts = npt.NDArray[np.str_]
UInts16 = npt.NDArray[np.uint16]
UInts64 = npt.NDArray[np.uint64]
UInts8 = npt.NDArray[np.uint8]

Counts = npt.NDArray[np.int64]
"""Numbers of occurrences, by category."""

Places = npt.NDArray[np.int64]
"""Indices of another array."""

Shares = npt.NDArray[np.uint16]
"""Used shares of a budget in steps of 1 / `WHOLE`, the resolution of proxy ledgers, rounded up."""

Slots = npt.NDArray[np.int32]
"""Slots: indices of subjects in the arrays of a ledger."""

Steps = npt.NDArray[np.int64]
"""Votes, noise or scales in steps of a grid."""

Units = npt.NDArray[np.int64]
"""Budgets and charges in units of 2^-48 of a full budget."""


def load_npz(path: Path, problem: str) -> dict[str, AnyArray]:
    """Return the arrays of an npz file by name, without running code of pickled objects.

    Raises InvalidInput with the message `problem` if the content is invalid.
    """
    try:
        # np.load would leave a damaged file open if it opened the file itself.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return dict(stored)
    except FileNotFoundError:
        raise InvalidInput(f"There is no file {path}.") from None
    except (OSError, EOFError, TypeError, ValueError, zipfile.BadZipFile, zlib.error):
        raise InvalidInput(problem) from None
