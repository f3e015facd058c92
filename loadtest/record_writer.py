"""How the requests of a run reach the disk: an Arrow stream that is readable up to its last batch whatever happens."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Callable, MutableSequence, Sequence
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from loadtest.record import STREAM_SCHEMA, Request

FLUSH_ROWS = 64  # of a batch: writing one keeps the driver's hub for under a millisecond
_CODES = {pa.float64(): "d", pa.int32(): "i"}  # of the arrays that hold what Arrow holds
_STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"


class Written(NamedTuple):
    """A batch of requests that was to be written."""

    rows: int
    message: pa.Buffer
    place: int | None  # of its first byte in the file; None where the file did not take it


class RequestWriter:
    """Append requests to an Arrow IPC stream; what was flushed survives a kill of the process."""

    def __init__(self, path: Path, written: Callable[[Written], None] | None = None) -> None:
        """Open `path` for writing and write the schema at once.

        `written` is told of every batch, also of one that the file did not take.
        """
        self._written = written
        self._sink = path.open("wb", buffering=0)
        self._whole = 0  # bytes of whole messages
        self._put(STREAM_SCHEMA.serialize())
        self._rows: list[Request] = []
        self.count = 0

    def add(self, request: Request) -> None:
        """Keep a finished request; it reaches the file with the next flush, or once FLUSH_ROWS are kept."""
        self._rows.append(request)
        if len(self._rows) >= FLUSH_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write what has been added since the last flush as one record batch; after an OSError the next one has it."""
        rows = self._rows
        if not rows:
            return
        message = batch_of(rows).serialize()  # before they are let go: a row that does not fit must not take others
        self._rows = []
        place: int | None = None
        try:
            place = self._put(message)
            self.count += len(rows)
        except OSError:
            if self._written is None:
                self._rows = rows  # no one else has them
            raise
        finally:
            if self._written is not None:
                self._written(Written(len(rows), message, place))

    def close(self) -> None:
        """Flush, write the end-of-stream marker and sync to disk."""
        self.flush()
        self._put(_STREAM_END)
        os.fsync(self._sink.fileno())
        self._sink.close()

    def _put(self, message: Any) -> int:
        """Write a message at once, and return where it begins.

        Arrow's own writer takes a call of the system for each buffer of each column.
        """
        place, left = self._whole, memoryview(message)
        try:
            while left:
                left = left[self._sink.write(left) :]
        except OSError:  # a full disk takes a part: what follows it would be read as the rest of it
            with contextlib.suppress(OSError):
                self._sink.seek(self._whole)
                self._sink.truncate()
            raise
        self._whole += memoryview(message).nbytes
        return place


_values_of = attrgetter(*STREAM_SCHEMA.names)  # one call per row: half the time of a loop over its fields


def batch_of(rows: list[Request]) -> pa.RecordBatch:
    """Return the rows as one Arrow record batch of STREAM_SCHEMA."""
    columns = zip(*map(_values_of, rows), strict=True) if rows else [()] * len(STREAM_SCHEMA)
    arrays = [
        _lists(column, f.type) if pa.types.is_list(f.type) else pa.array(column, type=f.type)
        for column, f in zip(columns, STREAM_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=STREAM_SCHEMA)


def _lists(column: Sequence[MutableSequence[Any]], kind: pa.ListType) -> pa.ListArray:
    """Return a column of lists, copied as the bytes that they are: the hub waits meanwhile."""
    code = _CODES[kind.value_type]
    values = b"".join([each if isinstance(each, array) else array(code, each) for each in column])
    ends = array("i", accumulate(map(len, column), initial=0))
    flat = pa.Array.from_buffers(kind.value_type, ends[-1], [None, pa.py_buffer(values)])
    return pa.ListArray.from_buffers(kind, len(column), [None, pa.py_buffer(ends)], children=[flat])


def stream_name(sitting: int) -> str:
    """Return the name of the stream that a run writes the first time (1), or when it is taken up again (2, 3, …)."""
    return "requests.arrows" if sitting == 1 else f"requests-{sitting}.arrows"
