"""Secrets that a servers file may hold: found by the names that they go by, and kept out of records and logs."""

from __future__ import annotations

import base64
import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "(hidden)"
_SECRET = re.compile(r"(?:^|[_-])(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_FROM_ENVIRONMENT = re.compile(r"\$\{\w+\}|\{\w+\}")  # a reference says nothing
CUT = "…"  # ends a text that was cut short
LEAST = 4  # characters of a secret that is looked for in a text
PIECE = 2**20  # bytes of a log that are cleaned at a time
LEAST_BASE64 = 8  # of one in base64: shorter ones occur by chance
_URL_SAFE = str.maketrans("+/", "-_")


def is_secret(name: str) -> bool:
    """Return whether a variable or option of this name holds a secret: HF_TOKEN, --api-key."""
    return bool(_SECRET.search(name))


def secret_words(command: Sequence[Any]) -> list[int]:
    """Return which words of a command carry a secret: the value of an option such as --api-key."""
    found = []
    for i, word in enumerate(map(str, command)):
        option, equals, _ = word.partition("=")
        if word.startswith("--") and is_secret(option):
            found.append(i if equals else i + 1)
    return [i for i in found if i < len(command)]


def hidden(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document without the secrets that were written into it; `${NAME}` is none and stays."""
    shown: dict[str, Any] = {}
    for name, value in document.items():
        if isinstance(value, Mapping):
            shown[name] = dict(value) if name == "headers_env" else hidden(value)
        elif isinstance(value, list):
            secret = set(secret_words(value))
            shown[name] = [_hide(item) if i in secret else item for i, item in enumerate(value)]
        else:
            shown[name] = _hide(value) if is_secret(name) else value
    return shown


def _hide(value: Any) -> Any:
    option, equals, word = str(value).partition("=")
    if str(value).startswith("--") and equals:
        return f"{option}={_hide(word)}"
    return value if _FROM_ENVIRONMENT.fullmatch(str(value)) else HIDDEN


def carried(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets that headers carry, in every form in which a server may repeat them."""
    return forms([value.removeprefix("Bearer ") for value in headers.values()])


def forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return secrets in every form in which a program may repeat them."""
    return tuple(dict.fromkeys(form for secret in secrets for form in _forms(secret)))


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as it is, its blanks drawn together, escaped as by JSON, Python and a URL, and in base64."""
    if not secret:
        return
    yield from (secret, " ".join(secret.split()), json.dumps(secret)[1:-1], secret.replace("/", "\\/"))
    yield from (json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    data = secret.encode(errors="surrogateescape")  # a variable of the environment need not be UTF-8
    yield from (quote(data, safe=""), quote(data), quote_plus(data))
    for before in range(3):  # bytes of another text in the group of three that the secret begins in
        core = _base64_core(data, before)
        if len(core) >= LEAST_BASE64:
            yield from (core, core.translate(_URL_SAFE))


def _base64_core(secret: bytes, before: int) -> str:
    """Return those characters of the base64 of a longer text that depend on the secret within it alone."""
    coded = base64.b64encode(b"\0" * before + secret).decode()
    return coded[-(-before * 8 // 6) : (before + len(secret)) * 8 // 6]


@cache
def _longest_first(secrets: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({secret.lower() for secret in secrets if len(secret) >= LEAST}, key=len, reverse=True))


def without(secrets: Sequence[str], text: str) -> str:
    """Return a text with every occurrence of the secrets hidden, in any case, also one that is cut by an ellipsis."""
    lowered = text.lower()
    for secret in _longest_first(tuple(secrets)):
        if secret in lowered:
            text = _replaced(secret, HIDDEN, text)
            lowered = text.lower()
    if CUT in text:
        for secret in _longest_first(tuple(secrets)):
            for end in range(len(secret) - 1, LEAST - 1, -1):
                if secret[:end] + CUT in lowered:
                    text = _replaced(secret[:end] + CUT, HIDDEN + CUT, text)
                    lowered = text.lower()
    return text


def without_cut_start(secrets: Sequence[str], text: str) -> str:
    """Return a text with the rest of a secret hidden that its cut start begins in."""
    lowered = text.lower()
    for secret in _longest_first(tuple(secrets)):
        for begin in range(1, len(secret) - LEAST + 1):
            if lowered.startswith(secret[begin:]):
                return HIDDEN + text[len(secret) - begin :]
    return text


def _replaced(word: str, by: str, text: str) -> str:
    return re.sub(re.escape(word), by, text, flags=re.IGNORECASE)


def purged(secrets: Sequence[str], value: Any, name: str = "") -> Any:
    """Return what a server told of itself without secrets: ours, and what goes by a secret's name."""
    if isinstance(value, Mapping):
        return {without(secrets, str(key)): purged(secrets, inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [purged(secrets, inner) for inner in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if value and is_secret(name) else without(secrets, value)


def clean(log: Path, secrets: Sequence[str], piece: int = PIECE) -> None:
    """Hide the secrets in a finished log: servers like to print the options that they were given.

    In place, since on a full disk there is no room for a second one, and in pieces, since it may be gigabytes long.
    """
    if not any(len(secret) >= LEAST for secret in secrets) or not log.exists():
        return
    written, waiting, changed = 0, b"", False
    with log.open("r+b", buffering=0) as file:
        try:
            for part, until in _parts(file, secrets, piece):
                after = without(secrets, part)
                changed = changed or after != part
                waiting += after.encode(errors="surrogateescape")
                if changed:  # from here on everything moves; never over what is still to be read
                    file.seek(written)
                    now, waiting = waiting[: until - written], waiting[until - written :]
                    _write_all(file, now)
                    written += len(now)
                else:
                    written, waiting = until, b""
            if changed:
                file.seek(written)
                _write_all(file, waiting)
                written = file.tell()
        finally:
            if changed:
                file.truncate(written)  # beyond lies what was not cleaned, if it could not be gone through


def _parts(file: FileIO, secrets: Sequence[str], piece: int) -> Iterator[tuple[str, int]]:
    """Yield a file's text in parts that no secret lies across, each with the place that it has been read up to."""
    known = _longest_first(tuple(secrets))
    reach = max(map(len, known)) + len(CUT)
    decoder = getincrementaldecoder("utf-8")("surrogateescape")
    place, text = 0, ""
    while True:
        file.seek(place)
        data = file.read(piece)
        place += len(data)
        text += decoder.decode(data, final=not data)
        cut = _cut(text, len(text) - reach, known) if data else len(text)
        if cut > 0:
            yield text[:cut], place - len(text[cut:].encode(errors="surrogateescape")) - len(decoder.getstate()[0])
            text = text[cut:]
        if not data:
            return


def _cut(text: str, most: int, secrets: Sequence[str]) -> int:
    """Return the last place up to `most` before which no secret begins that may end after it, best after a line."""
    cut = text.rfind("\n", 0, max(most, 0)) + 1 or most
    while cut > 0:
        begun = (size for secret in secrets for size in range(min(len(secret) - 1, cut), 0, -1)
                 if text[cut - size : cut].lower() == secret[:size])  # fmt: skip
        size = next(begun, 0)
        if not size:
            break
        cut -= size
    return max(cut, 0)


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
