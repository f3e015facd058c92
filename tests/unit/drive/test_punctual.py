"""Greenlets that wait for instants wake in order, never early, and leave nothing behind when they are killed."""

from __future__ import annotations

import time

import gevent
import pytest

from loadtest.drive import punctual
from loadtest.drive.punctual import sleep_until


def test_each_wakes_after_its_instant_and_in_order() -> None:
    began_s = time.perf_counter()
    woken: list[tuple[int, float]] = []

    def wait(number: int) -> None:
        at_s = began_s + 0.1 + 0.0007 * number  # later than all have begun to wait
        sleep_until(at_s)
        woken.append((number, time.perf_counter() - at_s))

    order = [(7 * i) % 100 + 1 for i in range(100)]
    gevent.joinall([gevent.spawn(wait, number) for number in order], raise_error=True)
    assert [number for number, _ in woken] == sorted(order)
    assert min(late_s for _, late_s in woken) >= 0


@pytest.mark.parametrize(("idle_s", "awake"), [(0.02, True), (1.0, False)])
def test_the_end_of_a_longer_wait_is_waited_for_awake(
    monkeypatch: pytest.MonkeyPatch, idle_s: float, awake: bool
) -> None:
    monkeypatch.setattr(punctual, "EARLY_S", 0.05)
    monkeypatch.setattr(punctual, "IDLE_S", idle_s)
    at_s, began_s = time.perf_counter() + 0.1, time.thread_time()
    sleep_until(at_s)
    assert time.perf_counter() >= at_s
    assert (time.thread_time() - began_s > 0.01) is awake


def test_an_earlier_instant_goes_before_one_that_is_waited_for() -> None:
    woken: list[str] = []
    began_s = time.perf_counter()
    late = gevent.spawn(lambda: (sleep_until(began_s + 0.08), woken.append("late")))
    gevent.sleep(0.01)
    early = gevent.spawn(lambda: (sleep_until(began_s + 0.03), woken.append("early")))
    gevent.joinall([late, early], raise_error=True)
    assert woken == ["early", "late"]


def test_an_instant_that_has_passed_is_not_waited_for() -> None:
    sleep_until(time.perf_counter() - 1.0)
    sleep_until(0.0)


def test_a_killed_wait_wakes_nobody() -> None:
    at_s = time.perf_counter() + 0.03
    gone = gevent.spawn(sleep_until, at_s)
    gevent.sleep(0)
    gone.kill()
    sleep_until(at_s)  # the same instant: the dead one is passed over
    gevent.sleep(0.01)
    assert gone.dead


def test_the_hub_goes_on_while_one_waits() -> None:
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while True:
            gevent.sleep(0.001)
            ticks += 1

    ticking = gevent.spawn(tick)
    sleep_until(time.perf_counter() + 0.05)
    ticking.kill()
    assert ticks >= 5


def test_without_such_timers_the_hub_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(punctual, "_kernel", lambda: None)
    monkeypatch.setattr(punctual, "_waits", {})
    at_s = time.perf_counter() + 0.02
    sleep_until(at_s)
    assert time.perf_counter() >= at_s
    assert list(punctual._waits.values()) == [None]
