"""The seam between making load and judging it: what a run leaves on disk.

A run folder holds

    run.json          the protocol, written before the first request and completed at the end
    plan.jsonl        the planned cells, one JSON object per line, written before the first request
    cells.jsonl       one line per cell as it ends: window, in flight, client evidence
    server.jsonl      one line per scrape of a server's counters
    requests.arrows   Arrow IPC stream, one row per request, appended while running (requests-2.arrows, … when resumed)
    requests.parquet  the same rows, written at the end
    texts.jsonl       with outputs.keep_text: prompt and answer of the slowest requests of each cell

Times are float seconds on the run's monotonic clock, 0 at the run's start; wall-clock time stands once, in run.json.
The format is versioned by SCHEMA_VERSION and documented in reports/README.md; record_writer.py writes
its requests and run_folder.py reads it back.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 1
SEVERAL_VERSION = 2  # of run.json with `candidates`: `candidate` is null then, and a reader of 1 would compare nothing
FAKED, LOSSY = "faked acceptance", "lossy acceptance"  # of drafts: modes of a server's identity in the header
EVENT_PER_TOKEN = "timings"  # the `tokens_source` of streams in which no event holds what a step brought together
TOO_MANY = "requests were in flight (load.max_in_flight)"  # in the reason of a cell that its queue ended
NOT_CARRIED = "not_carried"  # state of a cell that was given up since its server did not carry the load
GIVEN_UP = "given_up"  # status of a run that ended early, since an objective had certainly failed


def header_version(candidates: Sequence[str]) -> int:
    """Return the schema of the header of a run with these candidates."""
    return SEVERAL_VERSION if len(candidates) > 1 else SCHEMA_VERSION


def compared(candidates: Sequence[str]) -> dict[str, Any]:
    """Return what a header says of the arms that are held against its baseline: none, one, or several."""
    if len(candidates) > 1:
        return {"candidate": None, "candidates": list(candidates)}
    return {"candidate": candidates[0] if candidates else None}


def candidates_of(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arms that a header holds against its baseline, as `compared` wrote them."""
    own = (run["candidate"],) if run.get("candidate") else ()
    return tuple(map(str, run.get("candidates") or own))


class Outcome(StrEnum):
    """How a request ended; everything but OK counts as bad in every share and is not retried."""

    OK = "ok"
    HTTP_ERROR = "http_error"
    RATE_LIMITED = "rate_limited"
    STREAM_ERROR = "stream_error"
    TRUNCATED = "truncated"
    STALLED = "stalled"
    TIMEOUT = "timeout"
    CONNECT_ERROR = "connect_error"
    TLS_ERROR = "tls_error"
    PROTOCOL_ERROR = "protocol_error"
    EMPTY = "empty"
    CANCELLED = "cancelled"
    CLIENT_ERROR = "client_error"


@dataclass(slots=True, kw_only=True)
class Request:
    """One request as measured: raw instants and counts, no derived figure.

    Mutable because the stream client fills it in while the stream is read. `chunk_s` and `chunk_tokens` are parallel:
    arrival (seconds on the run's clock) and tokens of each chunk whose cumulative token count rose. Without token
    counts (`tokens_source == "none"`) they hold the non-empty deltas and `chunk_tokens` is empty.
    """

    cell: int = -1
    arm: str = ""
    level: float = 0.0
    block: int = -1
    user: int = -1
    session: int = -1
    turn: int = 0
    category: str = ""
    body_hash: str = ""  # blake2b-64 of the request body without model and cache_salt: equal in both arms
    due_s: float = float("nan")
    sent_s: float = float("nan")
    headers_s: float = float("nan")  # arrival of the response's first byte
    first_visible_s: float = float("nan")  # first non-empty text, reasoning or tool delta
    end_s: float = float("nan")  # end of the stream, or of the attempt
    outcome: str = Outcome.CLIENT_ERROR.value
    error: str = ""
    http_status: int = 0
    finish_reason: str = ""
    prompt_tokens: int = -1  # -1: the server did not say
    output_tokens: int = -1
    cached_tokens: int = -1
    asked: str = ""  # for the tokens of each chunk: continuous · ids · timings · none; "" in records of older versions
    tokens_source: str = "none"  # usage · ids · timings · none
    stamp_source: str = "user"  # kernel · user · mixed
    response_id: str = ""
    connect_s: float = float("nan")  # duration of opening a connection, absent when a pooled one was used
    reconnected: bool = False
    coalesced: int = 0  # chunks that shared a read with an earlier chunk
    lag_max_s: float = 0.0  # largest (time of processing − stamp) over the stream's reads
    spec_drafts: int = -1  # per-request speculation figures where the server gives them
    spec_drafted: int = -1
    spec_accepted: int = -1
    chunk_s: MutableSequence[float] = field(default_factory=lambda: array("d"))  # a batch of records copies it
    chunk_tokens: MutableSequence[int] = field(default_factory=lambda: array("i"))


