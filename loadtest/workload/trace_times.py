"""Times as traces and logs write them → seconds: numbers of several units, and dates with any number of digits."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache

_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s*(Z|z|UTC|[+-]\d\d(?::?\d\d)?)?"  # ISO 8601
)
DAY_S = 86400
# A date of this century in seconds since 1970 has ten digits; more digits are thousandths, millionths or billionths.
_SINCE_1970 = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))


def time_s(value: object, unit_s: float | None = None) -> float:
    """Return a time in seconds; a number is in `unit_s`, or (None) in seconds unless it has too many digits for that.

    A date without a zone is taken as UTC. Raises ValueError with what is allowed.
    """
    if isinstance(value, str):
        return _of_text(value.strip(), unit_s)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e20:
        raise ValueError("a number or a date such as 2026-01-31 08:15:00.123")
    if unit_s is not None:
        return float(value) * unit_s
    return float(value) * next((scale for least, scale in _SINCE_1970 if abs(value) >= least), 1.0)


def _of_text(word: str, unit_s: float | None) -> float:
    match = _DATE.fullmatch(word)
    if match is None:
        try:
            number = float(word)
        except ValueError:
            number = float("nan")
        return time_s(number, unit_s)
    day, hour, minute, second, fraction, zone = match.groups()
    hours, minutes, seconds = int(hour), int(minute), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 60:  # 60: a leap second
        raise ValueError("a time of day up to 23:59:60")
    rest = float(f"0.{fraction}") if fraction else 0.0
    return _day_s(day) + hours * 3600 + minutes * 60 + seconds - _zone_s(zone or "") + rest


@lru_cache(maxsize=4096)
def _day_s(word: str) -> float:
    try:
        return float((date.fromisoformat(word).toordinal() - date(1970, 1, 1).toordinal()) * DAY_S)
    except ValueError:
        raise ValueError("a day that exists") from None


@lru_cache(maxsize=256)
def _zone_s(word: str) -> float:
    if word in ("", "Z", "z", "UTC"):
        return 0.0
    digits = word[1:].replace(":", "").ljust(4, "0")
    return (-1 if word[0] == "-" else 1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)
