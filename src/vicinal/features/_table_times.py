"""Parsers of texts that are times of day, durations or moments; and offsets of time zones.

Parsers return None or raise ValueError for other texts. A `zone` is a name such as UTC,
Europe/Berlin or +02:00.
"""

import datetime as dt
import re
import zoneinfo
from functools import lru_cache

import numpy as np
import numpy.typing as npt

SECONDS_PER_DAY = 86_400
MICROSECONDS = 1_000_000
"""Microseconds per second. All times are rounded to microseconds, so that texts and Arrow columns
of the same times have equal codes."""

# Parts of regular expressions: a time of day, an offset from UTC, and an amount of a unit.
_HALF_DAY = r"(?:\s*[ap]\.?m\.?)"
_CLOCK = rf"\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?{_HALF_DAY}?|\d{{1,2}}{_HALF_DAY}"
_OFFSET = r"Z|UTC|GMT|[+-]\d{2}(?::?\d{2})?"
_FLAGS = re.ASCII | re.IGNORECASE
_CLOCK_FIELDS = re.compile(
    r"T?(\d{1,2})(?::(\d{2})(?::(\d{2}(?:[.,]\d+)?))?)?(?:\s*([ap])\.?m\.?)?", _FLAGS
)
_MOMENT = re.compile(rf"(.+?)(?:[T ]\s*({_CLOCK})\s*({_OFFSET})?)?", _FLAGS)
_FIXED_ZONE = re.compile(r"([+-])(\d{2}):?(\d{2})?", re.ASCII)
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)

_AMOUNT = r"(\d+(?:[.,]\d+)?)"
_ISO_DURATION = re.compile(
    rf"([+-]?)P(?=[\dT])(?:{_AMOUNT}W)?(?:{_AMOUNT}D)?"
    rf"(?:T(?=\d)(?:{_AMOUNT}H)?(?:{_AMOUNT}M)?(?:{_AMOUNT}S)?)?",
    re.ASCII,
)
_ISO_SECONDS = (7 * SECONDS_PER_DAY, SECONDS_PER_DAY, 3600, 60, 1)
"""Seconds of a week, a day, an hour, a minute and a second. Months and years vary in length."""

_DAY_COUNT = re.compile(r"([+-]?\d+) ?(?:d|days?)\b,?\s*", _FLAGS)
_ELAPSED = re.compile(r"([+-]?)(\d+):([0-5]\d)(?::([0-5]\d(?:[.,]\d+)?))?", re.ASCII)

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ZONE_STEP = 900
"""Seconds for which the offset of a zone is looked up once: since 1900, all changes are at quarters
of an hour."""


def _parse_amount(digits: str | None) -> float:
    """Return the number of a text such as 2.5 or 2,5; 0 for None or an empty text."""
    return float(digits.replace(",", ".")) if digits else 0.0


def parse_clock(text: str) -> float | None:
    """Return the seconds since midnight of 14:30, 14:30:05.5 or 2:30 PM; None for other texts."""
    match = _CLOCK_FIELDS.fullmatch(text)
    if match is None or (match[2] is None and match[4] is None):
        return None
    hours = int(match[1])
    if match[4] is not None:
        if not 1 <= hours <= 12:
            return None
        hours = hours % 12 + 12 * (match[4] in "pP")
    minutes = int(match[2] or 0)
    seconds = _parse_amount(match[3])
    if hours > 23 or minutes > 59 or seconds >= 60:
        return None
    return _round_seconds(3600.0 * hours + 60.0 * minutes + seconds)


def _round_seconds(seconds: float) -> float:
    """Return a number of seconds rounded to microseconds."""
    return float(round(seconds * MICROSECONDS)) / MICROSECONDS


