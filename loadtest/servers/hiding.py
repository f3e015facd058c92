"""Secrets that a servers file may hold: found by the names that they go by, and kept out of records and logs."""

from __future__ import annotations

import base64
import json
import re
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


def clean(log: Path, secrets: Sequence[str]) -> None:
    """Hide the secrets in a finished log: servers like to print the options that they were given."""
    if not any(len(secret) >= LEAST for secret in secrets) or not log.exists():
        return
    before = log.read_bytes().decode("utf-8", errors="replace")
    after = without(secrets, before)
    if after != before:
        with log.open("r+b", buffering=0) as file:  # in place: emptied first, it would be lost on a disk that is full
            try:
                _write_all(file, after.encode())
            finally:
                file.truncate(file.tell())


def _write_all(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
