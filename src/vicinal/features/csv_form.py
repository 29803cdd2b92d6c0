"""How a CSV file is written: delimiter, decimal mark, encoding, quotes, escapes and comments."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from vicinal.errors import InvalidInput

_MARK = r"[!-~\t\x1c-\x1f](?<![\w.])"
"""A character with a role of its own: ASCII, as readers of CSV compare bytes; no letter, digit,
underscore, point or blank, which stand in names and numbers."""

_ALWAYS = ("delimiter", "decimal", "encoding")
_FURTHER = ("quote", "escape", "comment")


@dataclass(frozen=True)
class CsvForm:
    r"""How CSV files are written. It is public: found on public rows, or declared.

    Attributes
    ----------
    delimiter : str
        The character between fields.
    decimal : str
        The decimal mark of numbers, "." or ",".
    encoding : str
        As Python names it, such as "utf-8", "cp1252" or "utf-16".
    quote : str
        The character around fields that hold delimiters or line breaks; twice inside such a field
        it stands for itself. Empty: no field is quoted.
    escape : str
        The character before one that means itself, such as a backslash. Empty: there is none.
    comment : str
        Characters that begin a line which is left out, such as "#". A line inside a quoted field is
        no comment. Empty: no line is left out.

    Raises
    ------
    InvalidInput
        If one of them cannot be.

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
        for name in ("delimiter", *_FURTHER):
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
        mark = "comma" if self.decimal == "," else "point"
        form = f"{self.delimiter!r} between fields, a decimal {mark}, encoding {self.encoding}"
        further = {name: getattr(self, name) for name in _FURTHER if self.differs(name)}
        return "".join([form, *(f", {name} {value!r}" for name, value in further.items())])

    def differs(self, name: str) -> bool:
        """Return whether an attribute has another value than in plain CSV."""
        return bool(getattr(self, name) != type(self).__dataclass_fields__[name].default)

    def to_dict(self) -> dict[str, str]:
        """Return the form as a JSON object, without marks that are as in plain CSV."""
        names = [*_ALWAYS, *filter(self.differs, _FURTHER)]
        return {name: getattr(self, name) for name in names}

    @classmethod
    def from_dict(cls, declared: object) -> Self:
        """Return the form of a JSON object; what it leaves out is as in plain CSV.

        Raises
        ------
        InvalidInput
            If it is no object, or has other keys or values.
        """
        if not isinstance(declared, Mapping) or set(declared) - set(cls.__dataclass_fields__):
            raise InvalidInput(
                'A schema\'s "file" may have "delimiter", "decimal", "encoding", "quote", '
                '"escape", "comment", and nothing else.'
            )
        return cls(**declared)


PLAIN_CSV = CsvForm()


def with_points(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts with points for commas and commas for points.

    So 1,5 is a number, and 1.500, which may be 1500, is none.
    """
    for mark, other in ((".", "\0"), (",", "."), ("\0", ",")):
        column = pc.replace_substring(column, mark, other)
    return column
