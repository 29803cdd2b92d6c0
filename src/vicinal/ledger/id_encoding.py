"""Subject ids as bytes: framed, so that they can be found in a file, and hashed with a key.

A framed id is ``<id:i7>`` for the integer 7 and ``<id:sanna>`` for the text "anna"; s and i stand
for string and integer. `key` is a secret key, without which no guess can be tested. The brackets
never occur inside it, so no framed id is part of another one, and a search through the bytes of a
file finds every id that was not erased. The *folded form* of an id or character is equal for
spellings that probably mean the same, such as "007" and 7.
"""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from unicodedata import category, decimal, name, normalize
from urllib.parse import quote, unquote

from vicinal.checks import SubjectId
from vicinal.errors import InvalidInput

MAX_FRAME_BYTES = 1000
"""Maximal length of a framed id in bytes. It fits into a row of
:mod:`vicinal.ledger.subject_pages`, hence into one page of a database file, so the file holds it
in one piece."""

OPENING = b"<id:"
"""The first bytes of every framed id."""

_UNESCAPED = "".join(chr(code) for code in range(33, 127) if chr(code) not in "<>%")
"""Characters that a framed id holds unescaped: visible ASCII without ``<``, ``>`` and ``%``."""

_NEED_NO_ESCAPE = re.compile("[!-$&-;=?-~\n]*")
"""Lines of unescaped characters only."""

_INTEGER_KIND = ord("i")
"""The byte after the opening of an integer's framed id; that of a text has "s" there."""

_NUMBER_WITH_SIGNS = re.compile(
    r"^(?=[^\n]*[-+.e])[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?0*[0-9]{1,2})?$", re.MULTILINE
)
"""An id, after case folding, that is a number with a sign, a fraction or an exponent.

Exponents are below 100, so that the value has at most some hundred digits more.
"""

SPELLING = (
    "spelling only: leading zeros, case, blanks, dashes, quotes, or characters that look alike"
)
"""Description of the differences between ids with equal folded forms (:func:`fold_ids`)."""

FORMULA_OPENINGS = "=+-@\t\r"
"""First characters of texts that spreadsheets execute. CSV files of answers have an apostrophe
before such a text, which their readers do not remove."""

_FORMULA_ESCAPE = re.compile(f"^'+(?=[{re.escape(FORMULA_OPENINGS)}])", re.MULTILINE)
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_FRAMED = re.compile(rb"<id:[is][!-;=?-~]*>")


def frame_id(subject: SubjectId) -> bytes:
    """Return the framed form in which an id is stored, such as ``<id:i7>`` or ``<id:sanna>``.

    Raises InvalidInput if it would be longer than :data:`MAX_FRAME_BYTES`.
    """
    frame = frame_id_of_any_length(subject)
    if len(frame) > MAX_FRAME_BYTES:
        raise InvalidInput(
            f"The 'subjects' parameter must hold ids of at most {MAX_FRAME_BYTES} bytes. Got a "
            "longer one; hash it first."
        )
    return frame


def frame_id_of_any_length(subject: SubjectId) -> bytes:
    """Return the framed form of an id of any length, also one that is too long to be stored."""
    kind = "i" if isinstance(subject, int) else "s"
    return f"<id:{kind}{quote(str(subject), safe=_UNESCAPED)}>".encode()


def frame_ids(subjects: Iterable[SubjectId]) -> list[bytes]:
    """Return the framed form of each id; faster than :func:`frame_id` for many ids.

    Raises InvalidInput if a framed id would be longer than :data:`MAX_FRAME_BYTES`.
    """
    ids = list(subjects)
    for id_type, opening in ((str, "<id:s"), (int, "<id:i")):
        if set(map(type, ids)) == {id_type}:
            texts = list(map(str, ids))
            # All ids are joined by line breaks and framed by one replacement. That is correct if
            # no id needs an escape, hence none holds a line break.
            joined = "\n".join(texts)
            is_plain = _NEED_NO_ESCAPE.fullmatch(joined) and joined.count("\n") == len(texts) - 1
            if is_plain and max(map(len, texts)) <= MAX_FRAME_BYTES - len(opening) - 1:
                framed = opening + joined.replace("\n", f">\n{opening}") + ">"
                return framed.encode().split(b"\n")
    return [frame_id(subject) for subject in ids]


def parse_framed_id(framed_id: bytes) -> SubjectId:
    """Return the subject id that a framed id encodes; the inverse of :func:`frame_id`."""
    text = framed_id[5:-1].decode()
    if framed_id[4] == _INTEGER_KIND:
        return int(text)
    return unquote(text) if "%" in text else text


