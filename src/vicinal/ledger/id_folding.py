"""Folded forms of subject ids: two ids with equal ones are probably one subject's.

Ids stay as they were given. Folded forms only detect a subject that would get a second budget
under another spelling of its id.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal

from vicinal.checks import SubjectId

SPELLING_DIFFERENCES = (
    "in spelling only (zeros, case, blanks, width, dashes, quotation marks, look-alike characters, "
    "or forms of a number), as 007 and +7 differ from 7"
)
"""The differences between ids with equal folded forms, in words, for messages."""

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")

_NUMBER = re.compile(
    r"\n(?!-?0*[1-9][0-9]*\n)([+-]?[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]{1,3})?)(?=\n)"
)
"""A line that is a number, after its line break; not a nonzero integer, which is plain already.
Three digits of an exponent keep its plain form below 2,000 characters: an id has at most 1,000."""

LOOK_ALIKE_LETTERS = {
    "ɑ": "a", "ɡ": "g", "ɩ": "i", "ꞵ": "b",
    "α": "a", "β": "b", "ε": "e", "ζ": "z", "η": "h", "ι": "i", "κ": "k", "μ": "m", "ν": "n",
    "ο": "o", "ρ": "p", "τ": "t", "υ": "y", "χ": "x", "ϝ": "f", "ϳ": "j", "ϻ": "m",
    "а": "a", "в": "b", "е": "e", "ѕ": "s", "і": "i", "ј": "j", "к": "k", "м": "m", "н": "h",
    "о": "o", "р": "p", "с": "c", "т": "t", "у": "y", "х": "x", "з": "3", "ѵ": "v", "ѡ": "w",
    "ү": "y", "һ": "h", "ҽ": "e", "ӏ": "i", "ӡ": "3", "ԁ": "d", "ԍ": "g", "ԛ": "q", "ԝ": "w",
    "γ": "г", "λ": "л", "π": "п", "φ": "ф",
}  # fmt: skip
"""Look-alikes of Latin, Greek and Cyrillic letters in small form, from the confusables of Unicode
Technical Standard 39. If capital and small form resemble different letters, as Ν and ν do N and v,
the capital decides. Small forms that resemble a letter of which their script has another look-alike
are left out (σ and о, ь and в): ids in capitals would be refused without a resemblance."""

_FOLDED_BEFORE_NFKD = {0x200C: None, 0x200D: None, 0xB4: "'"}
"""Zero-width joiners, which are not displayed, and the acute accent: NFKD would make it a combining
accent of the next letter."""

_SMALL_CAPITAL = re.compile("LATIN LETTER SMALL CAPITAL ([A-Z])")
_QUOTE_NAME = re.compile("QUOTATION MARK|APOSTROPHE|PRIME|GERESH|GERSHAYIM|LETTER.* COMMA$")

_SIGN_CATEGORIES = ("Lm", "Pf", "Pi", "Po", "Ps", "Pe", "Sk", "Sm", "So")
"""Categories of Unicode to which dashes, besides Pd, and quotation marks belong."""


def fold_ids(subjects: Iterable[SubjectId]) -> list[str]:
    """Return the folded form of each id; equal forms are probably spellings of one subject's id.

    It omits case, width, blanks and zero-width joiners. A number is its plain decimal form; digits
    of all scripts are 0 to 9, dashes "-", quotation marks ' or ", and look-alike letters one letter
    (:data:`LOOK_ALIKE_LETTERS`). Two ASCII ids are equal only by case, blanks, zeros and numbers.
    """
    # All ids are folded as one text, joined by line breaks, which no id holds.
    text = "\n".join(map(str, subjects))
    if text.isascii():
        text = _fold_case(text)
    else:
        text = _fold_case(text.translate(_FOLDED_BEFORE_NFKD)).translate(_CHARACTER_FOLDS)
    text = _NUMBER.sub(_write_plain_number, f"\n{text}\n")[1:-1]
    return _split_without_zeros(text)


def fold_case_and_width(subjects: Iterable[SubjectId]) -> list[str]:
    """Return each id without leading zeros, case, blanks and width variants.

    Stores of version 0.2.0 kept hashes of these forms of erased ids.
    """
    return _split_without_zeros(_fold_case("\n".join(map(str, subjects))))


def _fold_case(text: str) -> str:
    """Return `text` without case, blanks and width variants."""
    if text.isascii():
        return text.lower().replace(" ", "")
    # Unicode's caseless comparison of identifiers normalizes and folds twice (NFD, case folding,
    # NFKD).
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFD", text).casefold())
    return unicodedata.normalize("NFKD", text.replace(" ", "").replace("\u0131", "i").casefold())


def _split_without_zeros(text: str) -> list[str]:
    """Return the lines of `text`, each without leading zeros of its digit sequences."""
    return _LEADING_ZEROS.sub("", text).split("\n") if text else []


def _write_plain_number(match: re.Match[str]) -> str:
    """Return a line break and a number in plain decimal form: 1e2 as 100, +5 as 5, -0 as 0."""
    number = format(Decimal(match[1]), "f")
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return "\n" + ("0" if number == "-0" else number)


def _fold_character(code: int) -> int | str:
    """Return a non-ASCII character's ASCII look-alike, or its code if it has none."""
    character = chr(code)
    category = unicodedata.category(character)
    value = unicodedata.digit(character, None)
    if value is not None:
        return str(value)
    if category == "Pd":
        return "-"
    name = unicodedata.name(character, "")
    small_capital = _SMALL_CAPITAL.fullmatch(name)
    if small_capital:
        return small_capital[1].lower()
    if category not in _SIGN_CATEGORIES:
        return code
    if name.endswith("MINUS SIGN") or "HYPHEN" in name:
        return "-"
    is_quote = category in ("Pi", "Pf") or _QUOTE_NAME.search(name)
    is_double = "DOUBLE" in name or "GERSHAYIM" in name
    return ('"' if is_double else "'") if is_quote else code


class _CharacterFolds(dict[int, int | str]):
    """Table for `str.translate`: folds of ASCII and look-alike letters; the rest on first use."""

    def __missing__(self, code: int) -> int | str:
        self[code] = _fold_character(code)
        return self[code]


_CHARACTER_FOLDS = _CharacterFolds({code: code for code in range(128)})
_CHARACTER_FOLDS.update({ord(letter): fold for letter, fold in LOOK_ALIKE_LETTERS.items()})


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
