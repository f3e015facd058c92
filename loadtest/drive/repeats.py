"""The way of nearly every read: chunks of HTTP with one event like one before in each, stamped by the kernel.

With a thousand streams under way, what belongs to one of them has left the processor's cache by its next read, and to
touch an object costs more than what is done with it. So this way has an object of its own, which holds all it needs and
no number that changes with each read. Whatever else comes goes the way of every other read, through `Exchange`.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from loadtest.drive.alike import UNCOUNTED
from loadtest.drive.clock import STAMP_SPACE
from loadtest.drive.connection import LONG_NS, READ_SIZE, Connection
from loadtest.drive.deltas import Deltas

Stamps = list[tuple[int, int, bytes]]  # that came with the bytes
Other = Callable[[bytes, Stamps, int], None]  # takes a read of any other kind: its bytes, stamps and when it was made


class Repeats:
    """Reads the events of one stream that are like one before them. `lag_ns` is the largest lag of its reads."""

    __slots__ = ("_alike", "_chunk_s", "_clock", "_deltas", "_failed", "_gatherer", "_other", "_recvmsg", "lag_ns")

    def __init__(self, connection: Connection, deltas: Deltas, other: Other, failed: Callable[[Exception], None]) -> (
        None
    ):  # fmt: skip
        """Take a connection with a gatherer, and a stream that repeats; neither `other` nor `failed` may raise."""
        self._recvmsg, self._clock = connection.recvmsg, connection.clock
        self._gatherer: Any = connection.gatherer
        self._deltas, self._alike, self._chunk_s = deltas, deltas.alike, deltas.chunk_s
        self._other, self._failed = other, failed
        self.lag_ns = 0

    def read(self) -> None:
        """Read once; in a callback of the hub."""
        try:
            self._read()
        except Exception as error:  # noqa: BLE001  # the exchange sorts it out; nothing may reach the hub
            self._failed(error)

    def _read(self) -> None:
        data, stamps, _, _ = self._recvmsg(READ_SIZE, STAMP_SPACE)
        now_ns = perf_counter_ns()
        clock, chunk_s = self._clock, self._chunk_s
        arrived_ns = clock.arrival_ns(stamps[0][2], now_ns) if stamps else -1
        lag_ns = now_ns - arrived_ns
        # Bytes that were read late, though the hub was not busy, may have waited for a lost packet.
        if arrived_ns >= 0 and (lag_ns <= LONG_NS or arrived_ns > self._gatherer.busy_since_ns):
            at_s = (arrived_ns - clock.origin_ns) * 1e-9
            if at_s < chunk_s[-1]:  # no stamp goes back
                at_s = chunk_s[-1]
            count = self._alike.count_in_chunk(data)
            if count == UNCOUNTED:
                chunk_s.append(at_s)
            if count == UNCOUNTED or self._deltas.take_count(count, at_s) or self._deltas.take_chunks(data, at_s):
                if lag_ns > self.lag_ns:  # max() costs a call
                    self.lag_ns = lag_ns
                return
        self._other(data, stamps, now_ns)