_DICT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA_FIELDS: list[tuple[str, pa.DataType]] = [
    ("cell", pa.int32()), ("arm", _DICT), ("level", pa.float64()), ("block", pa.int32()), ("user", pa.int32()),
    ("session", pa.int64()), ("turn", pa.int32()), ("category", _DICT), ("body_hash", pa.string()),
    ("due_s", pa.float64()), ("sent_s", pa.float64()), ("headers_s", pa.float64()), ("first_visible_s", pa.float64()),
    ("end_s", pa.float64()), ("outcome", _DICT), ("error", pa.string()), ("http_status", pa.int32()),
    ("finish_reason", _DICT), ("prompt_tokens", pa.int32()), ("output_tokens", pa.int32()),
    ("cached_tokens", pa.int32()), ("tokens_source", _DICT), ("stamp_source", _DICT), ("response_id", pa.string()),
    ("connect_s", pa.float64()), ("reconnected", pa.bool_()), ("coalesced", pa.int32()), ("lag_max_s", pa.float64()),
    ("spec_drafts", pa.int32()), ("spec_drafted", pa.int32()), ("spec_accepted", pa.int32()),
    ("chunk_s", pa.list_(pa.float64())), ("chunk_tokens", pa.list_(pa.int32())), ("asked", _DICT),
]  # fmt: skip
ADDED = frozenset(("asked",))  # columns that runs of schema 1 did not always have; absent, they are read as empty text
REQUEST_SCHEMA = pa.schema(
    [pa.field(name, kind) for name, kind in _SCHEMA_FIELDS], metadata={"loadtest_schema": str(SCHEMA_VERSION)}
)
# A dictionary cannot grow within an Arrow IPC stream without deltas, so that on disk these columns are plain strings.
STREAM_SCHEMA = pa.schema(
    [pa.field(f.name, pa.string() if f.type == _DICT else f.type) for f in REQUEST_SCHEMA],
    metadata=REQUEST_SCHEMA.metadata,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """One cell of plan.jsonl: an arm at a level in a block."""

    cell: int
    block: int
    level: float
    arm: str


@dataclass(slots=True, kw_only=True)
class CellRecord:
    """One cell as it was run: an arm at a level in a block. Absent figures are None, never 0."""

    cell: int
    arm: str
    level: float
    block: int
    order: int  # position of the cell in the run
    state: str  # complete · not_carried · aborted · interrupted
    reason: str = ""
    started_s: float
    window_open_s: float | None = None
    window_close_s: float | None = None
    drained_s: float | None = None
    in_flight_mean: float | None = None  # client side, over the window
    lateness_p50_s: float | None = None  # sent − due, over the window
    lateness_p99_s: float | None = None
    client_cpu_ratio: float | None = None  # CPU seconds of the driver ÷ window
    hub_lag_p99_s: float | None = None  # how late a timer of the driver fired
    hub_lag_max_s: float | None = None  # the latest of all: how long the driver stood still
    suspended_s: float | None = None  # how long the machine slept within the window
    models: list[str] = field(default_factory=list)  # that the server said it answered with, since the cell began
    oddities: dict[str, float] = field(default_factory=dict)  # answers that were odd and no failure: no_done · not_utf8
    clock_steps: float | None = None  # how often the wall clock was seen to be set within the window
    coalesced_ratio: float | None = None
    lag_p99_s: float | None = None  # time of processing − stamp, p99 over requests of their largest
    idle_wait_s: float | None = None
    warmup_requests: int = 0
    workers: dict[str, float] = field(default_factory=dict)  # users of each worker, where several made the load
    workers_lost: list[str] = field(default_factory=list)  # that were lost before its end
    worker_cpu_ratio: dict[str, float] = field(default_factory=dict)  # CPU ÷ window, of each and the `master`
    clock_offset_s: dict[str, float] = field(default_factory=dict)  # master's clock − each worker's
    clock_bound_s: dict[str, float] = field(default_factory=dict)  # by how much that can have been wrong at most
    word_late_s: dict[str, float] = field(default_factory=dict)  # latest that the master's word reached each


@dataclass(slots=True, kw_only=True)
class Scrape:
    """One reading of a server's counters. `values` maps an exact exposition name (labels summed) to its value."""

    t_s: float
    arm: str
    cell: int
    moment: str  # idle_before · window_open · sample · window_close · idle_after
    values: dict[str, float]
    per_position: list[float] = field(default_factory=list)  # accepted tokens by draft slot
    took_s: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptText:
    """Prompt and answer of one request, kept since that was asked for; no verdict rests on it."""

    cell: int
    arm: str
    session: int
    turn: int
    prompt: str
    answer: str
    answer_cut: bool = False  # more came than was listened to


TEXTS = "texts.jsonl"
