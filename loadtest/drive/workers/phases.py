"""The phases of a cell whose load several workers make: the master's follow what the workers count, theirs its word."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadtest.drive.phases import Phase, Phases
from loadtest.settings import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What the master has said of a cell so far; said again and again, so that a lost message does no harm."""

    opens_s: float | None = None  # the window; seconds on the run's clock
    closes_s: float | None = None
    drain: bool = False  # issue nothing more
    cut: bool = False  # end at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """What a worker counts of a cell, all told; so that a lost message does no harm."""

    issued: int = 0
    in_flight: int = 0
    due_in_window: int = 0
    open_in_window: int = 0
    heard: Word = Word()  # the word by which it counts
    over: bool = False  # none of its users sends or waits any more

    def message(self) -> dict[str, Any]:
        """Return it for a message."""
        return asdict(self)


class ToldPhases(Phases):
    """A worker's phases: windows open and close, and users stop, at the master's word."""

    def __init__(self, window: Window, started_s: float, stagger_s: float) -> None:
        """Begin at `started_s`; full load begins `stagger_s` later."""
        super().__init__(window, 0, started_s, stagger_s)
        self.word = Word()
        self._dues = array("d")  # of every request so far
        self._open: Counter[float] = Counter()  # due times of the requests in flight

    def hear(self, word: Word) -> None:
        """Take the master's word; what came before it reached this worker is counted by it too."""
        if word != self.word:
            self.word = word
            self._due_in_window = sum(map(self._in_window, self._dues))
            self._open_in_window = sum(n for due_s, n in self._open.items() if self._in_window(due_s))

    def due(self, due_s: float) -> None:
        """A request fell due."""
        self._dues.append(due_s)
        self._open[due_s] += 1
        super().due(due_s)

    def ended(self, due_s: float, end_s: float) -> None:
        """A request ended, well or badly."""
        self._open[due_s] -= 1
        if not self._open[due_s]:
            del self._open[due_s]
        super().ended(due_s, end_s)

    def count(self, *, over: bool) -> Count:
        """Return what is counted by the latest word."""
        return Count(
            issued=self.issued, in_flight=self.in_flight, due_in_window=self._due_in_window,
            open_in_window=self._open_in_window, heard=self.word, over=over,
        )  # fmt: skip

    def _in_window(self, due_s: float) -> bool:
        opens_s, closes_s = self.word.opens_s, self.word.closes_s
        return opens_s is not None and due_s >= opens_s and (closes_s is None or due_s < closes_s)

    def next_time_s(self) -> float:
        """Return when the phase may change by the passing of time alone."""
        return self.full_load_s if self.phase is Phase.START else math.inf

    def _advance(self, now_s: float) -> None:
        word = self.word
        if (self._stopped or word.drain) and self.phase not in (Phase.DRAIN, Phase.OVER):
            self.phase = Phase.DRAIN
        elif self.phase is Phase.START and now_s >= self.full_load_s:
            self.phase = Phase.WARMUP
        elif self.phase is Phase.WARMUP and word.opens_s is not None and now_s >= word.opens_s:
            self.phase, self.window_open_s = Phase.WINDOW, word.opens_s
        elif self.phase is Phase.WINDOW and word.closes_s is not None and now_s >= word.closes_s:
            self.phase, self.window_close_s = Phase.HOLD, word.closes_s
        elif self.phase is Phase.DRAIN and self.in_flight == 0:
            self.phase, self.drained_s = Phase.OVER, now_s


class JoinedPhases(Phases):
    """The master's phases: as those of a cell in one process, with the workers' counts in place of its own."""

    def __init__(self, window: Window, users: int, started_s: float, stagger_s: float,
                 fixed: tuple[float, float] | None, counts: Callable[[], Sequence[Count]],
                 say: Callable[[Word], None]) -> None:  # fmt: skip
        """As `Phases`; `counts` gives what the workers count now, `say` passes the master's word on to them."""
        super().__init__(window, users, started_s, stagger_s, fixed)
        self._counts, self._say = counts, say

    def due(self, due_s: float) -> None:
        """Nothing: the workers count."""

    def ended(self, due_s: float, end_s: float) -> None:
        """A request has ended on a worker: the warm-up lasts as long as some of them."""
        if self.phase in (Phase.START, Phase.WARMUP):
            self._latencies.append(end_s - due_s)
            self.warmup_requests += 1

    def tick(self, now_s: float) -> Phase:
        """Advance by what the workers count, and say what they are to know."""
        phase = super().tick(now_s)
        self._say(self.word())
        return phase

    def _advance(self, now_s: float) -> None:
        self._take(self._counts())  # by the word that holds now: a phase that has just begun was not counted in yet
        super()._advance(now_s)

    def _take(self, counts: Sequence[Count]) -> None:
        """Take what the workers count; one that has not heard the latest word keeps the phase from going on."""
        word = self.word()
        behind = sum(count.heard.opens_s != word.opens_s or count.heard.closes_s != word.closes_s for count in counts)
        self.issued = sum(count.issued for count in counts)
        self._due_in_window = sum(count.due_in_window for count in counts)
        self._open_in_window = behind + sum(count.open_in_window for count in counts)
        self.in_flight = sum(count.in_flight for count in counts)
        if word.drain and not self.in_flight:
            self.in_flight = sum(not count.over for count in counts)

    def word(self) -> Word:
        """Return what the workers are to know."""
        return Word(opens_s=self.window_open_s, closes_s=self.window_close_s,
                    drain=self.phase in (Phase.DRAIN, Phase.OVER))  # fmt: skip
