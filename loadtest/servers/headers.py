"""Header lines that can be sent; a value is never shown, since it may be a key."""

from __future__ import annotations

import re

from loadtest.errors import UsageError

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_OWN = frozenset(
    ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept", "accept-encoding")
)


def refuse_unsendable(name: str, value: str, named: str) -> None:
    """Raise UsageError for a header that cannot be sent; `named` says where its value comes from."""
    if not _TOKEN.fullmatch(name) or name.lower() in _OWN:
        raise UsageError(f"The header {name!r} cannot be sent: not a header name, or one that is set for you.")
    if wrong := _wrong(value):
        raise UsageError(f"{named} {wrong}, which cannot be sent in a header. Its value is not shown.")


def _wrong(value: str) -> str:
    if not value.strip():
        return "is empty"
    if value != value.strip():
        return f"{'begins' if value[0].isspace() else 'ends'} with a blank or a line break"
    if not value.isascii():
        return "holds a character outside ASCII"
    return "" if value.isprintable() else "holds a line break or another control character"
