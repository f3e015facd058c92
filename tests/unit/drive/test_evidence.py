"""What a cell keeps of its client: exact, and as little as it can be."""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from loadtest.drive.client import Clock
from loadtest.drive.evidence import Evidence, Streams, quantile, suspended_s
from loadtest.record import Request


def test_nearest_rank() -> None:
    assert quantile([], 0.99) is None
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile(list(range(1, 101)), 0.99) == 99


def test_in_flight_is_the_mean_over_time_and_lags_are_those_of_the_window() -> None:
    evidence = Evidence(Clock())
    evidence.tick(9.0, 5.0, 100)  # before the window
    evidence.open(10.0, 2)
    evidence.tick(11.0, 0.001, 4)
    evidence.tick(13.0, 0.002, 1)
    evidence.close(14.0)
    evidence.tick(15.0, 7.0, 100)  # after it
    assert evidence.in_flight_mean == pytest.approx((2 * 1 + 4 * 2 + 1 * 1) / 4)
    assert (evidence.hub_lag_p99_s, evidence.hub_lag_max_s) == (0.002, 0.002)
    assert evidence.cpu_ratio is not None
    assert 0 <= evidence.cpu_ratio < 1


def test_without_a_window_there_is_no_evidence() -> None:
    evidence = Evidence(Clock())
    assert (evidence.in_flight_mean, evidence.hub_lag_p99_s, evidence.hub_lag_max_s) == (None, None, None)
    assert (evidence.clock_steps, evidence.suspended_s, evidence.cpu_ratio) == (None, None, None)


def test_steps_of_the_wall_clock_and_sleep_of_the_machine_are_those_of_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, slept = Clock(), [100.0]
    clock.steps = 3
    monkeypatch.setattr("loadtest.drive.evidence.suspended_s", lambda: slept[0])
    evidence = Evidence(clock)
    evidence.open(10.0, 0)
    clock.steps, slept[0] = 5, 142.5
    evidence.close(11.0)
    assert (evidence.clock_steps, evidence.suspended_s) == (2, 42.5)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not say how long they slept")
def test_this_machine_says_how_long_it_slept() -> None:
    first, second = suspended_s(), suspended_s()
    assert first is not None
    assert second is not None
    assert abs(second - first) < 0.01


def test_streams_are_counted_and_let_go() -> None:
    streams = Streams()
    assert (streams.coalesced_ratio, streams.lag_p99_s) == (None, None)
    streams.add(Request())  # nothing came
    assert (streams.coalesced_ratio, streams.lag_p99_s) == (None, None)
    streams.add(Request(chunk_s=[1.0, 2.0, 2.0], coalesced=1, lag_max_s=0.002))
    streams.add(Request(chunk_s=[1.0], lag_max_s=0.004))
    assert (streams.coalesced_ratio, streams.lag_p99_s) == (0.25, 0.004)


def test_a_request_of_a_hundred_chunks_leaves_eight_bytes() -> None:
    streams = Streams()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(20_000):
        streams.add(Request(chunk_s=[float(number)] * 100, chunk_tokens=[1] * 100, lag_max_s=1e-3 * number))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000 * 12
