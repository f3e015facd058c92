"""Rows of a trace, in the forms of published traces, plain CSV or JSONL, or a log with its text; nothing is evaluated.

What a column means is known by its name, whatever its case and underscores. A row that cannot be used is counted, and
never stops the reading.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError, nearest
from loadtest.workload.logged import Asked, LeftOut
from loadtest.workload.trace_fields import (
    NONE,
    CsvFields,
    Get,
    JsonFields,
    asked_by,
    blocks_of,
    class_of,
    decoded,
    listed,
    name_of,
    object_of,
    params_of,
    paths_of,
    quoted,
    seconds,
    shown,
    tokens,
)
from loadtest.workload.trace_forms import FORMS, NAMES, form_of, plain
from loadtest.workload.trace_lines import MAX_LINE_BYTES, Line, lines_of, open_plain
from loadtest.workload.trace_times import time_s

DEFAULT_BLOCK = 512  # tokens of a block, where neither the row nor the form says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request of a trace: when it arrived and how long it is, or what it says."""

    line: int
    offset: int  # of its line in the file
    t_s: float  # when it arrived, in seconds of the file's own clock
    input_tokens: int | None = None
    output_tokens: int | None = None
    session: str = ""
    category: str = ""
    duration_s: float | None = None
    blocks: tuple[int, ...] = ()  # of its prompt: equal numbers are equal text
    block_tokens: int = 0
    asked: Asked | None = field(default=None, repr=False)
    after: int = -1  # messages of the session's request before it, to which its own are appended; −1: it is whole
    params: Mapping[str, Any] = field(default_factory=dict)
    mended: str = ""


@dataclass(slots=True)
class Counted:
    """How many rows share a reason, and the first of them."""

    rows: int = 0
    line: int = 0
    seen: str = ""

    def add(self, line: int, seen: str = "") -> None:
        """Count one more."""
        if not self.rows:
            self.line, self.seen = line, seen
        self.rows += 1