def fold_ids(subjects: Iterable[SubjectId]) -> list[str]:
    """Return the folded form of each id; equal forms are probably spellings of one subject's id.

    The folded form has no leading zeros, case, blanks, width variants and invisible characters.
    Decimal digits of every script are ASCII digits, dashes and minus signs are hyphens, quotation
    marks are apostrophes, and letters that look like Latin ones (:data:`_LATIN_LOOK_ALIKES`) are
    these. Apostrophes at the start before one of :data:`FORMULA_OPENINGS` are left out: ``'@anna``
    is ``@anna``. A number with a sign, a fraction or an exponent below 100 has its decimal value:
    ``+531`` is 531, ``-0`` is 0, and ``1e2`` and ``1e+002`` are 100. Leading zeros of a fraction
    are left out after that, so ``1.05`` is ``1.5``.
    """
    # All ids are folded as one text, joined by line breaks, which no id holds. Unicode's caseless
    # comparison of identifiers normalizes and folds twice (NFD, case folding, NFKD).
    joined = "\n".join(map(str, subjects))
    if joined.isascii():
        text = joined.casefold().replace(" ", "").translate(_ASCII_QUOTES)
    else:
        text = normalize("NFD", joined.translate(_folded_characters)).casefold()
        text = normalize("NFKD", text).translate(_folded_characters).casefold()
        text = normalize("NFKD", text).translate(_folded_characters)
    text = _FORMULA_ESCAPE.sub("", text)
    text = _NUMBER_WITH_SIGNS.sub(_format_decimal_value, text)
    return _LEADING_ZEROS.sub("", text).split("\n") if text else []


_LATIN_LOOK_ALIKES = dict(
    zip(
        "\u0430\u0432\u0441\u0501\u0435\u043d\u04bb\u0456\u0458\u043a\u04cf"  # Cyrillic
        "\u043c\u043e\u0440\u051b\u0455\u0442\u0443\u04af\u0445\u0475\u051d"
        "\u03b1\u03b2\u03b5\u03b6\u03b7\u03b9\u03ba\u03bc"  # Greek
        "\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03f3"
        "\u0585\u057d\u0251\u0261\u0131",  # Armenian, and further Latin letters
        "abcdehhijklmopqstyyxvwabezhikmnoptyxjouagi",
        strict=True,
    )
)
"""Latin letter for each letter that looks like it, after case folding.

Letters are compared by their capital or by their small forms, each by one of the two: Greek nu is n
as its capital, not v as its small form. Selected from the data file confusables.txt of Unicode
Technical Standard 39: single letters of the scripts that are written beside Latin.
"""

_ASCII_QUOTES = str.maketrans('"`', "''")

_QUOTE_NAMES = (
    *("APOSTROPHE", "QUOTATION MARK", "PRIME", "GRAVE ACCENT", "ACUTE ACCENT"),
    *("TURNED COMMA", "REVERSED COMMA", "GERESH", "GERSHAYIM"),  # of Hawaiian and Hebrew
)
_DASH_NAMES = ("HYPHEN", "MINUS SIGN")


class _FoldedCharacters(dict[int, str]):
    """The folded form of every character by code point, computed at its first use."""

    def __missing__(self, code: int) -> str:
        """Compute, store and return the folded form of the character with this code point."""
        self[code] = _fold_character(chr(code))
        return self[code]


_folded_characters = _FoldedCharacters()


def _fold_character(character: str) -> str:
    """Return the folded form of one character, which may be empty."""
    kind = category(character)
    description = name(character, "")
    if character == "\n":
        return character
    if kind == "Nd":
        return str(decimal(character))
    if kind == "Cf" or kind.startswith("Z"):
        return ""
    is_mark = kind[0] in "PS" or kind == "Lm"
    if kind in ("Pi", "Pf") or (is_mark and any(part in description for part in _QUOTE_NAMES)):
        return "'"
    if kind == "Pd" or (is_mark and any(part in description for part in _DASH_NAMES)):
        return "-"
    return _LATIN_LOOK_ALIKES.get(character, character)


def _format_decimal_value(number: re.Match[str]) -> str:
    """Return the text of a number's exact value, without plus sign, exponent and final zeros."""
    text = f"{Decimal(number[0]) or Decimal(0):f}"  # Zero has no sign.
    return text.rstrip("0").rstrip(".") if "." in text else text


def find_similar_ids(subjects: Iterable[SubjectId]) -> set[SubjectId]:
    """Return the ids that share their folded form (:func:`fold_ids`) with another of the ids.

    Empty if all ids are integers, because different integers have different folded forms.
    """
    ids = list(dict.fromkeys(subjects))
    if not any(isinstance(subject, str) for subject in ids):
        return set()
    folded_ids = fold_ids(ids)
    counts = Counter(folded_ids)
    return {subject for subject, folded in zip(ids, folded_ids, strict=True) if counts[folded] > 1}


def match_framed_id(content: bytes, offset: int = 0) -> bytes | None:
    """Return the framed id that begins at an offset, in bytes, of `content`; None if none does.

    `content`: bytes of any file.
    """
    match = _FRAMED.match(content, offset)
    return None if match is None else match[0]


def keyed_hash(key: bytes, subject: SubjectId) -> bytes:
    """Return the HMAC-SHA-256 of a subject id with `key`, 32 bytes."""
    kind = b"i" if isinstance(subject, int) else b"s"
    return hmac.digest(key, kind + str(subject).encode(), hashlib.sha256)


def fold_and_hash(key: bytes, subjects: Iterable[SubjectId]) -> list[bytes]:
    """Return the HMAC-SHA-256 with `key` of each id's folded form, 32 bytes each.

    Ids that differ in spelling only have equal hashes. None equals a :func:`keyed_hash` of an id.
    """
    folded_ids = fold_ids(subjects)
    return [hmac.digest(key, b"f" + folded.encode(), hashlib.sha256) for folded in folded_ids]


def keyed_digest(key: bytes, content: bytes) -> bytes:
    """Return the HMAC-SHA-256 of any `content` with `key`, 32 bytes; it equals no hash of an id."""
    return hmac.digest(key, b"r" + content, hashlib.sha256)
