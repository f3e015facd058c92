"""Lines of a large file, one at a time, with their number and place; nothing else of it is held in memory."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from loadtest.errors import UsageError

MAX_LINE_BYTES = 16 * 2**20  # a prompt of some million words
GZIP = b"\x1f\x8b"
_OTHER_FORMS = (
    (GZIP, "is compressed (gzip); unpack it"),
    (b"PAR1", "is a Parquet file; write its columns as CSV or JSONL"),
    (codecs.BOM_UTF16_LE, "is UTF-16 text; save it as UTF-8"),
    (codecs.BOM_UTF16_BE, "is UTF-16 text; save it as UTF-8"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line that is not blank."""

    number: int  # from 1
    offset: int  # of its first byte in the file
    data: bytes  # without the end of line; empty where the line is longer than MAX_LINE_BYTES


def open_plain(path: Path) -> BinaryIO:
    """Open a file of lines. Raises UsageError for what is no file of plain UTF-8 text."""
    try:
        if not path.is_file():
            state = "is a directory" if path.is_dir() else "is no file" if path.exists() else "does not exist"
            raise UsageError(f"{path} {state}; give a trace or log as CSV or JSONL.")
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    head = file.read(4)
    file.seek(0)
    if why := other_form(head):
        file.close()
        importing = " (`loadtest import` reads it, and writes a plain trace)" if head.startswith(GZIP) else ""
        raise UsageError(f"{path} {why}{importing}.")
    if not head:
        file.close()
        raise UsageError(f"{path} is empty.")
    return file


def other_form(head: bytes) -> str:
    """Return what a file that begins like this is, and what to do, where it is no plain text; else nothing."""
    return next((why for start, why in _OTHER_FORMS if head.startswith(start)), "")


def lines_of(file: BinaryIO) -> Iterator[Line]:
    """Yield the lines of a file from its place on; those longer than MAX_LINE_BYTES without their data."""
    number, offset = 0, file.tell()
    while data := file.readline(MAX_LINE_BYTES):
        number += 1
        start, offset = offset, offset + len(data)
        if len(data) == MAX_LINE_BYTES and not data.endswith(b"\n"):
            offset += _skip(file)
            yield Line(number=number, offset=start, data=b"")
            continue
        if number == 1 and data.startswith(codecs.BOM_UTF8):
            data, start = data[3:], start + 3
        if data := data.strip():
            yield Line(number=number, offset=start, data=data)


def _skip(file: BinaryIO) -> int:
    """Read on to the end of the line; return how many bytes that were."""
    skipped = 0
    while data := file.readline(MAX_LINE_BYTES):
        skipped += len(data)
        if data.endswith(b"\n"):
            break
    return skipped


def line_at(file: BinaryIO, offset: int) -> bytes:
    """Return the line that begins at `offset`."""
    file.seek(offset)
    return file.readline(MAX_LINE_BYTES).strip()
