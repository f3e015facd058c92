"""The parent's side of the driver: start it, hear its progress, stop it; imports neither Locust nor gevent."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from loadtest.drive.job import Job
from loadtest.errors import ExitCode
from loadtest.servers.process import killed_by

SAME_ORDER = {"PYTHONHASHSEED": "0"}  # a scenario that goes through a set then asks the same in every run and process
SILENT_S = 20.0  # the driver gives a sign of life twice a second, unless something in it never gives way
HUNG = (
    f"The scenario kept the driver busy for {SILENT_S:g} s without giving way: an endless loop, or a call that blocks"
    " the whole process, in a task? The driver was ended."
)
LEFT = (
    "The driver's process was ended from within, with code {}: does the scenario, or a library that it uses, call"
    " os._exit? Let a task end by returning."
)
STOP_S = 30.0  # a driver that was asked to stop drains this long at most


class DriverProcess:
    """The driver as a child in its own session, so that Ctrl-C in a terminal reaches the parent alone."""

    def __init__(self, job: Job, held: Collection[int] = ()) -> None:
        """Write the job file and start the driver; it holds open the descriptors `held` as long as it lives."""
        path = job.folder / "job.json"
        job.write(path)
        self._log = job.folder / "driver.log"
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "loadtest.drive.driver", str(path)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, start_new_session=True, cwd=Path.cwd(),
                pass_fds=tuple(held), env=os.environ | SAME_ORDER,
            )  # fmt: skip
        self._asked = 0
        self.ending = False  # whether it has been told to end: what it needs then is of no use any more
        self._read = b""
        self._beats = self._hung = False

    def follow(self, tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """Pass on every event until the driver ends; return its last word, or how it died.

        A KeyboardInterrupt (or SIGTERM turned into one) asks the driver to stop and goes on following; a second one
        kills it.
        """
        last: dict[str, Any] = {}
        while True:
            try:
                for line in self._lines():
                    event = json.loads(line)
                    if event["event"] == "beat":
                        self._beats = True
                        continue
                    if event["event"] == "end":
                        last = event
                    tell(event)
                code = self._process.wait()
                break
            except KeyboardInterrupt:
                self._ask_to_stop()
        if self._hung or code == -signal.SIGXCPU:
            return {"event": "end", "state": "aborted", "kind": "usage", "reason": HUNG}
        if code >= 0 and code != ExitCode.CRASH and not last:
            return {"event": "end", "state": "aborted", "kind": "usage", "reason": LEFT.format(code)}
        return last or {"event": "end", "state": "aborted", "kind": "run", "reason": self._how_it_died(code)}

    def answer(self, data: dict[str, Any]) -> None:
        """Answer the driver's question; one that has ended asks no more."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(data).encode() + b"\n")
            self._process.stdin.flush()

    def _lines(self) -> Iterator[bytes]:
        """Yield whole lines until the driver closes its side; what was read stays when an interrupt breaks in."""
        assert self._process.stdout is not None
        source = self._process.stdout.fileno()
        while True:
            while (end := self._read.find(b"\n")) >= 0:
                line, self._read = self._read[:end], self._read[end + 1 :]
                yield line
            heard, _, _ = select.select([source], [], [], SILENT_S)
            if not heard and self._beats:
                self._hung = True
                self._signal(signal.SIGKILL)
            data = os.read(source, 65536) if heard else b""
            if heard and not data:
                return
            self._read += data

    def _ask_to_stop(self) -> None:
        self._asked += 1
        if self._asked > 1:
            self._signal(signal.SIGKILL)
            return
        self._end_soon()

    def _end_soon(self) -> None:
        self.ending = True
        self._signal(signal.SIGTERM)
        timer = threading.Timer(STOP_S, self._signal, [signal.SIGKILL])
        timer.daemon = True
        timer.start()

    def give_up(self) -> None:
        """End a run that is not worth going on: nothing more is issued, what is measured stays."""
        self._end_soon()

    @property
    def asked_to_stop(self) -> bool:
        """Whether the user stopped the run."""
        return self._asked > 0

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _how_it_died(self, code: int) -> str:
        if code < 0:
            return f"the driver was killed by {killed_by(code)}"
        tail = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"the driver ended with code {code}; the last that it wrote: {tail[-1] if tail else 'nothing'}"

    def close(self) -> None:
        """Make sure that it has ended."""
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
