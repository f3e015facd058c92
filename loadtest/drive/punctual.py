"""Waiting until an instant, punctual to some ten microseconds.

The hub's own timers go by the whole milliseconds of epoll_wait, and so fire half a millisecond late on average. Linux
has timers that are read like files (timerfd_create(2)): one of them wakes every greenlet that waits here. A core that
has slept takes a while to wake: after a longer wait the timer rings early, and the rest is waited for awake.
"""

from __future__ import annotations

import ctypes
import heapq
import itertools
import math
import os
import struct
import sys
import time
from typing import Any, cast
from weakref import WeakKeyDictionary

import gevent
from gevent.hub import Waiter, get_hub

EARLY_S = 0.0002  # that the timer is set ahead of an instant
IDLE_S = 0.002  # of waiting, before that is worth it
_MONOTONIC, _ABSOLUTE = 1, 1  # <time.h>, <sys/timerfd.h>
_READABLE = 1
_timer_spec = struct.Struct("@llll").pack  # interval and first expiry, each in seconds and nanoseconds


def _kernel() -> Any:
    """Return the C library, if it has such timers; None elsewhere."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    return library if hasattr(library, "timerfd_create") and hasattr(library, "timerfd_settime") else None


class Waits:
    """The greenlets that wait for an instant, on one timer of the kernel."""

    def __init__(self) -> None:
        """Raise OSError where the kernel gives no timer."""
        self._library = _kernel()
        descriptor = -1
        if self._library is not None:
            descriptor = self._library.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), "no timer that can be read")
        self._descriptor = descriptor
        self._coming: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()
        self.next_s = math.inf  # the next instant that somebody waits for
        self._watcher = cast(Any, get_hub().loop.io(descriptor, _READABLE))
        self._watcher.start(self._ring)
        self._watcher.ref = False  # while nobody waits: a hub with nothing else to do may end

    def until(self, at_s: float) -> None:
        """Wait until an instant of `time.perf_counter`."""
        waiter: Any = Waiter()
        entry = (at_s, next(self._numbers), waiter)
        heapq.heappush(self._coming, entry)
        self._watcher.ref = True
        if self._coming[0] is entry:
            self._set(at_s)
        waiter.get()

    def _set(self, at_s: float) -> None:
        self.next_s = at_s
        if at_s - time.perf_counter() > IDLE_S:
            at_s -= EARLY_S
        seconds, nanoseconds = divmod(max(int(at_s * 1e9), 1), 1_000_000_000)
        self._library.timerfd_settime(self._descriptor, _ABSOLUTE, _timer_spec(0, 0, seconds, nanoseconds), None)

    def _ring(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            return
        coming, now_s = self._coming, time.perf_counter()
        while coming and coming[0][0] <= now_s + EARLY_S:
            at_s, _, waiter = heapq.heappop(coming)
            while now_s < at_s:
                now_s = time.perf_counter()
            if waiter.greenlet is not None:  # else it was killed meanwhile, or waits no more
                waiter.switch(None)
                now_s = time.perf_counter()
        if coming:
            self._set(coming[0][0])
        else:
            self._watcher.ref = False
            self.next_s = math.inf


# By hub, since a thread may have one of its own; None: there is no such timer.
_waits: WeakKeyDictionary[Any, Waits | None] = WeakKeyDictionary()


def sleep_until(at_s: float) -> None:
    """Wait until an instant of `time.perf_counter`; one that has passed is not waited for."""
    wait_s = at_s - time.perf_counter()
    if wait_s <= 0:
        return
    waits = waits_of_hub()
    if waits is None:
        gevent.sleep(wait_s)
    else:
        waits.until(at_s)


def waits_of_hub() -> Waits | None:
    """Return what the greenlets of this hub wait on; None where the system has no such timer."""
    hub = get_hub()
    if hub not in _waits:
        try:
            _waits[hub] = Waits()
        except OSError:
            _waits[hub] = None
    return _waits[hub]
