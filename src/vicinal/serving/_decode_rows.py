"""From the body of a request, JSON or a .npy file, to rows that the store takes.

A .npy file has a sixth of the bytes of JSON, and no number to parse. Its header is matched as a
whole against what numpy writes, and evaluated nowhere; the shape it states must fit the bytes that
have come, so that it cannot ask for memory.
"""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from vicinal.features import TableSchema
from vicinal.serving._models import RowsBody
from vicinal.serving._problems import Problem, of_validation
from vicinal.store import BaseStore

AnyBody = TypeVar("AnyBody", bound=RowsBody)


def width_of(store: BaseStore) -> int | None:
    """Return how long a vector must be, or None where the store alone can tell."""
    extractor = store.schema.extractor
    plain = extractor.kind == "columns" and extractor.public_map is None
    return store.schema.n_features if plain else None


def columns_of(store: BaseStore) -> list[dict[str, Any]] | None:
    """Return name, kind and values of every column; None where what is asked has no names."""
    extractor = store.schema.extractor
    if extractor.kind == "columns" and extractor.columns is not None:
        return [{"name": name, "kind": "number", "values": None} for name in extractor.columns]
    if extractor.takes != "rows":
        return None
    declared = TableSchema.from_dict(extractor.options["schema"]).columns
    return [
        {"name": column.name, "kind": column.kind, "values": column.declared_values}
        for column in declared
    ]


def parse_body(model: type[AnyBody], content: bytes) -> AnyBody:
    """Return a body as its model has it, or raise a problem that repeats nothing of it."""
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        raise of_validation(error, frozenset(model.model_fields)) from None


def decode_rows(body: RowsBody, store: BaseStore, most: int) -> tuple[Any, int]:
    """Return raw rows for the store, and how many.

    413 for too many; 422 if they are in another form, or not all of the same shape.
    """
    form = store.schema.extractor.takes
    rows = getattr(body, form)
    if rows is None:
        raise Problem(422, "unusable", f"This store takes '{form}', and nothing else.")
    if len(rows) > most:
        raise Problem(413, "too-many", f"A request must have at most {most} rows.")
    return (rows if form in ("texts", "rows") else _array(rows, form, width_of(store))), len(rows)


def _array(rows: Any, form: str, width: int | None) -> np.ndarray:
    """Return rows as float64 (q, d), (q, h, w) or (q, h, w, 3)."""
    if form == "vectors" and width is not None and any(len(row) != width for row in rows):
        raise Problem(422, "unusable", f"Every vector must have {width} numbers.")
    try:
        array = np.array(rows, dtype=np.float64)
    except ValueError:
        raise Problem(422, "unusable", f"All '{form}' must have the same shape.") from None
    if array.size == 0:
        raise Problem(422, "unusable", f"The '{form}' must not be empty.")
    return array


NPY = "application/octet-stream"

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(<f8|<f4|\|u1)', 'fortran_order': False, "
    rb"'shape': \(([1-9][0-9]{0,8}(?:, [1-9][0-9]{0,8}){1,3})\), \} *\n"
)
_LONGEST_HEADER = 256
_DIMENSIONS = {"vectors": (2,), "images": (3, 4)}
_LARGEST = 1e30


def npy_rows(content: bytes, store: BaseStore, most: int) -> tuple[np.ndarray, int]:
    """Return the rows of a .npy file (version 1.0, C order) for the store, and how many.

    413 for too many; 422 if it is anything else, or not what the store takes.
    """
    form = store.schema.extractor.takes
    rows = _npy_array(content)
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


def _npy_array(content: bytes) -> np.ndarray | None:
    """Return the array, or None if the bytes are not exactly that of one."""
    if not content.startswith(_MAGIC):
        return None
    start = len(_MAGIC) + 2
    size = int.from_bytes(content[start - 2 : start], "little")
    match = _HEADER.fullmatch(content[start : start + size]) if size <= _LONGEST_HEADER else None
    if match is None:
        return None
    dtype = np.dtype(match[1].decode())
    shape = tuple(int(number) for number in match[2].split(b", "))
    if len(content) - start - size != math.prod(shape) * dtype.itemsize:
        return None
    rows = np.frombuffer(content, dtype, offset=start + size).reshape(shape)
    return rows if dtype.kind == "f" else rows.astype(np.float64)
