"""Events that differ from one that was read before by their text and their counts alone: told by their bytes.

Nearly all events of a stream are such. Between the same bytes as before, a text of characters that JSON writes as they
are and whole numbers can be nothing else, so that the event needs no parsing. The same holds of the line and of the
chunk of HTTP around it: nearly every read of a connection is one chunk with one event.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_PLAIN = bytes(c for c in range(0x20, 0x7F) if c not in b'"\\')  # what JSON writes as it is
_TEXT, _TOTAL, _COUNT = b'"content":"', b',"total_tokens":', b',"completion_tokens":'  # vLLM's order of keys
CHUNK_END = b"\n\n\r\n"  # of a chunk of HTTP that ends with an event
UNCOUNTED, OTHER = -1, -2  # below every count
_OPENING, _OPENING_LIMIT = re.compile(rb"0*([0-9A-Fa-f]{1,8})\r\ndata: "), 24


class Alike:
    """The bytes around the text, and the counts, of one event; `learnt` once there are any."""

    __slots__ = ("_after", "_before", "_between", "_ending", "learnt", "usage")

    def __init__(self) -> None:
        self.learnt = False
        self.usage: dict[str, Any] | None = None  # of the event learnt: but for the counts, that of every one like it
        self._before = self._after = b""
        self._between = b""  # from the end of the text to the total, "" where the event carries no counts
        self._ending = b""  # what follows the text and the counts in a chunk of its own

    def learn(self, data: bytes, text: Any, usage: dict[str, Any] | None) -> None:
        """Take an event that was read, whose text is `text`; one that is not plain teaches nothing."""
        if type(text) is not str or not text.isascii() or data.count(b'"content"') != 1:
            return
        before, found, rest = data.partition(_TEXT)
        plain = text.encode()
        if not found or plain.lstrip(_PLAIN) or not rest.startswith(plain + b'"'):
            return
        after, between = rest[len(plain) :], b""
        if usage is not None:
            between, after = _counts(after, usage)
            if not between:
                return
        self._before, self._between = before + found, _shared(between)
        self._after, self._ending = _shared(after), _shared(after + CHUNK_END)
        self.learnt, self.usage = True, usage

    def count(self, data: bytes) -> int:
        """Return the count of an event like the one learnt, UNCOUNTED where those carry none; OTHER for any other."""
        before, after = self._before, self._after
        if not data.startswith(before) or not data.endswith(after):
            return OTHER
        return self._told(data[len(before) : -len(after)])

    def count_in_chunk(self, chunk: bytes) -> int:
        """Return the count of an event like the one learnt that a chunk of HTTP consists of; OTHER for any other."""
        before, ending = self._before, self._ending
        opening, at = _opening_of(len(chunk))
        if not chunk.startswith(opening):  # the size is written in another way
            at = chunk.find(b"{", 0, _OPENING_LIMIT)
            if at < 0 or _size(chunk[:at]) != len(chunk) - at:
                return OTHER
        if not chunk.startswith(before, at) or not chunk.endswith(ending):
            return OTHER
        return self._told(chunk[at + len(before) : -len(ending)])

    def counts_in_chunks(self, data: bytes) -> list[int]:
        """Return `count_in_chunk` of each of the whole chunks that `data` consists of; [] where one is another."""
        counts, at = [], 0
        while at < len(data):
            brace = data.find(b"{", at, at + _OPENING_LIMIT)
            end = brace + _size(data[at:brace])
            count = self.count_in_chunk(data[at:end]) if brace >= 0 and end > brace else OTHER
            if count == OTHER:
                return []
            counts.append(count)
            at = end
        return counts

    def _told(self, rest: bytes) -> int:
        """Return the count in what lies between the bytes that stay."""
        if not self._between:
            return UNCOUNTED if rest and not rest.lstrip(_PLAIN) else OTHER
        text, found, counts = rest.partition(self._between)
        total, also, count = counts.partition(_COUNT)
        if not found or not also or text.lstrip(_PLAIN) or not _is_number(total) or not _is_number(count):
            return OTHER
        return int(count)


@lru_cache(64)
def _shared(data: bytes) -> bytes:
    """Return equal bytes as one object: what all streams look at stays in the processor's cache."""
    return data


@lru_cache(1024)
def _opening_of(length: int) -> tuple[bytes, int]:
    """Return how a chunk of HTTP with one event, so long in all, usually opens, and how many bytes that takes."""
    for digits in range(1, 9):
        opening = b"%x\r\ndata: " % max(0, length - digits - len(b"\r\n\r\n"))
        if len(opening) == digits + len(b"\r\ndata: "):
            return opening, len(opening)
    return b"x", 0  # no chunk is so long


@lru_cache(1024)
def _size(opening: bytes) -> int:
    """Return how many bytes should follow the opening of a chunk of HTTP with one event, -1 where it is none."""
    found = _OPENING.fullmatch(opening)
    return -1 if found is None else int(found[1], 16) - len(b"data: ") + len(b"\r\n")


def _counts(after: bytes, usage: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return what stands from the text's end to the total, and after the count; b"" where they lie otherwise."""
    if after.count(_TOTAL) != 1 or after.count(_COUNT) != 1:
        return b"", b""
    between, _, rest = after.partition(_TOTAL)
    total, count = str(usage.get("total_tokens")).encode(), str(usage.get("completion_tokens")).encode()
    told = total + _COUNT + count
    if not rest.startswith(told) or rest[len(told) : len(told) + 1].isdigit():
        return b"", b""
    return between + _TOTAL, rest[len(told) :]


def _is_number(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) < 10 and (digits[0] != 0x30 or len(digits) == 1)
