"""What a scenario may give to the calls of its user; for anything else a ValueError says what is allowed."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from loadtest.checks import shown

LONGEST_PAUSE_S = 86_400.0


def pause_of(seconds: Any, what: str) -> float:
    """Return a scenario's pause in seconds, 0 where it is below. Raises ValueError that begins with `what`."""
    try:
        found = math.nan if isinstance(seconds, str | bytes) else float(seconds)
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not found <= LONGEST_PAUSE_S:  # NaN is not either
        allowed = f"a number of seconds, at most {LONGEST_PAUSE_S:,.0f} (a day)"
        raise ValueError(f"{what} {shown(seconds)}; a pause must be {allowed}")
    return max(0.0, found)


def messages_of(messages: Any) -> list[Mapping[str, Any]]:
    """Return the messages of a chat as a list. Raises ValueError for anything else."""
    held = None if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable) else list(messages)
    if not held or not all(isinstance(message, Mapping) for message in held):
        allowed = 'a list of at least one message, such as [{"role": "user", "content": "Hello"}]'
        raise ValueError(f"chat() was given {shown(messages if held is None else held)}; it must be {allowed}")
    return held


def prompt_of(prompt: Any) -> str:
    """Return the prompt of a completion. Raises ValueError for anything but a text."""
    if not isinstance(prompt, str) or not prompt:
        raise ValueError(f"complete() was given {shown(prompt)}; it must be a text that is not empty")
    return prompt


def tokens_of(limit: Any) -> int:
    """Return a scenario's own limit of an answer. Raises ValueError for what is no whole number above 0."""
    try:
        found = 0 if isinstance(limit, bool) else operator.index(limit)
    except TypeError:
        found = 0
    if found < 1:
        raise ValueError(f"max_tokens is {shown(limit)}; it must be a whole number of 1 or more, or left out")
    return found
