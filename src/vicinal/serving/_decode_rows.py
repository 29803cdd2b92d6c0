"""From the body of a request, JSON or a .npy file, to rows that the store takes."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from vicinal.features import TableSchema
from vicinal.serving._models import RowsBody
from vicinal.serving._problems import Problem, of_validation
from vicinal.store._base_store import AnyStore

AnyBody = TypeVar("AnyBody", bound=RowsBody)


def width_of(store: AnyStore) -> int | None:
    """Return how long a vector must be, or None where the store alone can tell."""
    extractor = store.schema.extractor
    plain = extractor.kind == "columns" and extractor.public_map is None
    return store.schema.n_features if plain else None


def columns_of(store: AnyStore) -> list[dict[str, Any]] | None:
    """Return name, kind and values of a table's columns; None where rows have no names."""
    extractor = store.schema.extractor
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


def decode_rows(body: RowsBody, store: AnyStore, most: int) -> tuple[Any, int]:
    """Return raw rows for the store, and how many.

    Raises
    ------
    Problem
        413 for too many rows; 422 if they are in another form, or not all of the same shape.
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
        found = np.array(rows, dtype=np.float64)
    except ValueError:
        raise Problem(422, "unusable", f"All '{form}' must have the same shape.") from None
    if found.size == 0:
        raise Problem(422, "unusable", f"The '{form}' must not be empty.")
    return found
