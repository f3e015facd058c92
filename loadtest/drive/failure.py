"""What ends a request badly, and the wording of messages that quote a server."""

from __future__ import annotations

import unicodedata

from loadtest.record import Outcome

QUOTE_LIMIT = 300  # characters of a server's message that are kept


class Failure(Exception):
    """A request failed: the outcome, and a plain sentence on what happened."""

    def __init__(self, outcome: Outcome, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.text = text


def printable(text: str, limit: int = QUOTE_LIMIT) -> str:
    """Return `text` on one line without control, format or surrogate characters, cut to `limit` characters."""
    head = " ".join(text[: 4 * limit].split())
    kept = "".join(c for c in head if unicodedata.category(c) not in ("Cc", "Cf", "Cs"))
    return kept if len(kept) <= limit and len(text) <= 4 * limit else kept[:limit] + "…"


def quoted(data: bytes, limit: int = 80) -> str:
    """Return the beginning of some bytes from a server, fit to be printed."""
    return printable(data[: 4 * limit].decode("utf-8", "replace"), limit)


def counted(number: int, noun: str) -> str:
    """Return '1 chunk', '2 chunks'."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
