"""The requests of a run as columns: one row per request with derived times, and the chunks as flat arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadtest.analyse.held_back import mask_held_back
from loadtest.record import EVENT_PER_TOKEN, CellRecord, Outcome

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PLAIN = (
    "cell", "arm", "level", "block", "user", "session", "turn", "category", "due_s", "sent_s", "first_visible_s",
    "end_s", "outcome", "http_status", "finish_reason", "prompt_tokens", "output_tokens", "cached_tokens",
    "tokens_source", "asked", "spec_drafted", "spec_accepted",
)  # fmt: skip
NOT_ASKED = "none"  # in the column `asked`: this request did not ask for the tokens of its chunks
_SLICE = 100_000  # rows derived at a time, so that no temporary is as large as all chunks of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """Chunks of consecutive requests: request i owns positions offsets[i] to offsets[i + 1]."""

    offsets: Ints
    times: Floats  # arrivals, s
    tokens: NDArray[np.int32]  # 0 where the server gave no counts

    def rows(self, start: int, stop: int) -> Chunks:
        """Return the chunks of requests start … stop − 1, without a copy of times and tokens."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Chunks(offsets=offsets - first, times=self.times[first:last], tokens=self.tokens[first:last])

    @property
    def counts(self) -> Ints:
        """Number of chunks of each request."""
        return np.diff(self.offsets)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRows:
    """The requests of one cell: all of them, with the window that says which are measured."""

    columns: Mapping[str, NDArray[Any]]  # of the whole run
    words: Mapping[str, tuple[str, ...]]
    start: int
    stop: int
    chunks: Chunks
    open_s: float
    close_s: float

    @property
    def window_s(self) -> float:
        """Length of the window; NaN when it never closed."""
        return self.close_s - self.open_s

    @property
    def measured(self) -> NDArray[np.bool_]:
        """Which requests were due inside the window."""
        return self.column("in_window")

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which requests ended well."""
        return self.column("ok")

    def column(self, name: str) -> NDArray[Any]:
        """Return one column of numbers or flags, without a copy."""
        return self.columns[name][self.start : self.stop]

    def counts(self, name: str, chosen: NDArray[np.bool_]) -> dict[str, int]:
        """Count the words of one column over the chosen requests; words that do not occur are left out."""
        codes = self.column(name)[chosen]
        found = np.bincount(codes[codes >= 0], minlength=len(self.words[name]))
        return {word: int(n) for word, n in zip(self.words[name], found, strict=True) if n}


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """All requests of a run, sorted by cell.

    `frame` holds one row per request: the plain columns of the record (asked as a flag: did it ask for the tokens of
    its chunks, or is that not recorded), and ok, in_window, counted, by_step (its chunks hold what a step
    brought together), chunks, tokens, ttft_s, ttft_visible_s, e2e_s, tpot_s, worst_stall_s, least_gap_s, on_time.
    Absent is NaN. `columns` are the same as arrays, words as codes into `words`.
    """

    frame: pd.DataFrame
    columns: Mapping[str, NDArray[Any]]
    words: Mapping[str, tuple[str, ...]]
    chunks: Chunks
    bounds: Mapping[int, tuple[int, int]]  # cell → first row and the row after its last
    errors: Mapping[str, str] = field(default_factory=dict)  # arm → the error that its requests met most often

    def cell(self, record: CellRecord) -> CellRows:
        """Return the requests of one cell."""
        start, stop = self.bounds.get(record.cell, (0, 0))
        return CellRows(
            columns=self.columns,
            words=self.words,
            start=start,
            stop=stop,
            chunks=self.chunks.rows(start, stop),
            open_s=_instant(record.window_open_s),
            close_s=_instant(record.window_close_s),
        )


def derive(table: pa.Table, cells: Sequence[CellRecord], reading_pace: float = 15.0) -> Requests:
    """Return the requests with their derived columns; `reading_pace` is in tokens/s and defines on_time.

    A request is in the window when it fell due in [window_open_s, window_close_s) of its cell.
    """
    number = table.column("cell").to_numpy()
    if np.any(np.diff(number) < 0):
        order = np.argsort(number, kind="stable")
        table, number = table.take(pa.array(order)), number[order]
    frame = table.select(list(_PLAIN)).to_pandas()
    frame["body"] = _codes(table.column("body_hash"))
    chunks, counted = _chunks(table)
    frame["counted"] = counted
    frame["by_step"] = counted & (frame["tokens_source"] != EVENT_PER_TOKEN).to_numpy(dtype=bool)
    frame["asked"] = (frame["asked"] != NOT_ASKED).to_numpy(dtype=bool)
    frame["ok"] = (frame["outcome"] == Outcome.OK.value).to_numpy(dtype=bool)
    frame["in_window"] = _in_window(frame, cells)
    due = frame["due_s"].to_numpy()
    for name, values in _derived(chunks, counted, reading_pace):
        frame[name] = values
    frame["ttft_s"] = frame.pop("first_s") - due
    frame["e2e_s"] = frame.pop("last_s") - due
    frame["ttft_visible_s"] = frame["first_visible_s"] - due
    mask_held_back(frame, table.column("coalesced").to_numpy())
    starts = np.flatnonzero(np.r_[True, np.diff(number) != 0]) if len(number) else np.empty(0, dtype=np.int64)
    stops = np.r_[starts[1:], len(number)]
    bounds = {int(number[a]): (int(a), int(b)) for a, b in zip(starts, stops, strict=True)} if len(number) else {}
    columns, words = _arrays(frame)
    return Requests(frame=frame, columns=columns, words=words, chunks=chunks, bounds=bounds,
                    errors=_common_errors(table))  # fmt: skip


def _common_errors(table: pa.Table) -> dict[str, str]:
    """Return each arm's error that was met most often, the first in the alphabet of those met equally often."""
    failed = table.select(["arm", "error"]).filter(pc.not_equal(table.column("error"), ""))
    texts = [failed.column(name).cast(pa.string()) for name in ("arm", "error")]
    counts = pa.table(texts, names=["arm", "error"]).group_by(["arm", "error"]).aggregate([([], "count_all")])
    rows = sorted(counts.to_pylist(), key=lambda row: (-row["count_all"], row["error"]))
    return {row["arm"]: row["error"] for row in reversed(rows)}


