"""What a cell came to, in the few figures by which the next levels are chosen; the judgement makes its own."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadtest.backlog import gap_cv, in_flight, most_growth
from loadtest.record import REQUEST_SCHEMA, TOO_MANY, CellRecord, Outcome, Scrape
from loadtest.servers.kinds import KINDS
from loadtest.settings import Load

PREEMPTIONS = tuple(dict.fromkeys(kind.preemptions for kind in KINDS.values() if kind.preemptions))

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFigure:
    """One finished cell; NaN where it has no figure."""

    arm: str
    level: float
    block: int
    figure: float = math.nan  # mean of the deciding metric over its good requests (tokens/s for the rate)
    output_tokens_per_s: float = math.nan
    requests: int = 0  # good ones due in the window
    error_ratio: float = math.nan
    preempted: bool = False
    saturated: bool = False  # far more requests were in flight when the window closed than when it opened
    given_up: bool = False  # so many that the cell was ended
    window_s: float = 0.0
    took_s: float = 0.0  # from the wait for an idle server to the last scrape


def cell_figures(
    cells: Sequence[CellRecord],
    requests: pa.Table | None,
    scrapes: Sequence[Scrape],
    metric: str,
    load: Load,
    habits: object = None,
) -> list[CellFigure]:
    """Return the figures of the cells, from their requests (REQUEST_SCHEMA) due in the windows; None: times alone.

    `habits` is what the run's header tells of the sessions of an open load.
    """
    if requests is None:
        requests = REQUEST_SCHEMA.empty_table()
    edges = _edges(scrapes)
    rows = {record.cell: rows for record, rows in zip(cells, _by_cell(cells, requests, metric), strict=True)}
    held = _Held(steady=load.kind == "open" and load.shape == "steady", gap_cv=gap_cv(load, habits))
    return [_figure(record, rows[record.cell], edges.get(record.cell, {}), metric, held) for record in cells]


@dataclass(frozen=True, slots=True)
class _Held:
    """What the growth of the requests in flight is held against."""

    steady: bool  # an open load whose rate is meant to stay; any other growth tells nothing
    gap_cv: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The requests of one cell that fell due in its window."""

    ok: NDArray[np.bool_]
    value: Floats  # the metric of each request
    tokens: Floats
    in_flight: tuple[int, int] = (0, 0)  # of the whole cell, when the window opened and closed


def _by_cell(cells: Sequence[CellRecord], requests: pa.Table, metric: str) -> list[_Rows]:
    columns = requests.select(["cell", "due_s", "end_s", "outcome", "output_tokens", "chunk_s", "chunk_tokens"])
    parts = [_columns(batch, metric) for batch in columns.to_batches() if batch.num_rows]
    cell, due, end, ok, value, tokens = (
        np.concatenate([part[i] for part in parts]) if parts else np.empty(0) for i in range(6)
    )
    found = []
    for record in cells:
        opened, closed = record.window_open_s, record.window_close_s
        if record.state != "complete" or opened is None or closed is None:
            found.append(_Rows(ok=np.zeros(0, dtype=bool), value=np.empty(0), tokens=np.empty(0)))
            continue
        own = cell == record.cell
        mine = own & (due >= opened) & (due < closed)
        before, after = in_flight(due[own], end[own], opened, closed)
        found.append(_Rows(ok=ok[mine].astype(bool), value=value[mine], tokens=tokens[mine], in_flight=(before, after)))
    return found


def _columns(batch: pa.RecordBatch, metric: str) -> tuple[NDArray[Any], ...]:
    due = batch.column("due_s").to_numpy(zero_copy_only=False)
    ok = pc.equal(batch.column("outcome").cast(pa.string()), Outcome.OK.value).to_numpy(zero_copy_only=False)
    arrivals, chunks = batch.column("chunk_s"), batch.column("chunk_tokens")
    first, last, count = _ends(arrivals)
    carried = _ends(chunks)[0]
    said = batch.column("output_tokens").to_numpy(zero_copy_only=False).astype(float)
    tokens = np.where(said > 0, said, count)  # a server that does not count: chunks stand for tokens in both arms
    if metric == "ttft":
        value = first - due
    elif metric == "tpot":
        rest = tokens - np.where(np.isnan(carried), 1.0, carried)
        value = np.divide(last - first, rest, out=np.full(len(due), np.nan), where=rest > 0)
    else:
        value = last - due
    end = batch.column("end_s").to_numpy(zero_copy_only=False)
    return batch.column("cell").to_numpy(zero_copy_only=False), due, end, ok, value, tokens


def _ends(lists: pa.Array) -> tuple[Floats, Floats, Floats]:
    """Return first value, last value and length of each list; NaN for an empty one."""
    offsets = lists.offsets.to_numpy()
    values = lists.values.to_numpy(zero_copy_only=False).astype(float)
    count = np.diff(offsets)
    first, last = np.full(len(count), np.nan), np.full(len(count), np.nan)
    some = count > 0
    first[some], last[some] = values[offsets[:-1][some]], values[offsets[1:][some] - 1]
    return first, last, count.astype(float)


def _edges(scrapes: Sequence[Scrape]) -> dict[int, dict[str, float]]:
    """Return cell → moment → preemptions counted so far."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for scrape in scrapes:
        count = next((scrape.values[name] for name in PREEMPTIONS if name in scrape.values), None)
        if scrape.moment in ("window_open", "window_close") and count is not None:
            found[scrape.cell][scrape.moment] = count
    return found


def _figure(record: CellRecord, rows: _Rows, edges: Mapping[str, float], metric: str, held: _Held) -> CellFigure:
    took_s = (record.idle_wait_s or 0.0) + (max(0.0, record.drained_s - record.started_s) if record.drained_s else 0.0)
    opened, closed = record.window_open_s, record.window_close_s
    window_s = closed - opened if opened is not None and closed is not None else 0.0
    place = CellFigure(arm=record.arm, level=record.level, block=record.block, window_s=window_s, took_s=took_s)
    if not len(rows.ok):
        given_up = TOO_MANY in record.reason
        return replace(place, error_ratio=1.0, saturated=given_up, given_up=given_up)
    rate = float(np.sum(rows.tokens[rows.ok])) / window_s
    values = rows.value[rows.ok]
    values = values[~np.isnan(values)]
    mean = float(np.mean(values)) if len(values) else math.nan
    before, after = rows.in_flight
    return replace(
        place, figure=rate if metric == "output_tokens_per_s" else mean, output_tokens_per_s=rate,
        requests=len(values), error_ratio=1.0 - float(np.mean(rows.ok)),
        preempted=edges.get("window_close", 0.0) > edges.get("window_open", math.inf),
        saturated=held.steady and after - before > most_growth(before, after, len(rows.ok), held.gap_cv),
    )  # fmt: skip
