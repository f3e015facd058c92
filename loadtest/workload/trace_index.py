"""Which rows of a trace are used, in which order, and where they stand in the file: some fifty bytes for each row."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from loadtest.errors import UsageError
from loadtest.settings import Trace
from loadtest.workload.seeds import seed_of
from loadtest.workload.thinking import LONGEST_S
from loadtest.workload.trace_rows import Counted, Row, TraceFile
from loadtest.workload.trace_times import DAY_S

MOST_ROWS = 1_000_000  # kept of one trace: some 50 MB
MOST_CLASSES = 1000
LATEST_S = 2.2e11  # since 1970: about the year 9000; dates end at 9999
ANSWERED_PER_S = 50.0  # tokens; how long an answer took where the trace does not say it
CHARACTERS_PER_TOKEN = 4.0
COARSE_S = 0.01  # a clock with longer steps is spread; a shorter step hides no burst
COARSE_RATIO = 0.01  # share of equal times from which a clock's steps matter
ON_STEP, NEARLY_ALL = 0.02, 0.99  # clocks are read a little late: 2.999 s and 3.001 s are steps of 3 s
LONGEST_DAYS = 3660  # from the first arrival to the last; what lies further apart is of two clocks
LEAST_STEPS = 8  # by which a clock is told from a few bursts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The rows of a trace in the order of their arrival; one place in every array for each row."""

    origin_s: float  # the first row's time by the file's own clock
    due_s: Floats  # from the first row on, jittered and sped up
    offset: Ints  # of the row's line in the file
    line: Ints
    input_tokens: Ints  # as told, or by the length of the text
    output_tokens: Ints  # −1: not told
    category: Ints  # place in `categories`
    pause_s: Floats  # from the end of the answer before it in its session; NaN on a session's first row
    before: Ints  # the session's row before it in the file's own order, whose messages it may append to; −1: none
    following: Ints  # the session's next row, −1 where it ends
    firsts: Ints  # rows that begin a session
    duration_s: Floats  # NaN: not told
    categories: tuple[str, ...]
    jitter_s: float
    counted: dict[str, Counted] = field(default_factory=dict)  # what was done to rows, in words


