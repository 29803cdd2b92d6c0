"""The one home of argument checks, and of their one sentence shape.

Every check either returns the value in the type that the code works with, or raises
:class:`~vicinal.errors.InvalidInput`: "The 'sigma' parameter must be a finite number > 0. Got nan."
"""

import math
import re
import unicodedata
from collections.abc import Container, Hashable, Iterable, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vicinal.arrays import AnyArray, Ints32
from vicinal.errors import InvalidInput, OtherFormat
from vicinal.tabular import is_missing, read_column

SubjectId = int | str
T = TypeVar("T")


def _reject(name: str, must: str, got: object) -> InvalidInput:
    return InvalidInput(f"The {name!r} parameter must be {must}. Got {got!r}.")


def check_real(
    name: str,
    value: object,
    *,
    above: float | None = None,
    below: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> float:
    """Return `value` as a finite float inside the stated bounds.

    `above` and `below` are strict, `least` and `most` are not. Booleans are not numbers here.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise _reject(name, _finite(above, least, below, most), value)
    number = float(value)
    inside = (
        math.isfinite(number)
        and (above is None or number > above)
        and (least is None or number >= least)
        and (below is None or number < below)
        and (most is None or number <= most)
    )
    if not inside:
        raise _reject(name, _finite(above, least, below, most), value)
    return number


def _finite(
    above: float | None, least: float | None, below: float | None, most: float | None
) -> str:
    """Return bounds in words; made for errors only, as checks run for every query."""
    bounds = [("> ", above), (">= ", least), ("< ", below), ("<= ", most)]
    words = " and ".join(f"{sign}{bound:g}" for sign, bound in bounds if bound is not None)
    return f"a finite number {words}".rstrip()


def check_integer(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return `value` as an int with ``least <= value <= most``."""
    must = f"an integer >= {least}" + ("" if most is None else f" and <= {most}")
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        raise _reject(name, must, value)
    number = int(value)
    if number < least or (most is not None and number > most):
        raise _reject(name, must, value)
    return number


def check_boolean(name: str, value: object) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise _reject(name, "True or False", value)
    return bool(value)


def check_choice(name: str, value: object, options: Sequence[str]) -> str:
    """Return `value` if it is one of `options`."""
    if not isinstance(value, str) or value not in options:
        raise _reject(name, "one of " + ", ".join(map(repr, options)), value)
    return value


def file_format(file: object, found: object, known: int) -> None:
    """Refuse a file of another format than the one that is `known`; `file` is its name."""
    if type(found) is not int or found != known:
        raise OtherFormat(
            f"{file} has format {found!r}; this version of vicinal reads format {known}."
        )


def normalize_text(name: T) -> T:
    """Return a name in the form in which names are compared: text in Unicode's NFC.

    macOS decomposes the names of files (NFD): what looks like the same name has other characters.
    """
    return unicodedata.normalize("NFC", name) if isinstance(name, str) else name  # type: ignore[return-value]


def composed_labels(y: npt.ArrayLike) -> AnyArray:
    """Return labels as an array of the same shape, texts among them composed (NFC)."""
    labels = np.asarray(y)
    if labels.dtype.kind not in "UO":
        return labels
    flat = [normalize_text(label) for label in labels.ravel().tolist()]
    return np.array(flat, dtype=object if labels.dtype.kind == "O" else None).reshape(labels.shape)


def distinct_names(name: str, names: Iterable[T]) -> list[T]:
    """Return names in their composed form, or raise InvalidInput if two of them are equal then.

    `name`: the parameter that declares the names.
    """
    composed_names = [normalize_text(each) for each in names]
    _refuse_repeated(name, composed_names, composed_names)
    return composed_names


def class_names(classes: object, name: str = "classes") -> AnyArray:
    """Return the declared class names as a 1-d array (c,), in the order given, composed (NFC).

    Class names are public and an input: they are never read off private labels. Names that a label
    could not tell apart are refused: equal ones, and several that mean the same in a file, such as
    "true" and "TRUE".
    """
    if classes is None or isinstance(classes, str) or not isinstance(classes, Iterable):
        raise _reject(name, "the public list of all class names, as range(10)", classes)
    listed = [normalize_text(each) for each in classes]
    names = np.asarray(listed)
    if names.ndim != 1 or names.dtype.kind not in "iuUb":
        raise _reject(name, "a flat list of integers or of strings", classes)
    plain_names = names.tolist()
    if "" in plain_names:
        raise _reject(name, "a list of names that are not empty", classes)
    _refuse_repeated(name, plain_names, [label_name(str(each)) for each in plain_names])
    if len(names) < 2:
        raise _reject(name, "at least two different names", classes)
    return names


def _refuse_repeated(name: str, names: Sequence[Any], meanings: Sequence[Any]) -> None:
    """Raise InvalidInput if two names have one meaning; it shows both, which are public."""
    first_with: dict[Any, Any] = {}
    for each, meaning in zip(names, meanings, strict=True):
        if meaning in first_with:
            first = first_with[meaning]
            pair = f"{each!r} twice" if first == each else f"{first!r} and {each!r}, which are one"
            raise InvalidInput(
                f"The {name!r} parameter must hold different names. Got {pair}. Names are compared "
                "in Unicode's composed form (NFC), truth values without regard to capitals."
            )
        first_with[meaning] = each


def label_indices(y: npt.ArrayLike, classes: AnyArray) -> Ints32:
    """Return the position of every label in `classes`; the labels themselves are never echoed."""
    position_of = class_positions(classes.tolist())
    labels = np.asarray(y).tolist()
    try:
        positions = [
            position_of[plain_label(normalize_text(label), position_of)] for label in labels
        ]
    except (KeyError, TypeError):
        raise InvalidInput(
            "The 'y' parameter must hold only labels of the 'classes' parameter. Got another "
            "label. Declare every class, even those without records, exactly as labels are "
            "written: capitals and blanks count."
        ) from None
    return np.array(positions, dtype=np.int32)


_TRUTHS = {"true": True, "false": False}


def class_positions(names: Sequence[Any]) -> dict[Any, int]:
    """Return the position of every class by its name, and by what the name means in a file.

    A column of a file that holds only the labels "1" and "2" is read as whole numbers, although
    a third class has a name that is none.
    """
    meanings = {label_name(str(name)): position for position, name in enumerate(names)}
    return meanings | {name: position for position, name in enumerate(names)}


def plain_label(label: Any, classes: Container[Any]) -> Any:
    """Return a label as its class is named: "1.0" and "1" are 1 where 1 is a class and they not.

    pandas writes whole numbers as 1.0 if one of them is missing.
    """
    if not isinstance(label, str) or label in classes:
        return label
    match = _WHOLE_AS_FLOAT.fullmatch(label)
    return label if match is None else int(match[1])


def label_name(text: str) -> bool | int | str:
    """Return what a label names in a file: True or False, a whole number written plainly, or it.

    "TRUE" is True; 7 is a whole number, "07" and "7.0" are not, nor is one of 19 digits.
    """
    if text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    return int(text) if len(text) < 19 and _WHOLE_NUMBER.fullmatch(text) else text


def subject_ids(name: str, subjects: npt.ArrayLike | Iterable[Hashable]) -> list[SubjectId]:
    """Return subject ids in their one form, see :func:`subject_id`; ids are never echoed.

    `name`: what the caller calls them. `subjects`: lists, NumPy arrays, pandas and Arrow columns;
    integers and text in any mixture. Raises InvalidInput naming the fault of the first id that has
    one.
    """
    column = read_column(name, subjects)
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "i":  # integers have their one form already
            return list(column.tolist())
        # NumPy would turn dates into integers, which are no ids.
        column = list(column) if column.dtype.kind in "mM" else column.tolist()
    return [value if _as_it_is(value) else _spelling(name, value) for value in column]


def subject_id(name: str, subject: object) -> SubjectId:
    """Return a subject id in its one form: what is equal here is one person everywhere.

    A whole number of 64 bits is an int, and so is its plain decimal text: 5 and "5" are one
    person. Anything else is text in Unicode's composed form (NFC). Case, leading zeros and signs
    count: "a7" is not "A7", and "05", "-0" and "+5" are texts of their own.

    Raises InvalidInput naming the fault: an empty or missing id; blanks around it; a control,
    invisible or unknown character, or a blank other than U+0020; text that is not Unicode; a
    floating-point number, also as text ("5.0").
    """
    return _spelling(name, subject)


_NAME = re.compile(r"[!-*,./:-~]([ -~]*[!-~])?")
"""Plain text that begins like no number: it has its one form as it is."""

_PLAIN_TEXT = re.compile(r"[!-~]([ -~]*[!-~])?")
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_WHOLE_AS_FLOAT = re.compile(r"(0|-?[1-9][0-9]{0,17}|-0)(\.0+)?")
_WRITTEN_AS_FLOAT = re.compile(r"[+-]?[0-9]+\.0*")
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point, and the empty Braille pattern: they print as nothing."""
_FAULTY_CHARACTERS = {
    "Cc": "a control character, such as a line break",
    "Cf": "an invisible character, such as a zero-width space",
    "Cn": "a character that is not in this version of Unicode",
    "Cs": "text that is not valid Unicode",
    "Zl": "a line break",
    "Zp": "a line break",
    "Zs": "a blank other than the plain space, such as a non-breaking space",
}
_INT64 = range(-(2**63), 2**63)
_MOST_BITS = 3000


def id_fault(subject: object) -> str | None:
    """Return what is wrong with an id, in words that do not show it; None if nothing is."""
    if isinstance(subject, str):
        return text_fault(str.__str__(subject))
    if isinstance(subject, Integral) and not isinstance(subject, bool | np.bool_):
        return "a number that is too long" if int(subject).bit_length() > _MOST_BITS else None
    if is_missing(subject):
        return "a missing id (None or NaN)"
    if isinstance(subject, Real) and not isinstance(subject, bool | np.bool_):
        return (
            "a floating-point number: a column of integers becomes one when a value is missing, "
            "and long ids lose digits; drop those rows and convert it to integers"
        )
    return f"a {type(subject).__name__}; {_advice(subject)}"


def _advice(subject: object) -> str:
    """Return how to make an id of an object of another type, in words that do not show it."""
    if isinstance(subject, bytes):
        return "decode bytes to text first, as with id.decode()"
    if isinstance(subject, Decimal):
        return "convert whole numbers with int(id), all others with str(id)"
    if isinstance(subject, list | tuple | np.ndarray):
        return "choose the one column that holds the ids"
    return "convert every id to text first, as with str(id)"


def _as_it_is(subject: object) -> bool:
    """Tell quickly of most ids that they have their one form already."""
    if type(subject) is str:
        return _NAME.fullmatch(subject) is not None
    return type(subject) is int and subject in _INT64


def text_fault(text: str) -> str | None:
    """Return what keeps a text from being an id or a name, in words that do not show it."""
    if _PLAIN_TEXT.fullmatch(text):
        if _WRITTEN_AS_FLOAT.fullmatch(text):
            return "a whole number written with a decimal point; write 5, not 5.0"
        return None
    if not text:
        return "empty text"
    if text != text.strip():
        return "text with blanks or a line break around it"
    # Lenient decoding, of a path or a file, puts U+FFFD for each byte that is not UTF-8. As an id,
    # M%FCller would be another subject than Müller, and the answer "erased" would be wrong.
    if "\ufffd" in text:
        return "bytes that are not UTF-8, or the character U+FFFD that stands for such bytes"
    if _INVISIBLE.search(text):
        return _FAULTY_CHARACTERS["Cf"]
    kinds = (unicodedata.category(character) for character in text if character != " ")
    return next((_FAULTY_CHARACTERS[kind] for kind in kinds if kind in _FAULTY_CHARACTERS), None)


def _spelling(name: str, subject: object) -> SubjectId:
    if fault := id_fault(subject):
        raise InvalidInput(f"{_must_be_ids(name)} Got {fault}.")
    if isinstance(subject, str):
        text = unicodedata.normalize("NFC", str.__str__(subject))
        if not _WHOLE_NUMBER.fullmatch(text):
            return text
        subject = text
    number = int(subject)  # type: ignore[call-overload]  # an Integral, or digits: just checked
    return number if number in _INT64 else str(number)


def _must_be_ids(name: str) -> str:
    return f"The {name!r} parameter must be a flat list of integer or string ids."
