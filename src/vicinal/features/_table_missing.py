"""Detection of public values that probably mean a missing value: "?", "n/a", -999, 1900-01-01."""

from collections.abc import Iterable

import numpy as np

from vicinal.features.table_columns import Codes, normalize_value, parse_iso_date

_SYMBOL_LIST = (
    "#n/a|#n/a n/a|#na|n/a|n.a.|<na>|nat|nan|null|(null)|#null!|#value!|#ref!|#div/0!|#num!|\\n|"
    ".|..|...|-|--|---|\u2013|\u2014|?|??|???"
)
_SYMBOLS = frozenset(_SYMBOL_LIST.split("|"))
"""Texts, casefolded, that have no other meaning in nearly all tables."""

_NOUN_LIST = (
    "na|none|nil|missing|unknown|not available|not applicable|not known|no data|nd|n.d.|undefined|"
    "blank|empty"
)
_NOUNS = frozenset(_NOUN_LIST.split("|"))
"""Texts, casefolded, that mean a missing value among numbers, but may be a category's value."""

_SIGNS = frozenset("+-/\u2013\u2014")

_NUMBERS = frozenset(
    [-1.0, -32768.0, -2147483648.0, 2147483647.0]
    + [float(sign * int("9" * n_digits)) for n_digits in range(1, 10) for sign in (1, -1)]
)
"""Numbers that programs and questionnaires write for a missing one."""

_DATES = (
    "0001-01-01 1800-01-01 1899-12-30 1899-12-31 1900-01-01 1901-01-01 1970-01-01 2099-12-31 "
    "2100-01-01 2999-12-31 3000-01-01 9999-01-01 9999-12-31"
)
_DAYS = frozenset(map(parse_iso_date, _DATES.split()))
"""Dates that programs write for a missing one, in days since 1970."""

_MIN_SPIKE_COUNT = 5
_SPIKE_RATIO = 10.0
"""A value is suspiciously frequent from this many times the median frequency of the other values
on, and from five rows on."""


def find_missing_texts(distinct: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return those `distinct` texts of a column that always mark a missing value.

    The second list are those that do among numbers only, with "-" if "+", its opposite, occurs.
    """
    texts = list(distinct)
    symbols = [text for text in texts if text.casefold() in _SYMBOLS]
    nouns = [text for text in texts if text.casefold() in _NOUNS]
    if any("+" in text and _SIGNS.issuperset(text) for text in texts):
        nouns += [text for text in symbols if _SIGNS.issuperset(text)]
        symbols = [text for text in symbols if not _SIGNS.issuperset(text)]
    return symbols, nouns


def find_number_texts(distinct: Iterable[str]) -> list[str]:
    """Return those `distinct` texts of a category that often mark a missing number, as -999."""
    numbers = {normalize_value(number) for number in _NUMBERS if abs(number) >= 9}
    return [text for text in distinct if normalize_value(text) in numbers]


def find_sentinels(codes: Codes, *, are_days: bool = False) -> tuple[list[float], list[float]]:
    """Return the distinct codes that certainly mark missing values, and those that possibly do.

    They are judged by their frequency, and by their distance from the other codes. `codes`: numbers
    (n,), or days since 1970 if `are_days`.
    """
    sentinels = _DAYS if are_days else _NUMBERS
    distinct, counts = np.unique(codes, return_counts=True)
    is_sentinel = np.isin(distinct, list(sentinels))
    plain = distinct[~is_sentinel]
    candidates = distinct[is_sentinel].tolist()
    if not candidates:
        return [], []
    if len(plain) < 2:
        return [], [value for value in candidates if abs(value) >= 99]
    low, high = float(plain[0]), float(plain[-1])
    min_spike_count = max(_MIN_SPIKE_COUNT, _SPIKE_RATIO * float(np.median(counts[~is_sentinel])))
    certain = []
    possible = []
    for value, count in zip(candidates, counts[is_sentinel].tolist(), strict=True):
        gap = max(low - value, value - high)
        if are_days:
            is_certain = gap > 0 and (gap > max(high - low, 366.0) or count >= min_spike_count)
            is_possible = count >= min_spike_count or (gap > 0 and count > 1)
        else:
            is_certain = _certainly_marks_missing(value, count, plain)
            is_only_negative = value < 0 <= low
            is_possible = count >= min_spike_count or is_only_negative or gap > max(1.0, high - low)
            is_possible |= gap > 1 and count > 1
        if is_certain:
            certain.append(value)
        elif is_possible:
            possible.append(value)
    return certain, possible


def _certainly_marks_missing(sentinel: float, count: int, other_codes: Codes) -> bool:
    """Return whether a sentinel, such as -999, certainly marks a missing value.

    A single -1 beside few counts may be a number, and so may 9 or 99 on a scale that ends nearby.
    `count`: number of rows with the sentinel. `other_codes` (k,): the column's distinct numbers
    that are no sentinels, sorted.
    """
    low, high = float(other_codes[0]), float(other_codes[-1])
    gap = max(low - sentinel, sentinel - high)
    if gap <= 0:
        return False
    is_only_negative = sentinel < 0 <= low
    if is_only_negative and count > 1 and (sentinel <= -9 or len(other_codes) >= 5):
        return True
    if count > 1 and abs(sentinel) >= 9 and low == 0 and high == 1:
        return True
    is_far = gap > high - low
    is_repeated = count > 1 or is_only_negative or gap > 3 * (high - low)
    return abs(sentinel) >= 99 and is_far and is_repeated
