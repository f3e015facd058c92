"""The records of a driver under way: requests, cells and scrapes, on disk within half a second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import gevent

from loadtest.drive.cell import Switches
from loadtest.drive.job import Job
from loadtest.drive.log_bound import bound_log
from loadtest.drive.same_bodies import SameBodies
from loadtest.drive.texts import Texts
from loadtest.errors import UsageError
from loadtest.json_files import PRIVATE, LineWriter
from loadtest.loads import unit_of
from loadtest.record import TEXTS, CellRecord, KeptText, Request, Scrape
from loadtest.record_writer import RequestWriter, stream_name

FLUSH_EVERY_S = 0.5


class Records:
    """Appends to the files of a run's folder."""

    def __init__(self, job: Job, switches: Switches, beat: Callable[[], None]) -> None:
        """Open the files; `beat` is called at every flush, and `switches` hold why nothing can be written any more."""
        self._switches, self._beat = switches, beat
        self._requests = RequestWriter(job.folder / stream_name(job.sitting))
        self._keep = self._requests.add
        if len(job.arms) > 1:  # one arm alone has no twins to wait for
            self._keep = SameBodies(self._requests.add, unit_of(job.experiment.load), len(job.arms)).keep
        self._cells = LineWriter(job.folder / "cells.jsonl")
        self._scrapes = LineWriter(job.folder / "server.jsonl")
        self._texts = LineWriter(job.folder / TEXTS, PRIVATE) if job.experiment.outputs.keep_text else None
        self._flusher = gevent.spawn(self._flush)

    def _flush(self) -> None:
        while True:
            gevent.sleep(FLUSH_EVERY_S)
            self.writing(self._requests.flush)
            bound_log()
            self._beat()

    def writing(self, write: Callable[..., None], *given: Any) -> None:
        """Write records; where that fails, the cell under way ends, whichever greenlet found out."""
        if self._switches.unwritten is None:  # what follows a broken batch could not be read
            try:
                write(*given)
            except OSError as error:
                self._switches.unwritten = error

    def keep(self, request: Request) -> None:
        """Keep a finished request. Raises UsageError when the other arm was sent another body at its place."""
        self._keep(request)

    def late(self, request: Request) -> None:
        """Keep a request of a cell that has ended: a worker that was cut off from the master sends it afterwards."""
        if request.cell >= 0:
            with contextlib.suppress(UsageError):  # the cell is invalid already
                self.writing(self._keep, request)

    def scraped(self, scrape: Scrape) -> None:
        """Keep a reading of a server's counters."""
        self._scrapes.write(scrape)

    def texts(self) -> Texts | None:
        """Return what chooses the texts of a cell that begins; None where no text is kept."""
        return Texts() if self._texts is not None else None

    def keep_texts(self, rows: Sequence[KeptText]) -> None:
        """Write what was chosen of a cell's texts."""
        if self._texts is not None:
            for row in rows:
                self._texts.write(row)

    def ended(self, cell: CellRecord) -> None:
        """Keep a cell, after all of its requests."""
        self._requests.flush()
        self._cells.write(cell)

    def close(self) -> None:
        """Write what is left."""
        self._flusher.kill()
        self._requests.close()
        self._cells.close()
        self._scrapes.close()
        if self._texts is not None:
            self._texts.close()
