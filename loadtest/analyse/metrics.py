"""The metrics: one row each. How a cell is reduced to one figure, and which values its percentiles are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from loadtest.analyse.stats import Sample, sample_of
from loadtest.analyse.table import CellRows, Floats


class Kind(StrEnum):
    """How a cell's figure is formed."""

    REQUEST = "request"  # mean over the requests due in the window that ended well
    POOLED = "pooled"  # mean over their chunks or tokens
    RATE = "rate"  # per second of the window, by arrival
    SHARE = "share"  # of the requests due in the window; a failed one counts as bad


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `figure` reduces a cell to a number (NaN: absent); `values` are what percentiles rank, or None."""

    name: str
    label: str  # as it stands in a sentence
    unit: str
    better: str | None  # lower · higher · None: neither
    kind: Kind
    doc: str
    figure: Callable[[CellRows], float]
    values: Callable[[CellRows], Sample] | None = None

    @property
    def has_ratio(self) -> bool:
        """Whether the arms are compared by a ratio; shares are compared by their difference."""
        return self.better is not None and self.kind is not Kind.SHARE


def _mean(values: Floats) -> float:
    present = values[~np.isnan(values)]
    return float(np.mean(present)) if len(present) else math.nan


def _request_mean(column: str) -> Callable[[CellRows], float]:
    def figure(cell: CellRows) -> float:
        return _mean(cell.column(column)[cell.measured & cell.ok])

    return figure


def _request_values(column: str) -> Callable[[CellRows], Sample]:
    def values(cell: CellRows) -> Sample:
        failed = int(np.sum(cell.measured & ~cell.ok))
        return sample_of(cell.column(column)[cell.measured & cell.ok], infinite=failed)

    return values


def _tpot_values(cell: CellRows) -> Sample:
    rows = _sampled(cell)
    return sample_of(cell.column("tpot_s")[rows & cell.ok], infinite=int(np.sum(rows & ~cell.ok)))


def _gaps(cell: CellRows, rows: NDArray[np.bool_]) -> Floats:
    """Return the times between successive chunks of the chosen requests."""
    chunks = cell.chunks
    if len(chunks.times) < 2:
        return np.empty(0)
    wanted = np.repeat(rows & ~cell.column("at_once"), chunks.counts)
    starts = chunks.offsets[:-1]
    wanted[starts[starts < len(wanted)]] = False
    return np.asarray((chunks.times[1:] - chunks.times[:-1])[wanted[1:]])


def _zeros(cell: CellRows, rows: NDArray[np.bool_]) -> int:
    """Return how many tokens came together with an earlier token of their chunk."""
    return int(np.sum(cell.column("tokens")[rows] - cell.column("chunks")[rows]))


def _counted(cell: CellRows) -> NDArray[np.bool_]:
    return cell.column("counted")


def _paced(cell: CellRows) -> NDArray[np.bool_]:
    """Return the requests whose tokens came at times of their own."""
    return np.asarray(_counted(cell) & ~cell.column("at_once"))


def _sampled(cell: CellRows) -> NDArray[np.bool_]:
    """Return the measured requests that figures on tokens within a stream are of: those that asked for counts."""
    return np.asarray(cell.measured & cell.column("asked"))


def _chunk_gap(cell: CellRows) -> float:
    return _mean(_gaps(cell, cell.measured & cell.ok))


def _chunk_gap_values(cell: CellRows) -> Sample:
    """Failed requests give the gaps they had, and one of +inf: the chunk that never came."""
    failed = int(np.sum(cell.measured & ~cell.ok))
    return sample_of(_gaps(cell, cell.measured), infinite=failed)


def _token_gap(cell: CellRows) -> float:
    rows = cell.measured & cell.ok & _paced(cell)
    gaps = _gaps(cell, rows)
    count = len(gaps) + _zeros(cell, rows)
    return float(np.sum(gaps)) / count if count else math.nan


def _token_gap_values(cell: CellRows) -> Sample:
    rows = cell.measured & _paced(cell)
    failed = int(np.sum(_sampled(cell) & ~cell.ok))
    gaps = sample_of(_gaps(cell, rows), zeros=_zeros(cell, rows), infinite=failed)
    return gaps if rows.any() else sample_of(np.empty(0))


def _tokens_per_chunk(cell: CellRows) -> float:
    rows = cell.measured & cell.ok & _counted(cell)
    starts = cell.chunks.offsets[:-1][rows]
    later = float(np.sum(cell.column("chunks")[rows]) - len(starts))
    carried = float(np.sum(cell.column("tokens")[rows]) - np.sum(cell.chunks.tokens[starts], dtype=np.int64))
    return carried / later if later else math.nan


def _on_time(cell: CellRows) -> float:
    share = np.where(cell.ok, cell.column("on_time"), 0.0)[_sampled(cell)]
    ended_well = cell.column("on_time")[cell.measured & cell.ok]
    return _mean(share) if not np.isnan(ended_well).all() else math.nan


def _output_tokens_per_s(cell: CellRows) -> float:
    """Where chunks carry no counts, the tokens of a whole answer are taken as spread evenly over its chunks."""
    counted, said, chunks = _counted(cell), cell.column("output_tokens"), cell.column("chunks")
    spread = ~counted & cell.ok & (said > 0) & (chunks > 0)
    if not cell.window_s > 0 or not (counted.any() or spread.any()):
        return math.nan
    inside = (cell.chunks.times >= cell.open_s) & (cell.chunks.times <= cell.close_s)
    tokens = float(np.sum(cell.chunks.tokens[inside], dtype=np.int64))
    if spread.any():
        each = np.divide(said, chunks, out=np.zeros(len(said)), where=spread)
        tokens += float(np.sum(np.repeat(each, cell.chunks.counts)[inside]))
    return tokens / cell.window_s


def _requests_per_s(cell: CellRows) -> float:
    if not cell.window_s > 0:
        return math.nan
    end = cell.column("end_s")
    return float(np.sum(cell.ok & (end >= cell.open_s) & (end <= cell.close_s))) / cell.window_s


def _error_ratio(cell: CellRows) -> float:
    due = int(np.sum(cell.measured))
    return float(np.sum(cell.measured & ~cell.ok)) / due if due else math.nan


METRICS: tuple[Metric, ...] = (
    Metric(name="ttft", label="time to first token", unit="s", better="lower", kind=Kind.REQUEST,
           doc="First token chunk − due.",
           figure=_request_mean("ttft_s"), values=_request_values("ttft_s")),
    Metric(name="ttft_visible", label="time to first visible text", unit="s", better="lower", kind=Kind.REQUEST,
           doc="First visible text − due.",
           figure=_request_mean("ttft_visible_s"), values=_request_values("ttft_visible_s")),
    Metric(name="e2e", label="end-to-end time", unit="s", better="lower", kind=Kind.REQUEST,
           doc="Last token chunk − due.",
           figure=_request_mean("e2e_s"), values=_request_values("e2e_s")),
    Metric(name="tpot", label="time per output token", unit="s", better="lower", kind=Kind.REQUEST,
           doc="(Last − first token chunk) ÷ tokens after the first chunk, per request.",
           figure=_request_mean("tpot_s"), values=_tpot_values),
    Metric(name="token_gap", label="gap between tokens", unit="s", better="lower", kind=Kind.POOLED,
           doc="Per token: the wait since the chunk before for the first token of a chunk, 0 for its others.",
           figure=_token_gap, values=_token_gap_values),
    Metric(name="chunk_gap", label="gap between chunks", unit="s", better=None, kind=Kind.POOLED,
           doc="Time between successive chunks: the step as the user sees it; speculation lengthens it by design.",
           figure=_chunk_gap, values=_chunk_gap_values),
    Metric(name="worst_stall", label="worst stall", unit="s", better="lower", kind=Kind.REQUEST,
           doc="The largest gap between two chunks of a request.",
           figure=_request_mean("worst_stall_s"), values=_request_values("worst_stall_s")),
    Metric(name="tokens_per_chunk", label="tokens per chunk", unit="tokens", better=None, kind=Kind.POOLED,
           doc="Tokens of a chunk after the first; a busy server merges chunks with or without speculation.",
           figure=_tokens_per_chunk),
    Metric(name="on_time", label="share of tokens on time", unit="share", better="higher", kind=Kind.SHARE,
           doc="Share of a request's tokens that came by first arrival + i ÷ reading pace, averaged over requests;"
               " bursts are credited, a failed request counts 0.",
           figure=_on_time),
    Metric(name="output_tokens_per_s", label="output tokens per second", unit="tokens/s", better="higher",
           kind=Kind.RATE, doc="Tokens that arrived in the window ÷ its length, of every request.",
           figure=_output_tokens_per_s),
    Metric(name="requests_per_s", label="requests per second", unit="requests/s", better="higher", kind=Kind.RATE,
           doc="Requests that ended well in the window ÷ its length.", figure=_requests_per_s),
    Metric(name="error_ratio", label="error ratio", unit="share", better="lower", kind=Kind.SHARE,
           doc="Requests not ok ÷ requests due in the window.", figure=_error_ratio),
)  # fmt: skip

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
