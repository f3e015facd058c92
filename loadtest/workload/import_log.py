"""A log or published trace → a compact trace, a scenario and its settings; all three are for their owner alone (0600).

The trace holds what was asked and when, in the order of arrival, from 0 s on: no clock time, no names of sessions, and
of a dialogue's messages each once.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
import orjson

from loadtest.errors import RunError, UsageError, nearest
from loadtest.settings import Trace
from loadtest.workload.import_settings import scenario_text, settings_text
from loadtest.workload.logged import LeftOut
from loadtest.workload.replay import TraceSource, sentences
from loadtest.workload.seen import Seen, seen_of
from loadtest.workload.trace_forms import NAMES
from loadtest.workload.trace_index import index_of
from loadtest.workload.trace_lines import Line, line_at
from loadtest.workload.trace_rows import Row, TraceFile

GZIP = b"\x1f\x8b"
MAPPABLE = tuple(name for name in NAMES if name not in ("appended", "after", "ts_ms"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What an import wrote, and what it saw."""

    files: tuple[Path, ...]  # trace, scenario, settings
    seen: Seen
    notes: tuple[str, ...]


@dataclass(slots=True)
class Texts:
    """What only the text of a log tells; of the texts hashes are kept."""

    hashes: array[int] = field(default_factory=lambda: array("Q"))
    params: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, row: Row, asked: bytes) -> None:
        """Take in one request, with the hash of what it asked."""
        self.hashes.append(int.from_bytes(asked, "big"))
        for name, value in row.params.items():
            self.params.setdefault(name, Counter())[orjson.dumps(value).decode()] += 1

    @property
    def repeats(self) -> int | None:
        """Requests whose text is that of an earlier one; None without text."""
        return len(self.hashes) - len(np.unique(np.asarray(self.hashes, dtype=np.uint64))) if self.hashes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is known of a request when the next of its session is written."""

    first: int  # the session's first row, whose number names it
    messages: int
    asked: bytes  # hash of them


def parse_map(words: Sequence[str]) -> dict[str, str]:
    """Return field → name or path from words such as "ts=request.time". Raises UsageError."""
    found: dict[str, str] = {}
    for word in words:
        name, separator, path = word.partition("=")
        name, path = name.strip(), path.strip()
        if name not in MAPPABLE:
            raise UsageError(f"--map {word}: there is no field {name!r}.{nearest(name, MAPPABLE)}"
                             f" Fields are {', '.join(MAPPABLE)}.")  # fmt: skip
        if not separator or not path:
            raise UsageError(f"--map {word}: write FIELD=NAME, such as ts=request.time.")
        found[name] = path
    return found


def import_log(log: Path, out: Path, settings: Trace, seed: int, mapped: Mapping[str, str]) -> Imported:
    """Read a log and write OUT.jsonl, OUT.py and OUT.toml; raises UsageError where nothing of it can be used."""
    if out.suffix in (".py", ".toml", ".jsonl"):
        out = out.with_suffix("")
    if not out.name.isprintable():
        raise UsageError(f"-o {out.name!r}: the name stands in the settings; give one of printable characters.")
    files = tuple(out.with_name(out.name + suffix) for suffix in (".jsonl", ".py", ".toml"))
    for path in files:
        if path.exists():
            raise UsageError(f"{path} exists already; give another name with -o, or move it away.")
    if not out.parent.is_dir():
        raise UsageError(f"-o {out}: {out.parent} is not a folder.")
    try:
        with _plain(log, out.parent) as plain:
            file = TraceFile(plain, mapped)
            source = TraceSource(file, index_of(file, file.rows(), settings, seed), settings)
            texts = _write_trace(source, files[0])
    except OSError as error:
        raise UsageError(f"{error.filename or out} cannot be written or read: {error.strerror}.") from error
    seen = seen_of(source, texts.repeats)
    notes = tuple(sentences(log.name, file, source.index.counted, shown=True))
    used = f"{log.name} ({file.form.name}): {source.requests:,} of {file.read:,} rows used."
    _write_private(files[1], scenario_text(log.name))
    _write_private(files[2], settings_text(files[0].name, seen, texts.params, (used, f"Licence: {file.form.licence}.")))
    return Imported(files=files, seen=seen, notes=(used, *notes))


@contextmanager
def _plain(log: Path, folder: Path) -> Iterator[Path]:
    """Give a file that can be read at any place: a compressed one is unpacked beside the output for the time being."""
    if not log.is_file() or not _compressed(log):
        yield log
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacked-") as there:  # 0700
        path = Path(there) / log.stem
        try:
            with gzip.open(log, "rb") as packed, _private(path) as plain:
                shutil.copyfileobj(packed, plain, 1 << 20)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise UsageError(f"{log} cannot be unpacked: {error}.") from error
        try:
            yield path
        except UsageError as error:  # the user knows the log, and nothing of the file for the time being
            raise UsageError(str(error).replace(str(path), f"{log}, unpacked,")) from error


def _compressed(log: Path) -> bool:
    with log.open("rb") as file:
        return file.read(2) == GZIP


@contextmanager
def _private(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that nobody else can read, from its first byte on; it bears its name once it is whole.

    Of one that does not become whole nothing stays.
    """
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _write_private(path: Path, text: str) -> None:
    with _private(path) as file:
        file.write(text.encode())


