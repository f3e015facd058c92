"""Secrets that a servers file may hold: found by the names that they go by, and kept out of records and logs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HIDDEN = "(hidden)"
_SECRET = re.compile(r"(?:^|[_-])(?:key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
_FROM_ENVIRONMENT = re.compile(r"\$\{\w+\}|\{\w+\}")  # a reference says nothing
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


def without(secrets: Sequence[str], text: str) -> str:
    """Return a text with every occurrence of the secrets hidden."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= LEAST:
            text = text.replace(secret, HIDDEN)
    return text


def clean(log: Path, secrets: Sequence[str]) -> None:
    """Hide the secrets in a finished log: servers like to print the options that they were given."""
    if not any(len(secret) >= LEAST for secret in secrets) or not log.exists():
        return
    before = log.read_text(encoding="utf-8", errors="replace")
    after = without(secrets, before)
    if after != before:
        log.write_text(after, encoding="utf-8")