def parse_duration(text: str) -> float | None:
    """Return the seconds of a duration; None for other texts.

    Durations are written PT5M30S (ISO 8601, without months and years), 26:15:00 (hours first), or
    "1 days 02:00:00" as pandas and Python write them.
    """
    match = _ISO_DURATION.fullmatch(text)
    if match is not None:
        amounts = map(_parse_amount, match.groups()[1:])
        total = sum(amount * unit for amount, unit in zip(amounts, _ISO_SECONDS, strict=True))
        return _round_seconds(-total if match[1] == "-" else total)
    total = 0.0
    day_count = _DAY_COUNT.match(text)
    if day_count is not None:
        total = float(int(day_count[1]) * SECONDS_PER_DAY)
        text = text[day_count.end() :]
        if not text:
            return total
    elapsed = _ELAPSED.fullmatch(text)
    if elapsed is None:
        return None
    seconds = 3600.0 * int(elapsed[2]) + 60.0 * int(elapsed[3]) + _parse_amount(elapsed[4])
    return _round_seconds(total - seconds if elapsed[1] == "-" else total + seconds)


def find_zone(name: str) -> dt.tzinfo:
    """Return the time zone of a name such as Europe/Berlin, UTC or +02:00; raises ValueError."""
    if name.upper() in ("Z", "UTC", "GMT"):
        return dt.UTC
    match = _FIXED_ZONE.fullmatch(name)
    if match is not None:
        offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return dt.timezone(-offset if match[1] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):  # OSError: the name of a folder
        raise ValueError(name) from None


@lru_cache(maxsize=100_000)
def _find_offset(moment_index: int, zone: str) -> int:
    """Return the offset of a time zone from UTC at one moment, in seconds.

    `moment_index`: the moment, in units of 900 s (:data:`_ZONE_STEP`) since 1970. The offset is 0
    outside the years 1 to 9999.
    """
    try:
        moment = _EPOCH + dt.timedelta(seconds=moment_index * _ZONE_STEP)
        offset = moment.astimezone(find_zone(zone)).utcoffset()
    except OverflowError:  # beyond the years 1 to 9999
        return 0
    return 0 if offset is None else round(offset.total_seconds())


def find_offsets(utc_seconds: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    """Return the offsets of a time zone from UTC, in seconds (n,), at `utc_seconds` since 1970."""
    moments, indices = np.unique(utc_seconds // _ZONE_STEP, return_inverse=True)
    offsets = [_find_offset(moment_index, zone) for moment_index in moments.tolist()]
    return np.asarray(offsets, dtype=np.int64)[indices.reshape(utc_seconds.shape)]


def split_moment(text: str) -> tuple[str, str | None, str | None]:
    """Return the date, time of day and offset from UTC in a moment's text; None if it has none."""
    match = _MOMENT.fullmatch(text)
    return (text, None, None) if match is None else (match[1], match[2], match[3])


def parse_moment(text: str, date_format: str | None, zone: str) -> float:
    """Return the days from 1970 to a moment, with the time of day in `zone` as fraction.

    `text`: a date, perhaps with a time of day and an offset from UTC; without an offset it is local
    in `zone`. `date_format`: the strptime format of the date; None for 2026-01-31, which is always
    accepted. Raises ValueError for another text.
    """
    date_text, clock, offset = split_moment(text)
    if _ISO_DATE.fullmatch(date_text):
        ordinal = dt.date.fromisoformat(date_text).toordinal()
    elif date_format is not None:
        date = dt.datetime.strptime(date_text, date_format)  # noqa: DTZ007 (a day)
        ordinal = date.toordinal()
    else:
        raise ValueError
    days = ordinal - _EPOCH.toordinal()
    seconds = 0.0 if clock is None else parse_clock(clock)
    if seconds is None:
        raise ValueError
    whole_seconds = days * SECONDS_PER_DAY + int(seconds)
    if offset is not None:
        ahead = find_zone(offset).utcoffset(None)
        assert ahead is not None  # noqa: S101 (offsets are fixed)
        whole_seconds -= round(ahead.total_seconds())
        whole_seconds += _find_offset(whole_seconds // _ZONE_STEP, zone)
    microseconds = whole_seconds * MICROSECONDS + round(seconds % 1 * MICROSECONDS)
    return float(microseconds) / (SECONDS_PER_DAY * MICROSECONDS)