def _write_trace(source: TraceSource, path: Path) -> Texts:
    """Write the compact trace, a line for each request in the order of arrival."""
    texts, before = Texts(), source.index.before
    goes_on = np.zeros(len(before), dtype=bool)
    goes_on[before[before >= 0]] = True
    held: dict[int, Held] = {}  # row → what the next of its session may append to
    with _private(path) as out, source.file.path.open("rb") as file:
        for at in range(source.requests):
            row = _row(source, file, at)
            earlier = held.pop(int(before[at]), None)
            first = earlier.first if earlier else at
            line = _described(source, row, at, first if earlier or goes_on[at] else None)
            count, asked = _say(line, row, earlier, texts) if row.asked is not None else (0, b"")
            if goes_on[at]:
                held[at] = Held(first=first, messages=count, asked=asked)
            out.write(orjson.dumps(line) + b"\n")
    return texts


def _row(source: TraceSource, file: BinaryIO, at: int) -> Row:
    offset = int(source.index.offset[at])
    try:
        return source.file.row(Line(number=int(source.index.line[at]), offset=offset, data=line_at(file, offset)))
    except LeftOut as why:  # it was usable when the file was read
        raise RunError(f"{source.file.path} was changed while it was read.") from why


def _described(source: TraceSource, row: Row, at: int, session: int | None) -> dict[str, Any]:
    index = source.index
    line: dict[str, Any] = {"ts": round(float(index.due_s[at]), 6)}
    if session is not None:
        line["session"] = session
    if row.category:
        line["class"] = index.categories[int(index.category[at])]
    elif not source.holds_text:  # the kind of text may have been told by the name of the log
        line["class"] = source.fallback
    line["input_tokens"] = int(index.input_tokens[at])
    if row.output_tokens is not None:
        line["output_tokens"] = row.output_tokens
    if row.duration_s is not None:
        line["duration_s"] = round(float(index.duration_s[at]), 6)
    if row.blocks:
        line |= {"hash_ids": row.blocks, "block_tokens": row.block_tokens}
    return line


def _say(line: dict[str, Any], row: Row, earlier: Held | None, texts: Texts) -> tuple[int, bytes]:
    """Add what a request asked to its line: all of it, or what it appends to its session's request before it.

    Returns how many messages it has, and their hash.
    """
    assert row.asked is not None  # the caller has seen it
    messages = list(row.asked.messages)
    count, asked = len(messages), _hash(row.asked.prompt or messages)
    if row.asked.tools:
        line["tools"] = row.asked.tools
    if row.asked.prompt:
        line["prompt"] = row.asked.prompt
    elif row.after >= 0:  # the log is a compact trace itself
        line |= {"appended": messages, "after": row.after}
        count, asked = row.after + count, _hash([earlier.asked.hex() if earlier else "", messages])
    elif earlier and 0 < earlier.messages < count and earlier.asked == _hash(messages[: earlier.messages]):
        line |= {"appended": messages[earlier.messages :], "after": earlier.messages}
    else:
        line["messages"] = messages
    texts.add(row, asked)
    return count, asked


def _hash(asked: Any) -> bytes:
    return blake2b(orjson.dumps(asked), digest_size=8).digest()
