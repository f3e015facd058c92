"""What a gateway's headers say it lets through, in the spellings of the OpenAI API, of gateways and of the drafts.

Named limits on requests or tokens are of a minute unless the name says another window; of the others
(`RateLimit-Limit`, `RateLimit-Policy`: draft-ietf-httpapi-ratelimit-headers, 03 to 10) only those that tell their
window are understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

MINUTE_S = 60.0
_WINDOWS = {"second": 1.0, "minute": MINUTE_S, "hour": 3600.0, "day": 86400.0}
_WINDOW = f"(?:-(?P<window>{'|'.join(_WINDOWS)}))?"
_NAMED = re.compile(rf"(?:x-)?ratelimit-limit(?:-(?P<what>requests?|req|tokens?))?{_WINDOW}")
_TURNED = re.compile(r"anthropic-ratelimit-(?P<what>requests|tokens)-limit")
_POLICY = re.compile(r"(?:x-)?ratelimit-policy")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d{1,6})?", re.ASCII)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+", re.ASCII)
LONGEST = 1000  # characters of a header that is read


def rate_limits(headers: Mapping[str, str]) -> dict[str, float]:
    """Return how many `requests` and `tokens` a gateway lets through in any minute at most, as far as it says.

    Of several limits on the same the lowest counts. One on more than a minute lets through no more than itself in one.
    """
    found: dict[str, float] = {}
    for name, value in headers.items():
        for what, limit, window_s in _told(name.lower(), value[:LONGEST].strip()):
            if limit > 0 and window_s > 0:
                found = lowest(found, {what: limit * max(1.0, MINUTE_S / window_s)})
    return found


def lowest(*told: Mapping[str, float]) -> dict[str, float]:
    """Return the lower limit of each kind."""
    return {
        what: min(each[what] for each in told if what in each) for what in sorted({w for each in told for w in each})
    }


def _told(name: str, value: str) -> Iterator[tuple[str, float, float]]:
    """Yield (requests · tokens, limit, its window in seconds) of one header."""
    match = _NAMED.fullmatch(name) or _TURNED.fullmatch(name)
    if match is None and not _POLICY.fullmatch(name):
        return
    groups = match.groupdict() if match else {}
    what = "tokens" if (groups.get("what") or "").startswith("token") else "requests"
    own_s = _WINDOWS.get(groups.get("window") or "", MINUTE_S if groups.get("what") else 0.0)
    if _THOUSANDS.fullmatch(value):
        value = value.replace(",", "")
    for item in value.split(","):
        first, *rest = (part.strip() for part in item.split(";"))
        parameters = {key.strip(): word.strip().strip('"') for key, _, word in (part.partition("=") for part in rest)}
        if parameters.get("qu", "requests") != "requests":
            continue
        limit, window_s = _number(parameters.get("q", first)), _number(parameters.get("w", ""))
        yield what, limit, window_s or own_s


def _number(word: str) -> float:
    """Return a number; 0 for a word that is none."""
    return float(word) if _NUMBER.fullmatch(word) else 0.0
