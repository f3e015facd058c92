"""The run's clock: every instant of a run is a number of seconds on it.

It is CLOCK_MONOTONIC (`time.perf_counter_ns`), set to 0 at the run's origin. The kernel stamps arriving packets with
CLOCK_REALTIME; such a stamp is carried over by the distance of the two clocks at the moment of the read, so that a step
or slew of the wall clock does not reach the figures.
"""

from __future__ import annotations

import functools
import socket
import struct
import sys
import time

from gevent import monkey

SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>: stamps as a struct timespec of two native longs
KERNEL_STAMPS = sys.platform == "linux"
STAMP_SPACE = socket.CMSG_SPACE(struct.calcsize("@ll"))

_RECHECK_NS = 5_000  # a distance that moved by more is measured again: a preemption between two calls looks alike
_STEP_NS = 1_000_000  # a distance that moved by more than this, and more than a slew of 0.1 %, is a step
_SLEW = 1e-3

_timespec = struct.Struct("@ll").unpack


class Clock:
    """Seconds since the run's origin, and the conversion of the kernel's packet stamps to them."""

    __slots__ = ("_distance_ns", "_measured_ns", "_valid_from_ns", "origin_ns", "steps")

    def __init__(self, origin_ns: int | None = None) -> None:
        """Set 0 to `origin_ns` of `time.perf_counter_ns`; without it, to now."""
        self.origin_ns = time.perf_counter_ns() if origin_ns is None else origin_ns
        self.steps = 0  # steps of the wall clock noticed so far
        self._distance_ns, self._measured_ns = _distance()
        self._valid_from_ns = self._measured_ns
        if KERNEL_STAMPS:
            _keep_stamping_on()

    def now_s(self) -> float:
        """Return the seconds since the origin."""
        return (time.perf_counter_ns() - self.origin_ns) * 1e-9

    def perf_s(self, at_s: float) -> float:
        """Return what `time.perf_counter` reads at an instant of the run."""
        return at_s + self.origin_ns * 1e-9

    def at_s(self, perf_ns: int) -> float:
        """Return the seconds since the origin of a reading of `time.perf_counter_ns`."""
        return (perf_ns - self.origin_ns) * 1e-9

    def arrival_ns(self, timespec: bytes, now_ns: int) -> int:
        """Return the packet's arrival on `perf_counter_ns`, or -1 where the stamp cannot be trusted.

        `timespec` is the body of the SO_TIMESTAMPNS message; `now_ns` was read just before this call. A stamp is not
        trusted when it lies before the last step of the wall clock, or in the future.
        """
        distance = time.time_ns() - now_ns
        moved = distance - self._distance_ns
        if moved > _RECHECK_NS or moved < 0:
            self._measure_again()
        seconds, nanoseconds = _timespec(timespec)
        arrival: int = seconds * 1_000_000_000 + nanoseconds - self._distance_ns
        if self._valid_from_ns <= arrival <= now_ns:
            return arrival
        # The clocks are read some tens of ns apart, so a stamp just taken may seem to lie that much ahead.
        return now_ns if now_ns < arrival < now_ns + _RECHECK_NS else -1

    def _measure_again(self) -> None:
        distance, at_ns = _distance()
        allowed = max(_STEP_NS, (at_ns - self._measured_ns) * _SLEW)
        if abs(distance - self._distance_ns) > allowed:
            self.steps += 1
            self._valid_from_ns = at_ns
        self._distance_ns, self._measured_ns = distance, at_ns


def _distance() -> tuple[int, int]:
    """Return CLOCK_REALTIME − CLOCK_MONOTONIC in ns and when it was measured; the tightest of three tries."""
    tries = []
    for _ in range(3):
        before = time.perf_counter_ns()
        wall = time.time_ns()
        after = time.perf_counter_ns()
        tries.append((after - before, wall - before, after))
    _, distance, at_ns = min(tries)
    return distance, at_ns


@functools.cache
def _keep_stamping_on() -> int:
    """Hold one stamping socket open for the life of the process.

    The kernel stamps packets only while some socket asks for it, and starts a little after the first one does; with
    this one open, the first packets of every later connection are stamped too.
    """
    plain = monkey.get_original("socket", "socket")
    holder = plain(socket.AF_INET, socket.SOCK_DGRAM)
    holder.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    fileno: int = holder.detach()
    return fileno
