"""A worker's records: kept in a file of its own, sent on to the master, and kept in hand until it has them."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from loadtest.record import STREAM_SCHEMA, Request, RequestWriter

RESEND_S = 1.0  # without a word on what was sent
AT_ONCE = 64  # batches that are on their way at most
STREAM = "requests.arrows"


class Outbox:
    """Numbers the rows of a worker from 0 on, and says which of them are to be sent now."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Hold nothing."""
        self._now_s = now_s
        self._unheard: deque[tuple[int, pa.RecordBatch]] = deque()  # first row, rows
        self.rows = 0  # of all batches
        self.heard = 0  # rows that the master has
        self._sent = 0  # rows that were sent since they were last sent again
        self._moved_s = now_s()

    def put(self, batch: pa.RecordBatch) -> None:
        """Take a batch that follows those before."""
        if self.heard == self.rows:
            self._moved_s = self._now_s()
        self._unheard.append((self.rows, batch))
        self.rows += batch.num_rows

    def has(self, rows: int) -> None:
        """The master has this many rows: more than these, where a file lost its end with the machine."""
        if min(rows, self.rows) > self.heard:
            self.heard, self._moved_s = min(rows, self.rows), self._now_s()
        while self._unheard and self._unheard[0][0] + self._unheard[0][1].num_rows <= self.heard:
            self._unheard.popleft()

    def to_send(self) -> list[dict[str, Any]]:
        """Return what is to be sent now: what is new, or what has not been heard of for a while."""
        now_s = self._now_s()
        if self.heard < self.rows and now_s - self._moved_s > RESEND_S:
            self._sent, self._moved_s = self.heard, now_s
        found = []
        for first, batch in islice(self._unheard, AT_ONCE):
            if first + batch.num_rows > self._sent:
                found.append({"first": first, "rows": batch.num_rows, "batch": batch.serialize().to_pybytes()})
        if found:
            self._sent = found[-1]["first"] + found[-1]["rows"]
        return found


class Spool:
    """The requests of a worker: in a file of its own, and on their way."""

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        """Open the file of this worker's requests."""
        folder.mkdir(parents=True, exist_ok=True)
        self._outbox = Outbox(now_s)
        self._writer = RequestWriter(folder / STREAM, self._outbox.put)
        self.has = self._outbox.has
        self.unwritten: OSError | None = None  # why the file does not hold all; it is sent on all the same

    def add(self, request: Request) -> None:
        """Keep a finished request."""
        self._writing(lambda: self._writer.add(request))

    def flush(self) -> None:
        """Write what was added."""
        self._writing(self._writer.flush)

    def to_send(self) -> list[dict[str, Any]]:
        """Write what was added, and return what is to be sent now."""
        self.flush()
        return self._outbox.to_send()

    @property
    def rows(self) -> int:
        """Rows that were flushed."""
        return self._outbox.rows

    @property
    def all_heard(self) -> bool:
        """Whether the master has every row that was flushed."""
        return self._outbox.heard == self._outbox.rows

    def close(self) -> None:
        """Write what is left."""
        self._writing(self._writer.close)

    def _writing(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.unwritten = self.unwritten or error


def rows_in(data: object, rows: object) -> list[dict[str, Any]] | None:
    """Return the rows of a batch that was sent; None where it is none of ours."""
    if not isinstance(data, bytes) or not isinstance(rows, int):
        return None
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), STREAM_SCHEMA)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError):
        return None
    found: list[dict[str, Any]] = batch.to_pylist()
    return found if len(found) == rows else None


def batches_in(folder: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches in the file of a worker that has ended, as far as the file is whole; none without a file."""
    cut = contextlib.suppress(pa.ArrowException, OSError, EOFError)  # a kill cuts the last batch
    with cut, pa.memory_map(str(folder / STREAM)) as source:
        yield from pa.ipc.open_stream(source)


def left_in(folder: Path, from_row: int) -> list[Request]:
    """Return the requests in such a file from this row on."""
    found, first = list[Request](), 0
    for batch in batches_in(folder):
        found += [Request(**row) for row in batch.slice(max(0, from_row - first)).to_pylist()]
        first += batch.num_rows
    return found
