from __future__ import annotations

import socket
import struct
import sys
import time

import pytest

from loadtest.drive import clock as clock_module
from loadtest.drive.clock import SO_TIMESTAMPNS, Clock

linux = pytest.mark.skipif(sys.platform != "linux", reason="kernel stamps are taken on Linux")


def timespec(wall_ns: int) -> bytes:
    return struct.pack("@ll", *divmod(wall_ns, 10**9))


def test_seconds_count_from_the_origin() -> None:
    origin = time.perf_counter_ns() - 2_000_000_000
    clock = Clock(origin)
    assert clock.now_s() == pytest.approx(2.0, abs=0.2)
    assert clock.at_s(origin + 1_500_000_000) == 1.5
    assert Clock().now_s() < 0.2


def test_a_stamp_is_carried_over() -> None:
    clock = Clock()
    time.sleep(0.03)
    wall, now = time.time_ns(), time.perf_counter_ns()
    assert clock.arrival_ns(timespec(wall - 10_000_000), now) == pytest.approx(now - 10_000_000, abs=200_000)
    assert clock.steps == 0


def test_a_stamp_from_the_future_is_not_trusted() -> None:
    clock = Clock()
    now = time.perf_counter_ns()
    assert clock.arrival_ns(timespec(time.time_ns() + 1_000_000_000), now) == -1


@pytest.mark.parametrize("step_ns", [3_600_000_000_000, -3_600_000_000_000, 5_000_000, -5_000_000])
def test_a_step_of_the_wall_clock_is_noticed_and_kept_out(monkeypatch: pytest.MonkeyPatch, step_ns: int) -> None:
    clock = Clock()
    time.sleep(0.02)
    true_wall = time.time_ns
    before_step = true_wall() - 10_000_000
    monkeypatch.setattr(clock_module.time, "time_ns", lambda: true_wall() + step_ns)
    # A packet stamped before the step and read after it: only the time of the read is safe.
    assert clock.arrival_ns(timespec(before_step), time.perf_counter_ns()) == -1
    assert clock.steps == 1
    time.sleep(0.02)
    now = time.perf_counter_ns()
    arrival = clock.arrival_ns(timespec(true_wall() + step_ns - 3_000_000), now)
    assert arrival == pytest.approx(now - 3_000_000, abs=500_000)
    assert clock.steps == 1


def test_a_slew_of_the_wall_clock_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    began = time.perf_counter_ns()
    true_wall = time.time_ns
    monkeypatch.setattr(
        clock_module.time, "time_ns", lambda: true_wall() + (time.perf_counter_ns() - began) * 500 // 1_000_000
    )
    for _ in range(40):
        time.sleep(0.005)
        now = time.perf_counter_ns()
        arrival = clock.arrival_ns(timespec(clock_module.time.time_ns() - 2_000_000), now)
        assert arrival == pytest.approx(now - 2_000_000, abs=500_000)
    assert clock.steps == 0


@linux
def test_the_kernel_stamps_agree_with_the_clock() -> None:
    clock = Clock()
    time.sleep(0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        near.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        far, _ = listener.accept()
        with far:
            errors = []
            for _ in range(50):
                sent = time.perf_counter_ns()
                far.sendall(b"x")
                back = time.perf_counter_ns()
                time.sleep(0.002)  # a late read does not move the stamp
                _, ancillary, _, _ = near.recvmsg(10, 64)
                arrival = clock.arrival_ns(ancillary[0][2], time.perf_counter_ns())
                errors.append(max(sent - arrival, arrival - back, 0))
    assert sorted(errors)[25] < 20_000
    assert sorted(errors)[45] < 1_000_000
