"""The public schema of a table, which declares the kind and options of every column.

A schema is one JSON object with "format", "version" and "columns", which maps the name of every
column to an object with "kind" and the options of the kind. Names and values are compared in
Unicode's composed form (NFC).
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from vicinal import checks
from vicinal.errors import InvalidInput
from vicinal.features import table_kinds as kinds
from vicinal.features._table_times import find_zone
from vicinal.features.csv_form import PLAIN_CSV, CsvForm
from vicinal.features.table_columns import (
    are_numbers,
    format_day,
    normalize_value,
    parse_iso_date,
    plain_text,
)
from vicinal.ledger.sealed_files import read_json

FORMAT, VERSION = "vicinal table schema", 1

IGNORED, TEXT = "ignored", "text"

MAX_VALUES = 1000
"""Largest number of values that a column may declare, and of missing-value markers."""

_MAX_NUMBER = 1e300  # declared numbers of a greater magnitude are refused

_COMMON_OPTIONS = ("kind", "weight", "missing", "missing_values", "note")
_RANGE = ("low", "high", "center", "spread")
_KINDS: dict[str, tuple[type[kinds.TableColumn] | None, tuple[str, ...]]] = {
    "number": (kinds.NumberColumn, (*_RANGE, "log", "limits")),
    "whole": (kinds.WholeColumn, (*_RANGE, "log", "limits")),
    "levels": (kinds.LevelsColumn, ("values", "shares")),
    "category": (kinds.CategoryColumn, ("values", "other", "shares")),
    "yes_no": (kinds.YesNoColumn, ("shares",)),
    "date": (kinds.DateColumn, (*_RANGE, "form", "time", "zone")),
    "time": (kinds.TimeColumn, ("cyclic",)),
    "duration": (kinds.DurationColumn, (*_RANGE, "log")),
    TEXT: (None, ()),
    IGNORED: (None, ()),
}
"""The class (None if the kind has no features) and the further options of every kind."""

_DATE_FIELD = re.compile("%([dmbBYy])")


@dataclass(frozen=True)
class TableSchema:
    """The declared kind and options of every column of a table. Public.

    Attributes
    ----------
    columns : tuple of TableColumn
        The columns with features, in the order of the features.
    ignored : tuple of str
        Names of columns that are left out.
    texts : tuple of str
        Names of columns of free text, which have no table features.
    file : CsvForm
        The format of CSV files of records.
    missing_values : tuple of str or number
        Missing-value markers of all columns, except of those that declare them as values.

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

    columns: tuple[kinds.TableColumn, ...]
    ignored: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    file: CsvForm = PLAIN_CSV
    missing_values: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """Give every column the schema's missing-value markers."""
        columns = tuple(
            replace(column, schema_missing_values=self._get_schema_markers(column))
            for column in self.columns
        )
        object.__setattr__(self, "columns", columns)

    def _get_schema_markers(self, column: kinds.TableColumn) -> tuple[Any, ...]:
        """Return the missing-value markers that a column gets from the schema.

        In a file with decimal commas, points and commas of numbers are swapped before parsing, so
        the result includes all markers in that form, too, such as "n,a," for "n.a.".
        """
        if self.file.decimal != "," or not _has_numeric_cells(column):
            return self.missing_values
        declared = (*column.missing_values, *self.missing_values)
        texts = [value for value in declared if isinstance(value, str)]
        swap = str.maketrans(".,", ",.")
        return (*self.missing_values, *(text.translate(swap) for text in texts))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns with features."""
        return tuple(column.name for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of all features, in order."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def reads_numbers(self, name: str) -> bool:
        """Return whether the cells of the column `name` are parsed as numbers or numeric values."""
        return checks.normalize_text(name) in self._numeric_names

    @cached_property
    def _numeric_names(self) -> frozenset[str]:
        """Names of the columns with numbers or numeric values in their cells."""
        return frozenset(column.name for column in self.columns if _has_numeric_cells(column))

    def require_features(self) -> Self:
        """Return the schema if it has features and no free text; else raise InvalidInput."""
        if self.texts:
            raise InvalidInput(
                f"The schema declares {', '.join(map(repr, self.texts))} as text, of which no "
                "table features can be made. Declare such a column 'ignored', or make features of "
                "its texts with SentenceFeatures (on the command line: --features text)."
            )
        if not self.columns:
            raise InvalidInput("The schema must declare at least one column that is not ignored.")
        return self

    def refuse_features(self, names: Iterable[str | None]) -> None:
        """Raise InvalidInput if a column of labels or subjects is a feature; None is skipped."""
        for name in names:
            if name is not None and checks.normalize_text(name) in self.names:
                raise InvalidInput(
                    f"The schema declares {name!r} as a feature, but it is the column of labels or "
                    'subjects. Set its "kind" to "ignored"; drafts leave out what --label and '
                    "--subject name."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as a JSON object."""
        columns: dict[str, Any] = {column.name: _format_column(column) for column in self.columns}
        columns |= {name: {"kind": TEXT} for name in self.texts}
        columns |= {name: {"kind": IGNORED} for name in self.ignored}
        section: dict[str, Any] = {} if self.file == PLAIN_CSV else self.file.to_dict()
        if self.missing_values:
            section = {**section, "missing_values": list(self.missing_values)}
        file = {"file": section} if section else {}
        return {"format": FORMAT, "version": VERSION, **file, "columns": columns}

    @classmethod
    def from_dict(cls, declared_schema: object) -> Self:
        """Return the schema that a JSON object declares.

        Raises InvalidInput if the object is not a valid schema; the message names the column and
        the key.
        """
        if (
            not isinstance(declared_schema, Mapping)
            or declared_schema.get("format") != FORMAT
            or "version" not in declared_schema
        ):
            raise InvalidInput(
                f'A schema must be a JSON object with "format": "{FORMAT}", "version": {VERSION} '
                'and "columns". Draft one with: vicinal schema PUBLIC.parquet -o schema.json. '
                "Without a public table, write it by hand as in docs/reference/table-schema.md."
            )
        checks.check_file_format("The schema", declared_schema.get("version"), VERSION)
        declared = declared_schema.get("columns")
        allowed_keys = {"format", "version", "file", "columns"}
        if not isinstance(declared, Mapping) or set(declared_schema) - allowed_keys:
            raise InvalidInput(
                'A schema must have "format", "version" and "columns", may have "file", and '
                "nothing else."
            )
        names = [checks.normalize_text(str(name)) for name in declared]
        parsers = [
            _ColumnParser.from_declaration(name, options)
            for name, options in zip(names, declared.values(), strict=True)
        ]
        if len(set(names)) != len(names):
            raise InvalidInput("The schema declares two columns whose names look alike.")
        columns = {parser.name: parser.parse_column() for parser in parsers}
        return cls(
            tuple(column for column in columns.values() if isinstance(column, kinds.TableColumn)),
            tuple(name for name, column in columns.items() if column == IGNORED),
            tuple(name for name, column in columns.items() if column == TEXT),
            *_parse_file_section(declared_schema.get("file", {})),
        )

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the schema of a JSON file; raise InvalidInput for any other file."""
        declared = read_json(Path(path), "schema")
        try:
            return cls.from_dict(declared)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None


def _has_numeric_cells(column: kinds.TableColumn) -> bool:
    """Return whether a column's cells are parsed as numbers, so that they have a decimal mark."""
    is_numeric = column.kind in ("number", "whole", "yes_no")  # 1,0 may mean yes
    return is_numeric or are_numbers(getattr(column, "values", ("",)))


