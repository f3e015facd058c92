"""Numbers and foreign text as a reader sees them: one way for terminal, markdown and page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from typing import ParamSpec, TypeVar

from loadtest import loads
from loadtest.analyse import wording
from loadtest.analyse.estimates import Estimate
from loadtest.analyse.results import Judgement

MISSING = "–"
NAME_LIMIT = 100  # characters up to which a limit is the room for a name
SECRETS = 4096  # characters beyond a limit in which user names are looked for
TEXT_LIMIT = 2000  # characters of one value that are shown; servers may answer with megabytes

# Controls (C0, C1, DEL), bidirectional marks and overrides, line separators, and lone surrogates: each can forge what
# a terminal or a page shows, or break UTF-8 or (the last two) XML.
_FORGING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\ufffe\uffff]"
)
_USER_INFO = re.compile(r"(\w+://)[^/\s@]*@")

Format = Callable[[float], str]


def plain(text: object, limit: int = TEXT_LIMIT) -> str:
    """Return text without characters that act on the display, cut at `limit` characters, URLs without user names.

    A text is cut at its end, and how much is missing is said; a name in its middle, as names often differ in their
    ends alone, and within its limit, which is the room that there is for it.
    """
    shown = str(text)
    left = max(0, len(shown) - limit - SECRETS)
    shown = _USER_INFO.sub(r"\1", shown[: limit + SECRETS])  # before it is cut, or a part of a password would remain
    shown = _FORGING.sub(lambda found: " " if found[0] in "\t\n\r\u2028\u2029" else "\ufffd", shown)
    cut = len(shown) + left - limit
    if cut <= 0:
        return shown
    if limit <= NAME_LIMIT:
        end = (limit - 1) // 3
        return f"{shown[: limit - 1 - end]}…{shown[len(shown) - end :]}"
    return f"{shown[:limit]} … ({cut:,} more characters)"


def known(value: float | None) -> bool:
    """Say whether a value exists: None and NaN do not."""
    return value is not None and not math.isnan(value)


def _digits(value: float, significant: int = 3) -> int:
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = abs(float(f"{value:.{significant}g}"))  # 0.9996 is 1.00 with three digits
    return max(0, significant - 1 - math.floor(math.log10(rounded)))


def count(value: float | None) -> str:
    """Return a number with three significant digits below 100, whole and grouped above: 2,410."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.{min(_digits(value), 3)}f}"


def tenths(value: float | None) -> str:
    """Return a mean of small whole numbers with one digit, and of less than that with more: 0.9, 30.1, 0.037."""
    if value is not None and 0 < value < 0.05:
        return count(value)
    return MISSING if value is None or math.isnan(value) else f"{value:,.1f}"


def whole(value: float | None) -> str:
    """Return a figure as a whole number from 100 on, with three digits below."""
    return count(round(value) if value is not None and math.isfinite(value) and abs(value) >= 100 else value)


def ratio(value: float | None) -> str:
    """Return a factor: 1.27×."""
    if value is None or math.isnan(value):
        return MISSING
    return "∞" if math.isinf(value) else f"{value:.2f}×"


def share(value: float | None) -> str:
    """Return a share as percent: 4.2 %, and more digits where it is close to 0 or 1 without being it."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value * 100):
        return "∞" if value > 0 else "−∞"
    percent = round(value * 100, 6)
    if percent == round(percent):
        return f"{percent:.0f} %"
    edge = min(abs(percent), abs(100 - percent))
    return f"{percent:.{2 if edge < 1 else 1}f} %"


def change(value: float | None) -> str:
    """Return the change that a ratio stands for: 1.18 is +18 %."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "∞"
    near = abs(value - 1) < 0.0995 or 0 < value < 0.005  # and close to nothing being left
    percent = round((value - 1) * 100, 1 if near else 0)
    shown = f"{percent:+,.0f}" if percent == round(percent) else f"{percent:+,.1f}"
    return f"{shown} %".replace("-", "−") if percent else "±0 %"


def signed_percent(percent: float) -> str:
    """Return a distance in percent with its sign: −0.4 %, ±0 %."""
    written = f"{percent:+.1f}".replace("-", "−")
    return f"{'±0' if written[1:] == '0.0' else written} %"


def points(value: float | None) -> str:
    """Return a difference of shares in percentage points: −1.2 points."""
    if value is None or math.isnan(value):
        return MISSING
    written = f"{value * 100:+.1f}".replace("-", "−")
    return f"{'±0' if written[1:] == '0.0' else written} points"


