"""Secrets that a servers file may hold: found by the names that they go by, and kept out of records and logs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HIDDEN = "(hidden)"
_SECRET = re.compile(r"(?:^|[_-])(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_FROM_ENVIRONMENT = re.compile(r"\$\{\w+\}|\{\w+\}")  # a reference says nothing
CUT = "…"  # ends a text that was cut short
LEAST = 4  # characters of a secret that is looked for in a text


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
    """Return the secrets that headers carry, each also as it looks once its blanks are drawn together."""
    values = [value.removeprefix("Bearer ") for value in headers.values()]
    return tuple(dict.fromkeys(form for value in values for form in (value, " ".join(value.split()))))


def without(secrets: Sequence[str], text: str) -> str:
    """Return a text with every occurrence of the secrets hidden, also one that is cut short by an ellipsis."""
    found = sorted((secret for secret in secrets if len(secret) >= LEAST), key=len, reverse=True)
    for secret in found:
        text = text.replace(secret, HIDDEN)
    if CUT in text:
        for secret in found:
            for end in range(len(secret) - 1, LEAST - 1, -1):
                text = text.replace(secret[:end] + CUT, HIDDEN + CUT)
    return text


def purged(secrets: Sequence[str], value: Any, name: str = "") -> Any:
    """Return what a server told of itself without secrets: ours, and what goes by a secret's name."""
    if isinstance(value, Mapping):
        return {key: purged(secrets, inner, str(key)) for key, inner in value.items()}
    if isinstance(value, list):
        return [purged(secrets, inner) for inner in value]
    if not isinstance(value, str):
        return value
    return HIDDEN if value and is_secret(name) else without(secrets, value)


def clean(log: Path, secrets: Sequence[str]) -> None:
    """Hide the secrets in a finished log: servers like to print the options that they were given."""
    if not any(len(secret) >= LEAST for secret in secrets) or not log.exists():
        return
    before = log.read_text(encoding="utf-8", errors="replace")
    after = without(secrets, before)
    if after != before:
        log.write_text(after, encoding="utf-8")
