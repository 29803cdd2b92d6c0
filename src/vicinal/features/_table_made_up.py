"""Public rows made up from a schema, where nobody has a public reference."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from vicinal import _checks
from vicinal.features._table_schema import TableSchema
from vicinal.mechanisms import public_draws


def rows_from_schema(schema: TableSchema, size: int = 2000, seed: int | None = None) -> pa.Table:
    """Return made-up rows, column by column from what the schema declares.

    Numbers follow a normal law where centre and spread are declared, else a uniform one; levels
    and categories come as often as their shares say, else alike; values are missing as often as
    "missing" says. Columns are independent: real rows are not, so take real public rows where
    there are some.

    Parameters
    ----------
    schema : TableSchema
        Public.
    size : int
        How many rows.
    seed : int, optional
        Makes the rows repeatable. They are public, and no privacy hangs on them.

    Returns
    -------
    pyarrow.Table
        As :class:`~vicinal.features.TableFeatures` takes tables.

    Examples
    --------
    >>> from vicinal.features import draft_schema, rows_from_schema
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> rows_from_schema(schema, size=3, seed=0).num_rows
    3
    """
    size = _checks.integer("size", size, least=1)
    generator = public_draws(seed)
    cells = {}
    for column in schema.usable().columns:
        values = column.made_up(generator.random(size))
        absent = generator.random(size) < column.missing_share
        cells[column.name] = column.cells(np.where(absent, np.nan, values))
    return pa.table(cells)
