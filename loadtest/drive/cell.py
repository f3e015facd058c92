"""Running one cell: idle server, staggered users, warm-up, window, hold, drain, and the scrapes around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent

import loadtest
from loadtest.drive.client import Clock
from loadtest.drive.context import CellContext
from loadtest.drive.evidence import TICK_S, Evidence, Sampler, Streams, quantile, sample_interval_s, scrape
from loadtest.drive.own_users import Users
from loadtest.drive.phases import Phase
from loadtest.errors import UsageError
from loadtest.record import NOT_CARRIED, TOO_MANY, CellRecord, Request, Scrape
from loadtest.servers.control import Control
from loadtest.servers.counters import is_idle

PACKAGE = str(Path(loadtest.__file__).parent)
IDLE_POLL_S = 0.05
BLIND_PAUSE_S = 1.0  # between cells of a server that does not say whether it works: what was cut off may end
SETTLE_S = 5.0  # after the drain: counters follow within a step
LIVE_EVERY_S = 0.25
IDLES = "The scenario ran on without sending a request: does it call self.chat()?"
CUT_DRAIN_S = 10.0  # after an interrupt: what is in flight may still end, this long


@dataclass(slots=True, kw_only=True)
class Switches:
    """What the outside may ask of a running cell."""

    stop: str = ""  # reason to issue nothing more and drain
    cut: bool = False  # end at once: the parent is gone, or asked twice
    unwritten: OSError | None = None  # the records cannot be written any more


class CellRun:
    """One cell from the first idle wait to the last scrape."""

    def __init__(self, *, context: CellContext, users: Users, control: Control | None, switches: Switches,
                 keep_scrape: Callable[[Scrape], None], tell: Callable[[dict[str, Any]], None]) -> None:  # fmt: skip
        """Prepare; nothing is sent before `run`."""
        self.context, self._users, self._control = context, users, control
        self._switches, self._keep_scrape, self._tell = switches, keep_scrape, tell
        self._clock: Clock = context.clock
        self._evidence = Evidence(context.clock)
        self._streams = Streams()
        self._scraping: list[gevent.Greenlet[..., None]] = []
        self._scenario_error: UsageError | None = None
        self.state, self.reason = "complete", ""

    def run(self, order: int, idle_wait_s: float) -> CellRecord:
        """Drive the cell to its end and return its record; raises UsageError when the scenario's own code raises."""
        context, started_s = self.context, self._clock.now_s()
        context.target.endpoint.forget_answers()
        self._scrape("idle_before")
        context.begin()
        self._users.start(self._on_error)
        try:
            self._follow()
        finally:
            self._users.stop()
        if self._idles and self.state == "complete":  # an open load has no warm-up that waits for requests
            self._scenario_error = UsageError(IDLES)
        self._raise_scenario_error()
        self._settle()
        return self._users.whole(self._record(order, started_s, idle_wait_s))

    def _follow(self) -> None:
        phases, told_s, sampler = self.context.phases, 0.0, None
        before, drain_s = Phase.START, None
        planned_s = self._clock.now_s()
        while True:
            now_s = self._clock.now_s()
            self._evidence.tick(now_s, now_s - planned_s, phases.in_flight)
            self._consider_stopping(now_s)
            phase = phases.tick(now_s)
            if phase is not before:
                if phase is Phase.WINDOW:
                    sampler = self._open_window(now_s)
                elif before is Phase.WINDOW:
                    self._close_window(now_s, sampler)
                if phase is Phase.DRAIN:
                    drain_s = now_s
                before = phase
            if phase is Phase.OVER or (drain_s is not None and self._give_up_draining(now_s - drain_s)):
                return
            if now_s - told_s >= LIVE_EVERY_S:
                told_s = now_s
                self._tell_live(now_s, phase)
            planned_s = now_s + TICK_S
            gevent.sleep(TICK_S)

    def _consider_stopping(self, now_s: float) -> None:
        if self.state != "complete":
            return
        if self._switches.stop or self._switches.cut:
            self.state, self.reason = "interrupted", self._switches.stop
        elif self._switches.unwritten is not None:
            self.state, self.reason = "aborted", f"its records cannot be written ({self._switches.unwritten})"
        elif self._scenario_error is not None:
            self.state, self.reason = "aborted", str(self._scenario_error)
        elif self.context.opened is not None and self.context.opened.turned_away:
            self.state, most = NOT_CARRIED, self.context.opened.most
            self.reason = f"{most} {TOO_MANY}: they arrive faster than they are served"
        elif self._idles:
            self._scenario_error = UsageError(IDLES)
            self.state, self.reason = "aborted", IDLES
        elif trouble := self._users.trouble():
            self.state, self.reason = "aborted", trouble
        elif self.context.hopeless:
            self.state = NOT_CARRIED
            self.reason = f"{self.context.failures_in_a_row} requests in a row failed ({self.context.last_error})"
        else:
            return
        self.context.phases.stop()

    @property
    def _idles(self) -> bool:
        """Whether users ran on for a whole warm-up, or sessions to a window's end, without sending anything.

        A worker's first own session may arrive after the window, when the load is only held.
        """
        phases, opened = self.context.phases, self.context.opened
        closed_s = phases.window_close_s
        over = phases.warmup_cut if opened is None else closed_s is not None and opened.sends_by(closed_s)
        return over and not phases.issued

    def _give_up_draining(self, drained_for_s: float) -> bool:
        if self._switches.cut or self._switches.unwritten is not None or self._scenario_error is not None:
            return True
        return self.state == "interrupted" and drained_for_s > CUT_DRAIN_S

    def _open_window(self, now_s: float) -> Sampler | None:
        interval_s = sample_interval_s(self.context.experiment.window.min_s)
        self._evidence.open(now_s, self.context.phases.in_flight)
        if self._control is None:
            return None
        self._scraping = [gevent.spawn(self._scrape, "window_open")]
        return Sampler(self._control, self._clock, self.context.cell.cell, interval_s, self._keep_scrape)

    def _close_window(self, now_s: float, sampler: Sampler | None) -> None:
        self._evidence.close(now_s)
        if sampler is not None:
            sampler.stop()
            self._scraping.append(gevent.spawn(self._scrape, "window_close"))

    def _scrape(self, moment: str) -> None:
        if self._control is not None:
            self._keep_scrape(scrape(self._control, self._clock, self.context.cell.cell, moment))

    def _settle(self) -> None:
        if self._control is None or self._switches.cut:
            return
        gevent.joinall(self._scraping, timeout=SETTLE_S)
        wait_until_idle(self._control, self._clock, SETTLE_S)
        self._scrape("idle_after")

    def _tell_live(self, now_s: float, phase: Phase) -> None:
        tokens_per_s, ttft_s = self.context.live.figures(now_s)
        self._tell({"event": "tick", "phase": phase.value, "tokens_per_s": tokens_per_s, "ttft_p50_s": ttft_s,
                    "in_flight": self.context.phases.in_flight, "errors": self.context.live.errors})  # fmt: skip

    def _on_error(self, error: BaseException) -> None:
        if self._scenario_error is None:
            self._scenario_error = scenario_error(error, error.__traceback__)

    def _raise_scenario_error(self) -> None:
        if self._scenario_error is not None:
            raise self._scenario_error

    def keep(self, request: Request) -> None:
        """Note a finished request for the cell's own evidence."""
        if self.context.in_window(request):
            self._streams.add(request)

    def _record(self, order: int, started_s: float, idle_wait_s: float) -> CellRecord:
        context, phases, cell = self.context, self.context.phases, self.context.cell
        lateness = context.lateness_s
        if phases.warmup_cut and not self.reason:
            self.reason = "the warm-up was cut at its longest time"
        return CellRecord(
            cell=cell.cell, arm=cell.arm, level=cell.level, block=cell.block, order=order, state=self.state,
            reason=self.reason, started_s=started_s, window_open_s=phases.window_open_s,
            window_close_s=phases.window_close_s, drained_s=phases.drained_s,
            in_flight_mean=self._evidence.in_flight_mean, lateness_p50_s=quantile(lateness, 0.5),
            lateness_p99_s=quantile(lateness, 0.99), client_cpu_ratio=self._evidence.cpu_ratio,
            hub_lag_p99_s=self._evidence.hub_lag_p99_s, hub_lag_max_s=self._evidence.hub_lag_max_s,
            models=sorted(context.target.endpoint.models), oddities=dict(context.target.endpoint.oddities),
            suspended_s=self._evidence.suspended_s, clock_steps=self._evidence.clock_steps,
            coalesced_ratio=self._streams.coalesced_ratio, lag_p99_s=self._streams.lag_p99_s,
            idle_wait_s=idle_wait_s, warmup_requests=phases.warmup_requests,
        )  # fmt: skip


