"""Deadlines for thousands of connections on one timer of the hub."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any

from gevent.hub import get_hub

GRAIN_S = 0.001  # the timer rings at most this often, and so for all that are due by then

Alarm = list[Any]  # when, a number that settles ties, and whom to call: None once it is called off


class Alarms:
    """Calls back at given times, in the hub; a callback must not wait and must not raise."""

    __slots__ = ("_alarms", "_numbers", "_rings_s", "_timer")

    def __init__(self) -> None:
        self._alarms: list[Alarm] = []
        self._numbers = itertools.count()
        self._timer: Any = None
        self._rings_s = 0.0  # when the timer rings, while there is one

    def after(self, delay_s: float, call: Callable[[], object]) -> Alarm:
        """Call back `delay_s` seconds from now; hand what is returned to `call_off` when it is not wanted any more."""
        now_s = time.perf_counter()
        alarm: Alarm = [now_s + delay_s, next(self._numbers), call]
        heapq.heappush(self._alarms, alarm)
        if self._timer is None or alarm[0] < self._rings_s - GRAIN_S:
            self._set(now_s)
        return alarm

    @staticmethod
    def call_off(alarm: Alarm) -> None:
        """Forget what was to be called."""
        alarm[2] = None

    def _set(self, now_s: float) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
        delay_s = max(self._alarms[0][0] - now_s, GRAIN_S)
        self._rings_s = now_s + delay_s
        self._timer = get_hub().loop.timer(delay_s)
        self._timer.start(self._ring, update=True)

    def _ring(self) -> None:
        self._timer.close()
        self._timer = None
        now_s = time.perf_counter()
        alarms = self._alarms
        while alarms and (alarms[0][0] <= now_s or alarms[0][2] is None):  # it rings for none that was called off
            call = heapq.heappop(alarms)[2]
            if call is not None:
                call()
        if alarms and self._timer is None:  # a callback may have set it
            self._set(now_s)
