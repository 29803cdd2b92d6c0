"""The schema of a table: what every column may hold. It is public, and a person edits it.

A schema is one JSON object: "format", "version" and "columns", which maps every column's name to an
object with "kind" and what tables.md says the kind takes. Names and values are compared in
Unicode's NFC.
"""

import datetime as dt
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.features._table_times import find_zone
from vicinal.features.csv_form import PLAIN_CSV, CsvForm
from vicinal.features.table_columns import (
    CategoryColumn,
    DateColumn,
    DurationColumn,
    LevelsColumn,
    NumberColumn,
    TableColumn,
    TimeColumn,
    WholeColumn,
    YesNoColumn,
    all_numbers,
    comparable,
    date_of,
    day_number,
    is_missing,
    plain_text,
)
from vicinal.ledger.sealed_files import read_json

FORMAT, VERSION = "vicinal table schema", 1

IGNORED, TEXT = "ignored", "text"

KINDS: tuple[str, ...] = (
    "number", "whole", "levels", "category", "yes_no", "date", "time", "duration", TEXT, IGNORED,
)  # fmt: skip

MOST_VALUES = 1000
"""Values that a column may declare."""

_NUMBERS: dict[str, type[NumberColumn]] = {
    "number": NumberColumn,
    "whole": WholeColumn,
    "date": DateColumn,
    "time": TimeColumn,
    "duration": DurationColumn,
}
_DECLARED: dict[str, type[LevelsColumn | CategoryColumn | YesNoColumn]] = {
    "levels": LevelsColumn, "category": CategoryColumn, "yes_no": YesNoColumn,
}  # fmt: skip
_DATE_PART = re.compile("%([dmbBYy])")
_COMMON = ("kind", "weight", "missing", "missing_values", "note")
_OPTIONS = {
    "number": ("low", "high", "center", "spread", "log", "limits"),
    "whole": ("low", "high", "center", "spread", "log", "limits"),
    "date": ("low", "high", "center", "spread", "form", "time", "zone"),
    "time": ("cyclic",),
    "duration": ("low", "high", "center", "spread", "log"),
    "levels": ("values", "shares"),
    "category": ("values", "other", "shares"),
    "yes_no": ("shares",),
    TEXT: (),
    IGNORED: (),
}


