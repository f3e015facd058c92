"""The client proves itself: how late its timers fire, how much of a core it uses, what a server says meanwhile.

What a cell keeps for it grows by a number or two per request and beat, whatever the length of the answers.
"""

from __future__ import annotations

import resource
import time
from array import array
from collections.abc import Callable, Sequence

import gevent

from loadtest.drive.client import Clock
from loadtest.record import Request, Scrape
from loadtest.servers.control import Control

KeepScrape = Callable[[Scrape], None]
TICK_S = 0.005  # the cell's own timer; its lateness is the hub's lag
MAX_SAMPLES = 200  # of a server's gauges in one window


def cpu_s() -> float:
    """Return the CPU seconds that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def quantile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank quantile of values, None for none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def suspended_s() -> float | None:
    """Return the seconds that this machine has slept since it started; None where the system does not say."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return None
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Evidence:
    """Collects, over one window, what tells an overloaded client from a slow server."""

    def __init__(self, clock: Clock) -> None:
        """Start empty; `open` and `close` mark the window."""
        self._clock = clock
        self._lag_s = array("d")
        self._area = 0.0  # of requests in flight over time
        self._in_flight, self._since_s = 0, 0.0
        self._cpu_s = 0.0
        self._open_s = 0.0
        self._steps = 0
        self._slept_s: float | None = None
        self.cpu_ratio: float | None = None
        self.in_flight_mean: float | None = None
        self.suspended_s: float | None = None  # the machine slept this long within the window
        self.clock_steps: int | None = None  # times that the wall clock was seen to be set within the window
        self._is_open = False

    def open(self, now_s: float, in_flight: int) -> None:
        """The window opens."""
        self._is_open, self._open_s, self._cpu_s = True, now_s, cpu_s()
        self._in_flight, self._since_s = in_flight, now_s
        self._steps, self._slept_s = self._clock.steps, suspended_s()

    def tick(self, now_s: float, late_s: float, in_flight: int) -> None:
        """Take one beat of the cell's timer: how late it came, and what is in flight."""
        if self._is_open:
            self._lag_s.append(late_s)
            self._count(now_s)
            self._in_flight = in_flight

    def _count(self, now_s: float) -> None:
        self._area += self._in_flight * (now_s - self._since_s)
        self._since_s = now_s

    def close(self, now_s: float) -> None:
        """The window closes."""
        self._is_open = False
        length = now_s - self._open_s
        self._count(now_s)
        self.cpu_ratio = (cpu_s() - self._cpu_s) / length
        self.in_flight_mean = self._area / length
        self.clock_steps = self._clock.steps - self._steps
        slept_s = suspended_s()
        if slept_s is not None and self._slept_s is not None:
            self.suspended_s = max(0.0, slept_s - self._slept_s)

    @property
    def hub_lag_p99_s(self) -> float | None:
        """99th percentile of the lateness of the cell's timer."""
        return quantile(self._lag_s, 0.99)

    @property
    def hub_lag_max_s(self) -> float | None:
        """Largest lateness of the cell's timer: how long the client stood still."""
        return max(self._lag_s, default=None)


class Streams:
    """Collects what the streams of the requests due in one window tell of the client; keeps no request."""

    def __init__(self) -> None:
        """Start empty."""
        self._chunks = self._coalesced = 0
        self._lags_s = array("d")

    def add(self, request: Request) -> None:
        """Take in a finished request."""
        if request.chunk_s:
            self._chunks += len(request.chunk_s)
            self._coalesced += request.coalesced
            self._lags_s.append(request.lag_max_s)

    @property
    def coalesced_ratio(self) -> float | None:
        """Share of the chunks that shared a read with an earlier one."""
        return self._coalesced / self._chunks if self._chunks else None

    @property
    def lag_p99_s(self) -> float | None:
        """99th percentile over requests of their largest (time of processing − stamp)."""
        return quantile(self._lags_s, 0.99)


def scrape(control: Control, clock: Clock, cell: int, moment: str) -> Scrape:
    """Read a server's counters once; `t_s` is the middle of the request."""
    values, positions, took_s, error = control.scrape()
    return Scrape(t_s=clock.now_s() - took_s / 2, arm=control.arm.name, cell=cell, moment=moment, values=values,
                  per_position=positions, took_s=took_s, error=error)  # fmt: skip


class Sampler:
    """A greenlet that reads a server's gauges at even intervals while a window is open."""

    def __init__(self, control: Control, clock: Clock, cell: int, interval_s: float, keep: KeepScrape) -> None:
        """Start sampling at once."""
        self._greenlet = gevent.spawn(self._sample, control, clock, cell, interval_s, keep)

    @staticmethod
    def _sample(control: Control, clock: Clock, cell: int, interval_s: float, keep: KeepScrape) -> None:
        for _ in range(MAX_SAMPLES):
            gevent.sleep(interval_s)
            keep(scrape(control, clock, cell, "sample"))

    def stop(self) -> None:
        """Stop sampling."""
        self._greenlet.kill()


def sample_interval_s(window_s: float) -> float:
    """Return the pace of gauge samples: every second, on short windows at least six, at most MAX_SAMPLES."""
    return max(min(1.0, window_s / 6), window_s / MAX_SAMPLES)
