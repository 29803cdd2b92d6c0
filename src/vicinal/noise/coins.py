"""Independent coins for Poisson sampling, from a cryptographically secure stream."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import numpy.typing as npt

from vicinal import checks

_SEED_BYTES = 64


def coins(probability: float, size: int) -> npt.NDArray[np.bool_]:
    """Return `size` independent coins, bool (size,), each true with at most `probability`.

    Every coin compares 64 bits of SHAKE-256, keyed afresh by 512 bits of system entropy for every
    call, with floor(probability 2^64). The chance of a true coin is below `probability` by less
    than 2^-64, never above it: amplification by sampling is claimed for `probability`, and a
    smaller one costs less.
    """
    probability = checks.real("probability", probability, least=0, most=1)
    size = checks.integer("size", size, least=0)
    if probability == 1:
        return np.ones(size, dtype=np.bool_)
    stream = hashlib.shake_256(os.urandom(_SEED_BYTES)).digest(8 * size)
    threshold = np.uint64(int(probability * 2.0**64))
    return np.frombuffer(stream, dtype="<u8") < threshold
