"""What a worker does for a run: it drives its share of every cell that it is told, and sends on what it measured."""

from __future__ import annotations

import gc
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from loadtest.drive.log_bound import bound_log
from loadtest.drive.workers.contact import Contact
from loadtest.drive.workers.files import Fetched, Named
from loadtest.drive.workers.left import claimed, deliver_and_say, report
from loadtest.drive.workers.messages import LEAVE, REPORT
from loadtest.drive.workers.offset import Offset
from loadtest.drive.workers.peers import LOST_S
from loadtest.drive.workers.phases import Count
from loadtest.drive.workers.session import Null, Session
from loadtest.drive.workers.spool import Spool
from loadtest.drive.workers.vigil import Vigil
from loadtest.drive.workers.words import begin_from, word_from
from loadtest.errors import LoadtestError, RunError, UsageError, unwritable

REPORT_S = 0.1
SILENT_S = 2.0  # without a word of the master nothing large is sent
REST_S = 2.0  # for what the master lacks when the run is over; it listens for longer
FETCH_S = 60.0  # longest wait for a part of a file


class Worker:
    """Drives cells at the master's word.

    `settings`: host, port, name, spool (a folder), wait_s, local (started by the run itself), and of one that is not
    local the null server of its machine.
    """

    def __init__(self, settings: Mapping[str, Any], say: Callable[[str], None]) -> None:
        """Connect; nothing is driven before the master has welcomed it. `say` is told what it does, in words.

        Raises UsageError for a folder that cannot be written, and for a master's address that is none.
        """
        node = uuid.uuid4().hex
        self._settings = settings
        self._folder = Path(settings["spool"]) / node
        try:
            self._spool = Spool(self._folder)
        except OSError as error:
            raise UsageError(f"--spool {settings['spool']} cannot be written: {error.strerror}.") from error
        self._files = Fetched(self._folder / "files")
        self._contact = Contact(settings["host"], settings["port"], node, self._hear)
        self._session: Session | None = None
        self._begin: dict[str, Any] | None = None  # the cell that is told, until it is begun
        self._told, self._over = Event(), False
        self._attempt = 0  # the cell that was begun last
        self._record: dict[str, Any] | None = None  # and what was found of it
        self._used: Offset | None = None  # the distance of the clocks that its times were set by
        self._trouble, self._usage = "", True
        self._say, self._vigil = say, Vigil(settings, self._contact, say)

    def work(self) -> None:
        """Join, load what the run needs, and drive cells until the run is over.

        Raises UsageError or RunError when the master cannot be reached, refuses, or has gone.
        """
        settings = self._settings
        self._contact.join(settings["name"], settings["wait_s"])
        self._say(f"joined run {self._contact.welcome['run_id']} as {self._contact.welcome['name']}")
        if not settings["local"]:
            deliver_and_say(settings, self._say)
        self._try(self._load)
        if self._trouble:
            self._say(self._trouble)
        reporter = gevent.spawn(self._report_on)
        reporter.link_exception(self._mute)
        try:
            while not self._over:
                self._told.wait(1.0)
                self._told.clear()
                if reporter.dead:
                    raise RunError(f"It cannot report to the master any more ({reporter.exception!r}).")
                if self._begin is not None and not self._over:
                    begin, self._begin = self._begin, None
                    self._drive(begin)
                elif not self._over:
                    self._vigil.keep(self._spool, self._folder)
            self._send_the_rest()
            if self._trouble:
                raise (UsageError if self._usage else RunError)(f"This worker could not do its part: {self._trouble}")
        finally:
            reporter.kill()
            self._spool.close()

    def _mute(self, reporter: object) -> None:
        """End the cell that nobody is told of any more."""
        if self._session is not None:
            self._session.switches.cut = True
        self._told.set()

    def _send_the_rest(self) -> None:
        """Wait until the master has everything, or is heard to have ended."""
        self._spool.flush()
        self._spool.hurry()
        until_s = time.monotonic() + REST_S
        while not self._spool.all_heard and time.monotonic() < until_s:
            gevent.sleep(REPORT_S / 5)

    def holding(self) -> AbstractContextManager[bool]:
        """Hold this worker's folder, so that no other process takes it for one that was left."""
        return claimed(self._folder)

    def close(self, why: str = "") -> None:
        """Leave; the records stay unless the master has them all."""
        self._contact.send(LEAVE, {"why": why or "the run was over"})
        self._contact.close()
        if self._over and self._spool.all_heard:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _load(self) -> None:
        for named in self._contact.welcome["files"]:
            self._contact.fetch(self._files, Named(**named), FETCH_S)
        null = self._settings.get("null")
        self._session = Session(self._contact.welcome, self._files, self._spool, Null(**null) if null else None)
        gc.freeze()
        gc.disable()  # a full collection would stop the clock of every stream

    def _try(self, step: Any, *given: Any) -> None:
        """Take a step; what goes wrong is told to the master, who ends the run."""
        try:
            step(*given)
        except LoadtestError as error:
            self._trouble, self._usage = str(error), not isinstance(error, RunError)
        except OSError as error:
            self._trouble, self._usage = str(unwritable(self._folder, error)), True
        except (KeyError, TypeError, ValueError) as error:
            self._trouble, self._usage = f"it does not understand what it was told ({error})", False

    def _hear(self, state: Mapping[str, Any]) -> None:
        """Take the master's word on how things stand."""
        self._spool.has(int(state["rows"]))
        self._over = bool(state["over"])
        if self._over:
            self._told.set()
        attempt, session = state["attempt"], self._session
        if attempt and attempt != self._attempt and "begin" in state:
            self._begin = dict(state)
            self._told.set()
        elif self._begin is not None and attempt != self._begin["attempt"]:
            self._begin = None  # the master has given it up before it was begun
        if session is None or session.driven is None or session.driven.begin.attempt != self._attempt:
            return
        if attempt == self._attempt:
            word = word_from(state["word"])
            session.driven.hear(word)
            session.switches.cut = session.switches.cut or word.cut
        elif self._contact.busy:  # the master has given up the cell that is driven here
            session.switches.cut = True

    def _drive(self, state: Mapping[str, Any]) -> None:
        self._record, self._contact.busy = None, True
        self._attempt = state["attempt"]
        self._try(self._drive_cell, state)
        self._contact.busy = False

    def _drive_cell(self, state: Mapping[str, Any]) -> None:
        assert self._session is not None
        if state["plan"] is not None:
            self._contact.fetch(self._files, Named(**state["plan"]), FETCH_S)
        begin = begin_from(state["begin"])
        used, since_ns = self._offset(), time.perf_counter_ns()
        self._used = used
        error, record = "", None
        try:
            record = self._session.drive(begin, self._contact.welcome["origin_ns"] - used.offset_ns)
        except UsageError as wrong:
            error = self._files.as_master(str(wrong))
        self._contact.burst()
        gevent.sleep(REPORT_S)
        cell, users = begin.cell, begin.share.users(begin.cell.users)
        self._say(f"cell {cell.cell + 1}, {cell.arm}, level {cell.level:g}: {record.state if record else error}")
        bound_ns = self._contact.clocks.bound_since(used, since_ns)
        self._record = {
            "error": error, "cell": asdict(record) if record else None, "users": users,
            "agreement": self._session.agreement, "texts": self._session.texts if record else [],
            "word_late_s": self._session.driven.late_s if self._session.driven else None,
            "offset_s": used.offset_ns * 1e-9, "bound_s": None if bound_ns is None else bound_ns * 1e-9,
        }  # fmt: skip

    def _offset(self) -> Offset:
        """Return the distance of the clocks. Raises RunError when the master does not say what time it is."""
        for _ in range(20):
            used = self._contact.clocks.offset(time.perf_counter_ns())
            if used is not None:
                return used
            self._contact.burst()
        raise RunError("the master did not answer when it was asked for the time")

    def _report_on(self) -> None:
        while True:
            self._report()
            bound_log()
            gevent.sleep(REPORT_S if self._contact.silent_s < SILENT_S else 10 * REPORT_S)
            self._mind_the_master()

    def _report(self) -> None:
        """Say how things stand here, and send what the master lacks while it is heard."""
        record, session = self._record, self._session
        self._spool.flush()
        if self._spool.unwritten is not None and not self._trouble:
            self._trouble, self._usage = str(unwritable(self._folder, self._spool.unwritten)), False
        parts = self._spool.to_send() if self._contact.silent_s < SILENT_S else []
        driven = session.driven if session is not None else None
        over = record is not None
        count = driven.phases.count(over=over) if driven and driven.begin.attempt == self._attempt else Count(over=over)
        now = self._contact.clocks.offset(time.perf_counter_ns())
        self._contact.send(REPORT, report(
            ready=session is not None and not self._trouble, trouble=self._trouble, usage=self._usage,
            offset_s=now.offset_ns * 1e-9 if now else None, bound_s=now.bound_ns * 1e-9 if now else None,
            attempt=self._attempt, count=count.message(), rows=self._spool.rows, parts=parts, record=record,
        ))  # fmt: skip

    def _mind_the_master(self) -> None:
        """End a cell whose master has gone: nobody would end its load."""
        if self._session is None or not self._contact.busy:
            return
        if self._contact.silent_s > LOST_S:
            self._session.switches.stop = "the master was not heard of any more"
        if self._contact.stranger:
            self._session.switches.cut = True