def _parse_file_section(declared: object) -> tuple[CsvForm, tuple[Any, ...]]:
    """Return the CSV format and missing-value markers that a schema's key "file" declares."""
    if not isinstance(declared, Mapping):
        return CsvForm.from_dict(declared), ()
    csv_format = {key: value for key, value in declared.items() if key != "missing_values"}
    markers = _check_markers('The schema\'s "file"', declared.get("missing_values", []))
    return CsvForm.from_dict(csv_format), markers


def _check_markers(location: str, markers: object) -> tuple[Any, ...]:
    """Return missing-value `markers`, a JSON value that must be a list of texts and numbers.

    `location`: the beginning of the message of an error, such as "The schema's column 'age'".
    """
    if (
        not isinstance(markers, list)
        or len(markers) > MAX_VALUES
        or not all(map(_is_valid_marker, markers))
    ):
        raise InvalidInput(
            f'{location} must have as "missing_values" a list of texts and numbers, at most '
            f'{MAX_VALUES}, such as ["?", -999]. Empty cells are missing anyway.'
        )
    return tuple(markers)


def _is_valid_marker(value: object) -> bool:
    """Return whether a value is a text that is not empty, or a finite number."""
    if isinstance(value, str):
        return plain_text(value) != ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < _MAX_NUMBER


