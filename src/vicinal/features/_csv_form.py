"""How a CSV file is written: what separates its fields, its decimal mark, its encoding."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from vicinal.errors import InvalidInput


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

    def __post_init__(self) -> None:
        if not re.fullmatch(r'[^\w."\r\n\0 ]', str(self.delimiter)):
            raise InvalidInput("The 'delimiter' parameter must be one character, such as ';'.")
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
        return f"{self.delimiter!r} between fields, a decimal {mark}, encoding {self.encoding}"

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
                'A schema\'s "file" may have "delimiter", "decimal", "encoding", and nothing else.'
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