def _arrays(frame: pd.DataFrame) -> tuple[dict[str, NDArray[Any]], dict[str, tuple[str, ...]]]:
    """Return the columns as arrays, words as codes, since a cell's share of an array costs nothing."""
    columns: dict[str, NDArray[Any]] = {}
    words: dict[str, tuple[str, ...]] = {}
    for name in frame.columns:
        series = frame[name]
        if isinstance(series.dtype, pd.CategoricalDtype):
            columns[name] = series.cat.codes.to_numpy()
            words[name] = tuple(str(word) for word in series.cat.categories)
        else:
            columns[name] = series.to_numpy()
    return columns, words


def _instant(value: float | None) -> float:
    return float("nan") if value is None else value


def _codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return whole numbers that are equal where the texts are; −1 where the text is empty or absent."""
    encoded = pc.dictionary_encode(column.combine_chunks())
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = pc.index(encoded.dictionary, pa.scalar("", encoded.dictionary.type)).as_py()
    codes[codes == empty] = -1
    return np.asarray(codes)


def _flat(column: pa.ChunkedArray) -> tuple[Ints, NDArray[Any]]:
    """Return offsets (from 0) and values of a list column."""
    lists = column.combine_chunks()
    offsets = lists.offsets.to_numpy().astype(np.int64)
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    return offsets - offsets[0], values.to_numpy(zero_copy_only=False)


def _chunks(table: pa.Table) -> tuple[Chunks, NDArray[np.bool_]]:
    """Return the chunks, and which requests carry a token count for every chunk."""
    if not table.num_rows:
        nothing = Chunks(offsets=np.zeros(1, np.int64), times=np.empty(0), tokens=np.empty(0, np.int32))
        return nothing, np.empty(0, dtype=bool)
    offsets, times = _flat(table.column("chunk_s"))
    token_offsets, given = _flat(table.column("chunk_tokens"))
    lengths, token_lengths = np.diff(offsets), np.diff(token_offsets)
    counted = (lengths == token_lengths) & (lengths > 0)
    if np.array_equal(offsets, token_offsets):
        tokens = given
    else:
        tokens = np.zeros(len(times), dtype=np.int32)
        tokens[np.repeat(counted, lengths)] = given[np.repeat(counted, token_lengths)]
    return Chunks(offsets=offsets, times=times, tokens=tokens), counted


def _in_window(frame: pd.DataFrame, cells: Sequence[CellRecord]) -> NDArray[np.bool_]:
    windows = {c.cell: (_instant(c.window_open_s), _instant(c.window_close_s)) for c in cells}
    due, number = frame["due_s"].to_numpy(), frame["cell"].to_numpy()
    distinct, position = np.unique(number, return_inverse=True)
    nowhere = (float("nan"), float("nan"))
    edges = np.array([windows.get(int(n), nowhere) for n in distinct], dtype=float).reshape(-1, 2)[position]
    return np.asarray((due >= edges[:, 0]) & (due < edges[:, 1]))  # comparisons with NaN are false


def _derived(chunks: Chunks, counted: NDArray[np.bool_], pace: float) -> Iterator[tuple[str, NDArray[Any]]]:
    rows = len(counted)
    parts = [
        _derive_slice(chunks.rows(start, min(start + _SLICE, rows)), counted[start : start + _SLICE], pace)
        for start in range(0, max(rows, 1), _SLICE)
    ]
    for name in parts[0]:
        yield name, np.concatenate([part[name] for part in parts])


def _derive_slice(chunks: Chunks, counted: NDArray[np.bool_], pace: float) -> dict[str, NDArray[Any]]:
    lengths = chunks.counts
    has = lengths > 0
    starts, ends = chunks.offsets[:-1][has], chunks.offsets[1:][has] - 1
    columns: dict[str, NDArray[Any]] = {
        name: np.full(len(lengths), np.nan)
        for name in ("first_s", "last_s", "tpot_s", "worst_stall_s", "least_gap_s", "on_time")
    }
    columns["chunks"] = lengths
    columns["tokens"] = np.zeros(len(lengths), dtype=np.int64)
    if not len(starts):
        return columns
    times, tokens = chunks.times, chunks.tokens.astype(np.int64)
    first, last = times[starts], times[ends]
    columns["first_s"][has], columns["last_s"][has] = first, last
    columns["tokens"][has] = total = np.add.reduceat(tokens, starts)
    gaps = np.empty(len(times))
    gaps[1:] = times[1:] - times[:-1]
    gaps[starts] = -np.inf
    worst = np.maximum.reduceat(gaps, starts)
    columns["worst_stall_s"][has] = np.where(np.isfinite(worst), worst, np.nan)
    gaps[starts] = np.inf
    least = np.minimum.reduceat(gaps, starts)
    columns["least_gap_s"][has] = np.where(np.isfinite(least), least, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        after_first = (total - tokens[starts]).astype(float)
        tpot = (last - first) / after_first
        share = np.add.reduceat(_on_time(times, tokens, starts, lengths[has], pace), starts) / total
    known = counted[has]
    columns["tpot_s"][has] = np.where(known & (after_first > 0), tpot, np.nan)
    columns["on_time"][has] = np.where(known & (total > 0), share, np.nan)
    return columns


def _on_time(times: Floats, tokens: Ints, starts: Ints, lengths: Ints, pace: float) -> Ints:
    """Return how many tokens of each chunk are on time: token i (from 0) by the first arrival + i ÷ pace."""
    through = np.cumsum(tokens)
    before = through - tokens
    before -= np.repeat(before[starts], lengths)
    due_index = np.ceil((times - np.repeat(times[starts], lengths)) * pace - 1e-9).astype(np.int64)
    return np.asarray(np.clip(before + tokens - due_index, 0, tokens), dtype=np.int64)
