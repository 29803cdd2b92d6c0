"""What of a table will not fit its schema: for the owner of the table only, without its values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vicinal.errors import InvalidInput
from vicinal.features._table_cells import FIXES, OK, WORDS, Codes
from vicinal.features._table_columns import TableColumn
from vicinal.features._table_drafts import draft_schema
from vicinal.features._table_rows import table_columns
from vicinal.features._table_schema import TableSchema, nfc

_SWAMPED = 0.5
"""A column of which more than this share lies outside its bounds is in other units, as a rule."""


@dataclass(frozen=True)
class Misfit:
    """One thing that does not fit. **For the owner of the table only**: it counts rows.

    Attributes
    ----------
    column : str or None
        As the schema names it; None for the table as a whole.
    fault : str
        The kind of fault, in words.
    rows : int or None
        How many rows it is about. Private.
    fix : str
        What to do.
    stops : bool
        Whether the table is refused as it is; otherwise it is only worth knowing.

    Examples
    --------
    >>> from vicinal.features import Misfit
    >>> Misfit("sex", "is not there", rows=None, fix="add it", stops=True).column
    'sex'
    """

    column: str | None
    fault: str
    rows: int | None
    fix: str
    stops: bool

    def __str__(self) -> str:
        where = "the table" if self.column is None else f"column {self.column!r}"
        rows = "" if self.rows is None else f" in {self.rows} {_plural('row', self.rows)}"
        return f"{where}: {self.fault}{rows}. {self.fix}."


def check_table(
    table: Any, schema: TableSchema | None = None, apart: Iterable[str] = ()
) -> list[Misfit]:
    """Return everything about a table that will not fit, or is worth knowing.

    Parameters
    ----------
    table
        The owner's table, as :class:`~vicinal.features.TableFeatures` takes tables.
    schema : TableSchema, optional
        What it should fit. Without it, only what no schema could take is looked for.
    apart : iterable of str
        Columns that are no features: the label's and the subject's.

    Examples
    --------
    >>> from vicinal.features import check_table, draft_schema
    >>> schema, notes = draft_schema({"age": [31, 45, 64, 28] * 25, "sex": ["f", "m"] * 50})
    >>> faults = check_table({"age": [31, 45], "gender": ["f", "m"]}, schema)
    >>> [(fault.column, fault.stops) for fault in faults if fault.stops]
    [('sex', True)]
    """
    _, size, names = table_columns(table, ())
    if size == 0:
        return [Misfit(None, "there are no rows", None, "Give records", stops=True)]
    twins = sorted({name for name in names if names.count(name) > 1})
    if schema is None:
        return _without_schema(table, twins)
    misfits = [
        Misfit(column.name, "lacking", None, "Add it, or take it out of the schema", stops=True)
        for column in schema.columns
        if column.name not in names
    ]
    apart = {nfc(name) for name in apart}
    known = {*schema.names, *schema.ignored, *schema.texts, *apart}
    others = [name for name in names if name not in known]
    if not misfits:  # a table without a header has somebody's record for names
        misfits += [
            Misfit(name, "not in the schema", None, "It is left out", stops=False)
            for name in dict.fromkeys(others)
        ]
    for column in schema.columns:
        if column.name in twins:
            misfits.append(Misfit(column.name, "there twice", None, "Drop one", stops=True))
        elif column.name in names:
            misfits += _faults(table, column)
    return misfits


def _faults(table: Any, column: TableColumn) -> list[Misfit]:
    """Return what is wrong in one column."""
    try:
        reading = column.read(table_columns(table, [column.name])[0][column.name])
    except InvalidInput:
        fault, fix = "values of several types, or of one that tables do not have", "Convert it"
        return [Misfit(column.name, fault, None, fix, stops=True)]
    misfits = [
        Misfit(column.name, WORDS[kind], int((reading.faults == kind).sum()), FIXES[kind], True)
        for kind in np.unique(reading.faults).tolist()
        if kind != OK
    ]
    return misfits + _worth_knowing(column, reading.codes)


def _worth_knowing(column: TableColumn, codes: Codes) -> list[Misfit]:
    known = codes[~np.isnan(codes)]
    if len(known) == 0:
        fix = "Set its kind to ignored if it is always so"
        return [Misfit(column.name, "nothing that can be read", None, fix, stops=False)]
    outside = int(column.clipped(known).sum())
    if not outside:
        return []
    fix = "They count as the nearest bound"
    if outside > _SWAMPED * len(known):
        fix += "; so many suggest other units than the schema's"
    fault = "values outside the declared bounds"
    return [Misfit(column.name, fault, outside, fix, stops=False)]


def _without_schema(table: Any, twins: list[str]) -> list[Misfit]:
    """Return what no schema could take; names of columns are not shown."""
    if twins:
        return [Misfit(None, "two columns of one name", None, "Rename or drop one", stops=True)]
    schema, _ = draft_schema(table)
    ends = {
        "free text": (schema.texts, "Use --features text, or leave them out"),
        "no features: empty, constant or identifying": (schema.ignored, "Leave them out"),
    }
    return [
        Misfit(None, f"{len(of)} {_plural('column', len(of))} with {fault}", None, fix, False)
        for fault, (of, fix) in ends.items()
        if of
    ]


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else noun + "s"
