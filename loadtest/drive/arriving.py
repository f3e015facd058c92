"""Sessions that arrive at set times, each as a user of its own; no server and no earlier session holds them up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import gevent
from gevent.pool import Group

from loadtest.drive.client import Client
from loadtest.drive.phases import Phases
from loadtest.drive.timetable import Timetable, pattern_of, trace_of
from loadtest.settings import Experiment
from loadtest.workload.arrivals import TRACE, schedule
from loadtest.workload.sessions import SessionSource

if TYPE_CHECKING:
    from loadtest.drive.context import CellContext

LEAD_S = 0.25  # a user is made this long before its first request is due, so that the body is ready by then
SESSIONS_APART = 1 << 20  # numbers a session's own further draws apart from the sessions that arrive
SENDS_S = 1.0  # a session that arrived this long ago has sent its first request, which falls due as it arrives
LEAST_FAILURES, FAILING_S = 20, 2.0  # failures in a row, and arrivals' worth of them, at which a cell is given up


class Opened:
    """What one cell of an open load has beside a closed one: its timetable, its arrivals and a pool of connections."""

    def __init__(self, experiment: Experiment, level: float, block: int, timetable: Timetable,
                 source: SessionSource | None, own: Callable[[int], bool] = lambda number: True) -> None:  # fmt: skip
        """Take the arrivals of a level and block, from a trace those of the source itself; nothing is sent.

        Those are let in whose number is `own`: another process may see to the others.

        Raises UsageError for a source that has none.
        """
        self.timetable = timetable
        self.most = experiment.load.max_in_flight
        self.hopeless_after = max(LEAST_FAILURES, round(FAILING_S * timetable.sessions_per_s))
        self.next: tuple[int, float] = (0, 0.0)  # number and time of the session that arrives now
        self.begun_s = 0.0
        self._first_s = math.inf  # time of the first session that arrived
        self.turned_away = 0
        self._window = experiment.window
        trace = trace_of(source) if experiment.load.arrivals == TRACE else None
        self._offsets = schedule(
            pattern_of(experiment), timetable.sessions_per_s, seed=experiment.plan.seed, level=level, block=block,
            opens_s=timetable.opens_s, window_s=timetable.window_s, trace=trace,
        )  # fmt: skip
        self._own = own
        self._free: list[Client] = []

    def let_in(self, number: int, at_s: float) -> None:
        """A session arrives: the next user that is made is its own."""
        self.next, self._first_s = (number, at_s), min(self._first_s, at_s)

    def sends_by(self, at_s: float) -> bool:
        """Return whether a session arrived early enough to have sent something by this time."""
        return self._first_s + SENDS_S <= at_s

    def phases(self, now_s: float) -> Phases:
        """Begin: return the phases of a cell whose first session can arrive a lead from now on."""
        self.begun_s = now_s + LEAD_S
        times = self.begun_s + self.timetable.opens_s, self.begun_s + self.timetable.closes_s
        return Phases(self._window, 0, self.begun_s, 0.0, times)

    def arrivals(self) -> Iterator[tuple[int, float]]:
        """Yield (number, time) of the sessions that are its own, in order and without end."""
        for number, offset_s in enumerate(self._offsets):
            if self._own(number):
                yield number, self.begun_s + offset_s

    def take(self, new: Callable[[], Client]) -> Client:
        """Return a connection for one request: the one that was used last, or a new one."""
        return self._free.pop() if self._free else new()

    def give_back(self, client: Client) -> None:
        """Keep a connection for the next request."""
        self._free.append(client)

    def close(self) -> None:
        """Close the connections."""
        while self._free:
            self._free.pop().close()


class Arriving:
    """A greenlet that lets the sessions of a cell in, and the group of those that are under way."""

    def __init__(self, context: CellContext, user_class: type, environment: Any,
                 failed: Callable[[BaseException], None]) -> None:  # fmt: skip
        """Begin; `failed` is told of an error in the scenario's own `__init__`."""
        self._context, self._user_class, self._environment, self._failed = context, user_class, environment, failed
        self._group = Group()
        self._greenlet = gevent.spawn(self._let_in)

    def _let_in(self) -> None:
        context = self._context
        assert context.opened is not None
        for number, at_s in context.opened.arrivals():
            wait_s = at_s - LEAD_S - context.clock.now_s()
            if wait_s > 0:
                gevent.sleep(wait_s)
            if not context.accepting:
                return
            context.opened.let_in(number, at_s)
            try:
                self._user_class(self._environment).start(self._group)
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # a scenario may raise anything
                self._failed(error)
                return

    def stop(self) -> None:
        """Let nobody in any more, and end the sessions that are under way."""
        self._greenlet.kill()
        self._group.kill()
        assert self._context.opened is not None
        self._context.opened.close()
