"""Sessions from a trace or log: when they arrive, and what they ask. Text stays in the file until it is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from loadtest.errors import RunError, UsageError, nearest
from loadtest.settings import Trace
from loadtest.workload.filler import DEFAULT_KIND, KINDS, kind_of, text_of_blocks, text_of_length
from loadtest.workload.logged import LeftOut
from loadtest.workload.seeds import rng
from loadtest.workload.sessions import Session, SessionKey, Turn
from loadtest.workload.trace_index import Index, cv_of_gaps, index_of
from loadtest.workload.trace_lines import Line, line_at, open_plain
from loadtest.workload.trace_rows import Counted, Row, TraceFile

GOLDEN = (math.sqrt(5) - 1) / 2
LOG = "log"  # the class of a log's requests that name none


def open_trace(settings: Trace, seed: int) -> TraceSource:
    """Read a trace once and return its sessions. Raises UsageError where it holds nothing that can be used."""
    if settings.text and settings.text not in KINDS:
        raise UsageError(f"trace.text is {settings.text!r}; it must be one of {', '.join(KINDS)}."
                         f"{nearest(settings.text, KINDS)}")  # fmt: skip
    file = TraceFile(Path(settings.file))
    return TraceSource(file, index_of(file, file.rows(), settings, seed), settings)


class TraceSource:
    """The sessions of a trace, in the order of their arrival; a cell begins at a place of its own and goes round."""

    def __init__(self, file: TraceFile, index: Index, settings: Trace) -> None:
        """Take a file that has been read, and its index."""
        self.file, self.index, self._settings = file, index, settings
        self._starts_s = index.due_s[index.firsts]
        self._read_at = _stamp(file.path)

    @property
    def path(self) -> Path:
        """Its file."""
        return self.file.path

    @property
    def sessions(self) -> int:
        """Sessions in it; a row that belongs to none is a session of one turn."""
        return len(self.index.firsts)

    @property
    def requests(self) -> int:
        """Requests in it."""
        return len(self.index.due_s)

    @property
    def repeats_after(self) -> int:
        """Sessions of a cell after which the first comes again."""
        return self.sessions

    @property
    def span_s(self) -> float:
        """From the first session's arrival to the last, and one mean gap; 1 s where all arrive at once."""
        length_s = float(self._starts_s[-1] - self._starts_s[0])
        return length_s * self.sessions / (self.sessions - 1) if length_s > 0 else 1.0

    @property
    def sessions_per_s(self) -> float:
        """Mean rate at which sessions arrive."""
        return self.sessions / self.span_s

    @property
    def requests_per_s(self) -> float:
        """Mean rate of requests."""
        return self.requests / self.span_s

    @property
    def gap_cv(self) -> float:
        """Standard deviation ÷ mean of the gaps between its sessions; NaN below three sessions."""
        return cv_of_gaps(self._starts_s)

    @property
    def speed(self) -> float:
        """How many times faster than recorded it runs: all times here, and the rates, are those of the replay."""
        return self._settings.speed

    @property
    def holds_text(self) -> bool:
        """Whether it is a log with its text, which is somebody's own and stays out of records and reports."""
        return self.file.holds_text

    @property
    def categories(self) -> tuple[str, ...]:
        """The classes of the requests, sorted."""
        return tuple(sorted({self._category(int(code)) for code in set(self.index.category.tolist())}))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what was done to the rows; none of them holds text of the file."""
        name = self.file.path.name
        first = (
            f"{name} ({self.file.form.name}): {self.requests:,} of {self.file.read:,} rows used, in {self.sessions:,}"
            f" sessions; {self.requests_per_s:.3g} requests/s over {self.span_s:,.0f} s"
            + (f", {self.speed:g} times as fast as recorded." if self.speed != 1 else ".")
        )
        return (first, *sentences(name, self.file, self.index.counted), *self._on_text())

    def _on_text(self) -> Iterator[str]:
        if not self.holds_text:
            kinds = sorted({self._kind(category) for category in self.categories})
            yield (
                f"{self.file.path.name} holds lengths alone: they are met with text of loadtest's own"
                f" ({', '.join(kinds)}) at {self._settings.characters_per_token:g} characters per token; what your"
                " server counts is recorded."
            )

    def protocol(self) -> dict[str, Any]:
        """Return what a run's protocol says of the trace: figures and names alone."""
        form, counted = self.file.form, self.index.counted
        return {
            "kind": "trace", "name": form.name, "licence": form.licence, "holds_text": self.holds_text,
            "rows": self.file.read, "requests": self.requests, "sessions": self.sessions,
            "requests_per_s": round(self.requests_per_s, 6), "span_s": round(self.span_s, 3),
            "jitter_s": self.index.jitter_s, "categories": list(self.categories),
            "left_out": {what: one.rows for what, one in self.file.left_out.items()},
            "mended": {what: one.rows for what, one in self.file.mended.items()},
            "done": {what: one.rows for what, one in counted.items()},
        }  # fmt: skip

    def arrivals(self, seed: int, level: float, block: int, sessions_per_s: float | None = None) -> Iterator[float]:
        """Yield without end when the sessions of a cell arrive, in seconds from the first; the n-th has number n.

        With `sessions_per_s` time is stretched until the whole trace has that mean rate, which keeps its burstiness.
        """
        scale = self.sessions_per_s / sessions_per_s if sessions_per_s else 1.0
        starts_s, count, span_s = self._starts_s, self.sessions, self.span_s
        place = self._place(seed, level, block)
        origin_s, lap = float(starts_s[place]), 0
        while True:
            yield (float(starts_s[place]) - origin_s + lap * span_s) * scale
            place += 1
            if place == count:
                place, lap = 0, lap + 1

    def session(self, key: SessionKey) -> Session:
        """Return the session that the key names: a cell walks through the trace from its own place on."""
        first = int(self.index.firsts[(self._place(key.seed, key.level, key.block) + key.number) % self.sessions])
        turns: list[Turn] = []
        row = first
        while row >= 0:
            pause_s = self.index.pause_s[row]
            turns.append(self._turn(row, 0.0 if math.isnan(pause_s) else round(float(pause_s), 3), key))
            row = int(self.index.following[row])
        return Session(turns=tuple(turns))

    def _place(self, seed: int, level: float, block: int) -> int:
        return _place(seed, f"{level:g}", block, self.sessions)

    def _turn(self, at: int, think_s: float, key: SessionKey) -> Turn:
        index, limit = self.index, int(self.index.output_tokens[at])
        category = self._category(int(index.category[at]))
        cap = limit if limit > 0 and self._settings.output == "cap" else None
        given: dict[str, Any] = {"category": category, "assistant": "", "think_s": think_s, "max_tokens": cap}
        if not self.file.reread:
            return Turn(user=self._filled(int(index.input_tokens[at]), at, category, key), **given)
        row = self._row(at)
        if row.asked is None:
            return Turn(user=self._filled(int(index.input_tokens[at]), at, category, key, row), **given)
        if row.asked.prompt:
            return Turn(user=row.asked.prompt, prompt=row.asked.prompt, **given)
        messages = self._messages(at, row)
        return Turn(user=row.asked.last, messages=messages, tools=row.asked.tools, **given)

    def _filled(self, tokens: int, at: int, category: str, key: SessionKey, row: Row | None = None) -> str:
        """Return text of that many tokens, new in every cell; turns of one session begin alike, as a dialogue does."""
        cell = (key.seed, f"{key.level:g}", key.block)
        characters = max(1, round(tokens * self._settings.characters_per_token))
        if row is not None and row.blocks:
            size = max(1, round(row.block_tokens * self._settings.characters_per_token))
            return text_of_blocks(self._kind(category), characters, row.blocks, size, *cell)
        return text_of_length(self._kind(category), characters, *cell, key.number)

    def _messages(self, at: int, row: Row) -> tuple[Any, ...]:
        """Return the messages of a request: its own, after those of the requests that it continues."""
        assert row.asked is not None  # the caller has seen it
        parts = [row.asked.messages]
        while row.after > 0:  # 0: it says that it appends, and no request stands before it
            at = int(self.index.before[at])
            row = self._row(at)
            if row.asked is None:
                raise self._changed()
            parts.append(row.asked.messages)
        return tuple(message for part in reversed(parts) for message in part)

    def _row(self, at: int) -> Row:
        """Read one row again."""
        line = int(self.index.line[at])
        with open_plain(self.file.path) as file:
            if _stamp(self.file.path) != self._read_at:
                raise self._changed()
            data = line_at(file, int(self.index.offset[at]))
        try:
            return self.file.row(Line(number=line, offset=int(self.index.offset[at]), data=data))
        except LeftOut as why:  # it was usable when the file was read
            raise self._changed() from why

    def _changed(self) -> RunError:
        return RunError(f"{self.file.path} was changed while it was in use.")

    def _category(self, code: int) -> str:
        return self.index.categories[code] or (LOG if self.holds_text else self.fallback)

    def _kind(self, category: str) -> str:
        return self._settings.text or kind_of(category, self.fallback)

    @property
    def fallback(self) -> str:
        """The class of requests that name none, where they have no text: the kind of text that they get."""
        return self._settings.text or self.file.form.text or kind_told_by(self.file.path.stem)


def kind_told_by(name: str) -> str:
    """Return the kind of text that the name of a file tells of."""
    return next((kind for kind in KINDS if kind in name.lower()), DEFAULT_KIND)


def sentences(name: str, file: TraceFile, counted: dict[str, Counted], *, shown: bool = False) -> Iterator[str]:
    """Yield a sentence for every kind of row that was left out, mended, sorted or jittered, with its first line.

    With `shown` the value seen there stands in it, which is a time or a number.
    """
    for prefix, found in (("left out: ", file.left_out), ("mended: ", file.mended), ("", counted)):
        for what, one in found.items():
            seen = f", {one.seen}" if shown and one.seen else ""
            rows = "1 row" if one.rows == 1 else f"{one.rows:,} rows"
            yield f"{name}: {rows} {prefix}{what} (first: line {one.line}{seen})."


@lru_cache(maxsize=64)
def _place(seed: int, level: str, block: int, count: int) -> int:
    """Return the session with which a cell begins; the blocks of a level are spread evenly, to overlap least.

    Multiples of the golden ratio, each new one in the largest gap that the others leave.
    """
    return int((rng("trace", seed, level).random() + block * GOLDEN) % 1.0 * count)


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
