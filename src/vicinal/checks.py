"""Checks of arguments, with error messages of one form.

`name` is the name of the checked parameter, for the message, and `value` its value of any type.
Every check returns the value in the type used internally, or raises
:class:`~vicinal.errors.InvalidInput`: "The 'sigma' parameter must be a finite number > 0. Got nan."
"""

import math
import re
import sys
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

_MAX_LISTED = 20  # largest number of rows or columns that a message lists


def _build_parameter_error(name: str, requirement: str, value: object) -> InvalidInput:
    """Return the error for a parameter whose `value` does not meet a requirement, in words."""
    return InvalidInput(f"The {name!r} parameter must be {requirement}. Got {value!r}.")


def check_real(
    name: str,
    value: object,
    *,
    above: float | None = None,
    below: float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> float:
    """Return `value` as a finite float within bounds, or raise InvalidInput.

    The bounds `above` and `below` are exclusive, `minimum` and `maximum` inclusive. Booleans are
    refused.
    """
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond the largest float
            value = number = math.inf
        is_inside = (
            math.isfinite(number)
            and (above is None or number > above)
            and (minimum is None or number >= minimum)
            and (below is None or number < below)
            and (maximum is None or number <= maximum)
        )
        if is_inside:
            return number
    bounds = [("> ", above), (">= ", minimum), ("< ", below), ("<= ", maximum)]
    conditions = " and ".join(f"{sign}{bound:g}" for sign, bound in bounds if bound is not None)
    raise _build_parameter_error(name, f"a finite number {conditions}".rstrip(), value)


def check_integer(name: str, value: object, *, minimum: int, maximum: int | None = None) -> int:
    """Return `value` as an int with ``minimum <= value <= maximum``, or raise InvalidInput.

    An integer beyond float64 is refused, because a stored plan with it could not be read.
    """
    if isinstance(value, Integral) and not isinstance(value, bool | np.bool_):
        number = int(value)
        if abs(number) > sys.float_info.max:
            value = math.inf
        elif number >= minimum and (maximum is None or number <= maximum):
            return number
    requirement = f"an integer >= {minimum}" + ("" if maximum is None else f" and <= {maximum}")
    raise _build_parameter_error(name, requirement, value)


def check_boolean(name: str, value: object) -> bool:
    """Return `value` as a bool if it is True or False, or raise InvalidInput."""
    if not isinstance(value, bool | np.bool_):
        raise _build_parameter_error(name, "True or False", value)
    return bool(value)


def check_instance(name: str, value: object, cls: type[T], requirement: str = "") -> T:
    """Return `value` if it is an instance of `cls`, or raise InvalidInput without its content.

    `requirement`: permitted values in words, by default the name of the class.
    """
    if not isinstance(value, cls):
        requirement = requirement or f"a {cls.__name__}"
        raise InvalidInput(
            f"The {name!r} parameter must be {requirement}. Got a {type(value).__name__}."
        )
    return value


def check_choice(name: str, value: object, options: Sequence[str]) -> str:
    """Return `value` if it is one of `options`, or raise InvalidInput."""
    if not isinstance(value, str) or value not in options:
        raise _build_parameter_error(name, "one of " + ", ".join(map(repr, options)), value)
    return value


def check_file_format(file_name: object, version: object, supported: int) -> None:
    """Raise OtherFormat unless a file's format `version` is the supported one.

    `file_name`: for the message. `supported`: the version that this program reads, an integer.
    """
    if type(version) is not int or version != supported:
        raise OtherFormat(
            f"{file_name} has format {version!r}; this version of vicinal reads format {supported}."
        )


def quote_column(name: str) -> str:
    """Return a column's name in quotation marks, as options accept it; '' is explained."""
    return repr(name) if name else "'' (the column without a name)"


def suggest_columns(missing_names: Iterable[str], names: Iterable[str]) -> str:
    """Return a sentence on the columns whose names equal missing ones but for capitals and blanks.

    `names`: of all columns of the table. The sentence begins with a blank; it is empty if there is
    no such column. It reveals no name that the caller did not give.
    """
    folded_names = {"".join(name.casefold().split()) for name in missing_names}
    similar = [name for name in names if "".join(name.casefold().split()) in folded_names]
    return f" The table has {join_first(list(map(quote_column, similar)))}." if similar else ""


def join_first(items: Sequence[str]) -> str:
    """Return the first 20 items as one text for a message, with an ellipsis for the rest."""
    return ", ".join(items[:_MAX_LISTED]) + (", ..." if len(items) > _MAX_LISTED else "")


def normalize_text(value: T) -> T:
    """Return a text in Unicode's composed form (NFC), in which names are compared.

    On macOS, file names are decomposed (NFD) and have other code points although they look equal.
    Values other than text are returned unchanged.
    """
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value  # type: ignore[return-value]


def normalize_labels(y: npt.ArrayLike) -> AnyArray:
    """Return labels `y` as an array of the same shape, with text in composed form (NFC)."""
    labels = np.asarray(y)
    if labels.dtype.kind not in "UO":
        return labels
    flat = [normalize_text(label) for label in labels.ravel().tolist()]
    return np.array(flat, dtype=object if labels.dtype.kind == "O" else None).reshape(labels.shape)


def check_distinct_names(name: str, names: Iterable[T]) -> list[T]:
    """Return names in composed form (NFC), or raise InvalidInput if two of them are then equal."""
    composed_names = [normalize_text(declared) for declared in names]
    _refuse_repeated(name, composed_names, composed_names)
    return composed_names


def check_class_names(classes: object, name: str = "classes") -> AnyArray:
    """Return the declared class names as a 1-d array (c,), in the order given, composed (NFC).

    Class names are a public input and are never derived from private labels. Names that cannot be
    told apart in a file, such as "true" and "TRUE", are refused. `classes`: at least two integers
    or strings, the value of the parameter `name`.
    """
    if classes is None or isinstance(classes, str) or not isinstance(classes, Iterable):
        raise _build_parameter_error(
            name, "the public list of all class names, as range(10)", classes
        )
    names = np.asarray([normalize_text(class_name) for class_name in classes])
    if names.ndim != 1 or names.dtype.kind not in "iuUb":
        raise _build_parameter_error(name, "a flat list of integers or of strings", classes)
    plain_names = names.tolist()
    if "" in plain_names:
        raise _build_parameter_error(name, "a list of names that are not empty", classes)
    _refuse_repeated(name, plain_names, [parse_label(str(plain)) for plain in plain_names])
    if len(names) < 2:
        raise _build_parameter_error(name, "at least two different names", classes)
    return names


def _refuse_repeated(name: str, names: Sequence[Any], meanings: Sequence[Any]) -> None:
    """Raise InvalidInput if two names have the same meaning.

    `names`: public, shown in the message. `meanings`: values to compare in their place, one each.
    """
    first_by_meaning: dict[Any, Any] = {}
    for current, meaning in zip(names, meanings, strict=True):
        if meaning in first_by_meaning:
            first = first_by_meaning[meaning]
            if first == current:
                pair = f"{current!r} twice"
            else:
                pair = f"{first!r} and {current!r}, which are one"
            raise InvalidInput(
                f"The {name!r} parameter must hold different names. Got {pair}. Names are compared "
                "in Unicode's composed form (NFC), truth values without regard to capitals."
            )
        first_by_meaning[meaning] = current


def find_label_indices(y: npt.ArrayLike, classes: AnyArray) -> Ints32:
    """Return the index in `classes`, (c,), of every label in `y`, int32 (n,).

    Raises InvalidInput, without showing a label, if one is not among the classes.
    """
    index_by_name = build_class_index(classes.tolist())
    labels = np.asarray(y).tolist()
    try:
        indices = [
            index_by_name[parse_integer_label(normalize_text(label), index_by_name)]
            for label in labels
        ]
    except (KeyError, TypeError):
        raise InvalidInput(
            "The 'y' parameter must hold only labels of the 'classes' parameter. Got another "
            "label. Declare every class, even those without records, exactly as labels are "
            "written: capitals and blanks count."
        ) from None
    return np.array(indices, dtype=np.int32)


# Words in files that mean truth values, in lower case.
_TRUTH_VALUES = {"true": True, "false": False}


def build_class_index(names: Sequence[Any]) -> dict[Any, int]:
    """Return the index of every class by its name and by the meaning of the name in a file.

    `names`: the names of all classes, in order. A file column with only the labels "1" and "2" is
    read as integers, even if a third class has a name that is not an integer.
    """
    index_by_meaning = {parse_label(str(name)): index for index, name in enumerate(names)}
    return index_by_meaning | {name: index for index, name in enumerate(names)}


def parse_integer_label(label: Any, classes: Container[Any]) -> Any:
    """Return a label; a text such as "1" or "1.0" that is none of the `classes` becomes an int.

    pandas writes integers as 1.0 if one of them is missing.
    """
    if not isinstance(label, str) or label in classes:
        return label
    match = _INTEGER_LABEL.fullmatch(label)
    return label if match is None else int(match[1])


def parse_label(text: str) -> bool | int | str:
    """Return the meaning of a label in a file: a truth value, an integer, or the text itself.

    "TRUE" means True and "7" the integer 7, but "07", "7.0" and texts of 19 characters or more
    remain text.
    """
    if text.lower() in _TRUTH_VALUES:
        return _TRUTH_VALUES[text.lower()]
    return int(text) if len(text) < 19 and _WHOLE_NUMBER.fullmatch(text) else text


def check_subject_ids(name: str, subjects: npt.ArrayLike | Iterable[Hashable]) -> list[SubjectId]:
    """Return subject ids in canonical form, see :func:`check_subject_id`.

    `subjects`: a list, NumPy array, or pandas or Arrow column of integers and text, also mixed.
    Raises InvalidInput with the first problem, without showing an id.
    """
    column = read_column(name, subjects)
    if isinstance(column, np.ndarray):
        if column.dtype.kind == "i":  # integers are canonical
            return list(column.tolist())
        # tolist() would convert dates to integers, which would then pass as ids.
        column = list(column) if column.dtype.kind in "mM" else column.tolist()
    return [
        value if _is_surely_canonical(value) else check_subject_id(name, value) for value in column
    ]


def check_subject_id(name: str, subject: object) -> SubjectId:
    """Return a subject id in canonical form; equal canonical ids denote the same subject.

    A 64-bit integer is an int, and so is its plain decimal text: 5 and "5" denote the same subject.
    All other ids are text in Unicode's composed form (NFC). Case, leading zeros and signs are
    significant: "a7" differs from "A7", and "05", "-0" and "+5" are text. Raises InvalidInput with
    the problem: an empty or missing id; blanks around it; a control, invisible or unknown
    character, or a blank other than U+0020; text that is not Unicode; a floating-point number, also
    as text ("5.0"). Joiners inside Persian and Indic words are valid.
    """
    problem = describe_id_problem(subject)
    if problem:
        raise InvalidInput(
            f"The {name!r} parameter must be a flat list of integer or string ids. Got {problem}."
        )
    if isinstance(subject, str):
        text = unicodedata.normalize("NFC", str.__str__(subject))
        if not _WHOLE_NUMBER.fullmatch(text):
            return text
        subject = text
    number = int(subject)  # type: ignore[call-overload]  # an Integral, or digits: just checked
    return number if number in _INT64 else str(number)


_CANONICAL_TEXT = re.compile(r"[!-*,./:-~]([ -~]*[!-~])?")
"""ASCII text that does not begin like a number, and is therefore canonical."""

_PLAIN_TEXT = re.compile(r"[!-~]([ -~]*[!-~])?")
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INTEGER_LABEL = re.compile(r"(0|-?[1-9][0-9]{0,17}|-0)(\.0+)?")  # "1", also written as "1.0"
_WHOLE_NUMBER_WITH_POINT = re.compile(r"[+-]?[0-9]+\.0*")  # such as "5.0", refused as an id
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Invisible characters: Unicode's Default_Ignorable_Code_Point and the empty Braille pattern."""
_JOINER = re.compile("(.)([\u200c\u200d])(?=(.))")
"""A zero-width non-joiner or joiner inside a text, with the characters before and after it."""

_INVALID_CATEGORIES = {
    "Cc": "a control character, such as a line break",
    "Cf": "an invisible character, such as a zero-width space",
    "Cn": "a character that is not in this version of Unicode",
    "Cs": "text that is not valid Unicode",
    "Zl": "a line break",
    "Zp": "a line break",
    "Zs": "a blank other than the plain space, such as a non-breaking space",
}
_INT64 = range(-(2**63), 2**63)

# Integer ids with more bits than this are refused.
_MAX_ID_BITS = 3000


def describe_id_problem(subject: object) -> str | None:
    """Return the problem of a subject id without revealing its value, or None if it is valid."""
    if isinstance(subject, str):
        text = str.__str__(subject)
        if not text.isascii():
            text = _JOINER.sub(_remove_joiner_of_word, text)
        return describe_text_problem(text)
    if isinstance(subject, Integral) and not isinstance(subject, bool | np.bool_):
        return "a number that is too long" if int(subject).bit_length() > _MAX_ID_BITS else None
    if is_missing(subject):
        return "a missing id (None or NaN)"
    if isinstance(subject, Real) and not isinstance(subject, bool | np.bool_):
        return (
            "a floating-point number: a column of integers becomes one when a value is missing, "
            "and long ids lose digits; drop those rows and convert it to integers"
        )
    if isinstance(subject, bytes):
        advice = "decode bytes to text first, as with id.decode()"
    elif isinstance(subject, Decimal):
        advice = "convert whole numbers with int(id), all others with str(id)"
    elif isinstance(subject, list | tuple | np.ndarray):
        advice = "choose the one column that holds the ids"
    else:
        advice = "convert every id to text first, as with str(id)"
    return f"a {type(subject).__name__}; {advice}"


def _is_surely_canonical(subject: object) -> bool:
    """Return whether a subject id certainly is canonical; a quick test with false negatives."""
    if type(subject) is str:
        return _CANONICAL_TEXT.fullmatch(subject) is not None
    return type(subject) is int and subject in _INT64


def describe_text_problem(text: str) -> str | None:
    """Return the problem of a text as an id or a name without revealing it; None if it is valid."""
    if _PLAIN_TEXT.fullmatch(text):
        if _WHOLE_NUMBER_WITH_POINT.fullmatch(text):
            return "a whole number written with a decimal point; write 5, not 5.0"
        return None
    if not text:
        return "empty text"
    if text != text.strip():
        return "text with blanks or a line break around it"
    # Lenient decoding of a path or a file replaces each byte that is not UTF-8 by U+FFFD. The id
    # M%FCller would then denote another subject than Müller, and "erased" would be a wrong answer.
    if "\ufffd" in text:
        return "bytes that are not UTF-8, or the character U+FFFD that stands for such bytes"
    if _INVISIBLE.search(text):
        return _INVALID_CATEGORIES["Cf"]
    categories = (unicodedata.category(character) for character in text if character != " ")
    problems = (_INVALID_CATEGORIES[name] for name in categories if name in _INVALID_CATEGORIES)
    return next(problems, None)


def _remove_joiner_of_word(match: re.Match[str]) -> str:
    """Return the replacement of a matched joiner, for a check that refuses invisible characters.

    `match`: a character and the joiner after it (:data:`_JOINER`). Joiners that normal spelling
    permits are removed, so that they are not refused; all others are returned unchanged.

    Persian and Urdu words contain a zero-width non-joiner between Arabic letters, and words of
    Indic scripts either joiner after a virama (combining class 9). RFC 5892, appendix A, permits
    the first only after letters that join to the next one. Here it may follow all letters, because
    ids with and without it have equal folded forms (:func:`vicinal.ledger.id_encoding.fold_ids`).
    """
    before, joiner, after = match.groups()
    follows_virama = unicodedata.combining(before) == 9
    is_between_arabic_letters = all(
        unicodedata.bidirectional(character) == "AL" and unicodedata.category(character)[0] == "L"
        for character in (before, after)
    )
    if follows_virama or (joiner == "\u200c" and is_between_arabic_letters):
        return before
    return match[0]
