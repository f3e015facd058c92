"""A file of prompts → its objects, with their places: JSONL, one JSON array, CSV, or a text with a prompt a line."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from loadtest.errors import UsageError
from loadtest.workload.prompt_forms import ALLOWED, kind_of, shown
from loadtest.workload.trace_lines import other_form

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_LINE_BYTES = 1024 * 1024
COLUMNS = ("prompt", "question", "instruction", "text")  # of which a CSV file needs one


class Misfit(ValueError):
    """Something that is no object; the message says what."""


def documents_of(path: Path) -> Iterator[tuple[str, dict[str, Any] | Misfit]]:
    """Yield (place, object) of everything in a file; what is no object comes as Misfit. Raises UsageError."""
    if path.suffix in (".csv", ".tsv"):
        yield from _of_table(path)
    elif path.suffix == ".txt":
        for number, line in _lines(path):
            yield f"line {number}", _guarded(lambda line=line: {"prompt": _decoded(line).strip()})
    elif _is_array(path):
        yield from _of_array(path)
    else:
        for number, line in _lines(path):
            yield f"line {number}", _guarded(lambda line=line: _object(_parsed(_decoded(line))))


def _guarded(read: Any) -> dict[str, Any] | Misfit:
    try:
        found: dict[str, Any] = read()
    except Misfit as misfit:
        return misfit
    return found


def _is_array(path: Path) -> bool:
    """Return whether a file is one JSON array over several lines, or of objects on one."""
    _refuse_none(path)
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(codecs.BOM_UTF8).lstrip()
    return head[:1] == b"[" and (path.suffix == ".json" or head[1:].lstrip()[:1] == b"{")


def _of_array(path: Path) -> Iterator[tuple[str, dict[str, Any] | Misfit]]:
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        entries = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{path} is not JSON: {error.msg}, line {error.lineno}.") from None
    for number, entry in enumerate(entries, start=1):
        yield f"entry {number}", _guarded(lambda entry=entry: _object(entry))


def _of_table(path: Path) -> Iterator[tuple[str, dict[str, Any] | Misfit]]:
    _refuse_none(path)
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = _decoded(data)
        csv.field_size_limit(MAX_LINE_BYTES)  # as long as a line of JSONL may be
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(path, text), strict=True)
        heading = [name.strip().lower() for name in next(reader, [])]
        if not set(COLUMNS) & set(heading):
            raise UsageError(
                f"{path}, line 1: no column {', '.join(COLUMNS)}; its columns are"
                f" {', '.join(name[:40] or '(unnamed)' for name in heading[:12]) or 'none'}."
            )
        for row in reader:
            place = f"line {reader.line_num}"
            if len(row) > len(heading):
                yield place, Misfit(f"{len(row)} fields where the heading has {len(heading)}")
            elif any(cell.strip() for cell in row):
                found = {name: cell for name, cell in zip(heading, row, strict=False) if cell.strip()}
                own = [name for name in COLUMNS if name in heading]
                yield place, found if set(own) & set(found) else Misfit(f"the column {own[0]} is blank")
    except csv.Error as error:
        raise UsageError(f"{path}, line {reader.line_num}: not CSV ({error}).") from None
    except Misfit as misfit:
        raise UsageError(f"{path}: {misfit}.") from None


def _separator(path: Path, text: str) -> str:
    """Return what stands between the fields of a table; spreadsheets of many countries write semicolons."""
    return "\t" if path.suffix == ".tsv" else max(",;\t", key=text.partition("\n")[0].count)


def _refuse_none(path: Path) -> None:
    """Raise UsageError for what is no file, or one that is too large or empty."""
    try:
        if not path.is_file():
            state = "is a directory" if path.is_dir() else "is no file" if path.exists() else "does not exist"
            raise UsageError(f"{path} {state}; give a JSONL file of prompts.")
        size = path.stat().st_size
        with path.open("rb") as file:
            why = other_form(file.read(4))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    if why:
        raise UsageError(f"{path} {why}.")
    if size > MAX_FILE_BYTES:
        raise UsageError(f"{path} has {size:,} bytes; at most {MAX_FILE_BYTES:,} are read: use a part of it.")
    if size == 0:
        raise UsageError(f"{path} is empty; {ALLOWED}.")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers, reading one at a time."""
    _refuse_none(path)
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise UsageError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes, the limit.")
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            if line.strip():
                yield number, line


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise Misfit(f"byte {error.start + 1} (0x{byte:02x}) is not UTF-8; save the file as UTF-8") from None


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Misfit(f"not JSON ({error.msg} at column {error.colno}): {shown(text)}") from None


def _object(document: Any) -> dict[str, Any]:
    try:
        text = orjson.dumps(document).decode()
    except orjson.JSONEncodeError:  # it reads deeper nesting than it writes
        raise Misfit("nested too deeply to be sent") from None
    if not isinstance(document, dict):
        raise Misfit(f"{kind_of(document)} where an object is needed: {shown(text)}; {ALLOWED}")
    return document