@dataclass(frozen=True)
class TableSchema:
    """What every column of a table may hold. Public.

    Attributes
    ----------
    columns : tuple of TableColumn
        Those that features are made of, in the order of the features.
    ignored : tuple of str
        Names of columns that are known and left out.
    texts : tuple of str
        Names of columns of free text, of which no features can be made.
    file : CsvForm
        How CSV files of records are written.
    missing_values : tuple of str or number
        Values that stand for a missing one in every column that does not declare them as values.

    Examples
    --------
    >>> from vicinal.features import TableSchema
    >>> schema = TableSchema.from_dict(
    ...     {
    ...         "format": "vicinal table schema",
    ...         "version": 1,
    ...         "columns": {"age": {"kind": "number", "low": 0, "high": 110}},
    ...     }
    ... )
    >>> [column.name for column in schema.columns]
    ['age']
    """

    columns: tuple[TableColumn, ...]
    ignored: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    file: CsvForm = PLAIN_CSV
    missing_values: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        columns = tuple(
            replace(column, file_missing_values=self._file_missing_values(column))
            for column in self.columns
        )
        object.__setattr__(self, "columns", columns)

    def _file_missing_values(self, column: TableColumn) -> tuple[Any, ...]:
        """Return the missing values that a column has besides its own.

        Numbers of a file with decimal commas are read with points for commas and commas for
        points, and so are the texts among them, such as "n.a.".
        """
        if self.file.decimal != "," or not _is_numeric(column):
            return self.missing_values
        declared = (*column.missing_values, *self.missing_values)
        texts = [value for value in declared if isinstance(value, str)]
        swap = str.maketrans(".,", ",.")
        return (*self.missing_values, *(text.translate(swap) for text in texts))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that features are made of."""
        return tuple(column.name for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features, in order."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def reads_numbers(self, name: str) -> bool:
        """Return whether a column's cells are numbers, as declared values may be."""
        return nfc(name) in self._number_names

    @cached_property
    def _number_names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns if _is_numeric(column))

    def usable(self) -> Self:
        """Return the schema if features can be made with it.

        Raises
        ------
        InvalidInput
            If a column is free text, or none is left.
        """
        if self.texts:
            raise InvalidInput(
                f"The schema declares {_quote_names(self.texts)} as text, of which no table "
                "features can be made. Declare such a column 'ignored', or make features of its "
                "texts with SentenceFeatures (on the command line: --features text)."
            )
        if not self.columns:
            raise InvalidInput("The schema must declare at least one column that is not ignored.")
        return self

    def refuse(self, names: Iterable[str | None], noun: str) -> None:
        """Raise InvalidInput if one of these columns, which are no features, is declared as one."""
        for name in names:
            if name is not None and nfc(name) in self.names:
                raise InvalidInput(
                    f"The schema declares {name!r} as a feature, but it is the column of {noun}. "
                    'Set its "kind" to "ignored"; drafts leave out what --label and --subject name.'
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON has it."""
        columns: dict[str, Any] = {column.name: _format_options(column) for column in self.columns}
        columns |= {name: {"kind": TEXT} for name in self.texts}
        columns |= {name: {"kind": IGNORED} for name in self.ignored}
        section: dict[str, Any] = {} if self.file == PLAIN_CSV else self.file.to_dict()
        if self.missing_values:
            section = {**section, "missing_values": list(self.missing_values)}
        file = {"file": section} if section else {}
        return {"format": FORMAT, "version": VERSION, **file, "columns": columns}

    @classmethod
    def from_dict(cls, declared_schema: object) -> Self:
        """Return the schema of a JSON object.

        Raises
        ------
        InvalidInput
            Naming the column and the key that is wrong.
        """
        if not isinstance(declared_schema, Mapping) or declared_schema.get("format") != FORMAT:
            raise InvalidInput(
                f'A schema must be a JSON object with "format": "{FORMAT}". Draft one with: '
                "vicinal schema PUBLIC.parquet -o schema.json"
            )
        checks.file_format("The schema", declared_schema.get("version"), VERSION)
        declared = declared_schema.get("columns")
        allowed = {"format", "version", "file", "columns"}
        if not isinstance(declared, Mapping) or set(declared_schema) - allowed:
            raise InvalidInput(
                'A schema must have "format", "version" and "columns", may have "file", and '
                "nothing else."
            )
        named = {
            nfc(str(name)): _read_options(str(name), declared_column)
            for name, declared_column in declared.items()
        }
        if len(named) != len(declared):
            raise InvalidInput("The schema declares two columns whose names look alike.")
        columns = {
            name: _parse_column(name, declared_column) for name, declared_column in named.items()
        }
        return cls(
            tuple(column for column in columns.values() if isinstance(column, TableColumn)),
            tuple(name for name, column in columns.items() if column == IGNORED),
            tuple(name for name, column in columns.items() if column == TEXT),
            *_file_section(declared_schema.get("file", {})),
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the schema that lies in a file.

        Raises
        ------
        InvalidInput
            If it is missing, is no JSON, or declares something that does not fit.
        """
        declared = read_json(Path(path), "schema")
        try:
            return cls.from_dict(declared)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None


def nfc(name: str) -> str:
    """Return a column's name as names are compared."""
    return unicodedata.normalize("NFC", name)


def _quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


# ------------------------------------------------------------------ from JSON


def _column_error(name: str, must: str) -> InvalidInput:
    return InvalidInput(f"The schema's column {name!r} must have {must}.")


def _file_section(declared: object) -> tuple[CsvForm, tuple[Any, ...]]:
    """Return how files are written, and the values that stand for missing ones in all columns."""
    if not isinstance(declared, Mapping):
        return CsvForm.from_dict(declared), ()
    form = {key: value for key, value in declared.items() if key != "missing_values"}
    values = _missing_values('The schema\'s "file"', declared.get("missing_values", []))
    return CsvForm.from_dict(form), values


def _missing_values(owner: str, values: object) -> tuple[Any, ...]:
    """Return checked missing values; `owner`: the part of the schema that declares them."""
    listed = values if isinstance(values, list) and len(values) <= MOST_VALUES else [None]
    if not all(map(_is_missing_value, listed)):
        raise InvalidInput(
            f'{owner} must have as "missing_values" a list of texts and numbers, at most '
            f'{MOST_VALUES}, such as ["?", -999]. Empty cells are missing anyway.'
        )
    return tuple(listed)


def _is_missing_value(value: object) -> bool:
    """Return whether a value can stand for a missing one: a text, or a finite number."""
    if isinstance(value, str):
        return plain_text(value) != ""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _is_numeric(column: TableColumn) -> bool:
    is_number = column.kind in ("number", "whole", "yes_no")  # 1,0 may mean yes
    return is_number or all_numbers(getattr(column, "values", ("",)))


def _read_options(name: str, declared_column: object) -> dict[str, Any]:
    """Return a column's options with the kind, all of them known to it."""
    if not isinstance(declared_column, Mapping) or declared_column.get("kind") not in KINDS:
        raise _column_error(name, 'a "kind": ' + ", ".join(f'"{kind}"' for kind in KINDS))
    allowed = (*_COMMON, *_OPTIONS[declared_column["kind"]])
    if unknown := [key for key in declared_column if key not in allowed]:
        raise _column_error(name, f'no "{unknown[0]}". Its kind takes {", ".join(allowed)}')
    return dict(declared_column)


def _parse_column(name: str, declared_column: dict[str, Any]) -> TableColumn | str:
    kind: str = declared_column["kind"]
    if kind in (IGNORED, TEXT):
        return kind
    missing = declared_column.get("missing", True)
    is_share = not isinstance(missing, bool)
    share = _number(name, "missing", missing, least=0, most=0.99) if is_share else 0.0
    common: dict[str, Any] = {
        "weight": _number(name, "weight", declared_column.get("weight", 1.0), least=1e-3, most=1e3),
        "missing": bool(missing) or is_share,
        "missing_share": share,
        "missing_values": _missing_values(
            f"The schema's column {name!r}", declared_column.get("missing_values", [])
        ),
    }
    if kind == "time":
        cyclic = _parse_flag(name, "cyclic", declared_column.get("cyclic", True))
        return TimeColumn(name, **common, cyclic=cyclic)
    if kind in _NUMBERS:
        return _NUMBERS[kind](name, **common, **_parse_range(name, declared_column, kind))
    size = 2  # of yes and no
    if kind != "yes_no":
        common["values"] = _parse_values(name, declared_column)
        size = len(common["values"])
        if set(map(comparable, common["values"])) & set(map(comparable, common["missing_values"])):
            raise _column_error(name, 'no value both in its "values" and in its "missing_values"')
    if kind == "category":
        common["other"] = _parse_flag(name, "other", declared_column.get("other", True))
        size += common["other"]
    return _DECLARED[kind](name, **common, shares=_parse_shares(name, declared_column, size))


def _parse_range(name: str, declared_column: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return bounds, centre and spread of a number, checked against each other."""
    read: Callable[..., float] = _parse_date if kind == "date" else _number
    fields: dict[str, Any] = {
        key: read(name, key, declared_column[key])
        for key in ("low", "high", "center")
        if key in declared_column
    }
    if "spread" in declared_column:
        fields["spread"] = _number(name, "spread", declared_column["spread"], least=1e-300)
    fields["log"] = log = _parse_flag(name, "log", declared_column.get("log", False))
    for key in ("limits", "time"):
        if key in declared_column:
            fields[key] = _parse_flag(name, key, declared_column[key])
    if "zone" in declared_column:
        fields["zone"] = _parse_zone(name, declared_column["zone"])
    if "form" in declared_column:
        fields["form"] = _date_form(name, declared_column["form"])
    low, high = fields.get("low"), fields.get("high")
    if ("center" in fields) != ("spread" in fields):
        raise _column_error(name, 'both "center" and "spread", or neither')
    if "spread" not in fields and (low is None or high is None):
        raise _column_error(name, '"low" and "high", or "center" and "spread"')
    if low is not None and high is not None and not low < high:
        raise _column_error(name, 'a "low" that is less than its "high"')
    if log and (low is None or low < 0):
        raise _column_error(name, 'a "low" that is at least 0, as it has "log"')
    return fields


def _parse_values(name: str, declared_column: dict[str, Any]) -> tuple[Any, ...]:
    values = declared_column.get("values")
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_VALUES:
        raise _column_error(name, f'"values": a list of 1 to {MOST_VALUES} texts or numbers')
    for value in values:
        if not isinstance(value, str | bool):
            _number(name, "values", value)
        if plain_text(value) == "" or is_missing(plain_text(value), (plain_text(value),)):
            raise _column_error(
                name, '"values" that are not empty; an empty cell is a missing value'
            )
    distinct = {float(v) if all_numbers(tuple(values)) else plain_text(v) for v in values}
    if len(distinct) != len(values):
        raise _column_error(name, '"values" that all differ, also without spaces around them')
    if declared_column["kind"] == "levels" and len(values) < 2:
        raise _column_error(name, 'two "values" at least, from the lowest to the highest')
    return tuple(values)


def _parse_shares(name: str, declared_column: dict[str, Any], size: int) -> tuple[float, ...]:
    if "shares" not in declared_column:
        return ()
    shares = declared_column["shares"]
    if not isinstance(shares, list) or len(shares) != size:
        raise _column_error(name, f'{size} "shares", one for each value (and one for "other")')
    checked = tuple(_number(name, "shares", share, least=0, most=1e6) for share in shares)
    if not sum(checked) > 0:
        raise _column_error(name, '"shares" that are not all 0')
    return checked


def _number(
    name: str, key: str, value: object, least: float = -1e300, most: float = 1e300
) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _column_error(name, f'a number as "{key}"')
    if not least <= value <= most:  # also refuses NaN
        raise _column_error(name, f'a "{key}" between {least:g} and {most:g}')
    return float(value)


def _parse_flag(name: str, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _column_error(name, f'true or false as "{key}"')
    return value


def _parse_date(name: str, key: str, value: object) -> float:
    try:
        return day_number(str(value))
    except ValueError:
        raise _column_error(name, f'a date as "{key}", written as "2026-01-31"') from None


def _parse_zone(name: str, zone: object) -> str:
    try:
        find_zone(str(zone))
    except ValueError:
        must = 'a "zone" that names a time zone, such as "UTC", "+01:00" or "Europe/Berlin"'
        raise _column_error(name, must) from None
    return str(zone)


def _date_form(name: str, form: object) -> str:
    """Return the form of dates if it has a year, a month and a day, and nothing else."""
    parts = _DATE_PART.findall(str(form))
    which = sorted({"Y": "y", "b": "m", "B": "m"}.get(part, part) for part in parts)
    if which != ["d", "m", "y"] or _DATE_PART.sub("", str(form)).strip(" ./,-"):
        raise _column_error(name, 'a "form" with year, month and day, such as "%d.%m.%Y"')
    return str(form)


# ------------------------------------------------------------------ to JSON


def _format_options(column: TableColumn) -> dict[str, Any]:
    """Return a column's options as JSON has them, without those that are as they are anyway."""
    options = {key: getattr(column, key) for key in _OPTIONS[column.kind]}
    fields: dict[str, Any] = {"kind": column.kind}
    for key, value in options.items():
        if key in ("other", "cyclic") or not (value is None or value is False or value == ()):
            fields[key] = (
                list(value) if isinstance(value, tuple) else _format_option(column, key, value)
            )
    fields["missing"] = column.missing_share or column.missing
    if column.missing_values:
        fields["missing_values"] = list(column.missing_values)
    return fields if column.weight == 1.0 else {**fields, "weight": column.weight}


def _format_option(column: TableColumn, key: str, value: Any) -> Any:
    if key not in ("low", "high", "center"):
        return value
    if column.kind == "date":
        return date_of(value)
    whole = column.kind == "whole" and value.is_integer() and abs(value) < 1e15
    return int(value) if whole else value


# ---------------------------------------------------------------- tables as Arrow columns


def table_columns(
    rows: Any, required: Sequence[str]
) -> tuple[dict[str, pa.ChunkedArray], int, list[str]]:
    """Return the required columns of a table by name, its number of rows, and all names it has.

    `rows`: anything that exports Arrow (pandas, polars, pyarrow), a mapping of names to columns, a
    list of mappings, or a structured array. `required`: columns to return, others are left.
    Raises InvalidInput if a required column is not there, or twice, or cannot be read; no message
    quotes a value.
    """
    table, size = named_columns(rows)
    column_of: dict[str, Any] = {}
    for name, column in table:
        key = nfc(name)
        if key in column_of and key in required:
            raise InvalidInput(f"The table has two columns named {key!r}. Drop one.")
        column_of[key] = column
    if lacking := [name for name in required if name not in column_of]:
        raise InvalidInput(
            f"The table lacks {'column' if len(lacking) == 1 else 'columns'} "
            f"{', '.join(map(repr, lacking))} of the schema. Add what is missing (empty where "
            "nothing is known), or take it out of the schema."
        )
    columns = {name: _convert_to_arrow(name, column_of[name]) for name in required}
    for name, column in columns.items():
        if len(column) != size:
            raise InvalidInput(f"The column {name!r} must be as long as the others.")
    return columns, size, list(column_of)


def named_columns(rows: Any) -> tuple[list[tuple[str, Any]], int]:
    """Return columns with their names, not yet converted, and how many rows there are."""
    if isinstance(rows, pa.Table | pa.RecordBatch):
        return list(zip(rows.schema.names, rows.columns, strict=True)), rows.num_rows
    if hasattr(rows, "iloc") and hasattr(rows, "columns"):  # pandas, whose columns may be objects
        places = range(len(rows.columns))
        return [(str(rows.columns[i]), rows.iloc[:, i]) for i in places], len(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        table = pa.table(rows)
        return list(zip(table.schema.names, table.columns, strict=True)), table.num_rows
    if isinstance(rows, Mapping):
        listed = [(str(name), column) for name, column in rows.items()]
        return listed, _count_rows(listed[0][1]) if listed else 0
    if isinstance(rows, list | tuple) and rows and all(isinstance(row, Mapping) for row in rows):
        return _of_dicts(rows), len(rows)
    if isinstance(rows, np.ndarray) and rows.dtype.names is not None and rows.ndim == 1:
        return [(name, rows[name]) for name in rows.dtype.names], len(rows)
    raise InvalidInput(
        "The rows must have named columns: a pandas, polars or Arrow table, a dict of columns, a "
        "list of dicts, or a structured array."
    )


def _of_dicts(rows: Sequence[Mapping[Any, Any]]) -> list[tuple[str, Any]]:
    names = set(rows[0])
    if any(set(row) != names for row in rows):
        raise InvalidInput(
            "Every row must have the same columns; write null where nothing is known."
        )
    return [(str(name), _of_one_type([row[name] for row in rows])) for name in rows[0]]


def _of_one_type(values: list[Any]) -> list[Any]:
    """Return values as they are, or as texts where some are, so that a row that errs is known."""
    kinds = {type(value) for value in values}
    if str not in kinds or not kinds & {bool, int, float}:
        return values
    return [None if v is None or v != v else plain_text(v) for v in values]


def _count_rows(column: Any) -> int:
    try:
        return len(column)
    except TypeError:
        raise InvalidInput("Every column must be a list or an array of its values.") from None


def _convert_to_arrow(name: str, column: Any) -> pa.ChunkedArray:
    """Return one column as Arrow has it, dictionaries and views resolved."""
    try:
        array = _convert_cells(column)
        if isinstance(array.type, pa.ExtensionType):
            array = array.cast(array.type.storage_type)
        if pa.types.is_dictionary(array.type):
            array = _decode_dictionaries(array)
        return array.cast(pa.large_string()) if str(array.type) == "string_view" else array
    except InvalidInput:
        raise
    except (TypeError, ValueError, OverflowError, pa.ArrowException):
        # Arrow's own message quotes the value.
        raise InvalidInput(
            f"The column {name!r} must hold one type of value. It holds several, or one that "
            "tables do not have. Convert it first."
        ) from None


def _decode_dictionaries(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without its dictionaries, one a chunk."""
    kind = column.type.value_type
    if str(kind) == "string_view":  # polars' categories; Arrow cannot take from views
        kind = pa.large_string()
    parts = [part.dictionary.cast(kind).take(part.indices) for part in column.chunks]
    return pa.chunked_array(parts, kind)


def _convert_cells(column: Any) -> pa.ChunkedArray:
    if isinstance(column, pa.ChunkedArray):
        return column
    if isinstance(column, pa.Array):
        return pa.chunked_array([column])
    if isinstance(column, str | bytes):
        raise InvalidInput("Every column must be a list or an array of its values.")
    if isinstance(column, np.ndarray) and column.ndim != 1:
        raise InvalidInput("Every column must be flat: one value a row.")
    dtype = getattr(column, "dtype", None)
    is_object = isinstance(dtype, np.dtype) and dtype.hasobject
    if isinstance(column, list | tuple) or is_object:
        column = _with_moments(column)
    array = pa.array(column, from_pandas=True)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


_TIMES = (dt.date, dt.time, dt.timedelta, np.datetime64, np.timedelta64)


def _with_moments(values: Any) -> Any:
    """Return values with every date as the moment of its midnight, if some are moments.

    Raises TypeError if times stand beside values of another type. Arrow would drop times of day,
    take a moment without a time zone as one of UTC, and read numbers as days.
    """
    if not any(issubclass(kind, _TIMES) for kind in set(map(type, values))):
        return values
    # NaN and NaT, which are missing, differ from themselves.
    present = [v for v in values if v is not None and v == v]
    zones = {v.tzinfo is not None for v in present if isinstance(v, dt.datetime)}
    kinds = {_time_kind(v) for v in present}
    if kinds == {dt.date, dt.datetime} and zones == {False}:
        return [dt.datetime.combine(v, dt.time()) if type(v) is dt.date else v for v in values]
    if len(kinds) > 1 or len(zones) > 1:
        raise TypeError  # several types
    return values


def _time_kind(value: object) -> type:
    """Return the type of a date or time, of which a library's own may be a subclass."""
    kinds = (dt.datetime, *_TIMES)
    return next((kind for kind in kinds if isinstance(value, kind)), type(value))