def _time_format(scale: float | None) -> Format:
    """Return the format of times of about `scale` seconds: one unit and one precision, so that figures line up."""
    if scale is None or not math.isfinite(scale):
        scale = 1.0
    unit, factor = ("ms", 1000.0) if abs(scale) < 0.9995 else ("s", 1.0)
    digits = min(_digits(scale * factor), 3)
    return lambda value: "∞" if math.isinf(value) else f"{value * factor:,.{digits}f} {unit}".replace("-", "−")


def time(value: float | None) -> str:
    """Return seconds as a time with three significant digits: 41.3 ms, 1.24 s; failures count as ∞."""
    return MISSING if value is None or math.isnan(value) else _time_format(value)(value)


def signed_time(value: float | None) -> str:
    """Return a difference of times with its sign: −12.3 ms."""
    if value is None or math.isnan(value):
        return MISSING
    return _signed(time)(value)


def _signed(form: Format) -> Format:
    return lambda value: f"{'−' if value < 0 else '+'}{form(abs(value))}"


def minutes(value: float | None) -> str:
    """Return a duration for people: 48 s, 3 min 20 s, 1 h 5 min."""
    if value is None or not math.isfinite(value):
        return MISSING
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 // 60 else "")


def load(value: float | None) -> str:
    """Return a load with the digits that the answer's sentences give it."""
    return MISSING if value is None or math.isnan(value) else wording.load(value)


LOADS = {
    "users": "users, each sending its next request when the last is done and its think time is over",
    "requests/s": "requests per second, in sessions that arrive at set times whatever the server does; a later turn"
    " follows its pause after the answer before",
    "sessions/s": "sessions per second that arrive at set times whatever the server does; a later turn follows its"
    " pause after the answer before",
}
P = ParamSpec("P")
T = TypeVar("T")


def in_its_unit(draw: Callable[P, T]) -> Callable[P, T]:
    """Let a function that is given a judgement say loads in the unit of that judgement."""

    @wraps(draw)
    def drawn(*given: P.args, **named: P.kwargs) -> T:
        judgement = next(one for one in (*given, *named.values()) if isinstance(one, Judgement))
        with loads.spoken(judgement.unit if judgement.unit in LOADS else loads.USERS):
            return draw(*given, **named)

    return drawn


def level(value: float) -> str:
    """Return a tested level with its unit: 16 users, 2.5 requests/s."""
    return loads.said(f"{value:g}")


def calibrated(found: Mapping[str, object]) -> str:
    """Return the load of a calibration, as the header holds it, with its unit."""
    return level_of({"level": found.get("users"), "unit": found.get("unit")})


def level_of(event: Mapping[str, object]) -> str:
    """Return the level of an event with its unit, users where it names none."""
    unit = str(event.get("unit"))
    with loads.spoken(unit if unit in LOADS else loads.USERS):
        return level(float(str(event.get("level") or 0.0)))


def levels(values: Iterable[float]) -> str:
    """Return several levels with their unit: 16, 32 and 64 users."""
    texts = [f"{value:g}" for value in sorted(set(values))]
    if len(texts) < 2:
        return loads.said(texts[0]) if texts else MISSING
    return ", ".join(texts[:-1]) + f" and {texts[-1]} {loads.unit()}"


def of_loads(estimate: Estimate) -> str:
    """Return a load with its interval and unit: `41 [33, 52] users`."""
    return f"{load_interval(estimate)} {loads.unit()}"


def load_interval(estimate: Estimate) -> str:
    """Return a load with its interval, as the answer's sentences write it: `3.2 [2.4, 4.7]`."""
    value, low, high = (MISSING if text is None else text for text in wording.texts(estimate))
    return value if low == high == MISSING else f"{value} [{low}, {high}]"


def interval(estimate: Estimate, form: Format | None = None) -> str:
    """Return value and interval, the unit once: `412 ms [388, 441]`; a missing bound is –, a missing value too."""
    value, low, high = (item if known(item) else None for item in (estimate.value, estimate.low, estimate.high))
    scale = next((item for item in (value, low, high) if item is not None), None)
    if scale is None:
        return MISSING
    written = form or count
    if written in (time, signed_time):  # one unit for all three
        plain_time = _time_format(next((i for i in (value, low, high) if i and math.isfinite(i)), 0.0))
        written = _signed(plain_time) if written is signed_time else plain_time
    bound = wording.apart if written is ratio else written
    texts = [MISSING if item is None else form(item) for item, form in ((value, written), (low, bound), (high, bound))]
    if low is None and high is None:
        return texts[0]
    bounds = [re.sub(r" (ms|s|points|%)$|×$", "", text) for text in texts[1:]]
    return f"{texts[0]} [{bounds[0]}, {bounds[1]}]"
