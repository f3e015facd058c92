"""No stamp goes back within a connection: bytes that a lost packet held up could not be read before it came again."""

from __future__ import annotations

import socket
import time

import gevent

from loadtest.drive.clock import Clock
from loadtest.drive.connection import Connection
from loadtest.drive.endpoint import Endpoint


class Stamped(Clock):
    """A clock whose packets arrived so long before they were read, in milliseconds; below 0: no stamp."""

    __slots__ = ("before_ms",)

    def arrival_ns(self, timespec: bytes, now_ns: int) -> int:
        before = self.before_ms.pop(0)
        return now_ns - int(before * 1e6) if before >= 0 else -1


def test_no_stamp_lies_before_the_last_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        clock = Stamped()
        clock.before_ms = [1.0, 900.0, 0.0, -1.0, 500.0]
        connection = Connection(Endpoint(f"http://127.0.0.1:{listening.getsockname()[1]}"), clock)
        far, _ = listening.accept()
        stamps: list[int] = []
        with far:
            for _ in range(5):
                far.send(b"x")
                gevent.sleep(0.01)
                assert connection.receive() == b"x"
                stamps.append(connection.arrived_ns)
                assert connection.lag_ns >= 0
        connection.close()
    assert stamps == sorted(stamps)
    assert stamps[1] == stamps[0]  # 0.9 s before it was read the bytes before had not come
    assert stamps[2] > stamps[1]
    assert stamps[4] == stamps[3]
    assert stamps[4] < time.perf_counter_ns()