@dataclass(slots=True)
class _Columns:
    t_s: array[float] = field(default_factory=lambda: array("d"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("l"))
    input_tokens: array[int] = field(default_factory=lambda: array("i"))
    output_tokens: array[int] = field(default_factory=lambda: array("i"))
    category: array[int] = field(default_factory=lambda: array("H"))
    session: array[int] = field(default_factory=lambda: array("Q"))
    after: array[int] = field(default_factory=lambda: array("i"))  # messages that stand before an appended row's own
    messages: array[int] = field(default_factory=lambda: array("i"))  # with those
    duration_s: array[float] = field(default_factory=lambda: array("f"))

    def add(self, row: Row, category: int) -> None:
        self.t_s.append(row.t_s)
        self.offset.append(row.offset)
        self.line.append(row.line)
        self.input_tokens.append(row_tokens(row))
        self.output_tokens.append(-1 if row.output_tokens is None else row.output_tokens)
        self.category.append(category)
        self.session.append(_session(row))
        own = len(row.asked.messages) if row.asked else 0
        self.after.append(row.after)
        self.messages.append(max(0, row.after) + own)
        self.duration_s.append(float("nan") if row.duration_s is None else row.duration_s)


def row_tokens(row: Row) -> int:
    """Return the input tokens of a row: as told, or by the length of its text."""
    if row.input_tokens is not None:
        return row.input_tokens
    return max(1, round(row.asked.characters / CHARACTERS_PER_TOKEN)) if row.asked else 1


def _session(row: Row) -> int:
    """Return a number for the row's session; a row without one has a session of its own."""
    if not row.session:
        return row.line
    return 1 << 63 | int.from_bytes(blake2b(row.session.encode("utf-8", "replace"), digest_size=8).digest(), "big")


class _Choice:
    """Decides row by row, as the file is read, what is kept."""

    def __init__(self, settings: Trace, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self._first_s: float | None = None
        self._latest_s = float("-inf")
        self._kept = 0
        self.counted: dict[str, Counted] = {}

    def keeps(self, row: Row) -> bool:
        """Return whether a row is kept; what is left out is counted."""
        why = self._refusal(row)
        if why:
            self.count(why, row.line)
            return False
        if row.t_s < self._latest_s:
            self.count("sorted: out of order in the file", row.line)
        self._latest_s = max(self._latest_s, row.t_s)
        self._kept += 1
        return True

    def count(self, what: str, line: int) -> None:
        """Count a row under some words."""
        self.counted.setdefault(what, Counted()).add(line)

    def _refusal(self, row: Row) -> str:
        settings = self._settings
        if self._first_s is None:
            self._first_s = row.t_s
        since_s = row.t_s - self._first_s - settings.start_s
        windowed = settings.start_s > 0 or settings.length_s > 0
        if windowed and not 0 <= since_s < (settings.length_s or math.inf):
            return "left out: outside the window of time (start_s, length_s)"
        if settings.keep_ratio < 1 and not self._drawn(row):
            return "left out: thinned (keep_ratio)"
        if settings.max_input_tokens and row_tokens(row) > settings.max_input_tokens:
            return f"left out: more than {settings.max_input_tokens:,} input tokens (max_input_tokens)"
        if self._kept >= MOST_ROWS:
            return f"left out: beyond the first {MOST_ROWS:,} rows (choose with start_s, length_s or keep_ratio)"
        return ""

    def _drawn(self, row: Row) -> bool:
        return seed_of("thinned", self._seed, row.session or row.line) < self._settings.keep_ratio * 2**64


def index_of(file: TraceFile, rows: Iterable[Row], settings: Trace, seed: int) -> Index:
    """Read rows and return the index of those that are kept. Raises UsageError when none is."""
    columns, choice = _Columns(), _Choice(settings, seed)
    names: dict[str, int] = {}
    for row in rows:
        if choice.keeps(row):
            name = row.category if len(names) < MOST_CLASSES or row.category in names else "other"
            columns.add(row, names.setdefault(name, len(names)))
    if not columns.t_s:
        raise UsageError(nothing_left(file, choice.counted))
    return _ordered(columns, choice, settings, seed, tuple(names))


def nothing_left(file: TraceFile, counted: dict[str, Counted]) -> str:
    """Return the sentence on a trace of which no row can be used."""
    reasons = [
        f"{what} ({one.rows:,} {'row' if one.rows == 1 else 'rows'}, first: line {one.line}"
        + (f", {one.seen})" if one.seen else ")")
        for what, one in (*file.left_out.items(), *counted.items())
    ]
    why = "; ".join(reasons) or "there is none below its heading"
    return f"{file.path} holds no row that can be used: {why}."


def _ordered(columns: _Columns, choice: _Choice, settings: Trace, seed: int, names: tuple[str, ...]) -> Index:
    t_s = np.frombuffer(columns.t_s, dtype=np.float64)
    jitter_s = clock_step_s(t_s) if settings.jitter_s is None else settings.jitter_s
    if jitter_s:
        spread = np.random.Generator(np.random.PCG64(seed_of("jitter", seed))).random(len(t_s))
        t_s = t_s + jitter_s * spread
        why = ", the step of the trace's clock" if settings.jitter_s is None else ""
        choice.counted[f"jittered: spread over {jitter_s:g} s{why}"] = Counted(rows=len(t_s), line=columns.line[0])
    order = np.argsort(t_s, kind="stable")
    order = order[_continued(columns, order, choice)]
    if not len(order):
        raise UsageError("No row of the trace can be used: each continues a request that is left out.")

    def take(column: Any, kind: type) -> Any:
        return np.asarray(column, dtype=kind)[order]

    _refuse_two_clocks(t_s, order, columns.line)
    due_s = (t_s[order] - t_s[order[0]]) / settings.speed
    duration_s = take(columns.duration_s, np.float64)
    output = take(columns.output_tokens, np.int64)
    lasted_s = np.where(np.isnan(duration_s), np.maximum(output, 0) / ANSWERED_PER_S, duration_s) / settings.speed
    before, following, pause_s = _sessions(take(columns.session, np.uint64), due_s, lasted_s)
    return Index(
        origin_s=float(t_s[order[0]]), due_s=due_s,
        offset=take(columns.offset, np.int64), line=take(columns.line, np.int64),
        input_tokens=take(columns.input_tokens, np.int64), output_tokens=output,
        category=take(columns.category, np.int64), pause_s=pause_s, before=before, following=following,
        firsts=np.flatnonzero(np.isnan(pause_s)), duration_s=duration_s / settings.speed, categories=names,
        jitter_s=jitter_s, counted=choice.counted,
    )  # fmt: skip


def _refuse_two_clocks(t_s: Floats, order: Ints, line: Sequence[int]) -> None:
    """Raise UsageError for times so far apart that no log holds both: seconds beside milliseconds, or an error."""
    days = float(t_s[order[-1]] - t_s[order[0]]) / DAY_S
    if days > LONGEST_DAYS or not abs(t_s[order[-1]]) < LATEST_S:
        raise UsageError(
            f"The times of the trace make no sense: {t_s[order[0]]:.15g} s in line {line[int(order[0])]} and"
            f" {t_s[order[-1]]:.15g} s in line {line[int(order[-1])]}, {days:,.0f} days apart (at most"
            f" {LONGEST_DAYS:,}, and none after the year 9000). Are they in two units, or from two clocks? Give all in"
            " one, or choose rows with --start and --length ([trace] start_s, length_s)."
        )


def _neighbours(session: npt.NDArray[np.uint64]) -> tuple[Ints, Ints]:
    """Return (row, the row after it in the same session) of all pairs, by their places."""
    by_session = np.argsort(session, kind="stable")
    same = session[by_session][1:] == session[by_session][:-1]
    return by_session[:-1][same], by_session[1:][same]


def _continued(columns: _Columns, order: Ints, choice: _Choice) -> npt.NDArray[np.bool_]:
    """Return which rows are left when those are gone whose messages append to a request that is not there."""
    session = np.asarray(columns.session, dtype=np.uint64)[order]
    after = np.asarray(columns.after, dtype=np.int64)[order]
    held = np.asarray(columns.messages, dtype=np.int64)[order]
    kept = np.ones(len(order), dtype=bool)
    while True:
        places = np.flatnonzero(kept)
        earlier, later = _neighbours(session[places])
        has = np.zeros(len(places), dtype=np.int64)
        has[later] = held[places][earlier]
        lost = places[(after[places] >= 0) & (after[places] != has)]
        if not len(lost):
            return kept
        kept[lost] = False
        for place in lost:
            choice.count("left out: it continues a request that is left out", columns.line[int(order[place])])


def _sessions(session: npt.NDArray[np.uint64], due_s: Floats, lasted_s: Floats) -> tuple[Ints, Ints, Floats]:
    """Return for each row the one before it in its session, the next, and the pause before it (NaN on a first).

    Who pauses longer than LONGEST_S has left: the row that comes then arrives by itself, at its own time.
    """
    before, following = np.full(len(session), -1), np.full(len(session), -1)
    pause_s = np.full(len(session), np.nan)
    earlier, later = _neighbours(session)
    before[later] = earlier
    pause = np.maximum(0.0, due_s[later] - due_s[earlier] - lasted_s[earlier])
    stayed = pause <= LONGEST_S
    following[earlier[stayed]] = later[stayed]
    pause_s[later[stayed]] = pause[stayed]
    return before, following, pause_s


def clock_step_s(t_s: Floats) -> float:
    """Return the step of a clock so coarse that it makes arrivals fall together, in seconds; else 0.

    Nearly all times lie on its steps, and over a hundredth of the gaps are 0: a trace stamped every 3 s would else be
    replayed as a burst every 3 s.
    """
    gaps = np.diff(np.sort(t_s))
    apart = gaps > COARSE_S / 2
    gaps_on, equal = gaps[apart], int((~apart).sum())
    if len(gaps_on) < LEAST_STEPS or equal < COARSE_RATIO * len(gaps):
        return 0.0
    steps = gaps_on / gaps_on.min()
    on_it = np.abs(steps - np.round(steps)) < ON_STEP
    step = float(np.median(gaps_on / np.round(steps)))
    return round(step, 3) if step >= COARSE_S and on_it.mean() >= NEARLY_ALL else 0.0


def cv_of_gaps(t_s: Floats) -> float:
    """Return standard deviation ÷ mean of the gaps between ascending times; NaN below two gaps, or where all are 0."""
    gaps = np.diff(t_s)
    return float(gaps.std(ddof=1) / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else float("nan")
