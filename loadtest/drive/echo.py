"""What a server says of a request that it refuses may repeat the request, and that text belongs in no record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

LEAST = 16  # characters in a row that are taken for an echo; shorter ones are words that any message holds
STEP = 8  # where echoes are looked for: one of 24 characters is never missed
HIDDEN = "…"


def without_echo(said: str, body: bytes) -> str:
    """Return what a server said without what it repeats of the request's own text."""
    for text in _texts(orjson.loads(body)):
        said = _without(said, text)
    return said


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a request that are long enough to be told again."""
    if isinstance(value, str):
        if len(value) >= LEAST:
            yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name not in ("model", "cache_salt"):
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _without(said: str, text: str) -> str:
    kept: list[str] = []
    begun = at = 0
    while at + LEAST <= len(said):
        place = text.find(said[at : at + LEAST])
        if place < 0:
            at += STEP
            continue
        start, end = at, at + LEAST
        while start > begun and place > 0 and said[start - 1] == text[place - 1]:
            start, place = start - 1, place - 1
        while end < len(said) and place + end - start < len(text) and said[end] == text[place + end - start]:
            end += 1
        kept += [said[begun:start], HIDDEN]
        begun = at = end
    return "".join([*kept, said[begun:]])