class TraceFile:
    """A file of rows. `left_out` and `mended` count by reason while `rows()` is read through."""

    def __init__(self, path: Path, mapped: Mapping[str, str] | None = None) -> None:
        """Look at the file's first row; `mapped` says by which name a field goes in it. Raises UsageError."""
        self.path, self._mapped = path, dict(mapped or {})
        self.left_out: dict[str, Counted] = {}
        self.mended: dict[str, Counted] = {}
        self.read = 0  # rows, used or not
        self.holds_text = False  # whether a row had messages or a prompt
        self.reread = False  # whether what a row asks is in the file alone: text, or the blocks of a prompt
        self._heading: list[str] | None = None
        self.form = FORMS[-1]
        self._may_say = True  # whether a row can hold more than times, lengths and names
        self._reader = self._look()

    def rows(self) -> Iterator[Row]:
        """Yield the usable rows in the order of the file."""
        with open_plain(self.path) as file:
            lines = lines_of(file)
            if self._heading is not None:
                next(lines, None)
            for line in lines:
                self.read += 1
                try:
                    row = self.row(line)
                except LeftOut as why:
                    self.left_out.setdefault(why.reason, Counted()).add(line.number, why.seen)
                    continue
                self.holds_text = self.holds_text or row.asked is not None
                self.reread = self.holds_text or self.reread or bool(row.blocks)
                if row.mended:
                    self.mended.setdefault(row.mended, Counted()).add(line.number)
                yield row

    def row(self, line: Line) -> Row:
        """Return the row of a line. Raises LeftOut."""
        if not line.data:
            raise LeftOut(f"longer than {MAX_LINE_BYTES:,} bytes, the limit of a line")
        return self._reader(line)

    def _look(self) -> Callable[[Line], Row]:
        with open_plain(self.path) as file:
            first = next(lines_of(file), None)
        if first is None:
            raise UsageError(f"{self.path} holds no row: every line is blank.")
        start = first.data[:1]
        if start == b"[":
            raise UsageError(f"{self.path} is one JSON array; write one JSON object per line (jq -c '.[]' FILE).")
        return self._look_at_json() if start == b"{" else self._look_at_heading(first)

    def _look_at_json(self) -> Callable[[Line], Row]:
        with open_plain(self.path) as file:
            for line in lines_of(file):
                try:
                    keys = frozenset(paths_of(object_of(line.data)))
                except LeftOut:
                    continue
                known = {plain(name) for name in self._mapped}
                self.form = form_of(frozenset(key.rpartition(".")[2] for key in keys) | known)
                break
        read = JsonFields(self._mapped)
        return lambda line: self._row(line, read.fields(object_of(line.data)))

    def _look_at_heading(self, first: Line) -> Callable[[Line], Row]:
        text = decoded(first.data, UsageError(f"{self.path}, line {first.number} is not UTF-8 text; save it as such."))
        comma = max(",;\t", key=text.count)
        try:
            heading = quoted(text, comma)
        except LeftOut as why:
            raise UsageError(f"{self.path}, line {first.number}: the heading has {why.reason}.") from None
        columns = {plain(name): at for at, name in reversed(list(enumerate(heading)))}
        self._heading = heading
        self.form = form_of(frozenset(columns))
        for name, path in self._mapped.items():
            if plain(path) not in columns:
                raise UsageError(f"--map {name}={path}: {self.path} has no such column.{nearest(path, heading)}"
                                 f" Its columns: {listed(heading)}.")  # fmt: skip
        ways = {name: (plain(self._mapped[name]),) if name in self._mapped else NAMES[name] for name in NAMES}
        at = {name: next((columns[way] for way in ways[name] if way in columns), None) for name in NAMES}
        self._refuse_missing(heading, at, first.number)
        self._may_say = any(at[name] is not None for name in ("messages", "prompt", "hash_ids"))
        width = len(heading)
        return lambda line: self._row(line, CsvFields(line, comma, width, at).get)

    def _refuse_missing(self, heading: Sequence[str], at: Mapping[str, int | None], line: int) -> None:
        for name, what in (("ts", "arrival times"), ("input_tokens", "input lengths")):
            if at[name] is None and at["ts_ms" if name == "ts" else "prompt"] is None:
                hint = next((h for h in (nearest(plain(c), NAMES[name]) for c in heading) if h), "")
                raise UsageError(
                    f"{self.path}, line {line}: no column of {what}, such as `{name}`.{hint} Columns are"
                    f" {listed(heading)}; `loadtest import --map {name}=COLUMN` names one."
                )

    def _row(self, line: Line, get: Get) -> Row:
        t_s = self._time(get)
        asked = asked_by(get) if self._may_say else None
        given, answered = tokens(get, "input_tokens"), tokens(get, "output_tokens")
        if answered == 0:
            raise LeftOut("no output tokens: a request that failed")
        if asked is None and not given:
            raise LeftOut("no input tokens")
        mended = "no count of output tokens: the answer ends by itself" if answered is None else ""
        return Row(
            line=line.number, offset=line.offset, t_s=t_s, input_tokens=given or None, output_tokens=answered,
            session=name_of(get("session"), "session"), category=class_of(get("class")),
            duration_s=seconds(get("duration_s")), blocks=blocks_of(get("hash_ids")) if self._may_say else (),
            block_tokens=self._block_tokens(get) if self._may_say else 0, asked=asked,
            after=-1 if asked is None or get("appended") is None else tokens(get, "after") or 0,
            params=params_of(get) if asked else NONE, mended=(asked.mended if asked else "") or mended,
        )  # fmt: skip

    def _block_tokens(self, get: Get) -> int:
        return tokens(get, "block_tokens") or self.form.block_tokens or DEFAULT_BLOCK

    def _time(self, get: Get) -> float:
        ts, unit_s = get("ts"), self.form.unit_s
        if ts is None:
            ts, unit_s = get("ts_ms"), 0.001
        if ts is None:
            raise LeftOut("no time of arrival (`ts`)")
        try:
            t_s = time_s(ts, unit_s)
        except ValueError as allowed:
            raise LeftOut(f"the time of arrival is not {allowed}", shown(ts)) from None
        if not math.isfinite(t_s):
            raise LeftOut("the time of arrival is not finite", shown(ts))
        return t_s
