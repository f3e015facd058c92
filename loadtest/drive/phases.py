"""The phases of a cell, as a pure state machine: the real driver and the virtual one ask it the same questions.

staggered start → warm-up at full load → window → hold (load stays on until every request due in the window has ended)
→ drain (no new requests) → over. Times are seconds on the run's clock.
"""

from __future__ import annotations

import math
import statistics
from enum import StrEnum

from loadtest.settings import Window

PAUSE_AFTER_FAILURE_S = 1.0  # least pause of a closed load's user whose request failed


class Phase(StrEnum):
    """Where a cell stands."""

    START = "start"
    WARMUP = "warm-up"
    WINDOW = "window"
    HOLD = "hold"
    DRAIN = "drain"
    OVER = "over"


class Phases:
    """Follow one cell: told of each request that falls due and ends, and of the time, it says which phase holds."""

    def __init__(self, window: Window, users: int, started_s: float, stagger_s: float,
                 fixed: tuple[float, float] | None = None) -> None:  # fmt: skip
        """Begin at `started_s`; the last of `users` starts `stagger_s` later, when full load begins.

        `fixed` is when the window opens and closes, where that is known beforehand: in an open load.
        """
        self._rule = window
        self._users = users
        self._fixed = fixed
        self.phase = Phase.START
        self.full_load_s = started_s + stagger_s
        self.window_open_s: float | None = None
        self.window_close_s: float | None = None
        self.drained_s: float | None = None
        self.warmup_requests = 0
        self.warmup_cut = False
        self._latencies: list[float] = []
        self._due_in_window = 0
        self._last_due_s = -math.inf  # of those in the window
        self._open_in_window = 0
        self.in_flight = 0
        self.issued = 0
        self._stopped = False

    def due(self, due_s: float) -> None:
        """A request fell due."""
        self.in_flight += 1
        self.issued += 1
        if self._in_window(due_s):
            self._due_in_window += 1
            self._last_due_s = max(self._last_due_s, due_s)
            self._open_in_window += 1

    def ended(self, due_s: float, end_s: float) -> None:
        """A request ended, well or badly."""
        self.in_flight -= 1
        if self.phase in (Phase.START, Phase.WARMUP):
            self._latencies.append(end_s - due_s)
            self.warmup_requests += 1
        if self._in_window(due_s):
            self._open_in_window -= 1

    def stop(self) -> None:
        """Issue nothing more: an interrupt, or a cell that is given up."""
        self._stopped = True

    def _in_window(self, due_s: float) -> bool:
        if self._fixed is not None:
            return self._fixed[0] <= due_s < self._fixed[1]
        if self.window_open_s is None or due_s < self.window_open_s:
            return False
        return self.window_close_s is None or due_s < self.window_close_s

    def tick(self, now_s: float) -> Phase:
        """Advance to the phase that holds at `now_s` and return it; transitions are taken one after the other."""
        before = None
        while before is not self.phase:
            before = self.phase
            self._advance(now_s)
        return self.phase

    def next_time_s(self) -> float:
        """Return when the phase may next change by the passing of time alone; inf when only a request can change it."""
        if self.phase is Phase.START:
            return self.full_load_s
        if self._fixed is not None and self.phase in (Phase.WARMUP, Phase.WINDOW):
            return self._fixed[self.phase is Phase.WINDOW]
        if self.phase is Phase.WARMUP:
            cut_s = self.full_load_s + self._rule.warmup_max_s
            if not self._latencies:
                return cut_s if self._rule.warmup_requests else self.full_load_s
            return min(cut_s, self.full_load_s + self._rule.warmup_requests * statistics.median(self._latencies))
        if self.phase is Phase.WINDOW and self.window_open_s is not None:
            full = self._due_in_window >= self._rule.min_requests
            return self.window_open_s + (self._rule.min_s if full else self._rule.max_s)
        return math.inf

    def _advance(self, now_s: float) -> None:
        if self._stopped and self.phase not in (Phase.DRAIN, Phase.OVER):
            self.phase = Phase.DRAIN
        elif self.phase is Phase.START and now_s >= self.full_load_s:
            self.phase = Phase.WARMUP
        elif self.phase is Phase.WARMUP and self._warm(now_s):
            self.phase, self.window_open_s = Phase.WINDOW, self._fixed[0] if self._fixed else now_s
        elif self.phase is Phase.WINDOW and now_s >= self.next_time_s():
            self.phase, self.window_close_s = Phase.HOLD, self._fixed[1] if self._fixed else self._closing_s(now_s)
        elif self.phase is Phase.HOLD and self._open_in_window == 0:
            self.phase = Phase.DRAIN
        elif self.phase is Phase.DRAIN and self.in_flight == 0:
            self.phase, self.drained_s = Phase.OVER, now_s

    def _closing_s(self, now_s: float) -> float:
        """Return when the window closes: not before the request that filled it, which may fall due this instant."""
        return now_s if now_s > self._last_due_s else math.nextafter(self._last_due_s, math.inf)

    def _warm(self, now_s: float) -> bool:
        warm = now_s >= self.next_time_s()
        if self._fixed is None:
            self.warmup_cut = warm and now_s >= self.full_load_s + self._rule.warmup_max_s
        return warm
