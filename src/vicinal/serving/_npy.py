"""Rows as a .npy file: a sixth of the bytes of JSON, and no number to parse.

The header is matched as a whole against what numpy writes, and evaluated nowhere; the shape it
states must fit the bytes that have come, so that it cannot ask for memory.
"""

from __future__ import annotations

import math
import re

import numpy as np

from vicinal.serving._problems import Problem
from vicinal.store._base_store import AnyStore

NPY = "application/octet-stream"

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(<f8|<f4|\|u1)', 'fortran_order': False, "
    rb"'shape': \(([1-9][0-9]{0,8}(?:, [1-9][0-9]{0,8}){1,3})\), \} *\n"
)
_LONGEST_HEADER = 256
_DIMENSIONS = {"vectors": (2,), "images": (3, 4)}
_LARGEST = 1e30


def npy_rows(content: bytes, store: AnyStore, most: int) -> tuple[np.ndarray, int]:
    """Return the rows of a .npy file (version 1.0, C order) for the store, and how many.

    Raises
    ------
    Problem
        413 for too many rows; 422 if it is anything else, or not what the store takes.
    """
    form = store.schema.extractor.takes
    rows = _array(content)
    if rows is None or rows.ndim not in _DIMENSIONS.get(form, ()):
        detail = (
            f"The body must be a .npy file of float32, float64 or uint8, in C order, with the "
            f"'{form}' that this store takes; texts go as JSON."
        )
        raise Problem(422, "unusable", detail)
    if len(rows) > most:
        raise Problem(413, "too-many", f"A request must have at most {most} rows.")
    # Written so that NaN fails it too.
    if not (np.abs(rows) <= _LARGEST).all():
        raise Problem(422, "unusable", "The rows must hold finite numbers only.")
    return rows, len(rows)


def _array(content: bytes) -> np.ndarray | None:
    """Return the array, or None if the bytes are not exactly that of one."""
    if not content.startswith(_MAGIC):
        return None
    start = len(_MAGIC) + 2
    size = int.from_bytes(content[start - 2 : start], "little")
    found = _HEADER.fullmatch(content[start : start + size]) if size <= _LONGEST_HEADER else None
    if found is None:
        return None
    dtype = np.dtype(found[1].decode())
    shape = tuple(int(number) for number in found[2].split(b", "))
    if len(content) - start - size != math.prod(shape) * dtype.itemsize:
        return None
    rows = np.frombuffer(content, dtype, offset=start + size).reshape(shape)
    return rows if dtype.kind == "f" else rows.astype(np.float64)