def wait_until_idle(control: Control, clock: Clock, limit_s: float) -> float | None:
    """Wait until the server works on nothing; return the seconds waited, None when it did not become idle in time.

    A server that publishes no gauges is given BLIND_PAUSE_S, and then taken as idle.
    """
    began_s = clock.now_s()
    while True:
        values, _, _, error = control.scrape()
        idle = None if error else is_idle(values)
        if idle is None:
            gevent.sleep(min(BLIND_PAUSE_S, limit_s))
        if idle is not False:
            return clock.now_s() - began_s
        if clock.now_s() - began_s > limit_s:
            return None
        gevent.sleep(IDLE_POLL_S)


def scenario_error(exception: BaseException, tb: Any) -> UsageError:
    """Return the sentence for an exception that a scenario's own code raised."""
    if isinstance(exception, UsageError):
        return exception
    frames: list[tuple[str, int, str]] = []
    while tb is not None:
        frames.append((tb.tb_frame.f_code.co_filename, tb.tb_lineno, tb.tb_frame.f_code.co_name))
        tb = tb.tb_next
    own = [frame for frame in frames if "site-packages" not in frame[0] and not frame[0].startswith(PACKAGE)]
    file, line, function = (own or frames or [("?", 0, "?")])[-1]
    what = f"{type(exception).__name__}: {exception}"
    return UsageError(f"The scenario raised {what} ({file}, line {line}, in {function}).")
