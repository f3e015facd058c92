"""The distance of two machines' clocks, from round trips: an estimate and a bound that holds whatever the network does.

A worker notes when it asked (a) and when the answer came (d), the master when it heard (b) and answered (c), each on
its own monotonic clock. The distance master − worker lies between c − d and b − a; the middle is wrong by at most half
of the round trip (d − a) − (c − b), so that the quickest round trip tells most (RFC 5905, sections 8 and 10). As there,
a bound grows by 15 µs with every second that the measurement is old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

KEPT = 64  # round trips
DRIFT = 15e-6  # most that two clocks move apart, seconds per second


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrip:
    """One question and its answer; nanoseconds of `time.perf_counter_ns`, on the worker and on the master."""

    asked_ns: int
    heard_ns: int  # on the master
    answered_ns: int  # on the master
    came_ns: int

    @property
    def offset_ns(self) -> int:
        """Master − worker: the middle of what it can be."""
        return ((self.heard_ns - self.asked_ns) + (self.answered_ns - self.came_ns)) // 2

    @property
    def bound_ns(self) -> int:
        """By how much the offset can be wrong at most."""
        return ((self.came_ns - self.asked_ns) - (self.answered_ns - self.heard_ns) + 1) // 2

    def bound_at(self, now_ns: int) -> int:
        """Return the bound at another moment of the worker's clock."""
        return self.bound_ns + int(DRIFT * abs(now_ns - self.came_ns))

    def bound_of(self, offset_ns: int) -> int:
        """Return by how much another offset than its own can be wrong at most, at the moment of this round trip."""
        return abs(offset_ns - self.offset_ns) + self.bound_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """Master − worker, and by how much that can be wrong at most; nanoseconds."""

    offset_ns: int
    bound_ns: int


class Clocks:
    """Keeps the latest round trips to the master."""

    def __init__(self, *, same: bool) -> None:
        """`same` says that both run on one boot of one kernel, whose monotonic clock is one clock."""
        self._trips: deque[RoundTrip] = deque(maxlen=KEPT)
        self._same = same

    def add(self, trip: RoundTrip) -> None:
        """Take in a round trip; one that contradicts itself (a reused or forged answer) is left out."""
        if trip.bound_ns >= 0 and trip.came_ns >= trip.asked_ns and trip.answered_ns >= trip.heard_ns:
            self._trips.append(trip)

    @property
    def trips(self) -> int:
        """Number of round trips that are kept."""
        return len(self._trips)

    def offset(self, now_ns: int) -> Offset | None:
        """Return the offset to use from now on; None before the first round trip.

        On one boot of one kernel it is 0, unless the round trips exclude that (time_namespaces(7)).
        """
        if not self._trips:
            return None
        if self._same and all(trip.bound_of(0) <= 2 * trip.bound_ns for trip in self._trips):
            return Offset(offset_ns=0, bound_ns=0)
        best = min(self._trips, key=lambda trip: trip.bound_at(now_ns))
        return Offset(offset_ns=best.offset_ns, bound_ns=best.bound_at(now_ns))

    def bound_since(self, used: Offset, since_ns: int) -> int | None:
        """Return by how much an offset in use can have been wrong at most, since a moment; nanoseconds.

        The quickest of the round trips since then says where the clocks are now. None without any.
        """
        since: Iterable[RoundTrip] = [trip for trip in self._trips if trip.asked_ns >= since_ns]
        now = min((trip.bound_of(used.offset_ns) for trip in since), default=None)
        if now is None or (used.bound_ns == 0 and self._same):
            return used.bound_ns if now is not None else None
        return max(used.bound_ns, now)
