"""The JSON in events and error answers: read strictly, so that a figure has one meaning, and quoted with care."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from loadtest.drive.failure import Failure, printable, quoted
from loadtest.record import Outcome

_AFTER_KEY = re.compile(rb'"[ \t\r\n]*:')  # rare within a text, where it ends an inner quotation


def mended(data: bytes) -> Any:
    """Return JSON with invalid UTF-8 replaced, None for blanks: a character cut apart spoils the text, not the event.

    Raises Failure for what is no JSON even so.
    """
    if not data.strip():
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        try:
            return orjson.loads(data.decode("utf-8", "replace"))
        except orjson.JSONDecodeError:
            pass
    raise Failure(Outcome.PROTOCOL_ERROR, f"an event is not JSON: {quoted(data)}") from None


def named(name: bytes, data: bytes) -> dict[str, Any] | None:
    """Return the object in an event with a name; None for one that is not ours to read."""
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        said = data.decode("utf-8", "replace")
    if type(said) is dict:
        return said
    return {"error": said} if name == b"error" else None


def refuse_repeats(data: bytes, said: dict[str, Any]) -> None:
    """Raise Failure for an object that names a key twice: JSON does not say which of the two holds."""
    keys = 0
    left: list[Any] = [said]
    while left:  # no recursion: the server chooses how deep it is
        part = left.pop()
        if type(part) is dict:
            keys += len(part)
            left.extend(part.values())
        elif type(part) is list:
            left.extend(part)
    if data.count(b":") == keys or len(_AFTER_KEY.findall(data)) == keys:
        return
    try:
        json.loads(data.decode("utf-8", "replace"), object_pairs_hook=_once)
    except RecursionError:
        raise Failure(Outcome.PROTOCOL_ERROR, "an event is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise Failure(Outcome.PROTOCOL_ERROR, f"an event names the key {printable(name, 40)} twice")
        seen.add(name)


def error_message(said: Any) -> str:
    """Return the message in an error answer, whichever of the usual forms it has, fit to be printed."""
    error = said.get("error", said) if isinstance(said, dict) else said
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error.get("type") or error
    return printable(error if isinstance(error, str) else written(error))


def written(said: Any) -> str:
    """Return what stands where a text or a number belongs, as JSON: the server chooses how deep it is."""
    try:
        return orjson.dumps(said).decode()
    except orjson.JSONEncodeError:  # it reads deeper nesting than it writes
        return "JSON that is nested too deeply to be shown"
