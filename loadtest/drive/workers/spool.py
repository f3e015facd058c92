"""A worker's records: kept in a file of its own, and sent on to the master out of it until it has them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from loadtest.drive.workers.outbox import Outbox
from loadtest.record import STREAM_SCHEMA, Request
from loadtest.record_writer import RequestWriter, Written

STREAM = "requests.arrows"


class Spool:
    """The requests of a worker: in a file of its own, and on their way."""

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        """Open the file of this worker's requests."""
        folder.mkdir(parents=True, exist_ok=True)
        self._outbox = Outbox(now_s, folder.name)
        self._writer = RequestWriter(folder / STREAM, self._put)
        self._file = os.open(folder / STREAM, os.O_RDONLY)
        self.has, self.hurry = self._outbox.has, self._outbox.hurry
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
    def heard(self) -> int:
        """Rows that the master has said it has."""
        return self._outbox.heard

    @property
    def all_heard(self) -> bool:
        """Whether the master has every row that was flushed."""
        return self._outbox.heard == self._outbox.rows

    def close(self) -> None:
        """Write what is left, and send nothing more."""
        self._writing(self._writer.close)
        os.close(self._file)

    def _put(self, written: Written) -> None:
        """Have what was written sent; it is held in memory only where the file does not have it."""
        if written.place is None:
            self._outbox.put(written.rows, partial(bytes, written.message))
        else:
            self._outbox.put(written.rows, partial(os.pread, self._file, written.message.size, written.place))

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
