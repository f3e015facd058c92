"""What a worker has measured and its master may lack: numbered, sent, and sent again until the master has it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any, NamedTuple

RESEND_S = 1.0  # without a word on what was sent: the master says how it stands four times a second
LONGEST_S = 16.0  # the wait doubles up to here, for a line that carries the master's words and not the rows
CUT_S = 2.0  # without a word at all: what comes after it begins anew
SPREAD = 0.25  # of a wait, more or less: workers whose line was cut at one moment do not all send at another
AT_ONCE = 64  # batches that are on their way at most


class _Batch(NamedTuple):
    """Rows that the master may lack."""

    first: int
    rows: int
    read: Callable[[], bytes]  # as they are sent


class Outbox:
    """Numbers the rows of a worker from 0 on, and says which of them are to be sent now."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic, seed: str = "") -> None:
        """Hold nothing; `seed` spreads the waits."""
        self._now_s, self._random = now_s, Random(seed)
        self._unheard: deque[_Batch] = deque()
        self.rows = 0  # of all batches
        self.heard = 0  # rows that the master has
        self._sent = 0  # rows that were sent since they were last sent again
        self._moved_s = self._word_s = now_s()
        self._wait_s = self._pause_s = RESEND_S  # until it is sent again: as it is spread, and before
        self._again = 0  # times that all was sent again, since the master last had more

    def put(self, rows: int, read: Callable[[], bytes]) -> None:
        """Take a batch that follows those before; `read` returns it as it is sent, whenever that is."""
        if self.heard == self.rows:
            self._moved_s = self._now_s()
        self._unheard.append(_Batch(self.rows, rows, read))
        self.rows += rows

    def has(self, rows: int) -> None:
        """The master has this many rows: more than these, where a file lost its end with the machine."""
        now_s = self._now_s()
        if min(rows, self.rows) > self.heard:
            self.heard = min(rows, self.rows)
            self._begin_anew(now_s, RESEND_S)
        elif now_s - self._word_s > CUT_S:
            self._begin_anew(now_s, RESEND_S * self._random.random())
        self._word_s = now_s
        while self._unheard and self._unheard[0].first + self._unheard[0].rows <= self.heard:
            self._unheard.popleft()

    def hurry(self) -> None:
        """Send again what is not heard of, without a further wait: the run is over."""
        self._begin_anew(self._now_s(), 0.0)

    def to_send(self) -> list[dict[str, Any]]:
        """Return what is to be sent now: what is new, or what has not been heard of for a while."""
        now_s = self._now_s()
        if self.heard < self.rows and now_s - self._moved_s > self._wait_s:
            self._sent, self._moved_s, self._again = self.heard, now_s, self._again + 1
            self._pause_s = min(LONGEST_S, 2 * self._pause_s)
            self._wait_s = self._spread(self._pause_s)
        elif self._again > 1:
            return []  # what is new comes after a gap, and would not be taken
        found: list[dict[str, Any]] = []
        for first, rows, read in islice(self._unheard, AT_ONCE):
            if first + rows > self._sent:
                found.append({"first": first, "rows": rows, "batch": read()})
        if found:
            self._sent = found[-1]["first"] + found[-1]["rows"]
        return found

    def _begin_anew(self, now_s: float, wait_s: float) -> None:
        self._moved_s, self._wait_s, self._pause_s, self._again = now_s, self._spread(wait_s), RESEND_S, 0

    def _spread(self, wait_s: float) -> float:
        return wait_s * self._random.uniform(1 - SPREAD, 1 + SPREAD)
