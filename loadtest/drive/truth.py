"""The client held against a server that wrote down what it truly did: token counts and arrival stamps."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from loadtest.record import STREAM_SCHEMA
from loadtest.run_folder import read_lines

NULL = "null"  # the world, and the arm, of the server that calibrates the client


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How records and a server's own log agree; errors are client − server, of the same send, in seconds."""

    requests: int  # found in both
    missing: int  # ok in the records, absent from the server's log
    tokens_differ: int  # requests whose tokens per chunk, or their sum, differ
    first_error_p50_s: float | None
    first_error_p99_s: float | None
    last_error_p50_s: float | None
    last_error_p99_s: float | None


def agreement(requests: pa.Table, log: Path, origin_ns: int) -> Agreement:
    """Join a run's requests with a simulated server's log by response id.

    The log's stamps are seconds of CLOCK_MONOTONIC just before each write; `origin_ns` is the run's start.
    Chunks may merge on the way, so first and last token are compared, and tokens by their sum.
    """
    truth = {row["id"]: row for row in read_lines(log)}
    first: list[float] = []
    last: list[float] = []
    missing = differ = 0
    columns = ["response_id", "outcome", "output_tokens", "chunk_s", "chunk_tokens"]
    for row in requests.select(columns).to_pylist():
        if row["outcome"] != "ok":
            continue
        true = truth.get(row["response_id"])
        if true is None:
            missing += 1
            continue
        differ += row["output_tokens"] != true["output_tokens"] or sum(row["chunk_tokens"]) != sum(true["chunk_tokens"])
        first.append(row["chunk_s"][0] - (true["sent_s"][0] - origin_ns / 1e9))
        last.append(row["chunk_s"][-1] - (true["sent_s"][-1] - origin_ns / 1e9))
    return Agreement(requests=len(first), missing=missing, tokens_differ=differ, first_error_p50_s=_rank(first, 0.5),
                     first_error_p99_s=_rank(first, 0.99), last_error_p50_s=_rank(last, 0.5),
                     last_error_p99_s=_rank(last, 0.99))  # fmt: skip


def _rank(errors: list[float], share: float) -> float | None:
    """Return the nearest-rank percentile of the absolute errors."""
    if not errors:
        return None
    return float(np.sort(np.abs(errors))[max(0, math.ceil(share * len(errors)) - 1)])


OWN = ("event", "agreement", "window_open_s", "window_close_s")  # of the event, not of the result


def calibration_result(folder: Path, event: dict[str, Any], log: Path, origin_ns: int) -> dict[str, Any]:
    """Return the client's floor, from the null server's log and the driver's own evidence; removes the raw file.

    Workers elsewhere have null servers of their own, and say in the event how they agree with these.
    """
    path = folder / "calibration.arrows"
    with path.open("rb") as source:
        table = pa.Table.from_batches(list(pa.ipc.open_stream(source)), schema=STREAM_SCHEMA)
    result = event.get("agreement") or asdict(agreement(table, log, origin_ns))
    chunks = sum(len(row or ()) for row in table.column("chunk_s").to_pylist())
    ends, dues = table.column("end_s").to_pylist(), table.column("due_s").to_pylist()
    span_s = max(ends, default=0.0) - min(dues, default=0.0)
    path.unlink()
    evidence = {key: value for key, value in event.items() if key not in OWN}
    return result | evidence | {"chunks_per_s": chunks / span_s if span_s > 0 else None}