@dataclass(frozen=True)
class _ColumnParser:
    """Parser of the JSON declaration of one column.

    `name`: the column's name in composed form (NFC). `options`: the kind and all declared options
    by key. All methods raise InvalidInput for a value that the option cannot have.
    """

    name: str
    options: Mapping[str, Any]

    @classmethod
    def from_declaration(cls, name: str, declared: object) -> Self:
        """Return the parser of a column's JSON value `declared`.

        Raises InvalidInput for an unknown kind, and for an option that columns of the kind cannot
        have.
        """
        parser = cls(name, declared if isinstance(declared, Mapping) else {})
        kind = parser.options.get("kind")
        if kind not in tuple(_KINDS):  # a list or object as "kind" has no hash
            quoted_kinds = ", ".join(f'"{kind}"' for kind in _KINDS)
            raise parser.reject(f'a "kind": {quoted_kinds}')
        allowed = (*_COMMON_OPTIONS, *_KINDS[kind][1])
        for key in parser.options:
            if key not in allowed:
                raise parser.reject(f'no "{key}". Its kind takes {", ".join(allowed)}')
        return parser

    def reject(self, requirement: str) -> InvalidInput:
        """Return the error that the column must have `requirement`, as 'a number as "low"'."""
        return InvalidInput(f"The schema's column {self.name!r} must have {requirement}.")

    def parse_column(self) -> kinds.TableColumn | str:
        """Return the declared column; for a kind without features only the kind."""
        kind: str = self.options["kind"]
        column_class = _KINDS[kind][0]
        if column_class is None:
            return kind
        missing = self.options.get("missing", True)
        has_share = not isinstance(missing, bool)
        markers = self.options.get("missing_values", [])
        fields: dict[str, Any] = {
            "missing": has_share or missing,
            "missing_share": self.parse_number("missing", missing, 0, 0.99) if has_share else 0.0,
            "missing_values": _check_markers(f"The schema's column {self.name!r}", markers),
        }
        for key, parse in self._parsers.items():
            if key in self.options:
                fields[key] = parse(key, self.options[key])
        if issubclass(column_class, kinds.DeclaredColumn):
            fields |= self.parse_values(fields)
        elif kind != "time":
            self.check_scale(fields)
        return column_class(self.name, **fields)

    @property
    def _parsers(self) -> dict[str, Callable[[str, Any], Any]]:
        """Functions of an option's key and JSON value that return the parsed value, by key.

        Options on missing values and lists of values are parsed separately.
        """
        parse_bound = self.parse_date if self.options["kind"] == "date" else self.parse_number
        return {
            "weight": partial(self.parse_number, minimum=1e-3, maximum=1e3),
            **dict.fromkeys(("low", "high", "center"), parse_bound),
            "spread": partial(self.parse_number, minimum=1e-300),
            **dict.fromkeys(("log", "limits", "time", "cyclic", "other"), self.parse_flag),
            "zone": self.parse_zone,
            "form": self.parse_date_format,
        }

    def check_scale(self, fields: Mapping[str, Any]) -> None:
        """Raise InvalidInput if bounds, centre and spread in the parsed `fields` are incomplete.

        Also if they contradict each other.
        """
        low, high = fields.get("low"), fields.get("high")
        if ("center" in fields) != ("spread" in fields):
            raise self.reject('both "center" and "spread", or neither')
        if "spread" not in fields and (low is None or high is None):
            raise self.reject('"low" and "high", or "center" and "spread"')
        if low is not None and high is not None and not low < high:
            raise self.reject('a "low" that is less than its "high"')
        if fields.get("log") and (low is None or low < 0):
            raise self.reject('a "low" that is at least 0, as it has "log"')

    def parse_values(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options "values" and "shares"; `fields`: all other options, parsed.

        No value may be one of the missing-value markers.
        """
        lists: dict[str, Any] = {}
        n_shares = 2  # A column of the kind yes_no has a share of yes and a share of no.
        if self.options["kind"] != "yes_no":
            lists["values"] = self.check_values(self.options.get("values"))
            n_shares = len(lists["values"])
            declared = set(map(normalize_value, lists["values"]))
            if declared & set(map(normalize_value, fields["missing_values"])):
                raise self.reject('no value both in its "values" and in its "missing_values"')
        if self.options["kind"] == "category":
            n_shares += fields.get("other", True)
        if "shares" in self.options:
            lists["shares"] = self.check_shares(self.options["shares"], n_shares)
        return lists

    def check_values(self, values: object) -> tuple[Any, ...]:
        """Return the JSON value of "values" as a tuple; texts and numbers must be distinct."""
        if not isinstance(values, list) or not 1 <= len(values) <= MAX_VALUES:
            raise self.reject(f'"values": a list of 1 to {MAX_VALUES} texts or numbers')
        for value in values:
            if not isinstance(value, str | bool):
                self.parse_number("values", value)
            if plain_text(value) == "":
                raise self.reject('"values" that are not empty; an empty cell is a missing value')
        has_numbers = are_numbers(values)
        distinct = {float(value) if has_numbers else plain_text(value) for value in values}
        if len(distinct) != len(values):
            raise self.reject('"values" that all differ, also without spaces around them')
        if self.options["kind"] == "levels" and len(values) < 2:
            raise self.reject('two "values" at least, from the lowest to the highest')
        return tuple(values)

    def check_shares(self, shares: object, n_shares: int) -> tuple[float, ...]:
        """Return the JSON value of "shares", `n_shares` nonnegative numbers that are not all 0."""
        if not isinstance(shares, list) or len(shares) != n_shares:
            raise self.reject(f'{n_shares} "shares", one for each value (and one for "other")')
        numbers = tuple(self.parse_number("shares", share, 0, 1e6) for share in shares)
        if not sum(numbers) > 0:
            raise self.reject('"shares" that are not all 0')
        return numbers

    def parse_number(
        self, key: str, value: object, minimum: float = -_MAX_NUMBER, maximum: float = _MAX_NUMBER
    ) -> float:
        """Return the `value` of the option `key` as a float from `minimum` to `maximum`."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.reject(f'a number as "{key}"')
        if not minimum <= value <= maximum:  # also refuses NaN
            raise self.reject(f'a "{key}" between {minimum:g} and {maximum:g}')
        return float(value)

    def parse_flag(self, key: str, value: object) -> bool:
        """Return the `value` of the option `key`, which must be true or false."""
        if not isinstance(value, bool):
            raise self.reject(f'true or false as "{key}"')
        return value

    def parse_date(self, key: str, value: object) -> float:
        """Return the days since 1970 of the date `value`, such as "2026-01-31", of option `key`."""
        try:
            return parse_iso_date(str(value))
        except ValueError:
            raise self.reject(f'a date as "{key}", written as "2026-01-31"') from None

    def parse_zone(self, key: str, value: object) -> str:
        """Return the `value` of `key`, which must be a time zone such as "Europe/Berlin"."""
        try:
            find_zone(str(value))
        except ValueError:
            raise self.reject(
                f'a "{key}" that names a time zone, such as "UTC", "+01:00" or "Europe/Berlin"'
            ) from None
        return str(value)

    def parse_date_format(self, key: str, value: object) -> str:
        """Return the `value` of `key`, a strptime format with one day, one month and one year."""
        date_format = str(value)
        canonical = {"Y": "y", "b": "m", "B": "m"}
        fields = sorted(canonical.get(field, field) for field in _DATE_FIELD.findall(date_format))
        if fields != ["d", "m", "y"] or _DATE_FIELD.sub("", date_format).strip(" ./,-"):
            raise self.reject(f'a "{key}" with year, month and day, such as "%d.%m.%Y"')
        return date_format


def _format_column(column: kinds.TableColumn) -> dict[str, Any]:
    """Return the declaration of a column as a JSON object, without options at their defaults."""
    fields: dict[str, Any] = {"kind": column.kind}
    for key in _KINDS[column.kind][1]:
        value = getattr(column, key)
        if isinstance(value, tuple):
            value = list(value)
        elif value is not None and key in ("low", "high", "center"):
            # In codes of the column: in JSON a date, an integer or a float.
            if column.kind == "date":
                value = format_day(value)
            elif column.kind == "whole" and value.is_integer() and abs(value) < 1e15:
                value = int(value)
        is_default = value is None or value is False or value == []
        if key in ("other", "cyclic") or not is_default:
            fields[key] = value
    fields["missing"] = column.missing_share or column.missing
    if column.missing_values:
        fields["missing_values"] = list(column.missing_values)
    return fields if column.weight == 1.0 else {**fields, "weight": column.weight}
