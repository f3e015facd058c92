"""Records held against the log: what the client said of each chunk, and what the server truly did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.client.ground import Answered
from loadtest.record import Outcome
from loadtest.run_folder import read_requests

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a client wrote down of one request that ended well; times are CLOCK_MONOTONIC in nanoseconds."""

    due_ns: float
    sent_ns: float
    chunk_ns: Floats
    tokens: int  # the sum over the chunks; -1 where nobody counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Said and true over the requests of a window; seconds, errors as absolute values. NaN: nothing to compare."""

    requests: int  # that the client wrote down as ok
    chunks: int  # of them
    missing: int  # of them, absent from the log
    differing: int  # whose count of chunks or of tokens is not that of the log
    delayed: int  # chunks that the server's kernel did not take at once
    chunks_per_s: float  # truly sent in the window
    gap_error_p50_s: float
    gap_error_p99_s: float
    gap_said_p50_s: float
    gap_said_p99_s: float
    gap_true_p50_s: float
    gap_true_p99_s: float
    ttft_error_p50_s: float
    ttft_error_p99_s: float
    ttft_said_p50_s: float
    ttft_said_p99_s: float
    ttft_true_p50_s: float
    ttft_true_p99_s: float
    send_error_p50_s: float  # from when a request was due to its arrival at the server
    send_error_p99_s: float
    server_late_p99_s: float  # from when a chunk was planned to when it was sent

    @property
    def right(self) -> bool:
        """Whether the client wrote down every chunk and token that was sent, and nothing else."""
        return self.requests > 0 and not self.missing and not self.differing

    def holds(self, offered_chunks_per_s: float) -> bool:
        """Whether the client kept up (97 % of the rate offered) and its TTFT and gaps (p50, p99) are within 10 %."""
        pairs = (
            (self.gap_said_p50_s, self.gap_true_p50_s),
            (self.gap_said_p99_s, self.gap_true_p99_s),
            (self.ttft_said_p50_s, self.ttft_true_p50_s),
            (self.ttft_said_p99_s, self.ttft_true_p99_s),
        )
        near = all(abs(said - true) <= 0.1 * true for said, true in pairs)
        return self.right and near and self.chunks_per_s >= 0.97 * offered_chunks_per_s

    def as_row(self) -> dict[str, float]:
        """Return the figures by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def read_records(folder: Path, origin_ns: int) -> dict[int, Said]:
    """Return what the stream client recorded: number of the request → what it said of it, failures left out."""
    table = read_requests(folder)
    names = ["response_id", "outcome", "due_s", "sent_s", "chunk_tokens"]
    columns = [table.column(name).to_pylist() for name in names]
    arrivals = table.column("chunk_s").combine_chunks()
    flat, offsets = arrivals.values.to_numpy(), arrivals.offsets.to_numpy()
    said = {}
    for row, (response_id, outcome, due_s, sent_s, tokens) in enumerate(zip(*columns, strict=True)):
        if outcome == Outcome.OK:
            said[int(response_id.rpartition("-")[2])] = Said(
                due_ns=origin_ns + due_s * 1e9, sent_ns=origin_ns + sent_s * 1e9,
                chunk_ns=origin_ns + flat[offsets[row] : offsets[row + 1]] * 1e9, tokens=sum(tokens) if tokens else -1,
            )  # fmt: skip
    return said


def read_floor(log: Mapping[int, Answered]) -> dict[int, Said]:
    """Return what the C client wrote down in the same form."""
    return {
        number: Said(due_ns=float(row.arrived_ns), sent_ns=float(row.arrived_ns),
                     chunk_ns=row.chunk_ns.astype(np.float64), tokens=-1)
        for number, row in log.items()
    }  # fmt: skip


def compare(said: Mapping[int, Said], true: Mapping[int, Answered], window_ns: tuple[float, float]) -> Comparison:
    """Compare chunk by chunk what was sent within the window, and the TTFT of requests that were sent in it."""
    opens_ns, closes_ns = window_ns
    gaps: list[tuple[Floats, Floats]] = []
    firsts: list[tuple[float, float]] = []
    sends: list[float] = []
    late: list[Floats] = []
    differing = sent_in_window = 0
    for number, record in said.items():
        row = true.get(number)
        if row is None:
            continue
        chunk_ns = row.chunk_ns.astype(np.float64)
        if len(chunk_ns) != len(record.chunk_ns) or record.tokens not in (-1, row.tokens * len(chunk_ns)):
            differing += 1
            continue
        within = (chunk_ns >= opens_ns) & (chunk_ns <= closes_ns)
        sent_in_window += int(within.sum())
        later = within[1:]
        gaps.append((np.diff(record.chunk_ns)[later], np.diff(chunk_ns)[later]))
        late.append((chunk_ns - row.due_ns - np.arange(len(chunk_ns)) * row.gap_ns)[within])
        if len(chunk_ns) and opens_ns <= record.sent_ns <= closes_ns:
            firsts.append((record.chunk_ns[0] - record.sent_ns, chunk_ns[0] - row.arrived_ns))
            sends.append(row.arrived_ns - record.due_ns)
    nothing = np.array([])
    gap_said, gap_true = (np.concatenate([pair[i] for pair in gaps]) if gaps else nothing for i in (0, 1))
    first_said, first_true = np.array(firsts).T if firsts else (nothing, nothing)
    return Comparison(
        requests=len(said), chunks=sum(len(record.chunk_ns) for record in said.values()),
        missing=len(said.keys() - true.keys()), differing=differing,
        delayed=sum(row.delayed for row in true.values()),
        chunks_per_s=sent_in_window / max(closes_ns - opens_ns, 1.0) * 1e9,
        **_tails("gap_error", np.abs(gap_said - gap_true)), **_tails("gap_said", gap_said),
        **_tails("gap_true", gap_true), **_tails("ttft_error", np.abs(first_said - first_true)),
        **_tails("ttft_said", first_said), **_tails("ttft_true", first_true),
        **_tails("send_error", np.abs(np.array(sends))),
        server_late_p99_s=quantile_s(np.concatenate(late) if late else nothing, 0.99),
    )  # fmt: skip


def quantile_s(values_ns: Floats, share: float) -> float:
    """Return the nearest-rank quantile in seconds, NaN for none."""
    if not len(values_ns):
        return math.nan
    return float(np.quantile(values_ns, share, method="inverted_cdf")) / 1e9


def _tails(name: str, values_ns: Floats) -> dict[str, float]:
    return {f"{name}_p50_s": quantile_s(values_ns, 0.5), f"{name}_p99_s": quantile_s(values_ns, 0.99)}
