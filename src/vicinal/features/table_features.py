"""Features of the rows of a table, by a public schema: nothing is learnt from them."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.arrays import Bools
from vicinal.errors import InvalidInput, UnusableRows
from vicinal.features import table_columns as cells
from vicinal.features.fixed import FixedFeatures, Vectors
from vicinal.features.table_columns import FIXES, OK, WORDS, Codes, Reading, TableColumn
from vicinal.features.table_schema import TableSchema, nfc, table_columns

_LISTED = 20
"""Rows that a message lists at most."""


class TableFeatures(FixedFeatures):
    """Features of the rows of a table, as a public schema declares its columns.

    Row i of the output is a function of row i of the table and of the schema alone. Columns are
    found by name, in any order. Those that the schema does not name are left out, with a warning; a
    missing column is an error.

    Parameters
    ----------
    schema : TableSchema, dict or path
        What every column may hold: a schema, its JSON object, or the file of it. **It must be
        public**; :func:`~vicinal.features.draft_schema` drafts one from a public table.

    Examples
    --------
    >>> schema = {
    ...     "format": "vicinal table schema",
    ...     "version": 1,
    ...     "columns": {
    ...         "age": {"kind": "whole", "low": 0, "high": 100, "missing": False},
    ...         "sex": {"kind": "category", "values": ["f", "m"], "other": False, "missing": False},
    ...     },
    ... }
    >>> TableFeatures(schema).transform({"age": [50, 100], "sex": ["f", "m"]}).round(2)
    array([[0.  , 0.71, 0.  ],
           [1.73, 0.  , 0.71]], dtype=float32)

    Notes
    -----
    A number is clipped to its bounds, centred and divided by the public spread; numbers more than
    four spreads from the centre count as four. A category is one-hot; two rows of different
    categories are one apart, as are two numbers that differ by one spread. For a missing value, the
    features are those of the centre, or zeros, and one more feature says that it is missing.
    """

    def __init__(self, schema: TableSchema | Mapping[str, Any] | str | Path) -> None:
        self.schema = schema

    def transform(self, X: Any) -> Vectors:
        """Return the features of a table's rows.

        Parameters
        ----------
        X
            A pandas, polars or Arrow table, a dict of columns, a list of dicts, or a structured
            array.

        Returns
        -------
        array (n, d) of float32
            In the order of the rows; columns as :meth:`get_feature_names_out` names them.

        Raises
        ------
        InvalidInput
            If a column is lacking or holds what the schema does not allow. The message names the
            column, the kind of fault and the fix; never a value, and not how many rows.
        """
        schema = as_schema(self.schema).usable()
        codes = self.codes(X)
        return encoded(schema, codes)

    def codes(self, X: Any) -> Codes:
        """Return what was read, float64 (n, columns): numbers, places of values, days, NaN.

        Raises as :meth:`transform`.
        """
        schema = as_schema(self.schema).usable()
        columns, size, names = table_columns(X, schema.names)
        if size == 0:
            raise InvalidInput("The table must have at least one row.")
        _warn_of_others(schema, names)
        readings = {column.name: column.read(columns[column.name]) for column in schema.columns}
        _refuse_faults(readings)
        return np.column_stack([readings[name].codes for name in schema.names])

    def get_feature_names_out(
        self,
        input_features: object = None,  # noqa: ARG002 (scikit-learn's signature)
    ) -> npt.NDArray[np.object_]:
        """Return the names of the features, an array of str (d,)."""
        return np.asarray(as_schema(self.schema).feature_names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags


def as_schema(schema: object) -> TableSchema:
    """Return a schema of a schema, of its JSON object, or of the path of its file.

    Raises InvalidInput if it is none of them.
    """
    if isinstance(schema, TableSchema):
        return schema
    if isinstance(schema, str | Path):
        return TableSchema.load(schema)
    return TableSchema.from_dict(schema)


def encoded(schema: TableSchema, codes: Codes) -> Vectors:
    """Return features (n, d) of codes (n, columns)."""
    parts = [column.encode(codes[:, i]) for i, column in enumerate(schema.columns)]
    return np.ascontiguousarray(np.column_stack(parts), dtype=np.float32)


def _refuse_faults(readings: Mapping[str, Reading]) -> None:
    faults, located = [], []
    for name, reading in readings.items():
        for fault in np.unique(reading.faults[reading.faults != OK]).tolist():
            rows = [str(row + 1) for row in np.flatnonzero(reading.faults == fault).tolist()]
            more = ", ..." if len(rows) > _LISTED else ""
            told = f"The column {name!r} holds {WORDS[fault]}"
            faults.append(f"{told}. {FIXES[fault]}.")
            located.append(f"{told}, in row {', '.join(rows[:_LISTED])}{more}. {FIXES[fault]}.")
    if faults:
        faults.append("A check of the table against the schema counts the rows.")
        raise UnusableRows(" ".join(faults), " ".join(located))


def _warn_of_others(schema: TableSchema, names: Sequence[str]) -> None:
    declared_names = {*schema.names, *schema.ignored, *schema.texts}
    if others := sum(name not in declared_names for name in names):
        warnings.warn(
            f"The table has {others} {'column' if others == 1 else 'columns'} that the schema "
            f"does not name. {'It is' if others == 1 else 'They are'} left out.",
            UserWarning,
            stacklevel=4,
        )


# ------------------------------------------------ faults, for the owner of the table

_SWAMPED = 0.5
"""A column of which more than this share lies outside its bounds is in other units, as a rule."""


@dataclass(frozen=True)
class Misfit:
    """One thing that does not fit. **For the owner of the table only**: it counts rows.

    `column`: as the schema names it; None for the table as a whole. `fault`: the kind of fault, in
    words. `rows`: the rows it is about, from 1; private. `fix`: what to do. `stops`: whether the
    table is refused as it is; otherwise it is only worth knowing.
    """

    column: str | None
    fault: str
    fix: str
    stops: bool
    rows: tuple[int, ...] | None = None

    @classmethod
    def of_rows(
        cls, column: str, fault: str, fix: str, at: Bools, *, stops: bool = True
    ) -> list[Self]:
        """Return a list with one for the rows (n,) where it is so; an empty one where none is."""
        rows = tuple((np.flatnonzero(at) + 1).tolist())
        return [cls(column, fault, fix, stops, rows)] if rows else []

    def __str__(self) -> str:
        where = "the table" if self.column is None else f"column {self.column or '(no name)'!r}"
        if self.rows is None:
            return f"{where} {self.fault}. {self.fix}."
        rows = "1 row holds" if len(self.rows) == 1 else f"{len(self.rows)} rows hold"
        return f"{where}: {rows} {self.fault}. {self.fix}."


def check_table(
    table: Any,
    schema: TableSchema,
    labels: Sequence[str] = (),
    subject: str | None = None,
    classes: Sequence[Any] | None = None,
) -> list[Misfit]:
    """Return everything about a table that will not fit, or is worth knowing.

    `table`: the owner's, as :class:`~vicinal.features.TableFeatures` takes tables. `labels`: one
    column of labels, or several of numbers. `classes`: what labels may be; all without them.
    """
    _, size, names = table_columns(table, ())
    if size == 0:
        return [Misfit(None, "has no rows", "Give at least one record", stops=True)]
    readers: dict[str, Callable[[pa.ChunkedArray], Reading]] = {
        nfc(name): partial(cells.labels, classes=classes) if len(labels) == 1 else _extract_targets
        for name in labels
    }
    if subject is not None:
        readers[nfc(subject)] = lambda column: cells.mark_ids(column).refusing_missing()
    readers |= {column.name: column.read for column in schema.columns}
    misfits = [
        Misfit(name, "is missing", "Add it, or take it out of the schema", stops=True)
        for name in readers
        if name not in names
    ]
    if not misfits:  # a table without a header has somebody's record for names
        declared_names = {*readers, *schema.ignored, *schema.texts}
        misfits += [
            Misfit(name, "is not in the schema", "It is left out", stops=False)
            for name in dict.fromkeys(names)
            if name not in declared_names
        ]
    for name, read in readers.items():
        if names.count(name) > 1:
            misfits.append(Misfit(name, "appears twice", "Drop one of the two", stops=True))
        elif name in names:
            misfits += _find_misfits(table, name, read)
    return misfits


def _extract_targets(column: pa.ChunkedArray) -> Reading:
    return cells.parse_numbers(column).refusing_missing()


def _find_misfits(
    table: Any, name: str, read: Callable[[pa.ChunkedArray], Reading]
) -> list[Misfit]:
    """Return what is wrong in one column."""
    try:
        values = table_columns(table, [name])[0][name]
        reading = read(values)
    except InvalidInput:
        fault = "holds values of several types, or of a type that tables do not have"
        return [Misfit(name, fault, "Convert it", stops=True)]
    misfits = [
        misfit
        for kind in np.unique(reading.faults).tolist()
        if kind != OK
        for misfit in Misfit.of_rows(name, WORDS[kind], FIXES[kind], reading.faults == kind)
    ]
    column = getattr(read, "__self__", None)
    if isinstance(column, cells.DateColumn) and column.zone is None and cells.has_zone(values):
        fix = 'Declare "zone", such as "UTC", so that texts and timestamps of a moment agree'
        misfits.append(Misfit(name, "holds moments with a time zone", fix, stops=False))
    return misfits + (_worth_knowing(column, values, reading.codes) if column else [])


def warn_of_others(path: Path, table: pa.Table, schema: TableSchema) -> None:
    """Warn of what is worth knowing of the categories of a **public** table."""
    for column in schema.columns:
        if isinstance(column, cells.CategoryColumn) and column.name in table.column_names:
            values = table_columns(table, [column.name])[0][column.name]
            for misfit in _worth_knowing(column, values, column.read(values).codes):
                warnings.warn(f"{path}: {misfit}", UserWarning, stacklevel=2)


def _worth_knowing(column: TableColumn, values: pa.ChunkedArray, codes: Codes) -> list[Misfit]:
    n_present = int((~np.isnan(codes)).sum())
    if not n_present:
        fix = "If that is normal, set its kind to ignored"
        return [Misfit(column.name, "holds nothing that can be read", fix, stops=False)]
    if isinstance(column, cells.CategoryColumn) and column.other:
        return _find_others(column, values, codes)
    outside = column.clipped(codes)
    fix = "They count as the nearest bound"
    if outside.sum() > _SWAMPED * n_present:
        fix += ". There are so many that the units may differ from the schema's"
    return Misfit.of_rows(
        column.name, "values outside the declared bounds", fix, outside, stops=False
    )


def _find_others(column: cells.CategoryColumn, values: Any, codes: Codes) -> list[Misfit]:
    """Return the rows with misspelt declared values, and those of "other" if they are most rows."""
    declared = set(map(cells.fold_spelling, column.values))
    unread = values.filter(pa.array(~(codes < len(column.values)))).drop_null().unique()
    misspelt = [value for value in unread.to_pylist() if cells.fold_spelling(value) in declared]
    is_misspelt = pc.is_in(values, value_set=pa.array(misspelt, values.type)).to_numpy()
    fault = "declared values in another spelling, such as other capitals or blanks"
    fix = 'They count as "other" or missing. Write them as the schema does, or declare them'
    misfits = Misfit.of_rows(column.name, fault, fix, is_misspelt, stops=False)
    is_unknown = (codes == len(column.values)) & ~is_misspelt
    if is_unknown.sum() > _SWAMPED * (~np.isnan(codes)).sum():
        fix = 'They count as "other". There are so many that they may be declared otherwise'
        misfits += Misfit.of_rows(column.name, WORDS[cells.DECLARED], fix, is_unknown, stops=False)
    return misfits
