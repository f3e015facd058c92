"""A worker's contact with its master: joining, files, the distance of the clocks, and the master's word on the cell."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import gevent
from gevent.event import Event

import loadtest
from loadtest.drive.header import boot_id
from loadtest.drive.workers.files import Fetched, Named
from loadtest.drive.workers.messages import (
    JOIN,
    PART,
    PING,
    PONG,
    REFUSED,
    STATE,
    STRANGER,
    WANT,
    WELCOME,
    Heard,
    Line,
)
from loadtest.drive.workers.offset import Clocks, RoundTrip
from loadtest.drive.workers.peers import SAID, one_line
from loadtest.errors import RunError, UsageError

ASK_S = 0.5  # until something is asked for again
AGAIN_S = 3.0  # silence after which the worker connects anew
PING_S = (0.1, 0.5)  # between two questions for the time: idle, and while a cell is driven
BURST, BURST_S = 8, 0.01  # questions one after the other, around a cell


class Contact:
    """One worker's end of the line."""

    def __init__(self, host: str, port: int, node: str, on_state: Callable[[Mapping[str, Any]], None]) -> None:
        """Connect; `on_state` is given what the master says of how things stand."""
        self._where, self._on_state = f"{host}:{port}", on_state
        self._line = Line(host, port, node)
        self.welcome: dict[str, Any] = {}
        self.clocks = Clocks(same=False)
        self.busy = False  # a cell is being driven
        self.stranger = ""  # the run whose master answers and does not know this worker
        self._heard_s = time.monotonic()
        self._refused = ""
        self._came = Event()
        self._part: dict[str, Any] = {}
        self._greenlets = [gevent.spawn(self._listen)]

    def join(self, name: str, wait_s: float) -> None:
        """Ask until the master welcomes it. Raises UsageError when it refuses, RunError without an answer."""
        told = {
            "version": loadtest.__version__, "name": name, "host": socket.gethostname(), "pid": os.getpid(),
            "cpus": os.cpu_count(), "python": platform.python_version(), "platform": platform.platform(),
            "boot": boot_id(),
        }  # fmt: skip
        until_s = time.monotonic() + wait_s
        while not self.welcome:
            self._came.clear()
            self._line.send(JOIN, told)
            self._came.wait(ASK_S)
            if self._refused:
                raise UsageError(f"The master at {self._where} refuses this worker: {self._refused}")
            if time.monotonic() > until_s:
                raise RunError(
                    f"No master answered at {self._where} for {wait_s:g} s: is a run with --expect-workers under way"
                    " there, and does its --bind let this machine in?"
                )
        self.clocks = Clocks(same=bool(self.welcome["same_clock"]))
        self.burst()
        self._greenlets.append(gevent.spawn(self._ask_the_time))

    def fetch(self, files: Fetched, named: Named, limit_s: float) -> None:
        """Have a file of the master's here. Raises RunError when it does not come."""
        until_s = time.monotonic() + limit_s
        while (want := files.take(named)) is not None:
            self._came.clear()
            self._part = {}
            self._line.send(WANT, want)
            self._came.wait(ASK_S)
            if self._part:
                files.came(self._part)
                until_s = time.monotonic() + limit_s
            elif time.monotonic() > until_s:
                raise RunError(f"{named.path} did not come from the master within {limit_s:g} s.")

    def burst(self) -> None:
        """Ask for the time a few times, one right after the other."""
        for _ in range(BURST):
            self._ping()
            gevent.sleep(BURST_S)

    def send(self, kind: str, data: Mapping[str, Any]) -> None:
        """Say something to the master."""
        self._line.send(kind, data)

    @property
    def silent_s(self) -> float:
        """Seconds since the master was last heard."""
        return time.monotonic() - self._heard_s

    def close(self, *, at_once: bool = False) -> None:
        """End; what was said last still goes out, unless it is to be over at once."""
        gevent.killall(self._greenlets)
        self._line.close(*(0,) if at_once else ())

    def _ask_the_time(self) -> None:
        while True:
            gevent.sleep(PING_S[self.busy])
            self._ping()

    def _ping(self) -> None:
        self._line.send(PING, {"asked_ns": time.perf_counter_ns()})

    def _listen(self) -> None:
        again_s = AGAIN_S
        while True:
            heard = self._line.receive(ASK_S)
            now_ns = time.perf_counter_ns()
            if heard is not None:
                if heard.kind != STRANGER:  # the master that this worker joined says nothing any more
                    self._heard_s, again_s = time.monotonic(), AGAIN_S
                self._take(heard, now_ns)
            elif self.silent_s > again_s:
                again_s += AGAIN_S
                self._line.again()

    def _take(self, heard: Heard, now_ns: int) -> None:
        try:
            self._understand(heard, now_ns)
        except (KeyError, TypeError, ValueError):
            return  # it makes no sense: whoever sent it is no master of this version

    def _understand(self, heard: Heard, now_ns: int) -> None:
        data = heard.data
        if heard.kind == PONG:
            self.clocks.add(RoundTrip(asked_ns=data["asked_ns"], heard_ns=data["heard_ns"],
                                      answered_ns=data["answered_ns"], came_ns=now_ns))  # fmt: skip
        elif heard.kind == STATE:
            self._on_state(data)
        elif heard.kind == WELCOME:
            self.welcome = self.welcome or data
            self._came.set()
        elif heard.kind == STRANGER:
            self.stranger = one_line(str(data["run_id"]), SAID)
        elif heard.kind == REFUSED:
            self._refused = str(data.get("why"))
            self._came.set()
        elif heard.kind == PART:
            self._part = data
            self._came.set()
