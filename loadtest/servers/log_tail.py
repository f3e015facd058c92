"""The end of a server's log as a person reads it: whatever was written, it is a few short lines without secrets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from loadtest.errors import printable
from loadtest.servers.hiding import without, without_cut_start

READ_BYTES = 16384
LINE_START, LINE_END = 300, 100  # characters shown of a line that is longer


def log_tail(log: Path, lines: int, secrets: Sequence[str]) -> str:
    """Return the last lines of a log that say something, secrets hidden; empty where there is none.

    Hidden before the lines are cut apart, since a secret may have several of them.
    """
    try:
        with log.open("rb") as source:
            start = max(0, source.seek(0, os.SEEK_END) - READ_BYTES)
            source.seek(start)
            text = source.read(READ_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    text = without(secrets, without_cut_start(secrets, text) if start else text)
    shown = [line for line in map(_as_shown, text.split("\n")) if line.strip()]
    return "\n".join(shown[-lines:])


def _as_shown(line: str) -> str:
    """Return what is seen of a line in the end: the last state of a progress bar, no colours, a bounded length."""
    line = printable(line.rstrip("\r").rpartition("\r")[2]).rstrip()
    return line if len(line) <= LINE_START + LINE_END else f"{line[:LINE_START]} … {line[-LINE_END:]}"
