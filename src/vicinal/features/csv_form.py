"""The format of a CSV file: delimiter, decimal mark, encoding, quotes, escapes and comments."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from vicinal.errors import InvalidInput

_MARK = r"[!-~\t\x1c-\x1f](?<![\w.])"
"""Regular expression of a character with a role. It is ASCII, because readers of CSV compare bytes,
and no letter, digit, underscore, point or blank, because names and numbers contain these."""

_REQUIRED_KEYS = ("delimiter", "decimal", "encoding")
_OPTIONAL_KEYS = ("quote", "escape", "comment")


@dataclass(frozen=True)
class CsvForm:
    r"""The format of CSV files. It is public: detected in public rows, or declared.

    Raises InvalidInput if a value is invalid, or two roles have the same first character.

    Attributes
    ----------
    delimiter : str
        The character between fields.
    decimal : str
        The decimal mark of numbers, "." or ",".
    encoding : str
        The name in Python, such as "utf-8", "cp1252" or "utf-16".
    quote : str
        The character around fields that contain delimiters or line breaks; doubled inside such a
        field, it means itself. Empty: no field is quoted.
    escape : str
        The character, such as a backslash, after which a character has no role. Empty: none.
    comment : str
        The beginning of lines that are left out, such as "#". A line inside a quoted field is not a
        comment. Empty: no line is left out.

    Examples
    --------
    >>> from vicinal.features import CsvForm
    >>> str(CsvForm(";", ",", "latin-1"))
    "';' between fields, a decimal comma, encoding iso8859-1"
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    quote: str = '"'
    escape: str = ""
    comment: str = ""

    def __post_init__(self) -> None:
        """Refuse invalid values, and replace the encoding by Python's name of it."""
        if not re.fullmatch(rf'{_MARK}(?<!")', str(self.delimiter)):
            raise InvalidInput("The 'delimiter' parameter must be one character, such as ';'.")
        for name, example in (("quote", "'"), ("escape", "\\")):
            if not re.fullmatch(rf"({_MARK})?", str(getattr(self, name))):
                raise InvalidInput(
                    f"The {name!r} parameter must be one character, such as {example}, or empty."
                )
        if not re.fullmatch(rf"({_MARK}){{0,3}}", str(self.comment)):
            raise InvalidInput(
                "The 'comment' parameter must be one to three characters such as # or //, or empty."
            )
        role_of: dict[str, str] = {}
        for name in ("delimiter", *_OPTIONAL_KEYS):
            mark = getattr(self, name)[:1]
            if mark and role_of.setdefault(mark, name) != name:
                raise InvalidInput(
                    f"The {name!r} parameter must begin with another character than the "
                    f"{role_of[mark]!r} parameter."
                )
        if self.decimal not in (".", ","):
            raise InvalidInput("The 'decimal' parameter must be '.' or ','.")
        try:
            codec = codecs.lookup(self.encoding)
            codec.decode(b"")[0].strip("")
        except (AttributeError, LookupError, TypeError, ValueError):
            raise InvalidInput(
                "The 'encoding' parameter must name an encoding of text, such as utf-8 or cp1252."
            ) from None
        object.__setattr__(self, "encoding", codec.name)

    def __str__(self) -> str:
        """Return delimiter, decimal mark, encoding and unusual further attributes, in words."""
        mark = "comma" if self.decimal == "," else "point"
        form = f"{self.delimiter!r} between fields, a decimal {mark}, encoding {self.encoding}"
        for name in self._list_unusual_keys():
            form += f", {name} {getattr(self, name)!r}"
        return form

    def _list_unusual_keys(self) -> list[str]:
        """Return the names of the optional attributes with other values than in plain CSV."""
        fields = type(self).__dataclass_fields__
        return [name for name in _OPTIONAL_KEYS if getattr(self, name) != fields[name].default]

    def to_dict(self) -> dict[str, str]:
        """Return the format as a JSON object, without optional keys that are as in plain CSV."""
        keys = (*_REQUIRED_KEYS, *self._list_unusual_keys())
        return {name: getattr(self, name) for name in keys}

    @classmethod
    def from_dict(cls, declared: object) -> Self:
        """Return the format that a JSON object declares; absent keys are as in plain CSV.

        Raises InvalidInput if it is not a JSON object, or has other keys or invalid values.
        """
        if not isinstance(declared, Mapping) or set(declared) - set(cls.__dataclass_fields__):
            raise InvalidInput(
                'A schema\'s "file" may have "delimiter", "decimal", "encoding", "quote", '
                '"escape", "comment", and nothing else.'
            )
        return cls(**declared)


PLAIN_CSV = CsvForm()


def swap_decimal_marks(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts with commas and points swapped, for files with decimal commas.

    Then 1,5 is a number, and 1.500, which may mean 1500, is not.
    """
    for mark, replacement in ((".", "\0"), (",", "."), ("\0", ",")):
        column = pc.replace_substring(column, mark, replacement)
    return column
