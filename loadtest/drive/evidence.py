"""The client proves itself: how late its timers fire, how much of a core it uses, what a server says meanwhile."""

from __future__ import annotations

import resource
from collections.abc import Callable
from itertools import pairwise

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


def quantile(values: list[float], share: float) -> float | None:
    """Return the nearest-rank quantile of values, None for none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


class Evidence:
    """Collects, over one window, what tells an overloaded client from a slow server."""

    def __init__(self) -> None:
        """Start empty; `open` and `close` mark the window."""
        self._lag_s: list[float] = []
        self._in_flight: list[tuple[float, int]] = []
        self._cpu_s = 0.0
        self._open_s = 0.0
        self.cpu_ratio: float | None = None
        self.in_flight_mean: float | None = None
        self._is_open = False

    def open(self, now_s: float, in_flight: int) -> None:
        """The window opens."""
        self._is_open, self._open_s, self._cpu_s = True, now_s, cpu_s()
        self._in_flight = [(now_s, in_flight)]

    def tick(self, now_s: float, late_s: float, in_flight: int) -> None:
        """Take one beat of the cell's timer: how late it came, and what is in flight."""
        if self._is_open:
            self._lag_s.append(late_s)
            self._in_flight.append((now_s, in_flight))

    def close(self, now_s: float) -> None:
        """The window closes."""
        self._is_open = False
        length = now_s - self._open_s
        self.cpu_ratio = (cpu_s() - self._cpu_s) / length
        rows = [*self._in_flight, (now_s, 0)]
        area = sum(n * (after - before) for (before, n), (after, _) in pairwise(rows))
        self.in_flight_mean = area / length

    @property
    def hub_lag_p99_s(self) -> float | None:
        """99th percentile of the lateness of the cell's timer."""
        return quantile(self._lag_s, 0.99)


def stream_evidence(requests: list[Request]) -> tuple[float | None, float | None]:
    """Return (share of chunks that shared a read, p99 over requests of the largest processing lag in seconds)."""
    chunks = sum(len(request.chunk_s) for request in requests)
    coalesced = sum(request.coalesced for request in requests)
    lags = [request.lag_max_s for request in requests if request.chunk_s]
    return (coalesced / chunks if chunks else None), quantile(lags, 0.99)


def scrape(control: Control, clock: Clock, cell: int, moment: str) -> Scrape:
    """Read a server's counters once; `t_s` is the middle of the request."""
    began_s = clock.now_s()
    values, positions, took_s, error = control.scrape()
    return Scrape(t_s=began_s + took_s / 2, arm=control.arm.name, cell=cell, moment=moment, values=values,
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
