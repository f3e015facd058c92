"""What a setting may be: checks of the values read from TOML.

Each takes a value and returns it converted, or raises ValueError with what is allowed.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from typing import Any

Check = Callable[[Any], Any]
LARGEST = 1e300  # leaves room for sums and products
DEEPEST = 32  # tables and lists within each other


def shown(value: Any, longest: int = 120) -> str:
    """Return a value as a message shows it, cut to `longest` characters."""
    try:
        word = repr(value)
    except (ValueError, RecursionError):  # Python writes no whole number of more than 4300 digits
        return "a value too long to show"
    return word if len(word) <= longest else word[: longest - 1] + "…"


def number(low: float = -math.inf, high: float = math.inf, *, above: float | None = None) -> Check:
    """Accept a finite number in [low, high], and greater than `above` when given."""
    floor = f"above {above:g}" if above is not None else f"at least {low:g}" if low > -math.inf else ""
    allowed = " and ".join(part for part in (floor, f"at most {high:g}" if high < math.inf else "") if part)

    def check(value: Any) -> float:
        # Compared, not converted: a whole number may be greater than any float.
        if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
            raise ValueError(f"a number{' ' + allowed if allowed else ''}")
        if not low <= value <= high or (above is not None and value <= above):
            raise ValueError(f"a number {allowed}")
        return float(value)

    return check


def whole(low: int, high: int) -> Check:
    """Accept a whole number in [low, high]."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return check


def choice(*allowed: str) -> Check:
    """Accept one of the words."""

    def check(value: Any) -> str:
        if value not in allowed:
            near = difflib.get_close_matches(value, allowed, n=1, cutoff=0.5) if isinstance(value, str) else []
            hint = f' (the nearest is "{near[0]}")' if near else ""
            raise ValueError("one of " + ", ".join(f'"{word}"' for word in allowed) + hint)
        return str(value)

    return check


def text(value: Any) -> str:
    """Accept a string."""
    if not isinstance(value, str) or not _is_unicode(value):
        raise ValueError("a string of Unicode text")
    return value


def _is_unicode(word: str) -> bool:
    """Return whether a word can be sent and written: bytes that are no UTF-8 arrive as lone surrogates."""
    return not any("\ud800" <= c <= "\udfff" for c in word)


def flag(value: Any) -> bool:
    """Accept true or false."""
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def strings(value: Any) -> tuple[str, ...]:
    """Accept a list of strings."""
    if not isinstance(value, list | tuple) or not all(
        isinstance(item, str) and item and _is_unicode(item) for item in value
    ):
        raise ValueError("a list of non-empty strings")
    return tuple(value)


ACCEPTED = ("declared speculation",)


def accepted(value: Any) -> tuple[str, ...]:
    """Accept a list of things that a gate may take without proof."""
    if not isinstance(value, list | tuple) or any(item not in ACCEPTED for item in value):
        raise ValueError(f"a list of {', '.join(repr(item) for item in ACCEPTED)}")
    return tuple(value)


def table(value: Any) -> dict[str, Any]:
    """Accept a table of any keys, with values that JSON has."""
    if not isinstance(value, dict) or not _is_json(value, DEEPEST):
        raise ValueError(
            "a table of texts, numbers of at most 64 bits, true, false, lists and tables: it goes into JSON"
        )
    return dict(value)


def _is_json(value: Any, deeper: int) -> bool:
    """Return whether JSON can hold a value from TOML: no dates, no NaN, no whole number beyond 64 bits."""
    if isinstance(value, dict):
        return deeper > 0 and all(_is_unicode(name) and _is_json(inner, deeper - 1) for name, inner in value.items())
    if isinstance(value, list):
        return deeper > 0 and all(_is_json(inner, deeper - 1) for inner in value)
    if isinstance(value, str):
        return _is_unicode(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, int) and -(2**63) <= value < 2**64)


MAX_LEVEL = 16384
MAX_LEVELS = 64
MAX_TRAFFIC = 1000  # loads of the expected traffic


def levels(value: Any) -> tuple[float, ...]:
    """Accept a list of different whole user counts; returned in ascending order."""
    allowed = f"a list of 1 to {MAX_LEVELS} different whole numbers from 1 to {MAX_LEVEL}"
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_LEVELS:
        raise ValueError(allowed)
    for item in value:
        is_number = isinstance(item, int | float) and not isinstance(item, bool)
        if not is_number or not 1 <= item <= MAX_LEVEL or item != int(item):
            raise ValueError(allowed)
    if len(set(value)) != len(value):
        raise ValueError(allowed)
    return tuple(float(item) for item in sorted(value))


LEVELS = f"a list of 1 to {MAX_LEVELS} different whole numbers from 1 to {MAX_LEVEL} (rates: above 0)"


def users_or_rates(value: Any) -> tuple[float, ...]:
    """Accept a list of different loads above 0, in ascending order; users must be whole, which their kind decides."""
    try:
        found = loads(value)
    except ValueError:
        raise ValueError(LEVELS) from None
    if not 1 <= len(found) <= MAX_LEVELS or max(found) > MAX_LEVEL:
        raise ValueError(LEVELS)
    return tuple(sorted(found))


def loads(value: Any) -> tuple[float, ...]:
    """Accept a list of different loads above 0."""
    allowed = f"a list of at most {MAX_TRAFFIC} different numbers above 0"
    if not isinstance(value, list | tuple) or len(value) > MAX_TRAFFIC:
        raise ValueError(allowed)
    try:
        found = tuple(number(above=0)(item) for item in value)
    except ValueError:
        raise ValueError(allowed) from None
    if len(set(found)) != len(found):
        raise ValueError(allowed)
    return found


def hours(value: Any) -> tuple[float, ...]:
    """Accept a list of durations in hours."""
    if not isinstance(value, list | tuple) or len(value) > MAX_TRAFFIC:
        raise ValueError(f"a list of at most {MAX_TRAFFIC} numbers above 0")
    return tuple(number(above=0)(item) for item in value)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def duration_s(value: Any) -> float:
    """Accept seconds as a number or a word such as "90s", "250 ms", "2m"; returned in seconds."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError('seconds, or a duration such as "90s", "250ms" or "2m"')
        value = float(match[1]) * _UNIT_S[match[2] or ""]
    return float(number(0.0)(value))


def duration_or_auto(value: Any) -> float | None:
    """Accept a duration, or "auto", which is returned as None."""
    try:
        return None if value == "auto" else duration_s(value)
    except ValueError as error:
        raise ValueError(f'"auto", or {error}') from None


def positive_s(value: Any) -> float:
    """Accept a duration above 0."""
    seconds = duration_s(value)
    if seconds <= 0:
        raise ValueError("a duration above 0")
    return seconds
