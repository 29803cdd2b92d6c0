"""Values on public rows that probably stand for missing ones: "?", "n/a", -999, 1900-01-01."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from vicinal.arrays import Floats
from vicinal.features.table_columns import comparable, day_number

SYMBOLS = frozenset({
    "#n/a", "#n/a n/a", "#na", "n/a", "n.a.", "<na>", "nat", "nan", "null", "(null)", "#null!",
    "#value!", "#ref!", "#div/0!", "#num!", "\\n", ".", "..", "...", "-", "--", "---", "\u2013",
    "\u2014", "?", "??", "???",
})  # fmt: skip
"""Texts, casefolded, that have no other meaning in nearly all tables."""

NOUNS = frozenset({
    "na", "none", "nil", "missing", "unknown", "not available", "not applicable", "not known",
    "no data", "nd", "n.d.", "undefined", "blank", "empty",
})  # fmt: skip
"""Texts, casefolded, that mean a missing value among numbers, but may be a category's value."""

_SIGNS = frozenset("+-/\u2013\u2014")

NUMBERS = frozenset(
    [-1.0, -32768.0, -2147483648.0, 2147483647.0]
    + [float(sign * int("9" * n_digits)) for n_digits in range(1, 10) for sign in (1, -1)]
)
"""Numbers that programs and questionnaires write for a missing one."""

DAYS = frozenset(
    day_number(date)
    for date in (
        "0001-01-01", "1800-01-01", "1899-12-30", "1899-12-31", "1900-01-01", "1901-01-01",
        "1970-01-01", "2099-12-31", "2100-01-01", "2999-12-31", "3000-01-01", "9999-01-01",
        "9999-12-31",
    )
)  # fmt: skip
"""Dates that programs write for a missing one, as days since 1970."""

_MIN_SPIKE = 5
_SPIKE = 10.0
"""A value is suspiciously frequent if it is met this many times as often as the median value."""


@dataclass(frozen=True)
class Candidates:
    """Values that stand for missing ones: `certain` enough to be declared, or `possible`."""

    certain: tuple[float, ...] = ()
    possible: tuple[float, ...] = ()


def find_missing_texts(distinct: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which texts are symbols and which are nouns for a missing value."""
    texts = list(distinct)
    symbols = [text for text in texts if text.casefold() in SYMBOLS]
    nouns = [text for text in texts if text.casefold() in NOUNS]
    has_signs = any("+" in text and set(text) <= _SIGNS for text in texts)
    if has_signs:  # "-" is the opposite of "+" then
        signs = [text for text in symbols if set(text) <= _SIGNS]
        symbols = [text for text in symbols if text not in signs]
        nouns += signs
    return symbols, nouns


def find_number_texts(distinct: Iterable[str]) -> list[str]:
    """Return which categories are numbers that often stand for a missing value."""
    written = {comparable(number) for number in NUMBERS if abs(number) >= 9}
    return [text for text in distinct if comparable(text) in written]


def find_missing_numbers(numbers: Floats) -> Candidates:
    """Return the numbers (n,) that stand for missing ones, each once."""
    return _find(numbers, NUMBERS, are_days=False)


def find_missing_days(numbers: Floats) -> Candidates:
    """Return the days since 1970 (n,) that stand for missing dates, each once."""
    return _find(numbers, DAYS, are_days=True)


def _find(numbers: Floats, sentinels: frozenset[float], *, are_days: bool) -> Candidates:
    distinct, counts = np.unique(numbers, return_counts=True)
    is_sentinel = np.isin(distinct, list(sentinels))
    plain = distinct[~is_sentinel]
    candidates = list(zip(distinct[is_sentinel].tolist(), counts[is_sentinel], strict=True))
    if not candidates:
        return Candidates()
    if len(plain) < 2:
        return Candidates(possible=tuple(value for value, _ in candidates if abs(value) >= 99))
    low, high = float(plain[0]), float(plain[-1])
    spike = max(_MIN_SPIKE, _SPIKE * float(np.median(counts[~is_sentinel])))
    certain = []
    possible = []
    for value, count in candidates:
        gap = max(low - value, value - high)
        is_only_negative = value < 0 <= low
        if are_days:
            is_certain = gap > 0 and (gap > max(high - low, 366.0) or count >= spike)
            is_possible = count >= spike or (gap > 0 and count > 1)
        else:
            is_certain = _is_certain(value, int(count), plain)
            is_possible = count >= spike or is_only_negative or gap > max(1.0, high - low)
            is_possible |= gap > 1 and count > 1
        if is_certain:
            certain.append(value)
        elif is_possible:
            possible.append(value)
    return Candidates(tuple(certain), tuple(possible))


def _is_certain(value: float, count: int, plain: Floats) -> bool:
    """Return whether a number is too distant from the sorted plain numbers (k,) to be one of them.

    A single -1 beside few counts may be a number, and so may 9 or 99 on a scale that ends nearby.
    """
    low, high = float(plain[0]), float(plain[-1])
    gap = max(low - value, value - high)
    if gap <= 0:
        return False
    is_only_negative = value < 0 <= low
    if is_only_negative and count > 1 and (value <= -9 or len(plain) >= 5):
        return True
    if count > 1 and abs(value) >= 9 and low == 0 and high == 1:
        return True
    is_far = gap > high - low
    is_repeated = count > 1 or is_only_negative or gap > 3 * (high - low)
    return abs(value) >= 99 and is_far and is_repeated
